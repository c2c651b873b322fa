"""Integers of more than 32 bits, as far as the constants of a graph tell."""

from collections.abc import Sequence
from itertools import islice

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import reachable_from

WIDE_TYPES = (ir.DataType.INT64, ir.DataType.UINT64)

_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Sum", "Concat"})
_OF_FIRST_INPUT = frozenset(
    {"Neg", "Abs", "Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten"}
    | {"Expand", "Tile", "Slice", "Split", "Gather", "GatherND", "GatherElements"}
    | {"ReduceMax", "ReduceMin"}
)
_LOW, _HIGH = -(2**31), 2**32
_MAX_VISITED = 64


def has_wide_constant(value: ir.Value, view: View) -> bool:
    """Return whether a constant beyond 32 bits goes into what ``value`` holds.

    By sums, products, choices and layout. An input, a count or an index is not taken for one: it
    could be, but in no graph is it. Constants that only limit (Min, Max, Clip) are none either.
    """
    for source in islice(
        reachable_from([value], lambda x: _numeric_inputs(x.producer(), view)), _MAX_VISITED
    ):
        array = const_of(source)
        numbers = array.reshape(-1) if array is not None and array.dtype.kind in "iu" else ()
        if any(not _LOW <= int(x) < _HIGH for x in numbers):
            return True
    return False


def _numeric_inputs(node: ir.Node | None, view: View) -> Sequence[ir.Value | None]:
    """Return the inputs whose numbers are in what ``node`` makes."""
    if node is None:
        return ()
    if is_op(node, *_OF_FIRST_INPUT) or (
        is_op(node, "Cast") and view.shapes.dtype(node.inputs[0]) in WIDE_TYPES
    ):
        return node.inputs[:1]
    if is_op(node, "Where"):
        return node.inputs[1:]
    return node.inputs if is_op(node, *_ARITHMETIC) else ()
