"""Constants beyond the range of float16, or too small for it."""

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.files.half_weights import (
    HALF_MAX,
    HALF_NORMAL,
    Float16Fit,
    array_to_float16,
    float16_fit,
)
from graphfix.graph.nodes import is_op, producer_of
from graphfix.ops.attention import attention_slots

from ...common.score_reach import Reach, reach_of
from .constants import constants_of
from .kept_nodes import KeptNodes

# Twice this, with a score beside it, is still a number in float16; exp of it is 0.
FLOOR = 30_000.0
_MAX_MASK_SIZE = 1 << 22
# Infinity bounds what is in float16 as well as a larger number does.
_BOUNDS = ops.COMPARISONS | ops.named("Clip Max Min")
# They make scores.
_MAKES_SCORES = ops.PRODUCTS | ops.named("Mul Div Add Where")


def keep_unfit_constants(kept_nodes: KeptNodes) -> None:
    """Keep readers of constants beyond float16 in float32; give masks a floor instead."""
    for value, tensor in constants_of(kept_nodes.view.model.graph):
        if (
            not kept_nodes.types.is_float(value)
            or not value.uses()
            or kept_nodes.has_only_kept_readers(value)
        ):
            continue
        extent = float16_fit(tensor)
        if extent.overflowing or (extent.largest > FLOOR and extent.size <= _MAX_MASK_SIZE):
            _keep_readers_of_large(kept_nodes, value, extent)
        elif _is_lost(extent):
            _keep_readers_of_small(kept_nodes, value, extent)
        if extent.underflowing and not kept_nodes.has_only_kept_readers(value):
            elements = f"{extent.underflowing:,} of {extent.size:,} elements of {value.name!r}"
            kept_nodes.unfit.append((value, f"{elements} are too small for float16 and become 0"))


def find_hiding_inputs(kept_nodes: KeptNodes) -> None:
    """Find the inputs that are added to scores: callers feed -3.4e38, or -inf, to hide keys."""
    for value in kept_nodes.view.model.graph.inputs:
        if (
            kept_nodes.types.is_float(value)
            and not value.is_initializer()
            and _is_added_to_scores(kept_nodes, value)
        ):
            kept_nodes.floors.add(value)


def _is_added_to_scores(kept_nodes: KeptNodes, value: ir.Value) -> bool:
    """Return whether ``value``, under another shape or in part, is added to scores."""
    for node, index in value.uses():
        if node in ops.MOVES_FIRST_INPUT and index == 0:
            if any(_is_added_to_scores(kept_nodes, output) for output in node.outputs):
                return True
        elif is_op(node, "Add"):
            other = producer_of(node.inputs[1 - index], *ops.MOVES_FIRST_INPUT)
            if _MAKES_SCORES.has(other) and _reaches_softmax(kept_nodes, node.outputs[0]):
                return True
        elif (slots := attention_slots(node)) is not None and slots.addend == index:
            return True
    return False


def _reaches_softmax(kept_nodes: KeptNodes, value: ir.Value) -> bool:
    reach = reach_of(value, kept_nodes.view, to_bool=True)
    return bool(reach.softmaxes or reach.attentions)


def _keep_readers_of_large(kept_nodes: KeptNodes, value: ir.Value, extent: Float16Fit) -> None:
    reach = (
        reach_of(value, kept_nodes.view, to_bool=True) if extent.size <= _MAX_MASK_SIZE else Reach()
    )
    if reach.softmaxes or reach.attentions:
        kept_nodes.masks[value] = FLOOR / min(reach.scale, 1.0)
        return
    if not extent.overflowing:
        return
    reason = f"{value.name!r} reaches {extent.largest:.3g}, float16 {HALF_MAX:g}"
    for node, _ in value.uses():
        if node not in _BOUNDS:
            kept_nodes.keep_node(node, reason)


def _keep_readers_of_small(kept_nodes: KeptNodes, value: ir.Value, extent: Float16Fit) -> None:
    reason = f"{value.name!r} is {extent.largest:.3g} at most, too little for float16"
    for use in value.uses():
        if extent.size > 1 and (is_op(use.node, "Add", "Sub") or use.idx == 2):
            continue  # added to what is in float16 it is nothing
        kept_nodes.keep_node(use.node, reason)
        _keep_after_small(kept_nodes, use.node, f"it takes what {value.name!r} keeps from 0")


def _keep_after_small(kept_nodes: KeptNodes, node: ir.Node, reason: str) -> bool:
    """Keep in float32 what needs a number to stay above 0, and the layout on the way there.

    Returns:
        Whether there is such a node.
    """
    is_used = False
    for value in node.outputs:
        for use in value.uses():
            reader = use.node
            if reader in ops.MOVES_FIRST_INPUT:
                if use.idx == 0 and _keep_after_small(kept_nodes, reader, reason):
                    kept_nodes.keep_node(reader, reason)
                    is_used = True
                continue
            if not is_op(reader, "Log", "Sqrt", "Reciprocal", "Pow", "Div") or (
                is_op(reader, "Div") and use.idx == 0
            ):
                continue
            is_used = True
            is_new = reader not in kept_nodes.reasons
            kept_nodes.keep_node(reader, reason)
            if is_new and not is_op(reader, "Log", "Div"):
                _keep_after_small(kept_nodes, reader, reason)
    return is_used


def _is_lost(extent: Float16Fit) -> bool:
    """Return whether float16 loses too much of even the largest number of a constant."""
    if extent.largest == 0:
        return False
    if extent.size > 1:
        return extent.largest < HALF_NORMAL
    rounded = float(array_to_float16(np.array(extent.largest, np.float32)))
    return abs(rounded - extent.largest) > 0.01 * extent.largest
