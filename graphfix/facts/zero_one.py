"""Numbers that are nothing but 0 and 1."""

import numpy as np
import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import const_of, filler_of
from graphfix.graph.nodes import is_op
from graphfix.ops.broadcast import LOGIC

_LAYOUT = frozenset(
    {"Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Tile"}
    | {"Slice", "Split", "Gather", "GatherND", "GatherElements", "Trilu"}
)
ANSWERS = frozenset({*LOGIC, "IsInf", "IsNaN", "Not"})
"""Operators that answer yes or no."""
_NEAREST = 64


def truth_of(value: ir.Value, view: View) -> list[ir.Value] | None:
    """The integers and inputs that ``value`` is 0 and 1 by, if they are 0 and 1 themselves.

    None if it is not known to be a matter of 0 and 1 at all. An empty list is a proof.
    """
    pending, seen, given = [value], {value}, []
    while pending:
        top = pending.pop()
        array, node = const_of(top), top.producer()
        if array is None and is_op(node, "ConstantOfShape"):
            array = filler_of(node)
        if array is not None:
            if not bool(np.isin(array, (0, 1)).all()):
                return None
            continue
        dtype = view.shapes.dtype(top)
        if dtype == ir.DataType.BOOL or is_op(node, *ANSWERS):
            continue
        sources = _truths(node)
        if sources is None:
            if not top.is_graph_input() and (dtype is None or not dtype.is_integer()):
                return None
            given.append(top)
            continue
        new = [x for x in sources if x not in seen]
        seen.update(new)
        pending += new
        if len(seen) > _NEAREST:
            return None
    return given


def is_one(value: ir.Value | None) -> bool:
    """Whether ``value`` is a constant of ones."""
    array = const_of(value)
    return array is not None and bool((array == 1).all())


def _truths(node: ir.Node | None) -> list[ir.Value] | None:
    """The inputs which, if they hold only 0 and 1, make ``node`` do so too; None if none do."""
    if node is None:
        return None
    inputs = list(node.inputs)
    if is_op(node, "Cast", *_LAYOUT):
        inputs = inputs[:1]
    elif is_op(node, "Where"):
        inputs = inputs[1:]
    elif not is_op(node, "Mul", "Concat", "Min", "Max") and not (
        is_op(node, "Sub") and is_one(node.inputs[0])
    ):
        return None
    return [x for x in inputs if x is not None]
