"""table-rows: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.affine import index_strides
from graphfix.facts.intervals import interval_of
from graphfix.facts.shapes import Dim
from graphfix.facts.view import View
from graphfix.graph.constants import const_of, ints_of
from graphfix.graph.nodes import is_op, producer_of
from graphfix.ops.axes import axis_of
from graphfix.ops.slices import read_cuts

from ..common.reshape_targets import with_axes

# A table of positions is one of weights: what counts them has as many elements as it has rows.
_MAX_ROWS = 1 << 20


@dataclass(frozen=True)
class RowsSite(Match):
    """A lookup of the first rows of a table.

    Attributes:
        table: The table.
        end: How many rows are looked up, as one integer.
        axes: The dims of 1 that the result has beside those of the rows.
        dims: The dims of the rows.
    """

    table: ir.Value
    end: ir.Value
    axes: tuple[int, ...]
    dims: tuple[Dim, ...]


@dataclass(frozen=True)
class TableRows(NodePass[RowsSite]):
    """Replaces a Gather of the first rows of a table with a Slice.

    Learned positions are a table of weights, of which a model takes as many rows as its input is
    long: ``table[arange(T)]``, or ``table[positions[:, :T]]`` with a buffer that counts from 0.

    Why:
        Three kernels and more on DirectML, for Range, Gather and the Unsqueezes between, become
        one. Where the Range would become a CumSum of ones, which costs a kernel more than it
        (cumsum-index), nothing is left of it. More than half of the exports of the zoo have one.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        positions (float[B, T] x) => (float[B, T] y)
        <float[24] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2, 1, 2, 3, 4, 5, 6, 7, 8},
         int64 zero = {0}, int64 one = {1}, int64 second = {1}, int64[1] front = {0}>
        {
            shape = Shape (x)
            t = Gather (shape, second)
            at = Range (zero, t, one)
            row = Unsqueeze (at, front)
            found = Gather (table, row)
            y = Add (x, found)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        positions (float[B, T] x) => (float[B, T] y)
        <float[24] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2, 1, 2, 3, 4, 5, 6, 7, 8},
         int64 second = {1}, int64[1] front = {0}>
        {
            shape = Shape (x)
            t = Gather (shape, second)
            end = Unsqueeze (t, front)
            rows = Slice (table, front, end, front)
            found = Unsqueeze (rows, front)
            y = Add (x, found)
        }

    Left alone:
        A Range whose end may be less than nothing, "may be less than none":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        places (float[B, T, 2] x) => (float[N, 2] y)
        <int64 zero = {0}, int64 one = {1}, int64 two = {2}, float[4, 2] table = {0, 1, 2, 3, 4, 5,
         6, 7}>
        {
            shape = Shape (x)
            t = Gather (shape, one)
            n = Sub (t, two)
            at = Range (zero, n, one)
            y = Gather (table, at)
        }

    Safety:
        Exact: the same rows. The indices are proved to count from 0 to a number that is made of
        sizes, so that it is none below 0, or to be the beginning of a constant that counts the rows
        of the table. Where there are more than the table has, and the lookup fails, there are only
        those that it has, and what is computed with them fails. Refused, with the reason: a Range
        to a number that may be below 0.
    """

    sentence = "the first rows of a table are looked up one by one"
    anchors = ("Gather",)

    def match(self, node: ir.Node, view: View) -> RowsSite | Skip | None:
        """Return the site if a Gather takes rows whose indices count from 0."""
        table, index = node.inputs
        rows = view.shapes.dims(table)
        if table is None or index is None or not rows or view.in_function(node):
            return None
        dims = view.shapes.dims(index) or ()
        counted = [axis for axis, dim in enumerate(dims) if dim != 1]
        if len(counted) != 1 or axis_of(node, len(rows), view.opset_of_node(node)) != 0:
            return None
        end = _row_count_of(index, rows[0], view)
        if end is None:
            return None
        if _may_be_negative(end, view):
            return Skip(node, f"{end.name!r}, how many rows it looks up, may be less than none")
        axes = tuple(axis for axis, dim in enumerate(dims) if dim == 1)
        return RowsSite(node, table, end, axes, (dims[counted[0]], *rows[1:]))

    def rewrite(self, match: RowsSite, op: Builder) -> ir.Value:
        """Build a Slice of the table, with dims of 1."""
        zero = np.zeros(1, np.int64)
        end = match.end
        if op.view.shapes.rank(end) == 0:
            end = with_axes("Unsqueeze", end, (0,), op)
        first_rows = op.Slice(match.table, zero, end, zero)
        shapes = op.view.shapes  # inference knows only that there are no more rows than these
        shapes.set_dims_and_dtype(first_rows, match.dims, shapes.dtype(match.table))
        return with_axes("Unsqueeze", first_rows, match.axes, op)


def _row_count_of(index: ir.Value, rows: Dim, view: View) -> ir.Value | None:
    """Return how many rows are taken, as one int64, if ``index`` counts from 0; or None."""
    end = _range_end(index, view) or _buffer_slice_end(index, rows, view)
    if view.shapes.dtype(end) != ir.DataType.INT64 or view.shapes.rank(end) not in (0, 1):
        return None
    return end


def _may_be_negative(end: ir.Value, view: View) -> bool:
    """Return whether a limit of a Range may be negative; a Slice would count it from the end.

    The end of a Slice, of rank 1, stays what it is.
    """
    return view.shapes.rank(end) == 0 and interval_of(end, view).low < 0


def _range_end(index: ir.Value, view: View) -> ir.Value | None:
    """Return the end of the Range that makes ``index``, or None."""
    counts = index_strides(index, view.shapes)
    if counts is None or list(counts.values()) != [1]:
        return None
    dims, (axis,) = view.shapes.dims(index) or (), counts
    if any(dim != 1 for i, dim in enumerate(dims) if i != axis + len(dims)):
        return None
    node = producer_of(index, *ops.VIEWS)
    return node.inputs[1] if is_op(node, "Range") else None


def _buffer_slice_end(index: ir.Value, rows: Dim, view: View) -> ir.Value | None:
    """Return the end of the Slice of ``[0, 1, ... rows - 1]`` that makes ``index``."""
    node = producer_of(index, *ops.VIEWS)
    if not is_op(node, "Slice") or len(node.inputs) < 3 or not isinstance(rows, int):
        return None
    buffer = node.inputs[0]
    dims = view.shapes.dims(buffer)
    if dims is None or sum(dim != 1 for dim in dims) != 1 or rows > _MAX_ROWS:
        return None
    cuts = read_cuts(node, len(dims), ints_of) or {}
    if [(dims[axis], cut.start, cut.step) for axis, cut in cuts.items()] != [(rows, 0, 1)]:
        return None
    array = const_of(buffer, rows)
    if array is None or not np.array_equal(array.reshape(-1), np.arange(rows)):
        return None
    return node.inputs[2]
