"""Masks that hide all keys of a row or none: slots and heads that compete for each key."""

from collections.abc import Sequence

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.text import node_label
from graphfix.ops.axes import permutation_of

from ...common.score_reach import NOWHERE, Reach, axis_before_unsqueeze

# A mask is made in a few nodes; the way back ends there.
_MAX_DEPTH = 24


def why_hides_whole_rows(mask: ir.Value | None, reach: Reach, view: View) -> str | None:
    """Return why ``mask`` hides whole rows: it does not vary along the axis of a Softmax; or None.

    Such rows are uniform, or NaN; with a finite floor their scores would count again.
    """
    for softmax, axis in reach.softmaxes:
        if axis is not None and not _varies_along(mask, axis, view, _MAX_DEPTH):
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
    sources = _sources_along(node, axis, view)
    return not sources or any(_varies_along(x, i, view, depth - 1) for x, i in sources)


def _sources_along(node: ir.Node, axis: int, view: View) -> Sequence[tuple[ir.Value | None, int]]:
    """Return inputs, each with an axis: if none varies along it, the output does not along its own.

    Axes are counted from the end. Nothing if there are no such inputs.
    """
    if node in ops.UNARY or is_op(node, "Identity", "Expand"):
        return [(node.inputs[0], axis)]
    if node in ops.ELEMENTWISE:
        return [(x, axis) for x in node.inputs]
    if is_op(node, "Transpose"):
        perm = permutation_of(node, view.shapes.rank(node.outputs[0]) or 0)
        return [(node.inputs[0], perm[axis] - len(perm))] if perm else []
    before = axis_before_unsqueeze(node, axis, view) if is_op(node, "Unsqueeze") else None
    return [] if before is None else [(node.inputs[0], before)]
