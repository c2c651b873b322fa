"""Masks of 0 and 1, in which a boolean and its opposite are made from the same numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.model.values import attr_int, is_op, scalar_of

from ._fold_look import VIEWS, Replacement

if TYPE_CHECKING:
    from ._fold_look import Look

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
_LAYOUT = (*VIEWS, "Expand", "Identity", "Transpose", "Slice")


def bits(node: ir.Node, look: Look) -> Replacement | None:
    """A Cast of a boolean to float whose numbers are there already, or are one subtraction away.

    ``Cast(Equal(m, 0))`` is ``1 - m`` where m is 0 or 1 itself.
    """
    if not is_op(node, "Cast") or node.inputs[0] is None:
        return None
    target = ir.DataType(attr_int(node, "to", 0))
    if target not in _FLOATS or look.view.shapes.dtype(node.inputs[0]) != ir.DataType.BOOL:
        return None
    root, same = node.inputs[0], True
    maker = root.producer()
    while is_op(maker, "Not") and maker.inputs[0] is not None:
        root, same = maker.inputs[0], not same
        maker = root.producer()
    if is_op(maker, "Equal"):
        zeros = [i for i in (0, 1) if scalar_of(maker.inputs[i]) == 0]
        given = maker.inputs[1 - zeros[0]] if len(zeros) == 1 else None
        same = not same
    else:
        given = maker.inputs[0] if is_op(maker, "Cast") else None
    dims = look.dims(node.outputs[0])
    if given is None or dims is None or look.dims(given) != dims:
        return None
    if look.view.shapes.dtype(given) != target or not _is_bits(given, look):
        return None
    if not same:
        # As many nodes as before, unless the question itself goes.
        return _opposite(given, target) if len(root.uses()) == 1 else None
    if node.outputs[0].is_graph_output():
        return None
    return Replacement(f"{given.name!r} holds the same", lambda op: [given])


def _opposite(bits: ir.Value, dtype: ir.DataType) -> Replacement:
    one = np.ones((), dtype.numpy())
    return Replacement(f"it is 1 - {bits.name}", lambda op: [op.Sub(one, bits)])


def _is_bits(value: ir.Value, look: Look) -> bool:
    """Whether a tensor of floats was made of a boolean."""
    while (node := value.producer()) is not None and is_op(node, *_LAYOUT):
        if node.inputs[0] is None:
            return False
        value = node.inputs[0]
    source = node.inputs[0] if is_op(node, "Cast") else None
    return look.view.shapes.dtype(source) == ir.DataType.BOOL
