"""Shapes of what joins, rearranges, cuts and fills up tensors."""

from __future__ import annotations

import pytest

from graphfix.facts.shapes import shapes_of
from graphfix.graph.walks import values_of
from tests.facts.symbolic.bodies import INPUTS, contents_of, dims_of, keys, result_of

OPEN = 2**31 - 1
SIZE = (
    "s = Shape <start = 1, end = 2> (x) zero = Constant <value_ints = [0]> () n = Squeeze (s, zero)"
)


def ints(name: str, *numbers: int) -> str:
    return f"{name} = Constant <value_ints = [{', '.join(map(str, numbers))}]> ()"


def scalar(name: str, number: int) -> str:
    return f"{name} = Constant <value_int = {number}> ()"


@pytest.mark.parametrize(
    ("body", "dims"),
    [
        ("y = Add (x, one)", ["B", "T", 4]),
        ("y = Add (x, w)", ["B", 3, 4]),
        ("y = Add (w, x)", ["B", 3, 4]),
        ("y = Add (x, row)", ["B", None, 4]),
        ("y = Add (row, x)", ["B", None, 4]),
        (f"{ints('t', 3, 1, 1)} y = Expand (six, t)", [3, 1, 6]),
        (f"{ints('t', 2, 1, 4)} y = Expand (w, t)", [2, 3, 4]),
        ("t = Shape (x) y = Expand (one, t)", ["B", "T", 4]),
        ("y = Expand (x, target)", [None, None, 4]),
        ("s = Shape (x) y = ConstantOfShape (s)", ["B", "T", 4]),
        (f"{ints('s', 2, 3)} y = ConstantOfShape (s)", [2, 3]),
        ("y, z = Unique <axis = 0> (six)", None),
        ("y, z = Unique (six)", [None]),
    ],
)
def test_broadcasts_and_fills(body: str, dims: list[int | str | None] | None) -> None:
    found = dims_of(body, inputs=f"{INPUTS}, float[S, 4] row, int64[3] target")
    assert found == (None if dims is None else keys(*dims))


@pytest.mark.parametrize(
    ("data", "target", "dims"),
    [
        ("x", (0, 0, 2, 2), ["B", "T", 2, 2]),
        ("x", (0, -1), ["B", "4*T"]),
        ("x", (-1, 4), ["B*T", 4]),
        ("x", (0, 0, -1), ["B", "T", 4]),
        ("x", (-1,), ["4*B*T"]),
        ("x", (0, -1, 8), ["B", "floor(T/2)", 8]),
        ("x", (2, -1), [2, "2*B*T"]),
        ("x", (0, 0, 4, 1), ["B", "T", 4, 1]),
        ("w", (0, -1), [3, 4]),
        ("w", (-1, 2), [6, 2]),
        ("w", (0, 4, -1), [3, 4, 1]),
        ("w", (2, 3, 2), [2, 3, 2]),
    ],
)
def test_a_reshape(data: str, target: tuple[int, ...], dims: list[int | str]) -> None:
    assert dims_of(f"{ints('t', *target)} y = Reshape ({data}, t)") == keys(*dims)


def test_a_reshape_to_sizes_of_another_tensor() -> None:
    parts = f"b = Shape <end = 1> (x) {ints('m', -1)} t = Concat <axis = 0> (b, m)"
    assert dims_of(f"{parts} y = Reshape (x, t)") == keys("B", "4*T")
    parts = f"s = Shape <end = 2> (x) {ints('m', 2, 2)} t = Concat <axis = 0> (s, m)"
    assert dims_of(f"{parts} y = Reshape (x, t)") == keys("B", "T", 2, 2)


@pytest.mark.parametrize(
    ("body", "dims"),
    [
        (f"{ints('n', 1, 3)} y, z = Split <axis = 2> (x, n)", ["B", "T", 1]),
        (f"{ints('n', 1, 3)} z, y = Split <axis = -1> (x, n)", ["B", "T", 3]),
        ("y, z = Split <axis = 2> (x)", ["B", "T", 2]),
        # No constant: sizes of another tensor, or fed ones.
        ("n = Shape <start = 1> (w1) z, y = Split <axis = 2> (x, n)", ["B", "T", 3]),
        ("n = Shape (pair) y, z = Split <axis = 1> (wide, n)", ["B", "S"]),
        ("y, z = Split <axis = 2> (x, fed)", ["B", "T", None]),
        ("y, z = Split <axis = 2> (x, some)", ["B", "T", None]),
        ("y, z = Split <axis = 3> (x, fed)", None),
    ],
)
def test_a_split(body: str, dims: list[int | str | None] | None) -> None:
    more = "float[5, 1, 3] w1, float[S, 8] pair, int64[2] fed, int64[N] some"
    assert dims_of(body, inputs=f"{INPUTS}, {more}") == (None if dims is None else keys(*dims))


def test_what_parts_of_fed_sizes_hold_is_not_known() -> None:
    sizes = "s = Shape (w) y, z = Split (s, %s)"
    inputs = f"{INPUTS}, int64[2] fed"
    assert contents_of(f"{ints('n', 1, 1)} {sizes % 'n'}", inputs=inputs) == [3]
    known = contents_of(sizes % "fed", inputs=inputs)
    assert known is None or known == [None]


def test_a_zero_is_zero_if_allowed() -> None:
    assert dims_of(f"{ints('t', 0, 5)} y = Reshape <allowzero = 1> (w, t)") == [0, 5]
    assert dims_of(f"{ints('t', 0, 4)} y = Reshape <allowzero = 0> (w, t)") == [3, 4]


def test_an_unknown_target_leaves_the_rank() -> None:
    found = dims_of("y = Reshape (x, target)", inputs=f"{INPUTS}, int64[3] target")
    assert found is None or len(found) == 3
    assert dims_of("y = Reshape (x, target)", inputs=f"{INPUTS}, int64[N] target") is None


@pytest.mark.parametrize(
    ("cut", "length"),
    [
        ((0, 2, 1), "Min(2, T)"),
        ((0, 0, 1), 0),
        ((3, 1, 1), 0),
        ((1, OPEN, 1), "T - 1"),
        ((1, OPEN - 1, 1), f"Min({OPEN - 1}, T) - 1"),
        ((5, OPEN, 1), "Max(0, T - 5)"),
        ((-1, 2**63 - 1, 1), 1),
        ((0, -1, 1), "T - 1"),
        ((0, -1, 2), "floor(T/2)"),
        ((0, OPEN, 2), "floor(T/2 + 1/2)"),
        ((1, OPEN, 3), "floor(T/3 + 1/3)"),
        ((-3, -1, 1), "T - 1*Max(0, T - 3) - 1"),
        ((-1, -(2**31), -1), "T"),
        ((-1, -OPEN, -1), "T"),
        ((-1, 1 - OPEN, -1), None),
        ((OPEN, -OPEN, -1), "T"),
        ((OPEN - 1, -OPEN, -1), None),
        ((-2, -OPEN, -1), None),
        ((0, -OPEN, -1), None),
        ((-1, -OPEN, -2), None),
    ],
)
def test_a_slice_of_any_length(cut: tuple[int, int, int], length: int | str | None) -> None:
    start, end, step = cut
    limits = f"{ints('b', start)} {ints('e', end)} {ints('a', 1)} {ints('k', step)}"
    assert dims_of(f"{limits} y = Slice (x, b, e, a, k)") == keys("B", length, 4)


@pytest.mark.parametrize(
    ("cut", "length"),
    [
        ((0, 2, 1), 2),
        ((1, 3, 1), 2),
        ((0, 9, 2), 2),
        ((3, 0, -1), 3),
        ((-1, -5, -1), 4),
        ((-1, -5, -2), 2),
        ((4, 9, 1), 0),
        ((-9, -1, 1), 3),
    ],
)
def test_a_slice_of_a_number(cut: tuple[int, int, int], length: int) -> None:
    start, end, step = cut
    limits = f"{ints('b', start)} {ints('e', end)} {ints('a', -1)} {ints('k', step)}"
    assert dims_of(f"{limits} y = Slice (x, b, e, a, k)") == keys("B", "T", length)


@pytest.mark.parametrize(
    ("cut", "length"),
    [
        ("y = Slice (wide, b, t, one_)", "Min(8, T)"),
        ("e = Add (t, n) y = Slice (wide, b, e, one_)", "Min(8, B + T)"),
        ("f = Add (t, n) e = Sub (f, two) y = Slice (wide, b, e, one_)", None),
        ("e = Sub (t, one_) y = Slice (wide, b, e, one_)", None),
        ("y = Slice (wide, t, o, one_)", "Max(0, 8 - T)"),
        ("y = Slice (wide, t, two, one_)", "Max(0, 2 - T)"),
        ("e = Neg (t) y = Slice (wide, b, e, one_)", None),
    ],
)
def test_a_number_is_cut_at_a_size(cut: str, length: str | None) -> None:
    begin = f"{ints('b', 0)} {ints('one_', 1)} {ints('two', 2)} {ints('o', OPEN)}"
    sizes = "n = Shape <end = 1> (x) t = Shape <start = 1, end = 2> (x)"
    assert dims_of(f"{begin} {sizes} {cut}") == keys("B", length)


def test_in_a_usual_run_no_table_ends_before() -> None:
    begin = f"{ints('b', 0)} {ints('one_', 1)} t = Shape <start = 1, end = 2> (x)"
    body = f"{begin} y = Slice (wide, b, t, one_)"
    assert dims_of(body, usual=True) == keys("B", "T")
    assert dims_of(body, usual=False) == keys("B", "Min(8, T)")
    last = f"{begin} {ints('o', OPEN)} n = Neg (t) y = Slice (wide, n, o, one_)"
    assert dims_of(last, usual=True) == keys("B", "T")


def test_a_slice_to_a_size() -> None:
    begin = f"{ints('b', 0)} {ints('one_', 1)} t = Shape <start = 1, end = 2> (x)"
    assert dims_of(f"{begin} y = Slice (x, b, t, one_)") == keys("B", "T", 4)
    assert dims_of(f"{begin} e = Sub (t, one_) y = Slice (x, b, e, one_)") == keys("B", "T - 1", 4)
    assert dims_of(f"{begin} y = Slice (x, one_, t, one_)") == keys("B", "T - 1", 4)


def test_what_is_cut_where_is_not_known() -> None:
    inputs = f"{INPUTS}, int64[1] u"
    assert dims_of(f"{ints('b', 0)} y = Slice (x, b, u, b)", inputs=inputs) == [None, "T", 4]
    assert dims_of(f"{ints('b', 0)} y = Slice (x, u, b, b)", inputs=inputs) == [None, "T", 4]
    assert dims_of(f"{ints('b', 0)} y = Slice (x, b, b, u)", inputs=inputs) == [None] * 3


@pytest.mark.parametrize(
    ("pads", "length"),
    [((1, 2), "T + 3"), ((-1, 0), "T - 1"), ((0, -1), "T - 1"), ((2, -2), "T")],
)
def test_a_pad(pads: tuple[int, int], length: str) -> None:
    body = f"{ints('p', 0, pads[0], 0, 0, pads[1], 0)} y = Pad (x, p)"
    assert dims_of(body) == keys("B", length, 4)


@pytest.mark.parametrize(
    ("body", "dims"),
    [
        ("y = Squeeze (one)", None),
        ("y = Squeeze (w)", [3, 4]),
        (f"{ints('a', 0)} y = Squeeze (one, a)", ["T", 4]),
        (f"{ints('a', -3)} y = Squeeze (one, a)", ["T", 4]),
        (f"{ints('a', 3)} y = Squeeze (one, a)", None),
        (f"{ints('a', -4)} y = Squeeze (one, a)", None),
        ("y = Squeeze (one, u)", None),
    ],
)
def test_a_squeeze(body: str, dims: list[int | str] | None) -> None:
    assert dims_of(body, inputs=f"{INPUTS}, int64[1] u") == (None if dims is None else keys(*dims))


def test_a_squeeze_by_an_attribute() -> None:
    assert dims_of("y = Squeeze <axes = [0]> (one)", opset=11) == keys("T", 4)


@pytest.mark.parametrize(
    ("start", "limit", "step", "length"),
    [(0, 5, 2, 3), (0, 6, 2, 3), (5, 0, -2, 3), (6, 0, -2, 3), (0, -3, 1, 0), (1, 7, 3, 2)],
)
def test_a_range_of_numbers(start: int, limit: int, step: int, length: int) -> None:
    numbers = f"{scalar('a', start)} {scalar('b', limit)} {scalar('c', step)}"
    assert dims_of(f"{numbers} y = Range (a, b, c)") == [length]


@pytest.mark.parametrize(
    ("start", "step", "length"),
    [
        (0, 1, "T"),
        (0, 2, "floor(T/2 + 1/2)"),
        (1, 1, "T - 1"),
        (2, 1, "Max(0, T - 2)"),
        (0, -1, 0),
    ],
)
def test_a_range_to_a_size(start: int, step: int, length: int | str | None) -> None:
    body = f"{SIZE} {scalar('a', start)} {scalar('c', step)} y = Range (a, n, c)"
    assert dims_of(body) == keys(length)
    assert dims_of(f"{scalar('c', 1)} y = Range (c, u, c)", inputs=f"{INPUTS}, int64 u") == [None]


@pytest.mark.parametrize(
    ("body", "positive"),
    [
        (f"{ints('t', 2, -1)} y = Reshape (x, t)", set()),
        (f"{ints('t', 0, -1)} y = Reshape (x, t)", {"B"}),
        (f"{ints('t', -1, 4)} y = Reshape (x, t)", set()),
        (f"{ints('t', 0, 0, -1)} y = Reshape (x, t)", {"B", "T"}),
        ("y = Relu (x)", set()),
    ],
)
def test_sizes_beside_minus_1_are_not_0(body: str, positive: set[str]) -> None:
    model, _ = result_of(body)
    shapes, x = shapes_of(model), model.graph.inputs[0]
    dims = shapes.dims(x)
    assert dims is not None
    assert {str(dim) for dim in dims[:2] if shapes.is_never_empty(dim)} == positive
    assert all(value.name for value in values_of([model.graph]))


@pytest.mark.parametrize(
    ("parts", "place", "dims"),
    [
        (f"{scalar('n', 2)} l = SplitToSequence <axis = -1> (x, n)", 1, ["B", "T", 2]),
        (f"{ints('n', 1, 3)} l = SplitToSequence <axis = 2> (x, n)", 1, ["B", "T", 3]),
        (f"{ints('n', 1, 3)} l = SplitToSequence <axis = 2> (x, n)", -2, ["B", "T", 1]),
        (f"{scalar('n', 1)} l = SplitToSequence <axis = 1> (x, n)", 0, ["B", 1, 4]),
        (f"{scalar('n', 1)} l = SplitToSequence <keepdims = 0> (x, n)", 0, [1, "T", 4]),
        ("l = SplitToSequence <axis = 2> (x)", 3, ["B", "T", 1]),
        ("l = SplitToSequence <axis = 2, keepdims = 0> (x)", 3, ["B", "T"]),
        # The last part may be shorter, and of an unknown size any may be the last.
        (f"{scalar('n', 3)} l = SplitToSequence <axis = 2> (x, n)", 0, ["B", "T", 3]),
        (f"{scalar('n', 3)} l = SplitToSequence <axis = 2> (x, n)", -1, ["B", "T", 1]),
        (f"{scalar('n', 3)} l = SplitToSequence <axis = 2> (x, n)", 2, None),
        (f"{scalar('n', 2)} l = SplitToSequence <axis = 1> (x, n)", 0, None),
        (f"{ints('n', 1, 3)} l = SplitToSequence <axis = 2> (x, n)", 2, None),
        ("l = SequenceConstruct (x, x)", 0, None),
    ],
)
def test_a_part_of_a_sequence(parts: str, place: int, dims: list[int | str | None] | None) -> None:
    body = f"{parts} {scalar('at', place)} y = SequenceAt (l, at)"
    assert dims_of(body) == (None if dims is None else keys(*dims))
