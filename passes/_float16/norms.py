"""Norms in pieces: squares and their means overflow, or are lost."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.model.values import is_op, scalar_of

from .constants import is_constant
from .kept_nodes import Stay

_SQUARED = ("ReduceMean", "ReduceSum", "GlobalAveragePool", "AveragePool")
_STATISTICS = ("Add", "Sqrt", "Reciprocal", "Pow", "Div", "Clip", "Max", "Mul")


def statistics(stay: Stay) -> None:
    """Let stay a mean of squares, up to where it meets the data again."""
    why = "squares and their mean overflow beyond 255, and are lost below 1/256"
    for node in stay.nodes:
        if not is_op(node, *_SQUARED, "ReduceSumSquare", "ReduceL2"):
            continue
        square = node.inputs[0].producer() if node.inputs and node.inputs[0] else None
        if is_op(node, *_SQUARED):
            if square is None or not _is_square(square):
                continue
            stay.add(square, why)
        stay.add(node, why)
        _then(stay, node, why)


def _then(stay: Stay, node: ir.Node, why: str) -> None:
    """Up to the root; what it is divided by may be a count, which stays as well."""
    for value in node.outputs:
        for use in value.uses():
            after = use.node
            if not is_op(after, *_STATISTICS):
                continue
            others = [x for i, x in enumerate(after.inputs) if i != use.idx]
            counted = is_op(after, "Div") and use.idx == 0 and after in stay.reasons
            if counted or all(x is None or is_constant(x) for x in others):
                stay.add(after, why)
                _then(stay, after, why)


def _is_square(node: ir.Node) -> bool:
    if is_op(node, "Pow"):
        power = scalar_of(node.inputs[1])
        return power is not None and power >= 2
    return is_op(node, "Mul") and node.inputs[0] is node.inputs[1]
