"""Index tensors that are sums of counts along axes: ``b * T + t``. Nothing here edits."""

import onnx_ir as ir

from graphfix.facts.shapes import Shapes, same_dim, same_dims
from graphfix.facts.symbolic.expressions import Dim
from graphfix.graph.constants import axes_of, const_of, ints_of, scalar_of
from graphfix.graph.nodes import attr_int, is_op, producer_of

_INTEGERS = frozenset({ir.DataType.INT64, ir.DataType.INT32})
# An index is a few nodes away from its Range; this only bounds the walk.
_MAX_DEPTH = 24


Strides = dict[int, Dim]
"""The weight of each axis that counts: ``sum(weight * place)``; axes from the end, -1 the last."""


def index_strides(value: ir.Value | None, shapes: Shapes, depth: int = 0) -> Strides | None:
    """Return the weight of each axis along which an integer tensor only counts, or None."""
    array, node = const_of(value), producer_of(value)
    if array is not None and not array.any():
        return {}
    if value is None or node is None or depth > _MAX_DEPTH:
        return None
    if is_op(node, "Range"):
        start, step = scalar_of(node.inputs[0]), scalar_of(node.inputs[2])
        return {-1: 1} if (start, step) == (0, 1) else None
    if is_op(node, "Identity", "Expand"):
        return _strides_after_expand(index_strides(node.inputs[0], shapes, depth + 1), node, shapes)
    integers = is_op(node, "Cast") and shapes.dtype(node.inputs[0]) in _INTEGERS
    if integers or (is_op(node, "Slice") and _is_full_slice(node, shapes)):
        return index_strides(node.inputs[0], shapes, depth + 1)
    if is_op(node, "Unsqueeze", "Squeeze", "Reshape"):
        inner = index_strides(node.inputs[0], shapes, depth + 1)
        return None if inner is None else _strides_after_reshape(inner, node, shapes)
    if is_op(node, "Add"):
        parts = [index_strides(x, shapes, depth + 1) for x in node.inputs]
        return _add_strides(*parts) if len(parts) == 2 else None
    if is_op(node, "Mul"):
        for operand, multiplier in (node.inputs, reversed(node.inputs)):
            factor = _number_or_size(multiplier, shapes)
            inner = index_strides(operand, shapes, depth + 1) if factor is not None else None
            if inner is not None and factor is not None:
                return {axis: w * factor for axis, w in inner.items()}
    return None


def _is_full_slice(node: ir.Node, shapes: Shapes) -> bool:
    """Return whether a Slice leaves its input as it is: all of it, in its order."""
    steps = ints_of(node.inputs[4]) if len(node.inputs) > 4 else (1,)
    ahead = steps is not None and min(steps, default=1) == 1
    return ahead and same_dims(*map(shapes.dims, (node.inputs[0], node.outputs[0])))


def _strides_after_expand(inner: Strides | None, node: ir.Node, shapes: Shapes) -> Strides | None:
    """Return the strides after an Expand, or None if it repeats an axis that counts."""
    before, after = shapes.dims(node.inputs[0]), shapes.dims(node.outputs[0])
    if inner is None or before is None or after is None:
        return None
    return inner if all(same_dim(before[axis], after[axis]) for axis in inner) else None


def _add_strides(a: Strides | None, b: Strides | None) -> Strides | None:
    return None if a is None or b is None or a.keys() & b.keys() else {**a, **b}


def _number_or_size(value: ir.Value | None, shapes: Shapes) -> Dim | None:
    """Return the number or size that a tensor of one element holds, or None."""
    if value is None:
        return None
    array = const_of(value)
    if array is not None:
        return int(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "iu" else None
    data = shapes.known_elements(value)
    return data[0] if data is not None and len(data) == 1 else None


def _strides_after_reshape(inner: Strides, node: ir.Node, shapes: Shapes) -> Strides | None:
    """Return the strides where axes of 1 have come or gone."""
    before, after = shapes.dims(node.inputs[0]), shapes.dims(node.outputs[0])
    if before is None or after is None:
        return None
    in_axes = sorted(axis % len(before) for axis in inner)
    if is_op(node, "Unsqueeze"):
        axes = axes_of(node)
        if axes is None:
            return None
        new = {axis % len(after) for axis in axes}
        old_axes = [axis for axis in range(len(after)) if axis not in new]
        out_axes = [old_axes[axis] for axis in in_axes]
    elif all(before[axis] == 1 for axis in range(len(before)) if axis not in in_axes):
        out_axes = [axis for axis, dim in enumerate(after) if dim != 1]
        fits = (same_dim(before[i], after[j]) for i, j in zip(in_axes, out_axes, strict=False))
        if len(out_axes) != len(in_axes) or not all(fits):
            return None
    else:
        return None
    return {j - len(after): inner[i - len(before)] for i, j in zip(in_axes, out_axes, strict=True)}


def index_parts(value: ir.Value | None, shapes: Shapes) -> list[ir.Value] | None:
    """Return the parts of a Concat along the last axis, each of which is one index."""
    node = producer_of(value)
    rank = shapes.rank(value)
    if not is_op(node, "Concat") or rank is None or attr_int(node, "axis", 0) % rank != rank - 1:
        return None
    parts = [x for x in node.inputs if x is not None]
    return parts if all((shapes.dims(x) or (0,))[-1] == 1 for x in parts) else None
