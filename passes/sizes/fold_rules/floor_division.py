"""Divisions of integers that round down, where ONNX's own rounds to 0.

``(x + c) // k`` is one Div where ``x + c`` is proved to be 0 or more. Otherwise what is below 0 is
moved by ``k - 1``, with a Where; or the rest of the division is taken off first, with a Mod, of
which DirectML has no kernel for int64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.intervals import interval_of
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op

from ...common.fold_view import FoldView, exclusive_producer, integer_of
from ...common.pattern import own

_REMAINDER = own.Mod("x", "divisor", where=lambda node: not attr_int(node, "fmod", 0))
_MULTIPLE = own.Sub("x", _REMAINDER)


class FloorDivision(NamedTuple):
    """The division ``(x + addend) // divisor``, whose nodes read x ``reads`` times.

    A divisor of 1 is an addition, or none.
    """

    x: ir.Value
    addend: int
    divisor: int
    reads: int = 1

    def applied_to(self, inner: FloorDivision) -> FloorDivision:
        """Return this division of the result of ``inner``, as one that rounds down once."""
        return FloorDivision(
            inner.x,
            inner.addend + self.addend * inner.divisor,
            inner.divisor * self.divisor,
            inner.reads,
        )


def read_floor_division(node: ir.Node, look: FoldView) -> FloorDivision | None:
    """Return the division that a Div of integers ends, or None if it may round up."""
    dividend, divisor = node.inputs[0], integer_of(node.inputs[1])
    if not is_op(node, "Div") or dividend is None or divisor is None or divisor < 1:
        return None
    if (x := _without_rest(dividend, divisor)) is not None:
        return FloorDivision(x, 0, divisor, reads=2)
    if (moved := _before_move(dividend, divisor)) is not None:
        return moved
    is_whole = interval_of(dividend, look.view).low >= 0
    return FloorDivision(dividend, 0, divisor) if is_whole else None


def _without_rest(dividend: ir.Value, divisor: int) -> ir.Value | None:
    """Return x if a dividend is ``x - x mod divisor``, or None."""
    multiple = _MULTIPLE.match(dividend)
    return multiple["x"] if multiple and scalar_of(multiple["divisor"]) == divisor else None


def _before_move(dividend: ir.Value, divisor: int) -> FloorDivision | None:
    """Return the division if a dividend is ``x + Where(x < -c, c - (divisor - 1), c)``."""
    total = exclusive_producer(dividend, "Add")
    move = None if total is None else exclusive_producer(total.inputs[1], "Where")
    below = None if move is None else exclusive_producer(move.inputs[0], "Less")
    if total is None or move is None or below is None or total.inputs[0] is None:
        return None
    x, (low, addend) = total.inputs[0], map(integer_of, move.inputs[1:])
    if low is None or addend is None or below.inputs[0] is not x or addend - low != divisor - 1:
        return None
    is_sign = integer_of(below.inputs[1]) == -addend
    return FloorDivision(x, addend, divisor, reads=2) if is_sign else None


def build_floor_division(division: FloorDivision, dtype: ir.DataType, op: Builder) -> ir.Value:
    """Build a division of integers of a type, which rounds down."""
    x, addend, k, _ = division

    def number(integer: int) -> ir.Value:
        return op.constant(np.array(integer, dtype.numpy()))

    if interval_of(x, op.view).low + addend >= 0:
        return op.Div(op.Add(x, number(addend)) if addend else x, number(k))
    if dtype == ir.DataType.INT64:
        move = op.Where(op.Less(x, number(-addend)), number(addend - k + 1), number(addend))
        return op.Div(op.Add(x, move), number(k))
    total = op.Add(x, number(addend)) if addend else x
    return op.Div(op.Sub(total, op.Mod(total, number(k))), number(k))
