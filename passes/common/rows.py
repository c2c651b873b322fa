"""Operators that keep the first axes of their inputs, in whatever order those lie."""

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import axes_of, ints_of
from graphfix.graph.nodes import attr_int, input_at, is_op
from graphfix.ops.broadcast import BY_ELEMENT, broadcasts_inputs

from .fusible import MICROSOFT

# With an axis, and the axis that they have without one.
_ALONG = {"LayerNormalization": -1, "Softmax": -1, "LogSoftmax": -1, "Split": 0, "Concat": 0}
_REDUCES = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2")
_FUSED = {
    "SkipLayerNormalization": (0, 1),
    **dict.fromkeys(("BiasGelu", "Gelu", "QuickGelu", "FastGelu"), (0,)),
}
_TURNS = ("transA", "transBatchA", "transBatchB")
_SOFTMAX = 13  # before, it takes all axes from one on together


def row_inputs_of(node: ir.Node, lead: int, view: View) -> tuple[int, ...] | None:
    """Return which inputs of a node have its rows: the first ``lead`` axes, as outputs have.

    If those axes lie in another order in these inputs, the node computes the same in that order.
    Other inputs are the same for each row. One that is known at load time may have fewer axes than
    the output, aligned at the last. None for other nodes, or if ranks are unknown.
    """
    ranks = [None if x is None else view.shapes.rank(x) for x in node.inputs]
    indices = _row_input_indices(node, ranks, lead, view)
    rank = view.shapes.rank(node.outputs[0])
    if not indices or rank is None or rank < lead or node.outputs[0] in view.constant_values:
        return None
    short = [node.inputs[i] for i in indices if (ranks[i] or 0) < lead]
    return indices if all(x in view.constant_values for x in short) else None


def _row_input_indices(
    node: ir.Node, ranks: list[int | None], lead: int, view: View
) -> tuple[int, ...] | None:
    first = ranks[0] if ranks else None
    if first is None:
        return None
    if node.domain == MICROSOFT and node.op_type != "FusedMatMul":
        return _FUSED.get(node.op_type) if first > lead else None
    if is_op(node, "MatMul") or node.domain == MICROSOFT:
        turns = any(attr_int(node, x, 0) for x in _TURNS)
        return (0,) if ranks[1] == 2 and first > lead and not turns else None
    if is_op(node, *BY_ELEMENT) or broadcasts_inputs(node, view.opset_of_node(node)):
        return _broadcast_row_inputs(node, ranks, lead, view)
    if is_op(node, *_ALONG):
        axis = attr_int(node, "axis", _ALONG[node.op_type]) % first
        is_single_axis = "Softmax" not in node.op_type or view.opset_of_node(node) >= _SOFTMAX
        indices = range(len(ranks)) if is_op(node, "Concat") else (0,)
        return tuple(indices) if is_single_axis and axis >= lead else None
    if is_op(node, *_REDUCES):
        axes = axes_of(node)
        return (0,) if axes and all(x % first >= lead for x in axes) else None
    if is_op(node, "Reshape"):
        sizes = ints_of(input_at(node, 1)) or ()
        keeps = sizes[:lead] == (0,) * lead and not attr_int(node, "allowzero", 0)
        return (0,) if keeps and len(sizes) > lead else None
    if is_op(node, "Gather") and attr_int(node, "axis", 0) == 0:
        return (1,) if node.inputs[0] in view.constant_values else None
    return None


def _broadcast_row_inputs(
    node: ir.Node, ranks: list[int | None], lead: int, view: View
) -> tuple[int, ...] | None:
    """Return the inputs with one of the first axes longer than 1, or None."""
    rank, indices = view.shapes.rank(node.outputs[0]), []
    for i, (value, own) in enumerate(zip(node.inputs, ranks, strict=True)):
        if value is None:
            continue
        if own is None or rank is None:
            return None
        if any(x != 1 for x in (view.shapes.dims(value) or ())[: max(0, lead - (rank - own))]):
            if own < rank and value not in view.constant_values:
                return None
            indices.append(i)
    return tuple(indices)
