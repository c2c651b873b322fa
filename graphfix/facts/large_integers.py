"""Integers of more than 32 bits, as far as the constants of a graph tell."""

from collections.abc import Sequence
from itertools import islice

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import reachable_from

WIDE_TYPES = (ir.DataType.INT64, ir.DataType.UINT64)

# A wide constant that limits or divides does not make the result wide.
_CARRIES_ALL_INPUTS = ops.ARITHMETIC - ops.named("Min Max Div Mod BitwiseAnd") | {"Concat"}
_CARRIES_FIRST_INPUT = ops.MOVES_FIRST_INPUT | ops.REDUCES_TO_EXTREME | ops.named("Neg Abs")
_LOW, _HIGH = -(2**31), 2**32
_MAX_VISITED = 64


def has_wide_constant(value: ir.Value, view: View) -> bool:
    """Return whether a constant beyond 32 bits goes into what ``value`` holds.

    It may go there by sums, products, choices and layout. An input, a count or an index is taken
    to be small: it could be wide, but in no graph is it. Constants that only limit (Min, Max, Clip)
    do not count either.
    """
    sources = reachable_from([value], lambda x: _numeric_inputs(x.producer(), view))
    return any(map(_is_wide_constant, islice(sources, _MAX_VISITED)))


def _is_wide_constant(value: ir.Value) -> bool:
    array = const_of(value)
    if array is None or array.dtype.kind not in "iu":
        return False
    return any(not _LOW <= int(x) < _HIGH for x in array.reshape(-1))


def _numeric_inputs(node: ir.Node | None, view: View) -> Sequence[ir.Value | None]:
    """Return the inputs whose numbers decide how large those are that ``node`` makes."""
    if node is None:
        return ()
    is_wide_cast = is_op(node, "Cast") and view.shapes.dtype(node.inputs[0]) in WIDE_TYPES
    if node in _CARRIES_FIRST_INPUT or is_wide_cast:
        return node.inputs[:1]
    if is_op(node, "Where"):
        return node.inputs[1:]
    return node.inputs if node in _CARRIES_ALL_INPUTS else ()
