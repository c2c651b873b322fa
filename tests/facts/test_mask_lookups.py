"""Lookups that give back their table, and those that only look like it."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.mask_lookups import counting_axis, identity_lookup, overwriting_updates
from graphfix.facts.shapes import shapes_of

COUNTS = """
    bs = Shape <start = 0, end = 1> (x)  ts = Shape <start = 1, end = 2> (x)
    bn = Squeeze (bs)  tn = Squeeze (ts)
    rb = Range (zero, bn, one)  rt = Range (zero, tn, one)  late = Range (one, tn, one)
    col = Unsqueeze (rb, a1)
"""
"""Positions in x, [B, T]: rb counts rows, rt frames, col is rb in a column."""


def build(body: str) -> ir.Model:
    return ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T] x, float[1, T] single, float[B, T, 4] wide, int64[N, 2] any) => (float[Z] y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64[1] a1 = {{1}}, int64[1] am = {{-1}},
         int64[2] ends = {{0, -1}}>
        {{ {COUNTS} {body} }}"""
    )


def last_node(model: ir.Model) -> ir.Node:
    node = model.graph.outputs[0].producer()
    assert node is not None
    return node


FLAT = "f = Reshape (x, am)  first = Mul (col, tn)  i = Add (first, rt)"
# [B, T, 2]: both numbers of each place.
GRID = """
    sx = Shape (x)  cb = Expand (col, sx)  rt0 = Unsqueeze (rt, a0)  ct = Expand (rt0, sx)
    cbu = Unsqueeze (cb, am)  ctu = Unsqueeze (ct, am)
""".replace("a0", "zeros")


def grid(body: str) -> str:
    return f"zeros = Constant <value_ints = [0]> () {GRID} {body}"


@pytest.mark.parametrize(
    ("body", "axes"),
    [
        (f"{FLAT} y = Gather (f, i)", (0, 1)),
        (f"{FLAT} y = Gather <axis = 0> (f, i)", (0, 1)),
        # A Flatten leaves an axis of 1, behind the elements or in front of them.
        ("f = Flatten <axis = 2> (x) first = Mul (col, tn) i = Add (first, rt) y = Gather (f, i)",
         (0, 1)),
        ("f = Flatten <axis = 0> (x) first = Mul (col, tn) i = Add (first, rt) y = Gather (f, i)",
         None),
        (f"{FLAT} g = Flatten <axis = 0> (f) y = Gather <axis = 1> (g, i)", None),
        # Rows as far apart as there are rows, not frames.
        ("f = Reshape (x, am) first = Mul (col, bn) i = Add (first, rt) y = Gather (f, i)", None),
        ("f = Reshape (x, am) first = Mul (col, tn) i = Add (first, late) y = Gather (f, i)", None),
        # Not flattened: the index chooses rows.
        ("y = Gather (x, rb)", None),
        (f"{FLAT.replace('(x', '(wide')} y = Gather (f, i)", None),
        (grid("i = Concat <axis = -1> (cbu, ctu) y = GatherND (x, i)"), (0, 1)),
        (grid("i = Concat <axis = -1> (ctu, cbu) y = GatherND (x, i)"), (1, 0)),
        (grid("i = Concat <axis = -1> (ctu, ctu) y = GatherND (x, i)"), None),
        (grid("i = Concat <axis = -1> (cbu, ctu) y = GatherND (wide, i)"), None),
        (grid("i = Concat <axis = -1> (cbu, ctu) y = GatherND <batch_dims = 1> (x, i)"), None),
        ("y = GatherND (x, any)", None),
        ("y = Relu (x)", None),
    ],
)  # fmt: skip
def test_identity_lookup(body: str, axes: tuple[int, ...] | None) -> None:
    model = build(body)
    lookup = identity_lookup(last_node(model), shapes_of(model))
    if axes is None:
        assert lookup is None
    else:
        assert lookup is not None
        assert lookup.table.name == "x"
        assert lookup.index_axes == axes
        assert list(map(str, lookup.shape)) == ["B", "T"]


def test_an_axis_of_one_has_one_place() -> None:
    """Of [1, T] flattened, nothing counts the first axis: an axis of 1 stands for it."""
    model = build(
        """f = Reshape (single, am) zeros = Constant <value_ints = [0]> ()
        i = Unsqueeze (rt, zeros) y = Gather (f, i)"""
    )
    lookup = identity_lookup(last_node(model), shapes_of(model))
    assert lookup is not None
    assert lookup.index_axes == (0, 1)
    model = build("f = Reshape (single, am) y = Gather (f, rt)")  # no axis is left for it
    assert identity_lookup(last_node(model), shapes_of(model)) is None


@pytest.mark.parametrize(
    ("body", "replaced"),
    [
        ("i = Concat <axis = -1> (cbu, ctu) y = ScatterND (x, i, x)", True),
        ("i = Concat <axis = -1> (cbu, ctu) y = ScatterND <reduction = \"none\"> (x, i, x)", True),
        ("i = Concat <axis = -1> (cbu, ctu) y = ScatterND <reduction = \"add\"> (x, i, x)", False),
        ("i = Concat <axis = -1> (ctu, cbu) y = ScatterND (x, i, x)", False),
        ("y = ScatterND (x, any, x)", False),
        ("i = Concat <axis = -1> (cbu, ctu) y = ScatterND (wide, i, wide)", False),
        ("i = Concat <axis = -1> (cbu, ctu) y = GatherND (x, i)", False),
    ],
)  # fmt: skip
def test_overwriting_updates(body: str, replaced: bool) -> None:
    model = build(grid(body))
    node = last_node(model)
    updates = overwriting_updates(node, shapes_of(model))
    assert updates is (node.inputs[2] if replaced else None)


@pytest.mark.parametrize(
    ("index", "axes"),
    [
        ("i = Concat <axis = -1> (cbu, ctu)", [0, 1, None]),
        ("i = Concat <axis = -1> (ctu, cbu)", [1, 0, None]),
        # One number for each place, alone on the last axis.
        ("i = Unsqueeze (rb, am)", [0, None, None]),
        ("two = Add (rb, rb) i = Unsqueeze (two, am)", [None, None, None]),
        ("i = Identity (any)", [None, None, None]),
    ],
)
def test_counting_axis(index: str, axes: list[int | None]) -> None:
    model = build(grid(f"{index} y = GatherND (x, i)"))
    node, shapes = last_node(model), shapes_of(model)
    assert [counting_axis(node, shapes, axis) for axis in range(3)] == axes
