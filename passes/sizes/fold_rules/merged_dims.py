"""Dims that are merged for a while and then taken apart again: what lies between needs no merging.

torch's eager attention writes ``[B, H, T, D]`` to ``[B*H, T, D]``, multiplies, and back: a product
of matrices, a Softmax over the keys and all that goes by elements is the same for either. Such a
region, from the merges to the splits, is computed with the dims apart; the views around it go.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import onnx_ir as ir

from graphfix.directml.kernel_table import MATRIX_DIMS
from graphfix.editing.builder import Builder
from graphfix.facts.symbolic.expressions import Dim, key_of, times
from graphfix.graph.constants import axes_of
from graphfix.graph.nodes import attr_int, input_at, is_op
from graphfix.graph.text import size_told
from graphfix.graph.walks import nodes_of
from graphfix.lengths.dim_nodes import size_of
from graphfix.ops.broadcast import BY_ELEMENT, is_broadcast

from ...common.lookup import VIEWS, Key, Look, Replacement, alone, perm_of
from .views import Reshaping, by_constant, by_ones

# An attention has less than twenty nodes; a region of so many is a whole network.
_MOST_NODES = 100

_REDUCES = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
_ALONG_ONE = ("Softmax", "LogSoftmax")
_SCALED = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True)
class _Lead:
    """Dims side by side, and the one that they are together."""

    parts: tuple[Dim, ...]
    whole: Key

    @property
    def is_mere(self) -> bool:
        """Whether all parts but one are 1."""
        return sum(x != 1 for x in self.parts) < 2

    def apart(self, dims: Sequence[Dim], place: int) -> tuple[Dim, ...]:
        """``dims`` with the parts instead of what is at ``place``."""
        return (*dims[:place], *self.parts, *dims[place + 1 :])


@dataclass(frozen=True)
class _Link:
    """Views between a region and what is outside of it.

    Attributes:
        views: Those that go, from the region outwards; or a Reduce that is made once more.
        value: What is in the region.
        view: How the one is had of the other with the dims apart.
        more: How many nodes come instead: a view, or an Identity for an output of the graph.
    """

    views: list[ir.Node]
    value: ir.Value
    view: Reshaping
    more: int = 0


@dataclass
class _Region:
    """Tensors with a dim of one size that nothing needs merged, all that hang together.

    Attributes:
        lead: The dims.
        places: Where each tensor has the merged one.
        starts: The tensors that views, or a Reduce, make.
        ends: The views that end it.
        made: The tensors with the dims apart.
        fresh: Those of them that were not there before.
    """

    lead: _Lead
    places: dict[ir.Value, int] = field(default_factory=dict)
    starts: dict[ir.Value, _Link] = field(default_factory=dict)
    ends: dict[ir.Node, _Link] = field(default_factory=dict)
    made: dict[ir.Value, ir.Value] = field(default_factory=dict)
    fresh: set[ir.Value] = field(default_factory=set)

    @property
    def views(self) -> list[ir.Node]:
        """All views that go."""
        return [view for link in self._links for view in link.views]

    @property
    def is_worth_it(self) -> bool:
        """Whether it ends, nodes are saved, and no view both starts and ends it."""
        come = sum(link.more for link in self._links)
        return bool(self.ends) and len(self.views) == len(set(self.views)) > come

    @property
    def _links(self) -> list[_Link]:
        return [*self.starts.values(), *self.ends.values()]


class Apart:
    """The regions of one model, and what stands for the views that end them."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._failed: set[tuple[ir.Value, int, _Lead]] = set()
        self._ends: dict[ir.Node, _Region] = {}
        taken: set[ir.Value | ir.Node] = set()
        # Batch and heads before a dim of 1 and both together: less is left.
        for lead, value, place in sorted(self._seeds(), key=lambda seed: seed[0].is_mere):
            if value not in taken and (value, place, lead) not in self._failed:
                region = _Region(lead)
                grown = self._grows(region, value, place)
                # A view that ends one region may start another, which then is for another round.
                if grown and taken.isdisjoint((*region.places, *region.views)):
                    taken.update(region.places, region.views)
                    self._ends.update(dict.fromkeys(region.ends, region))
                self._failed.update((x, at, lead) for x, at in region.places.items())

    @property
    def finds(self) -> bool:
        """Whether there is any region."""
        return bool(self._ends)

    def __call__(self, node: ir.Node, look: Look) -> Replacement | None:
        """A view that takes apart what was merged, once all before it is computed so."""
        region = self._ends.get(node)
        if region is None:
            return None
        parts = ", ".join(map(size_told, region.lead.parts))
        why = f"what it is made from can be computed with [{parts}] apart"
        return Replacement(why, lambda op: [self._ended(node, region, op)])

    # --- looking -----------------------------------------------------------------------------

    def _seeds(self) -> Iterator[tuple[_Lead, ir.Value, int]]:
        """Every tensor that a row of views merges into, or splits."""
        for node in nodes_of(self._look.view.model.graph):
            if not is_op(node, *VIEWS) or node.inputs[0] is None:
                continue
            for above in _above(node.outputs[0]):
                for lead, place in self._merged(above.inputs[0], node.outputs[0]):
                    yield lead, node.outputs[0], place
            for below in _below(node):
                for lead, place in self._merged(below.outputs[0], node.inputs[0]):
                    yield lead, node.inputs[0], place

    def _merged(self, many: ir.Value | None, few: ir.Value) -> Iterator[tuple[_Lead, int]]:
        """Which dims of ``many`` are one dim of ``few``, if all others are as they were."""
        wide, narrow = self._look.dims(many), self._look.dims(few)
        parts = self._look.view.shapes.dims(many)
        # What takes more dims than a MatMul does is hardly worth it.
        if wide is None or narrow is None or parts is None or len(wide) > MATRIX_DIMS:
            return
        count = len(wide) - len(narrow) + 1
        for place, whole in enumerate(narrow if count > 1 else ()):
            end = place + count
            if whole != 1 and wide[:place] + wide[end:] == narrow[:place] + narrow[place + 1 :]:
                lead = parts[place:end]
                if key_of(reduce(times, lead)) == whole:
                    yield _Lead(lead, whole), place

    def _grows(self, region: _Region, value: ir.Value, place: int) -> bool:
        """Add all that hangs together with ``value``; whether that is a region worth computing."""
        home = maker.graph if (maker := value.producer()) is not None else None
        inside: set[ir.Node] = set()
        pending = [(value, place)]
        while pending:
            value, place = pending.pop()
            if value in region.places:
                if region.places[value] != place:
                    return False
                continue
            region.places[value] = place
            if not self._may_be(value, place, region.lead) or len(inside) > _MOST_NODES:
                return False
            maker = value.producer()
            uses = [use.node for use in value.uses()]
            if maker is None or any(x.graph is not home for x in (maker, *uses)):
                return False
            start = self._link(_above(value), value, place, region.lead)
            apart = self._apart(value, place, region.lead)
            if start is None and (start := self._kept(maker, value, apart)) is not None:
                inside.add(maker)
            ends = {x: self._end_of(x, value, place, region.lead) for x in uses}
            near = [x for x, end in ends.items() if end is None]
            if start is None:
                near.append(maker)
            else:
                region.starts[value] = start
            region.ends.update({x.views[-1]: x for x in ends.values() if x is not None})
            for node in near:
                found = self._around(node, value, place, region.lead)
                if found is None:
                    return False
                inside.add(node)
                pending += found
        return bool(inside) and region.is_worth_it

    def _may_be(self, value: ir.Value, place: int, lead: _Lead) -> bool:
        if value.is_graph_output() or (value, place, lead) in self._failed:
            return False
        dims = self._look.dims(value)
        if dims is None or len(dims) + len(lead.parts) - 1 > MATRIX_DIMS:
            return False
        # A mask of [B, T] is what an attention takes, once fused: [B, 1, 1, T] costs it a Squeeze.
        if lead.is_mere and self._look.view.shapes.dtype(value) == ir.DataType.BOOL:
            return False
        return dims[place] == lead.whole

    def _apart(self, value: ir.Value, place: int, lead: _Lead) -> tuple[Dim, ...]:
        return lead.apart(self._look.view.shapes.dims(value) or (), place)

    def _end_of(self, node: ir.Node, value: ir.Value, place: int, lead: _Lead) -> _Link | None:
        """``node`` and views behind it, if what they make can be had of ``value`` apart."""
        if is_op(node, "Shape") and "end" in node.attributes:
            start, end = (attr_int(node, x, 0) for x in ("start", "end"))
            if not 0 <= start <= end or start <= place < end:
                return None
            moved = (len(lead.parts) - 1) * (start > place)
            return _Link(
                [node], value, lambda x, op: op.Shape(x, start=start + moved, end=end + moved), 1
            )
        if not is_op(node, *VIEWS) or node.inputs[0] is not value:
            return None
        return self._link(_below(node), value, place, lead, ends=True)

    def _link(
        self,
        views: Iterable[ir.Node],
        value: ir.Value,
        place: int,
        lead: _Lead,
        *,
        ends: bool = False,
    ) -> _Link | None:
        """The most of ``views`` that go for nothing, or else the most that go for one view."""
        inside, row = self._apart(value, place, lead), list(views)
        rows = [row[:count] for count in range(len(row), 0, -1)]
        outside = [x[-1].outputs[0] if ends else x[-1].inputs[0] for x in rows]
        for gone, other in zip(rows, outside, strict=True):
            if other is not None and self._look.dims(other) == tuple(map(key_of, inside)):
                more = int(ends and other.is_graph_output())
                return _Link(gone, value, lambda value, op: value, more)
        for gone, other in zip(rows, outside, strict=True):
            if (dims := self._look.view.shapes.dims(other)) is not None:
                view = self._view(inside, dims) if ends else self._view(dims, inside)
                if view is not None:
                    return _Link(gone, value, view, 1)
        return None

    def _kept(self, node: ir.Node, value: ir.Value, inside: Sequence[Dim]) -> _Link | None:
        """A Reduce that gives the dims apart if it keeps its axes, as that of a mask's lengths."""
        given, axes = self._look.dims(node.inputs[0]) if node.inputs else None, axes_of(node)
        if not is_op(node, *_REDUCES) or not given or not axes:
            return None
        ones = {x % len(given) for x in axes}
        if tuple(1 if i in ones else x for i, x in enumerate(given)) != tuple(map(key_of, inside)):
            return None
        axis = node.inputs[1:]
        return _Link([node], value, lambda x, op: op.again(node, x, *axis, keepdims=1), 1)

    def _view(self, given: Sequence[Dim], made: Sequence[Dim]) -> Reshaping | None:
        return by_ones(given, made) or by_constant(given, made, None, self._look)

    def _around(
        self, node: ir.Node, value: ir.Value, place: int, lead: _Lead
    ) -> list[tuple[ir.Value, int]] | None:
        """Which tensors of ``node`` have the merged dim, and where; None if it needs it merged."""
        if any(x.uses() or x.is_graph_output() for x in node.outputs[1:]):
            return None
        made, first = node.outputs[0], node.inputs[0] if node.inputs else None
        if is_op(node, "MatMul") or is_broadcast(node, self._look.view.opset(node)):
            return self._aligned(node, value, place, lead)
        if first is None or value not in (made, first):
            return None
        if is_op(node, "Pad"):
            pads = self._pads(node)
            kept = pads is not None and pads[place] == pads[place + len(pads) // 2] == 0
            return [(made, place), (first, place)] if kept else None
        if is_op(node, "GatherElements"):
            fits = place == 0 and self._index(node, lead) is not None
            return [(made, place), (first, place)] if fits else None
        if is_op(node, "Transpose"):
            perm = perm_of(node, self._look)
            if value is made:
                return [(value, place), (first, perm[place])]
            return [(value, place), (made, perm.index(place))]
        if is_op(node, *_ALONG_ONE) and place >= self._axis(node):
            return None
        if is_op(node, *_SCALED) and self._look.view.shapes.rank(node.inputs[1]) != 0:
            return None
        if is_op(node, *BY_ELEMENT, *_ALONG_ONE, *_SCALED):
            return [(made, place), (first, place)]
        return None

    def _aligned(
        self, node: ir.Node, value: ir.Value, place: int, lead: _Lead
    ) -> list[tuple[ir.Value, int]] | None:
        """The same of a node that broadcasts, which goes by the dims from the last one on."""
        after = (self._look.view.shapes.rank(value) or 0) - place
        product = is_op(node, "MatMul")
        if product and after < 3:  # rows or columns: another product, and ONNX Runtime's Gemm
            return None
        found = []
        for other in (*node.inputs, node.outputs[0]):
            dims = self._look.dims(other)
            if other is None or dims is None or (product and len(dims) < 2):
                return None
            at = len(dims) - after
            if at >= 0 and dims[at] == lead.whole:
                found.append((other, at))
            elif at > 0 or (at == 0 and dims[at] != 1):
                return None
        return found if found[-1][0] is node.outputs[0] else None

    def _pads(self, node: ir.Node) -> tuple[int, ...] | None:
        """How much a Pad puts before and behind each axis, if that is a constant."""
        pads = self._look.numbers(input_at(node, 1)) if input_at(node, 3) is None else None
        rank = self._look.view.shapes.rank(node.inputs[0])
        return tuple(pads) if pads is not None and rank and len(pads) == 2 * rank else None

    def _index(self, node: ir.Node, lead: _Lead) -> ir.Value | None:
        """What the indices of a GatherElements are expanded from, the same for all that is merged.

        Relative positions are such, which are one matrix for all rows and heads.
        """
        index, axis = node.inputs[1], attr_int(node, "axis", 0)
        expand = index.producer() if index is not None else None
        source = expand.inputs[0] if is_op(expand, "Expand") else None
        wide, dims = self._look.dims(index), self._look.dims(source)
        if not wide or dims is None or axis % len(wide) == 0 or wide[0] != lead.whole:
            return None
        return source if (1, *wide[1:]) == (1,) * (len(wide) - len(dims)) + dims else None

    def _axis(self, node: ir.Node) -> int:
        """From which axis on a Softmax goes; before opset 13 all that follow are one with it."""
        axis = attr_int(node, "axis", -1 if self._look.view.opset(node) >= 13 else 1)
        return axis % (self._look.view.shapes.rank(node.inputs[0]) or 1)

    # --- making ------------------------------------------------------------------------------

    def _ended(self, node: ir.Node, region: _Region, op: Builder) -> ir.Value:
        end = region.ends[node]
        made = end.view(self._of(end.value, region, op), op)
        old = node.outputs[0]
        if old.is_graph_output() and made in region.fresh and not made.is_graph_output():
            op.replace(old, made)  # it keeps its name, also where others read it already
        return made

    def _of(self, value: ir.Value, region: _Region, op: Builder) -> ir.Value:
        """``value`` with its dims apart: what it was merged from, or recompiled."""
        if value not in region.made:
            start, maker = region.starts.get(value), value.producer()
            if start is not None and (source := start.views[-1].inputs[0]) is not None:
                region.made[value] = start.view(source, op)
            elif maker is not None:
                region.made[value] = self._again(maker, region, op)
        return region.made[value]

    def _again(self, node: ir.Node, region: _Region, op: Builder) -> ir.Value:
        inputs = [
            self._of(x, region, op) if x is not None and x in region.places else x
            for x in node.inputs
        ]
        old = node.outputs[0]
        place, more = region.places[old], len(region.lead.parts) - 1
        if is_op(node, "Pad") and (pads := self._pads(node)) is not None:
            ends = np.array(pads, np.int64).reshape(2, -1)
            inputs[1] = op.constant(np.insert(ends, [place] * more, 0, axis=1).reshape(-1))
        if is_op(node, "GatherElements") and (source := self._index(node, region.lead)) is not None:
            inputs[1] = op.once(
                ("for each", source, *map(key_of, region.lead.parts)),
                lambda: self._expanded(source, inputs[0], region, op),
                source,
            )
        changed: dict[str, int | list[int]] = {}
        if is_op(node, *_ALONG_ONE):
            changed["axis"] = self._axis(node) + more
        elif is_op(node, "GatherElements"):
            changed["axis"] = attr_int(node, "axis", 0) % len(self._look.dims(old) or ()) + more
        elif is_op(node, "Transpose"):
            at = perm_of(node, self._look)[place]
            changed["perm"] = [y for x in perm_of(node, self._look) for y in _spread(x, at, more)]
        made = op.again(node, *inputs, **changed)
        if (maker := made.producer()) is not None:
            maker.name = node.name
        region.fresh.add(made)
        shapes = self._look.view.shapes
        shapes.say(made, self._apart(old, place, region.lead), shapes.dtype(old))
        return made

    def _expanded(
        self, source: ir.Value, data: ir.Value | None, region: _Region, op: Builder
    ) -> ir.Value:
        """``source`` for each of the parts, which are the first dims of ``data``."""
        assert data is not None
        parts = [size_of(data, axis, op) for axis in range(len(region.lead.parts))]
        rest = (self._look.view.shapes.rank(data) or 0) - len(parts)
        return op.Expand(source, op.Concat(*parts, np.ones(rest, np.int64), axis=0))


def _above(value: ir.Value) -> Iterator[ir.Node]:
    """The view that makes ``value``, and the views of which each is only for the one after it."""
    node = value.producer()
    while is_op(node, *VIEWS) and node.inputs[0] is not None:
        yield node
        node = alone(node.inputs[0], *VIEWS)


def _below(node: ir.Node) -> Iterator[ir.Node]:
    """A view, and the views that alone read what the one before makes."""
    while True:
        yield node
        made = node.outputs[0]
        users = [use.node for use in made.uses()]
        if len(users) != 1 or made.is_graph_output() or users[0].graph is not node.graph:
            return
        if not is_op(users[0], *VIEWS) or users[0].inputs[0] is not made:
            return
        node = users[0]


def _spread(axis: int, at: int, more: int) -> range:
    """Where an axis is once the one at ``at`` is ``more`` than one; that is all of them."""
    if axis == at:
        return range(at, at + more + 1)
    start = axis + more * (axis > at)
    return range(start, start + 1)
