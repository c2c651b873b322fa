"""Index tensors that are sums of counts along axes: ``b * T + t``. Nothing here edits."""

import onnx_ir as ir

from graphfix.facts.shapes import Shapes, all_same, same
from graphfix.facts.symbolic.expressions import Dim
from graphfix.graph.constants import axes_of, const_of, ints_of, scalar_of
from graphfix.graph.nodes import attr_int, is_op, maker_of

_INTEGERS = frozenset({ir.DataType.INT64, ir.DataType.INT32})
# An index is a few nodes away from its Range; this only bounds the walk.
_DEEPEST = 24


Counts = dict[int, Dim]
"""The weight of each axis that counts: ``sum(weight * place)``; axes from the end, -1 the last."""


def affine_of(value: ir.Value | None, shapes: Shapes, depth: int = 0) -> Counts | None:
    """What an integer tensor counts, if it is nothing but a sum of counts along its axes."""
    array, node = const_of(value), maker_of(value)
    if array is not None and not array.any():
        return {}
    if value is None or node is None or depth > _DEEPEST:
        return None
    if is_op(node, "Range"):
        start, step = scalar_of(node.inputs[0]), scalar_of(node.inputs[2])
        return {-1: 1} if (start, step) == (0, 1) else None
    if is_op(node, "Identity", "Expand"):
        return _widened(affine_of(node.inputs[0], shapes, depth + 1), node, shapes)
    integers = is_op(node, "Cast") and shapes.dtype(node.inputs[0]) in _INTEGERS
    if integers or (is_op(node, "Slice") and _keeps_all(node, shapes)):
        return affine_of(node.inputs[0], shapes, depth + 1)
    if is_op(node, "Unsqueeze", "Squeeze", "Reshape"):
        inner = affine_of(node.inputs[0], shapes, depth + 1)
        return None if inner is None else _moved(inner, node, shapes)
    if is_op(node, "Add"):
        parts = [affine_of(x, shapes, depth + 1) for x in node.inputs]
        return _sum(*parts) if len(parts) == 2 else None
    if is_op(node, "Mul"):
        for own, other in (node.inputs, reversed(node.inputs)):
            factor = _number(other, shapes)
            inner = affine_of(own, shapes, depth + 1) if factor is not None else None
            if inner is not None and factor is not None:
                return {axis: w * factor for axis, w in inner.items()}
    return None


def _keeps_all(node: ir.Node, shapes: Shapes) -> bool:
    """Whether a Slice leaves its input as it is: all of it, in its order."""
    steps = ints_of(node.inputs[4]) if len(node.inputs) > 4 else (1,)
    ahead = steps is not None and min(steps, default=1) == 1
    return ahead and all_same(*map(shapes.dims, (node.inputs[0], node.outputs[0])))


def _widened(inner: Counts | None, node: ir.Node, shapes: Shapes) -> Counts | None:
    """What is counted after an Expand: not an axis of 1, which counts nothing and is repeated."""
    before, after = shapes.dims(node.inputs[0]), shapes.dims(node.outputs[0])
    if inner is None or before is None or after is None:
        return None
    return inner if all(same(before[axis], after[axis]) for axis in inner) else None


def _sum(a: Counts | None, b: Counts | None) -> Counts | None:
    return None if a is None or b is None or a.keys() & b.keys() else {**a, **b}


def _number(value: ir.Value | None, shapes: Shapes) -> Dim | None:
    """What a tensor of one element holds, if it is a number or a size."""
    if value is None:
        return None
    array = const_of(value)
    if array is not None:
        return int(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "iu" else None
    data = shapes.data(value)
    return data[0] if data is not None and len(data) == 1 else None


def _moved(inner: Counts, node: ir.Node, shapes: Shapes) -> Counts | None:
    """The same counts where axes of 1 have come or gone."""
    before, after = shapes.dims(node.inputs[0]), shapes.dims(node.outputs[0])
    if before is None or after is None:
        return None
    counting = sorted(axis % len(before) for axis in inner)
    if is_op(node, "Unsqueeze"):
        axes = axes_of(node)
        if axes is None:
            return None
        new = {axis % len(after) for axis in axes}
        rest = [axis for axis in range(len(after)) if axis not in new]
        kept = [rest[axis] for axis in counting]
    elif all(before[axis] == 1 for axis in range(len(before)) if axis not in counting):
        kept = [axis for axis, dim in enumerate(after) if dim != 1]
        fits = (same(before[i], after[j]) for i, j in zip(counting, kept, strict=False))
        if len(kept) != len(counting) or not all(fits):
            return None
    else:
        return None
    return {j - len(after): inner[i - len(before)] for i, j in zip(counting, kept, strict=True)}


def own_places(value: ir.Value | None, shapes: Shapes) -> list[ir.Value] | None:
    """The parts of a Concat along the last axis, each of which is one index."""
    node = maker_of(value)
    rank = shapes.rank(value)
    if not is_op(node, "Concat") or rank is None or attr_int(node, "axis", 0) % rank != rank - 1:
        return None
    found = [x for x in node.inputs if x is not None]
    return found if all((shapes.dims(x) or (0,))[-1] == 1 for x in found) else None
