"""Sizes that Pads add to a tensor and Slices cut from it. Nothing here edits."""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
import sympy

from graphfix.facts.pads import pad_mode, pads_of
from graphfix.facts.shapes import is_known_dim
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
class PaddedRows:
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


def padded_rows_of(value: ir.Value | None, axis: int, length: Dim, view: View) -> PaddedRows | None:
    """Return the table whose rows, zero-padded, are a tensor's rows along an axis, or None.

    Args:
        value: The tensor.
        axis: The axis.
        length: A size that the number of zeros may follow; where it is small, the rest is cut off.
        view: The model.
    """
    rank = view.shapes.rank(value)
    if value is None or rank is None or rank < 2:
        return None
    order, table_axis, shift, padded = list(range(rank)), axis % rank, sympy.Integer(0), False
    for _ in range(_DEEPEST):
        node = value.producer()
        source = node.inputs[0] if node is not None and node.inputs else None
        if node is None or source is None:
            break
        if is_op(node, "Transpose"):
            perm = attr_ints(node, "perm") or tuple(reversed(range(rank)))
            order, table_axis = [perm[x] for x in order], perm[table_axis]
        elif is_op(node, "Slice") and not padded:
            starts = slice_starts(node, view)
            if starts is None or not starts.keys() <= {table_axis}:
                return None
            first = starts.get(table_axis, sympy.Integer(0))
            if not is_never_negative_in(first, length):
                return None
            shift += first
        elif is_op(node, "Pad") and not padded:
            amounts = pad_amounts(node, view)
            if amounts is None or not amounts.keys() <= {table_axis} or not is_zero_padding(node):
                return None
            shift, padded = shift - amounts.get(table_axis, (sympy.Integer(0),))[0], True
        elif not is_op(node, "Identity"):
            break
        value = source
    dims = view.shapes.dims(value)
    count = dims[table_axis] if dims is not None else None
    if not padded or not isinstance(count, int):
        return None
    return PaddedRows(value, count, tuple(order), table_axis, sympy.expand(shift))


def is_never_negative_in(expr: sympy.Expr, length: Dim) -> bool:
    """Return whether an expression of one size alone is at least 0 where that size is not 0.

    Another size, such as that of a cache, may be 0.
    """
    number, variable_part = expr_of(length).as_coeff_Add()
    if variable_part.is_Mul or (variable_part.is_Symbol and not number):
        return expr.free_symbols <= variable_part.free_symbols and never_negative(
            sympy.expand(expr)
        )
    shifted = sympy.expand(expr.subs(variable_part, _SIZE - number))
    return shifted.free_symbols <= {_SIZE} and never_negative(shifted)


def as_integer(expr: sympy.Expr) -> int | None:
    """Return the whole number that an expression is; None if it depends on a size."""
    number = sympy.expand(expr)
    return int(number) if number.is_Integer else None


def slice_starts(node: ir.Node, view: View) -> Mapping[int, sympy.Expr] | None:
    """Return where a Slice starts on each axis that it cuts; None if unknown, or if it steps."""
    inputs = [*node.inputs[1:], None, None, None, None][:4]
    starts = ints_of(inputs[0]) or view.shapes.known_elements(inputs[0])
    dims = view.shapes.dims(node.inputs[0])
    if starts is None or dims is None or not all(map(is_known_dim, starts)):
        return None
    axes = range(len(starts)) if inputs[2] is None else ints_of(inputs[2])
    steps = (1,) if inputs[3] is None else ints_of(inputs[3])
    if axes is None or steps is None or any(x != 1 for x in steps):
        return None
    start_by_axis: dict[int, sympy.Expr] = {}
    out_dims = view.shapes.dims(node.outputs[0])
    for axis, start in zip(axes, starts, strict=True):
        data_axis = axis % len(dims)
        keeps_length = out_dims is not None and str(out_dims[data_axis]) == str(dims[data_axis])
        if keeps_length and isinstance(start, int) and (start == 0 or start <= _LOWEST):
            continue
        if isinstance(start, int) and start < 0:
            start_by_axis[data_axis] = (
                expr_of(dims[data_axis]) + start if start > _LOWEST else sympy.Integer(0)
            )
        else:
            start_by_axis[data_axis] = expr_of(start)
    return start_by_axis


def pad_amounts(node: ir.Node, view: View) -> Mapping[int, tuple[sympy.Expr, sympy.Expr]] | None:
    """Return what a Pad adds before and behind each axis that it changes; None if unknown."""
    pads, rank = pads_of(node, view), view.shapes.rank(node.inputs[0])
    if pads is None or rank is None or not all(map(is_known_dim, pads)):
        return None
    axes_input = input_at(node, 3)
    axes = range(rank) if axes_input is None else ints_of(axes_input)
    if axes is None or 2 * len(axes) != len(pads):
        return None
    ends = zip(pads[: len(axes)], pads[len(axes) :], strict=True)
    padded = [(x, *amounts) for x, amounts in zip(axes, ends, strict=True) if amounts != (0, 0)]
    return {axis % rank: (expr_of(front), expr_of(back)) for axis, front, back in padded}


def is_zero_padding(node: ir.Node) -> bool:
    """Return whether a Pad adds zeros."""
    if pad_mode(node) != "constant" or any(x.is_ref() for x in node.attributes.values()):
        return False
    value = input_at(node, 2)
    return value is None or scalar_of(value) == 0
