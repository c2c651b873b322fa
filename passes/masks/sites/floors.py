"""Constant masks: the lowest number in them, and the same mask with a floor under it."""

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import AttrValue, Builder
from graphfix.graph.constants import Array, const_of, is_float
from graphfix.graph.nodes import is_op

from .where_masks import HIDES, LAYOUT, Fill, fill_of

# A constant mask of 2048 x 2048 is read; larger ones are not.
READ = 1 << 22
# The order and number of the elements may change here, not the elements.
_LAYOUT = (*LAYOUT, "Slice", "Gather", "Trilu")


def lowest_of(value: ir.Value | None) -> Fill | None:
    """The lowest number in a constant mask, through whatever lays it out.

    None if it is no constant, or has the same number throughout: then it hides nothing from
    anything, as the -1e9 in ``mask * 1e9 - 1e9``.
    """
    found = _lowest(value)
    # Asked last: where there is no constant, the way back leads to the inputs of the model.
    return found if found is not None and is_plain(value) else None


def _lowest(value: ir.Value | None) -> Fill | None:
    varies = False
    while value is not None:
        node = value.producer()
        varies = varies or is_op(node, "Trilu")
        array = const_of(value, limit=READ)
        if array is not None:
            if array.size == 0 or not is_float(array):
                return None
            lowest, highest = float(array.min()), float(array.max())
            hides_some = varies or (highest > HIDES and lowest < highest)
            return Fill(lowest, array.dtype, None) if hides_some else None
        fill = fill_of(value)
        if fill is not None:
            return fill if varies else None
        if node is None or not is_op(node, *_LAYOUT):
            return None
        value = node.inputs[0]
    return None


def is_plain(value: ir.Value | None) -> bool:
    """Whether no attribute on the way to the constant is a parameter of a local function."""
    while value is not None and (node := value.producer()) is not None:
        if any(attribute.is_ref() for attribute in node.attributes.values()):
            return False
        value = node.inputs[0] if node.inputs else None
    return True


def floored(value: ir.Value | None, floor: float, op: Builder) -> ir.Value:
    """``value``, a constant mask as :func:`lowest_of` sees it, with no number beyond ``floor``."""
    assert value is not None
    array = const_of(value, limit=READ)
    if array is not None:
        return op.constant(_clamped(array, floor))
    node = value.producer()
    assert node is not None
    return op.once(("floored", value, floor), lambda: _again(node, floor, op), value)


def _again(node: ir.Node, floor: float, op: Builder) -> ir.Value:
    """The same node after a mask with a floor under it."""
    given: dict[str, AttrValue] = {name: x.value for name, x in node.attributes.items()}
    if is_op(node, "ConstantOfShape"):
        given["value"] = ir.tensor(_clamped(node.attributes["value"].as_tensor().numpy(), floor))
        return op.ConstantOfShape(*node.inputs, **given)
    return op.make(node.op_type, floored(node.inputs[0], floor, op), *node.inputs[1:], **given)


def _clamped(array: Array, floor: float) -> Array:
    limit = np.float64(floor).astype(array.dtype)
    clamped = np.maximum(array, limit) if floor < 0 else np.minimum(array, limit)
    return np.asarray(clamped, array.dtype)
