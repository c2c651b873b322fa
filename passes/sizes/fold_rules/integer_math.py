"""Integer arithmetic that exporters write in many nodes, replaced exactly by fewer."""

from itertools import permutations

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.graph.nodes import attr_int, is_op, producer_of, use_count

from ...common.fold_view import (
    INTEGERS,
    FoldView,
    Replacement,
    exclusive_producer,
    forward_value,
    has_same_shape,
    integer_of,
)
from .floor_division import FloorDivision, build_floor_division

INTEGER_OPERATORS = frozenset({"Where", "Sub", "Add", "Slice", "Less", "Greater"})
"""The operators that :func:`simplify_integers` looks at."""

_OR_EQUAL = 12  # the opset that brought LessOrEqual


def simplify_integers(node: ir.Node, look: FoldView) -> Replacement | None:
    """Simplify floor divisions, chained additions, comparisons and reversed sums."""
    if not is_op(node, *INTEGER_OPERATORS) or len(node.outputs) != 1:
        return None
    if is_op(node, "Less", "Greater"):
        return _simplify_less(node, look)
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
    correction = _quotient_correction(node)
    division = producer_of(correction[1]) if correction else None
    if correction is None or not is_op(division, "Div"):
        return None
    x, divisor_value = division.inputs
    k = integer_of(divisor_value)
    if x is None or divisor_value is None or k is None or k < 1:
        return None
    remainder = _remainder_where_negative(correction[0], x, k)
    if remainder is None or look.dims(node.outputs[0]) != look.dims(x) or look.dims(x) is None:
        return None
    dtype = look.view.shapes.dtype(x) or ir.DataType.INT64

    def build(op: Builder) -> list[ir.Value]:
        if use_count(remainder) > 1:  # it is computed in any case
            return [op.Div(op.Sub(x, remainder), divisor_value)]
        return [build_floor_division(FloorDivision(x, 0, k), dtype, op)]

    return Replacement(f"it is {x.name!r} // {k}", build)


def _quotient_correction(node: ir.Node) -> tuple[ir.Value | None, ir.Value | None] | None:
    """Return the condition on which a node subtracts 1 from a quotient, and the quotient."""
    if is_op(node, "Where"):
        condition, less, quotient = node.inputs
        return (condition, quotient) if _is_less_by_one(less, quotient) else None
    if not is_op(node, "Sub"):
        return None
    quotient, cast = node.inputs
    caster = exclusive_producer(cast, "Cast")
    return None if caster is None else (caster.inputs[0], quotient)


def _remainder_where_negative(condition: ir.Value | None, x: ir.Value, k: int) -> ir.Value | None:
    """Return ``x mod k`` if a condition says that x is below 0 and that is not 0; or None."""
    conjunction = exclusive_producer(condition, "And")
    for sign, test in permutations(conjunction.inputs) if conjunction is not None else ():
        remainder = _remainder_of(test, x, k) if _is_below_zero(sign, x) else None
        if remainder is not None:
            return remainder
    return None


def _is_less_by_one(less: ir.Value | None, quotient: ir.Value | None) -> bool:
    node = exclusive_producer(less, "Sub", "Add")
    if node is None or node.inputs[0] is not quotient:
        return False
    return integer_of(node.inputs[1]) == (1 if is_op(node, "Sub") else -1)


def _is_below_zero(value: ir.Value | None, x: ir.Value) -> bool:
    node = producer_of(value)
    return is_op(node, "Less") and node.inputs[0] is x and integer_of(node.inputs[1]) == 0


def _remainder_of(value: ir.Value | None, x: ir.Value, k: int) -> ir.Value | None:
    """Return ``x mod k`` if ``value`` says whether it is not 0, or None."""
    node = producer_of(value)
    if is_op(node, "Not") and node.inputs[0] is not None:
        node = node.inputs[0].producer()
        if not is_op(node, "Equal") or integer_of(node.inputs[1]) != 0:
            return None
    elif not is_op(node, "Cast") or attr_int(node, "to", 0) != ir.DataType.BOOL:
        return None
    remainder = node.inputs[0]
    maker = producer_of(remainder)
    if not is_op(maker, "Mod") or attr_int(maker, "fmod", 0):  # which has the sign of x
        return None
    return remainder if maker.inputs[0] is x and integer_of(maker.inputs[1]) == k else None


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
    sum_index = int(is_op(node, "Less"))
    total, lhs = (
        exclusive_producer(node.inputs[sum_index], "Add", "Sub"),
        node.inputs[1 - sum_index],
    )
    start = None if total is None or _constant_addend(total) != 1 else total.inputs[0]
    if start is None or total is None or lhs is None or not has_same_shape(total, start, look):
        return None
    if look.view.shapes.dtype(start) not in INTEGERS or look.view.opset_of_node(node) < _OR_EQUAL:
        return None
    return Replacement(
        f"it is {lhs.name!r} <= {start.name!r}", lambda op: [op.LessOrEqual(lhs, start)]
    )


def _constant_addend(node: ir.Node) -> int | None:
    """Return the integer that an Add or Sub adds on its right side, or None."""
    number = integer_of(node.inputs[1])
    return number if number is None or is_op(node, "Add") else -number


def _merge_reversed_cumsum(node: ir.Node, look: FoldView) -> Replacement | None:
    """Merge a CumSum between two Slices that reverse its axis."""
    middle = exclusive_producer(node.inputs[0], "CumSum")
    first = None if middle is None else exclusive_producer(middle.inputs[0], "Slice")
    if middle is None or first is None or first.inputs[0] is None:
        return None
    rank = look.view.shapes.rank(first.inputs[0])
    axis = integer_of(middle.inputs[1])
    if rank is None or axis is None:
        return None
    if _reversed_axis(first, look) != axis % rank or _reversed_axis(node, look) != axis % rank:
        return None
    start, at = first.inputs[0], middle.inputs[1]
    attributes = {
        "exclusive": attr_int(middle, "exclusive", 0),
        "reverse": 1 - attr_int(middle, "reverse", 0),
    }
    return Replacement("it is a sum from the end", lambda op: [op.CumSum(start, at, **attributes)])


def _reversed_axis(node: ir.Node, look: FoldView) -> int | None:
    """Return the axis that a Slice reverses whole, or None."""
    rank = look.view.shapes.rank(node.inputs[0])
    if len(node.inputs) < 5 or rank is None:
        return None
    start, end, axis, step = (integer_of(x) for x in node.inputs[1:5])
    if start != -1 or step != -1 or end is None or axis is None or end > -(1 << 31) + 1:
        return None
    return axis % rank
