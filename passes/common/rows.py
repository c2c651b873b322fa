"""Operators that keep the first axes of their inputs, in whatever order those lie."""

from collections.abc import Callable
from typing import TypeAlias

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.ops.axes import axis_of, mixed_axes, reduced_axes
from graphfix.ops.products import read_fused_matmul
from graphfix.ops.reshapes import copies_zeros, reshape_target

from .fusible import MICROSOFT

Ranks: TypeAlias = list[int | None]
"""The rank of each input of a node; None if it is absent or unknown."""

# A Dropout in training draws a number for each element, in their order.
_ELEMENTWISE = ops.ELEMENTWISE - ops.named("Dropout")
_ADDS_SKIP = ops.named(
    "com.microsoft.SkipLayerNormalization com.microsoft.SkipSimplifiedLayerNormalization"
)


def row_inputs_of(node: ir.Node, lead: int, view: View) -> tuple[int, ...] | None:
    """Return which inputs of a node have its rows: the first ``lead`` axes, as outputs have.

    If those axes lie in another order in these inputs, the node computes the same in that order.
    Other inputs are the same for each row. One that is known at load time may have fewer axes than
    the output, aligned at the last. None for other nodes, or if ranks are unknown.
    """
    ranks = [None if x is None else view.shapes.rank(x) for x in node.inputs]
    rank = view.shapes.rank(node.outputs[0])
    if rank is None or rank < lead or node.outputs[0] in view.constant_values:
        return None
    if not ranks or ranks[0] is None:
        return None
    indices = _find_row_inputs(node, ranks, lead, view)
    short = [node.inputs[i] for i in indices if (ranks[i] or 0) < lead]
    return indices if indices and all(x in view.constant_values for x in short) else None


def _find_row_inputs(node: ir.Node, ranks: Ranks, lead: int, view: View) -> tuple[int, ...]:
    """Return the inputs of rows by the first rule that knows the operator; () if none does."""
    opset = view.opset_of_node(node)
    for operators, find_inputs in _RULES:
        if node in operators.at(opset):
            return find_inputs(node, ranks, lead, view)
    return ()


def _elementwise_row_inputs(node: ir.Node, ranks: Ranks, lead: int, view: View) -> tuple[int, ...]:
    """Return the inputs of an elementwise node with one of the first axes longer than 1."""
    if node.domain == MICROSOFT and (ranks[0] or 0) <= lead:
        return ()  # a bias of the last axis, which must keep its place
    rank, indices = view.shapes.rank(node.outputs[0]) or 0, []
    data = node.inputs[:1] if node in ops.UNARY else node.inputs
    for i, value in enumerate(data):
        own = ranks[i]
        if value is None:
            continue
        if own is None:
            return ()
        if any(x != 1 for x in (view.shapes.dims(value) or ())[: max(0, lead - (rank - own))]):
            if own < rank and value not in view.constant_values:
                return ()
            indices.append(i)
    return tuple(indices)


def _product_row_inputs(node: ir.Node, ranks: Ranks, lead: int, view: View) -> tuple[int, ...]:
    """Return the data of a product with one matrix for all rows."""
    product = read_fused_matmul(node)
    moves_rows = product.trans_a or product.trans_batch_a or product.trans_batch_b
    return (0,) if ranks[1] == 2 and (ranks[0] or 0) > lead and not moves_rows else ()


def _normalized_row_inputs(node: ir.Node, ranks: Ranks, lead: int, view: View) -> tuple[int, ...]:
    """Return the data of a Softmax or norm that mixes no rows, and what a norm adds to it."""
    axes = mixed_axes(node, ranks[0] or 0, view.opset_of_node(node))
    if axes is None or any(axis < lead for axis in axes):
        return ()
    if node not in _ADDS_SKIP:
        return (0,)
    data, skip = (view.shapes.dims(x) for x in node.inputs[:2])
    return (0, 1) if same_dims(data, skip) else ()  # [1, T, D] is repeated along the first axis


def _joined_row_inputs(node: ir.Node, ranks: Ranks, lead: int, view: View) -> tuple[int, ...]:
    """Return the data of a Concat or Split along an axis behind the rows."""
    axis = axis_of(node, ranks[0] or 0, view.opset_of_node(node))
    if axis is None or axis < lead:
        return ()
    return tuple(range(len(ranks))) if node.op_type == "Concat" else (0,)


def _reduced_row_inputs(node: ir.Node, ranks: Ranks, lead: int, view: View) -> tuple[int, ...]:
    """Return the data of a reduction over axes behind the rows."""
    axes = reduced_axes(node, ranks[0] or 0, view.opset_of_node(node))
    return (0,) if axes is not None and all(axis >= lead for axis in axes) else ()


def _reshaped_row_inputs(node: ir.Node, ranks: Ranks, lead: int, view: View) -> tuple[int, ...]:
    """Return the data of a Reshape whose target copies the sizes of the rows."""
    target = reshape_target(node, ints_of) or ()
    keeps_rows = target[:lead] == (0,) * lead and copies_zeros(node)
    return (0,) if keeps_rows and len(target) > lead else ()


def _gathered_row_inputs(node: ir.Node, ranks: Ranks, lead: int, view: View) -> tuple[int, ...]:
    """Return the indices of a Gather that looks up rows of a constant table."""
    is_table = node.inputs[0] in view.constant_values
    is_lookup = axis_of(node, ranks[0] or 0, view.opset_of_node(node)) == 0
    return (1,) if is_table and is_lookup else ()


_RULES: tuple[tuple[ops.OpSet, Callable[[ir.Node, Ranks, int, View], tuple[int, ...]]], ...] = (
    (_ELEMENTWISE, _elementwise_row_inputs),
    (ops.named("MatMul com.microsoft.FusedMatMul"), _product_row_inputs),
    (ops.NORMALIZES_ALONG_AXES, _normalized_row_inputs),
    (ops.named("Concat Split"), _joined_row_inputs),
    (ops.REDUCES, _reduced_row_inputs),
    (ops.named("Reshape"), _reshaped_row_inputs),
    (ops.named("Gather"), _gathered_row_inputs),
)
