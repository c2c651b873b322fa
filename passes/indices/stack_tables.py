"""stack-tables: the manual is the docstring of the class."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op, producer_of
from graphfix.ops.axes import axis_of
from graphfix.wording import group_pairs

from ..common.fold_view import exclusive_producer
from ..common.fusible import FLOATS, is_weight, only_user

# Of three and more, one lookup and what it takes are fewer kernels than those and their sums.
_MIN_LOOKUPS = 3


@dataclass(frozen=True)
class Lookup:
    """A lookup of table rows by one of several ids in a tensor.

    Attributes:
        ids: The tensor with the ids of several tables.
        axis: The axis along which the ids of the tables lie.
        place: Which of them this lookup takes.
        table: The table, [V, D].
        size: V and D.
    """

    ids: ir.Value
    axis: int
    place: int
    table: ir.Value
    size: tuple[int, int]


@dataclass(frozen=True)
class TablesSite(Match):
    """Rows of several tables that are summed or concatenated.

    Attributes:
        lookups: The lookups, in tables of one size.
        other_terms: The other terms of the sum.
    """

    lookups: tuple[Lookup, ...]
    other_terms: tuple[ir.Value, ...] = ()


@dataclass(frozen=True)
class StackTables(NodePass[TablesSite]):
    """Looks up the rows of several tables at once, where their ids are one tensor.

    The codes of a neural codec are looked up in a codebook for each layer of its quantizer, and
    summed: three kernels a codebook, 47 for the 16 of Qwen3-TTS. Speech models with several streams
    of tokens do so too; MarkupLM puts the rows of 50 tables beside each other.

    Why:
        On DirectML each lookup, each choice of an id and each sum is a kernel. GatherND with
        ``batch_dims`` takes all rows from the stacked tables in one. Run on onnxruntime-directml
        1.24.4: 4 tables, ids of 1 to 3 rows, negative ones among them, within 2.4e-7 of the CPU.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        codes (int64[B, 3, T] ids) => (float[B, T, 2] y)
        <float[4, 2] a = {1, 2, 3, 4, 5, 6, 7, 8}, float[4, 2] b = {2, 2, 3, 4, 5, 6, 7, 8},
         float[4, 2] c = {3, 2, 3, 4, 5, 6, 7, 8}, int64 first = {0}, int64 second = {1},
         int64 third = {2}>
        {
            i = Gather <axis = 1> (ids, first)
            rows = Gather (a, i)
            j = Gather <axis = 1> (ids, second)
            more = Gather (b, j)
            both = Add (rows, more)
            k = Gather <axis = 1> (ids, third)
            last = Gather (c, k)
            y = Add (both, last)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        codes (int64[B, 3, T] ids) => (float[B, T, 2] y)
        <float[4, 2] a = {1, 2, 3, 4, 5, 6, 7, 8}, float[4, 2] b = {2, 2, 3, 4, 5, 6, 7, 8},
         float[4, 2] c = {3, 2, 3, 4, 5, 6, 7, 8}, int64[3] size = {3, 4, 2}, int64[1] back = {-1},
         int64[1] front = {0}>
        {
            all = Concat <axis = 0> (a, b, c)
            tables = Reshape (all, size)
            apart = Transpose <perm = [1, 0, 2]> (ids)
            each = Unsqueeze (apart, back)
            found = GatherND <batch_dims = 1> (tables, each)
            y = ReduceSum <keepdims = 0> (found, front)
        }

    Left alone:
        Two tables, of which one lookup takes as many kernels:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        two (int64[B, 2, T] ids) => (float[B, T, 2] y)
        <float[4, 2] a = {1, 2, 3, 4, 5, 6, 7, 8}, float[4, 2] b = {2, 2, 3, 4, 5, 6, 7, 8},
         int64 first = {0}, int64 second = {1}>
        {
            i = Gather <axis = 1> (ids, first)
            rows = Gather (a, i)
            j = Gather <axis = 1> (ids, second)
            more = Gather (b, j)
            y = Add (rows, more)
        }

        Tables of several sizes:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        sizes (int64[B, 3, T] ids) => (float[B, T, 2] y)
        <float[4, 2] a = {1, 2, 3, 4, 5, 6, 7, 8}, float[4, 2] b = {2, 2, 3, 4, 5, 6, 7, 8},
         float[3, 2] c = {3, 2, 3, 4, 5, 6}, int64 first = {0}, int64 second = {1},
         int64 third = {2}>
        {
            i = Gather <axis = 1> (ids, first)
            rows = Gather (a, i)
            j = Gather <axis = 1> (ids, second)
            more = Gather (b, j)
            both = Add (rows, more)
            k = Gather <axis = 1> (ids, third)
            last = Gather (c, k)
            y = Add (both, last)
        }

        A table that something else reads, too:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        read (int64[B, 3, T] ids) => (float[B, T, 2] y, float[B, T, 2] z)
        <float[4, 2] a = {1, 2, 3, 4, 5, 6, 7, 8}, float[4, 2] b = {2, 2, 3, 4, 5, 6, 7, 8},
         float[4, 2] c = {3, 2, 3, 4, 5, 6, 7, 8}, int64 first = {0}, int64 second = {1},
         int64 third = {2}>
        {
            i = Gather <axis = 1> (ids, first)
            rows = Gather (a, i)
            j = Gather <axis = 1> (ids, second)
            more = Gather (b, j)
            both = Add (rows, more)
            k = Gather <axis = 1> (ids, third)
            last = Gather (c, k)
            y = Add (both, last)
            z = Gather (c, i)
        }

    Safety:
        Exact, except rounding: the same rows in another order of sums; an id that counts from the
        end finds the same row. All rows are in memory at once before they are summed. Left as they
        are: fewer than three tables, tables of several sizes, and those that something else reads,
        which would be twice in memory.
    """

    anchors = ("Add", "Concat")

    def match(self, node: ir.Node, view: View) -> TablesSite | None:
        """Return the site at the last sum of table rows, or at a Concat of them."""
        if view.opset_of_node(node) < 13:
            return None
        if is_op(node, "Concat"):
            terms, rank = list(node.inputs), view.shapes.rank(node.outputs[0])
            if rank is None or axis_of(node, rank, view.opset_of_node(node)) != rank - 1:
                return None
        elif is_op(only_user(node), "Add"):
            return None
        else:
            terms = list(_terms_of_sum(node))
        lookup_by_value = {x: lookup for x in terms if (lookup := _lookup_of(x, view)) is not None}
        lookups = _largest_group(list(lookup_by_value.values()))
        other_terms = tuple(
            x for x in terms if x is not None and lookup_by_value.get(x) not in lookups
        )
        if len(lookups) < _MIN_LOOKUPS or (other_terms and is_op(node, "Concat")):
            return None
        return TablesSite(node, tuple(lookups), other_terms)

    def message(self, site: Match) -> str:
        """Describe how many tables are looked up."""
        count = len(site.lookups) if isinstance(site, TablesSite) else 0
        return f"{count} tables are looked up one by one; stacked, one lookup takes all rows"

    def rewrite(self, match: TablesSite, op: Builder) -> ir.Value:
        """Build one lookup in the stacked tables, then the sum or Concat."""
        first, shapes = match.lookups[0], op.view.shapes
        dims, places = shapes.dims(first.ids) or (), [x.place for x in match.lookups]
        rank, ids, tables = len(dims), first.ids, [x.table for x in match.lookups]
        rows, width = first.size
        size = np.array([len(tables), rows, width], np.int64)
        stacked = op.Reshape(op.Concat(*tables, axis=0), size)
        if places != list(range(len(places))) or dims[first.axis] != len(places):
            ids = op.Gather(ids, np.array(places, np.int64), axis=first.axis)
        if first.axis:
            ids = op.Transpose(ids, perm=[first.axis, *(x for x in range(rank) if x != first.axis)])
        if shapes.dtype(first.ids) != ir.DataType.INT64:
            ids = op.Cast(ids, to=ir.DataType.INT64)
        all_rows = op.GatherND(stacked, op.Unsqueeze(ids, np.array([-1], np.int64)), batch_dims=1)
        if is_op(match.node, "Concat"):
            moved_rows = op.Transpose(all_rows, perm=[*range(1, rank), 0, rank])
            return op.Reshape(
                moved_rows, np.array([*[0] * (rank - 1), len(tables) * width], np.int64)
            )
        total = op.ReduceSum(all_rows, np.array([0], np.int64), keepdims=0)
        return functools.reduce(op.Add, match.other_terms, total)


def _terms_of_sum(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the terms of a sum in order; a sum with another reader is one term."""
    pending = list(reversed(node.inputs))
    while pending:
        value = pending.pop()
        if (maker := exclusive_producer(value, "Add")) is not None:
            pending += reversed(maker.inputs)
        elif value is not None:
            yield value


def _lookup_of(value: ir.Value | None, view: View) -> Lookup | None:
    """Return the lookup that makes ``value`` for this reader alone, or None."""
    node = exclusive_producer(value, "Gather")
    if node is None:
        return None
    table, chosen_ids = node.inputs
    size = [x for x in view.shapes.dims(table) or () if isinstance(x, int)]
    if table is None or not is_weight(table, (None, None), view):
        return None
    if view.shapes.dtype(table) not in FLOATS or len(size) != 2:
        return None
    choice = _choice_of_ids(chosen_ids, view)
    if choice is None or axis_of(node, len(size), view.opset_of_node(node)) != 0:
        return None
    return Lookup(*choice, table, (size[0], size[1]))


def _choice_of_ids(value: ir.Value | None, view: View) -> tuple[ir.Value, int, int] | None:
    """Return the tensor that one of several ids is taken from, the axis and the place in it."""
    node = producer_of(value)
    if not is_op(node, "Gather"):
        return None
    ids, place = node.inputs[0], const_of(node.inputs[1])
    rank = view.shapes.rank(ids)
    if ids is None or rank is None or place is None or place.ndim:
        return None
    axis = axis_of(node, rank, view.opset_of_node(node))
    return None if axis is None else (ids, axis, int(place))


def _largest_group(lookups: Sequence[Lookup]) -> list[Lookup]:
    """Return the largest group of lookups with the same ids and table size."""
    groups = group_pairs(((lookup.ids, lookup.axis, lookup.size), lookup) for lookup in lookups)
    return max(groups.values(), key=len, default=[])
