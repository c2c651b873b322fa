"""Inputs from the model itself: what an input is taken for, which sizes agree, what runs."""

from __future__ import annotations

import json
import keyword
import os
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import FeedError, ModelError
from graphfix.feeds.case import Case
from graphfix.feeds.case_search import make_cases, search_cases
from graphfix.feeds.coverage import measure_coverage
from graphfix.feeds.poison import poison_padding
from graphfix.feeds.roles import Role, roles_of
from graphfix.feeds.signature import Signature
from graphfix.feeds.user_feeds import case_from_feeds
from graphfix.runtime.run_errors import RunError

ZOO = Path(os.environ.get("GRAPHFIX_ZOO", Path(__file__).parents[3] / "shared" / "zoo"))
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def role(text: str, name: str) -> Role:
    return roles_of(model(text))[name]


# Roles. No input has a telling name, so that use alone decides.

TOKENS = """m (int64[B, T] a) => (float[B, T, 2] y)
    <float[5, 2] table = {0,1, 2,3, 4,5, 6,7, 8,9}> { y = Gather (table, a) }"""


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


ADDITIVE = """m (float[B, T, T] s, int64[B, T] a) => (float[B, T, T] y)
    <int64[1] ax = {1}, float one = {1.0}, float big = {-10000.0}>
    { f = Cast <to = 1> (a)  u = Unsqueeze (f, ax)  i = Sub (one, u)  d = Mul (i, big)
      t = Add (s, d)  y = Softmax (t) }"""
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


LENGTHS = """m (float[B, T, 2] s, %s[B] a) => (float[B, T, 2] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1}, int64[1] ax2 = {2}, int64 four = {4}>
    { n = Shape <start = 1, end = 2> (s)  k = Squeeze (n)  m = Add (k, four)
      r = Range (zero, m, one)  q = Cast <to = %d> (r)  f = Cast <to = %d> (four)
      b = Add (a, f)  c = Unsqueeze (b, ax1)  l = Less (q, c)
      w = Cast <to = 1> (l)  five = Constant <value_ints = [4]> ()
      end = Constant <value_ints = [9999]> ()  v = Slice (w, five, end, ax1)
      x = Unsqueeze (v, ax2)  y = Mul (s, x) }"""


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


# Sizes


def test_lengths_one_and_two_odd_and_longer_and_ragged_batches():
    cases = make_cases(model(ADDITIVE))
    assert [(c.dims["B"], c.dims["T"]) for c in cases] == [(1, 7), (1, 1), (2, 2), (2, 23), (3, 40)]
    assert [c.is_ragged for c in cases] == [False, False, True, True, True]
    assert not cases.dropped


def test_the_same_seed_makes_the_same_arrays():
    one, two, other = (make_cases(model(TOKENS), seed=s)[-1].feeds["a"] for s in (0, 0, 1))
    assert (one == two).all()
    assert (one != other).any()


def test_symbols_with_different_names_get_equal_sizes():
    """Dynamo gives each input its own names."""
    text = """m (int64[s72, s70] a, int64[s43, s53] b) => (float[s72, s70, 1] y)
        <float[5, 1] t = {0,1,2,3,4}, int64[1] ax = {2}, int64 zero = {0}, float fill = {-1e4}>
        { e = Gather (t, a)  m = Equal (b, zero)  u = Unsqueeze (m, ax)
          w = Where (u, fill, e)  y = Softmax <axis = 1> (w) }"""
    for case in make_cases(model(text)):
        assert case.dims["s72"] == case.dims["s43"]
        assert case.dims["s70"] == case.dims["s53"]


def test_a_mask_that_meets_no_data_is_as_long_as_the_data():
    text = """m (float[p, q] wave, int64[r, s] seen) => (float[p, q] y, int64[r] n)
        <int64[1] ax = {1}> { y = Relu (wave)  n = ReduceSum <keepdims = 0> (seen, ax) }"""
    signature = Signature(model(text))
    assert signature.group_of("p") == signature.group_of("r")
    assert signature.group_of("q") == signature.group_of("s")


def test_two_times_that_the_graph_does_not_relate_differ():
    text = """m (float[B, S, 2] a, float[B, T, 2] b) => (float[B, S, T] y)
        { t = Transpose <perm = [0, 2, 1]> (b)  y = MatMul (a, t) }"""
    cases = make_cases(model(text))
    assert all(c.dims["S"] != c.dims["T"] for c in cases if c.dims["S"] > 2)


def test_one_cache_under_several_names():
    # As dynamo writes it: one name recurs, the others stand alone.
    text = """m (float[B, 2, T, 4] q, float[B, 2, P, 4] k0, float[B, 2, Q, 4] v0,
               float[B, 2, P, 4] k1, float[B, 2, R, 4] v1) => (float[B, 2, T, 4] y)
        { a = Concat <axis = 2> (k0, q)  b = Concat <axis = 2> (v0, q)
          c = Concat <axis = 2> (k1, q)  d = Concat <axis = 2> (v1, q)
          at = Transpose <perm = [0, 1, 3, 2]> (a)  ct = Transpose <perm = [0, 1, 3, 2]> (c)
          s = MatMul (q, at)  y0 = MatMul (s, b)  z = MatMul (y0, ct)  y = MatMul (z, d) }"""
    cases = make_cases(model(text))
    for case in cases:
        assert len({case.dims[name] for name in "PQR"}) == 1
    assert any(case.dims["P"] != case.dims["T"] for case in cases)


def test_caches_of_self_and_of_cross_attention_under_names_of_their_own():
    # As torch names dims by itself; a mask of the encoder is looked up for each of its keys.
    text = """m (float[B, T, 8] x, int64[B, M] encoder_mask, float[B, 2, P, 4] k0,
               float[B, 2, Q, 4] v0, float[B, 2, E, 4] cross_k0, float[B, 2, F, 4] cross_v0)
            => (float[B, 2, T, 4] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2},
         int64[2] ones = {1, 2}, int64[4] heads = {0, 0, 2, 4}, float low = {-1e4}>
        { h = Reshape (x, heads)  q = Transpose <perm = [0, 2, 1, 3]> (h)
          k = Concat <axis = 2> (k0, q)  v = Concat <axis = 2> (v0, q)
          kt = Transpose <perm = [0, 1, 3, 2]> (k)  s = MatMul (q, kt)  own = MatMul (s, v)
          ct = Transpose <perm = [0, 1, 3, 2]> (cross_k0)  c = MatMul (own, ct)
          b1 = Shape <start = 0, end = 1> (q)  b = Squeeze (b1)  rows = Range (zero, b, one)
          e1 = Shape <start = 2, end = 3> (cross_k0)  e = Squeeze (e1)  keys = Range (zero, e, one)
          r2 = Unsqueeze (rows, i1)  k2 = Unsqueeze (keys, i0)  both = Concat <axis = 0> (b1, e1)
          r3 = Expand (r2, both)  k3 = Expand (k2, both)  r4 = Unsqueeze (r3, i2)
          k4 = Unsqueeze (k3, i2)  at = Concat <axis = -1> (r4, k4)
          seen = GatherND (encoder_mask, at)  hidden = Equal (seen, zero)
          four = Unsqueeze (hidden, ones)  m = Where (four, low, c)  p = Softmax (m)
          y = MatMul (p, cross_v0) }"""
    cases = make_cases(model(text))
    for case in cases:
        assert case.dims["P"] == case.dims["Q"]
        assert case.dims["E"] == case.dims["F"] == case.dims["M"]
    assert any(case.dims["T"] != case.dims["E"] for case in cases)


def test_a_mask_over_a_cache_and_the_new_tokens():
    text = """m (float[B, 2, T, 4] q, float[B, 2, P, 4] k0, float[B, 2, P, 4] k1, int64[B, M] a)
            => (float[B, 2, T, M] y)
        <int64[2] ax = {1, 2}, int64 zero = {0}, float fill = {-1e4}>
        { k = Concat <axis = 2> (k0, q)  v = Concat <axis = 2> (k1, q)
          t = Transpose <perm = [0, 1, 3, 2]> (k)  s = MatMul (q, t)  z = MatMul (q, t)
          u = Unsqueeze (a, ax)  c = Equal (u, zero)  w = Where (c, fill, s)
          n = ReduceSum <keepdims = 0> (v)  p = Softmax (w)  y = Add (p, n) }"""
    cases = make_cases(model(text))
    assert {c.dims["P"] for c in cases} >= {0, 1, 4}
    for case in cases:
        assert case.dims["M"] == case.dims["P"] + case.dims["T"]
        seen = case.feeds["a"].sum(axis=1)
        assert tuple(seen - case.dims["P"]) == case.valid["T"]


def test_a_dim_without_a_name_and_one_with_an_odd_name():
    text = model("m (float[B, T] x) => (float[B, T] y) { y = Relu (x) }")
    text.graph.inputs[0].shape = ir.Shape(["batch-size", None])
    text.graph.outputs[0].shape = None
    case = make_cases(text)[0]
    assert case.dims == {"batch-size": 1, "x_1": 7}
    assert make_cases(text, dims={"batch-size": [4]})[0].feeds["x"].shape[0] == 4
    assert str(text.graph.inputs[0].shape) == "[batch-size,None]"  # it is not changed


@pytest.mark.parametrize("name", ["lambda", "in", "µs"])
def test_a_dim_that_python_calls_something_else(name: str):
    text = model("m (float[B, T] x) => (float[B, T] y) { y = Relu (x) }")
    text.graph.inputs[0].shape = ir.Shape([f"{name}_", name])
    signature = Signature(text)
    (symbol,) = signature.times
    assert symbol.isascii()
    assert not keyword.iskeyword(symbol)
    assert (signature.batch, signature.user_name(symbol)) != (symbol, symbol)
    assert signature.symbol_of(name) == symbol
    assert make_cases(text, dims={name: [4]})[0].feeds["x"].shape[1] == 4


def test_dims_whose_names_differ_in_signs_only():
    text = model("m (float[B, T] x) => (float[B, T] y) { y = Relu (x) }")
    text.graph.inputs[0].shape = ir.Shape(["a b", "a_b"])
    assert make_cases(text, dims={"a b": [4], "a_b": [6]})[0].feeds["x"].shape == (4, 6)


@pytest.mark.parametrize(("channels", "longest"), [(4, 3200), (2048, 576)])
def test_images_grow_as_far_as_the_work_is_small(channels: int, longest: int) -> None:
    text = f"""images (float[B, 1, H, W] x) => (float[B, {channels}, I, J] y)
        <int64[4] first = {{1, 1, 450, 1}}, int64[4] second = {{{channels}, {channels}, 1, 1}}>
        {{
            v = ConstantOfShape (first)
            w = ConstantOfShape (second)
            h = Conv <kernel_shape = [450, 1]> (x, v)
            g = Concat <axis = 1> ({", ".join(["h"] * channels)})
            y = Conv <kernel_shape = [1, 1]> (g, w)
        }}"""
    ran: list[int] = []

    def run(case: Case) -> None:
        height = case.feeds["x"].shape[2]
        if height < 450:
            raise RunError("too short")
        ran.append(height)

    search_cases(model(text), run)
    assert len(set(ran)) >= 3
    assert max(ran) == longest


def test_a_model_of_fixed_shape():
    cases = make_cases(model("m (float[1, 3] x) => (float[1, 3] y) { y = Relu (x) }"))
    assert len(cases) >= 3
    assert len({c.name for c in cases}) == len(cases)
    assert (cases[0].feeds["x"] != cases[1].feeds["x"]).any()


@pytest.mark.parametrize("dtype", ["float16", "float", "double", "bool", "uint8", "int32"])
def test_every_dtype(dtype: str):
    text = f"m ({dtype}[T] x) => ({dtype}[T] y) {{ y = Identity (x) }}"
    assert make_cases(model(text))[0].feeds["x"].dtype == np.dtype(
        {"float": "float32", "double": "float64"}.get(dtype, dtype)
    )


CONV = """m (float[B, 1, N] x) => (float[B, 1, F] y)
    <float[1, 1, 3] w = {1, 2, 3}> { y = Conv <kernel_shape = [3], strides = [2]> (x, w) }"""
LONG = """m (float[B, N] x) => (float[B, F] y)
    <int64[1] b = {399}, int64[1] e = {9999999}, int64[1] ax = {1}, int64[1] two = {2}>
    { s = Slice (x, b, e, ax)  n = Shape <start = 1, end = 2> (s)  one = Sign (n)
      h = Constant <value_ints = [5]> ()  z = Sub (one, h)  i = Div (z, one)
      v = Neg (i)  t = Sub (v, v)  q = Gather <axis = 1> (s, t)  y = Relu (s) }"""


def test_sizes_that_do_not_run_are_dropped_with_a_reason():
    cases = make_cases(model(CONV))
    assert {c.dims["N"] for c in cases} >= {7, 23, 40}
    assert {x.name for x in cases.dropped} >= {"B=1 N=1", "B=2 N=2"}
    assert all("Conv" in x.reason for x in cases.dropped)


def test_larger_sizes_are_tried_for_a_model_with_a_minimum():
    cases = make_cases(model(LONG))
    assert len({c.dims["N"] for c in cases}) >= 3
    assert min(c.dims["N"] for c in cases) >= 400


def test_given_dims_replace_the_usual_ones():
    cases = make_cases(model(ADDITIVE), dims={"T": [5, 9, 12]})
    assert [c.dims["T"] for c in cases] == [5, 9, 12]
    assert [c.dims["B"] for c in cases] == [1, 2, 3]


def test_a_dim_that_does_not_exist():
    with pytest.raises(FeedError, match=r"no input has a dim named 'X'.*: B, T"):
        make_cases(model(TOKENS), dims={"X": [3]})


def test_nothing_runs():
    with pytest.raises(FeedError, match=r"tried.*B=1 N=1.*Conv.*--feeds.*--dims N="):
        make_cases(model(CONV), dims={"N": [1, 2]})


def test_an_input_that_cannot_be_made_up():
    text = "m (string[T] x) => (string[T] y) { y = Identity (x) }"
    with pytest.raises(FeedError, match=r"'x' cannot be made up: its type is .*--feeds"):
        make_cases(model(text))


def test_a_dim_that_is_an_expression_of_another():
    m = model("m (float[T] x, float[U] z) => (float[T] y, float[U] v) { y=Relu (x) v=Relu (z) }")
    m.graph.inputs[1].shape = ir.Shape(["T - 3"])
    cases = make_cases(m)
    assert all(c.feeds["z"].size == c.feeds["x"].size - 3 for c in cases)
    assert any("T=1" in x.name and "no size" in x.reason for x in cases.dropped)


def test_a_number_of_valid_steps():
    text = """m (float[T] s, int64 a) => (float[T] y) <int64 zero = {0}, int64 one = {1}>
        { n = Shape (s)  k = Squeeze (n)  r = Range (zero, k, one)  l = Less (r, a)
          f = Cast <to = 1> (l)  y = Mul (s, f) }"""
    case = make_cases(model(text))[-1]
    assert case.valid["T"] == (int(case.feeds["a"]),)
    assert case.is_ragged


def test_images_have_a_height_and_a_width():
    text = """m (uint8[B, 1, H, W] x) => (float[B, 1, H, W] y) <float[1, 1, 1, 1] w = {2}>
        { f = Cast <to = 1> (x)  y = Conv (f, w) }"""
    cases = make_cases(model(text))
    assert cases.input_roles["x"].kind == "int"
    assert {(c.dims["H"], c.dims["W"]) for c in cases} >= {(7, 5), (40, 22)}


def test_a_model_that_does_not_load():
    with pytest.raises(ModelError, match="Frobnicate"):
        make_cases(model("m (float[T] x) => (float[T] y) { y = Frobnicate (x) }"))


# Given inputs


def test_given_inputs_are_used_as_they_are(tmp_path: Path):
    mask = np.array([[1, 1, 1], [1, 0, 0]])
    scores = np.zeros((2, 3, 3), np.float32)
    np.savez(tmp_path / "f.npz", a=mask, s=scores)
    case = case_from_feeds(tmp_path / "f.npz", Signature(model(ADDITIVE)))
    assert case.dims == {"B": 2, "T": 3}
    assert case.valid == {"T": (3, 1)}
    assert (case.feeds["a"] == mask).all()


def test_given_inputs_that_do_not_fit(tmp_path: Path):
    signature = Signature(model(ADDITIVE))
    with pytest.raises(FeedError, match="lack 's'"):
        case_from_feeds({"a": np.ones((2, 3))}, signature)
    with pytest.raises(FeedError, match=r"'a' has shape \[3\].*\['B', 'T'\]"):
        case_from_feeds({"a": np.ones(3), "s": np.ones((1, 3, 3))}, signature)
    with pytest.raises(FeedError, match="no such file"):
        case_from_feeds(tmp_path / "none.npz", signature)
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(FeedError, match=r"not an \.npz file"):
        case_from_feeds(tmp_path / "text.npz", signature)


# Poison


def test_poison_is_put_beyond_the_valid_length_only():
    m = model(LENGTHS % ("int64", 7, 7))
    cases = make_cases(m)
    clean = cases[-1]
    kinds = {p.poison: p for p in poison_padding(clean, cases.signature)}
    assert set(kinds) == {"NaN", "large values"}
    for spoiled in kinds.values():
        assert spoiled.base == clean.name
        for row, length in enumerate(clean.valid["T"]):
            a, b = clean.feeds["s"][row], spoiled.feeds["s"][row]
            assert (a[:length] == b[:length]).all()
            assert not np.isclose(a[length:], b[length:]).any()
    assert np.isnan(kinds["NaN"].feeds["s"]).any()
    assert np.abs(kinds["large values"].feeds["s"]).max() > 1000


def test_poisoned_token_ids_are_other_valid_ids():
    text = """m (int64[B, T] a, int64[B, T] b) => (float[B, T, 1] y)
        <float[5, 1] t = {0,1,2,3,4}, int64[1] ax = {2}>
        { e = Gather (t, a)  f = Cast <to = 1> (b)  u = Unsqueeze (f, ax)  y = Mul (e, u) }"""
    cases = make_cases(model(text))
    (spoiled,) = poison_padding(cases[-1], cases.signature)
    assert spoiled.poison == "other ids"
    assert (spoiled.feeds["a"] != cases[-1].feeds["a"]).any()
    assert (spoiled.feeds["a"] < 5).all()
    assert (spoiled.feeds["b"] == cases[-1].feeds["b"]).all()


def test_without_a_mask_there_is_nothing_to_poison():
    cases = make_cases(model(CONV))
    assert all(not case.valid and not poison_padding(case, cases.signature) for case in cases)


# Real exports


def zoo(status: str) -> list[str]:
    if not (ZOO / "models.jsonl").exists():
        return []
    rows = map(json.loads, (ZOO / "models.jsonl").read_text().splitlines())
    return [row["name"] for row in rows if (row["status"] == "ok") == (status == "ok")]


@pytest.mark.skipif(not zoo("ok"), reason="no zoo; set GRAPHFIX_ZOO")
def test_every_real_export_runs_at_three_lengths():
    few = {}
    for name in zoo("ok"):
        cases = make_cases(ZOO / "models" / f"{name}.onnx")
        if len({tuple(c.dims.values()) for c in cases}) < 3:
            few[name] = [c.name for c in cases]
    assert not few


@pytest.mark.skipif(not zoo("broken"), reason="no zoo; set GRAPHFIX_ZOO")
def test_a_real_export_that_does_not_load_is_refused_with_a_reason():
    for name in zoo("broken"):
        with pytest.raises(ModelError, match=r"Type Error|ShapeInferenceError"):
            make_cases(ZOO / "models" / f"{name}.onnx")


ROWS = """m (int32[unk__1, {size}] ids) => (float[unk__2, {size}, 3] y)
    <int32[3] three = {{0, 1, 2}}, int64[1] ax = {{-1}}>
    {{ u = Unsqueeze (ids, ax)  h = Equal (u, three)  y = Cast <to = 1> (h) }}"""


@pytest.mark.parametrize(("size", "batch"), [(2048, "unk__1"), (8, None)])
def test_rows_of_many_whole_numbers_are_a_batch(size: int, batch: str | None) -> None:
    """Of few they may be the codes of a frame."""
    assert Signature(model(ROWS.format(size=size))).batch == batch


STATE = """m (float[{first}, T] x, float[{states}] h) => (float[Q, T] y, float[{states}] g)
    {{ g = Tanh (h)  y = Relu (x) }}"""


@pytest.mark.parametrize(
    ("first", "states", "batch"),
    [("batch", "2, batch, 128", "batch"), ("S", "2, S, 128", None), ("n", "2, 64, n", None)],
)
def test_a_batch_comes_second_in_states(first: str, states: str, batch: str | None) -> None:
    signature = Signature(model(STATE.format(first=first, states=states)))
    assert signature.batch == batch
    if batch:
        assert [x.rows for x in signature.inputs] == [0, 1]
        assert signature.times == ["T"]


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
def test_no_case_has_less_than_the_window_of_a_pool_where_frames_are_counted(pool: str) -> None:
    """ONNX Runtime makes a frame of 3 by a window of 4 and a stride of 2, the standard none."""
    m = model(f"""m (float[B, 2, T] x) => (float[B, 2, S] y)
        {{ y = {pool} <kernel_shape = [4], strides = [2]> (x) }}""")
    assert min(case.feeds["x"].shape[2] for case in make_cases(m)) < 4
    cases = search_cases(m, lambda case: None, frames=True)
    lengths = {case.feeds["x"].shape[2] for case in cases}
    assert min(lengths) >= 4
    assert len(lengths) >= 3
    told = {x.reason for x in cases.dropped}
    assert any("a pool has less than its window" in x for x in told)


@pytest.mark.parametrize(
    ("dims", "image"),
    [("B, 3, H, W", True), ("1, 64, 64, 3", True), ("B, 1, 80, T", False), ("B, T, 3", False)],
)
def test_pictures_have_the_range_of_pictures(dims: str, image: bool) -> None:
    made = model(f"m (float[{dims}] x) => (float[{dims}] y) {{ y = Tanh (x) }}")
    cases = search_cases(made, lambda case: None, cover=True)
    most = max(float(np.abs(x.feeds["x"]).max()) for x in cases)
    assert (100 < most <= 255) if image else most > 1e4
    told = measure_coverage(cases, cases.signature)
    assert ("'x' from 0 to 255" in told.covered) == image
    assert any("values from 0 to 255" in x.name for x in cases) == image
