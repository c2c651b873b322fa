"""What a Range counts, and which tensors are made of its index."""

import pytest

from graphfix.core import Skip
from graphfix.editing.builder import PASS_KEY
from graphfix.facts.view import View
from graphfix.passes.indices.sites.range_index import (
    IndexAxis,
    RangeCount,
    index_axis_of,
    is_index_range,
    is_static,
    range_count_of,
    range_source_of,
)
from tests.passes.models import model

HEAD = """m (int64 n, int64 past, int64[1] v, int32 k, int64[2] pair, float f, float[B, T] x)
    => (int64[A] y) <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 minus = {-1},
    int64[1] vone = {1}, int64[2] steps = {1, 2}, int32 kone = {1}, int32 kzero = {0},
    float fone = {1}, int64 five = {5}, int64 down = {-3}, int64[1, 1] wide = {2}>"""


def count_of(steps: str, opset: int = 18) -> RangeCount | Skip:
    """What the last Range counts."""
    m = model(f"{HEAD} {{ {steps} }}", opset)
    m.graph.outputs[0].type = m.graph.outputs[0].shape = None
    return range_count_of(m.graph[-1], View(m))


@pytest.mark.parametrize(
    ("steps", "minuend", "subtrahend", "plus", "step", "start"),
    [
        ("y = Range (zero, n, one)", "n", None, 0, 1, 0),
        ("y = Range (two, n, one)", "n", None, -2, 1, 2),
        ("y = Range (zero, n, two)", "n", None, 1, 2, 0),
        ("y = Range (five, n, minus)", None, "n", 5, -1, 5),
        ("y = Range (five, n, down)", None, "n", 7, -3, 5),
        ("y = Range (n, zero, minus)", "n", None, 0, -1, "n"),
        ("y = Range (past, n, one)", "n", "past", 0, 1, "past"),
        ("y = Range (zero, five, one)", None, None, 5, 1, 0),
        ("y = Range (zero, k, kone)", None, None, None, None, None),
        # Constants that are added or subtracted count apart.
        ("m = Add (n, two) y = Range (zero, m, one)", "n", None, 2, 1, 0),
        ("m = Add (two, n) y = Range (one, m, one)", "n", None, 1, 1, 1),
        ("m = Sub (n, two) y = Range (zero, m, one)", "n", None, -2, 1, 0),
        ("m = Sub (two, n) y = Range (zero, m, one)", "m", None, 0, 1, 0),
        ("m = Squeeze (v) y = Range (zero, m, one)", "v", None, 0, 1, 0),
        ("c = Cast <to = 7> (k) y = Range (zero, c, one)", "k", None, 0, 1, 0),
        ("c = Cast <to = 7> (f) y = Range (zero, c, one)", "c", None, 0, 1, 0),
        # What start and limit have in common goes.
        ("m = Add (past, n) y = Range (past, m, one)", "n", None, 0, 1, "past"),
        ("m = Add (n, past) y = Range (past, m, one)", "n", None, 0, 1, "past"),
        ("m = Add (past, two) y = Range (past, m, one)", None, None, 2, 1, "past"),
        ("a = Add (past, n) m = Add (a, two) y = Range (past, m, one)", "n", None, 2, 1, "past"),
        (
            "p = Add (past, one) m = Add (p, n) y = Range (past, m, one)",
            "n", None, 1, 1, "past",
        ),
        ("m = Mul (past, n) y = Range (past, m, one)", "m", "past", 0, 1, "past"),
    ],
)  # fmt: skip
def test_count(
    steps: str,
    minuend: str | None,
    subtrahend: str | None,
    plus: int | None,
    step: int | None,
    start: int | str | None,
) -> None:
    if plus is None:
        steps = steps.replace("zero", "kzero")
        minuend, plus, step, start = "k", 0, 1, 0
    count = count_of(steps)
    assert isinstance(count, RangeCount)
    bases = [x.base and x.base.name for x in (count.minuend, count.subtrahend)]
    assert (bases, count.plus, count.step) == ([minuend, subtrahend], plus, step)
    assert (count.start if isinstance(count.start, int) else count.start.name) == start


@pytest.mark.parametrize(
    ("steps", "may_be_negative"),
    [
        ("y = Range (zero, n, one)", True),
        ("y = Range (past, n, one)", True),
        ("y = Range (zero, five, one)", False),
        ("y = Range (five, zero, one)", False),  # it is a constant: 0 is written
        ("s = Size (x) y = Range (zero, s, one)", False),
        ("s = Size (x) y = Range (minus, s, one)", False),
        ("s = Size (x) y = Range (one, s, one)", True),
        ("s = Size (x) y = Range (one, s, two)", False),  # rounded up
    ],
)
def test_a_length_below_0(steps: str, *, may_be_negative: bool) -> None:
    count = count_of(steps)
    assert isinstance(count, RangeCount)
    assert count.may_be_negative == may_be_negative
    older = count_of(steps, 11)
    assert isinstance(older, Skip) == may_be_negative
    assert isinstance(older, RangeCount) or "opset 11" in older.reason
    assert isinstance(count_of(steps, 12), RangeCount)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("y = Range (zero, n, past)", "is not a constant"),
        ("y = Range (zero, n, zero)", "is 0, or more than one number"),
        ("y = Range (zero, n, steps)", "is 0, or more than one number"),
        ("y = Range (f, f, fone)", "counts in float"),
        ("y = Range (steps, n, one)", "has more than one element"),
        ("y = Range (zero, steps, one)", "has more than one element"),
        ("y = Range (zero, , one)", "lacks an input"),
    ],
)
def test_what_is_not_counted(steps: str, reason: str) -> None:
    skip = count_of(steps)
    assert isinstance(skip, Skip)
    assert reason in skip.reason


@pytest.mark.parametrize(("limit", "expected"), [("five", True), ("n", False)])
def test_static(limit: str, *, expected: bool) -> None:
    m = model(f"{HEAD} {{ y = Range (zero, {limit}, one) }}")
    assert is_static(m.graph[0]) == expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("Unsqueeze (r, zero1)", (2, 1, (0,))),
        ("Unsqueeze (r, one1)", (2, 0, (1,))),
        ("Unsqueeze (r, last)", (2, 0, (1,))),
        ("Unsqueeze (r, outer)", (3, 1, (0, 2))),
        ("Unsqueeze (r, fed)", None),
        ("Reshape (r, row)", (3, 2, (0, 1))),
        ("Reshape (r, column)", (2, 0, (1,))),
        ("Reshape (r, units)", (2, 1, (0,))),
        ("Reshape (r, square)", None),
        ("Reshape (r, computed)", (2, 1, (0,))),
        ("Reshape (r, fed)", (1, 0, ())),
        ("Reshape (r, fed2)", None),
    ],
)
def test_the_axis_of_an_index(step: str, expected: tuple[int, int, tuple[int, ...]] | None) -> None:
    m = model(f"""m (int64[T] r, int64[1] fed, int64[2] fed2) => (int64 y) <int64[1] zero1 = {{0}},
        int64[1] one1 = {{1}}, int64[1] last = {{-1}}, int64[2] outer = {{0, 2}},
        int64[3] row = {{1, 1, -1}}, int64[2] column = {{-1, 1}}, int64[2] units = {{1, 1}},
        int64[2] square = {{3, 4}}> {{ computed = Concat <axis = 0> (one1, fed) y = {step} }}""")
    m.graph.outputs[0].shape = None
    axis = index_axis_of(m.graph[-1], View(m))
    assert axis == (None if expected is None else IndexAxis(*expected[:2]))
    assert axis is None or expected is None or axis.unit_axes == expected[2]


@pytest.mark.parametrize(
    ("steps", "is_index", "has_source"),
    [
        ("y = Unsqueeze (r, vone)", True, False),
        ("a = Add (r, one) y = Unsqueeze (a, vone)", True, True),
        ("a = Mul (two, r) y = Reshape (a, pair)", True, True),
        ("a = Mul (vone, r) y = Reshape (a, pair)", True, True),
        ("a = Mul (r, wide) y = Reshape (a, pair)", False, False),  # it gets a dim in front
        ("a = Cast <to = 6> (r) y = Expand (a, pair)", True, True),
        ("a = Add (r, r) y = Reshape (a, pair)", False, False),
        ("a = Neg (r) y = Reshape (a, pair)", False, False),
        ("a = Add (r, w) y = Reshape (a, pair)", False, False),
        ("y = Add (r, one)", False, True),
        ("y = Reshape (w, r)", False, False),
    ],
)
def test_where_an_index_goes_and_comes_from(
    steps: str, *, is_index: bool, has_source: bool
) -> None:
    m = model(f"""{HEAD.replace("float[B, T] x", "int64[W] w")}
        {{ r = Range (zero, n, one) {steps} }}""")
    m.graph.outputs[0].type = m.graph.outputs[0].shape = None
    view = View(m)
    assert is_index_range(m.graph[0], view) == is_index
    source = range_source_of(m.graph[1].outputs[0], "cumsum-index", view)
    assert (source is m.graph[0]) == has_source


@pytest.mark.parametrize(
    ("shape", "by", "is_source"),
    [
        ("v", "cumsum-index", True),
        ("vone", "cumsum-index", True),
        ("pair", "cumsum-index", False),
        ("v", "another", False),
    ],
)
def test_a_cumsum_that_a_repair_made(shape: str, by: str, *, is_source: bool) -> None:
    m = model(f"""{HEAD} {{ o = ConstantOfShape <value = int64[1] {{1}}> ({shape})
        r = CumSum (o, zero) y = Add (r, one) }}""")
    m.graph[1].metadata_props[PASS_KEY] = by
    source = range_source_of(m.graph[1].outputs[0], "cumsum-index", View(m))
    assert (source is m.graph[1]) == is_source
    assert range_source_of(None, "cumsum-index", View(m)) is None


@pytest.mark.parametrize(
    ("shape", "is_source"),
    [("vone", True), ("steps", False), ("v", True), ("both", False)],
)
def test_a_cumsum_of_an_unknown_rank(
    shape: str, monkeypatch: pytest.MonkeyPatch, *, is_source: bool
) -> None:
    m = model(f"""{HEAD} {{ both = Concat <axis = 0> (v, v)
        o = ConstantOfShape <value = int64[1] {{1}}> ({shape})
        r = CumSum (o, zero) y = Add (r, one) }}""")
    m.graph[2].metadata_props[PASS_KEY] = "cumsum-index"
    view = View(m)
    monkeypatch.setattr(view.shapes, "rank", lambda _: None)
    source = range_source_of(m.graph[2].outputs[0], "cumsum-index", view)
    assert (source is m.graph[2]) == is_source
