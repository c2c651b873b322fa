"""Index tensors that are sums of counts along axes: ``b * T + t``. Nothing here edits."""

import onnx_ir as ir

from graphfix.facts.shapes import Shapes, same_dim, same_dims
from graphfix.facts.symbolic.expressions import Dim
from graphfix.graph.constants import const_of, scalar_of
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.ops import named
from graphfix.ops.axes import squeezed_axes
from graphfix.ops.operands import is_given, read_ints

_INTEGERS = frozenset({ir.DataType.INT64, ir.DataType.INT32})
# An index is a few nodes away from its Range; this only bounds the walk.
_MAX_DEPTH = 24
_KEEPS_STRIDES = named("Cast Expand Identity Reshape Slice Squeeze Unsqueeze")


Strides = dict[int, Dim]
"""The weight of each axis that counts: ``sum(weight * place)``; axes from the end, -1 the last."""


def index_strides(value: ir.Value | None, shapes: Shapes, depth: int = 0) -> Strides | None:
    """Return the weight of each axis along which an integer tensor only counts, or None."""
    array, node = const_of(value), producer_of(value)
    if array is not None and not array.any():
        return {}
    if node is None or depth > _MAX_DEPTH:
        return None
    if is_op(node, "Range"):
        start, step = (_range_operand(node, i, shapes) for i in (0, 2))
        return {-1: 1} if (start, step) == (0, 1) else None
    if is_op(node, "Add"):
        parts = [index_strides(x, shapes, depth + 1) for x in node.inputs]
        return _add_strides(*parts) if len(parts) == 2 else None
    if is_op(node, "Mul"):
        return _strides_of_product(node, shapes, depth)
    if node not in _KEEPS_STRIDES:
        return None
    inner = index_strides(node.inputs[0], shapes, depth + 1)
    return None if inner is None else _strides_after(inner, node, shapes)


def _strides_after(inner: Strides, node: ir.Node, shapes: Shapes) -> Strides | None:
    """Return the strides of what one of ``_KEEPS_STRIDES`` makes of an index; None if it mixes."""
    if is_op(node, "Expand"):
        return _strides_after_expand(inner, node, shapes)
    if is_op(node, "Unsqueeze"):
        return _strides_after_unsqueeze(inner, node, shapes)
    if is_op(node, "Squeeze", "Reshape"):
        return _strides_after_reshape(inner, node, shapes)
    if is_op(node, "Cast"):
        return inner if shapes.dtype(node.inputs[0]) in _INTEGERS else None
    return inner if is_op(node, "Identity") or is_full_slice(node, shapes) else None


def _range_operand(node: ir.Node, index: int, shapes: Shapes) -> Dim | float | None:
    """Return where a Range begins or its step: a constant, or what a CastLike makes of one."""
    value = node.inputs[index]
    number = None if value is None else scalar_of(value)
    return _number_or_size(value, shapes) if number is None else number


def _strides_of_product(node: ir.Node, shapes: Shapes, depth: int) -> Strides | None:
    """Return the strides of an index times a number or a size."""
    for operand, multiplier in (node.inputs, reversed(node.inputs)):
        factor = _number_or_size(multiplier, shapes)
        inner = index_strides(operand, shapes, depth + 1) if factor is not None else None
        if inner is not None and factor is not None:
            return {axis: weight * factor for axis, weight in inner.items()}
    return None


def is_full_slice(node: ir.Node, shapes: Shapes) -> bool:
    """Return whether a Slice leaves its input as it is: all of it, in its order."""
    steps = read_ints(node, 4, "steps") if is_given(node, 4, "steps") else ()
    goes_ahead = steps is not None and all(step == 1 for step in steps)
    return goes_ahead and same_dims(*map(shapes.dims, (node.inputs[0], node.outputs[0])))


def _strides_after_expand(inner: Strides, node: ir.Node, shapes: Shapes) -> Strides | None:
    """Return the strides after an Expand, or None if it repeats an axis that counts."""
    before, after = shapes.dims(node.inputs[0]), shapes.dims(node.outputs[0])
    if before is None or after is None:
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


def _strides_after_unsqueeze(inner: Strides, node: ir.Node, shapes: Shapes) -> Strides | None:
    """Return the strides where axes of 1 have come in."""
    rank = shapes.rank(node.outputs[0])
    new_axes = None if rank is None else squeezed_axes(node, rank)
    if rank is None or new_axes is None:
        return None
    old_axes = [axis for axis in range(rank) if axis not in new_axes]
    return {old_axes[axis] - rank: weight for axis, weight in inner.items()}


def _strides_after_reshape(inner: Strides, node: ir.Node, shapes: Shapes) -> Strides | None:
    """Return the strides where axes of 1 have come or gone, and the others have not changed."""
    before, after = shapes.dims(node.inputs[0]), shapes.dims(node.outputs[0])
    if before is None or after is None:
        return None
    in_axes = sorted(axis % len(before) for axis in inner)
    out_axes = [axis for axis, dim in enumerate(after) if dim != 1]
    in_dims, out_dims = [before[axis] for axis in in_axes], [after[axis] for axis in out_axes]
    if any(dim != 1 for axis, dim in enumerate(before) if axis not in in_axes):
        return None
    if not same_dims(in_dims, out_dims):
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
