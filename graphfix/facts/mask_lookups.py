"""Tables of which every element is looked up, or written, in its own place: ``mask[b, t]``."""

from typing import NamedTuple

import onnx_ir as ir

from graphfix.facts.affine import affine_of, own_places
from graphfix.facts.shapes import Shapes, all_same, same
from graphfix.facts.symbolic.expressions import Dim
from graphfix.graph.nodes import attr_int, attr_text, is_op, maker_of


class Lookup(NamedTuple):
    """A lookup that gives back its table, or the beginning of it.

    Attributes:
        table: The table.
        at: For each axis of the table, the axis of the index that counts it from 0 on; of an axis
            of 1 that nothing counts, one of 1.
        shape: The shape of the index, which is that of the result.
    """

    table: ir.Value
    at: tuple[int, ...]
    shape: tuple[Dim, ...]


def looked_up(node: ir.Node, shapes: Shapes) -> Lookup | None:
    """What a Gather or a GatherND looks up in its own place, if that is what it does."""
    if is_op(node, "Gather"):
        return _gathered(node, shapes)
    return _by_axes(node, shapes) if is_op(node, "GatherND") else None


def written(node: ir.Node, shapes: Shapes) -> ir.Value | None:
    """What a ScatterND puts in place of all that there was, if that is what it does."""
    if not is_op(node, "ScatterND") or attr_text(node, "reduction", "none") != "none":
        return None
    table = shapes.dims(node.inputs[0])
    if table is None or not all_same(table, shapes.dims(node.inputs[2])):
        return None
    counted = all(size == 1 or own_rows(node, shapes, i) == i for i, size in enumerate(table))
    return node.inputs[2] if counted else None


def own_rows(node: ir.Node, shapes: Shapes, axis: int) -> int | None:
    """The axis of a GatherND's result, or of what a ScatterND writes, that counts one of the table.

    It counts it from 0 on.
    """
    index = node.inputs[1]
    rank, dims = shapes.rank(index), shapes.dims(index)
    parts = own_places(index, shapes)
    if parts is None and index is not None and dims and dims[-1] == 1:
        parts = [index]
    if rank is None or parts is None or axis >= len(parts):
        return None
    counts = affine_of(parts[axis], shapes)
    if counts is None or list(counts.values()) != [1]:
        return None
    place = next(iter(counts)) + rank
    return place if 0 <= place < rank - 1 else None


def _gathered(node: ir.Node, shapes: Shapes) -> Lookup | None:
    """The table is flattened, and the index counts through it."""
    flat, index = node.inputs[0], node.inputs[1]
    above = maker_of(flat)
    if attr_int(node, "axis", 0) != 0 or not is_op(above, "Reshape", "Flatten"):
        return None
    table, shape = above.inputs[0], shapes.dims(index)
    dims, long = shapes.dims(table), shapes.dims(flat)
    if table is None or not dims or shape is None or long is None:
        return None
    if any(dim != 1 for dim in long[1:]):  # a Flatten leaves an axis of 1
        return None
    counts = affine_of(index, shapes)
    if counts is None:
        return None
    at: list[int | None] = []
    stride: Dim = 1
    for i, dim in reversed(list(enumerate(dims))):
        axes = [
            axis + len(shape)
            for axis, weight in counts.items()
            # Only of the first axis fewer may be counted than there are.
            if same(weight, stride) and (i == 0 or same(shape[axis], dim))
        ]
        at.insert(0, axes[0] if len(axes) == 1 else None)
        stride = dim * stride
    return None if len(counts) != len(at) - at.count(None) else _placed(table, at, dims, shape)


def _by_axes(node: ir.Node, shapes: Shapes) -> Lookup | None:
    """A GatherND with an index for each axis of the table."""
    table, dims = node.inputs[0], shapes.dims(node.inputs[0])
    shape, parts = shapes.dims(node.outputs[0]), own_places(node.inputs[1], shapes)
    if table is None or dims is None or shape is None or parts is None:
        return None
    if attr_int(node, "batch_dims", 0) or len(parts) != len(dims):
        return None
    return _placed(table, [own_rows(node, shapes, i) for i in range(len(dims))], dims, shape)


def _placed(
    table: ir.Value, at: list[int | None], dims: tuple[Dim, ...], shape: tuple[Dim, ...]
) -> Lookup | None:
    """A lookup by counts; an axis of 1 has one place, whether something counts it or not."""
    known: list[int] = []
    for axis, dim in reversed([*zip(at, dims, strict=True)]):
        if axis is None and dim == 1:
            before = range(known[0] if known else len(shape))
            axis = max((x for x in before if shape[x] == 1 and x not in at), default=None)
        if axis is None or axis in known:
            return None
        known.insert(0, axis)
    return Lookup(table, tuple(known), shape)
