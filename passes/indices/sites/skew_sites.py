"""Which rows are moved, each by one more than the last, and by which table. Nothing here edits."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, Skip
from graphfix.facts.pad_cuts import Rows, is_never_negative, rows_of, whole
from graphfix.facts.shapes import same
from graphfix.facts.shifted_rows import Moved, line_of, moved_rows
from graphfix.facts.symbolic.expressions import expr_of
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op

# A table has a row for each distance that it tells apart.
LARGEST = 1 << 18


@dataclass(frozen=True)
class SkewSite(Match):
    """Rows that are moved, each by one more.

    Attributes:
        moved: What moves them.
        table: The rows of a table that are multiplied: before they are moved, what is moved being
            ``given`` times them, or after it, where ``moved.beyond``.
        given: What they are multiplied with before they are moved.
        first: The row of the table at distance 0, or minus that.
    """

    moved: Moved
    table: Rows | None = None
    given: ir.Value | None = None
    first: int = 0


def skewed(node: ir.Node, view: View) -> SkewSite | None:
    """Each row from another column on: ``y[i, j] = x[i, j - i + shift]``."""
    moved, dims = moved_rows(node.outputs[0], view), view.shapes.dims(node.outputs[0])
    if moved is None or dims is None or moved.beyond or not same(dims[-2], dims[-1]):
        return None
    near = _multiplied(node, moved, view) if moved.turn < 0 else None
    if near is None and line_of(moved.shift, moved.rows) is None:
        return None
    return near or SkewSite(node, moved)


def _multiplied(node: ir.Node, moved: Moved, view: View) -> SkewSite | None:
    """The same where ``x`` is multiplied from rows of a constant table with zeros around them."""
    maker = moved.source.producer()
    if not is_op(maker, "MatMul") or maker.inputs[0] is None:
        return None
    table = rows_of(maker.inputs[1], -1, moved.rows, view)
    if table is None or const_of(table.table, LARGEST) is None:
        return None
    first = whole(moved.shift + table.shift)
    if first is None or not -1 <= first <= table.count:
        return None
    return SkewSite(node, moved, table, maker.inputs[0], first)


def turned_back(node: ir.Node, view: View) -> SkewSite | Skip | None:
    """Each row back to its distances, ``z[i, r] = x[i, r + i + shift]``, times rows of a table."""
    given = node.inputs[0]
    if given is None or not is_op(given.producer(), "Slice", "Reshape"):
        return None
    moved = moved_rows(given, view)
    wide, after = view.shapes.dims(moved.source if moved else None), view.shapes.dims(given)
    if moved is None or wide is None or after is None or not moved.beyond or moved.turn < 0:
        return None
    table = rows_of(node.inputs[1], -2, moved.rows, view)
    in_order = table is not None and list(table.order) == sorted(table.order)
    if table is None or not (in_order or const_of(table.table, LARGEST) is not None):
        return Skip(node, "what is moved is not multiplied with the rows of a table, 0 around them")
    first = whole(moved.shift - table.shift)
    cols, last, rows = (expr_of(x) for x in (wide[-1], after[-1], moved.rows))
    covered = is_never_negative(1 - rows - moved.shift, moved.rows) and is_never_negative(
        last - cols + moved.shift, moved.rows
    )
    if first is None or not covered or not same(wide[-1], wide[-2]):
        return Skip(node, "its table goes with other distances than those that it is moved by")
    return SkewSite(node, moved, table, None, first)
