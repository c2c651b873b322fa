"""cumsum-index: the manual is the docstring of the class."""

from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op

from ..common.fusible import only_user
from ..common.reshape_targets import with_axes
from .sites.counting import build_count
from .sites.range_index import (
    IndexAxis,
    RangeCount,
    index_axis_of,
    is_index_range,
    is_static,
    range_count_of,
    range_source_of,
)


@dataclass(frozen=True)
class IndexSite(Match):
    """An index, its axis, and its count (None: replace only the Reshape)."""

    count: RangeCount | None
    place: IndexAxis


@dataclass(frozen=True)
class CumsumIndex(NodePass[IndexSite]):
    """Replaces a Range and the Reshape behind it with ConstantOfShape and CumSum.

    Why:
        `arange(T).view(1, 1, -1)` stops DirectML: run on its EP (onnxruntime-directml 1.24.4),
        Range -> Reshape [1, 1, -1] with allowzero=1, as torch's dynamo exporter writes it, ends
        in 8007023E, while ConstantOfShape -> CumSum and Range -> Unsqueeze run. The cause is -1
        together with allowzero=1 (ORT's ReshapeHelper takes the -1 for 4294967295), not the
        Range: `style=unsqueeze`, which only removes the Reshape, is the cheaper cure. A Range
        that feeds an Unsqueeze or Expand runs as it is, and no gain in speed was measured from
        counting it instead: as with Range, a length that changes re-creates the kernel.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        m (float[B, C, T] x, int64[B, 1, 1] lengths) => (bool[B, 1, T] mask)
        <int64 zero = {0}, int64 one = {1}, int64[3] last = {1, 1, -1}> {
            [shape] time = Shape <start = 2, end = 3> (x)
            [scalar] limit = Squeeze (time)
            [arange] index = Range (zero, limit, one)
            [view] row = Reshape <allowzero = 1> (index, last)
            [less] mask = Less (row, lengths)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        m (float[B, C, T] x, int64[B, 1, 1] lengths) => (bool[B, 1, T] mask)
        <int64[2] ones = {1, 1}, int64 axis = {2}> {
            [shape] time = Shape <start = 2, end = 3> (x)
            [concat] size = Concat <axis = 0> (ones, time)
            [fill] steps = ConstantOfShape <value = int64[1] {1}> (size)
            [cumsum] row = CumSum <exclusive = 1> (steps, axis)
            [less] mask = Less (row, lengths)
        }

    Left alone:
        A Range without a Reshape behind it:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        rows (float[N, 4] x, int64 first, int64 end) => (float[M, 4] y)
        <int64 one = {1}>
        {
            at = Range (first, end, one)
            y = Gather (x, at)
        }

    Safety:
        Exact, element for element and in type. A constant step other than 1, or below 0, is what is
        added up; a start other than 0, constant or not, is added; a limit that may lie below the
        start, such as one computed from data, is counted through a Max with 0, since there a Range
        is empty. Refused, with the reason: a step that is not constant, a length that needs a Max
        below opset 12, a step that no size fits, other types than int64 and int32. A Range that is
        all constant is left to constant folding. Where nothing but one Reshape or Unsqueeze uses a
        Range, the index is counted in its final shape, all ones except the axis of the index; else
        the Range itself is replaced, for all its users at once, and each Reshape of it becomes an
        Unsqueeze. So does the Reshape of a Range that is refused. A Reshape that may split the
        index stays. A frozen target that does not fit the index fails at run time, and no longer
        does.

    Options:
        style: cumsum counts with ConstantOfShape and CumSum; unsqueeze keeps every Range and
            turns each Reshape of one into an Unsqueeze.
    """

    anchors = ("Range", "Reshape", "Unsqueeze")

    style: Literal["cumsum", "unsqueeze"] = "cumsum"

    def match(self, node: ir.Node, view: View) -> IndexSite | Skip | None:
        """Return the site if a Range makes an index, or a view that alone reads one."""
        if is_op(node, "Range"):
            return self._match_range(node, view)
        source = range_source_of(node.inputs[0], self.name, view)
        if source is None or (is_op(source, "Range") and is_static(source)):
            return None
        place = index_axis_of(node, view)
        if place is not None and self._replaces_range(source) and _placing_view(source) is node:
            count = range_count_of(source, view)
            if isinstance(count, RangeCount):
                return IndexSite(node, count, place)
        if not is_op(node, "Reshape"):
            return None
        if place is None:
            return Skip(
                node, "more than one dim of its target may differ from 1: it may split the index"
            )
        return IndexSite(node, None, place)

    def message(self, site: Match) -> str:
        """Describe how the index is made."""
        placed = "" if is_op(site.node, "Range") else f" and placed by {site.node.op_type}"
        return f"an index is counted by a Range{placed}"

    def rewrite(self, match: IndexSite, op: Builder) -> ir.Value:
        """Build the index with a CumSum, or as an Unsqueeze of the flat index."""
        if match.count is not None:
            return build_count(match.count, match.place, op)
        index = match.node.inputs[0]
        assert index is not None
        return with_axes("Unsqueeze", index, match.place.unit_axes, op)

    def _match_range(self, node: ir.Node, view: View) -> IndexSite | Skip | None:
        """Return the site of a Range that makes an index, or why it is skipped."""
        if not self._replaces_range(node) or is_static(node) or not is_index_range(node, view):
            return None
        count = range_count_of(node, view)
        if isinstance(count, Skip):
            return count
        user = _placing_view(node)
        if user is not None and index_axis_of(user, view) is not None:
            return None  # the index is counted there, in the shape that it has there
        return IndexSite(node, count, IndexAxis(1, 0))

    def _replaces_range(self, source: ir.Node) -> bool:
        """Return whether the source is a Range that becomes a CumSum."""
        return self.style == "cumsum" and is_op(source, "Range")


def _placing_view(node: ir.Node) -> ir.Node | None:
    """Return the Reshape or Unsqueeze that alone reads a Range, or None."""
    user = only_user(node)  # in a Loop body the index would be counted again each time round
    if not is_op(user, "Reshape", "Unsqueeze") or user.inputs[0] is not node.outputs[0]:
        return None
    return user
