"""Bounds on the elements of a tensor, or why it may be infinite, by its nodes."""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.facts.intervals import Interval, hull_of
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.text import node_label

from ...common.fills import fill_of

# What is computed from weights and activations is taken to be finite, and this small at most.
ORDINARY = 1e30
# A constant mask of 2048 x 2048 is read; larger ones are not.
_MAX_ELEMENTS = 1 << 22
_MAX_DEPTH = 64

_INTEGER = 2.0**63
_OVERFLOW = {
    ir.DataType.FLOAT16: 65520.0,
    ir.DataType.FLOAT: 3.4028235677973366e38,  # from half a step above the largest it is inf
    ir.DataType.BFLOAT16: 3.3961775292304957e38,
    ir.DataType.DOUBLE: math.inf,
}
# Each element of the result is one of the first input.
_SELECTS_ELEMENTS = ops.MOVES_FIRST_INPUT | ops.IDLE
# Finite and of an ordinary size, from weights and activations that are.
_MAKES_ORDINARY = (
    ops.PRODUCTS
    | ops.CONVOLVES
    | (ops.NORMS - ops.named("LpNormalization"))  # 0 / 0 in a row of zeros
    | ops.BOUNDED_BY_ONE
    | ops.named("DequantizeLinear Relu Gelu")
)


_ANY = hull_of(-ORDINARY, ORDINARY)
# In float16, whose largest number is 65,504: so that a floor of -1e4 can be added.
_HALF = hull_of(-5e4, 5e4)


class FiniteBounds:
    """Finite bounds of the tensors of one model.

    Fed floats may be anything; results of MatMul and the like are assumed to be finite and
    ordinary. Integers have the bounds of their type.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._bounds_by_value: dict[ir.Value, Interval | str] = {}

    def bounds_of(self, value: ir.Value | None, depth: int = _MAX_DEPTH) -> Interval | str:
        """Return the bounds of ``value``, or a reason why it may be infinite or NaN."""
        if value is None or depth == 0:
            return "too many nodes lead to it"
        if value not in self._bounds_by_value:
            self._bounds_by_value[value] = self._infer_bounds(value, depth)
        return self._bounds_by_value[value]

    def _infer_bounds(self, value: ir.Value, depth: int) -> Interval | str:
        """Return the bounds of a value by its contents, its type and the node that makes it."""
        constant = _constant_bounds(value)
        if constant is not None:
            return constant
        dtype, node = self._view.shapes.dtype(value), value.producer()
        if dtype == ir.DataType.BOOL:
            return Interval(0, 1)
        if dtype is not None and dtype.is_integer():
            return hull_of(-_INTEGER, _INTEGER)
        room = None if dtype is None else _OVERFLOW.get(dtype)
        if dtype is None or room is None:
            return f"the type of {value.name!r} is not known"
        if node is None:
            return _reason_of_unknown(value)
        if node in _MAKES_ORDINARY:
            return _HALF if dtype == ir.DataType.FLOAT16 else _ANY
        result = self._infer_result(node, depth)
        if isinstance(result, str) or result.magnitude < room:
            return result
        farthest = max(result.low, result.high, key=abs)
        return f"{node_label(node)!r} may reach {farthest:.6g}, beyond {dtype.name.lower()}"

    def _infer_result(self, node: ir.Node, depth: int) -> Interval | str:
        """Return the bounds of what a node computes of its inputs, overflow aside."""
        operand_bounds: list[Interval] = []
        for source in _element_inputs(node):
            bounds = self.bounds_of(source, depth - 1)
            if isinstance(bounds, str):
                return bounds
            operand_bounds.append(bounds)
        result = _combine_bounds(node, operand_bounds) if operand_bounds else None
        return result or f"{node.op_type} {node_label(node)!r} may make -inf or NaN"


def _reason_of_unknown(value: ir.Value) -> str:
    """Return why the elements of an input or a large weight have no bounds."""
    if value.is_initializer() and not value.is_graph_input():
        return f"{value.name!r} is too large to be searched for -inf"
    return f"{value.name!r} is an input: the caller may give -inf"


def _constant_bounds(value: ir.Value) -> Interval | str | None:
    fill = fill_of(value)
    array = const_of(value, limit=_MAX_ELEMENTS) if fill is None else np.array([fill.number])
    if array is None or array.size == 0 or array.dtype.kind not in "biuf":
        return None
    low, high = float(array.min()), float(array.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{value.name!r} holds {low if not math.isfinite(low) else high:g}"
    return Interval(low, high)


def _element_inputs(node: ir.Node) -> Sequence[ir.Value | None]:
    """Return the inputs that the elements of an output are computed from."""
    if is_op(node, "Where"):
        return node.inputs[1:]
    if node in _SELECTS_ELEMENTS or is_op(node, "Cast", "Trilu", "Neg"):
        return node.inputs[:1]
    if is_op(node, "Add", "Sub", "Mul", "Div", "Max", "Min", "Concat"):
        return node.inputs
    return [x for x in node.inputs if x is not None] if is_op(node, "Clip") else ()


def _combine_bounds(node: ir.Node, operands: Sequence[Interval]) -> Interval | None:
    """Return the bounds of what an operator makes of elements within these, or None."""
    lows, highs = [x.low for x in operands], [x.high for x in operands]
    if is_op(node, "Add"):
        return operands[0] + operands[1]
    if is_op(node, "Sub"):
        return operands[0] - operands[1]
    if is_op(node, "Neg"):
        return -operands[0]
    if is_op(node, "Mul"):
        return _multiply_bounds(*operands)
    if is_op(node, "Div"):
        divisor = operands[1]
        if divisor.low != divisor.high or divisor.low == 0:
            return None
        return _multiply_bounds(operands[0], hull_of(1 / divisor.low))
    if is_op(node, "Trilu"):
        return hull_of(*lows, *highs, 0)
    if is_op(node, "Clip") and len(operands) == 1:
        return operands[0]
    # One of the elements of one of them.
    return hull_of(*lows, *highs)


def _multiply_bounds(a: Interval, b: Interval) -> Interval:
    """Return the bounds of products; what is ordinary stays so times what is no larger."""
    is_ordinary = _ANY in (a, b) and max(a.magnitude, b.magnitude) == ORDINARY
    return _ANY if is_ordinary else a * b
