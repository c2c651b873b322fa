"""cumsum-index: what it counts, what it leaves alone and why, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.errors import UsageError
from tests.passes.models import data, execute, model, ops

SIZES = (0, 1, 2, 7)


def of_length(n: int) -> dict[str, np.ndarray]:
    return {"x": np.zeros((2, 3, n), np.float32)}


def check_same(before: ir.Model, after: ir.Model, *feeds: dict[str, np.ndarray]) -> None:
    for feed in feeds or [of_length(n) for n in SIZES]:
        for old, new in zip(execute(before, feed), execute(after, feed), strict=True):
            assert old.dtype == new.dtype
            assert old.shape == new.shape
            np.testing.assert_array_equal(old, new)
    assert [(x.name, x.dtype) for x in before.graph.outputs] == [
        (x.name, x.dtype) for x in after.graph.outputs
    ]


def repair(m: ir.Model, style: str = "cumsum") -> tuple[ir.Model, graphfix.PassReport]:
    after = m.clone()
    report = graphfix.run(after, f"cumsum-index:style={style}").passes[0]
    saved = data(after)
    again = graphfix.run(after, f"cumsum-index:style={style}").passes[0]
    assert not again.changes
    assert again.skips == report.skips
    assert data(after) == saved
    return after, report


def index(body: str, output: str = "int64[A, B, C] y", constants: str = "") -> str:
    """A model of x [2, 3, T] and of T as a tensor [1] (``time``) and a scalar (``t``)."""
    return f"""m (float[B, C, T] x) => ({output})
    <int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64[1] axis0 = {{0}},
     int64[2] axes = {{0, 1}}, int64[3] last = {{1, 1, -1}}{constants}> {{
        time = Shape <start = 2, end = 3> (x)
        t = Squeeze (time)
        {body}
    }}"""


CHAINS = {
    "r = Range (zero, t, one) y = Reshape <allowzero = 1> (r, last)": "view",
    "r = Range (zero, t, one) y = Unsqueeze (r, axes)": "unsqueeze",
}


@pytest.mark.parametrize("body", CHAINS, ids=CHAINS.values())
def test_an_index_becomes_a_cumsum_in_its_own_shape(body: str) -> None:
    before = model(index(body))
    after, report = repair(before)
    assert ops(after) == ["Shape", "Concat", "ConstantOfShape", "CumSum"]
    assert len(report.changes) == 1
    assert not report.skips
    made = after.graph.outputs[0].producer()
    assert made is not None
    assert made.attributes["exclusive"].as_int() == 1
    check_same(before, after)


REPAIRS = {
    "a cast between": (
        "r = Range (zero, t, one) f = Cast <to = 1> (r) y = Unsqueeze (f, axes)",
        "float[A, B, C] y",
        "",
    ),
    "an expand": (
        "r = Range (zero, t, one) s = Shape (x) y = Expand (r, s)",
        "int64[A, B, C] y",
        "",
    ),
    "an expand of an unsqueeze": (
        "r = Range (zero, t, one) u = Unsqueeze (r, axes) s = Shape (x) y = Expand (u, s)",
        "int64[A, B, C] y",
        "",
    ),
    "a constant start": (
        "e = Add (t, one) r = Range (one, e, one) y = Reshape (r, last)",
        "int64[A, B, C] y",
        "",
    ),
    "a start that may lie above the limit": (
        "r = Range (two, t, one) y = Reshape (r, last)",
        "int64[A, B, C] y",
        "",
    ),
    "a negative start": (
        "r = Range (minus, t, one) y = Reshape (r, last)",
        "int64[A, B, C] y",
        ", int64 minus = {-3}",
    ),
    "a step": (
        "r = Range (one, t, two) y = Unsqueeze (r, axes)",
        "int64[A, B, C] y",
        "",
    ),
    "counting down": (
        "s = Sub (t, one) r = Range (s, minus, minus) y = Unsqueeze (r, axes)",
        "int64[A, B, C] y",
        ", int64 minus = {-1}",
    ),
    "counting down by three": (
        "r = Range (t, minus, step) y = Unsqueeze (r, axes)",
        "int64[A, B, C] y",
        ", int64 minus = {-1}, int64 step = {-3}",
    ),
    "past and present": (
        "e = Add (t, t) r = Range (t, e, one) y = Unsqueeze (r, axes)",
        "int64[A, B, C] y",
        "",
    ),
    "a window of four": (
        "e = Add (four, t) r = Range (t, e, one) y = Unsqueeze (r, axes)",
        "int64[A, B, C] y",
        ", int64 four = {4}",
    ),
    "start and limit unrelated": (
        "e = Mul (t, t) r = Range (t, e, two) y = Unsqueeze (r, axes)",
        "int64[A, B, C] y",
        "",
    ),
    "int32": (
        "i = Cast <to = 6> (t) r = Range (z, i, o) y = Reshape (r, last)",
        "int32[A, B, C] y",
        ", int32 z = {0}, int32 o = {1}",
    ),
    "int32 arithmetic": (
        "i = Cast <to = 6> (t) d = Div (i, w) r = Range (z, d, w) y = Reshape (r, last)",
        "int32[A, B, C] y",
        ", int32 z = {0}, int32 w = {2}",
    ),
    "a limit from a Gather": (
        "s = Shape (x) g = Gather <axis = 0> (s, two) c = Cast <to = 7> (g)"
        " r = Range (zero, c, one) y = Reshape (r, last)",
        "int64[A, B, C] y",
        "",
    ),
    "a convolved length": (
        "a = Sub (t, one) b = Div (a, two) e = Add (b, one)"
        " r = Range (zero, e, one) y = Unsqueeze (r, axes)",
        "int64[A, B, C] y",
        "",
    ),
    "a length that falls below zero": (
        "a = Div (t, two) e = Sub (a, two) r = Range (zero, e, one) y = Unsqueeze (r, axes)",
        "int64[A, B, C] y",
        "",
    ),
    "the length where another dim is": (
        "r = Range (zero, t, one) s = Concat <axis = 0> (last01, time) y = Reshape (r, s)",
        "int64[A, B, C] y",
        ", int64[2] last01 = {1, 1}",
    ),
    "a zero that copies": (
        "r = Range (zero, t, one) y = Reshape (r, s)",
        "int64[A, B, C] y",
        ", int64[3] s = {0, 1, 1}",
    ),
    "a reshape that changes nothing": (
        "r = Range (zero, t, one) y = Reshape (r, s)",
        "int64[A] y",
        ", int64[1] s = {-1}",
    ),
    "scalar arithmetic between": (
        "r = Range (zero, t, one) a = Add (r, two) b = Mul (t, a) y = Reshape (b, last)",
        "int64[A, B, C] y",
        "",
    ),
    "two branches": (
        "r = Range (zero, t, one) y = Reshape (r, last) u = Unsqueeze (r, axis0)"
        " z = Unsqueeze (r, axes)",
        "int64[A, B, C] y, int64[A, B] u, int64[A, B, C] z",
        "",
    ),
    "another user": (
        "r = Range (zero, t, one) y = Reshape <allowzero = 1> (r, last) z = Less (r, t)",
        "int64[A, B, C] y, bool[A] z",
        "",
    ),
    "a graph output": (
        "r = Range (zero, t, one) y = Unsqueeze (r, axes)",
        "int64[A, B, C] y, int64[D] r",
        "",
    ),
    "a graph output of a Reshape that changes nothing": (
        "r = Range (zero, t, one) y = Reshape (r, s)",
        "int64[A] y, int64[A] r",
        ", int64[1] s = {-1}",
    ),
    "two Ranges of one length": (
        "r = Range (zero, t, one) y = Unsqueeze (r, axes)"
        " q = Range (zero, t, two) z = Unsqueeze (q, axis0)",
        "int64[A, B, C] y, int64[A, B] z",
        "",
    ),
}


@pytest.mark.parametrize(("body", "output", "constants"), REPAIRS.values(), ids=REPAIRS)
def test_no_range_is_left_and_the_numbers_stay(body: str, output: str, constants: str) -> None:
    before = model(index(body, output, constants))
    after, report = repair(before)
    assert report.changes
    assert not report.skips
    assert not {"Range", "Reshape"} & set(ops(after))
    check_same(before, after)


@pytest.mark.parametrize(
    ("limit", "made"),
    [
        ("l = Identity (t)", []),
        ("l = Add (t, two)", ["Add"]),
        ("a = Mul (t, two) l = Sub (a, zero)", ["Unsqueeze"]),
        ("a = Sub (t, one) b = Div (a, two) l = Add (b, one)", ["Unsqueeze", "Add"]),
        ("a = Div (t, two) l = Sub (a, one)", ["Unsqueeze", "Add", "Max"]),
        ("a = Sub (t, two) l = Max (a, zero)", ["Unsqueeze"]),
        ("s = Shape (x) l = Gather <axis = 0> (s, two)", ["Gather"]),
        ("s = Shape (x) g = Gather <axis = 0> (s, two) l = Cast <to = 7> (g)", ["Gather"]),
        ("c = Cast <to = 1> (t) f = Floor (c) l = Cast <to = 7> (f)", ["Unsqueeze", "Max"]),
    ],
)
def test_the_length_costs_no_more_than_it_must(limit: str, made: list[str]) -> None:
    before = model(index(f"{limit} r = Range (zero, l, one) y = Reshape (r, last)"))
    after, report = repair(before)
    added = [line.split(" = ")[1].split()[0] for line in report.changes[0].added]
    assert added == [*made, "Concat", "ConstantOfShape", "CumSum"]
    check_same(before, after)


def test_a_past_that_is_in_start_and_limit_is_not_in_the_length() -> None:
    text = index("e = Add (p, t) r = Range (p, e, one) y = Reshape (r, last)")
    before = model(text.replace("m (", "m (int64 p, "))
    after, report = repair(before)
    assert ops(after) == ["Shape", "Concat", "ConstantOfShape", "CumSum", "Add"]
    assert not report.skips
    check_same(before, after, *({**of_length(n), "p": np.array(p)} for n in (0, 3) for p in (0, 9)))


@pytest.mark.parametrize(("body", "output", "constants"), REPAIRS.values(), ids=REPAIRS)
def test_unsqueeze_style_keeps_the_range(body: str, output: str, constants: str) -> None:
    before = model(index(body, output, constants))
    after, report = repair(before, "unsqueeze")
    views = ops(before).count("Reshape")
    assert len(report.changes) == views
    assert "Reshape" not in ops(after)
    assert ops(after).count("Range") == ops(before).count("Range")
    assert not {"CumSum", "ConstantOfShape"} & set(ops(after))
    if not views:
        assert data(after) == data(before)
    check_same(before, after)


STATIC = "r = Range (zero, two, one) y = Reshape (r, last)"

# What is none of the pass's business: no change, no remark, not a byte.
NOT_MINE = {
    "nothing to place": "r = Range (zero, t, one) y = Add (r, two)",
    "a lookup": "r = Range (zero, t, one) y = Gather (table, r)",
    "a comparison": "r = Range (zero, t, one) c = Cast <to = 1> (r) y = Less (c, half)",
    "an angle": "f = Cast <to = 1> (t) r = Range (half, f, half) e = Exp (r)"
    " y = Unsqueeze (e, axes)",
    "a static length": STATIC,
    "a static length, unsqueezed": "r = Range (zero, two, one) y = Unsqueeze (r, axes)",
    "a static float": "r = Range (half, three, half) y = Unsqueeze (r, axes)",
    "a shape of its own": "r = Range (zero, t, one) y = Shape (r)",
    "a target made of it": "r = Range (one, three_i, one) y = Reshape (x, r2)",
    "a Reshape of data": "y = Reshape (x, last)",
    "an Unsqueeze of data": "y = Unsqueeze (x, axes)",
    "a cumsum": "c = ConstantOfShape <value = int64[1] {1}> (time) d = CumSum (c, zero)"
    " y = Reshape (d, last)",
    "added to data": "r = Range (zero, t, one) f = Cast <to = 1> (r) a = Add (x, f)"
    " y = Reshape (a, last)",
}
TABLE = (
    ", int64[9] table = {9, 8, 7, 6, 5, 4, 3, 2, 1}, float half = {0.5}, float three = {3},"
    " int64 three_i = {3}, int64[1] r2 = {-1}"
)


@pytest.mark.parametrize("style", ["cumsum", "unsqueeze"])
@pytest.mark.parametrize("body", NOT_MINE.values(), ids=NOT_MINE)
def test_what_is_no_index_is_left_alone(body: str, style: str) -> None:
    before = model(index(body, "int64[D] y", TABLE))
    after, report = repair(before, style)
    assert not report.changes
    assert not report.skips
    assert data(after) == data(before)


VIEW = " y = Unsqueeze (r, axes)"
REFUSED = {
    "a float": ("f = Cast <to = 1> (t) r = Range (fz, f, fo)" + VIEW, "counts in float"),
    "a step of a half": ("f = Cast <to = 1> (t) r = Range (fz, f, half)" + VIEW, "counts in float"),
    "a step computed": ("r = Range (zero, t, t)" + VIEW, "step 't' is not a constant"),
    "a step of zero": ("r = Range (zero, t, zero)" + VIEW, "is 0"),
    "the largest step": ("r = Range (zero, t, huge)" + VIEW, "its length would be out of range"),
    "the least step": ("r = Range (t, zero, least)" + VIEW, "its length would be out of range"),
    "int16": ("i = Cast <to = 5> (t) r = Range (sz, i, so)" + VIEW, "int16"),
}
FLOATS = """, float fz = {0}, float fo = {1}, float half = {0.5}, int16 sz = {0}, int16 so = {1},
    int64 huge = {9223372036854775807}, int64 least = {-9223372036854775807}"""


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_near_miss_is_refused_with_its_reason(body: str, reason: str) -> None:
    before = model(index(body, "int64[A, B, C] y", FLOATS))
    after, report = repair(before)
    assert not report.changes
    assert len(report.skips) == 1
    assert reason in report.skips[0][1]
    assert data(after) == data(before)


def test_a_range_that_is_refused_still_loses_its_reshape() -> None:
    body = "f = Cast <to = 1> (t) r = Range (fz, f, half) y = Reshape <allowzero = 1> (r, last)"
    before = model(index(body, "float[A, B, C] y", FLOATS))
    after, report = repair(before)
    assert [c.tensor for c in report.changes] == ["y"]
    assert len(report.skips) == 1
    assert ops(after)[-2:] == ["Range", "Unsqueeze"]
    check_same(before, after)


@pytest.mark.parametrize("style", ["cumsum", "unsqueeze"])
@pytest.mark.parametrize("target", ["{2, -1}", "{-1, 1, 2}", "{1, 0, -1}"])
def test_a_reshape_that_splits_the_index_stays(style: str, target: str) -> None:
    size = target.count(",") + 1
    text = index(
        "d = Mul (t, two) r = Range (zero, d, one) y = Reshape (r, s)",
        f"int64[{', '.join('ABC'[:size])}] y",
        f", int64[{size}] s = {target}",
    )
    before = model(text)
    after, report = repair(before, style)
    assert len(report.skips) == 1
    assert "may split the index" in report.skips[0][1]
    assert ops(after).count("Reshape") == 1
    assert ("Range" in ops(after)) == (style == "unsqueeze")
    if "0" not in target:
        check_same(before, after)


@pytest.mark.parametrize("style", ["cumsum", "unsqueeze"])
@pytest.mark.parametrize("target", ["{1, 7, 1}", "{1, 1, 1}"])
def test_a_target_of_fixed_numbers_fits_where_it_ran(style: str, target: str) -> None:
    constants = f", int64[3] s = {target}"
    before = model(index("r = Range (zero, t, one) y = Reshape (r, s)", constants=constants))
    after, report = repair(before, style)
    assert len(report.changes) == 1
    check_same(before, after, of_length(7 if "7" in target else 1))


@pytest.mark.parametrize("style", ["cumsum", "unsqueeze"])
def test_a_target_that_holds_a_number_computed_from_data(style: str) -> None:
    text = """m (int64[B] lengths) => (int64[K, A] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] row = {1}> {
        longest = ReduceMax <keepdims = 1> (lengths)
        limit = Squeeze (longest)
        r = Range (zero, limit, one)
        s = Concat <axis = 0> (row, longest)
        y = Reshape <allowzero = 1> (r, s)
    }"""
    before = model(text)
    after, report = repair(before, style)
    assert len(report.changes) == 1
    assert "Reshape" not in ops(after)
    check_same(before, after, *({"lengths": np.array(x)} for x in ([0], [1], [3, 1])))


def test_opset_11_has_no_max_of_integers() -> None:
    text = """m (int64 n) => (int64[A, B] y) <int64 zero = {0}, int64 one = {1}> {
        r = Range (zero, n, one)
        y = Unsqueeze <axes = [0]> (r)
    }"""
    after, report = repair(model(text, 11))
    assert "Range" in ops(after)
    assert "opset 11" in report.skips[0][1]


def test_opset_11_unsqueezes_with_an_attribute() -> None:
    text = """m (float[T] x) => (int64[A, B] y) <int64 zero = {0}, int64 one = {1},
        int64[2] s = {1, -1}> {
        n = Shape (x)
        t = Squeeze (n)
        r = Range (zero, t, one)
        y = Reshape (r, s)
    }"""
    before = model(text, 11)
    for style in ("cumsum", "unsqueeze"):
        after, report = repair(before, style)
        assert len(report.changes) == 1
        check_same(before, after, *({"x": np.zeros(n, np.float32)} for n in SIZES))


@pytest.mark.parametrize("shape", ["", "[1]", "[K]"])
def test_a_limit_that_is_an_input_may_be_negative(shape: str) -> None:
    text = f"""m (int64{shape} n) => (int64[A, B] y)
    <int64 zero = {{0}}, int64 one = {{1}}, int64[1] axis = {{0}}> {{
        r = Range (zero, n, one)
        y = Unsqueeze (r, axis)
    }}"""
    before = model(text)
    after, report = repair(before)
    assert len(report.changes) == 1
    assert "Max" in ops(after)
    for n in (-3, 0, 1, 5):
        check_same(before, after, {"n": np.array(n if not shape else [n])})


def test_a_limit_computed_from_data_is_counted() -> None:
    text = """m (int64[B] lengths) => (bool[B, T] mask)
    <int64 zero = {0}, int64 one = {1}, int64[1] a0 = {0}, int64[1] a1 = {1}> {
        longest = ReduceMax <keepdims = 0> (lengths)
        r = Range (zero, longest, one)
        row = Unsqueeze (r, a0)
        column = Unsqueeze (lengths, a1)
        mask = Less (row, column)
    }"""
    before = model(text)
    after, report = repair(before)
    assert len(report.changes) == 1
    assert "Range" not in ops(after)
    for lengths in ([0], [3, 1], [-2, -1]):
        check_same(before, after, {"lengths": np.array(lengths)})


def test_a_limit_that_a_caller_may_override_is_no_constant() -> None:
    text = """m (float[2] x, int64 n = {3}) => (int64[A, B] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}> {
        r = Range (zero, n, one)
        y = Unsqueeze (r, axis)
    }"""
    before = model(text)
    before.graph.inputs[1].const_value = ir.tensor(np.array(3))
    before.graph.register_initializer(before.graph.inputs[1])
    after, report = repair(before)
    assert len(report.changes) == 1
    x = {"x": np.zeros(2, np.float32)}
    check_same(before, after, x, {**x, "n": np.array(5)})


def test_only_the_axis_that_is_needed_is_made() -> None:
    body = "r = Range (zero, t, one) u = Unsqueeze (r, axes) s = Shape (x) y = Expand (u, s)"
    after, _ = repair(model(index(body)))
    fill = next(n for n in after.graph if n.op_type == "ConstantOfShape")
    size = fill.inputs[0].producer()
    assert size is not None
    assert size.op_type == "Concat"
    assert [x.name for x in size.inputs][1:] == ["time"]


def test_one_count_serves_all_users_of_a_range() -> None:
    body, output, _ = REPAIRS["two branches"]
    after, report = repair(model(index(body, output)))
    assert ops(after).count("CumSum") == 1
    assert ops(after).count("Unsqueeze") == 3
    assert len(report.changes) == 2


def test_one_length_serves_two_ranges() -> None:
    text = """m (float[T] x, int64 n) => (int64[A, B] y, int64[A, B] z)
    <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] axis = {0}> {
        q = Range (zero, n, one)
        r = Range (zero, n, two)
        y = Unsqueeze (q, axis)
        z = Unsqueeze (r, axis)
    }"""
    before = model(text)
    after, _ = repair(before)
    assert ops(after).count("Unsqueeze") == 1
    x = {"x": np.zeros(2, np.float32)}
    check_same(before, after, *({**x, "n": np.array(n)} for n in (-1, 0, 1, 4)))


@pytest.mark.parametrize("style", ["cumsum", "unsqueeze"])
def test_in_a_branch(style: str) -> None:
    text = """m (float[B, C, T] x, bool c) => (int64[K, A, B] y)
    <int64 zero = {0}, int64 one = {1}, int64[3] last = {1, 1, -1}> {
        time = Shape <start = 2, end = 3> (x)
        t = Squeeze (time)
        outer = Range (zero, t, one)
        y = If (c) <
            then_branch = a () => (int64[A, B, C] p) {
                r = Range (zero, t, one)
                p = Reshape <allowzero = 1> (r, last)
            },
            else_branch = b () => (int64[A, B, C] q) {
                q = Reshape <allowzero = 1> (outer, last)
            }
        >
    }"""
    before = model(text)
    after, report = repair(before, style)
    assert "Reshape" not in ops(after)
    assert ("Range" in ops(after)) == (style == "unsqueeze")
    assert report.changes
    feeds = [{**of_length(n), "c": np.array(c)} for n in (0, 3) for c in (True, False)]
    check_same(before, after, *feeds)


def test_a_loop_counts_outside_what_was_counted_outside() -> None:
    text = """m (float[B, C, T] x, int64 n, bool c) => (int64[K, A, B] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}> {
        time = Shape <start = 2, end = 3> (x)
        t = Squeeze (time)
        outer = Range (zero, t, one)
        y = Loop (n, c) <body = b (int64 i, bool d) => (bool e, int64[A, B] q) {
            e = Identity (d)
            q = Unsqueeze (outer, axis)
        }>
    }"""
    before = model(text)
    after, _ = repair(before)
    assert "CumSum" in [node.op_type for node in after.graph]
    check_same(before, after, {**of_length(3), "n": np.array(2), "c": np.array(True)})


@pytest.mark.parametrize("style", ["cumsum", "unsqueeze"])
def test_in_a_local_function(style: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
    m (float[T] x) => (int64[A, B, C] y, int64[A, B] z) {
        y, z = local.positions (x)
    }
    <opset_import: ["" : 18], domain: "local">
    positions (v) => (row, column) {
        zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64 {1}> ()
        last = Constant <value = int64[3] {1, 1, -1}> ()
        axis = Constant <value = int64[1] {1}> ()
        n = Shape (v)
        t = Gather <axis = 0> (n, zero)
        e = Add (t, one)
        r = Range (zero, t, one)
        q = Range (one, e, one)
        row = Reshape <allowzero = 1> (r, last)
        column = Unsqueeze (q, axis)
    }"""
    before = ir.from_onnx_text(text)
    after, report = repair(before, style)
    assert "Reshape" not in ops(after)
    assert len(report.changes) == (2 if style == "cumsum" else 1)
    assert ("Range" in ops(after)) == (style == "unsqueeze")
    check_same(before, after, *({"x": np.zeros(n, np.float32)} for n in SIZES))


def test_types_in_a_local_function_are_read_off_its_nodes() -> None:
    """No shape is inferred there: a size that is cast and cast back is still no less than 0."""
    text = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
    m (float[T] x) => (int64[A, B] y) { y = local.positions (x) }
    <opset_import: ["" : 18], domain: "local">
    positions (v) => (column) {
        zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64 {1}> ()
        axis = Constant <value = int64[1] {1}> ()
        n = Size (v)
        half = Cast <to = 6> (n)
        t = Cast <to = 7> (half)
        r = Range (zero, t, one)
        column = Unsqueeze (r, axis)
    }"""
    before = ir.from_onnx_text(text)
    after, report = repair(before)
    assert len(report.changes) == 1
    assert not {"Max", "Cast", "Range"} & set(ops(after))
    check_same(before, after, *({"x": np.zeros(n, np.float32)} for n in SIZES))


def test_the_repaired_tensor_keeps_its_name() -> None:
    body, output, _ = REPAIRS["another user"]
    _, report = repair(model(index(body, output)))
    assert [c.tensor for c in report.changes] == ["r", "y"]


def test_an_index_of_more_dims_that_is_viewed_again_is_not_taken_for_one() -> None:
    body = (
        "r = Range (zero, t, one) u = Unsqueeze (r, axes) f = Cast <to = 1> (u)"
        " y = Reshape (f, flat)"
    )
    before = model(index(body, "float[A] y", ", int64[1] flat = {-1}"))
    after, report = repair(before)
    assert len(report.changes) == 1
    assert ops(after)[-3:] == ["CumSum", "Cast", "Reshape"]
    check_same(before, after)


def test_the_style_must_be_known() -> None:
    with pytest.raises(UsageError, match="style=arange is none of cumsum, unsqueeze"):
        graphfix.run(model(index(STATIC)), "cumsum-index:style=arange")


LIMITS = {
    "t": "l = Identity (t)",
    "t+3": "l = Add (three, t)",
    "t-2": "l = Sub (t, w)",
    "t//2": "l = Div (t, w)",
    "t*t": "l = Mul (t, t)",
    "5": "l = Identity (five)",
    "t+s": "l = Add (s, t)",
}
STARTS = {"-2": "s = Identity (minus)", "0": "s = Identity (z)", "3": "s = Identity (three)"} | {
    "t": "s = Identity (t)",
    "t-1": "s = Sub (t, o)",
}
PLACES = {
    "view": "y = Reshape <allowzero = 1> (r, last)",
    "first": "y = Reshape (r, front)",
    "unsqueeze": "y = Unsqueeze (r, outer)",
    "cast": "c = Cast <to = 1> (r) y = Unsqueeze (c, axes)",
    "expand": "e = Shape (r) f = Concat <axis = 0> (pair, e) y = Expand (r, f)",
    "shared": "y = Reshape (r, last) k = Unsqueeze (r, axes) j = Add (r, r)",
}


@settings(max_examples=120, deadline=None)
@given(
    start=st.sampled_from(list(STARTS)),
    limit=st.sampled_from(list(LIMITS)),
    step=st.sampled_from([1, 2, 3, -1, -2]),
    place=st.sampled_from(list(PLACES)),
    dtype=st.sampled_from(["int64", "int32", "float"]),
    style=st.sampled_from(["cumsum", "unsqueeze"]),
)
def test_any_range_is_counted_exactly_or_refused(
    start: str, limit: str, step: int, place: str, dtype: str, style: str
) -> None:
    number = {"int64": 7, "int32": 6, "float": 1}[dtype]
    out = "float" if place == "cast" else dtype
    constants = {"z": 0, "o": 1, "w": 2, "three": 3, "five": 5, "minus": -2, "step": step}
    declared = ", ".join(f"{dtype} {k} = {{{v}}}" for k, v in constants.items())
    before = model(
        f"""m (float[T] x) => ({out}[A, B, C] y)
        <{declared}, int64[3] last = {{1, 1, -1}}, int64[3] front = {{-1, 1, 1}},
         int64[2] axes = {{0, 1}}, int64[2] outer = {{0, -1}}, int64[2] pair = {{2, 2}}> {{
            size = Shape (x)
            scalar = Squeeze (size)
            t = Cast <to = {number}> (scalar)
            {STARTS[start]}
            {LIMITS[limit]}
            r = Range (s, l, step)
            {PLACES[place]}
        }}"""
    )
    after, report = repair(before, style)
    if style == "cumsum":
        static = start[-1].isdigit() and not start.startswith("t") and limit == "5"
        assert static == (not report.changes and not report.skips)
        assert ("Range" in ops(after)) == (static or bool(report.skips))
        assert dtype == "float" or not report.skips
    check_same(before, after, *({"x": np.zeros(n, np.float32)} for n in (0, 1, 2, 5)))
