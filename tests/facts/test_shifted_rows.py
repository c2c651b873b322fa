"""Rows that are shifted lie where they are said to, for several sizes, in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.facts.shifted_rows import linear_coefficients, shifted_rows_of
from graphfix.facts.symbolic.expressions import expr_of
from graphfix.facts.view import View
from tests.passes.models import execute

HEAD = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[H, T, K] any, float[H, T, T] square, int64[1] late) => (float[A, C, D] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] z1 = {0}, int64[1] o1 = {1}, int64[1] two = {2},
     int64[1] m1 = {-1}, int64[1] far = {9223372036854775807}, float five = {5},
     int64[6] front = {0, 0, 1, 0, 0, 0}, int64[6] behind = {0, 0, 0, 0, 0, 1},
     int64[6] above = {0, 1, 0, 0, 0, 0}, int64[6] cut = {0, 0, -1, 0, 0, 0}>"""
# x is [H, T, 2 T - 1] or [H, T, T]; T and 2 T - 1 are sizes.
SIZES = """h = Shape <start = 0, end = 1> (square) t = Shape <start = 1, end = 2> (square)
    tt = Mul (t, two) wide = Sub (tt, o1) more = Add (t, o1)"""
LONG = f"{SIZES} left = Concat <axis = 2> (square, square) x = Slice (left, o1, far, two)"
# Transformer-XL: a column in front, rows as long as there are columns and one, the first cut off.
SKEW = """p = Pad (x, front) widest = Shape <start = 2, end = 3> (p)
    s1 = Concat <axis = 0> (h, widest, t) r = Reshape (p, s1) c = Slice (r, o1, far, o1)
    l = Shape <start = 2, end = 3> (x) s2 = Concat <axis = 0> (h, t, l) b = Reshape (c, s2)"""


def shifted(body: str) -> tuple[ir.Model, object]:
    m = ir.from_onnx_text(f"{HEAD} {{ {body} }}")
    return m, shifted_rows_of(m.graph.outputs[0], View(m))


def check_against_run(body: str, direction: int, *, outside: bool) -> None:
    """Compare each element of ``y`` with the one of its source that is said to be there."""
    m = ir.from_onnx_text(f"{HEAD} {{ {body} }}")
    rows = shifted_rows_of(m.graph.outputs[0], View(m))
    assert rows is not None
    assert (rows.direction, rows.reads_outside) == (direction, outside)
    m.graph.outputs.append(rows.source)
    for t in (1, 2, 5):
        square = np.arange(1, 2 * t * t + 1, dtype=np.float32).reshape(2, t, t)
        late = np.zeros(1, np.int64)
        feeds = {"any": np.zeros((2, t, 3), np.float32), "square": square, "late": late}
        y, source = execute(m, feeds)
        shift = int(rows.shift.subs(dict.fromkeys(rows.shift.free_symbols, t)))
        for i in range(t):
            for j in range(y.shape[2]):
                k = direction * i + j + shift
                inside = 0 <= k < source.shape[2]
                assert inside or outside
                np.testing.assert_array_equal(y[:, i, j], source[:, i, k] if inside else 0)


@pytest.mark.parametrize(
    ("body", "direction", "outside"),
    [
        (f"{LONG} {SKEW} y = Slice (b, z1, t, two)", -1, False),
        # Rows as long as there are columns and one: each goes one further to the left.
        (
            f"{SIZES} x = Concat <axis = 2> (square, square) s1 = Concat <axis = 0> (h, m1) "
            "r = Reshape (x, s1) room = Concat <axis = 0> (z1, z1, z1, t) p = Pad (r, room) "
            "w = Add (tt, o1) s2 = Concat <axis = 0> (h, t, w) b = Reshape (p, s2) "
            "y = Slice (b, z1, t, two)",
            1,
            False,
        ),
        # A row above, which is cut off again with what is in front of the first distance.
        (
            f"{SIZES} x = Concat <axis = 2> (square, square) p = Pad (x, above) "
            "s1 = Concat <axis = 0> (h, m1) r = Reshape (p, s1) start = Add (tt, t) "
            "c = Slice (r, start, far, o1) s2 = Concat <axis = 0> (h, t, wide) "
            "b = Reshape (c, s2) y = Slice (b, z1, t, two)",
            -1,
            False,
        ),
        # Back to the distances: [T, T] to [T, 2 T], 0 where none is.
        (
            f"{SIZES} cols = Concat <axis = 0> (z1, z1, z1, z1, z1, t) x = Pad (square, cols) "
            "s1 = Concat <axis = 0> (h, m1) r = Reshape (x, s1) "
            "room = Concat <axis = 0> (z1, t, z1, z1) p = Pad (r, room) w = Add (tt, o1) "
            "s2 = Concat <axis = 0> (h, t, w) b = Reshape (p, s2) y = Slice (b, o1, far, two)",
            1,
            True,
        ),
    ],
)
def test_rows_that_only_move(body: str, direction: int, outside: bool) -> None:
    check_against_run(body, direction, outside=outside)


@pytest.mark.parametrize(
    "body",
    [
        # Nothing moves.
        "y = Identity (square)",
        "y = Pad (square, front)",
        # Rows of another length than one more or less: elements of several rows get mixed.
        f"{SIZES} s1 = Concat <axis = 0> (h, wide, t) p = Pad (square, front) "
        "f = Concat <axis = 0> (h, more, t) y = Reshape (p, f)",
        # What comes in is not 0, or a number that is not known.
        f"{LONG} {SKEW.replace('(x, front)', '(x, front, five)')} y = Slice (b, z1, t, two)"
        .replace("c = Slice (r, o1, far, o1)", "c = Slice (r, z1, wide, o1)"),
        # Of an unknown number of columns.
        "y = Relu (any)",
        # Where a cut begins is not known, or is another head.
        "y = Slice (square, late, far, two)",
        "y = Slice (square, o1, far, z1)",
        # The first axes change.
        "y = Transpose <perm = [1, 0, 2]> (square)",
    ],
)  # fmt: skip
def test_rows_that_do_something_else(body: str) -> None:
    _, rows = shifted(body)
    assert rows is None


def test_a_matrix_has_rows_as_well() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> m (float[T, T] square) => (float[A, C] y)
        <int64[1] o1 = {1}, int64[1] m1 = {-1}, int64[1] far = {9223372036854775807},
         int64[1] z1 = {0}, int64[1] two = {2}>
        { t = Shape <start = 1, end = 2> (square) tt = Mul (t, two) wide = Sub (tt, o1)
          x = Concat <axis = 1> (square, square) r = Reshape (x, m1) c = Slice (r, t, far, z1)
          s = Concat <axis = 0> (t, wide) b = Reshape (c, s) y = Slice (b, z1, t, o1) }"""
    m = ir.from_onnx_text(text)
    rows = shifted_rows_of(m.graph.outputs[0], View(m))
    assert rows is not None
    assert (rows.source.name, rows.direction, str(rows.shift)) == ("x", -1, "T")
    vector = m.graph.outputs[0].producer().inputs[0].producer().inputs[0]
    assert shifted_rows_of(vector, View(m)) is None


def test_a_fixed_number_of_rows_is_not_followed() -> None:
    m = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3, 4] x) => (y) { y = Relu (x) }'
    )
    assert shifted_rows_of(m.graph.outputs[0], View(m)) is None
    assert shifted_rows_of(None, View(m)) is None


@pytest.mark.parametrize(
    ("expr", "rows", "expected"),
    [
        ("2*T - 1", "T", (2, -1)),
        ("T", "T", (1, 0)),
        ("5", "T", (0, 5)),
        ("2*T + 3", "T + 1", (2, 1)),
        ("floor(T/2)", "T", None),
        ("T**2", "T", None),
        ("T", "2*T", None),
        ("T", "7", None),
    ],
)
def test_linear_coefficients(expr: str, rows: str, expected: tuple[int, int] | None) -> None:
    dim = int(rows) if rows.isdigit() else ir.SymbolicDim(rows)
    value = expr_of(int(expr) if expr.isdigit() else ir.SymbolicDim(expr))
    assert linear_coefficients(value, dim) == expected
