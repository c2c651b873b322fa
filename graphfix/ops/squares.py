"""Squares of elements, and operators that add squares up inside."""

from __future__ import annotations

import onnx_ir as ir

from graphfix import ops
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import is_op

ADDS_SQUARES = ops.named("ReduceSumSquare ReduceL2")
"""They square their input and add the squares up along axes, with or without a root."""


def squared_input(node: ir.Node | None) -> ir.Value | None:
    """Return the tensor whose elements a node squares one by one, or None."""
    if is_op(node, "Mul"):
        return node.inputs[0] if node.inputs[0] is node.inputs[1] else None
    if is_op(node, "Pow"):
        return node.inputs[0] if scalar_of(node.inputs[1]) == 2 else None
    return None
