"""Masks of 0 and 1: a float mask and its opposite computed from one boolean."""

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op, producer_of

from ...common.fold_view import FoldView, Replacement

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


class BitMasks:
    """Casts of booleans to float, in the order of the graph.

    ``Cast(Equal(m, 0))`` is ``1 - m`` where m is 0 or 1 itself, and ``Cast(Not(b))`` is
    ``1 - Cast(b)`` if that is made anyway.
    """

    def __init__(self) -> None:
        self._casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def __call__(self, node: ir.Node, look: FoldView) -> Replacement | None:
        """Replace a Cast whose numbers exist already or are one subtraction away."""
        if not is_op(node, "Cast") or node.inputs[0] is None:
            return None
        target = ir.DataType(attr_int(node, "to", 0))
        if target not in _FLOATS or look.view.shapes.dtype(node.inputs[0]) != ir.DataType.BOOL:
            return None
        root, is_true = node.inputs[0], True
        while is_op(root.producer(), "Not") and (maker := root.producer()) is not None:
            if maker.inputs[0] is None:
                return None
            root, is_true = maker.inputs[0], not is_true
        replacement = self._from_float_mask(node, root, is_true, target, look)
        if replacement is None and not is_true:
            cast_output = self._casts.get((root, target))
            if cast_output is not None and look.is_in_scope(node, cast_output):
                replacement = _one_minus(cast_output, target)
        if replacement is None and is_true:
            self._casts.setdefault((root, target), node.outputs[0])
        return replacement

    def _from_float_mask(
        self, node: ir.Node, root: ir.Value, is_true: bool, target: ir.DataType, look: FoldView
    ) -> Replacement | None:
        """Replace a Cast of ``root`` that compares a float mask of 0 and 1 with 0."""
        maker = root.producer()
        if is_op(maker, "Equal"):
            zeros = [i for i in (0, 1) if scalar_of(maker.inputs[i]) == 0]
            bits = maker.inputs[1 - zeros[0]] if len(zeros) == 1 else None
            is_true = not is_true
        elif is_op(maker, "Cast"):
            bits = maker.inputs[0]
        else:
            return None
        dims = look.dims(node.outputs[0])
        if bits is None or dims is None or look.dims(bits) != dims:
            return None
        if look.view.shapes.dtype(bits) != target or not _is_float_mask(bits, look):
            return None
        if is_true:
            if node.outputs[0].is_graph_output():
                return None
            return Replacement(f"{bits.name!r} holds the same", lambda op: [bits])
        # A Sub for a Cast saves nothing, unless the comparison goes as well.
        return _one_minus(bits, target) if len(root.uses()) == 1 else None


def _one_minus(bits: ir.Value, dtype: ir.DataType) -> Replacement:
    unit = np.ones((), dtype.numpy())
    return Replacement(f"it is 1 - {bits.name}", lambda op: [op.Sub(unit, bits)])


def _is_float_mask(value: ir.Value, look: FoldView) -> bool:
    """Return whether a float tensor was cast from a boolean."""
    node = producer_of(value, *ops.MOVES_FIRST_INPUT)
    source = node.inputs[0] if is_op(node, "Cast") else None
    return look.view.shapes.dtype(source) == ir.DataType.BOOL
