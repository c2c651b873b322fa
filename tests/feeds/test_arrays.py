"""Arrays of one case at given sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import FeedError
from graphfix.feeds import arrays
from graphfix.feeds.arrays import SCHEDULE, CaseMaker
from graphfix.feeds.case import Array, Case
from graphfix.feeds.case_style import Style
from graphfix.feeds.signature import Signature
from graphfix.lengths.length_input import LengthInput
from tests.feeds.small_models import ADDITIVE, LENGTHS, TOKENS, model

LAST = len(SCHEDULE) - 1


def maker(text: str, seed: int = 0, *, positive: bool = False, **facts: Any) -> CaseMaker:
    return CaseMaker(Signature(model(text), **facts), seed, positive=positive)


def case(text: str, sizes: dict[str, int], step: int = 0, **style: Any) -> Case:
    return maker(text).make_case(step, sizes, style=Style(**style))


DATA = "m (float[B, T, 2] x) => (float[B, T, 2] y) { y = Relu (x) }"
LENGTH_FLOATS = """m (float[B, T, 2] s, float[B] a) => (float[B, T, 2] y, bool[B, T] l)
    <int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1}>
    { n = Shape <start = 1, end = 2> (s)  k = Squeeze (n)  r = Range (zero, k, one)
      q = Cast <to = 1> (r)  c = Unsqueeze (a, ax1)  l = Less (q, c)  y = Relu (s) }"""
LENGTH_NUMBERS = LENGTHS % ("int64", 7, 7)


def test_the_schedule_begins_plainly_and_tries_short_odd_and_several_rows() -> None:
    assert SCHEDULE[0] == (1, 7)
    assert [rows for rows, _ in SCHEDULE] == [1, 1, 2, 2, 3]
    lengths = [length for _, length in SCHEDULE]
    assert {1, 2} < set(lengths)
    assert {n % 2 for n in lengths if n > 2} == {0, 1}


def test_the_same_seed_and_step_make_the_same_arrays() -> None:
    sizes = {"B": 2, "T": 5}
    same = (maker(DATA, 3).make_case(1, sizes).feeds["x"] for _ in range(2))
    np.testing.assert_array_equal(*same)
    first = maker(DATA, 3).make_case(1, sizes).feeds["x"]
    assert first.shape == (2, 5, 2)
    assert not np.array_equal(first, maker(DATA, 4).make_case(1, sizes).feeds["x"])
    assert not np.array_equal(first, maker(DATA, 3).make_case(2, sizes).feeds["x"])


def test_inputs_of_one_shape_differ() -> None:
    twins = "m (float[B, T] x, float[B, T] z) => (float[B, T] y) { y = Add (x, z) }"
    feeds = case(twins, {"B": 2, "T": 3}).feeds
    assert not np.array_equal(feeds["x"], feeds["z"])


def test_floats_may_be_above_0() -> None:
    sizes = {"B": 2, "T": 5}
    assert (maker(DATA).make_case(0, sizes).feeds["x"] < 0).any()
    assert (maker(DATA, positive=True).make_case(0, sizes).feeds["x"] > 0).all()


@pytest.mark.parametrize(
    ("text", "governed", "has_floats"),
    [
        (DATA, [], True),
        (TOKENS, [], False),
        (ADDITIVE, ["T"], False),  # the scores too could be what is added to scores
        (LENGTH_NUMBERS, ["T"], True),
        ("m (float[B, T] x, bool[B, T] a) => (y) { y = Where (a, x, x) }", ["T"], True),
        ("m (bool[B, T] a) => (y) { y = Not (a) }", ["T"], False),
    ],
)
def test_what_is_known_of_the_inputs(text: str, governed: list[str], has_floats: bool) -> None:
    made = maker(text)
    assert (made.governed_times, made.has_floats) == (governed, has_floats)


def test_the_usual_names_and_sizes_of_a_case() -> None:
    made = case(LENGTH_NUMBERS, {"B": 2, "T": 10})
    assert made.dims == {"B": 2, "T": 10}
    assert made.name == "B=2 T=10 lengths 10,5"
    assert made.valid == {"T": (10, 5)}
    assert made.feeds["a"].tolist() == [10, 5]
    assert made.feeds["a"].dtype == np.int64
    assert (made.large_caches, made.full_scale, made.side) == (False, False, "right")


def test_a_fixed_model_counts_its_sets_from_1() -> None:
    fixed = "m (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }"
    assert maker(fixed).make_case(4, {}).name == "fixed shape, set 5"
    quiet = maker(fixed).make_case(0, {}, style=Style(values="quiet"))
    assert quiet.name == "fixed shape, set 1, values of size 0.03"


def test_lengths_are_named_where_a_row_is_short() -> None:
    made = maker(ADDITIVE)
    assert made.describe_sizes({"B": 2, "T": 9}) == "B=2 T=9"
    assert made.describe_sizes({"B": 2, "T": 9}, {"T": (9, 9)}) == "B=2 T=9"
    assert made.describe_sizes({"B": 2, "T": 9}, {"T": (9, 8)}) == "B=2 T=9 lengths 9,8"
    quoted = maker('m (float[B, "a,b"] x) => (y) { y = Relu (x) }')
    assert quoted.describe_sizes({"a_b": 3}) == '"a,b"=3'


def test_content_ends_where_the_caller_says() -> None:
    made = maker(LENGTH_NUMBERS).make_case(0, {"B": 2, "T": 10}, {"T": (3, 7), "B": (1, 1)})
    assert made.valid == {"T": (3, 7)}
    assert made.feeds["a"].tolist() == [3, 7]
    # Behind the content is padding.
    rows = made.feeds["s"].any(-1)
    assert rows.sum(-1).tolist() == [3, 7]
    assert rows[:, :3].all()


@pytest.mark.parametrize(
    ("batch", "step", "style", "length"),
    [
        ("1", LAST, {}, 7),
        ("1", LAST - 1, {}, 10),
        ("1", LAST, {"ends": "all full"}, 10),
        ("1", LAST, {"ends": "none full"}, 4),
        ("B", LAST, {}, 10),
    ],
)
def test_the_only_row_is_padded_in_the_last_usual_case(
    batch: str, step: int, style: dict[str, Any], length: int
) -> None:
    text = ADDITIVE.replace("[B,", f"[{batch},")
    sizes = {"T": 10} | ({"B": 1} if batch == "B" else {})
    made = case(text, sizes, step, **style)
    assert made.valid == {"T": (length,)}
    assert made.feeds["a"].tolist() == [[1] * length + [0] * (10 - length)]


def test_the_only_row_has_content_though_it_is_short() -> None:
    for length in (1, 0):
        made = case(ADDITIVE.replace("[B,", "[1,"), {"T": length}, LAST)
        assert made.valid == {"T": (length,)}


def test_a_batch_of_two_in_a_fixed_model_is_ragged() -> None:
    made = case(ADDITIVE.replace("[B,", "[2,"), {"T": 10}, LAST)
    assert made.valid == {"T": (10, 3)}


@pytest.mark.parametrize(
    ("text", "sizes", "rows"),
    [
        (DATA, {"B": 3, "T": 4}, 3),
        (DATA.replace("B,", "2,"), {"T": 4}, 2),
        ("m (float[T] x) => (float[T] y) { y = Relu (x) }", {"T": 4}, 1),
        ("m (float[2] t, float[3, T] x) => (x2, t2) { x2 = Relu (x) t2 = Relu (t) }", {"T": 4}, 3),
    ],
)
def test_how_many_rows(text: str, sizes: dict[str, int], rows: int) -> None:
    made = maker(text)
    assert made.row_count(made._signature.symbol_sizes(sizes)) == rows


def test_elements_are_counted() -> None:
    two = "m (float[B, T] x, float[B, T, 3] z) => (a, b) { a = Relu (x) b = Relu (z) }"
    assert maker(two).element_count({"B": 2, "T": 5}) == 40
    shorter = "m (float[B, T] x, float[B, T - 5] z) => (a, b) { a = Relu (x) b = Relu (z) }"
    made = maker(shorter.replace("T - 5", '"T - 5"'))
    assert made.element_count({"B": 2, "T": 6}) == 14
    assert made.element_count({"B": 2, "T": 4}) == 0


def test_an_input_of_too_many_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_MOST_ELEMENTS", 20)
    assert maker(DATA).make_case(0, {"B": 2, "T": 5}).feeds["x"].size == 20
    with pytest.raises(FeedError, match="'x' would have more than 20 elements"):
        maker(DATA).make_case(0, {"B": 2, "T": 6})


IMAGE = "m (float[B, 3, H, W] x) => (y) { y = Relu (x) }"


@pytest.mark.parametrize("values", ["bumps", "spikes", "loud"])
def test_images_are_pixels_instead_of_large_values(values: Any) -> None:
    made = case(IMAGE, {"B": 1, "H": 4, "W": 4}, values=values)
    assert (made.feeds["x"].min() >= 0, made.feeds["x"].max()) == (True, 255)
    assert made.full_scale
    assert made.name.endswith("values from 0 to 255")


@pytest.mark.parametrize(("values", "share"), [("quiet", 0.03), ("loud", 30.0), ("usual", 1.0)])
def test_data_is_as_large_as_the_style_says(values: Any, share: float) -> None:
    sizes = {"B": 2, "T": 50}
    made = case(DATA, sizes, values=values)
    assert not made.full_scale
    x, usual = made.feeds["x"], case(DATA, sizes).feeds["x"]
    np.testing.assert_allclose(x[:-1], share * usual[:-1], rtol=1e-5, atol=1e-7)
    # The last row of a loud batch is far below 0.
    last = share * usual[-1]
    expected = -120 - np.abs(last) if values == "loud" else last
    np.testing.assert_allclose(x[-1], expected, rtol=1e-5, atol=1e-7)


SAMPLES = """m (int16[B, T] x) => (float[B, T] y) <float scale = {0.000030517578}>
    { f = Cast <to = 1> (x) y = Mul (f, scale) }"""


@pytest.mark.parametrize(
    ("text", "values", "label"),
    [
        # Whole numbers have one style, unless they are samples.
        (TOKENS, "loud", ""),
        (TOKENS, "quiet", ""),
        (TOKENS, "silent", ""),
        (SAMPLES, "loud", ", a loud recording"),
        (SAMPLES, "recording", ", a loud recording"),
        (SAMPLES, "silent", ", all zeros"),
        (SAMPLES, "quiet", ""),
        (DATA, "silent", ", all zeros"),
        (DATA, "loud", ", values of size 30"),
    ],
)
def test_the_style_suits_the_inputs(text: str, values: Any, label: str) -> None:
    made = case(text, {"B": 1, "T": 8}, values=values)
    assert made.name == f"B=1 T=8{label}"
    assert made.full_scale == (label == ", a loud recording")


CACHE = """m (float[B, T, 4] x, float[B, P, 4] past) => (float[B, N, 4] present)
    { present = Concat <axis = 1> (past, x) }"""


@pytest.mark.parametrize(
    ("text", "values", "large"),
    [
        (CACHE, "bumps", True),
        (CACHE, "spikes", True),
        (CACHE, "quiet", False),
        (DATA, "bumps", False),
    ],
)
def test_large_caches(text: str, values: Any, large: bool) -> None:
    sizes = {"B": 1, "T": 3, "P": 4} if text is CACHE else {"B": 1, "T": 3}
    assert case(text, sizes, values=values).large_caches == large


PADDED_IDS = """m (int64[B, T] a) => (float[B, T, 1] y)
    <float[4, 1] table = {0,1,2,3}, int64 pad = {1}, float fill = {-9.0}>
    { e = Gather (table, a)  p = Equal (a, pad)  one = Constant <value_ints = [2]> ()
      q = Unsqueeze (p, one)  y = Where (q, fill, e) }"""


def ids(text: str, sizes: dict[str, int], step: int = 0, **style: Any) -> Array:
    return case(text, sizes, step, **style).feeds["a"]


def test_padding_that_only_its_id_says() -> None:
    made = maker(PADDED_IDS)
    (item,) = made._signature.inputs
    assert made.pads_by_id(item)
    assert (ids(PADDED_IDS, {"B": 2, "T": 10}) != 1).all()
    short = ids(PADDED_IDS, {"B": 2, "T": 10}, ends="first short")
    assert (short == 1).sum(-1).tolist() == [6, 0]
    assert (short[0, 4:] == 1).all()
    left = ids(PADDED_IDS, {"B": 2, "T": 10}, ends="none full", side="left")
    assert (left == 1).sum(-1).tolist() == [6, 4]
    assert (left[0, :6] == 1).all()


def test_each_step_pads_with_another_id_of_those_that_the_graph_asks_about() -> None:
    two = PADDED_IDS.replace("p = Equal (a, pad)", "p = Equal (a, pad) r = Equal (a, other)")
    two = two.replace("q = Unsqueeze (p, one)", "o = Or (p, r) q = Unsqueeze (o, one)")
    two = two.replace("int64 pad = {1}", "int64 pad = {1}, int64 other = {3}")
    sizes = {"B": 1, "T": 10}
    padding = [set(ids(two, sizes, step, ends="none full")[0, 4:].tolist()) for step in range(3)]
    assert padding == [{1}, {3}, {1}]


@pytest.mark.parametrize(
    "text",
    [
        TOKENS,
        DATA,
        PADDED_IDS.replace("[B, T]", "[B, 5]").replace("[B, T, 1]", "[B, 5, 1]"),
        # A mask says where content ends.
        PADDED_IDS.replace("(int64[B, T] a)", "(int64[B, T] a, bool[B, T] m, float[B, T] s)")
        .replace("(float[B, T, 1] y)", "(float[B, T, 1] y, float[B, T] z)")
        .replace("y = Where", "z = Where (m, s, fill) y = Where"),
    ],
)
def test_padding_that_no_id_says(text: str) -> None:
    made = maker(text)
    assert not made.pads_by_id(made._signature.inputs[0])


def test_ids_behind_the_content_are_the_padding_id() -> None:
    masked = """m (int64[B, T] a, bool[B, T] m) => (float[B, T, 1] y)
        <float[5, 1] table = {0,1,2,3,4}, int64 pad = {%d}, float fill = {-9.0}, int64[1] ax = {2}>
        { e = Gather (table, a) p = Equal (a, pad) o = Or (p, m) q = Unsqueeze (o, ax)
          y = Where (q, fill, e) }"""
    feeds = case(masked % 3, {"B": 2, "T": 10}, ends="none full").feeds
    assert (feeds["a"] == 3).sum(-1).tolist() == [6, 4]
    assert (feeds["a"][0, 4:] == 3).all()


def test_ids_behind_the_content_are_the_least_otherwise() -> None:
    text = """m (int64[B, T] a, bool[B, T] m) => (float[B, T, 1] y)
        <float[5, 1] table = {0,1,2,3,4}, int64 one = {1}, float fill = {-9.0}, int64[1] ax = {2}>
        { i = Sub (a, one) e = Gather (table, %s) q = Unsqueeze (m, ax)
          y = Where (q, e, fill) }"""
    for index, least in (("i", 1), ("a", 0)):
        feeds = case(text % index, {"B": 1, "T": 10}, ends="none full").feeds
        assert (feeds["a"][0, 4:] == least).all()


POSITIONS = """m (int64[B, T] position_ids, float[B, P, 2] past, float[B, T, 2] x)
    => (float[B, T, 1] y, float[B, N, 2] present) <int64[2] shape = {50, 1}>
    { table = ConstantOfShape (shape) y = Gather (table, position_ids)
      present = Concat <axis = 1> (past, x) }"""


def test_positions_count() -> None:
    made = CaseMaker(Signature(model(POSITIONS)), 0)
    sizes = {"B": 2, "T": 5, "P": 3}
    assert made.make_case(0, sizes).feeds["position_ids"].tolist() == [[0, 1, 2, 3, 4]] * 2
    wide = made.make_case(0, sizes, style=Style(wide=True)).feeds["position_ids"]
    assert wide.dtype == np.int64
    assert (wide[0] >= 3).all()
    assert not np.array_equal(wide[0], wide[1])


def test_positions_of_a_fixed_length_count_along_the_last_axis() -> None:
    text = """m (int64[B, 4] position_ids) => (float[B, 4, 1] y)
        <float[9, 1] table = {0,1,2,3,4,5,6,7,8}> { y = Gather (table, position_ids) }"""
    assert case(text, {"B": 2}).feeds["position_ids"].tolist() == [[0, 1, 2, 3]] * 2
    wide = case(text, {"B": 2}, wide=True).feeds["position_ids"]
    assert wide.shape == (2, 4)


def test_a_mask_of_a_fixed_length_is_ragged_all_the_same() -> None:
    fixed = ADDITIVE.replace("T", "10")
    made = case(fixed, {"B": 2})
    assert made.feeds["a"].sum(-1).tolist() == [10, 5]
    assert made.valid == {}


def test_a_mask_on_the_left() -> None:
    mask = case(ADDITIVE, {"B": 1, "T": 10}, ends="none full", side="left").feeds["a"]
    assert mask.tolist() == [[0] * 6 + [1] * 4]


def test_a_wide_mask_hides_by_query() -> None:
    text = """m (float[B, T, T] s, float[B, T, T] a) => (float[B, T, T] y)
        { u = Mul (s, s)  t = Add (u, a)  y = Softmax (t) }"""
    sizes = {"B": 1, "T": 6}
    usual, wide = (case(text, sizes, wide=x).feeds["a"][0] for x in (False, True))
    assert (usual == usual[0]).all()
    assert not (wide == wide[0]).all()


def test_lengths_of_a_fixed_time_axis() -> None:
    text = LENGTH_NUMBERS.replace("[B, T, 2]", "[B, 10, 2]")
    assert case(text, {"B": 2}).feeds["a"].tolist() == [10, 5]
    assert case(text, {"B": 2}, ends="all full").feeds["a"].tolist() == [10, 10]


def test_lengths_as_floats() -> None:
    lengths = case(LENGTH_FLOATS, {"B": 2, "T": 10}).feeds["a"]
    assert lengths.tolist() == [10.0, 5.0]
    assert lengths.dtype == np.float32


RELATIVE = """m (float[B, T, 2] s, float[B] a) => (float[B, T, 2] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1}, int64[1] ax2 = {2}>
    { n = Shape <start = 1, end = 2> (s)  k = Squeeze (n)  f = Cast <to = 1> (k)
      b = Mul (a, f)  c = Unsqueeze (b, ax1)  r = Range (zero, k, one)  q = Cast <to = 1> (r)
      l = Less (q, c)  w = Cast <to = 1> (l)  x = Unsqueeze (w, ax2)  y = Mul (s, x) }"""


def test_lengths_as_shares() -> None:
    made = case(RELATIVE, {"B": 2, "T": 10})
    np.testing.assert_allclose(made.feeds["a"], [1.0, 0.5])
    assert made.valid == {"T": (10, 5)}
    assert case(RELATIVE, {"B": 2, "T": 0}).feeds["a"].tolist() == [0, 0]


def test_shares_of_a_fixed_length_are_at_most_1() -> None:
    made = case(RELATIVE.replace("[B, T, 2]", "[B, 10, 2]"), {"B": 2})
    assert made.feeds["a"].tolist() == [1.0, 0.5]


JOINED = """m (float[T, 2] x, int64[N] cu_seqlens) => (float[T, 2] y, int64[M] d)
    <int64[1] zeros = {0}, int64[1] ones = {1}, int64[1] last = {-1}, int64[1] end = {99}>
    { n = Slice (cu_seqlens, ones, end) p = Slice (cu_seqlens, zeros, last) d = Sub (n, p)
      y = Relu (x) }"""


def test_ends_of_joined_clips() -> None:
    made = maker(JOINED)
    sizes = dict.fromkeys(made._signature.groups, 5) | {"T": 12}
    ends = made.make_case(0, sizes).feeds["cu_seqlens"]
    assert (ends[0], ends.dtype, ends.shape) == (0, np.int64, (5,))
    assert (np.diff(ends) >= 0).all()


CHOICE = """m (float[B, T] x, int64 a) => (float[B, T] y) <int64 one = {1}, int64 four = {4}>
    { p = Equal (a, one) q = Equal (a, four) o = Or (p, q) n = Neg (x) y = Where (o, n, x) }"""


def test_an_input_that_selects_takes_its_values_in_turn() -> None:
    made = maker(CHOICE)
    assert made.options == {"a": (1, 4, 5)}
    sizes = {"B": 2, "T": 3}
    assert [made.make_case(s, sizes).feeds["a"].item() for s in range(4)] == [1, 4, 5, 1]
    chosen = made.make_case(0, sizes, chosen={"a": (4, 4)})
    assert chosen.feeds["a"].item() == 4


def test_two_inputs_that_select_meet_in_all_combinations() -> None:
    text = """m (float[B, T] x, bool a, bool c) => (float[B, T] y)
        { n = Neg (x) u = Where (a, n, x) y = Where (c, u, n) }"""
    made = maker(text)
    cases = [made.make_case(s, {"B": 1, "T": 1}).feeds for s in range(4)]
    assert {(bool(x["a"]), bool(x["c"])) for x in cases} == {(p, q) for p in (0, 1) for q in (0, 1)}


def test_rows_select_different_values() -> None:
    speakers = """m (float[B, T, 2] x, int64[B] a) => (float[B, T, 2] y)
        <float[7, 2] table = {0,1,2,3,4,5,6,7,8,9,10,11,12,13}, int64[1] ax = {1}>
        { g = Gather (table, a) u = Unsqueeze (g, ax) y = Add (x, u) }"""
    made = maker(speakers)
    assert made.options == {"a": tuple(range(7))}
    rows = [made.make_case(s, {"B": 3, "T": 2}).feeds["a"].tolist() for s in range(3)]
    assert rows == [[0, 1, 2], [5, 6, 0], [3, 4, 5]]


def test_combinations_begin_anew_where_there_would_be_too_many() -> None:
    speakers = """m (float[B, T, 2] x, int64[B] a, int64[B] c, int64[B] d) => (float[B, T, 2] y)
        <float[5, 2] table = {0,1,2,3,4,5,6,7,8,9}, float[4, 2] few = {0,1,2,3,4,5,6,7},
         int64[1] ax = {1}>
        { g = Gather (table, a) h = Gather (few, c) i = Gather (table, d) k = Add (g, h)
          l = Add (k, i) u = Unsqueeze (l, ax) y = Add (x, u) }"""
    feeds = maker(speakers).make_case(1, {"B": 3, "T": 2}).feeds
    assert feeds["a"].tolist() == [0, 1, 2]
    assert feeds["c"].tolist() == [1, 1, 1]  # as many steps as the first has values: one each
    assert feeds["d"].tolist() == [0, 0, 0]  # 5 * 4 combinations: 20 steps each


def with_defaults() -> ir.Model:
    made = model("""m (float[B, T] x, float[1] gain, int64[1] count) => (float[B, T] y, int64[1] z)
        { y = Mul (x, gain) z = Neg (count) }""")
    for value, number in zip(made.graph.inputs[1:], (2.0, 3), strict=True):
        value.const_value = ir.tensor(np.array([number], value.dtype.numpy()), name=value.name)
        made.graph.register_initializer(value)
    return made


def test_inputs_with_a_default_get_a_value_in_other_readings_alone() -> None:
    made = CaseMaker(Signature(with_defaults()), 0)
    assert made.make_case(0, {"B": 1, "T": 2}).feeds.keys() == {"x"}
    other = made.make_case(0, {"B": 1, "T": 2}, style=Style(other=True)).feeds
    assert other.keys() == {"x", "gain"}
    assert 3.2 <= other["gain"].item() <= 3.8
    assert other["gain"].dtype == np.float32


def test_what_is_always_fed_the_same() -> None:
    signature = Signature(model(DATA), constants={"k": np.ones(2)})
    assert CaseMaker(signature, 0).make_case(0, {"B": 1, "T": 2}).feeds["k"].tolist() == [1, 1]


def test_what_the_use_does_not_prove_is_read_otherwise() -> None:
    text = """m (float[B, T, 4] s, float[B, T, 1] a) => (float[B, T, 4] y) { y = Mul (s, a) }"""
    usual = case(text, {"B": 2, "T": 4}).feeds
    assert set(np.unique(usual["a"])) == {0.0, 1.0}
    other = case(text, {"B": 2, "T": 4}, other=True).feeds
    assert ((other["a"] >= 0.3) & (other["a"] <= 1.7)).all()
    assert len(np.unique(other["a"])) > 2
    sure = case(ADDITIVE, {"B": 2, "T": 4}, other=True).feeds["a"]
    assert set(np.unique(sure)) == {0, 1}


def test_the_length_input_of_a_repair_alone_is_ragged() -> None:
    text = "m (float[B, T, 2] x, int64[B] ilens) => (float[B, T, 2] y) { y = Relu (x) }"
    made = maker(text, length_input=LengthInput("ilens", "x.1", "lengths"))
    assert made.governed_times == ["T"]
    assert made.make_case(0, {"B": 2, "T": 10}).feeds["ilens"].tolist() == [10, 5]


def test_sizes_that_the_graph_dictates_are_named() -> None:
    text = """m (float[B, T] x) => (float[B, 6] y) <float[6] w = {1,2,3,4,5,6}>
        { y = Mul (x, w) }"""
    assert maker(text).make_case(0, {"B": 2}).dims == {"B": 2, "T": 6}
