"""Proofs that numbers are nothing but 0 and 1."""

import numpy as np
import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import const_of, fill_value_of
from graphfix.graph.nodes import is_op
from graphfix.ops.broadcast import LOGIC

_LAYOUT = frozenset(
    {"Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Tile"}
    | {"Slice", "Split", "Gather", "GatherND", "GatherElements", "Trilu"}
)
BOOLEAN_OPS = frozenset({*LOGIC, "IsInf", "IsNaN", "Not"})
"""Operators that answer yes or no."""
_MAX_VISITED = 64


def zero_one_sources(value: ir.Value, view: View) -> list[ir.Value] | None:
    """Return the integers and inputs that must hold only 0 and 1 for ``value`` to do so.

    None if ``value`` is not known to be a matter of 0 and 1 at all. An empty list is a proof.
    """
    pending, visited, assumptions = [value], {value}, []
    while pending:
        top = pending.pop()
        array, node = const_of(top), top.producer()
        if array is None and is_op(node, "ConstantOfShape"):
            array = fill_value_of(node)
        if array is not None:
            if not bool(np.isin(array, (0, 1)).all()):
                return None
            continue
        dtype = view.shapes.dtype(top)
        if dtype == ir.DataType.BOOL or is_op(node, *BOOLEAN_OPS):
            continue
        sources = _deciding_inputs(node)
        if sources is None:
            if not top.is_graph_input() and (dtype is None or not dtype.is_integer()):
                return None
            assumptions.append(top)
            continue
        unvisited = [x for x in sources if x not in visited]
        visited.update(unvisited)
        pending += unvisited
        if len(visited) > _MAX_VISITED:
            return None
    return assumptions


def is_all_ones(value: ir.Value | None) -> bool:
    """Return whether ``value`` is a constant of ones."""
    array = const_of(value)
    return array is not None and bool((array == 1).all())


def _deciding_inputs(node: ir.Node | None) -> list[ir.Value] | None:
    """Return the inputs which, if all 0 and 1, make ``node`` so too; None if none do."""
    if node is None:
        return None
    inputs = list(node.inputs)
    if is_op(node, "Cast", *_LAYOUT):
        inputs = inputs[:1]
    elif is_op(node, "Where"):
        inputs = inputs[1:]
    elif not is_op(node, "Mul", "Concat", "Min", "Max") and not (
        is_op(node, "Sub") and is_all_ones(node.inputs[0])
    ):
        return None
    return [x for x in inputs if x is not None]
