"""Squares of elements, and operators that add squares up inside."""

from __future__ import annotations

import onnx_ir as ir

from graphfix import ops
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op

_ADDS_SQUARES = ops.named("ReduceSumSquare ReduceL2")
# They add up powers of p, of 2 by default.
_ADDS_POWERS = ops.named("LpNormalization LpPool GlobalLpPool")


def squared_input(node: ir.Node | None) -> ir.Value | None:
    """Return the tensor whose elements a node squares one by one, or None."""
    if is_op(node, "Mul"):
        return node.inputs[0] if node.inputs[0] is node.inputs[1] else None
    if is_op(node, "Pow"):
        return node.inputs[0] if scalar_of(node.inputs[1]) == 2 else None
    return None


def adds_squares(node: ir.Node) -> bool:
    """Return whether a node squares its input and adds the squares up, in one operator."""
    return node in _ADDS_SQUARES or (node in _ADDS_POWERS and attr_int(node, "p", 2) == 2)
