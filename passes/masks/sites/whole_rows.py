"""Masks that hide all keys of a row or none: slots and heads that compete for each key."""

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_ints, is_op
from graphfix.graph.text import node_label

from .where_masks import NOWHERE, Reach, axis_before_unsqueeze

# Each element of these comes from the elements at the same place, broadcast.
_PLACE_BY_PLACE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Neg", "Cast", "Identity", "Expand", "Where", "Max", "Min", "Clip"}
    | {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not", "And", "Or", "Xor"}
)
# A mask is made in a few nodes; the way back ends there.
_DEPTH = 24


def why_hides_whole_rows(mask: ir.Value | None, reach: Reach, view: View) -> str | None:
    """Return why ``mask`` hides whole rows: it does not vary along the axis of a Softmax; or None.

    Such rows are uniform, or NaN; with a finite floor their scores would count again.
    """
    for softmax, axis in reach.softmaxes:
        if axis is not None and not _varies_along(mask, axis, view, _DEPTH):
            return f"it hides whole rows of Softmax {node_label(softmax)!r}, not keys"
    return None


def _varies_along(value: ir.Value | None, axis: int, view: View, depth: int) -> bool:
    """Return whether the elements along ``axis``, counted from the end, may differ."""
    if value is None or axis == NOWHERE:
        return False
    dims, node = view.shapes.dims(value), value.producer()
    if dims is not None and (len(dims) < -axis or dims[axis] == 1):
        return False
    array = const_of(value)
    if array is not None and array.ndim >= -axis:
        return bool((array != array.take([0], axis)).any()) if array.size else False
    if node is None or dims is None or depth == 0:
        return True
    if is_op(node, *_PLACE_BY_PLACE):
        sources = node.inputs[:1] if is_op(node, "Expand") else node.inputs
        return any(_varies_along(x, axis, view, depth - 1) for x in sources)
    if is_op(node, "Transpose") and (perm := attr_ints(node, "perm")) is not None:
        return _varies_along(node.inputs[0], perm[axis] - len(perm), view, depth - 1)
    before = axis_before_unsqueeze(node, axis, view) if is_op(node, "Unsqueeze") else None
    return before is None or _varies_along(node.inputs[0], before, view, depth - 1)
