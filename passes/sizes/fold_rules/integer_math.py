"""Integer arithmetic that exporters write in many nodes, replaced exactly by fewer."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.editing.builder import Builder, Operand
from graphfix.graph.nodes import attr_int, is_op, producer_of, use_count

from ...common.fold_view import (
    INTEGERS,
    FoldView,
    Replacement,
    constant_of,
    exclusive_producer,
    forward_value,
    integer_of,
)
from ...common.pattern import operand, own, shared
from .floor_division import FloorDivision, build_floor_division

INTEGER_OPERATORS = frozenset({"Where", "Sub", "Add", "Slice", *ops.ORDER_COMPARISONS})
"""The operators that :func:`simplify_integers` looks at."""

_OR_EQUAL = 12  # the opset that brought LessOrEqual


# x // k, where the quotient is rounded towards 0 first.
_QUOTIENT = shared.Div("x", "divisor", name="quotient")
_REMAINDER = shared.Mod(  # with the sign of k
    "x", "modulus", name="remainder", where=lambda node: not attr_int(node, "fmod", 0)
)
_HAS_REMAINDER = shared.Not(shared.Equal(_REMAINDER, 0)) | shared.Cast(
    _REMAINDER, where=lambda node: attr_int(node, "to", 0) == ir.DataType.BOOL
)
_IS_ROUNDED_UP = own.And(shared.Less("x", 0), _HAS_REMAINDER)
_ONE_LESS = own.Sub(_QUOTIENT, 1) | own.Add(_QUOTIENT, -1)
_FLOOR_DIVISION = shared.Where(_IS_ROUNDED_UP, _ONE_LESS, _QUOTIENT) | shared.Sub(
    _QUOTIENT, own.Cast(_IS_ROUNDED_UP)
)

_ONE_MORE = own.Add("start", 1, name="total") | own.Sub("start", -1, name="total")
_LESS_THAN_ONE_MORE = shared.Less("lhs", _ONE_MORE) | shared.Greater(_ONE_MORE, "lhs")

_TO_FRONT = operand(where=lambda value: (integer_of(value) or 0) <= -(1 << 31) + 1)
_REVERSED = own.Slice("x", -1, _TO_FRONT, "first_axis", -1)
_SUM_OF_REVERSED = shared.Slice(
    own.CumSum(_REVERSED, "axis", name="sum"), -1, _TO_FRONT, "last_axis", -1
)


def simplify_integers(node: ir.Node, look: FoldView) -> Replacement | None:
    """Simplify floor divisions, chained additions, comparisons and reversed sums."""
    if not is_op(node, *INTEGER_OPERATORS) or len(node.outputs) != 1:
        return None
    if ops.ORDER_COMPARISONS.has(node):
        return _simplify_less(node, look) or _compare_narrowly(node, look)
    if look.view.shapes.dtype(node.outputs[0]) not in INTEGERS or look.data(node.outputs[0]):
        return None  # sizes are planned all at once
    if is_op(node, "Slice"):
        return _merge_reversed_cumsum(node, look)
    return _simplify_floor_division(node, look) or _merge_additions(node, look)


def _simplify_floor_division(node: ir.Node, look: FoldView) -> Replacement | None:
    """Simplify ``x // k``: exporters subtract 1 where x is below 0 and leaves a remainder.

    TorchScript chooses between the two with a Where, dynamo subtracts the condition. Fewer nodes
    do the same, except for the k smallest integers of the type, where they overflow.
    """
    division = _FLOOR_DIVISION.match(node)
    if division is None:
        return None
    x, remainder, divisor = (division[name] for name in ("x", "remainder", "divisor"))
    k = integer_of(divisor)
    if k is None or k < 1 or integer_of(division["modulus"]) != k:
        return None
    if look.dims(node.outputs[0]) != look.dims(x) or look.dims(x) is None:
        return None
    dtype = look.view.shapes.dtype(x) or ir.DataType.INT64

    def build(op: Builder) -> list[ir.Value]:
        if use_count(remainder) > 1:  # it is computed in any case
            return [op.Div(op.Sub(x, remainder), divisor)]
        return [build_floor_division(FloorDivision(x, 0, k), dtype, op)]

    return Replacement(f"it is {x.name!r} // {k}", build)


def _merge_additions(node: ir.Node, look: FoldView) -> Replacement | None:
    """Merge ``(x + 1) - 1`` to x and ``(x + 1) - 2`` to one addition."""
    second_addend = _constant_addend(node)
    first = producer_of(node.inputs[0])
    first_addend = _constant_addend(first) if is_op(first, "Add", "Sub") else None
    if second_addend is None or first is None or first_addend is None or first.inputs[0] is None:
        return None
    start, total = first.inputs[0], first_addend + second_addend
    dtype, dims = look.view.shapes.dtype(start), look.dims(start)
    if dtype not in INTEGERS or dims is None or dims != look.dims(node.outputs[0]):
        return None
    if total == 0:
        return forward_value(start, node)
    if abs(total) >= 1 << 31 or exclusive_producer(node.inputs[0], "Add", "Sub") is None:
        return None
    number = np.array(total, dtype.numpy())
    return Replacement("two numbers are added as one", lambda op: [op.Add(start, number)])


def _simplify_less(node: ir.Node, look: FoldView) -> Replacement | None:
    """Turn ``a < b + 1`` into ``a <= b``, which integers allow."""
    comparison = _LESS_THAN_ONE_MORE.match(node)
    if comparison is None:
        return None
    lhs, start, total = (comparison[name] for name in ("lhs", "start", "total"))
    if look.dims(start) is None or look.dims(total) != look.dims(start):
        return None
    if look.view.shapes.dtype(start) not in INTEGERS or look.view.opset_of_node(node) < _OR_EQUAL:
        return None
    return Replacement(
        f"it is {lhs.name!r} <= {start.name!r}", lambda op: [op.LessOrEqual(lhs, start)]
    )


def _compare_narrowly(node: ir.Node, look: FoldView) -> Replacement | None:
    """Compare as int32 what was cast to int64 to be compared with constants that int32 holds."""
    for index in (0, 1):
        cast = exclusive_producer(node.inputs[index], "Cast")
        source = None if cast is None else cast.inputs[0]
        array = constant_of(node.inputs[1 - index])
        if source is None or look.view.shapes.dtype(source) != ir.DataType.INT32:
            continue
        if array is None or array.dtype != np.int64 or array.size == 0:
            continue
        if np.iinfo(np.int32).min <= array.min() and array.max() <= np.iinfo(np.int32).max:
            narrow = array.astype(np.int32)
            operands = (source, narrow) if index == 0 else (narrow, source)
            build = partial(_build_comparison, node.op_type, operands)
            return Replacement(f"{source.name!r} can be compared as it is", build)
    return None


def _build_comparison(op_type: str, operands: Sequence[Operand], op: Builder) -> list[ir.Value]:
    return [op.make(op_type, *operands)]


def _constant_addend(node: ir.Node) -> int | None:
    """Return the integer that an Add or Sub adds on its right side, or None."""
    number = integer_of(node.inputs[1])
    return number if number is None or is_op(node, "Add") else -number


def _merge_reversed_cumsum(node: ir.Node, look: FoldView) -> Replacement | None:
    """Merge a CumSum between two Slices that reverse its axis."""
    reversed_sum = _SUM_OF_REVERSED.match(node)
    rank = None if reversed_sum is None else look.view.shapes.rank(reversed_sum["x"])
    if reversed_sum is None or rank is None:
        return None
    axes = [integer_of(reversed_sum[name]) for name in ("first_axis", "axis", "last_axis")]
    if None in axes or len({x % rank for x in axes if x is not None}) > 1:
        return None
    cumsum = reversed_sum["sum"].producer()
    assert cumsum is not None
    attributes = {
        "exclusive": attr_int(cumsum, "exclusive", 0),
        "reverse": 1 - attr_int(cumsum, "reverse", 0),
    }
    start, at = reversed_sum["x"], reversed_sum["axis"]
    return Replacement("it is a sum from the end", lambda op: [op.CumSum(start, at, **attributes)])
