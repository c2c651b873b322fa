"""Index tensors that only count along axes."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.affine import index_parts, index_strides
from graphfix.facts.shapes import infer, shapes_of
from graphfix.facts.symbolic.expressions import dim_key

COUNTS = """b = Shape <start = 0, end = 1> (x) t = Shape <start = 1, end = 2> (x)
    bs = Squeeze (b, zero) ts = Squeeze (t, zero) rows = Range (nil, bs, unit)
    cols = Range (nil, ts, unit) row = Unsqueeze (rows, one) col = Unsqueeze (cols, zero)"""
CONSTANTS = """int64 nil = {0}, int64 unit = {1}, int64 two = {2}, int64[1] zero = {0},
    int64[1] one = {1}, int64[1] m1 = {-1}, int64[2] pair = {0, 1}, int64[2] nils = {0, 0},
    int64[3] column = {0, 1, 1}, int64[1] end = {9223372036854775807}, float half = {0.5},
    float f0 = {0}, float f1 = {1}"""


def value_of(body: str) -> tuple[ir.Model, ir.Value]:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 4] x, int64 free) => (int64[unknown_] y) <{CONSTANTS}>
        {{ {COUNTS} {body} }}"""
    )
    model.graph.outputs[0].shape = None
    return model, model.graph.outputs[0]


def strides(body: str) -> dict[int, int | str | None] | None:
    model, y = value_of(body)
    found = index_strides(y, infer(model, usual=True))
    return None if found is None else {axis: dim_key(x) for axis, x in found.items()}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Identity (rows)", {-1: 1}),
        ("y = Range (nil, ts, unit)", {-1: 1}),
        ("y = Range (nil, ts, two)", None),
        # torch's dynamo exporter, before it optimizes, casts the numbers 0.0 and 1.0.
        ("a = CastLike (f0, ts) c = CastLike (f1, ts) y = Range (a, ts, c)", {-1: 1}),
        ("a = CastLike (f1, ts) c = CastLike (f1, ts) y = Range (a, ts, c)", None),
        ("y = Range (unit, ts, unit)", None),
        ("y = Range (nil, ts, free)", None),
        ("y = Identity (nils)", {}),
        ("y = Identity (pair)", None),
        ("y = Unsqueeze (rows, one)", {-2: 1}),
        ("y = Unsqueeze (rows, zero)", {-1: 1}),
        ("y = Unsqueeze (rows, m1)", {-2: 1}),
        ("y = Unsqueeze (rows, pair)", {-1: 1}),
        ("y = Squeeze (row, one)", {-1: 1}),
        ("y = Squeeze (col, zero)", {-1: 1}),
        ("y = Reshape (row, m1)", {-1: 1}),
        ("y = Reshape (col, column)", None),
        ("y = Add (row, col)", {-2: 1, -1: 1}),
        ("y = Add (rows, rows)", None),
        ("y = Add (rows, nil)", {-1: 1}),
        ("y = Add (rows, unit)", None),
        ("y = Mul (rows, two)", {-1: 2}),
        ("y = Mul (two, rows)", {-1: 2}),
        ("y = Mul (rows, ts)", {-1: "T"}),
        ("y = Mul (t, rows)", {-1: "T"}),
        ("y = Mul (rows, free)", None),
        ("y = Mul (rows, rows)", None),
        ("s = Mul (row, ts) y = Add (s, col)", {-2: "T", -1: 1}),
        ("y = Cast <to = 6> (rows)", {-1: 1}),
        ("f = Cast <to = 1> (rows) y = Cast <to = 7> (f)", None),
        ("y = Slice (rows, zero, end, zero)", {-1: 1}),
        ("y = Slice (rows, zero, end, zero, one)", {-1: 1}),
        ("y = Slice (rows, one, end, zero)", None),
        ("low = Constant <value_ints = [-9223372036854775807]> () "
         "y = Slice (rows, m1, low, zero, m1)", None),
        ("q = Concat <axis = 0> (b, t) y = Expand (row, q)", {-2: 1}),
        ("q = Concat <axis = 0> (b, t) y = Expand (col, q)", {-1: 1}),
        ("q = Concat <axis = 0> (b, one) z = Expand (row, q) y = Identity (z)", {-2: 1}),
        ("y = Neg (rows)", None),
        ("y = Sub (rows, nil)", None),
        ("y = Identity (free)", None),
    ],
)  # fmt: skip
def test_weights_of_axes(body: str, expected: dict[int, int | str] | None) -> None:
    assert strides(body) == expected


def test_an_axis_that_is_repeated_does_not_count() -> None:
    body = "o = Range (nil, unit, unit) y = Expand (o, t)"
    assert strides(body) is None


def test_a_row_has_its_axis_whatever_else_is_1() -> None:
    target = "q = Constant <value_ints = [1, -1, 1]> ()"
    assert strides(f"{target} y = Reshape (rows, q)") == {-2: 1}
    assert strides(f"{target} a = Add (row, col) y = Reshape (a, m1)") is None
    assert strides("f = Constant <value_ints = [1]> () y = Identity (f)") is None


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("e = Unsqueeze (rows, one) y = Concat <axis = -1> (e, e)", 2),
        ("e = Unsqueeze (rows, one) y = Concat <axis = 1> (e, e, e)", 3),
        ("e = Unsqueeze (rows, one) y = Concat <axis = 0> (e, e)", None),
        ("e = Unsqueeze (rows, zero) y = Concat <axis = -1> (e, e)", None),
        ("e = Unsqueeze (rows, one) d = Concat <axis = 1> (e, e) "
         "y = Concat <axis = 1> (e, d)", None),
        ("y = Identity (rows)", None),
    ],
)  # fmt: skip
def test_parts_of_an_index(body: str, count: int | None) -> None:
    model, y = value_of(body)
    parts = index_parts(y, shapes_of(model))
    assert (None if parts is None else len(parts)) == count
