"""Between which numbers a tensor lies, or why it may be infinite, as far as the nodes tell."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.text import path_of

from .where_masks import LAYOUT, fill_of

# What is computed from weights and activations is taken to be finite, and this small at most.
ORDINARY = 1e30
# A constant mask of 2048 x 2048 is read; larger ones are not.
_READ = 1 << 22
_DEPTH = 64

_INTEGER = 2.0**63
_ROOM = {
    ir.DataType.FLOAT16: 65520.0,
    ir.DataType.FLOAT: 3.4028235677973366e38,  # from half a step above the largest it is inf
    ir.DataType.BFLOAT16: 3.3961775292304957e38,
    ir.DataType.DOUBLE: math.inf,
}
_LAYOUT = (*LAYOUT, "Slice", "Split", "Gather", "GatherND", "GatherElements", "Dropout")
_COMPUTES = frozenset(
    {"MatMul", "Gemm", "Einsum", "Conv", "LayerNormalization", "DequantizeLinear"}
    | {"Softmax", "Tanh", "Sigmoid", "Erf", "Relu", "Gelu", "Sin", "Cos"}
)


@dataclass(frozen=True)
class Bounds:
    """The least and the largest element."""

    low: float
    high: float

    @property
    def size(self) -> float:
        """The largest magnitude."""
        return abs(self.farthest)

    @property
    def farthest(self) -> float:
        """The element of the largest magnitude."""
        return max(self.low, self.high, key=abs)


def _around(*numbers: float) -> Bounds:
    return Bounds(min(numbers), max(numbers))


_ANY = _around(-ORDINARY, ORDINARY)
# In float16, whose largest number is 65,504: so that a floor of -1e4 can be added.
_HALF = _around(-5e4, 5e4)


class Finite:
    """What is known of the tensors of one model.

    Floats that the caller gives may be anything; what MatMul and the like compute is taken to be
    finite and ordinary. Integers are what they are.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._known: dict[ir.Value, Bounds | str] = {}

    def bounds(self, value: ir.Value | None, depth: int = _DEPTH) -> Bounds | str:
        """The bounds of ``value``; or, in words, why it may be infinite or NaN."""
        if value is None or depth == 0:
            return "too many nodes lead to it"
        if value not in self._known:
            self._known[value] = self._bounds(value, depth)
        return self._known[value]

    def _bounds(self, value: ir.Value, depth: int) -> Bounds | str:
        constant = _constant(value)
        if constant is not None:
            return constant
        dtype, node = self._view.shapes.dtype(value), value.producer()
        if dtype == ir.DataType.BOOL:
            return Bounds(0, 1)
        if dtype is not None and dtype.is_integer():
            return _around(-_INTEGER, _INTEGER)
        room = None if dtype is None else _ROOM.get(dtype)
        if dtype is None or room is None:
            return f"the type of {value.name!r} is not known"
        if node is None:
            if value.is_initializer() and not value.is_graph_input():
                return f"{value.name!r} is too large to be searched for -inf"
            return f"{value.name!r} is an input: the caller may give -inf"
        if is_op(node, *_COMPUTES):
            return _HALF if dtype == ir.DataType.FLOAT16 else _ANY
        known: list[Bounds] = []
        for source in _sources(node):
            bounds = self.bounds(source, depth - 1)
            if isinstance(bounds, str):
                return bounds
            known.append(bounds)
        result = _combined(node, known) if known else None
        if result is None:
            return f"{node.op_type} {path_of(node)!r} may make -inf or NaN"
        if not result.size < room:
            return f"{path_of(node)!r} may reach {result.farthest:.6g}, beyond {dtype.name.lower()}"
        return result


def _constant(value: ir.Value) -> Bounds | str | None:
    fill = fill_of(value)
    array = const_of(value, limit=_READ) if fill is None else np.array([fill.number])
    if array is None or array.size == 0 or array.dtype.kind not in "biuf":
        return None
    low, high = float(array.min()), float(array.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{value.name!r} holds {low if not math.isfinite(low) else high:g}"
    return Bounds(low, high)


def _sources(node: ir.Node) -> Sequence[ir.Value | None]:
    """The inputs that the elements of what ``node`` makes are computed from."""
    if is_op(node, "Where"):
        return node.inputs[1:]
    if is_op(node, *_LAYOUT, "Cast", "Trilu", "Neg"):
        return node.inputs[:1]
    if is_op(node, "Add", "Sub", "Mul", "Div", "Max", "Min", "Concat"):
        return node.inputs
    return [x for x in node.inputs if x is not None] if is_op(node, "Clip") else ()


def _combined(node: ir.Node, given: Sequence[Bounds]) -> Bounds | None:
    lows, highs = [x.low for x in given], [x.high for x in given]
    if is_op(node, "Add"):
        return Bounds(sum(lows), sum(highs))
    if is_op(node, "Sub"):
        return Bounds(lows[0] - highs[1], highs[0] - lows[1])
    if is_op(node, "Neg"):
        return Bounds(-highs[0], -lows[0])
    if is_op(node, "Mul"):
        return _product(*given)
    if is_op(node, "Div"):
        by = given[1]
        if by.low != by.high or by.low == 0:
            return None
        return _product(given[0], Bounds(1 / by.low, 1 / by.low))
    if is_op(node, "Trilu"):
        return _around(*lows, *highs, 0)
    if is_op(node, "Clip") and len(given) == 1:
        return given[0]
    # One of the elements of one of them.
    return _around(*lows, *highs)


def _product(a: Bounds, b: Bounds) -> Bounds:
    if _ANY in (a, b) and min(a.size, b.size) <= ORDINARY and max(a.size, b.size) == ORDINARY:
        return _ANY
    return _around(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
