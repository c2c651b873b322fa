"""Rows that Pads, Reshapes and Slices shift, each by one more than the last. Nothing here edits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import onnx_ir as ir
import sympy

from graphfix.facts.pad_cuts import is_never_negative_in, is_zero_padding, pad_amounts, slice_starts
from graphfix.facts.shapes import is_known_dim, same_dim, same_dims
from graphfix.facts.symbolic.expressions import Dim, expr_of
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, is_op

Sizes = Sequence[sympy.Expr]
Ends = tuple[sympy.Expr, sympy.Expr]
"""How much is added in front of an axis and behind it."""

# Two Pads, two Reshapes and two Slices; this only bounds the walk.
_MAX_DEPTH = 16
# At this size it is guessed how often one number goes into another; the guess is proved.
_LARGE = 10007


@dataclass(frozen=True)
class ShiftedRows:
    """``y[.., i, j] = source[.., i, direction * i + j + shift]``.

    Attributes:
        source: What is moved.
        direction: -1 where each row goes one further to the right than the row above it, else 1.
        shift: Where the first row begins.
        reads_outside: Whether columns are read that the source does not have; they are 0.
        rows: The number of rows, which is the same before and after.
    """

    source: ir.Value
    direction: int
    shift: sympy.Expr
    reads_outside: bool
    rows: Dim


class LinearIndex(NamedTuple):
    """``a * i + b * j + c``, for row i and column j of what is read."""

    a: sympy.Expr
    b: sympy.Expr
    c: sympy.Expr

    def plus(self, addend: LinearIndex) -> LinearIndex:
        """Add another index."""
        return LinearIndex(*(sympy.expand(x + y) for x, y in zip(self, addend, strict=True)))

    def times(self, factor: sympy.Expr) -> LinearIndex:
        """Multiply by a factor."""
        return LinearIndex(*(sympy.expand(x * factor) for x in self))

    def shifted_by(self, by: sympy.Expr) -> LinearIndex:
        """Move on by so many."""
        return LinearIndex(self.a, self.b, sympy.expand(self.c + by))


def shifted_rows_of(value: ir.Value | None, view: View) -> ShiftedRows | None:
    """Return the shift of a tensor's rows, if Pads, Concats, Reshapes and Slices do only that.

    It is proved for every number of rows but 0: what a Reshape takes out of one row and puts into
    another must come to lie in one row again, or be padding that is 0.
    """
    dims = view.shapes.dims(value)
    if value is None or dims is None or len(dims) < 2 or isinstance(dims[-2], int):
        return None
    return _BackwardWalk(dims, view).walk_back(value) if all(map(is_known_dim, dims)) else None


def linear_coefficients(expr: sympy.Expr, rows: Dim) -> tuple[int, int] | None:
    """Return ``factor, number`` of ``factor * rows + number``, both whole, or None."""
    rows_expr = expr_of(rows)
    symbols = sorted(rows_expr.free_symbols, key=str)
    if not symbols:
        return None
    sizes = [dict.fromkeys(symbols, _LARGE + more) for more in (0, _LARGE)]
    (x0, x1), (y0, y1) = ([e.subs(s) for s in sizes] for e in (rows_expr, expr))
    factor = (y1 - y0) / (x1 - x0) if x1 != x0 else sympy.nan
    if not factor.is_Integer or not (number := sympy.expand(expr - factor * rows_expr)).is_Integer:
        return None
    return int(factor), int(number)


class _BackwardWalk:
    """A walk from the tensor that is read back to the one whose rows are shifted.

    Attributes:
        place: Where element i, j of what is read lies in the rows of the tensor that the walk is
            at, one behind the other.
        reads_outside: Whether it may lie before the first row or after the last; then it is 0.
    """

    def __init__(self, dims: Sequence[Dim], view: View) -> None:
        self._view = view
        self._lead, self._rows = dims[:-2], dims[-2]
        rows, cols = map(expr_of, dims[-2:])
        self._ends = (rows - 1, cols - 1)
        self.place = LinearIndex(cols, sympy.Integer(1), sympy.Integer(0))
        self.reads_outside = False
        self._result: ShiftedRows | None = None

    def walk_back(self, value: ir.Value) -> ShiftedRows | None:
        """Walk back from ``value`` and return the shifted rows farthest back, or None."""
        for _ in range(_MAX_DEPTH):
            node, after = value.producer(), self._inner_sizes(value)
            if node is None or after is None:
                break
            source = (
                self._undo_concat(node, after)
                if is_op(node, "Concat")
                else self._step_back(node, after)
            )
            if source is None:
                break
            value = source
            self._record_if_shifted(value)
        return self._result

    def _step_back(self, node: ir.Node, after: Sizes) -> ir.Value | None:
        """Return the input of a node if its rows are shifted too; None if the walk ends there."""
        source = node.inputs[0] if node.inputs else None
        before = self._inner_sizes(source)
        if source is None or before is None:
            return None
        if is_op(node, "Reshape", "Identity", "Squeeze", "Unsqueeze"):
            return source
        # The first axes must be those of what is read, one by one.
        rank = self._view.shapes.rank(source)
        if len(before) != len(after) or rank != len(self._lead) + len(before):
            return None
        if is_op(node, "Slice") and self._undo_slice(node, before, after):
            return source
        return (
            source if is_op(node, "Pad") and self._undo_pad(node, source, before, after) else None
        )

    def _undo_slice(self, node: ir.Node, before: Sizes, after: Sizes) -> bool:
        starts, count = slice_starts(node, self._view), len(self._lead)
        if starts is None or self.reads_outside:
            return False
        if any(x != 0 for axis, x in starts.items() if axis < count):
            return False
        if not all(is_never_negative_in(x, self._rows) for x in starts.values()):
            return False
        first = [starts.get(count + i, sympy.Integer(0)) for i in range(len(before))]
        if len(before) == 1:
            self.place = self.place.shifted_by(first[0])
        elif first[1] == 0 and sympy.expand(before[1] - after[1]) == 0:
            self.place = self.place.shifted_by(first[0] * before[1])
        else:
            row_and_col = self._split_rows(after[1])
            if row_and_col is None:
                return False
            row, col = row_and_col
            self.place = row.shifted_by(first[0]).times(before[1]).plus(col.shifted_by(first[1]))
        return True

    def _undo_pad(self, node: ir.Node, source: ir.Value, before: Sizes, after: Sizes) -> bool:
        added, is_zero, count = (
            pad_amounts(node, self._view),
            is_zero_padding(node),
            len(self._lead),
        )
        if added is None or any(axis < count for axis in added):
            return False
        if not all(is_never_negative_in(x, self._rows) for pads in added.values() for x in pads):
            if self.reads_outside:  # what lies beyond may be what it cuts off
                return False
            is_zero = False
        if len(before) == 2 and count + 1 in added:
            if count in added:
                return False
            return self._undo_column_pad(source, added[count + 1], before[1], after[1], is_zero)
        stride = before[1] if len(before) == 2 else sympy.Integer(1)
        if count in added:
            self.place = self.place.shifted_by(-added[count][0] * stride)
        if not self._is_within(self.place, 0, before[0] * stride - 1):
            self.reads_outside = True
        return is_zero or not self.reads_outside

    def _undo_column_pad(
        self, source: ir.Value, added: Ends, before: sympy.Expr, after: sympy.Expr, is_zero: bool
    ) -> bool:
        """Undo added columns; what is read of the next row or the last must be such columns."""
        front, back = added if is_zero else (0, 0)
        row_and_col = self._split_rows(after, back, front)
        if row_and_col is None:
            return False
        row, col = row_and_col[0], row_and_col[1].shifted_by(-added[0])
        if self._is_within(col, 0, before - 1):
            self.place = row.times(before).plus(col)
            return True
        if is_zero:
            self._record_result(source, row, col, reads_outside=True)
        return False

    def _undo_concat(self, node: ir.Node, after: Sizes) -> ir.Value | None:
        """Return the one part of a Concat that is read, whatever the others are, or None."""
        rank, count = self._view.shapes.rank(node.outputs[0]), len(self._lead)
        blocks = [self._inner_sizes(x) for x in node.inputs]
        sizes = [x for x in blocks if x is not None and len(x) == len(after)]
        if (
            rank is None
            or self.reads_outside
            or len(sizes) < len(blocks)
            or rank != count + len(after)
        ):
            return None
        axis = attr_int(node, "axis", 0) % rank - count
        if axis < 0:
            return None
        inner = len(after) == 2 and axis == 1
        row_and_col = self._split_rows(after[1]) if inner else (None, self.place)
        if row_and_col is None:
            return None
        row, col = row_and_col
        stride = after[1] if len(after) == 2 and not inner else sympy.Integer(1)
        for part, own in zip(node.inputs, sizes, strict=True):
            width = own[axis] * stride
            if self._is_within(col, 0, width - 1):
                self.place = col if row is None else row.times(width).plus(col)
                return part
            col = col.shifted_by(-width)
        return None

    def _inner_sizes(self, value: ir.Value | None) -> Sizes | None:
        """Return the one or two sizes behind the first axes, which are those of what is read.

        Among the first axes there may be others of 1, where sizes have been lined up by a Squeeze.
        """
        dims, count = self._view.shapes.dims(value), len(self._lead)
        if dims is None or not all(map(is_known_dim, dims)):
            return None
        for inner in (len(dims) - count, 2, 1):
            front = dims[: len(dims) - inner]
            if inner in (1, 2) and _same_except_ones(front, self._lead):
                return [expr_of(x) for x in dims[len(front) :]]
        return None

    def _record_if_shifted(self, value: ir.Value) -> None:
        """Record ``value`` as the source of shifted rows, if it is."""
        block = self._inner_sizes(value)
        if block is None or len(block) < 2 or self.reads_outside:
            return
        row_and_col = self._split_rows(block[1])
        if row_and_col is not None:
            self._record_result(value, *row_and_col, reads_outside=False)

    def _record_result(
        self, source: ir.Value, row: LinearIndex, col: LinearIndex, *, reads_outside: bool
    ) -> None:
        dims = self._view.shapes.dims(source)
        if row != (1, 0, 0) or col.b != 1 or col.a not in (-1, 1) or dims is None:
            return
        if len(dims) != len(self._lead) + 2:
            return
        if same_dim(dims[-2], self._rows):
            self._result = ShiftedRows(source, int(col.a), col.c, reads_outside, self._rows)

    def _split_rows(
        self, width: sympy.Expr, before: sympy.Expr | int = 0, behind: sympy.Expr | int = 0
    ) -> tuple[LinearIndex, LinearIndex] | None:
        """Return row and column of what is read, in rows of this width, or None.

        Args:
            width: The width.
            before: How many columns of the row above may be read as columns below 0.
            behind: How many of the next row may be read as columns behind the last.
        """
        wide = _at_large(width)
        if wide < 1:
            return None
        a, b = (sympy.Integer(round(_at_large(x) / wide)) for x in self.place[:2])
        remainder = self.place.plus(LinearIndex(-a * width, -b * width, sympy.Integer(0)))
        least = min(map(_at_large, self._corner_places(remainder)))
        for c in (least // wide, least // wide + 1):
            col = remainder.shifted_by(-c * width)
            if self._is_within(col, -before, width - 1 + behind):
                return LinearIndex(a, b, sympy.Integer(c)), col
        return None

    def _is_within(self, place: LinearIndex, low: sympy.Expr | int, high: sympy.Expr) -> bool:
        """Return whether a place lies from ``low`` to ``high``, at each row and column."""
        gaps = (x for corner in self._corner_places(place) for x in (corner - low, high - corner))
        return all(is_never_negative_in(x, self._rows) for x in gaps)

    def _corner_places(self, place: LinearIndex) -> Iterator[sympy.Expr]:
        for i in (0, self._ends[0]):
            for j in (0, self._ends[1]):
                yield sympy.expand(place.a * i + place.b * j + place.c)


def _same_except_ones(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Return whether two lists of sizes are the same except sizes of 1."""
    lhs, rhs = ([x for x in dims if x != 1] for dims in (a, b))
    return same_dims(lhs, rhs)


def _at_large(expr: sympy.Expr) -> int:
    return int(expr.subs(dict.fromkeys(expr.free_symbols, _LARGE)))
