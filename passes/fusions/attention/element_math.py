"""Elementwise operators computed on one element of each operand."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, is_op
from graphfix.ops.laws import BINARY_LAWS, UNARY_LAWS

KEEPS_ELEMENTS = ops.VIEWS | ops.named("Cast Expand")
"""The elements of the first input, in their order or repeated; a Cast may round them."""


def element_inputs(node: ir.Node) -> Sequence[ir.Value | None]:
    """Return the inputs a node's elements come from, without inputs that only give a shape."""
    return node.inputs[:1] if node in KEEPS_ELEMENTS else node.inputs


def compute_element(node: ir.Node, operands: Sequence[float], view: View) -> float:
    """Return what a node makes of one element of each of its :func:`element_inputs`.

    Raises:
        LookupError: The law of the operator is not known.
        ArithmeticError: It divides by zero.
        ValueError: An infinity or a NaN is cast to integers.
    """
    if is_op(node, "Cast"):
        return _cast_element(operands[0], ir.DataType(attr_int(node, "to", 0)))
    if node in KEEPS_ELEMENTS:
        return operands[0]
    if is_op(node, "Where"):
        return operands[1] if operands[0] else operands[2]
    if is_op(node, "Div"):
        dividend, divisor = operands
        dtype = view.shapes.dtype(node.outputs[0])
        is_whole = dtype is not None and dtype.is_integer()
        return math.trunc(dividend / divisor) if is_whole else dividend / divisor
    name = ops.qualified_name(node)
    if node.attributes:
        raise LookupError(name)  # the laws are those of operators without attributes
    with np.errstate(all="ignore"):
        if len(operands) == 1:
            return float(UNARY_LAWS[name](*operands))
        return float(functools.reduce(BINARY_LAWS[name], operands))


def _cast_element(number: float, target: ir.DataType) -> float:
    """Return a number in another type; LookupError for texts and a function's parameter."""
    if target in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        raise LookupError(target.name)
    if target == ir.DataType.BOOL:
        return float(number != 0)
    with np.errstate(all="ignore"):
        return float(target.numpy().type(number))
