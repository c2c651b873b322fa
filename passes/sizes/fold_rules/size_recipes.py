"""The ways to make a size, and which of them takes the fewest nodes. Nothing here edits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from graphfix.graph.nodes import is_op
from graphfix.graph.walks import opset_of

from ...common.lookup import INTEGERS, Key, Look

_VECTORS = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Neg", "Abs"})


@dataclass(frozen=True)
class WantedSize:
    """A size or a shape that something needs: its type, rank (0 or 1), and what it holds."""

    dtype: ir.DataType
    rank: int
    holds: tuple[Key, ...]

    @property
    def known(self) -> bool:
        """Whether it is a constant."""
        return all(isinstance(x, int) for x in self.holds)

    def piece(self, *holds: Key) -> WantedSize:
        """A part of it."""
        return WantedSize(self.dtype, 1, holds)


Dep = WantedSize | ir.Value
"""What a way needs: sizes, or a tensor that stays as it is."""


@dataclass(frozen=True)
class Way:
    """One way to make a :class:`WantedSize`.

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


NO_WAY = Way("constant", math.inf)


class Stock:
    """The sizes that the main graph of a model computes, and the tensors whose dims they may be.

    Attributes:
        order: Where each node stands.
        needs: What each tensor that holds a size holds.
        makers: The first node that makes each of them.
        shapes: The first tensor of each shape, and where the node stands that makes it.
        opset: The version of the standard opset.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self.order: dict[ir.Node, int] = {}
        self.needs: dict[ir.Value, WantedSize] = {}
        self.makers: dict[WantedSize, ir.Node] = {}
        self.shapes: dict[tuple[Key, ...], tuple[int, ir.Value]] = {}
        model = look.view.model
        self.opset = opset_of(model)
        for value in model.graph.inputs:
            if not value.is_initializer():
                self._offer(value, -1)
        for i, node in enumerate(model.graph):
            self.order[node] = i
            for value in node.outputs:
                self._offer(value, i)
            need = self._need_of(node)
            if need is not None:
                self.needs[node.outputs[0]] = need
                self.makers.setdefault(need, node)

    def _offer(self, value: ir.Value, order: int) -> None:
        dims = self._look.dims(value)
        if dims and dims not in self.shapes and not all(isinstance(x, int) for x in dims):
            self.shapes[dims] = order, value

    def _need_of(self, node: ir.Node) -> WantedSize | None:
        if len(node.outputs) != 1 or is_op(node, "Constant"):
            return None
        made = node.outputs[0]
        if self._look.view.shapes.data(made) is None:  # nearly always
            return None
        dtype, rank = self._look.view.shapes.dtype(made), self._look.view.shapes.rank(made)
        holds = self._look.data(made)
        if holds is None or rank is None or dtype not in INTEGERS:
            return None
        return WantedSize(dtype, rank, holds)

    def inputs(self, node: ir.Node) -> Iterator[ir.Value]:
        """What a node computes a size from: of a tensor whose shape is asked for, nothing."""
        if not is_op(node, "Shape", "Size"):
            yield from (x for x in node.inputs if x is not None)

    def deps(self, node: ir.Node) -> tuple[Dep, ...]:
        """The same as needs, where they are sizes."""
        return tuple(self.needs.get(x, x) for x in self.inputs(node))

    def vector_of(self, value: ir.Value) -> WantedSize | None:
        """What a constant holds, as a vector."""
        holds, dtype = self._look.data(value), self._look.view.shapes.dtype(value)
        return None if holds is None or dtype not in INTEGERS else WantedSize(dtype, 1, holds)


class Ways:
    """How each size is to be made: planned one by one, in the order of the graph.

    What is planned costs nothing for who comes later.

    Attributes:
        chosen: The way to make each size that is needed.
    """

    def __init__(self, stock: Stock) -> None:
        self._stock = stock
        self.chosen: dict[WantedSize, Way] = {}
        self._open: set[WantedSize] = set()
        self._costs: dict[WantedSize, float] = {}

    def choose(self, dep: Dep, before: int) -> None:
        """Decide how to make ``dep``, for a node at place ``before``, and all that it needs."""
        if isinstance(dep, ir.Value) or dep.known or dep in self.chosen:
            return
        way = self._best(dep, before)
        self._open.add(dep)  # a way that needs itself is none
        for other in way.deps:
            self.choose(other, before)
        self._open.discard(dep)
        self.chosen[dep] = way
        self._costs.clear()

    def _best(self, need: WantedSize, before: int) -> Way:
        """The cheapest way to make ``need``, where what is planned already costs nothing."""
        self._open.add(need)
        # Of equals a Concat of what is there already: a Shape is a kernel of the device.
        ways = self._all_ways(need, before)
        best = min(ways, key=lambda x: (x.cost, x.kind != "concat"), default=NO_WAY)
        self._open.discard(need)
        return best

    def _cost(self, dep: Dep, before: int) -> float:
        if isinstance(dep, ir.Value) or dep.known or dep in self.chosen:
            return 0
        if dep in self._open:
            return math.inf
        if dep not in self._costs:
            cost = self._best(dep, before).cost
            if math.isinf(cost):  # perhaps only from here
                return cost
            self._costs[dep] = cost
        return self._costs[dep]

    def _all_ways(self, need: WantedSize, before: int) -> Iterator[Way]:
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
        maker = self._stock.makers.get(need)
        if maker is not None and self._stock.order[maker] <= before:
            deps = self._stock.deps(maker)
            yield Way("node", self._costed("node", deps, before).cost, node=maker, deps=deps)

    def _costed(
        self, kind: Literal["concat", "squeeze", "node", "cut"], deps: tuple[Dep, ...], before: int
    ) -> Way:
        return Way(kind, 1 + sum(self._cost(x, before) for x in dict.fromkeys(deps)), deps=deps)

    def _from_dims(self, need: WantedSize, before: int) -> Iterator[Way]:
        """The dims of the first tensor that has them side by side, or of one asked for already."""
        size = len(need.holds)
        first = True
        for dims, (order, value) in self._stock.shapes.items():  # in the order of the graph
            if order >= before:
                return
            whole = need.piece(*dims)
            if not first and whole not in self.chosen:
                continue
            start = next(
                (i for i in range(len(dims) - size + 1) if dims[i : i + size] == need.holds), None
            )
            if start is None:
                continue
            first = False
            at = (start, start + size)
            if self._stock.opset >= 15 or size == len(dims):
                yield Way("shape", 1, source=value, at=at)
                return
            yield Way("cut", self._costed("cut", (whole,), before).cost, at=at, deps=(whole,))

    def _pieces(self, need: WantedSize, before: int) -> Iterator[WantedSize]:
        """``need`` in as few pieces as there can be: numbers, dims side by side, single sizes."""
        holds, i = need.holds, 0
        while i < len(holds):
            end = i + 1
            if isinstance(holds[i], int):
                while end < len(holds) and isinstance(holds[end], int):
                    end += 1
            else:
                for longer in range(len(holds) - (i == 0), i + 1, -1):
                    part, last = need.piece(*holds[i:longer]), holds[longer - 1]
                    # A number goes with what follows, as a constant.
                    ends = self._stock.opset < 15 or not isinstance(last, int)
                    if ends and any(x.kind == "shape" for x in self._from_dims(part, before)):
                        end = longer
                        break
            yield need.piece(*holds[i:end])
            i = end

    def _lifted(self, need: WantedSize, before: int) -> Iterator[Way]:
        """Arithmetic with scalars, done with vectors of one element instead."""
        maker = self._stock.makers.get(WantedSize(need.dtype, 0, need.holds))
        if maker is None or self._stock.order[maker] > before or not is_op(maker, *_VECTORS):
            return
        deps = self._stock.deps(maker)
        lifted = tuple(
            self._stock.vector_of(x) if isinstance(x, ir.Value) else x.piece(*x.holds) for x in deps
        )
        if all(x is not None and len(x.holds) == 1 for x in lifted):
            wanted = tuple(x for x in lifted if x is not None)
            yield Way("node", self._costed("node", wanted, before).cost, node=maker, deps=wanted)
