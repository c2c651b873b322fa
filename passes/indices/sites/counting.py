"""Builds the numbers of a Range with ConstantOfShape and CumSum."""

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.graph.constants import Array, const_of
from graphfix.graph.nodes import attr_int, is_op

from ...common.reshape_targets import with_axes
from .range_index import IndexAxis, LinearTerm, RangeCount


def build_count(count: RangeCount, index_axis: IndexAxis, op: Builder) -> ir.Value:
    """Build ``start + CumSum(step, step, ...)``, longer than 1 only along the index axis."""
    number = count.dtype.numpy()
    shape = _build_shape(_build_length(count, op), index_axis, op)
    steps = op.ConstantOfShape(shape, value=ir.tensor(np.array([count.step], number)))
    axis = np.array(index_axis.axis, np.int64)
    if not isinstance(count.start, ir.Value) and count.start == count.step:
        return op.CumSum(steps, axis)  # 1, 2, 3, ... is what is counted so far, inclusive
    index = op.CumSum(steps, axis, exclusive=1)
    if isinstance(count.start, ir.Value):
        return op.Add(index, count.start)
    return op.Add(index, np.array(count.start, number)) if count.start else index


def _build_shape(length: ir.Value | Array, index_axis: IndexAxis, op: Builder) -> ir.Value | Array:
    """Build ``[1, 1, length]``: ones, and the length at the axis of the index."""
    unit_dims = [
        np.ones(n, np.int64) for n in (index_axis.axis, index_axis.rank - 1 - index_axis.axis)
    ]
    if not isinstance(length, ir.Value):
        return np.concatenate([unit_dims[0], length, unit_dims[1]])
    parts = [x for x in (unit_dims[0], length, unit_dims[1]) if isinstance(x, ir.Value) or x.size]
    return length if len(parts) == 1 else op.Concat(*parts, axis=0)


def _build_length(count: RangeCount, op: Builder) -> ir.Value | Array:
    """Build ``max(0, (minuend - subtrahend + plus) / |step|)``, as a tensor [1] of int64."""
    plus, step_size = np.array([count.plus], np.int64), np.array([abs(count.step)], np.int64)
    minuend, subtrahend = (_build_vector(term, op) for term in (count.minuend, count.subtrahend))
    if minuend is not None:
        length = minuend if subtrahend is None else op.Sub(minuend, subtrahend)
        length = op.Add(length, plus) if count.plus else length
    elif subtrahend is not None:
        length = op.Sub(plus, subtrahend)
    else:
        return np.array([max(0, count.plus // abs(count.step))], np.int64)
    if abs(count.step) > 1:
        # Cut towards zero, which is what Range counts: plus rounds up, and below zero is zero.
        length = op.Div(length, step_size)
    return op.Max(length, np.zeros(1, np.int64)) if count.may_be_negative else length


def _build_vector(term: LinearTerm, op: Builder) -> ir.Value | None:
    """Build one integer as int64 [1], once for all Ranges of it; None for a constant."""
    scalar = term.base
    if scalar is None:
        return None

    def build() -> ir.Value:
        value = _gather_as_vector(scalar, op)
        if value is not None:
            return value
        value = scalar
        if term.dtype != ir.DataType.INT64:
            value = op.Cast(value, to=ir.DataType.INT64)
        if term.dims == ():
            return with_axes("Unsqueeze", value, (0,), op)
        return value if term.dims == (1,) else op.Reshape(value, np.ones(1, np.int64))

    return op.build_once(("length", scalar), build, scalar)


def _gather_as_vector(scalar: ir.Value, op: Builder) -> ir.Value | None:
    """Turn ``Gather(Shape(x), 2)`` into ``Gather(Shape(x), [2])``, which needs no Unsqueeze."""
    node = scalar.producer()
    if not is_op(node, "Gather") or attr_int(node, "axis", 0) != 0:
        return None
    sizes, at = node.inputs[0], const_of(node.inputs[1])
    if at is None or at.ndim or sizes is None or not is_op(sizes.producer(), "Shape"):
        return None
    return op.Gather(sizes, at.reshape(1), axis=0)
