"""Gathers and Scatters that read or write each element of a table in its own place."""

from typing import NamedTuple

import onnx_ir as ir

from graphfix.facts.affine import index_parts, index_strides
from graphfix.facts.shapes import Shapes, same_dim, same_dims
from graphfix.facts.symbolic.expressions import Dim
from graphfix.graph.nodes import attr_int, attr_text, is_op, producer_of


class IdentityLookup(NamedTuple):
    """A lookup that gives back its table, or the beginning of it.

    Attributes:
        table: The table.
        index_axes: For each axis of the table, the axis of the index that counts it from 0 on;
            of an axis of 1 that nothing counts, one of 1.
        shape: The shape of the index, which is that of the result.
    """

    table: ir.Value
    index_axes: tuple[int, ...]
    shape: tuple[Dim, ...]


def identity_lookup(node: ir.Node, shapes: Shapes) -> IdentityLookup | None:
    """Return the lookup of a Gather or GatherND that gives back its table, or None."""
    if is_op(node, "Gather"):
        return _flat_gather_lookup(node, shapes)
    return _gather_nd_lookup(node, shapes) if is_op(node, "GatherND") else None


def overwriting_updates(node: ir.Node, shapes: Shapes) -> ir.Value | None:
    """Return the updates of a ScatterND that replace the whole table, or None."""
    if not is_op(node, "ScatterND") or attr_text(node, "reduction", "none") != "none":
        return None
    table = shapes.dims(node.inputs[0])
    if table is None or not same_dims(table, shapes.dims(node.inputs[2])):
        return None
    counted = all(size == 1 or counting_axis(node, shapes, i) == i for i, size in enumerate(table))
    return node.inputs[2] if counted else None


def counting_axis(node: ir.Node, shapes: Shapes, axis: int) -> int | None:
    """Return the axis of the result or the updates that counts an axis of the table, or None.

    The result of a GatherND, or the updates of a ScatterND; it counts from 0 on.
    """
    index = node.inputs[1]
    rank, dims = shapes.rank(index), shapes.dims(index)
    parts = index_parts(index, shapes)
    if parts is None and index is not None and dims and dims[-1] == 1:
        parts = [index]
    if rank is None or parts is None or axis >= len(parts):
        return None
    strides = index_strides(parts[axis], shapes)
    if strides is None or list(strides.values()) != [1]:
        return None
    index_axis = next(iter(strides)) + rank
    return index_axis if 0 <= index_axis < rank - 1 else None


def _flat_gather_lookup(node: ir.Node, shapes: Shapes) -> IdentityLookup | None:
    """Return the lookup of a Gather whose index counts through a flattened table, or None."""
    flat, index = node.inputs[0], node.inputs[1]
    above = producer_of(flat)
    if attr_int(node, "axis", 0) != 0 or not is_op(above, "Reshape", "Flatten"):
        return None
    table, shape = above.inputs[0], shapes.dims(index)
    dims, long = shapes.dims(table), shapes.dims(flat)
    if table is None or not dims or shape is None or long is None:
        return None
    if any(dim != 1 for dim in long[1:]):  # a Flatten leaves an axis of 1
        return None
    strides = index_strides(index, shapes)
    if strides is None:
        return None
    index_axes: list[int | None] = []
    stride: Dim = 1
    for i, dim in reversed(list(enumerate(dims))):
        axes = [
            axis + len(shape)
            for axis, weight in strides.items()
            # Only of the first axis fewer may be counted than there are.
            if same_dim(weight, stride) and (i == 0 or same_dim(shape[axis], dim))
        ]
        index_axes.insert(0, axes[0] if len(axes) == 1 else None)
        stride = dim * stride
    return (
        None
        if len(strides) != len(index_axes) - index_axes.count(None)
        else _complete_lookup(table, index_axes, dims, shape)
    )


def _gather_nd_lookup(node: ir.Node, shapes: Shapes) -> IdentityLookup | None:
    """Return the lookup of a GatherND with an index for each axis of the table, or None."""
    table, dims = node.inputs[0], shapes.dims(node.inputs[0])
    shape, parts = shapes.dims(node.outputs[0]), index_parts(node.inputs[1], shapes)
    if table is None or dims is None or shape is None or parts is None:
        return None
    if attr_int(node, "batch_dims", 0) or len(parts) != len(dims):
        return None
    return _complete_lookup(
        table, [counting_axis(node, shapes, i) for i in range(len(dims))], dims, shape
    )


def _complete_lookup(
    table: ir.Value, at: list[int | None], dims: tuple[Dim, ...], shape: tuple[Dim, ...]
) -> IdentityLookup | None:
    """Complete a lookup: an axis of 1 has one place, whether something counts it or not."""
    index_axes: list[int] = []
    for axis, dim in reversed([*zip(at, dims, strict=True)]):
        if axis is None and dim == 1:
            candidates = range(index_axes[0] if index_axes else len(shape))
            axis = max((x for x in candidates if shape[x] == 1 and x not in at), default=None)
        if axis is None or axis in index_axes:
            return None
        index_axes.insert(0, axis)
    return IdentityLookup(table, tuple(index_axes), shape)
