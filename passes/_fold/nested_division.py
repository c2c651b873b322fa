"""Divisions that round down, one of the other: the strides of convolutions, taken off a length."""

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.model.values import attr_int, is_op, maker_of, scalar_of, users_of

from .integer_math import addend
from .lookup import INTEGERS, Look, Replacement, alone

# As far as float32 counts without a gap, no quotient is rounded up to a whole number.
_MOST = 1 << 24
# What such a division is written with, from its end: by TorchScript, and by dynamo.
_WRITTEN = (("Div", "Sub", "Mod"), ("Cast", "Floor", "Div"))


class Floored(NamedTuple):
    """``x // k``, in float32 or in integers, where two nodes read x."""

    x: ir.Value
    k: int
    floats: bool


def nested(node: ir.Node, look: Look) -> Replacement | None:
    """``(x // j + c) // k``, which is ``(x + c * j) // (j * k)``."""
    last = _floored(node, look)
    if last is None:
        return None
    value, reads, more = last.x, 2 - last.floats, 0
    total = maker_of(value)
    number = addend(total) if is_op(total, "Add", "Sub") and users_of(value) == reads else None
    if total is not None and number is not None and total.inputs[0] is not None:
        value, reads, more = total.inputs[0], 1, number
    first = None if (maker := value.producer()) is None else _floored(maker, look)
    if first is None or users_of(value) != reads or value.is_graph_output():
        return None
    more, k = more * first.k, last.k * first.k
    dtype = look.view.shapes.dtype(first.x) or ir.DataType.INT64
    if max(k, abs(more)) >= _MOST or look.dims(first.x) != look.dims(node.outputs[0]):
        return None

    def build(op: Builder) -> list[ir.Value]:
        x, by = op.Add(first.x, np.array(more, dtype.numpy())), np.array(k, dtype.numpy())
        if not last.floats:
            return [op.Div(op.Sub(x, op.Mod(x, by)), by)]
        quotient = op.Div(op.Cast(x, to=ir.DataType.FLOAT), np.array(k, np.float32))
        return [op.Cast(op.Floor(quotient), to=dtype)]

    return Replacement(f"all of it is a division by {k}", build)


def _floored(node: ir.Node, look: Look) -> Floored | None:
    dtypes = look.view.shapes.dtype
    whole = alone(node.inputs[0], "Sub", "Floor")
    last = None if whole is None else alone(whole.inputs[-1], "Mod", "Div")
    if whole is None or last is None or dtypes(node.outputs[0]) not in INTEGERS:
        return None
    (x, by), kinds = last.inputs, (node.op_type, whole.op_type, last.op_type)
    k, floats = scalar_of(by), is_op(node, "Cast")
    if kinds not in _WRITTEN or k is None or k < 1 or k != int(k) or look.data(node.outputs[0]):
        return None  # sizes are planned all at once
    if floats:
        cast = alone(x, "Cast") if dtypes(x) == ir.DataType.FLOAT else None
        x = cast.inputs[0] if cast is not None else None
    elif whole.inputs[0] is not x or scalar_of(node.inputs[1]) != k or attr_int(last, "fmod", 0):
        return None
    return Floored(x, int(k), floats) if x and dtypes(x) == dtypes(node.outputs[0]) else None
