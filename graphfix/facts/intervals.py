"""The least and the greatest number that a tensor can hold, whatever a model is fed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of, fill_value_of
from graphfix.graph.nodes import attr_int, input_at, is_op, producer_of
from graphfix.ops.op_set import qualified_name

# Index arithmetic is a handful of nodes deep; what lies deeper is taken to be anything.
_MAX_DEPTH = 24


@dataclass(frozen=True)
class Interval:
    """Numbers from ``low`` to ``high``, both included; infinite where there is no bound."""

    low: float = -math.inf
    high: float = math.inf

    def __add__(self, other: Interval) -> Interval:
        """Return where sums lie."""
        return Interval(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Interval:
        """Return where the negated numbers lie."""
        return Interval(-self.high, -self.low)

    def __sub__(self, other: Interval) -> Interval:
        """Return where differences lie."""
        return self + -other

    def __mul__(self, other: Interval) -> Interval:
        """Return where products lie; that of 0 and an infinite bound is 0."""
        pairs = [(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return hull_of(*(a * b if a and b else 0 for a, b in pairs))

    def __or__(self, other: Interval) -> Interval:
        """Return the least interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    @property
    def magnitude(self) -> float:
        """Return the largest magnitude."""
        return max(abs(self.low), abs(self.high))


ANY_NUMBER = Interval()
_COUNT = Interval(0)
_TRUTH = Interval(0, 1)


def hull_of(*numbers: float) -> Interval:
    """Return the least interval that holds some numbers."""
    return Interval(min(numbers), max(numbers))


def interval_of(value: ir.Value | None, view: View) -> Interval:
    """Return where the elements of a tensor lie.

    Sizes, counts and indices that operators make are at least 0; a fed tensor may hold anything of
    its type. Sums and products of sizes are taken to stay inside of their type. Of floats only
    constants are known, and integers that were cast.
    """
    return _IntervalWalk(view).interval_of(value, _MAX_DEPTH)


class _IntervalWalk:
    """One walk back from a tensor, which asks each tensor on the way once."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._intervals: dict[ir.Value, Interval] = {}

    def interval_of(self, value: ir.Value | None, depth: int) -> Interval:
        """Return where the elements of a tensor lie, by at most ``depth`` nodes before it."""
        if value is None or depth == 0:
            return ANY_NUMBER
        if value not in self._intervals:
            self._intervals[value] = self._infer(value, depth)
        return self._intervals[value]

    def _infer(self, value: ir.Value, depth: int) -> Interval:
        dtype, node, array = self._dtype_of(value, depth), value.producer(), const_of(value)
        if array is not None:
            return _interval_of_array(array)
        by_type = _interval_of_type(dtype)
        if node is None or dtype is None or by_type == _TRUTH or value is not node.outputs[0]:
            return by_type
        computed = self._combine(node, dtype, depth - 1)
        if dtype.is_integer() and _overflows(computed, dtype):
            return by_type
        return Interval(max(computed.low, by_type.low), min(computed.high, by_type.high))

    def _combine(self, node: ir.Node, dtype: ir.DataType, depth: int) -> Interval:
        """Return where the first output of a node lies, by its inputs."""
        if node in _COUNTING:
            return _COUNT
        if is_op(node, "ConstantOfShape"):
            fill = fill_value_of(node)
            return ANY_NUMBER if fill is None else _interval_of_array(fill)
        if is_op(node, "Cast"):
            return self._cast(node.inputs[0], dtype, depth)
        if node in _JOINING:
            parts = node.inputs[1:] if is_op(node, "Where") else node.inputs
        elif node in ops.MOVES_FIRST_INPUT:
            parts = node.inputs[:1]
        else:
            rule = _RULES.get(qualified_name(node))
            if rule is None or not dtype.is_integer():
                return ANY_NUMBER
            return rule(node, [self.interval_of(x, depth) for x in node.inputs])
        return _union([self.interval_of(x, depth) for x in parts])

    def _dtype_of(self, value: ir.Value | None, depth: int) -> ir.DataType | None:
        """Return the type of a value, also in a function body if its nodes show it."""
        dtype, node = self._view.shapes.dtype(value), producer_of(value)
        if dtype is not None or node is None or depth == 0:
            return dtype
        if node in ops.MEASURES:
            return ir.DataType.INT64
        if is_op(node, "Cast"):
            return ir.DataType(attr_int(node, "to", 0)) or None
        keeps_type = node in ops.KEEPS_TYPE or node in ops.MOVES_ELEMENTS
        return self._dtype_of(node.inputs[0], depth - 1) if keeps_type else None

    def _cast(self, source: ir.Value | None, dtype: ir.DataType, depth: int) -> Interval:
        """Return where the numbers of a Cast lie: rounding keeps their order."""
        source_type = self._dtype_of(source, depth)
        is_whole = source_type is not None and (
            source_type.is_integer() or source_type == ir.DataType.BOOL
        )
        if not is_whole:
            return ANY_NUMBER
        interval = self.interval_of(source, depth)
        if dtype.is_integer():
            return interval
        with np.errstate(over="ignore"):
            low, high = (
                float(np.array(x, np.float64).astype(dtype.numpy()))
                for x in (interval.low, interval.high)
            )
        return Interval(low, high)


def _interval_of_type(dtype: ir.DataType | None) -> Interval:
    if dtype == ir.DataType.BOOL:
        return _TRUTH
    is_unsigned = dtype is not None and dtype.is_integer() and not dtype.is_signed()
    return _COUNT if is_unsigned else ANY_NUMBER


def _interval_of_array(array: Array) -> Interval:
    if not array.size or array.dtype.kind not in "biuf" or np.isnan(array).any():
        return ANY_NUMBER
    return Interval(array.min().item(), array.max().item())


def _overflows(interval: Interval, dtype: ir.DataType) -> bool:
    """Return whether a finite bound lies outside of an integer type, where numbers start again."""
    bounds = [x for x in (interval.low, interval.high) if math.isfinite(x)]
    return any(not dtype.min <= x <= dtype.max for x in bounds)


def _union(intervals: Sequence[Interval]) -> Interval:
    if not intervals:
        return ANY_NUMBER
    return Interval(min(x.low for x in intervals), max(x.high for x in intervals))


def _interval_of_clip(node: ir.Node, operands: Sequence[Interval]) -> Interval:
    data, low, high = [*operands, ANY_NUMBER, ANY_NUMBER][:3]
    bounded = data
    if input_at(node, 1) is not None:
        bounded = Interval(max(bounded.low, low.low), max(bounded.high, low.high))
    if input_at(node, 2) is not None:
        bounded = Interval(min(bounded.low, high.low), min(bounded.high, high.high))
    return bounded


def _interval_of_div(_node: ir.Node, operands: Sequence[Interval]) -> Interval:
    """ONNX rounds quotients of integers towards 0, so they rise where the dividend does."""
    dividend, divisor = operands
    if divisor.low != divisor.high or not 0 < divisor.low < math.inf:
        return Interval(0) if dividend.low >= 0 and divisor.low > 0 else ANY_NUMBER
    low, high = (
        x if math.isinf(x) else math.trunc(x / divisor.low) for x in (dividend.low, dividend.high)
    )
    return Interval(low, high)


def _interval_of_mod(node: ir.Node, operands: Sequence[Interval]) -> Interval:
    """Without ``fmod`` a remainder has the sign of the divisor."""
    divisor = operands[1]
    if attr_int(node, "fmod", 0) or divisor.low <= 0:
        return ANY_NUMBER
    return Interval(0, divisor.high - 1)


def _interval_of_range(_node: ir.Node, operands: Sequence[Interval]) -> Interval:
    start, limit, step = operands
    if step.low > 0:
        return Interval(start.low, max(start.low, limit.high - 1))
    return Interval(min(start.high, limit.low + 1), start.high) if step.high < 0 else ANY_NUMBER


def _interval_of_cumsum(node: ir.Node, operands: Sequence[Interval]) -> Interval:
    """A running sum of what is not negative starts with its first element, or with 0."""
    least = operands[0].low
    if least < 0:
        return ANY_NUMBER
    return Interval(0 if attr_int(node, "exclusive", 0) else least)


def _interval_of_sum(_node: ir.Node, operands: Sequence[Interval]) -> Interval:
    return Interval(0) if operands[0].low >= 0 else ANY_NUMBER


_RULES: Mapping[str, Callable[[ir.Node, Sequence[Interval]], Interval]] = {
    "Abs": lambda _, x: Interval(max(0, x[0].low, -x[0].high), x[0].magnitude),
    "Add": lambda _, x: x[0] + x[1],
    "Clip": _interval_of_clip,
    "CumSum": _interval_of_cumsum,
    "Div": _interval_of_div,
    "Max": lambda _, x: Interval(max(y.low for y in x), max(y.high for y in x)),
    "Min": lambda _, x: Interval(min(y.low for y in x), min(y.high for y in x)),
    "Mod": _interval_of_mod,
    "Mul": lambda _, x: x[0] * x[1],
    "Neg": lambda _, x: -x[0],
    "Range": _interval_of_range,
    "ReduceSum": _interval_of_sum,
    "Sub": lambda _, x: x[0] - x[1],
}
# They make sizes, places or numbers of elements.
_COUNTING = ops.MEASURES | ops.named("ArgMax ArgMin NonZero")
# Each element of the result is one of an input.
_JOINING = ops.named("Concat Where")
