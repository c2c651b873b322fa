"""Divisions that round down, one of the other: the strides of convolutions, taken off a length."""

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op, users_of

from ...common.lookup import INTEGERS, Look, Replacement, alone, same_shape

# As far as float32 counts halves without a gap, no quotient of whole numbers, nor one more than it,
# is rounded to the next whole number.
_MOST = 1 << 23
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def nested(node: ir.Node, look: Look) -> Replacement | None:
    """``(x // j + c) // k`` of a whole number x, which is ``(x + c * j) // (j * k)``."""
    made, dtypes = node.outputs[0], look.view.shapes.dtype
    step: ir.Node | None = node
    # What is made is (x + more) // by, of the x that each step is given; what was rounded down
    # before whole numbers are added to it, and divided, need not have been.
    more, by, floors, found = 0, 1, 0, None
    while step is not None and (taken := _taken(step, look)) is not None:
        x, number, k = taken
        more, by = (more + number) * k, by * k
        floors += dtypes(step.outputs[0]) in INTEGERS if k > 1 else is_op(step, "Floor")
        if step is node and not floors:
            return None
        if floors > 1 and dtypes(x) in (INTEGERS if dtypes(made) in _FLOATS else (dtypes(made),)):
            found = x, more, by
        read = users_of(x) - (k > 1 and dtypes(x) in INTEGERS)  # Mod reads it as well
        step = x.producer() if read == 1 and not x.is_graph_output() else None
    if found is None or look.data(made) or not same_shape(node, found[0], look):
        return None
    x, more, by = found
    whole, dtype = dtypes(x) or ir.DataType.INT64, dtypes(made)
    if max(by, abs(more)) >= _MOST or dtype is None:
        return None

    def build(op: Builder) -> list[ir.Value]:
        total, divisor = op.Add(x, np.array(more, whole.numpy())), np.array(by, dtype.numpy())
        if dtype in INTEGERS:
            return [op.Div(op.Sub(total, op.Mod(total, divisor)), divisor)]
        return [op.Floor(op.Div(op.Cast(total, to=dtype), divisor))]

    return Replacement(f"all of it is a division by {by}", build)


def _taken(step: ir.Node, look: Look) -> tuple[ir.Value, int, int] | None:
    """What a step is of, what is added to that, and what the sum is divided by."""
    dtype, x = look.view.shapes.dtype(step.outputs[0]), step.inputs[0] if step.inputs else None
    if x is None or dtype not in (*INTEGERS, *_FLOATS):
        return None
    counted = dtype in _FLOATS and look.view.shapes.dtype(x) in INTEGERS
    if is_op(step, "Floor") or (is_op(step, "Cast") and (counted or alone(x, "Floor"))):
        return x, 0, 1
    number = scalar_of(step.inputs[1]) if is_op(step, "Add", "Sub", "Div") else None
    if number is None or not float(number).is_integer():
        return None
    if not is_op(step, "Div"):
        return x, int(number if is_op(step, "Add") else -number), 1
    if dtype in INTEGERS:  # less what Mod leaves
        less = alone(x, "Sub")
        rest = None if less is None else alone(less.inputs[1], "Mod")
        x = less.inputs[0] if less is not None else None
        if rest is None or attr_int(rest, "fmod", 0) or rest.inputs[0] is not x:
            return None
        number = number if scalar_of(rest.inputs[1]) == number else 0
    return (x, 0, int(number)) if x is not None and number > 1 else None
