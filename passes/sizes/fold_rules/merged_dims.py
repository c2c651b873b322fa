"""Regions of a graph that are computed with merged dims, but need not be.

torch's eager attention reshapes ``[B, H, T, D]`` to ``[B*H, T, D]``, multiplies, and reshapes back.
A product of matrices, a Softmax over the keys and elementwise operators compute the same with the
dims split. Such a region, from the merges to the splits, is rebuilt so; the views around it go.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.editing.builder import Builder
from graphfix.facts.axis_factors import merged_axes
from graphfix.facts.symbolic.expressions import Dim, dim_key
from graphfix.graph.nodes import attr_int, input_at, is_op
from graphfix.graph.text import size_text
from graphfix.graph.walks import nodes_of
from graphfix.lengths.dim_nodes import build_axis_size
from graphfix.ops.axes import axis_of, reduced_axes
from graphfix.ops.pads import pads_by_axis
from graphfix.ops.softmax import softmax_axes
from graphfix.providers.directml.operator_facts import MATRIX_DIMS

from ...common.fold_view import FoldView, Key, Replacement, exclusive_producer, perm_of
from .views import Reshaping, view_by_constant, view_by_unit_axes

# An attention has less than twenty nodes; a region of so many is a whole network.
_MOST_NODES = 100

# The result has the shape of the first input. A FastGelu has a bias along the last axis.
_ALONG_AXES = ops.SOFTMAXES - ops.named("com.microsoft.BiasSoftmax")
_SCALED = ops.QUANTIZES - ops.named("DynamicQuantizeLinear")
_UNARY = ops.UNARY - ops.IDLE - ops.named("com.microsoft.FastGelu") | ops.named("Identity")


@dataclass(frozen=True)
class _MergedDims:
    """Neighbouring dims, and the size of the one dim that they are merged to."""

    parts: tuple[Dim, ...]
    size: Key

    @property
    def has_only_unit_dims(self) -> bool:
        """Return whether all parts but one are 1."""
        return sum(x != 1 for x in self.parts) < 2

    def split_in(self, dims: Sequence[Dim], place: int) -> tuple[Dim, ...]:
        """Return ``dims`` with the parts in place of the merged dim."""
        return (*dims[:place], *self.parts, *dims[place + 1 :])


@dataclass(frozen=True)
class _BoundaryViews:
    """Views between a region and the tensors outside of it.

    Attributes:
        views: The views that are removed, from the region outwards; or a Reduce that is
            rebuilt.
        value: The tensor inside the region.
        reshape: How one is made of the other with the dims split.
        added_nodes: How many nodes replace them: a view, or an Identity for a graph output.
    """

    views: list[ir.Node]
    value: ir.Value
    reshape: Reshaping
    added_nodes: int = 0


@dataclass
class _Region:
    """Connected tensors with a dim of one size that no node needs merged.

    Attributes:
        merged: The dims that are merged in it.
        places: The axis of the merged dim in each tensor.
        nodes: The nodes that are computed with the dims split.
        starts: The tensors that views, or a Reduce, make.
        ends: The views that end the region.
        split_values: The tensors with the dims split.
        new_values: Those of them that did not exist before.
    """

    merged: _MergedDims
    places: dict[ir.Value, int] = field(default_factory=dict)
    nodes: set[ir.Node] = field(default_factory=set)
    starts: dict[ir.Value, _BoundaryViews] = field(default_factory=dict)
    ends: dict[ir.Node, _BoundaryViews] = field(default_factory=dict)
    split_values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    new_values: set[ir.Value] = field(default_factory=set)

    @property
    def views(self) -> list[ir.Node]:
        """Return all views that are removed."""
        return [view for link in self._boundaries for view in link.views]

    @property
    def saves_nodes(self) -> bool:
        """Return whether it ends, saves nodes, and no view both starts and ends it."""
        come = sum(link.added_nodes for link in self._boundaries)
        return bool(self.ends) and len(self.views) == len(set(self.views)) > come

    @property
    def _boundaries(self) -> list[_BoundaryViews]:
        return [*self.starts.values(), *self.ends.values()]


class MergedRegions:
    """The regions of a model that need no merged dims, and the views that end them."""

    def __init__(self, look: FoldView) -> None:
        self._look = look
        self._failed: set[tuple[ir.Value, int, _MergedDims]] = set()
        self._ends: dict[ir.Node, _Region] = {}
        claimed: set[ir.Value | ir.Node] = set()
        # Batch and heads together first: more views go than with a dim of 1 beside one of them.
        for merged, value, place in sorted(
            self._find_seeds(), key=lambda seed: seed[0].has_only_unit_dims
        ):
            if value not in claimed and (value, place, merged) not in self._failed:
                region = _Region(merged)
                grown = self._grow_region(region, value, place)
                # A view that ends one region may start another, which then is for another round.
                if grown and claimed.isdisjoint((*region.places, *region.views)):
                    claimed.update(region.places, region.views)
                    self._ends.update(dict.fromkeys(region.ends, region))
                self._failed.update((x, at, merged) for x, at in region.places.items())

    @property
    def has_regions(self) -> bool:
        """Return whether there is any region."""
        return bool(self._ends)

    def __call__(self, node: ir.Node, look: FoldView) -> Replacement | None:
        """Replace a view that splits merged dims, after computing its region with split dims."""
        region = self._ends.get(node)
        if region is None:
            return None
        parts = ", ".join(map(size_text, region.merged.parts))
        reason = f"what it is made from can be computed with [{parts}] apart"
        return Replacement(reason, lambda op: [self._build_end(node, region, op)])

    # --- finding regions ------------------------------------------------------------------------

    def _find_seeds(self) -> Iterator[tuple[_MergedDims, ir.Value, int]]:
        """Yield every tensor that a row of views merges dims into, or splits."""
        for node in nodes_of(self._look.view.model.graph):
            if node not in ops.RESHAPES or node.inputs[0] is None:
                continue
            for above in _views_above(node.outputs[0]):
                for merged, place in self._merged_dims_between(above.inputs[0], node.outputs[0]):
                    yield merged, node.outputs[0], place
            for below in _views_below(node):
                for merged, place in self._merged_dims_between(below.outputs[0], node.inputs[0]):
                    yield merged, node.inputs[0], place

    def _merged_dims_between(
        self, many: ir.Value | None, few: ir.Value
    ) -> Iterator[tuple[_MergedDims, int]]:
        """Yield which dims of ``many`` are one dim of ``few``, if all others are the same."""
        shapes, keys = self._look.view.shapes, self._look.dims(few)
        wide, narrow = shapes.dims(many), shapes.dims(few)
        # What takes more dims than a MatMul does is hardly worth it.
        if wide is None or narrow is None or keys is None or len(wide) > MATRIX_DIMS:
            return
        count = len(wide) - len(narrow) + 1
        for place in merged_axes(wide, narrow):
            yield _MergedDims(wide[place : place + count], keys[place]), place

    def _grow_region(self, region: _Region, value: ir.Value, place: int) -> bool:
        """Add all tensors connected to ``value``; return whether the region saves nodes."""
        pending = [(value, place)]
        while pending:
            value, place = pending.pop()
            if value in region.places:
                if region.places[value] != place:
                    return False
                continue
            region.places[value] = place
            neighbors = self._extend_region(region, value, place)
            if neighbors is None or len(region.nodes) > _MOST_NODES:
                return False
            pending += neighbors
        return bool(region.nodes) and region.saves_nodes

    def _extend_region(
        self, region: _Region, value: ir.Value, place: int
    ) -> list[tuple[ir.Value, int]] | None:
        """Link the views around a tensor, and return the tensors that its other nodes have.

        Returns:
            The tensors, each with its axis of the merged dim; None if a node needs it merged.
        """
        producer, merged = value.producer(), region.merged
        readers = dict.fromkeys(use.node for use in value.uses())
        if producer is None or any(x.graph is not producer.graph for x in readers):
            return None
        if not self._may_split(value, place, merged):
            return None
        connected: list[ir.Node] = []
        for reader in readers:
            end = self._ending_views(reader, value, place, merged)
            if end is None:
                connected.append(reader)
            else:
                region.ends[end.views[-1]] = end
        start = self._link_views(_views_above(value), value, place, merged)
        if start is None:
            start = self._link_reduce(producer, value, self._split_dims(value, place, merged))
            region.nodes.add(producer)
        if start is None:
            connected.append(producer)
        else:
            region.starts[value] = start
        neighbors: list[tuple[ir.Value, int]] = []
        for node in connected:
            more = self._neighbors_of(node, value, place, merged)
            if more is None:
                return None
            region.nodes.add(node)
            neighbors += more
        return neighbors

    def _may_split(self, value: ir.Value, place: int, merged: _MergedDims) -> bool:
        if value.is_graph_output() or (value, place, merged) in self._failed:
            return False
        dims = self._look.dims(value)
        if dims is None or len(dims) + len(merged.parts) - 1 > MATRIX_DIMS:
            return False
        # A mask of [B, T] is what an attention takes, once fused: [B, 1, 1, T] costs it a Squeeze.
        if merged.has_only_unit_dims and self._look.view.shapes.dtype(value) == ir.DataType.BOOL:
            return False
        return dims[place] == merged.size

    def _split_dims(self, value: ir.Value, place: int, merged: _MergedDims) -> tuple[Dim, ...]:
        return merged.split_in(self._look.view.shapes.dims(value) or (), place)

    def _ending_views(
        self, node: ir.Node, value: ir.Value, place: int, merged: _MergedDims
    ) -> _BoundaryViews | None:
        """Return ``node`` and views after it, if their result can be made of split dims."""
        if is_op(node, "Shape") and "end" in node.attributes:
            start, end = (attr_int(node, x, 0) for x in ("start", "end"))
            if not 0 <= start <= end or start <= place < end:
                return None
            offset = (len(merged.parts) - 1) * (start > place)
            return _BoundaryViews(
                [node], value, lambda x, op: op.Shape(x, start=start + offset, end=end + offset), 1
            )
        if node not in ops.RESHAPES or node.inputs[0] is not value:
            return None
        return self._link_views(_views_below(node), value, place, merged, ends=True)

    def _link_views(
        self,
        views: Iterable[ir.Node],
        value: ir.Value,
        place: int,
        merged: _MergedDims,
        *,
        ends: bool = False,
    ) -> _BoundaryViews | None:
        """Return the most views that can be removed without a new view, else with one."""
        split_dims, row = self._split_dims(value, place, merged), list(views)
        rows = [row[:count] for count in range(len(row), 0, -1)]
        outside = [x[-1].outputs[0] if ends else x[-1].inputs[0] for x in rows]
        for removed, outer in zip(rows, outside, strict=True):
            if outer is not None and self._look.dims(outer) == tuple(map(dim_key, split_dims)):
                more = int(ends and outer.is_graph_output())
                return _BoundaryViews(removed, value, lambda value, op: value, more)
        for removed, outer in zip(rows, outside, strict=True):
            if (dims := self._look.view.shapes.dims(outer)) is not None:
                view = (
                    self._reshaping_between(split_dims, dims)
                    if ends
                    else self._reshaping_between(dims, split_dims)
                )
                if view is not None:
                    return _BoundaryViews(removed, value, view, 1)
        return None

    def _link_reduce(
        self, node: ir.Node, value: ir.Value, split_dims: Sequence[Dim]
    ) -> _BoundaryViews | None:
        """Return a Reduce that yields the split dims if it keeps its axes, or None."""
        if node not in ops.REDUCES or not (source_dims := self._look.dims(node.inputs[0])):
            return None
        axes = reduced_axes(node, len(source_dims), self._look.view.opset_of_node(node))
        if not axes:
            return None
        kept_dims = tuple(1 if i in axes else x for i, x in enumerate(source_dims))
        if kept_dims != tuple(map(dim_key, split_dims)):
            return None
        axes_input = node.inputs[1:]
        return _BoundaryViews(
            [node], value, lambda x, op: op.clone_node(node, x, *axes_input, keepdims=1), 1
        )

    def _reshaping_between(
        self, source_dims: Sequence[Dim], target_dims: Sequence[Dim]
    ) -> Reshaping | None:
        return view_by_unit_axes(source_dims, target_dims) or view_by_constant(
            source_dims, target_dims, None, self._look
        )

    def _neighbors_of(
        self, node: ir.Node, value: ir.Value, place: int, merged: _MergedDims
    ) -> list[tuple[ir.Value, int]] | None:
        """Return the tensors of ``node`` with the merged dim, and its axis; None if it needs it."""
        if any(x.uses() or x.is_graph_output() for x in node.outputs[1:]):
            return None
        opset = self._look.view.opset_of_node(node)
        if is_op(node, "MatMul") or node in ops.BROADCASTS.at(opset):
            return self._broadcast_neighbors(node, value, place, merged)
        output, first = node.outputs[0], node.inputs[0] if node.inputs else None
        if first is None or value not in (output, first):
            return None
        if is_op(node, "Transpose"):
            perm = perm_of(node, self._look)
            if place >= len(perm):
                return None
            if value is output:
                return [(value, place), (first, perm[place])]
            return [(value, place), (output, perm.index(place))]
        fits = self._treats_parts_alike(node, place, merged)
        return [(output, place), (first, place)] if fits else None

    def _treats_parts_alike(self, node: ir.Node, place: int, merged: _MergedDims) -> bool:
        """Return whether a node computes the same where this axis of its first input is split."""
        if is_op(node, "Pad"):
            pads = self._constant_pads(node)
            return pads is not None and pads.get(place, (0, 0)) == (0, 0)
        if is_op(node, "GatherElements"):
            return place == 0 and self._index_source(node, merged) is not None
        if node in _ALONG_AXES:
            axis = self._axis_behind(node)
            return axis is not None and place < axis
        if node in _SCALED:
            return self._look.view.shapes.rank(node.inputs[1]) == 0
        return node in _UNARY

    def _broadcast_neighbors(
        self, node: ir.Node, value: ir.Value, place: int, merged: _MergedDims
    ) -> list[tuple[ir.Value, int]] | None:
        """Return the same of a node that broadcasts, by dims counted from the end."""
        after = (self._look.view.shapes.rank(value) or 0) - place
        product = is_op(node, "MatMul")
        if product and after < 3:  # rows or columns: another product, and ONNX Runtime's Gemm
            return None
        neighbors = []
        for operand in (*node.inputs, node.outputs[0]):
            dims = self._look.dims(operand)
            if operand is None or dims is None or (product and len(dims) < 2):
                return None
            at = len(dims) - after
            if at >= 0 and dims[at] == merged.size:
                neighbors.append((operand, at))
            elif at > 0 or (at == 0 and dims[at] != 1):
                return None
        return neighbors if neighbors[-1][0] is node.outputs[0] else None

    def _constant_pads(self, node: ir.Node) -> dict[int, tuple[int, int]] | None:
        """Return how much a Pad adds before and behind each axis; None if not by a constant."""
        rank = self._look.view.shapes.rank(node.inputs[0])
        if rank is None or input_at(node, 1) is None:  # before opset 11 pads are an attribute
            return None
        return pads_by_axis(node, rank, self._look.numbers)

    def _index_source(self, node: ir.Node, merged: _MergedDims) -> ir.Value | None:
        """Return the tensor that GatherElements indices are expanded from along the merged dim.

        Relative positions are such: one matrix for all rows and heads.
        """
        index = node.inputs[1]
        expand = index.producer() if index is not None else None
        source = expand.inputs[0] if is_op(expand, "Expand") else None
        wide, dims = self._look.dims(index), self._look.dims(source)
        if not wide or dims is None or wide[0] != merged.size or not self._axis_behind(node):
            return None
        return source if (1, *wide[1:]) == (1,) * (len(wide) - len(dims)) + dims else None

    def _axis_behind(self, node: ir.Node) -> int | None:
        """Return the first axis that a Softmax or GatherElements works along, or None.

        Before opset 13 a Softmax covers all axes from its own on.
        """
        rank, opset = (
            len(self._look.dims(node.outputs[0]) or ()),
            self._look.view.opset_of_node(node),
        )
        if node in _ALONG_AXES:
            axes = softmax_axes(node, rank, opset)
            return axes[0] if axes else None
        return axis_of(node, rank, opset) if is_op(node, "GatherElements") else None

    # --- rebuilding them -------------------------------------------------------------------------

    def _build_end(self, node: ir.Node, region: _Region, op: Builder) -> ir.Value:
        end = region.ends[node]
        result = end.reshape(self._split_value(end.value, region, op), op)
        old = node.outputs[0]
        if old.is_graph_output() and result in region.new_values and not result.is_graph_output():
            op.replace_value(old, result)  # it keeps its name, also where others read it already
        return result

    def _split_value(self, value: ir.Value, region: _Region, op: Builder) -> ir.Value:
        """Return ``value`` with its dims split: its source before merging, or rebuilt."""
        if value not in region.split_values:
            start, producer = region.starts.get(value), value.producer()
            if start is not None and (source := start.views[-1].inputs[0]) is not None:
                region.split_values[value] = start.reshape(source, op)
            elif producer is not None:
                region.split_values[value] = self._rebuild_split(producer, region, op)
        return region.split_values[value]

    def _rebuild_split(self, node: ir.Node, region: _Region, op: Builder) -> ir.Value:
        inputs = [
            self._split_value(x, region, op) if x is not None and x in region.places else x
            for x in node.inputs
        ]
        old = node.outputs[0]
        place, extra_axes = region.places[old], len(region.merged.parts) - 1
        if is_op(node, "Pad") and (pads := self._constant_pads(node)) is not None:
            rank = len(self._look.dims(old) or ())
            ends = np.array([pads.get(axis, (0, 0)) for axis in range(rank)], np.int64).T
            inputs[1] = op.constant(np.insert(ends, [place] * extra_axes, 0, axis=1).reshape(-1))
            del inputs[3:]  # all axes are named
        if (
            is_op(node, "GatherElements")
            and (source := self._index_source(node, region.merged)) is not None
        ):
            inputs[1] = op.build_once(
                ("for each", source, *map(dim_key, region.merged.parts)),
                lambda: self._expand_index(source, inputs[0], region, op),
                source,
            )
        changed: dict[str, int | list[int]] = {}
        if (axis := self._axis_behind(node)) is not None:
            changed["axis"] = axis + extra_axes
        elif is_op(node, "Transpose"):
            at = perm_of(node, self._look)[place]
            changed["perm"] = [
                y for x in perm_of(node, self._look) for y in _split_axis(x, at, extra_axes)
            ]
        result = op.clone_node(node, *inputs, **changed)
        if (maker := result.producer()) is not None:
            maker.name = node.name
        region.new_values.add(result)
        shapes = self._look.view.shapes
        shapes.set_dims_and_dtype(
            result, self._split_dims(old, place, region.merged), shapes.dtype(old)
        )
        return result

    def _expand_index(
        self, source: ir.Value, data: ir.Value | None, region: _Region, op: Builder
    ) -> ir.Value:
        """Build ``source`` for each of the parts, which are the first dims of ``data``."""
        assert data is not None
        parts = [build_axis_size(data, axis, op) for axis in range(len(region.merged.parts))]
        other_dims = (self._look.view.shapes.rank(data) or 0) - len(parts)
        return op.Expand(source, op.Concat(*parts, np.ones(other_dims, np.int64), axis=0))


def _views_above(value: ir.Value) -> Iterator[ir.Node]:
    """Yield the view that makes ``value``, and views above that have no other reader."""
    node = value.producer()
    while ops.RESHAPES.has(node) and node.inputs[0] is not None:
        yield node
        node = exclusive_producer(node.inputs[0], *ops.RESHAPES)


def _views_below(node: ir.Node) -> Iterator[ir.Node]:
    """Yield a view, and the views below that are the only readers."""
    while True:
        yield node
        output = node.outputs[0]
        users = [use.node for use in output.uses()]
        if len(users) != 1 or output.is_graph_output() or users[0].graph is not node.graph:
            return
        if users[0] not in ops.RESHAPES or users[0].inputs[0] is not output:
            return
        node = users[0]


def _split_axis(axis: int, at: int, more: int) -> range:
    """Return where an axis is once the one at ``at`` has become ``more`` + 1 axes."""
    if axis == at:
        return range(at, at + more + 1)
    start = axis + more * (axis > at)
    return range(start, start + 1)
