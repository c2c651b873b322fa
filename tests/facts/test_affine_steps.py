"""Counts along axes, node by node."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts import affine
from graphfix.facts.affine import index_parts, index_strides, is_full_slice
from graphfix.facts.shapes import shapes_of

HEAD = """bs = Shape <start = 0, end = 1> (x)  ts = Shape <start = 1, end = 2> (x)
    bn = Squeeze (bs)  tn = Squeeze (ts)  rb = Range (zero, bn, one)  rt = Range (zero, tn, one)
    col = Unsqueeze (rb, a1)  sx = Shape (x)"""


def build(body: str) -> ir.Model:
    return ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]> m (float[B, T] x, int64[T] fed, int64 n,
            int64[1] late) => (y) <int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}},
            int64[1] a0 = {{0}}, int64[1] a1 = {{1}}, int64[1] am = {{-1}},
            int64[2] pair = {{1, 2}},
            int64[3] zeros = {{0, 0, 0}}, float half = {{0.5}}, int64[1] far = {{99999999999}},
            int64[3] to = {{-1, 1, 1}}, int64[2] flat = {{1, -1}}, int64[2] mixed = {{2, -1}},
            float fzero = {{0}}, float fone = {{1}}, int64[2] grid = {{4, 3}}>
        {{ {HEAD} {body} }}"""
    )


def strides(body: str) -> dict[int, str] | None:
    model = build(body)
    found = index_strides(model.graph.outputs[0], shapes_of(model))
    return None if found is None else {axis: str(x) for axis, x in found.items()}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Identity (rt)", {-1: "1"}),
        ("y = Identity (zeros)", {}),
        ("y = Identity (pair)", None),
        ("y = Identity (fed)", None),
        ("y = Range (one, tn, one)", None),
        ("y = Range (zero, tn, two)", None),
        ("y = Range (zero, n, one)", {-1: "1"}),
        ("y = Range (n, tn, one)", None),
        ("y = Add (rt, rt)", None),
        ("y = Add (col, rt)", {-2: "1", -1: "1"}),
        ("y = Add (rt, zero)", {-1: "1"}),
        ("y = Add (rt, fed)", None),
        ("y = Sum (col, rt, rt)", None),
        ("y = Mul (rt, two)", {-1: "2"}),
        ("y = Mul (two, rt)", {-1: "2"}),
        ("y = Mul (rt, tn)", {-1: "T"}),
        ("y = Mul (rt, n)", None),
        ("y = Mul (rt, pair)", None),
        ("y = Neg (rt)", None),
        ("y = Cast <to = 6> (rt)", {-1: "1"}),
        ("f = Cast <to = 1> (rt) y = Cast <to = 7> (f)", None),
        ("y = Unsqueeze (rt, a0)", {-1: "1"}),
        ("y = Unsqueeze (rt, a1)", {-2: "1"}),
        ("y = Unsqueeze (rt, am)", {-2: "1"}),
        ("y = Unsqueeze (rt, late)", None),
        ("u = Unsqueeze (rt, a1) y = Squeeze (u, a1)", {-1: "1"}),
        ("y = Reshape (rt, to)", {-3: "1"}),
        ("y = Reshape (rt, flat)", {-1: "1"}),
        ("y = Reshape (rt, mixed)", None),
        ("s = Add (col, rt) y = Reshape (s, am)", None),
        ("y = Expand (rt, sx)", {-1: "1"}),
        ("y = Expand (col, sx)", {-2: "1"}),
        ("w = Add (col, zero) u = Mul (w, tn) y = Add (u, rt)", {-2: "T", -1: "1"}),
        ("y = Expand (rt, late)", None),
        ("y = Slice (rt, a0, far, a0)", {-1: "1"}),
        ("y = Slice (rt, a1, far, a0)", None),
        ("y = Slice (rt, am, far, a0, am)", None),
    ],
)
def test_how_an_index_counts(body: str, expected: dict[int, str] | None) -> None:
    assert strides(body) == expected


def test_an_expand_of_what_counts_once_repeats_it() -> None:
    body = "r = Range (zero, one, one) y = Expand (r, grid)"
    assert strides(body) is None


def test_the_walk_ends() -> None:
    model = build("y = Identity (rt)")
    value, shapes = model.graph.outputs[0], shapes_of(model)
    assert index_strides(value, shapes, affine._MAX_DEPTH) is None  # the Range is one further
    assert index_strides(value, shapes, affine._MAX_DEPTH - 1) == {-1: 1}
    assert index_strides(None, shapes) is None


@pytest.mark.parametrize(
    ("body", "full"),
    [
        ("y = Slice (x, a0, far, a1)", True),
        ("y = Slice (x, a0, far, a1, a1)", True),
        ("y = Slice (x, a0, far, a1, late)", False),
        ("y = Slice (x, am, far, a1, am)", False),
        ("y = Slice (x, a1, far, a1)", False),
    ],
)
def test_a_slice_that_takes_all(body: str, full: bool) -> None:
    model = build(body)
    node = model.graph.outputs[0].producer()
    assert node is not None
    assert is_full_slice(node, shapes_of(model)) is full


@pytest.mark.parametrize(
    ("name", "number"),
    [("two", "2"), ("a1", "1"), ("pair", None), ("half", None), ("tn", "T"), ("sx", None),
     ("fed", None), ("ts", "T")],
)  # fmt: skip
def test_a_number_or_a_size(name: str, number: str | None) -> None:
    model = build("y = Identity (x)")
    values = {v.name: v for node in model.graph for v in node.outputs}
    values |= {v.name: v for v in model.graph.inputs} | dict(model.graph.initializers)
    found = affine._number_or_size(values[name], shapes_of(model))
    assert (None if found is None else str(found)) == number
    assert affine._number_or_size(None, shapes_of(model)) is None


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("a = Unsqueeze (rt, a1) y = Concat <axis = 1> (a, a)", 2),
        ("a = Unsqueeze (rt, a1) y = Concat <axis = -1> (a, a)", 2),
        ("a = Unsqueeze (rt, a1) y = Concat <axis = 0> (a, a)", None),
        ("y = Concat <axis = 0> (rt, rt)", None),
        ("y = Unsqueeze (rt, a1)", None),
    ],
)
def test_parts_of_an_index(body: str, count: int | None) -> None:
    model = build(body)
    parts = index_parts(model.graph.outputs[0], shapes_of(model))
    assert (None if parts is None else len(parts)) == count
