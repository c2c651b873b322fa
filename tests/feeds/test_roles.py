"""Roles of inputs, by use alone: no input here has a telling name."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds.case_search import make_cases
from graphfix.feeds.coverage import measure_coverage
from graphfix.feeds.roles import Role, roles_of
from tests.feeds.small_models import ADDITIVE, HEAD, LENGTHS, TOKENS, model


def role(text: str, name: str) -> Role:
    return roles_of(model(text))[name]


def test_indices_of_a_table_are_bounded_by_its_rows():
    found = role(TOKENS, "a")
    assert (found.kind, found.low, found.high) == ("tokens", 0, 5)


def test_indices_of_two_tables_are_bounded_by_the_smaller_one_and_by_arithmetic():
    found = role(
        """m (int64[B, T] a) => (float[B, T, 1] y, float[B, T, 1] z)
        <float[9, 1] big = {0,1,2,3,4,5,6,7,8}, float[6, 1] small = {0,1,2,3,4,5},
         int64 two = {2}, int64 one = {1}>
        { i = Sub (a, one)  y = Gather (big, i)  j = Mul (a, two)  z = Gather (small, j) }""",
        "a",
    )
    # 0 <= a - 1 <= 8 and 0 <= 2 a <= 5
    assert (found.kind, found.low, found.high) == ("tokens", 1, 3)


def test_a_mask_times_its_own_sum_is_a_position_and_bounds_nothing():
    text = """m (int64[B, T] a, float[B, T, T] s) => (float[B, T, 1] y, float[B, T, T] w)
        <float[66, 1] table, int64 axis = {1}, int64 one = {1}, int64[1] at = {1},
         float low = {-1e9}>
        { sum = CumSum (a, axis)  p = Mul (sum, a)  i = Add (p, one)  y = Gather (table, i)
          keep = Cast <to = 9> (a)  hide = Not (keep)  wide = Unsqueeze (hide, at)
          masked = Where (wide, low, s)  w = Softmax (masked) }"""
    made = ir.from_onnx_text(
        HEAD + text, initializers=[ir.tensor(np.zeros((66, 1), np.float32), name="table")]
    )
    assert roles_of(made)["a"].kind == "mask"


def test_ids_that_are_compared_with_a_padding_id_are_no_mask_and_avoid_it():
    text = """m (int64[B, T] a) => (float[B, T, 1] y)
        <float[4, 1] table = {0,1,2,3}, int64 pad = {1}, float fill = {-9.0}>
        { e = Gather (table, a)  p = Equal (a, pad)  one = Constant <value_ints = [2]> ()
          q = Unsqueeze (p, one)  y = Where (q, fill, e) }"""
    assert role(text, "a").kind == "tokens"
    for case in make_cases(model(text)):
        assert not (case.feeds["a"] == 1).any()


FLOAT_IDS = """m (float[B, T] a, float[B, T, T] s) => (float[B, T, 1] y, float[B, T, T] w)
    <float[%d, 1] table, float zero = {0}, float low = {-1e9}, int64[1] at = {1}>
    { %s y = Gather (table, i)  hide = Equal (a, zero)  wide = Unsqueeze (hide, at)
      masked = Where (wide, low, s)  w = Softmax (masked) }"""


@pytest.mark.parametrize(
    ("rows", "body", "kind"),
    [
        (9, "i = Cast <to = 7> (a)", "tokens"),
        (
            9,
            "j = Transpose <perm = [1, 0]> (a)  k = Transpose (j)  i = Cast <to = 6> (k)",
            "tokens",
        ),
        (2, "i = Cast <to = 7> (a)", "mask"),  # one of two rows
        (9, "n = Floor (a)  i = Cast <to = 7> (n)", "mask"),  # computed, such as a bucket
    ],
)
def test_floats_that_are_cast_to_indices_are_ids(rows: int, body: str, kind: str) -> None:
    table = ir.tensor(np.zeros((rows, 1), np.float32), name="table")
    made = ir.from_onnx_text(HEAD + FLOAT_IDS % (rows, body), initializers=[table])
    role = roles_of(made)["a"]
    assert role.kind == kind
    if kind == "tokens":
        assert (role.low, role.high, role.choices) == (0, 9, (0,))
        assert {x.feeds["a"].dtype for x in make_cases(made)} == {np.dtype(np.float32)}
        fed = np.concatenate([x.feeds["a"].reshape(-1) for x in make_cases(made)])
        assert (fed == np.trunc(fed)).all()


WHERE = """m (float[B, T, T] s, %s[B, T] a) => (float[B, T, T] y)
    <int64[1] ax = {1}, float fill = {-10000.0}, int64 zero = {0}>
    { %s u = Unsqueeze (c, ax)  t = Where (u, %s)  y = Softmax (t) }"""


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        pytest.param(ADDITIVE, 1, id="(1 - mask) * -1e4"),
        pytest.param(WHERE % ("int64", "c = Equal (a, zero)", "fill, s"), 1, id="a == 0 masks"),
        pytest.param(WHERE % ("int64", "c = Cast <to = 9> (a)", "fill, s"), 0, id="true masks"),
        pytest.param(WHERE % ("bool", "c = Identity (a)", "s, fill"), 1, id="true keeps"),
        pytest.param(WHERE % ("bool", "c = Not (a)", "s, fill"), 0, id="not true keeps"),
    ],
)
def test_the_polarity_of_a_mask_is_read_from_where_it_ends(text: str, valid: int):
    found = role(text, "a")
    assert (found.kind, found.valid, found.padded) == ("mask", valid, 1 - valid)
    for case in make_cases(model(text)):
        for row, length in zip(case.feeds["a"], case.valid["T"], strict=True):
            assert (row[:length] == valid).all()
            assert (row[length:] == 1 - valid).all()


def test_a_float_that_is_added_to_scores_is_an_additive_mask():
    text = """m (float[B, H, T, T] s, float[B, 1, T, T] a) => (float[B, H, T, T] y)
        { u = Mul (s, s)  t = Add (u, a)  y = Softmax (t) }"""
    found = role(text, "a")
    assert (found.kind, found.valid, found.padded) == ("mask", 0, -1e4)
    case = make_cases(model(text))[-1]
    assert case.feeds["a"].shape[1] == 1
    assert set(np.unique(case.feeds["a"])) == {0, -1e4}


def test_a_float_column_that_multiplies_data_is_a_mask():
    text = """m (float[B, T, 3] s, float[B, T, 1] a) => (float[B, T, 3] y)
        { y = Mul (s, a) }"""
    assert role(text, "a").kind == "mask"
    assert role(text, "s").kind == "data"


@pytest.mark.parametrize(("name", "dtype"), [("int32", 6), ("int64", 7)])
def test_a_length_is_what_is_compared_with_positions(name: str, dtype: int):
    """Also where both have four more, for tokens put in front."""
    text = LENGTHS % (name, dtype, dtype)
    assert role(text, "a").kind == "lengths"
    for case in make_cases(model(text)):
        lengths = case.feeds["a"]
        assert lengths.dtype == name
        assert lengths.max() == case.dims["T"]
        assert lengths.min() >= 1
        assert case.valid["T"] == tuple(lengths)


def test_a_length_that_feeds_a_recurrent_layer():
    text = """m (float[T, B, 1] s, int32[B] a) => (float[T, 1, B, 1] y)
        <float[1, 4, 1] w = {1,1,1,1}, float[1, 4, 1] r = {1,1,1,1}>
        { y, h, c = LSTM <hidden_size = 1> (s, w, r, , a) }"""
    assert role(text, "a").kind == "lengths"
    cases = make_cases(model(text))
    assert {c.feeds["s"].shape[1] for c in cases} == {1, 2, 3}
    assert cases[-1].valid["T"] == tuple(cases[-1].feeds["a"])


def test_a_share_of_the_length():
    text = """m (float[B, T] s, float[B] a) => (float[B, T] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] ax = {1}>
        { n = Shape <start = 1, end = 2> (s)  k = Squeeze (n)  f = Cast <to = 1> (k)
          l = Mul (a, f)  r = Range (zero, k, one)  q = Cast <to = 1> (r)
          u = Unsqueeze (l, ax)  c = Less (q, u)  w = Cast <to = 1> (c)  y = Mul (s, w) }"""
    assert role(text, "a").kind == "relative-lengths"
    case = make_cases(model(text))[-1]
    assert case.feeds["a"].max() == 1
    assert 0 < case.feeds["a"].min() < 1


def test_a_share_of_the_length_at_which_a_slice_ends():
    text = """m (float[B, T] s, float[B] a) => (float[B, U] y)
        <int64[1] zero = {0}, int64[1] ax = {1}>
        { n = Shape <start = 1, end = 2> (s)  f = Cast <to = 1> (n)  l = Mul (a, f)
          r = Round (l)  q = Cast <to = 7> (r)  e = Gather (q, zero)
          y = Slice (s, zero, e, ax) }"""
    assert role(text, "a").kind == "relative-lengths"


@pytest.mark.parametrize(
    ("op", "args", "low", "high"),
    [
        ("GreaterOrEqual", "table, a", 2, 5),
        ("Greater", "a, table", 5, 8),
        ("LessOrEqual", "table, a", 5, 8),
        ("Less", "a, table", 2, 5),
    ],
)
def test_a_bound_of_a_table_lets_most_of_it_pass(op: str, args: str, low: float, high: float):
    text = f"""m (float[T, 3] s, float a) => (float[T, 3] y) <float[3] table = {{2, 4, 8}},
        float none = {{0}}> {{ c = {op} ({args}) y = Where (c, s, none) }}"""
    cases = make_cases(model(text))
    found = [float(case.feeds["a"]) for case in cases]
    assert all(low <= x <= high for x in found)
    assert len(set(found)) > 1
    assert "'a' over 1e4" not in measure_coverage(cases, cases.signature).missing


def test_cumulated_lengths_are_known_by_the_differences_of_neighbours():
    text = """m (float[T, 2] s, int32[K] a) => (float[T, 2] y, int32[J] z)
        <int64[1] b = {1}, int64[1] e = {9999}, int64[1] o = {0}, int64[1] f = {-1}>
        { y = Relu (s)  p = Slice (a, b, e)  q = Slice (a, o, f)  z = Sub (p, q) }"""
    assert role(text, "a").kind == "cu-lengths"


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("v, y = TopK (s, a)", "a size"),
        ("y = Reshape (s, a)", "a size"),
        ("y = ReduceSum (s, a)", "a whole number"),
        ("y = Unsqueeze (s, a)", "a whole number"),
    ],
)
def test_what_decides_a_shape_is_a_size_and_axes_are_none(node: str, why: str):
    text = f"m (float[T, 3] s, int64[1] a) => (float y) {{ {node} }}"
    assert role(text, "a").why == why


@pytest.mark.parametrize("moved", ["Flatten (t)", "Expand (t, shape)", "Concat <axis = 1> (t, t)"])
def test_a_mask_is_one_however_scores_move_on_to_the_softmax(moved: str):
    text = f"""m (float[B, T] s, float[B, T] a) => (float[B, U] y) <int64[2] shape = {{1, 1}}>
        {{ u = Mul (s, s)  t = Add (u, a)  v = {moved}  y = Softmax (v) }}"""
    assert role(text, "a").kind == "mask"


def test_data_that_goes_through_a_relu_is_no_mask():
    """Of a test of 0 or 1 a product would be sure to be one."""
    text = """m (float[B, T] s, float[B, T] a) => (float[B, T] y)
        { u = Relu (a)  y = Mul (s, u) }"""
    assert role(text, "a").kind == "data"


def test_a_number_that_chooses_a_branch():
    text = """m (float[T] s, int64 a) => (float[T] y) <int64 k = {16000}>
        { c = Equal (a, k)
          y = If (c) <then_branch = g () => (float[T] u) { u = Relu (s) },
                      else_branch = h () => (float[T] v) { v = Neg (s) }> }"""
    found = role(text, "a")
    assert (found.kind, found.choices) == ("choice", (16000,))


def test_an_input_that_nothing_uses_is_fed_zeros():
    text = "m (float[T] s, int32[2] a) => (float[T] y) { y = Relu (s) }"
    assert not make_cases(model(text))[0].feeds["a"].any()


PLACES = """m (float[B, S, 2] x, int64[S] a, float[B, 8, 2] past) => (float[B, S, 8] y,
        float[B, 8, 2] present)
    <int64[3] each = {1, -1, 1}, int64[2] place = {-1, 1}, int64[8] all = {0, 1, 2, 3, 4, 5, 6, 7}>
    { c = Reshape (a, place)  seen = LessOrEqual (all, c)  y = Cast <to = 1> (seen)
      r = Reshape (a, each)  s = Shape (x)  i = Expand (r, s)
      present = ScatterElements <axis = 1> (past, i, x) }"""


def test_a_vector_with_a_number_for_each_entry_is_no_length_of_a_row():
    found = role(PLACES, "a")
    assert (found.kind, found.high, found.writes) == ("positions", 8, True)
    compared = PLACES.split("r = Reshape")[0] + "present = Identity (past) }"
    assert role(compared.replace("S] a", "R] a"), "a").kind == "lengths"
    assert role(compared.replace("S] a", "S] cache_position").replace("(a, ", "(cache_position, "),
                "cache_position").kind == "positions"  # fmt: skip
