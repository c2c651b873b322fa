"""How the graph uses the numbers of an input, element by element.

A comparison decides at one number, a Round at halves, a TopK between equal elements, a Clip cuts
infinity off: such numbers are met seldom by chance. They are found by following the input through
operators that move, shift or scale its elements, up to a constant.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from graphfix import ops
from graphfix.feeds.graph_uses import cast_type
from graphfix.feeds.laws import TESTS, Law, apply_law
from graphfix.graph.constants import const_of, scalar_of
from graphfix.graph.nodes import attribute_dict, input_at, is_op

# Of them the elements of the first input come out at other places, or all inputs one after another.
_MOVES = ops.MOVES_ELEMENTS | ops.IDLE | ops.named("Pad")
_SHIFTS = ops.named("Add Sub")
_SCALES = ops.named("Mul Div")
# Equal elements decide which of them comes first.
_RANKS = ops.RANKS | ops.named("NonMaxSuppression Unique")
_BOUNDS = ops.named("Clip Max Min")
_CLIP_INPUTS = {"min": 1, "max": 2}
# Whole numbers in, whole numbers out, each of them exact in its type.
_COUNTS = (ops.ARITHMETIC - ops.named("Pow")) | ops.named(
    "Neg Abs Sign Clip Where ReduceSum ReduceMax ReduceMin CumSum"
)
_MULTIPLIES = ops.named("Mul ReduceSum CumSum Sum")
_BITS = {ir.DataType.INT64: 64, ir.DataType.INT32: 32}
_UNBOUNDED = 128
_MOST_VALUES, _MOST_THRESHOLDS = 400, 8
# Halves that Round takes down and up, on both sides of 0.
_HALVES = (0.5, 2.5, -1.5, 1.5, -0.5)
_LARGEST_THRESHOLD = 1e6
# Multiples of 1/1024 below 1024 stay exact in a short sum or product of float32.
_LARGEST_SHORT = 1024.0
# Whole numbers that float64 holds; and a number from which others are counted, as dates are.
_LARGEST_INTEGER, _COUNTED_FROM = 2.0**53, 2.0**24


@dataclass(frozen=True)
class NumberUses:
    """What the numbers of one input meet.

    Attributes:
        thresholds: The numbers at which a comparison with a constant, a Mod or a bound decides, or
            between which a quantization rounds.
        ties: Whether halves, or equal elements, decide something.
        guarded: NaN and infinities that the graph replaces by numbers.
        exact_bits: The width of the whole numbers in which all that follows is computed; 0 where an
            index, a size or a float follows, for which not every whole number will do.
        multiplied: Whether whole numbers are multiplied or summed.
        as_one: Whether a 2 is the same to the graph as a 1: every use asks whether it is 0.
        as_zero: Whether a 2 is the same as a 0: every use asks whether it is 1.
    """

    thresholds: tuple[float, ...] = ()
    ties: bool = False
    guarded: tuple[float, ...] = ()
    exact_bits: int = 0
    multiplied: bool = False
    as_one: bool = False
    as_zero: bool = False


NO_USES = NumberUses()


def find_number_uses(value: ir.Value) -> NumberUses:
    """Return what the numbers of an input meet in the graph."""
    if value.dtype is None or not (value.dtype.is_integer() or value.dtype.is_floating_point()):
        return NO_USES
    walk = _Walk(is_integer=value.dtype.is_integer())
    walk.follow(value)
    bits, multiplied = _exact_bits(value)
    return NumberUses(
        tuple(dict.fromkeys(walk.thresholds))[:_MOST_THRESHOLDS],
        walk.ties,
        tuple(walk.guarded),
        bits,
        multiplied,
        walk.takes_two_for(1),
        walk.takes_two_for(0),
    )


class _Line(NamedTuple):
    """What an element of the input has become: ``slope * x + offset``."""

    slope: float = 1.0
    offset: float = 0.0

    def result_of(self, number: float) -> float:
        """Return what an element of this size becomes."""
        return self.slope * number + self.offset

    def start_of(self, number: float, is_integer: bool) -> float | None:
        """Return the element that becomes this number exactly; None if rounding may be between."""
        if not self.slope or not math.isfinite(number):
            return None
        start = (number - self.offset) / self.slope
        if is_integer:
            return start if start.is_integer() and abs(start) <= _LARGEST_INTEGER else None
        is_short = abs(start) < _LARGEST_SHORT and (start * _LARGEST_SHORT).is_integer()
        is_exact = self == (1.0, 0.0) or (is_short and self.result_of(start) == number)
        return start if is_exact and abs(start) <= _LARGEST_THRESHOLD else None

    def through_constant(self, node: ir.Node, index: int, number: float) -> _Line | None:
        """Return the line behind an Add, Sub, Mul or Div with a number; None if it is none."""
        slope, offset = self
        match node.op_type:
            case "Add":
                return _Line(slope, offset + number)
            case "Sub":
                return _Line(-slope, number - offset) if index else _Line(slope, offset - number)
            case "Mul":
                return _Line(slope * number, offset * number)
            case _:
                return None if index or not number else _Line(slope / number, offset / number)


@dataclass
class _Walk:
    """Follows an input to the nodes that decide by its elements.

    Attributes:
        is_integer: Whether the input holds whole numbers.
        thresholds: See :class:`NumberUses`.
        ties: See there.
        guarded: See there, each once.
    """

    is_integer: bool
    thresholds: list[float] = field(default_factory=list)
    ties: bool = False
    guarded: dict[float, None] = field(default_factory=dict)
    _tests: list[tuple[bool, bool, bool]] = field(default_factory=list)  # of 0, of 1, of 2
    _only_tests: bool = True
    _visited: set[ir.Value] = field(default_factory=set)
    _queue: deque[tuple[ir.Value, _Line | None]] = field(default_factory=deque)

    def follow(self, start: ir.Value) -> None:
        """Follow an input through the graph."""
        self._push(start, _Line())
        while self._queue and len(self._visited) < _MOST_VALUES:
            value, line = self._queue.popleft()
            self._only_tests &= not value.is_graph_output()
            for node, index in value.uses():
                self._visit(node, index, line)

    def takes_two_for(self, number: int) -> bool:
        """Return whether all that becomes of a 2 is what becomes of 0, or of 1."""
        tests = [test for test in self._tests if test[0] != test[1]]
        return self._only_tests and bool(tests) and all(x[2] == x[number] for x in tests)

    def _push(self, value: ir.Value, line: _Line | None) -> None:
        if value not in self._visited:
            self._visited.add(value)
            self._queue.append((value, line))

    def _visit(self, node: ir.Node, index: int, line: _Line | None) -> None:
        if node in ops.READS_ONLY_SHAPE:
            return
        if index in (*ops.size_inputs(node), *ops.index_inputs(node)):
            self._only_tests = False
        elif node in ops.COMPARISONS:
            self._visit_comparison(node, index, line)
        elif node in ops.CASTS:
            self._visit_cast(node, line)
        elif node in _MOVES:
            self._push(node.outputs[0], line)
        elif node in _SHIFTS | _SCALES:
            self._visit_scale(node, index, line)
        else:
            self._only_tests = False
            self._visit_law(node, index, line)

    def _visit_comparison(self, node: ir.Node, index: int, line: _Line | None) -> None:
        self.ties = True
        number = scalar_of(node.inputs[1 - index])
        if number is None or line is None:
            self._only_tests = False
            return
        self._note_thresholds(line, [float(number)])
        law, limit = TESTS[node.op_type], float(number)
        self._note_test(line, lambda x: law(limit, x) if index else law(x, limit))

    def _visit_cast(self, node: ir.Node, line: _Line | None) -> None:
        to = cast_type(node)
        if to == ir.DataType.BOOL and line is not None:
            self._note_test(line, bool)
        elif to is not None and to.is_integer() and not self.is_integer:
            self.ties, self._only_tests = True, False
        else:
            self._push(node.outputs[0], line)

    def _visit_scale(self, node: ir.Node, index: int, line: _Line | None) -> None:
        """Follow it through a sum or product with constants, but not into other data."""
        operand = node.inputs[1 - index]
        if const_of(operand) is None:
            self._only_tests = False
            return
        number = scalar_of(operand)
        behind = None
        if number is not None and line is not None:
            behind = line.through_constant(node, index, float(number))
            if self.is_integer and is_op(node, "Div"):  # the next whole part begins there
                behind = None
                self._note_thresholds(line, [] if index else [float(number)])
            elif self.is_integer and behind is not None and abs(number) > _COUNTED_FROM:
                self._note_thresholds(behind, [0.0])
        self._push(node.outputs[0], behind)

    def _visit_law(self, node: ir.Node, index: int, line: _Line | None) -> None:
        result = node.outputs[0]
        if node in _RANKS:
            self.ties = True
        elif is_op(node, "IsNaN"):
            self.guarded[math.nan] = None
        elif is_op(node, "IsInf"):
            self.guarded |= dict.fromkeys((math.inf, -math.inf))
        elif node in ops.ROUNDS_TO_INTEGERS:
            self._note_quantization(node, index, line)
        elif node in _BOUNDS:
            self._note_bounds(node, index, line)
            self._push(result, line)
        elif is_op(node, "Mod"):
            self._note_bounds(node, index, line)
            self._push(result, None)
        elif is_op(node, "Abs", "Where"):
            self._push(result, line)
        elif is_op(node, "Neg"):
            self._push(result, None if line is None else _Line(-line.slope, -line.offset))
        elif node in ops.MAPS_ELEMENTS | ops.SOFTMAXES:
            self._note_rounding(node, line)
            self._push(result, None)

    def _note_rounding(self, node: ir.Node, line: _Line | None) -> None:
        if node in ops.MAKES_WHOLE_NUMBERS:
            self.ties = True
            if line is not None:
                self._note_thresholds(line, _HALVES)

    def _note_quantization(self, node: ir.Node, index: int, line: _Line | None) -> None:
        scale = scalar_of(node.inputs[1]) if len(node.inputs) > 1 and not index else None
        if scale is not None and line is not None:
            self.ties = True
            self._note_thresholds(line, [x * float(scale) for x in _HALVES])

    def _note_bounds(self, node: ir.Node, index: int, line: _Line | None) -> None:
        """Note what a bound cuts off: infinity, or whole numbers past it."""
        if line is None or (index and not is_op(node, "Max", "Min")):
            return
        limits = [scalar_of(x) for i, x in enumerate(node.inputs) if i != index]
        if self.is_integer:
            self._note_thresholds(line, [float(x) for x in limits if x is not None])
            return
        sign = math.copysign(1.0, line.slope)
        if _has_bound(node, index, "Max", "min"):
            self.guarded[-sign * math.inf] = None
        if _has_bound(node, index, "Min", "max"):
            self.guarded[sign * math.inf] = None

    def _note_thresholds(self, line: _Line, numbers: Iterable[float]) -> None:
        starts = (line.start_of(x, self.is_integer) for x in numbers)
        self.thresholds += [x for x in starts if x is not None]

    def _note_test(self, line: _Line, test: Law) -> None:
        of_zero, of_one, of_two = (bool(apply_law(test, line.result_of(x))) for x in (0, 1, 2))
        self._tests.append((of_zero, of_one, of_two))


def _has_bound(node: ir.Node, index: int, operator: str, name: str) -> bool:
    """Return whether a node is a bound on one side: a Max or Min with a constant, or a Clip.

    Args:
        node: A Clip, Max, Min or Mod.
        index: The input that is bounded.
        operator: The operator that bounds on this side.
        name: What a Clip calls the bound, as its attribute before opset 11.
    """
    if is_op(node, operator):
        return any(const_of(x) is not None for i, x in enumerate(node.inputs) if i != index)
    if not is_op(node, "Clip"):
        return False
    return name in attribute_dict(node) or input_at(node, _CLIP_INPUTS[name]) is not None


def _exact_bits(start: ir.Value) -> tuple[int, bool]:
    """Return the width in which all that follows of whole numbers is computed, and if multiplied.

    0 if an index, a size, a float or a body follows.
    """
    bits, multiplied = _BITS.get(start.dtype or ir.DataType.UNDEFINED, 0), False
    visited, pending = {start}, [start]
    while pending and bits:
        if len(visited) > _MOST_VALUES:
            return 0, multiplied
        for node, index in pending.pop().uses():
            width = 0 if node.graph is not start.graph else _width_behind(node, index)
            bits = min(bits, width)
            multiplied |= node in _MULTIPLIES
            leads_on = width < _UNBOUNDED
            results = [x for x in node.outputs if leads_on and x not in visited]
            visited.update(results)
            pending += results
    return bits, multiplied


def _width_behind(node: ir.Node, index: int) -> int:
    """Return the width of whole numbers behind a node; more than any if it only tests them."""
    if node in ops.READS_ONLY_SHAPE | ops.COMPARISONS:
        return _UNBOUNDED
    if index in (*ops.size_inputs(node), *ops.index_inputs(node)):
        return 0
    if node in ops.CASTS:
        to = cast_type(node)
        return _UNBOUNDED if to == ir.DataType.BOOL else _BITS.get(to or ir.DataType.UNDEFINED, 0)
    if node in ops.RANKS:
        return _UNBOUNDED
    return max(_BITS.values()) if node in _COUNTS | _MOVES else 0
