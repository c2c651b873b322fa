"""Nested floor divisions: the strides of convolutions, applied to a length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op, use_count

from ...common.fold_view import INTEGERS, FoldView, Replacement, exclusive_producer, has_same_shape
from ...common.pattern import own

# Up to here float32 holds every multiple of 0.5: no quotient of whole numbers, nor one more than
# it, is rounded up to the next whole number.
_MOST = 1 << 23
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)

_REMAINDER = own.Mod("y", "divisor", where=lambda node: not attr_int(node, "fmod", 0))
_MULTIPLE = own.Sub("y", _REMAINDER)


@dataclass(frozen=True)
class _Division:
    """The integer division ``(x + addend) // divisor``; a divisor of 1 is an addition, or none."""

    x: ir.Value
    addend: int
    divisor: int

    def applied_to(self, inner: _Division) -> _Division:
        """Return this division of the result of ``inner``, as one that rounds down once."""
        return _Division(
            inner.x, inner.addend + self.addend * inner.divisor, inner.divisor * self.divisor
        )


def merge_nested_divisions(node: ir.Node, look: FoldView) -> Replacement | None:
    """Merge ``(x // j + c) // k`` of an integer x to ``(x + c * j) // (j * k)``."""
    output = node.outputs[0]
    division = _whole_division(node, look)
    if division is None or look.data(output) or not has_same_shape(node, division.x, look):
        return None
    source_dtype = look.view.shapes.dtype(division.x) or ir.DataType.INT64
    dtype = look.view.shapes.dtype(output)
    if max(division.divisor, abs(division.addend)) >= _MOST or dtype is None:
        return None

    def build(op: Builder) -> list[ir.Value]:
        total = op.Add(division.x, np.array(division.addend, source_dtype.numpy()))
        divisor = np.array(division.divisor, dtype.numpy())
        if dtype in INTEGERS:
            return [op.Div(op.Sub(total, op.Mod(total, divisor)), divisor)]
        return [op.Floor(op.Div(op.Cast(total, to=dtype), divisor))]

    return Replacement(f"all of it is a division by {division.divisor}", build)


def _whole_division(node: ir.Node, look: FoldView) -> _Division | None:
    """Return the longest chain of divisions that ends with ``node`` as one division of integers.

    Whole numbers that are added and divided again need not have been rounded before.

    Returns:
        None if the chain rounds less than twice.
    """
    dtypes = look.view.shapes.dtype
    output_dtype = dtypes(node.outputs[0])
    source_types = INTEGERS if output_dtype in _FLOATS else (output_dtype,)
    total, longest, roundings = None, None, 0
    step: ir.Node | None = node
    while step is not None and (inner := _division_step(step, look)) is not None:
        total = inner if total is None else total.applied_to(inner)
        roundings += _rounds(step, inner, look)
        if roundings == 0:
            return None
        if roundings > 1 and dtypes(inner.x) in source_types:
            longest = total
        # The Mod of an integer division reads x as well.
        readers = use_count(inner.x) - (inner.divisor > 1 and dtypes(inner.x) in INTEGERS)
        is_alone = readers == 1 and not inner.x.is_graph_output()
        step = inner.x.producer() if is_alone else None
    return longest


def _rounds(step: ir.Node, division: _Division, look: FoldView) -> bool:
    """Return whether a step rounds down; of floats only a Floor does."""
    if division.divisor > 1:
        return look.view.shapes.dtype(step.outputs[0]) in INTEGERS
    return is_op(step, "Floor")


def _division_step(step: ir.Node, look: FoldView) -> _Division | None:
    """Return the division that one node computes, with the Mod and Sub before it; or None."""
    dtype, x = look.view.shapes.dtype(step.outputs[0]), step.inputs[0] if step.inputs else None
    if x is None or dtype not in (*INTEGERS, *_FLOATS):
        return None
    if is_op(step, "Floor") or (is_op(step, "Cast") and _casts_exactly(x, dtype, look)):
        return _Division(x, 0, 1)
    number = scalar_of(step.inputs[1]) if is_op(step, "Add", "Sub", "Div") else None
    if number is None or not float(number).is_integer():
        return None
    if not is_op(step, "Div"):
        return _Division(x, int(number if is_op(step, "Add") else -number), 1)
    dividend = _multiple_of(x, number) if dtype in INTEGERS else x
    return None if dividend is None or number <= 1 else _Division(dividend, 0, int(number))


def _casts_exactly(x: ir.Value, target: ir.DataType, look: FoldView) -> bool:
    """Return whether a Cast is of integers to floats, or of floats that a Floor made whole."""
    is_count = target in _FLOATS and look.view.shapes.dtype(x) in INTEGERS
    return is_count or exclusive_producer(x, "Floor") is not None


def _multiple_of(x: ir.Value, divisor: float) -> ir.Value | None:
    """Return y if x is ``y - y mod divisor``, so that dividing it rounds y down; or None."""
    multiple = _MULTIPLE.match(x)
    return multiple["y"] if multiple and scalar_of(multiple["divisor"]) == divisor else None
