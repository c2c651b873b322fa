"""The numbers of a Range, built with ConstantOfShape and CumSum."""

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.graph.constants import Array, const_of
from graphfix.graph.nodes import attr_int, is_op

from ...common.reshape_targets import with_axes
from .range_index import Count, IndexAxis, Term


def counted(count: Count, place: IndexAxis, op: Builder) -> ir.Value:
    """``start + CumSum(step, step, ...)``, where only the axis of the index is longer than 1."""
    number = count.dtype.numpy()
    shape = _shape(_length(count, op), place, op)
    steps = op.ConstantOfShape(shape, value=ir.tensor(np.array([count.step], number)))
    axis = np.array(place.axis, np.int64)
    if not isinstance(count.start, ir.Value) and count.start == count.step:
        return op.CumSum(steps, axis)  # 1, 2, 3, ... is what is counted so far, inclusive
    index = op.CumSum(steps, axis, exclusive=1)
    if isinstance(count.start, ir.Value):
        return op.Add(index, count.start)
    return op.Add(index, np.array(count.start, number)) if count.start else index


def _shape(length: ir.Value | Array, place: IndexAxis, op: Builder) -> ir.Value | Array:
    """``[1, 1, length]``: ones, and the length at the axis of the index."""
    ones = [np.ones(n, np.int64) for n in (place.axis, place.rank - 1 - place.axis)]
    if not isinstance(length, ir.Value):
        return np.concatenate([ones[0], length, ones[1]])
    parts = [x for x in (ones[0], length, ones[1]) if isinstance(x, ir.Value) or x.size]
    return length if len(parts) == 1 else op.Concat(*parts, axis=0)


def _length(count: Count, op: Builder) -> ir.Value | Array:
    """``max(0, (more - less + plus) / |step|)``, as a tensor [1] of int64."""
    plus, over = np.array([count.plus], np.int64), np.array([abs(count.step)], np.int64)
    more, less = (_vector(term, op) for term in (count.more, count.less))
    if more is not None:
        length = more if less is None else op.Sub(more, less)
        length = op.Add(length, plus) if count.plus else length
    elif less is not None:
        length = op.Sub(plus, less)
    else:
        return np.array([max(0, count.plus // abs(count.step))], np.int64)
    if abs(count.step) > 1:
        # Cut towards zero, which is what Range counts: plus rounds up, and below zero is zero.
        length = op.Div(length, over)
    return op.Max(length, np.zeros(1, np.int64)) if count.negative else length


def _vector(term: Term, op: Builder) -> ir.Value | None:
    """A tensor of one integer, as a tensor [1] of int64 that all Ranges of it share."""
    scalar = term.base
    if scalar is None:
        return None

    def build() -> ir.Value:
        value = _sized(scalar, op)
        if value is not None:
            return value
        value = scalar
        if term.dtype != ir.DataType.INT64:
            value = op.Cast(value, to=ir.DataType.INT64)
        if term.dims == ():
            return with_axes("Unsqueeze", value, (0,), op)
        return value if term.dims == (1,) else op.Reshape(value, np.ones(1, np.int64))

    return op.once(("length", scalar), build, scalar)


def _sized(scalar: ir.Value, op: Builder) -> ir.Value | None:
    """``Gather(Shape(x), 2)`` as ``Gather(Shape(x), [2])``, which needs no Unsqueeze."""
    node = scalar.producer()
    if not is_op(node, "Gather") or attr_int(node, "axis", 0) != 0:
        return None
    sizes, at = node.inputs[0], const_of(node.inputs[1])
    if at is None or at.ndim or sizes is None or not is_op(sizes.producer(), "Shape"):
        return None
    return op.Gather(sizes, at.reshape(1), axis=0)
