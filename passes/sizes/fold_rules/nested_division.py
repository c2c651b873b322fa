"""Nested floor divisions: the strides of convolutions, applied to a length."""

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op, use_count

from ...common.lookup import INTEGERS, FoldView, Replacement, exclusive_producer, has_same_shape

# As far as float32 counts halves without a gap, no quotient of whole numbers, nor one more than it,
# is rounded to the next whole number.
_MOST = 1 << 23
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def merge_nested_divisions(node: ir.Node, look: FoldView) -> Replacement | None:
    """Merge ``(x // j + c) // k`` of an integer x to ``(x + c * j) // (j * k)``."""
    output, dtypes = node.outputs[0], look.view.shapes.dtype
    step: ir.Node | None = node
    # What is made is (x + more) // by, of the x that each step is given; what was rounded down
    # before whole numbers are added to it, and divided, need not have been.
    addend, total_divisor, floors, merged = 0, 1, 0, None
    while step is not None and (division := _division_step(step, look)) is not None:
        x, number, k = division
        addend, total_divisor = (addend + number) * k, total_divisor * k
        floors += dtypes(step.outputs[0]) in INTEGERS if k > 1 else is_op(step, "Floor")
        if step is node and not floors:
            return None
        if floors > 1 and dtypes(x) in (
            INTEGERS if dtypes(output) in _FLOATS else (dtypes(output),)
        ):
            merged = x, addend, total_divisor
        reader_count = use_count(x) - (k > 1 and dtypes(x) in INTEGERS)  # Mod reads it as well
        step = x.producer() if reader_count == 1 and not x.is_graph_output() else None
    if merged is None or look.data(output) or not has_same_shape(node, merged[0], look):
        return None
    x, addend, total_divisor = merged
    source_dtype, dtype = dtypes(x) or ir.DataType.INT64, dtypes(output)
    if max(total_divisor, abs(addend)) >= _MOST or dtype is None:
        return None

    def build(op: Builder) -> list[ir.Value]:
        total, divisor = (
            op.Add(x, np.array(addend, source_dtype.numpy())),
            np.array(total_divisor, dtype.numpy()),
        )
        if dtype in INTEGERS:
            return [op.Div(op.Sub(total, op.Mod(total, divisor)), divisor)]
        return [op.Floor(op.Div(op.Cast(total, to=dtype), divisor))]

    return Replacement(f"all of it is a division by {total_divisor}", build)


def _division_step(step: ir.Node, look: FoldView) -> tuple[ir.Value, int, int] | None:
    """Return (x, c, k) if a step computes ``(x + c) // k``, or None."""
    dtype, x = look.view.shapes.dtype(step.outputs[0]), step.inputs[0] if step.inputs else None
    if x is None or dtype not in (*INTEGERS, *_FLOATS):
        return None
    counted = dtype in _FLOATS and look.view.shapes.dtype(x) in INTEGERS
    if is_op(step, "Floor") or (
        is_op(step, "Cast") and (counted or exclusive_producer(x, "Floor"))
    ):
        return x, 0, 1
    number = scalar_of(step.inputs[1]) if is_op(step, "Add", "Sub", "Div") else None
    if number is None or not float(number).is_integer():
        return None
    if not is_op(step, "Div"):
        return x, int(number if is_op(step, "Add") else -number), 1
    if dtype in INTEGERS:  # less what Mod leaves
        difference = exclusive_producer(x, "Sub")
        remainder = None if difference is None else exclusive_producer(difference.inputs[1], "Mod")
        x = difference.inputs[0] if difference is not None else None
        if remainder is None or attr_int(remainder, "fmod", 0) or remainder.inputs[0] is not x:
            return None
        number = number if scalar_of(remainder.inputs[1]) == number else 0
    return (x, 0, int(number)) if x is not None and number > 1 else None
