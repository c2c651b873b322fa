"""Rows that are shifted, each by one more than the last, and their tables; reads only."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, Skip
from graphfix.facts.pad_cuts import PaddedRows, as_integer, is_never_negative_in, padded_rows_of
from graphfix.facts.shapes import same_dim
from graphfix.facts.shifted_rows import ShiftedRows, linear_coefficients, shifted_rows_of
from graphfix.facts.symbolic.expressions import expr_of
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op

# A table has a row for each distance that it tells apart.
MAX_TABLE_SIZE = 1 << 18


@dataclass(frozen=True)
class SkewSite(Match):
    """Rows that are shifted, each by one more than the last.

    Attributes:
        shifted: The shift of the rows.
        table: The rows of a table that are multiplied with: before the shift, which then is of
            ``multiplier`` times the table; or after it, where ``shifted.reads_outside``.
        multiplier: What the table is multiplied by before the shift.
        first: The row of the table at distance 0, or minus that.
    """

    shifted: ShiftedRows
    table: PaddedRows | None = None
    multiplier: ir.Value | None = None
    first: int = 0


def skew_site_of(node: ir.Node, view: View) -> SkewSite | None:
    """Return rows shifted by one more each, ``y[i, j] = x[i, j - i + shift]``, or None."""
    shifted, dims = shifted_rows_of(node.outputs[0], view), view.shapes.dims(node.outputs[0])
    if shifted is None or dims is None or shifted.reads_outside or not same_dim(dims[-2], dims[-1]):
        return None
    table_site = _table_site_of(node, shifted, view) if shifted.direction < 0 else None
    if table_site is None and linear_coefficients(shifted.shift, shifted.rows) is None:
        return None
    return table_site or SkewSite(node, shifted)


def _table_site_of(node: ir.Node, shifted: ShiftedRows, view: View) -> SkewSite | None:
    """Return the same where ``x`` is a product with a zero-padded constant table, or None."""
    maker = shifted.source.producer()
    if not is_op(maker, "MatMul") or maker.inputs[0] is None:
        return None
    table = padded_rows_of(maker.inputs[1], -1, shifted.rows, view)
    if table is None or const_of(table.table, MAX_TABLE_SIZE) is None:
        return None
    first = as_integer(shifted.shift + table.shift)
    if first is None or not -1 <= first <= table.count:
        return None
    return SkewSite(node, shifted, table, maker.inputs[0], first)


def unskew_site_of(node: ir.Node, view: View) -> SkewSite | Skip | None:
    """Return rows shifted back, ``z[i, r] = x[i, r + i + shift]``, times a table, or a Skip."""
    operand = node.inputs[0]
    shifted = None if operand is None else _rows_shifted_back(operand, view)
    if shifted is None:
        return None
    table = padded_rows_of(node.inputs[1], -2, shifted.rows, view)
    if table is None or not _can_reorder(table):
        return Skip(node, "what is moved is not multiplied with the rows of a table, 0 around them")
    array = const_of(table.table, MAX_TABLE_SIZE)
    if array is not None and not np.isfinite(array).all():
        return Skip(node, "its table has an infinity or a NaN, which a 0 does not take out")
    first = as_integer(shifted.shift - table.shift)
    if first is None or not _covers_all_rows(operand, shifted, view):
        return Skip(node, "its table goes with other distances than those that it is moved by")
    return SkewSite(node, shifted, table, None, first)


def _rows_shifted_back(operand: ir.Value, view: View) -> ShiftedRows | None:
    """Return rows that are shifted back to their distances, 0 where none was, or None."""
    if not is_op(operand.producer(), "Slice", "Reshape"):
        return None
    shifted = shifted_rows_of(operand, view)
    if shifted is None or not shifted.reads_outside or shifted.direction < 0:
        return None
    dims = (view.shapes.dims(shifted.source), view.shapes.dims(operand))
    return None if None in dims else shifted


def _can_reorder(table: PaddedRows) -> bool:
    """Return whether a table has its axes in order, or is a constant, whose axes are swapped."""
    is_in_order = list(table.order) == sorted(table.order)
    return is_in_order or const_of(table.table, MAX_TABLE_SIZE) is not None


def _covers_all_rows(operand: ir.Value | None, shifted: ShiftedRows, view: View) -> bool:
    """Return whether every column of a square matrix is at some distance from each row."""
    source_dims, dims = view.shapes.dims(shifted.source), view.shapes.dims(operand)
    if source_dims is None or dims is None or not same_dim(source_dims[-1], source_dims[-2]):
        return False
    cols, last, rows = (expr_of(x) for x in (source_dims[-1], dims[-1], shifted.rows))
    starts_before = is_never_negative_in(1 - rows - shifted.shift, shifted.rows)
    return starts_before and is_never_negative_in(last - cols + shifted.shift, shifted.rows)
