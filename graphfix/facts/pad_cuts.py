"""What Pads put on a tensor and Slices take off it, in sizes. Nothing here edits."""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
import sympy

from graphfix.facts.pads import mode_of, pads_of
from graphfix.facts.shapes import is_named
from graphfix.facts.symbolic.expressions import Dim, expr_of
from graphfix.facts.symbolic.signs import never_negative
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of, scalar_of
from graphfix.graph.nodes import attr_ints, input_at, is_op

# The lowest integers, from which a Slice starts that is to start at 0.
_LOWEST = -(1 << 31)
_DEEPEST = 8
_SIZE = sympy.Symbol("_size", integer=True, positive=True)


@dataclass(frozen=True)
class Rows:
    """``value[.., r, ..] = table[.., r + shift, ..]``, and 0 where the table has no such row.

    Attributes:
        table: The table.
        count: How many rows it has.
        order: The axis of the table that each axis of the value is.
        axis: The axis of the table that has the rows.
        shift: How many rows of the table come before the first.
    """

    table: ir.Value
    count: int
    order: tuple[int, ...]
    axis: int
    shift: sympy.Expr


def rows_of(value: ir.Value | None, axis: int, sized: Dim, view: View) -> Rows | None:
    """The table whose rows, with zeros around them, a tensor has along an axis.

    Args:
        value: The tensor.
        axis: The axis.
        sized: A size that how many zeros there are may follow; where it is small, what comes to lie
            outside is cut off.
        view: The model.
    """
    rank = view.shapes.rank(value)
    if value is None or rank is None or rank < 2:
        return None
    order, at, shift, padded = list(range(rank)), axis % rank, sympy.Integer(0), False
    for _ in range(_DEEPEST):
        node = value.producer()
        given = node.inputs[0] if node is not None and node.inputs else None
        if node is None or given is None:
            break
        if is_op(node, "Transpose"):
            perm = attr_ints(node, "perm") or tuple(reversed(range(rank)))
            order, at = [perm[x] for x in order], perm[at]
        elif is_op(node, "Slice") and not padded:
            starts = first_of(node, view)
            if starts is None or not starts.keys() <= {at}:
                return None
            first = starts.get(at, sympy.Integer(0))
            if not is_never_negative(first, sized):
                return None
            shift += first
        elif is_op(node, "Pad") and not padded:
            added = added_by(node, view)
            if added is None or not added.keys() <= {at} or not is_zero_padding(node):
                return None
            shift, padded = shift - added.get(at, (sympy.Integer(0),))[0], True
        elif not is_op(node, "Identity"):
            break
        value = given
    dims = view.shapes.dims(value)
    count = dims[at] if dims is not None else None
    if not padded or not isinstance(count, int):
        return None
    return Rows(value, count, tuple(order), at, sympy.expand(shift))


def is_never_negative(expr: sympy.Expr, sized: Dim) -> bool:
    """Whether an expression that follows one size and no other is at least 0 where that is not 0.

    Another size, such as that of a cache, may be 0.
    """
    number, rest = expr_of(sized).as_coeff_Add()
    if rest.is_Mul or (rest.is_Symbol and not number):
        return expr.free_symbols <= rest.free_symbols and never_negative(sympy.expand(expr))
    said = sympy.expand(expr.subs(rest, _SIZE - number))
    return said.free_symbols <= {_SIZE} and never_negative(said)


def whole(expr: sympy.Expr) -> int | None:
    """The whole number that an expression is; None if it follows a size."""
    number = sympy.expand(expr)
    return int(number) if number.is_Integer else None


def first_of(node: ir.Node, view: View) -> Mapping[int, sympy.Expr] | None:
    """Where a Slice starts, at each axis that it cuts; None if that is not known, or it steps."""
    given = [*node.inputs[1:], None, None, None, None][:4]
    starts = ints_of(given[0]) or view.shapes.data(given[0])
    dims = view.shapes.dims(node.inputs[0])
    if starts is None or dims is None or not all(map(is_named, starts)):
        return None
    axes = range(len(starts)) if given[2] is None else ints_of(given[2])
    steps = (1,) if given[3] is None else ints_of(given[3])
    if axes is None or steps is None or any(x != 1 for x in steps):
        return None
    found: dict[int, sympy.Expr] = {}
    after = view.shapes.dims(node.outputs[0])
    for axis, start in zip(axes, starts, strict=True):
        at = axis % len(dims)
        whole = after is not None and str(after[at]) == str(dims[at])
        if whole and isinstance(start, int) and (start == 0 or start <= _LOWEST):
            continue
        if isinstance(start, int) and start < 0:
            found[at] = expr_of(dims[at]) + start if start > _LOWEST else sympy.Integer(0)
        else:
            found[at] = expr_of(start)
    return found


def added_by(node: ir.Node, view: View) -> Mapping[int, tuple[sympy.Expr, sympy.Expr]] | None:
    """What a Pad puts before and behind each axis that it changes; None if that is not known."""
    pads, rank = pads_of(node, view), view.shapes.rank(node.inputs[0])
    if pads is None or rank is None or not all(map(is_named, pads)):
        return None
    given = input_at(node, 3)
    axes = range(rank) if given is None else ints_of(given)
    if axes is None or 2 * len(axes) != len(pads):
        return None
    ends = zip(pads[: len(axes)], pads[len(axes) :], strict=True)
    padded = [(x, *both) for x, both in zip(axes, ends, strict=True) if both != (0, 0)]
    return {axis % rank: (expr_of(front), expr_of(back)) for axis, front, back in padded}


def is_zero_padding(node: ir.Node) -> bool:
    """Whether a Pad puts zeros on."""
    if mode_of(node) != "constant" or any(x.is_ref() for x in node.attributes.values()):
        return False
    value = input_at(node, 2)
    return value is None or scalar_of(value) == 0
