"""Rows that Pads, Reshapes and Slices move, each by one more than the last. Nothing here edits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import onnx_ir as ir
import sympy

from graphfix.facts.pad_cuts import added_by, first_of, is_never_negative, is_zero_padding
from graphfix.facts.shapes import all_same, is_named, same
from graphfix.facts.symbolic.expressions import Dim, expr_of
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, is_op

Sizes = Sequence[sympy.Expr]
Ends = tuple[sympy.Expr, sympy.Expr]
"""How much is added in front of an axis and behind it."""

# Two Pads, two Reshapes and two Slices; this only bounds the walk.
_DEEPEST = 16
# At this size it is guessed how often one number goes into another; the guess is proved.
_LARGE = 10007


@dataclass(frozen=True)
class Moved:
    """``y[.., i, j] = source[.., i, turn * i + j + shift]``.

    Attributes:
        source: What is moved.
        turn: -1 where each row goes one further to the right than the row above it, else 1.
        shift: Where the first row begins.
        beyond: Whether columns are read that the source does not have; they are 0.
        rows: The number of rows, which is the same before and after.
    """

    source: ir.Value
    turn: int
    shift: sympy.Expr
    beyond: bool
    rows: Dim


class LinearIndex(NamedTuple):
    """``a * i + b * j + c``, for row i and column j of what is read."""

    a: sympy.Expr
    b: sympy.Expr
    c: sympy.Expr

    def plus(self, other: LinearIndex) -> LinearIndex:
        """The sum."""
        return LinearIndex(*(sympy.expand(x + y) for x, y in zip(self, other, strict=True)))

    def times(self, factor: sympy.Expr) -> LinearIndex:
        """The product."""
        return LinearIndex(*(sympy.expand(x * factor) for x in self))

    def moved(self, by: sympy.Expr) -> LinearIndex:
        """Further on by so many."""
        return LinearIndex(self.a, self.b, sympy.expand(self.c + by))


def moved_rows(value: ir.Value | None, view: View) -> Moved | None:
    """What moves the rows of a tensor, if Pads, Concats, Reshapes and Slices do nothing else.

    It is proved for every number of rows but 0: what a Reshape takes out of one row and puts into
    another must come to lie in one row again, or be padding that is 0.
    """
    dims = view.shapes.dims(value)
    if value is None or dims is None or len(dims) < 2 or isinstance(dims[-2], int):
        return None
    return _Walk(dims, view).back(value) if all(map(is_named, dims)) else None


def line_of(expr: sympy.Expr, rows: Dim) -> tuple[int, int] | None:
    """The whole numbers of ``factor * rows + number``; None if an expression is not that."""
    of = expr_of(rows)
    symbols = sorted(of.free_symbols, key=str)
    if not symbols:
        return None
    sizes = [dict.fromkeys(symbols, _LARGE + more) for more in (0, _LARGE)]
    (x0, x1), (y0, y1) = ([e.subs(s) for s in sizes] for e in (of, expr))
    factor = (y1 - y0) / (x1 - x0) if x1 != x0 else sympy.nan
    if not factor.is_Integer or not (number := sympy.expand(expr - factor * of)).is_Integer:
        return None
    return int(factor), int(number)


class _Walk:
    """From what is read back to what is moved.

    Attributes:
        place: Where element i, j of what is read lies in the rows of the tensor that the walk is
            at, one behind the other.
        beyond: Whether it may lie before the first row or after the last; then it is 0.
    """

    def __init__(self, dims: Sequence[Dim], view: View) -> None:
        self._view = view
        self._lead, self._rows = dims[:-2], dims[-2]
        rows, cols = map(expr_of, dims[-2:])
        self._ends = (rows - 1, cols - 1)
        self.place = LinearIndex(cols, sympy.Integer(1), sympy.Integer(0))
        self.beyond = False
        self._found: Moved | None = None

    def back(self, value: ir.Value) -> Moved | None:
        """What is moved, as far back as it goes."""
        for _ in range(_DEEPEST):
            node, after = value.producer(), self._block(value)
            if node is None or after is None:
                break
            above = self._concat(node, after) if is_op(node, "Concat") else self._step(node, after)
            if above is None:
                break
            value = above
            self._note(value)
        return self._found

    def _step(self, node: ir.Node, after: Sizes) -> ir.Value | None:
        """What a node takes, if that is moved as well; None if the walk ends there."""
        given = node.inputs[0] if node.inputs else None
        before = self._block(given)
        if given is None or before is None:
            return None
        if is_op(node, "Reshape", "Identity", "Squeeze", "Unsqueeze"):
            return given
        # The first axes must be those of what is read, one by one.
        rank = self._view.shapes.rank(given)
        if len(before) != len(after) or rank != len(self._lead) + len(before):
            return None
        if is_op(node, "Slice") and self._slice(node, before, after):
            return given
        return given if is_op(node, "Pad") and self._pad(node, given, before, after) else None

    def _slice(self, node: ir.Node, before: Sizes, after: Sizes) -> bool:
        starts, count = first_of(node, self._view), len(self._lead)
        if starts is None or self.beyond:
            return False
        if any(x != 0 for axis, x in starts.items() if axis < count):
            return False
        if not all(is_never_negative(x, self._rows) for x in starts.values()):
            return False
        first = [starts.get(count + i, sympy.Integer(0)) for i in range(len(before))]
        if len(before) == 1:
            self.place = self.place.moved(first[0])
        elif first[1] == 0 and sympy.expand(before[1] - after[1]) == 0:
            self.place = self.place.moved(first[0] * before[1])
        else:
            found = self._split(after[1])
            if found is None:
                return False
            row, col = found
            self.place = row.moved(first[0]).times(before[1]).plus(col.moved(first[1]))
        return True

    def _pad(self, node: ir.Node, given: ir.Value, before: Sizes, after: Sizes) -> bool:
        added, zero, count = added_by(node, self._view), is_zero_padding(node), len(self._lead)
        if added is None or any(axis < count for axis in added):
            return False
        if not all(is_never_negative(x, self._rows) for pads in added.values() for x in pads):
            if self.beyond:  # what lies beyond may be what it cuts off
                return False
            zero = False
        if len(before) == 2 and count + 1 in added:
            if count in added:
                return False
            return self._widened(given, added[count + 1], before[1], after[1], zero)
        stride = before[1] if len(before) == 2 else sympy.Integer(1)
        if count in added:
            self.place = self.place.moved(-added[count][0] * stride)
        if not self._within(self.place, 0, before[0] * stride - 1):
            self.beyond = True
        return zero or not self.beyond

    def _widened(
        self, given: ir.Value, added: Ends, before: sympy.Expr, after: sympy.Expr, zero: bool
    ) -> bool:
        """Columns put on; if some of the next row or the last are read, they are such columns."""
        front, back = added if zero else (0, 0)
        found = self._split(after, back, front)
        if found is None:
            return False
        row, col = found[0], found[1].moved(-added[0])
        if self._within(col, 0, before - 1):
            self.place = row.times(before).plus(col)
            return True
        if zero:
            self._keep(given, row, col, beyond=True)
        return False

    def _concat(self, node: ir.Node, after: Sizes) -> ir.Value | None:
        """The one part that is read, whatever the others are."""
        rank, count = self._view.shapes.rank(node.outputs[0]), len(self._lead)
        blocks = [self._block(x) for x in node.inputs]
        sizes = [x for x in blocks if x is not None and len(x) == len(after)]
        if rank is None or self.beyond or len(sizes) < len(blocks) or rank != count + len(after):
            return None
        axis = attr_int(node, "axis", 0) % rank - count
        if axis < 0:
            return None
        inner = len(after) == 2 and axis == 1
        found = self._split(after[1]) if inner else (None, self.place)
        if found is None:
            return None
        row, col = found
        stride = after[1] if len(after) == 2 and not inner else sympy.Integer(1)
        for part, own in zip(node.inputs, sizes, strict=True):
            width = own[axis] * stride
            if self._within(col, 0, width - 1):
                self.place = col if row is None else row.times(width).plus(col)
                return part
            col = col.moved(-width)
        return None

    def _block(self, value: ir.Value | None) -> Sizes | None:
        """The sizes behind the first axes, which are those of what is read: one or two.

        Among the first axes there may be others of 1, where sizes have been lined up by a Squeeze.
        """
        dims, count = self._view.shapes.dims(value), len(self._lead)
        if dims is None or not all(map(is_named, dims)):
            return None
        for inner in (len(dims) - count, 2, 1):
            front = dims[: len(dims) - inner]
            if inner in (1, 2) and _alike(front, self._lead):
                return [expr_of(x) for x in dims[len(front) :]]
        return None

    def _note(self, value: ir.Value) -> None:
        """Keep ``value`` as what is moved, if it is."""
        block = self._block(value)
        if block is None or len(block) < 2 or self.beyond:
            return
        found = self._split(block[1])
        if found is not None:
            self._keep(value, *found, beyond=False)

    def _keep(self, source: ir.Value, row: LinearIndex, col: LinearIndex, *, beyond: bool) -> None:
        dims = self._view.shapes.dims(source)
        if row != (1, 0, 0) or col.b != 1 or col.a not in (-1, 1) or dims is None:
            return
        if len(dims) != len(self._lead) + 2:
            return
        if same(dims[-2], self._rows):
            self._found = Moved(source, int(col.a), col.c, beyond, self._rows)

    def _split(
        self, width: sympy.Expr, before: sympy.Expr | int = 0, behind: sympy.Expr | int = 0
    ) -> tuple[LinearIndex, LinearIndex] | None:
        """Row and column of what is read, in rows of this width.

        Args:
            width: The width.
            before: How many columns of the row above may be read as columns below 0.
            behind: How many of the next row may be read as columns behind the last.
        """
        wide = _at_large(width)
        if wide < 1:
            return None
        a, b = (sympy.Integer(round(_at_large(x) / wide)) for x in self.place[:2])
        rest = self.place.plus(LinearIndex(-a * width, -b * width, sympy.Integer(0)))
        least = min(map(_at_large, self._corners(rest)))
        for c in (least // wide, least // wide + 1):
            col = rest.moved(-c * width)
            if self._within(col, -before, width - 1 + behind):
                return LinearIndex(a, b, sympy.Integer(c)), col
        return None

    def _within(self, place: LinearIndex, low: sympy.Expr | int, high: sympy.Expr) -> bool:
        """Whether a place lies from ``low`` to ``high``, at each row and column."""
        gaps = (x for corner in self._corners(place) for x in (corner - low, high - corner))
        return all(is_never_negative(x, self._rows) for x in gaps)

    def _corners(self, place: LinearIndex) -> Iterator[sympy.Expr]:
        for i in (0, self._ends[0]):
            for j in (0, self._ends[1]):
                yield sympy.expand(place.a * i + place.b * j + place.c)


def _alike(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two lists of sizes are the same except sizes of 1."""
    left, right = ([x for x in dims if x != 1] for dims in (a, b))
    return all_same(left, right)


def _at_large(expr: sympy.Expr) -> int:
    return int(expr.subs(dict.fromkeys(expr.free_symbols, _LARGE)))
