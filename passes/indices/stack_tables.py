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
from graphfix.graph.nodes import attr_int, is_op, maker_of
from graphfix.wording import grouped

from ..common.fusible import FLOATS, is_weight, only_user
from ..common.lookup import alone

# Of three and more, one lookup and what it takes are fewer kernels than those and their sums.
_FEWEST = 3


@dataclass(frozen=True)
class Lookup:
    """A row of a table for each id, of which a tensor holds those of several tables along an axis.

    Attributes:
        ids: That tensor.
        axis: The axis.
        place: Which of them along the axis.
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
    """Rows of several tables that are summed, or put beside each other.

    Attributes:
        lookups: Where they come from, of tables of one size.
        others: What else is summed.
    """

    lookups: tuple[Lookup, ...]
    others: tuple[ir.Value, ...] = ()


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

    Safety:
        Exact, except rounding: the same rows in another order of sums; an id that counts from the
        end finds the same row. All rows are in memory at once before they are summed. Left as they
        are: fewer than three tables, tables of several sizes, and those that something else reads,
        which would be twice in memory.
    """

    anchors = ("Add", "Concat")

    def match(self, node: ir.Node, view: View) -> TablesSite | None:
        """The last of sums of rows; rows beside each other."""
        if view.opset(node) < 13:
            return None
        if is_op(node, "Concat"):
            leaves, last = list(node.inputs), (view.shapes.rank(node.outputs[0]) or 0) - 1
            if attr_int(node, "axis", 0) not in (-1, last):
                return None
        elif is_op(only_user(node), "Add"):
            return None
        else:
            leaves = list(_leaves(node))
        found = {x: lookup for x in leaves if (lookup := _lookup(x, view)) is not None}
        lookups = _largest(list(found.values()))
        others = tuple(x for x in leaves if x is not None and found.get(x) not in lookups)
        if len(lookups) < _FEWEST or (others and is_op(node, "Concat")):
            return None
        return TablesSite(node, tuple(lookups), others)

    def message(self, site: Match) -> str:
        """What it is."""
        count = len(site.lookups) if isinstance(site, TablesSite) else 0
        return f"{count} tables are looked up one by one; stacked, one lookup takes all rows"

    def rewrite(self, match: TablesSite, op: Builder) -> ir.Value:
        """All rows at once, summed or beside each other."""
        one, shapes = match.lookups[0], op.view.shapes
        dims, places = shapes.dims(one.ids) or (), [x.place for x in match.lookups]
        rank, ids, tables = len(dims), one.ids, [x.table for x in match.lookups]
        rows, width = one.size
        size = np.array([len(tables), rows, width], np.int64)
        stacked = op.Reshape(op.Concat(*tables, axis=0), size)
        if places != list(range(len(places))) or dims[one.axis] != len(places):
            ids = op.Gather(ids, np.array(places, np.int64), axis=one.axis)
        if one.axis:
            ids = op.Transpose(ids, perm=[one.axis, *(x for x in range(rank) if x != one.axis)])
        if shapes.dtype(one.ids) != ir.DataType.INT64:
            ids = op.Cast(ids, to=ir.DataType.INT64)
        found = op.GatherND(stacked, op.Unsqueeze(ids, np.array([-1], np.int64)), batch_dims=1)
        if is_op(match.node, "Concat"):
            beside = op.Transpose(found, perm=[*range(1, rank), 0, rank])
            return op.Reshape(beside, np.array([*[0] * (rank - 1), len(tables) * width], np.int64))
        made = op.ReduceSum(found, np.array([0], np.int64), keepdims=0)
        return functools.reduce(op.Add, match.others, made)


def _leaves(node: ir.Node) -> Iterator[ir.Value]:
    """What is summed, in order; sums that something else reads are whole."""
    pending = list(reversed(node.inputs))
    while pending:
        value = pending.pop()
        if (maker := alone(value, "Add")) is not None:
            pending += reversed(maker.inputs)
        elif value is not None:
            yield value


def _lookup(value: ir.Value | None, view: View) -> Lookup | None:
    """The rows of a table that only this reads, by ids that are one of several along an axis."""
    node = alone(value, "Gather")
    table, chosen = node.inputs if node is not None else (None, None)
    choice = maker_of(chosen)
    if node is None or attr_int(node, "axis", 0) or not is_op(choice, "Gather"):
        return None
    ids, place, dims = choice.inputs[0], const_of(choice.inputs[1]), view.shapes.dims(table)
    rank, size = view.shapes.rank(ids), [x for x in dims or () if isinstance(x, int)]
    if ids is None or not rank or place is None or place.ndim or table is None:
        return None
    if not is_weight(table, (None, None), view) or view.shapes.dtype(table) not in FLOATS:
        return None
    return Lookup(ids, attr_int(choice, "axis", 0) % rank, int(place), table, (size[0], size[1]))


def _largest(lookups: Sequence[Lookup]) -> list[Lookup]:
    """Those of the same ids, in tables of the same size, that are most."""
    groups = grouped(((one.ids, one.axis, one.size), one) for one in lookups)
    return max(groups.values(), key=len, default=[])
