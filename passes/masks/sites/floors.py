"""Constant masks: their lowest number, and the same mask clamped at a floor."""

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.editing.builder import AttrValue, Builder
from graphfix.facts.hidden_scores import hides_score
from graphfix.graph.constants import Array, const_of, is_float
from graphfix.graph.nodes import is_op

from ...common.fills import Fill, fill_of

# A constant mask of 2048 x 2048 is read; larger ones are not.
_MAX_MASK_SIZE = 1 << 22
# The order and number of the elements may change here, and zeros come in, in one output.
_MOVES_MASK = (ops.MOVES_FIRST_INPUT - ops.named("Split")) | ops.named("Trilu")


def lowest_of(value: ir.Value | None) -> Fill | None:
    """Return the lowest number in a constant mask, through operators of layout, or None.

    None if it is no constant, or holds one number throughout: then it hides nothing from anything,
    as the -1e9 in ``mask * 1e9 - 1e9``.
    """
    lowest = _find_lowest(value)
    # Asked last: where there is no constant, the way back leads to the inputs of the model.
    return lowest if lowest is not None and has_fixed_attributes(value) else None


def _find_lowest(value: ir.Value | None) -> Fill | None:
    varies = False
    while value is not None:
        node = value.producer()
        varies = varies or is_op(node, "Trilu")
        array = const_of(value, limit=_MAX_MASK_SIZE)
        if array is not None:
            if array.size == 0 or not is_float(array):
                return None
            lowest, highest = float(array.min()), float(array.max())
            hides_some = varies or (not hides_score(highest) and lowest < highest)
            return Fill(lowest, array.dtype, None) if hides_some else None
        fill = fill_of(value)
        if fill is not None:
            return fill if varies else None
        if not _MOVES_MASK.has(node):
            return None
        value = node.inputs[0]
    return None


def has_fixed_attributes(value: ir.Value | None) -> bool:
    """Return whether no attribute on the way to a constant is a function parameter."""
    while value is not None and (node := value.producer()) is not None:
        if any(attribute.is_ref() for attribute in node.attributes.values()):
            return False
        value = node.inputs[0] if node.inputs else None
    return True


def clamp_mask(value: ir.Value | None, floor: float, op: Builder) -> ir.Value:
    """Build a constant mask, as :func:`lowest_of` sees it, clamped at ``floor``."""
    assert value is not None
    array = const_of(value, limit=_MAX_MASK_SIZE)
    if array is not None:
        return op.constant(_clamp_array(array, floor))
    node = value.producer()
    assert node is not None
    return op.build_once(
        ("floored", value, floor), lambda: _rebuild_clamped(node, floor, op), value
    )


def _rebuild_clamped(node: ir.Node, floor: float, op: Builder) -> ir.Value:
    """Build the same node of a mask clamped at ``floor``."""
    attributes: dict[str, AttrValue] = {name: x.value for name, x in node.attributes.items()}
    if is_op(node, "ConstantOfShape"):
        attributes["value"] = ir.tensor(
            _clamp_array(node.attributes["value"].as_tensor().numpy(), floor)
        )
        return op.ConstantOfShape(*node.inputs, **attributes)
    return op.make(
        node.op_type, clamp_mask(node.inputs[0], floor, op), *node.inputs[1:], **attributes
    )


def _clamp_array(array: Array, floor: float) -> Array:
    limit = np.float64(floor).astype(array.dtype)
    clamped = np.maximum(array, limit) if floor < 0 else np.minimum(array, limit)
    return np.asarray(clamped, array.dtype)
