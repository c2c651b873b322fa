"""Masks of 0 and 1, in which a boolean and its opposite are made from the same numbers."""

import numpy as np
import onnx_ir as ir

from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op, maker_of

from ...common.lookup import VIEWS, Look, Replacement

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
_LAYOUT = (*VIEWS, "Expand", "Identity", "Transpose", "Slice")


class Bits:
    """Casts of booleans to float, as a walk meets them.

    ``Cast(Equal(m, 0))`` is ``1 - m`` where m is 0 or 1 itself, and ``Cast(Not(b))`` is
    ``1 - Cast(b)`` if that is made anyway.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def __call__(self, node: ir.Node, look: Look) -> Replacement | None:
        """A Cast whose numbers are there already, or are one subtraction away."""
        if not is_op(node, "Cast") or node.inputs[0] is None:
            return None
        target = ir.DataType(attr_int(node, "to", 0))
        if target not in _FLOATS or look.view.shapes.dtype(node.inputs[0]) != ir.DataType.BOOL:
            return None
        root, when = node.inputs[0], True
        while is_op(root.producer(), "Not") and (maker := root.producer()) is not None:
            if maker.inputs[0] is None:
                return None
            root, when = maker.inputs[0], not when
        found = self._from_numbers(node, root, when, target, look)
        if found is None and not when:
            made = self._made.get((root, target))
            if made is not None and look.sees(node, made):
                found = _opposite(made, target)
        if found is None and when:
            self._made.setdefault((root, target), node.outputs[0])
        return found

    def _from_numbers(
        self, node: ir.Node, root: ir.Value, when: bool, target: ir.DataType, look: Look
    ) -> Replacement | None:
        """``root`` asks whether a mask of 0 and 1 is 0, or is not."""
        maker = root.producer()
        if is_op(maker, "Equal"):
            zeros = [i for i in (0, 1) if scalar_of(maker.inputs[i]) == 0]
            bits = maker.inputs[1 - zeros[0]] if len(zeros) == 1 else None
            when = not when
        elif is_op(maker, "Cast"):
            bits = maker.inputs[0]
        else:
            return None
        dims = look.dims(node.outputs[0])
        if bits is None or dims is None or look.dims(bits) != dims:
            return None
        if look.view.shapes.dtype(bits) != target or not _is_bits(bits, look):
            return None
        if when:
            if node.outputs[0].is_graph_output():
                return None
            return Replacement(f"{bits.name!r} holds the same", lambda op: [bits])
        # As many nodes as before, unless the question itself goes.
        return _opposite(bits, target) if len(root.uses()) == 1 else None


def _opposite(bits: ir.Value, dtype: ir.DataType) -> Replacement:
    one = np.ones((), dtype.numpy())
    return Replacement(f"it is 1 - {bits.name}", lambda op: [op.Sub(one, bits)])


def _is_bits(value: ir.Value, look: Look) -> bool:
    """Whether a tensor of floats was made of a boolean."""
    node = maker_of(value, *_LAYOUT)
    source = node.inputs[0] if is_op(node, "Cast") else None
    return look.view.shapes.dtype(source) == ir.DataType.BOOL
