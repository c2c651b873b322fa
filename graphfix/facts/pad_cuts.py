"""Sizes that Pads add to a tensor and Slices cut from it. Nothing here edits."""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
import sympy

from graphfix.facts.pads import size_reader
from graphfix.facts.shapes import is_known_dim
from graphfix.facts.symbolic.expressions import Dim, expr_of
from graphfix.facts.symbolic.signs import never_negative
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.ops.axes import permutation_of
from graphfix.ops.pads import pad_fill, pad_mode, pads_by_axis
from graphfix.ops.slices import read_cuts

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
    walk = _RowWalk(rank, axis % rank, length, view)
    table = walk.walk_back(value)
    if table is None or not walk.padded:
        return None
    dims = view.shapes.dims(table)
    count = None if dims is None else dims[walk.axis]
    if not isinstance(count, int):
        return None
    return PaddedRows(table, count, tuple(walk.order), walk.axis, sympy.expand(walk.shift))


class _RowWalk:
    """A walk from some rows back to the table that they are rows of.

    Attributes:
        order: The axis of the tensor that the walk is at, for each axis of the first one.
        axis: The axis of that tensor that has the rows.
        shift: How many of its rows come before the first one.
        padded: Whether the walk has come through a Pad of zeros, which may be only one.
    """

    def __init__(self, rank: int, axis: int, length: Dim, view: View) -> None:
        self._view, self._length = view, length
        self.order, self.axis = [*range(rank)], axis
        self.shift: sympy.Expr = sympy.Integer(0)
        self.padded = False

    def walk_back(self, value: ir.Value) -> ir.Value | None:
        """Return the table; None if something on the way changes more than rows."""
        for _ in range(_DEEPEST):
            node = value.producer()
            source = node.inputs[0] if node is not None and node.inputs else None
            if node is None or source is None or not self._may_undo(node):
                break
            if not self._undo(node):
                return None
            value = source
        return value

    def _may_undo(self, node: ir.Node) -> bool:
        return is_op(node, "Transpose", "Identity") or (
            not self.padded and is_op(node, "Slice", "Pad")
        )

    def _undo(self, node: ir.Node) -> bool:
        """Take a node into account; return whether it changes nothing but rows."""
        if is_op(node, "Transpose"):
            perm = permutation_of(node, len(self.order))
            if not perm:
                return False
            self.order, self.axis = [perm[x] for x in self.order], perm[self.axis]
            return True
        if is_op(node, "Slice"):
            return self._undo_slice(node)
        return self._undo_pad(node) if is_op(node, "Pad") else True

    def _undo_slice(self, node: ir.Node) -> bool:
        starts = slice_starts(node, self._view)
        if starts is None or not starts.keys() <= {self.axis}:
            return False
        first = starts.get(self.axis, sympy.Integer(0))
        self.shift += first
        return is_never_negative_in(first, self._length)

    def _undo_pad(self, node: ir.Node) -> bool:
        amounts = pad_amounts(node, self._view)
        if amounts is None or not amounts.keys() <= {self.axis} or not is_zero_padding(node):
            return False
        self.shift -= amounts.get(self.axis, (sympy.Integer(0),))[0]
        self.padded = True
        return True


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
    dims, out_dims = view.shapes.dims(node.inputs[0]), view.shapes.dims(node.outputs[0])
    if dims is None:
        return None
    cuts = read_cuts(node, len(dims), size_reader(view))
    if cuts is None:
        return None
    start_by_axis: dict[int, sympy.Expr] = {}
    for axis, (start, _, step) in cuts.items():
        if start is None or not is_known_dim(start) or step != 1:
            return None
        keeps_length = out_dims is not None and str(out_dims[axis]) == str(dims[axis])
        if not (keeps_length and _is_first_element(start)):
            start_by_axis[axis] = _count_before(start, dims[axis])
    return start_by_axis


def _is_first_element(start: Dim) -> bool:
    """Return whether a Slice that starts here starts with the first element of any axis."""
    return isinstance(start, int) and (start == 0 or start <= _LOWEST)


def _count_before(start: Dim, size: Dim) -> sympy.Expr:
    """Return how many elements of an axis come before the start of a Slice."""
    if not isinstance(start, int) or start >= 0:
        return expr_of(start)
    return sympy.Integer(0) if start <= _LOWEST else expr_of(size) + start


def pad_amounts(node: ir.Node, view: View) -> Mapping[int, tuple[sympy.Expr, sympy.Expr]] | None:
    """Return what a Pad adds before and behind each axis that it changes; None if unknown."""
    rank = view.shapes.rank(node.inputs[0])
    if rank is None:
        return None
    pads = pads_by_axis(node, rank, size_reader(view))
    if pads is None or not all(is_known_dim(x) for ends in pads.values() for x in ends):
        return None
    return {
        axis: (expr_of(before), expr_of(behind))
        for axis, (before, behind) in pads.items()
        if (before, behind) != (0, 0)
    }


def is_zero_padding(node: ir.Node) -> bool:
    """Return whether a Pad adds zeros."""
    if any(x.is_ref() for x in node.attributes.values()):
        return False
    return pad_mode(node) == "constant" and pad_fill(node) == 0
