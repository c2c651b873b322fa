"""Integers of more than 32 bits, as far as the constants of a graph tell."""

from collections.abc import Sequence
from itertools import islice

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import reached

WIDE = (ir.DataType.INT64, ir.DataType.UINT64)

_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Sum", "Concat"})
_FIRST = frozenset(
    {"Neg", "Abs", "Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten"}
    | {"Expand", "Tile", "Slice", "Split", "Gather", "GatherND", "GatherElements"}
    | {"ReduceMax", "ReduceMin"}
)
_LOW, _HIGH = -(2**31), 2**32
_NEAREST = 64


def is_made_wide(value: ir.Value, view: View) -> bool:
    """Whether a constant beyond 32 bits goes into what ``value`` holds.

    By sums, products, choices and layout. An input, a count or an index is not taken for one: it
    could be, but in no graph is it. Constants that only limit (Min, Max, Clip) are none either.
    """
    for source in islice(reached([value], lambda x: _sources(x.producer(), view)), _NEAREST):
        array = const_of(source)
        whole = array.reshape(-1) if array is not None and array.dtype.kind in "iu" else ()
        if any(not _LOW <= int(x) < _HIGH for x in whole):
            return True
    return False


def _sources(node: ir.Node | None, view: View) -> Sequence[ir.Value | None]:
    """The inputs whose numbers are in what ``node`` makes."""
    if node is None:
        return ()
    if is_op(node, *_FIRST) or (is_op(node, "Cast") and view.shapes.dtype(node.inputs[0]) in WIDE):
        return node.inputs[:1]
    if is_op(node, "Where"):
        return node.inputs[1:]
    return node.inputs if is_op(node, *_ARITHMETIC) else ()
