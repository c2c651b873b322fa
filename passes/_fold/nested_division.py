"""Divisions that round down, one of the other: the strides of convolutions, taken off a length."""

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.model.values import attr_int, is_op, maker_of, scalar_of, users_of

from .integer_math import addend, number_of
from .lookup import INTEGERS, Look, Replacement, alone

# As far as float32 counts without a gap, no quotient is rounded up to a whole number.
_MOST = 1 << 24


class Floored(NamedTuple):
    """``x // k``, by a Floor in ``floats``, as dynamo writes it, or else by what Mod leaves."""

    x: ir.Value
    k: int
    floats: ir.DataType | None = None


def nested(node: ir.Node, look: Look) -> Replacement | None:
    """``(x // j + c) // k``, which is ``(x + c * j) // (j * k)``."""
    last = _floored(node, look)
    if last is None:
        return None
    value, reads, more = last.x, 1 if last.floats else 2, 0
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
        if last.floats is None:
            return [op.Div(op.Sub(x, op.Mod(x, by)), by)]
        quotient = op.Div(op.Cast(x, to=last.floats), np.array(k, last.floats.numpy()))
        return [op.Cast(op.Floor(quotient), to=dtype)]

    return Replacement(f"all of it is a division by {k}", build)


def _floored(node: ir.Node, look: Look) -> Floored | None:
    dtype = look.view.shapes.dtype(node.outputs[0])
    if dtype not in INTEGERS or look.data(node.outputs[0]):  # sizes are planned all at once
        return None
    if is_op(node, "Div"):
        whole, k = alone(node.inputs[0], "Sub"), number_of(node.inputs[1])
        rest = None if whole is None else alone(whole.inputs[1], "Mod")
        x = None if rest is None or attr_int(rest, "fmod", 0) else rest.inputs[0]
        same = whole is not None and whole.inputs[0] is x
        fits = same and rest is not None and number_of(rest.inputs[1]) == k
        return Floored(x, k) if fits and x is not None and k is not None and k > 0 else None
    floor = alone(node.inputs[0], "Floor") if is_op(node, "Cast") else None
    quotient = None if floor is None else alone(floor.inputs[0], "Div")
    cast = None if quotient is None else alone(quotient.inputs[0], "Cast")
    by = None if quotient is None else scalar_of(quotient.inputs[1])
    if cast is None or by is None or by < 1 or by != int(by):
        return None
    x, floats = cast.inputs[0], look.view.shapes.dtype(cast.outputs[0])
    fits = floats in (ir.DataType.FLOAT, ir.DataType.DOUBLE) and look.view.shapes.dtype(x) == dtype
    return Floored(x, int(by), floats) if fits and x is not None else None
