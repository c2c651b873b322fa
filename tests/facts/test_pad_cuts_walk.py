"""Rows of a table behind Pads, Slices and Transposes, step by step."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts import pad_cuts
from graphfix.facts.pad_cuts import as_integer, is_never_negative_in, padded_rows_of
from graphfix.facts.symbolic.expressions import expr_of
from graphfix.facts.view import View

T = ir.SymbolicDim("T")


def build(body: str) -> ir.Model:
    zeros = ", ".join(["0"] * 36)
    return ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]> m (float[B, T, 8] x, int64[1] late,
            float[N, 4] fed) => (y) <float[9, 4] table = {{{zeros}}}, int64[1] one = {{1}},
            int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] m1 = {{-1}}, float five = {{5}},
            int64[1] far = {{9223372036854775807}}, int64[4] rows = {{1, 0, 2, 0}},
            int64[4] cols = {{0, 1, 0, 0}}>
        {{ t = Shape <start = 1, end = 2> (x) less = Sub (t, two) {body} }}"""
    )


def rows(body: str, axis: int = 0) -> tuple[str | None, int, tuple[int, ...], int, str] | None:
    model = build(body)
    found = padded_rows_of(model.graph.outputs[0], axis, T, View(model))
    if found is None:
        return None
    return found.table.name, found.count, found.order, found.axis, str(found.shift)


@pytest.mark.parametrize(
    ("body", "axis", "expected"),
    [
        ("y = Pad (table, rows)", 0, ("table", 9, (0, 1), 0, "-1")),
        ("y = Pad (table, rows)", -2, ("table", 9, (0, 1), 0, "-1")),
        ("p = Pad (table, rows) y = Identity (p)", 0, ("table", 9, (0, 1), 0, "-1")),
        ("p = Pad (table, rows) y = Transpose (p)", 1, ("table", 9, (1, 0), 0, "-1")),
        ("p = Transpose (table) y = Pad (p, cols)", 1, ("table", 9, (1, 0), 0, "-1")),
        ("p = Pad (table, rows) y = Slice (p, two, far, zero)", 0, ("table", 9, (0, 1), 0, "1")),
        ("p = Pad (table, rows) y = Slice (p, t, far, zero)", 0, ("table", 9, (0, 1), 0, "T - 1")),
        ("p = Pad (table, rows) y = Slice (p, less, far, zero)", 0, None),  # below 0 at T = 1
        ("p = Pad (table, rows) y = Slice (p, one, far, one)", 0, None),
        ("p = Pad (table, rows) y = Slice (p, late, far, zero)", 0, None),
        ("p = Pad (table, rows, five) y = Identity (p)", 0, None),
        ('p = Pad <mode = "edge"> (table, rows) y = Identity (p)', 0, None),
        ("y = Pad (table, cols)", 0, None),
        ("y = Slice (table, one, far, zero)", 0, None),  # nothing is padded
        ("p = Pad (fed, rows) y = Identity (p)", 0, None),  # of how many rows
        ("p = Pad (table, rows) y = Relu (p)", 0, None),
        ("p = Relu (table) y = Pad (p, rows)", 0, ("p", 9, (0, 1), 0, "-1")),
        ("c = Slice (table, one, far, zero) y = Pad (c, rows)", 0, ("c", 8, (0, 1), 0, "-1")),
        ("c = Pad (table, rows) y = Pad (c, rows)", 0, ("c", 12, (0, 1), 0, "-1")),
    ],
)
def test_rows_of_a_table(
    body: str, axis: int, expected: tuple[str, int, tuple[int, ...], int, str] | None
) -> None:
    assert rows(body, axis) == expected


def test_what_has_no_rows() -> None:
    model = build("y = Pad (table, rows)")
    view = View(model)
    assert padded_rows_of(None, 0, T, view) is None
    assert padded_rows_of(model.graph.initializers["one"], 0, T, view) is None


def test_the_walk_back_is_bounded() -> None:
    for count, known in ((pad_cuts._DEEPEST - 1, True), (pad_cuts._DEEPEST, False)):
        chain = " ".join(f"i{k} = Identity (i{k - 1})" for k in range(1, count))
        body = f"i0 = Pad (table, rows) {chain} y = Identity (i{count - 1})"
        assert (rows(body) is not None) is known


@pytest.mark.parametrize(
    ("expr", "length", "never"),
    [
        ("T", "T", True),
        ("T - 1", "T", True),
        ("T - 2", "T", False),
        ("P", "T", False),
        ("T + P", "T", False),
        ("T - 2", "T + 2", False),
        ("T", "2*T", True),
        ("T - 2", "T - 1", True),
        ("T - 3", "T - 1", False),
        ("floor(T/2)", "floor(T/2)", True),
        ("floor(T/2) - 1", "floor(T/2)", True),
        ("floor(T/2) - 2", "floor(T/2)", False),
    ],
)
def test_what_is_not_below_0_where_a_size_is_not(expr: str, length: str, never: bool) -> None:
    given, size = (ir.SymbolicDim(x) for x in (expr, length))
    assert is_never_negative_in(expr_of(given), size) is never


def test_whole_numbers() -> None:
    assert as_integer(expr_of(ir.SymbolicDim("T - T + 3"))) == 3
    assert as_integer(expr_of(T)) is None


@pytest.mark.parametrize(
    ("start", "first", "before"),
    [
        (0, True, "0"),
        (3, False, "3"),
        (-1, False, "T - 1"),
        (-(1 << 31), True, "0"),
        (1 - (1 << 31), False, "T - 2147483647"),
        (T, False, "T"),
    ],
)
def test_where_a_slice_begins(start: int | ir.SymbolicDim, first: bool, before: str) -> None:
    assert pad_cuts._is_first_element(start) is first
    assert str(pad_cuts._count_before(start, T)) == before
