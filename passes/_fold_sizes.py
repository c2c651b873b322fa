"""Shape arithmetic with the fewest nodes: what to make each size from.

Exporters ask each tensor for its shape and take it apart anew in every layer. Here each shape
tensor that something needs is made the cheapest way: as the dims of a tensor that stand side by
side, of a few pieces, or as it was. All of it is planned first; if it is not less, nothing is done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx_ir as ir

from graphfix.model.values import is_op

from ._fold_look import INTEGERS, Found

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from graphfix.build import Builder

    from ._fold_look import Key, Look

_VECTORS = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Neg", "Abs"})


@dataclass(frozen=True)
class Need:
    """A size or a shape that something needs: its type, rank (0 or 1), and what it holds."""

    dtype: ir.DataType
    rank: int
    holds: tuple[Key, ...]

    @property
    def known(self) -> bool:
        """Whether it is a constant."""
        return all(isinstance(x, int) for x in self.holds)

    def piece(self, *holds: Key) -> Need:
        """A part of it."""
        return Need(self.dtype, 1, holds)


Dep = Need | ir.Value
"""What a way needs: sizes, or a tensor that stays as it is."""


@dataclass(frozen=True)
class Way:
    """One way to make a :class:`Need`.

    Attributes:
        kind: The dims of a tensor, a cut of them, pieces put together, the one element of a
            vector, or an operator of the model.
        cost: Its nodes and those of what it needs, shared ones counted each time.
        node: The operator of the model, if it is that.
        source: The tensor whose dims are taken.
        at: Which dims: from, to.
        deps: What it needs.
    """

    kind: Literal["shape", "cut", "concat", "squeeze", "node", "constant"]
    cost: float
    node: ir.Node | None = None
    source: ir.Value | None = None
    at: tuple[int, int] = (0, 0)
    deps: tuple[Dep, ...] = ()


_NO_WAY = Way("constant", math.inf)


class Sizes:
    """The plan for one model, and how each node of it is replaced."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._order: dict[ir.Node, int] = {}
        self._needs: dict[ir.Value, Need] = {}
        self._makers: dict[Need, ir.Node] = {}
        self._shapes: dict[tuple[Key, ...], tuple[int, ir.Value]] = {}
        self._ways: dict[Need, Way] = {}
        self._steps: set[ir.Value] = set()
        self._open: set[Need] = set()
        self._made: dict[Need, ir.Value] = {}
        self._steps_made: dict[ir.Value, ir.Value] = {}
        self._gather()
        self._plan: dict[ir.Node, Need] = {}
        if self._needs:
            self._plan = self._better()

    def __call__(self, node: ir.Node, look: Look) -> Found | None:
        """A node that makes a size another way than planned is replaced."""
        need = self._plan.get(node)
        if need is None:
            return None
        return Found(
            "the size it computes can be had for fewer nodes",
            lambda op: [self._realise(need, op)],
        )

    def _gather(self) -> None:
        """The sizes that the main graph computes, and the tensors whose dims they may be."""
        look, graph = self._look, self._look.view.model.graph
        for value in graph.inputs:
            if not value.is_initializer():
                self._offer(value, -1)
        for i, node in enumerate(graph):
            self._order[node] = i
            for value in node.outputs:
                self._offer(value, i)
            need = self._need_of(node)
            if need is not None:
                self._needs[node.outputs[0]] = need
                self._makers.setdefault(need, node)
        self._opset = look.view.model.opset_imports.get("", 1)

    def _offer(self, value: ir.Value, order: int) -> None:
        dims = self._look.dims(value)
        if dims and not all(isinstance(x, int) for x in dims):
            self._shapes.setdefault(dims, (order, value))

    def _need_of(self, node: ir.Node) -> Need | None:
        if len(node.outputs) != 1 or is_op(node, "Constant"):
            return None
        made = node.outputs[0]
        dtype, rank = self._look.view.shapes.dtype(made), self._look.view.shapes.rank(made)
        holds = self._look.data(made)
        if holds is None or rank is None or dtype not in INTEGERS:
            return None
        return Need(dtype, rank, holds)

    def _better(self) -> dict[ir.Node, Need]:
        """The nodes to replace; none if that would not make the whole any smaller."""
        wanted = {x: self._needs[x.outputs[0]] for x in self._order if self._is_wanted(x)}
        now = self._count_now(list(wanted))
        for node, need in wanted.items():
            self._choose(need, self._order[node])
        if any(x is _NO_WAY for x in self._ways.values()):
            return {}  # equal sizes that are made of each other: another round finds them one
        if len(self._ways) + len(self._steps) >= now:
            return {}
        return {node: need for node, need in wanted.items() if not self._stays(node, need)}

    def _is_wanted(self, node: ir.Node) -> bool:
        """Whether a size is needed by something that computes no size."""
        made = node.outputs[0] if len(node.outputs) == 1 else None
        if made is None or made not in self._needs or self._needs[made].known:
            return False
        return not made.is_graph_output() and any(
            len(use.node.outputs) != 1 or not self._is_size(use.node.outputs[0])
            for use in made.uses()
        )

    def _is_size(self, value: ir.Value) -> bool:
        return value in self._needs or self._is_step(value)

    def _is_step(self, value: ir.Value) -> bool:
        """Whether it is a small matrix of integers, of which inference says only the shape."""
        shapes, node = self._look.view.shapes, value.producer()
        dims = shapes.dims(value)
        sizes = [x for x in dims or () if isinstance(x, int)]
        return (
            node is not None
            and node.graph is self._look.view.model.graph
            and len(node.outputs) == 1
            and is_op(node, "Reshape", "Transpose", "Slice", "Concat", "Unsqueeze", "Squeeze")
            and dims is not None
            and len(sizes) == len(dims) == 2
            and math.prod(sizes) <= 64
            and shapes.dtype(value) in INTEGERS
        )

    def _count_now(self, wanted: Sequence[ir.Node]) -> int:
        seen, pending = set(wanted), list(wanted)
        while pending:
            node = pending.pop()
            for value in self._inputs(node):
                maker = value.producer()
                if maker is not None and maker not in seen and self._is_size(value):
                    seen.add(maker)
                    pending.append(maker)
        return sum(not self._is_known(x) for x in seen)

    def _is_known(self, node: ir.Node) -> bool:
        need = self._needs.get(node.outputs[0])
        return need is not None and need.known

    def _choose(self, dep: Dep, before: int) -> None:
        """Decide how to make ``dep``, for a node at place ``before``, and all that it needs."""
        if isinstance(dep, ir.Value):
            maker = dep.producer()
            if maker is not None and self._is_step(dep) and dep not in self._steps:
                self._steps.add(dep)
                for other in self._deps(maker):
                    self._choose(other, before)
        elif not dep.known and dep not in self._ways:
            way = self._best(dep, before)
            self._open.add(dep)  # a way that needs itself is none
            for other in way.deps:
                self._choose(other, before)
            self._open.discard(dep)
            self._ways[dep] = way

    def _inputs(self, node: ir.Node) -> Iterator[ir.Value]:
        if not is_op(node, "Shape", "Size"):
            yield from (x for x in node.inputs if x is not None)

    def _deps(self, node: ir.Node) -> tuple[Dep, ...]:
        return tuple(self._needs.get(x, x) for x in self._inputs(node))

    def _stays(self, node: ir.Node, need: Need) -> bool:
        """Whether ``node`` and all that it is made from are as planned."""
        way = self._ways[need]
        if way.kind == "shape":
            return is_op(node, "Shape")  # of another tensor: as good
        if way.kind != "node":
            return self._is_as(node, way)
        if way.node is not node:
            return False
        return all(
            self._is_made(value, dep)
            for value, dep in zip(self._inputs(node), way.deps, strict=True)
        )

    def _is_made(self, value: ir.Value, dep: Dep) -> bool:
        """Whether ``value`` is what is planned for ``dep``."""
        maker = value.producer()
        if isinstance(dep, Need):
            if dep.known:
                return self._look.data(value) == dep.holds
            return maker is not None and self._needs.get(value) == dep and self._stays(maker, dep)
        if maker is None or not self._is_step(value):
            return value is dep
        pairs = zip(self._inputs(maker), self._deps(maker), strict=True)
        return all(self._is_made(x, y) for x, y in pairs)

    def _is_as(self, node: ir.Node, way: Way) -> bool:
        """Whether ``node`` is already what a cut, a Concat or a Squeeze would be."""
        given = list(self._inputs(node))
        if way.kind == "concat":
            same = is_op(node, "Concat") and len(given) == len(way.deps)
            return same and all(map(self._is_made, given, way.deps))
        made_by = ("Squeeze",) if way.kind == "squeeze" else ("Gather", "Slice")
        return is_op(node, *made_by) and self._is_made(given[0], way.deps[0])

    def _best(self, need: Need, before: int) -> Way:
        """The cheapest way to make ``need``, where what is planned already costs nothing."""
        self._open.add(need)
        best = min(self._all_ways(need, before), key=lambda x: x.cost, default=_NO_WAY)
        self._open.discard(need)
        return best

    def _cost(self, dep: Dep, before: int) -> float:
        if isinstance(dep, ir.Value):
            maker = dep.producer()
            if maker is None or dep in self._steps or not self._is_step(dep):
                return 0
            return 1 + sum(self._cost(x, before) for x in self._deps(maker))
        if dep in self._open:
            return math.inf
        return 0 if dep.known or dep in self._ways else self._best(dep, before).cost

    def _all_ways(self, need: Need, before: int) -> Iterator[Way]:
        """The ways, those first that are the same for all who need it."""
        if need.rank == 1 and need.dtype == ir.DataType.INT64:
            yield from self._from_dims(need, before)
            if len(need.holds) > 1:
                pieces = tuple(self._pieces(need, before))
                if len(pieces) > 1:
                    yield self._costed("concat", pieces, before)
            yield from self._lifted(need, before)
        if need.rank == 0 and need.dtype == ir.DataType.INT64:
            yield self._costed("squeeze", (need.piece(*need.holds),), before)
        maker = self._makers.get(need)
        if maker is not None and self._order[maker] <= before:
            deps = self._deps(maker)
            kind = self._costed("node", deps, before)
            yield Way("node", kind.cost, node=maker, deps=deps)

    def _costed(
        self, kind: Literal["concat", "squeeze", "node", "cut"], deps: tuple[Dep, ...], before: int
    ) -> Way:
        cost = 1 + sum(self._cost(x, before) for x in dict.fromkeys(deps))
        return Way(kind, cost, deps=deps)

    def _from_dims(self, need: Need, before: int) -> Iterator[Way]:
        """The dims of the first tensor that has them side by side, or of one asked for already."""
        size = len(need.holds)
        first = True
        for dims, (order, value) in self._shapes.items():  # in the order of the graph
            if order >= before:
                return
            whole = need.piece(*dims)
            if not first and whole not in self._ways:
                continue
            start = next(
                (i for i in range(len(dims) - size + 1) if dims[i : i + size] == need.holds), None
            )
            if start is None:
                continue
            first = False
            at = (start, start + size)
            if self._opset >= 15 or size == len(dims):
                yield Way("shape", 1, source=value, at=at)
                return
            yield Way("cut", self._costed("cut", (whole,), before).cost, at=at, deps=(whole,))

    def _pieces(self, need: Need, before: int) -> Iterator[Need]:
        """``need`` in as few pieces as there can be: numbers, dims side by side, single sizes."""
        holds, i = need.holds, 0
        while i < len(holds):
            end = i + 1
            if isinstance(holds[i], int):
                while end < len(holds) and isinstance(holds[end], int):
                    end += 1
            else:
                for longer in range(len(holds) - (i == 0), i + 1, -1):
                    part = need.piece(*holds[i:longer])
                    if any(x.kind == "shape" for x in self._from_dims(part, before)):
                        end = longer
                        break
            yield need.piece(*holds[i:end])
            i = end

    def _lifted(self, need: Need, before: int) -> Iterator[Way]:
        """Arithmetic with scalars, done with vectors of one element instead."""
        maker = self._makers.get(Need(need.dtype, 0, need.holds))
        if maker is None or self._order[maker] > before or not is_op(maker, *_VECTORS):
            return
        deps = self._deps(maker)
        lifted = tuple(
            self._constant(x) if isinstance(x, ir.Value) else x.piece(*x.holds) for x in deps
        )
        if all(x is not None and len(x.holds) == 1 for x in lifted):
            wanted = tuple(x for x in lifted if x is not None)
            yield Way("node", self._costed("node", wanted, before).cost, node=maker, deps=wanted)

    def _constant(self, value: ir.Value) -> Need | None:
        holds, dtype = self._look.data(value), self._look.view.shapes.dtype(value)
        if holds is None or dtype not in INTEGERS:
            return None
        return Need(dtype, 1, holds)

    def _realise(self, need: Need, op: Builder) -> ir.Value:
        """The tensor that holds ``need``: one that is there, or made before the site."""
        found = self._made.get(need)
        if found is not None and (maker := found.producer()) is not None and maker.graph:
            return found
        if need.known:
            array = np.array(need.holds, need.dtype.numpy())
            return op.constant(array if need.rank else array.reshape(()))
        made = self._made[need] = self._build(need, self._ways[need], op)
        return made

    def _given(self, dep: Dep, op: Builder) -> ir.Value:
        if isinstance(dep, Need):
            return self._realise(dep, op)
        maker = dep.producer()
        if maker is None or not self._is_step(dep):
            return dep
        if dep not in self._steps_made:
            given = [self._given(x, op) for x in self._deps(maker)]
            same = given == list(self._inputs(maker))
            self._steps_made[dep] = dep if same else op.again(maker, *given)
        return self._steps_made[dep]

    def _build(self, need: Need, way: Way, op: Builder) -> ir.Value:
        if way.kind == "shape" and way.source is not None:
            start, end = way.at
            if way.at == (0, self._look.view.shapes.rank(way.source)):
                return op.Shape(way.source)
            return op.Shape(way.source, start=start, end=end)
        given = [self._given(x, op) for x in way.deps]
        if way.kind == "concat":
            return op.Concat(*given, axis=0)
        if way.kind == "squeeze":
            return op.Squeeze(*given)
        if way.kind == "cut":
            first, last = (np.array([x], np.int64) for x in way.at)
            if way.at[1] - way.at[0] == 1:
                return op.Gather(*given, first, axis=0)
            return op.Slice(*given, first, last)
        if way.node is None:
            raise RuntimeError(f"there is no way to make {need}")
        node = way.node
        if is_op(node, "Shape", "Size"):
            return op.again(node, *node.inputs)
        made = node.outputs[0]
        same = self._needs[made] == need and list(self._inputs(node)) == given
        return made if same and node.graph is not None else op.again(node, *given)
