"""Single steps of the walk back to rows that are shifted: where what is read lies then."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from graphfix.facts import shifted_rows
from graphfix.facts.shifted_rows import LinearIndex, _BackwardWalk
from graphfix.facts.view import View
from tests.facts.symbolic.bodies import size_of

INPUTS = """float[H, T, 6] x, float[H, T, 6] z, float[H, T, 2] few, float[H, N] flat, int64[1] late,
    float[H, T, T] square, float[T, 6] matrix, float[1, H, T, 6] one_more, float[H, 6, T] turned,
    float[H, T, K] any"""
CONSTANTS = """int64[1] o1 = {1}, int64[1] two = {2}, int64[1] m1 = {-1}, int64[1] z1 = {0},
    int64[1] far = {9223372036854775807}, int64[2] both = {1, 2}, int64[2] last = {1, 2},
    int64[2] fars = {9223372036854775807, 9223372036854775807}, float five = {5},
    int64[6] above = {0, 1, 0, 0, 0, 0}, int64[6] below = {0, 0, 0, 0, 1, 0},
    int64[6] front = {0, 0, 1, 0, 0, 0}, int64[6] behind = {0, 0, 0, 0, 0, 1},
    int64[6] heads = {1, 0, 0, 0, 0, 0}, int64[6] corner = {0, 1, 1, 0, 0, 0},
    int64[6] cut = {0, -1, 0, 0, 0, 0}, int64[3] six = {0, -1, 6}, int64[3] three = {0, -1, 3},
    int64[2] line = {0, -1}, int64[3] cols = {0, 0, 6}"""
SIZES = "t = Shape <start = 1, end = 2> (x) tt = Mul (t, two) six1 = Shape <start = 2> (x)"


def index(*items: str | int) -> LinearIndex:
    return LinearIndex(*map(size_of, items))


def walk_at(body: str) -> tuple[_BackwardWalk, ir.Value]:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]> m ({INPUTS}) => (y) <{CONSTANTS}>
        {{ {SIZES} {body} }}"""
    )
    view, y = View(model), model.graph.outputs[0]
    dims = view.shapes.dims(y)
    assert dims is not None
    return _BackwardWalk(dims, view), y


def step(walk: _BackwardWalk, value: ir.Value) -> ir.Value | None:
    node, after = value.producer(), walk._inner_sizes(value)
    assert node is not None
    assert after is not None
    undo = walk._undo_concat if node.op_type == "Concat" else walk._step_back
    return undo(node, after)


def back(body: str, steps: int = 1) -> tuple[str | None, LinearIndex, bool]:
    """Return what the walk comes to, and where what is read lies in it."""
    walk, value = walk_at(body)
    for _ in range(steps):
        source = step(walk, value)
        if source is None:
            return None, walk.place, walk.reads_outside
        value = source
    return value.name, walk.place, walk.reads_outside


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("y = Identity (x)", (6, 1, 0)),
        ("y = Slice (x, o1, far, o1)", (6, 1, 6)),  # a row is cut off
        ("y = Slice (x, two, far, two)", (6, 1, 2)),  # two columns are
        ("y = Slice (x, both, fars, last)", (6, 1, 8)),
        ("y = Slice (x, z1, two, two)", (6, 1, 0)),
        ("y = Slice (x, o1, m1, o1)", (6, 1, 6)),
    ],
)
def test_a_slice_moves_on(body: str, place: tuple[str | int, ...]) -> None:
    assert back(body) == ("x", index(*place), False)


@pytest.mark.parametrize(
    "body",
    [
        "y = Slice (x, late, far, o1)",
        "y = Slice (x, o1, far, z1)",  # another head
        "y = Slice (x, z1, far, o1, two)",
        "y = Transpose <perm = [1, 0, 2]> (x)",
        "y = Pad (x, heads)",
        "y = Pad (x, corner)",
        "y = Relu (x)",
    ],
)
def test_what_does_more_than_move(body: str) -> None:
    name, _, _ = back(body)
    assert name is None


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("y = Pad (x, above)", (6, 1, -6)),
        ("y = Pad (x, below)", (6, 1, 0)),
        ("y = Pad (x, cut)", (6, 1, 6)),
    ],
)
def test_rows_that_are_added_are_read_outside(body: str, place: tuple[int, ...]) -> None:
    assert back(body) == ("x", index(*place), body != "y = Pad (x, cut)")


@pytest.mark.parametrize("fill", ["five", "late"])
def test_rows_of_another_number_are_no_zeros(fill: str) -> None:
    assert back(f"y = Pad (x, above, {fill})")[0] is None


@pytest.mark.parametrize(
    ("body", "steps", "name", "place"),
    [
        # Columns that are added and not read.
        ("p = Pad (x, front) y = Slice (p, o1, far, two)", 2, "x", (6, 1, 0)),
        ("p = Pad (x, behind) y = Slice (p, z1, six1, two)", 2, "x", (6, 1, 0)),
        ("p = Pad (x, front, five) y = Slice (p, o1, far, two)", 2, "x", (6, 1, 0)),
        # Rows that are added and not read.
        ("p = Pad (x, above) y = Slice (p, o1, far, o1)", 2, "x", (6, 1, 0)),
        ("p = Pad (x, above, five) y = Slice (p, o1, far, o1)", 2, "x", (6, 1, 0)),
        # A column that is read.
        ("p = Pad (x, front) y = Identity (p)", 2, None, (7, 1, 0)),
        # The part of a Concat that is read.
        ("c = Concat <axis = 1> (x, z) y = Slice (c, t, far, o1)", 2, "z", (6, 1, 0)),
        ("c = Concat <axis = 1> (x, z) y = Slice (c, z1, t, o1)", 2, "x", (6, 1, 0)),
        ("c = Concat <axis = -2> (x, z) y = Slice (c, t, far, o1)", 2, "z", (6, 1, 0)),
        ("c = Concat <axis = 2> (few, x) y = Slice (c, two, far, two)", 2, "x", (6, 1, 0)),
        ("c = Concat <axis = 2> (few, x) y = Slice (c, z1, two, two)", 2, "few", (2, 1, 0)),
        ("c = Concat <axis = -1> (x, few) y = Slice (c, z1, six1, two)", 2, "x", (6, 1, 0)),
        ("c = Concat <axis = 2> (x, few) y = Slice (c, o1, six1, two)", 2, "x", (6, 1, 1)),
        ("c = Concat <axis = 1> (x, z) y = Slice (c, o1, far, o1)", 2, None, (6, 1, 6)),
        ("c = Concat <axis = 2> (x, few) y = Slice (c, two, far, two)", 2, None, (8, 1, 2)),
        ("c = Concat <axis = 0> (x, z) y = Slice (c, o1, far, o1)", 2, None, (6, 1, 6)),
        # As one axis.
        ("r = Reshape (x, line) y = Reshape (r, cols)", 2, "x", (6, 1, 0)),
        ("u = Unsqueeze (x, z1) y = Squeeze (u, z1)", 2, "x", (6, 1, 0)),
    ],
)
def test_several_steps(
    body: str, steps: int, name: str | None, place: tuple[str | int, ...]
) -> None:
    found, at, outside = back(body, steps)
    assert (found, at) == (name, index(*place))
    assert not outside


def test_after_what_was_read_outside_nothing_is_cut() -> None:
    walk, y = walk_at("y = Slice (x, o1, far, o1)")
    walk.reads_outside = True
    assert step(walk, y) is None
    walk, y = walk_at("y = Concat <axis = 1> (x, z)")
    walk.reads_outside = True
    assert step(walk, y) is None
    walk, y = walk_at("y = Pad (x, cut)")
    walk.reads_outside = True
    assert step(walk, y) is None


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("x", ["T", "6"]),
        ("flat", ["N"]),
        ("one_more", ["T", "6"]),
        ("turned", ["6", "T"]),
        ("matrix", None),
        ("any", ["T", "K"]),
    ],
)
def test_sizes_behind_the_first_axes(name: str, sizes: list[str] | None) -> None:
    walk, y = walk_at("y = Identity (x)")
    values = {v.name: v for v in y.producer().graph.inputs}  # type: ignore[union-attr]
    found = walk._inner_sizes(values[name])
    assert (found and [*map(str, found)]) == sizes
    assert walk._inner_sizes(None) is None


def test_a_result_is_recorded_where_rows_move_by_one() -> None:
    row, col = index(1, 0, 0), index(1, 1, 3)
    for given, changed, recorded in (
        ("x", {}, True),
        ("x", {"row": index(1, 0, 1)}, False),
        ("x", {"row": index(2, 0, 0)}, False),
        ("x", {"col": index(1, 2, 3)}, False),
        ("x", {"col": index(-1, 1, 3)}, True),
        ("x", {"col": index(0, 1, 3)}, False),
        ("x", {"col": index(2, 1, 3)}, False),
        ("flat", {}, False),
        ("one_more", {}, False),
        ("turned", {}, False),  # another number of rows
    ):
        walk, y = walk_at("y = Identity (x)")
        values = {v.name: v for v in y.producer().graph.inputs}  # type: ignore[union-attr]
        at: dict[str, Any] = {"row": row, "col": col, **changed}
        walk._record_result(values[given], at["row"], at["col"], reads_outside=True)
        result = walk._result
        assert (result is not None) is recorded
        if result is not None:
            assert (result.direction, result.shift) == (int(at["col"].a), 3)
            assert (result.source.name, result.reads_outside, str(result.rows)) == ("x", True, "T")


@pytest.mark.parametrize(
    ("place", "width", "before", "behind", "split"),
    [
        ((6, 1, 0), 6, 0, 0, ((1, 0, 0), (0, 1, 0))),
        ((6, 1, 2), 6, 0, 0, None),  # the last columns are of the next row
        ((6, 1, 2), 6, 0, 2, ((1, 0, 0), (0, 1, 2))),
        ((6, 1, 2), 6, 0, 1, None),
        ((6, 1, -2), 6, 2, 0, ((1, 0, 0), (0, 1, -2))),
        ((6, 1, -2), 6, 1, 0, None),
        ((8, 1, 1), 8, 0, 0, ((1, 0, 0), (0, 1, 1))),
        ((8, 1, 9), 8, 0, 0, ((1, 0, 1), (0, 1, 1))),
        ((7, 1, 0), 6, 0, "T + 5", ((1, 0, 0), (1, 1, 0))),
        ((5, 1, 0), 6, "T", 0, None),  # how often T goes into 6 is not known
        ((6, 1, 0), 0, 0, 0, None),
    ],
)
def test_rows_and_columns_of_a_place(
    place: tuple[int, ...],
    width: int,
    before: int | str,
    behind: int | str,
    split: tuple[tuple[int, ...], ...] | None,
) -> None:
    walk, _ = walk_at("y = Identity (x)")  # rows of six elements, T of them
    walk.place = index(*place)
    found = walk._split_rows(size_of(width), size_of(before), size_of(behind))
    assert found == (None if split is None else tuple(index(*x) for x in split))


@pytest.mark.parametrize(
    ("place", "low", "high", "within"),
    [
        ((6, 1, 0), 0, "6*T - 1", True),
        ((6, 1, 0), 0, "6*T - 2", False),
        ((6, 1, 0), 1, "6*T - 1", False),
        ((6, 1, 1), 1, "6*T", True),
        ((-1, 1, "T"), 1, "T + 5", True),
        ((-1, 1, "T"), 2, "T + 5", False),
    ],
)
def test_places_within(place: tuple[str | int, ...], low: int, high: str, within: bool) -> None:
    walk, _ = walk_at("y = Identity (x)")
    assert walk._is_within(index(*place), low, size_of(high)) is within


def test_indices_are_added_multiplied_and_moved() -> None:
    assert index(1, 2, 3).plus(index("T", 0, -3)) == index("T + 1", 2, 0)
    assert index(1, 2, 3).times(size_of("T")) == index("T", "2*T", "3*T")
    assert index(1, 2, 3).shifted_by(size_of("T")) == index(1, 2, "T + 3")


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (("H", 1), ("H",), True),
        ((1, "H", 1), (1, "H"), True),
        (("H",), ("B",), False),
        (("H", 2), ("H",), False),
        ((), (1,), True),
    ],
)
def test_sizes_of_1_do_not_count(a: Any, b: Any, same: bool) -> None:
    lhs, rhs = ([x if isinstance(x, int) else ir.SymbolicDim(x) for x in dims] for dims in (a, b))
    assert shifted_rows._same_except_ones(lhs, rhs) is same
