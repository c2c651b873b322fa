"""Nested floor divisions: the strides of convolutions, applied to a length."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import is_op, use_count

from ...common.fold_view import INTEGERS, FoldView, Replacement, exclusive_producer, has_same_shape
from .floor_division import FloorDivision, build_floor_division, read_floor_division

# Up to here float32 holds every multiple of 0.5: no quotient of whole numbers, nor one more than
# it, is rounded up to the next whole number.
_MOST = 1 << 23
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


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
        if dtype in INTEGERS:
            return [build_floor_division(division, source_dtype, op)]
        total = op.Add(division.x, np.array(division.addend, source_dtype.numpy()))
        divisor = np.array(division.divisor, dtype.numpy())
        return [op.Floor(op.Div(op.Cast(total, to=dtype), divisor))]

    return Replacement(f"all of it is a division by {division.divisor}", build)


def _whole_division(node: ir.Node, look: FoldView) -> FloorDivision | None:
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
        is_alone = use_count(inner.x) == inner.reads and not inner.x.is_graph_output()
        step = inner.x.producer() if is_alone else None
    return longest


def _rounds(step: ir.Node, division: FloorDivision, look: FoldView) -> bool:
    """Return whether a step rounds down; of floats only a Floor does."""
    if division.divisor > 1:
        return look.view.shapes.dtype(step.outputs[0]) in INTEGERS
    return is_op(step, "Floor")


def _division_step(step: ir.Node, look: FoldView) -> FloorDivision | None:
    """Return the division that one node computes, with those that round it down; or None."""
    dtype, x = look.view.shapes.dtype(step.outputs[0]), step.inputs[0] if step.inputs else None
    if x is None or dtype not in (*INTEGERS, *_FLOATS):
        return None
    if is_op(step, "Floor") or (is_op(step, "Cast") and _casts_exactly(x, dtype, look)):
        return FloorDivision(x, 0, 1)
    number = scalar_of(step.inputs[1]) if is_op(step, "Add", "Sub", "Div") else None
    if number is None or not float(number).is_integer():
        return None
    if not is_op(step, "Div"):
        return FloorDivision(x, int(number if is_op(step, "Add") else -number), 1)
    if number <= 1:
        return None
    if dtype not in INTEGERS:
        return FloorDivision(x, 0, int(number))
    return read_floor_division(step, look)


def _casts_exactly(x: ir.Value, target: ir.DataType, look: FoldView) -> bool:
    """Return whether a Cast is of integers to floats, or of floats that a Floor made whole."""
    is_count = target in _FLOATS and look.view.shapes.dtype(x) in INTEGERS
    return is_count or exclusive_producer(x, "Floor") is not None
