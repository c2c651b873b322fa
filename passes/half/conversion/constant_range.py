"""Constants beyond float16, or so small that it loses them."""

import numpy as np
import onnx_ir as ir

from graphfix.files.half_weights import HALF_MAX, HALF_NORMAL, Extent, extent_of, narrow
from graphfix.graph.nodes import is_op, maker_of

from ...masks.sites.where_masks import BIAS, LAYOUT, Reach, reach_of
from .constants import constants_of
from .kept_nodes import Stay

# Twice this, with a score beside it, is still a number in float16; exp of it is 0.
FLOOR = 30_000.0
_MASK = 1 << 22
_BOUNDS = ("Clip", "Min", "Max", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
_OF_SMALL = ("Log", "Sqrt", "Reciprocal", "Pow", "Div")
# They make scores.
_SCORES = ("MatMul", "Einsum", "FusedMatMul", "Mul", "Div", "Add", "Where")


def unfit_constants(stay: Stay) -> None:
    """Let stay what takes a constant that float16 does not hold; masks get a floor instead."""
    for value, tensor in constants_of(stay.view.model.graph):
        if not stay.types.is_float(value) or not value.uses() or stay.all_wide(value):
            continue
        extent = extent_of(tensor)
        if extent.beyond or (extent.largest > FLOOR and extent.size <= _MASK):
            _beyond(stay, value, extent)
        elif _is_lost(extent):
            _lost(stay, value, extent)
        if extent.lost and not stay.all_wide(value):
            what = f"{extent.lost:,} of {extent.size:,} elements of {value.name!r}"
            stay.unfit.append((value, f"{what} are too small for float16 and become 0"))


def hiding_inputs(stay: Stay) -> None:
    """Find the inputs that are added to scores: callers feed -3.4e38, or -inf, to hide them."""
    for value in stay.view.model.graph.inputs:
        if stay.types.is_float(value) and not value.is_initializer() and _hides(stay, value):
            stay.floors.add(value)


def _hides(stay: Stay, value: ir.Value) -> bool:
    for use in value.uses():
        node = use.node
        if is_op(node, *LAYOUT, "Slice") and use.idx == 0:
            if _hides(stay, node.outputs[0]):
                return True
        elif is_op(node, "Add"):
            if is_op(maker_of(node.inputs[1 - use.idx], *LAYOUT), *_SCORES) and _reaches(
                stay, node.outputs[0]
            ):
                return True
        elif use.idx == BIAS.get((node.domain, node.op_type)):
            return True
    return False


def _reaches(stay: Stay, value: ir.Value) -> bool:
    reach = reach_of(value, stay.view, to_bool=True)
    return bool(reach.softmaxes or reach.attentions)


def _beyond(stay: Stay, value: ir.Value, extent: Extent) -> None:
    reach = reach_of(value, stay.view, to_bool=True) if extent.size <= _MASK else Reach()
    if reach.softmaxes or reach.attentions:
        stay.masks[value] = FLOOR / min(reach.scale, 1.0)
        return
    if not extent.beyond:
        return
    what = f"{value.name!r} reaches {extent.largest:.3g}, float16 {HALF_MAX:g}"
    for use in value.uses():
        if not is_op(use.node, *_BOUNDS):  # infinity bounds what is in float16 as well
            stay.add(use.node, what)


def _lost(stay: Stay, value: ir.Value, extent: Extent) -> None:
    what = f"{value.name!r} is {extent.largest:.3g} at most, too little for float16"
    for use in value.uses():
        if extent.size > 1 and (is_op(use.node, "Add", "Sub") or use.idx == 2):
            continue  # added to what is in float16 it is nothing
        stay.add(use.node, what)
        _after_small(stay, use.node, f"it takes what {value.name!r} keeps from 0")


def _after_small(stay: Stay, node: ir.Node, reason: str) -> bool:
    """Let stay what a number that is kept from 0 is for, and what lays it out on the way there.

    Returns:
        Whether there is such a thing.
    """
    found = False
    for value in node.outputs:
        for use in value.uses():
            after = use.node
            if is_op(after, *LAYOUT):
                if use.idx == 0 and _after_small(stay, after, reason):
                    stay.add(after, reason)
                    found = True
                continue
            if not is_op(after, *_OF_SMALL) or (is_op(after, "Div") and use.idx == 0):
                continue
            found = True
            new = after not in stay.reasons
            stay.add(after, reason)
            if new and not is_op(after, "Log", "Div"):
                _after_small(stay, after, reason)
    return found


def _is_lost(extent: Extent) -> bool:
    """Whether even the largest number of a constant loses too much."""
    if extent.largest == 0:
        return False
    if extent.size > 1:
        return extent.largest < HALF_NORMAL
    held = float(narrow(np.array(extent.largest, np.float32)))
    return abs(held - extent.largest) > 0.01 * extent.largest
