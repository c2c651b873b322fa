"""Recipes for sizes, and the choice of those with the fewest nodes. Edits nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from graphfix import ops
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import opset_of, reachable_from
from graphfix.providers.directml.operator_facts import ACTIVATIONS_TAKEN

from ...common.fold_view import INTEGERS, FoldView, Key

# Elementwise: a vector of one element gives a vector of the result for that element.
_COMPUTES_SIZES = ops.BROADCASTS | ops.named("Abs Neg")


@dataclass(frozen=True)
class WantedSize:
    """A size or a shape that something needs: its type, rank (0 or 1), and elements."""

    dtype: ir.DataType
    rank: int
    elements: tuple[Key, ...]

    @property
    def is_constant(self) -> bool:
        """Return whether all elements are numbers."""
        return all(isinstance(x, int) for x in self.elements)

    def vector_of(self, *elements: Key) -> WantedSize:
        """Return a vector of the same type with these elements."""
        return WantedSize(self.dtype, 1, elements)


Dep = WantedSize | ir.Value
"""A dependency of a recipe: a size, or a tensor that is used as it is."""


@dataclass(frozen=True)
class SizeRecipe:
    """One way to compute a :class:`WantedSize`.

    Attributes:
        kind: The dims of a tensor, a cut of them, joined pieces, the one element of a vector,
            or an operator of the model.
        cost: Its nodes and those of its dependencies, shared ones counted each time.
        node: The operator of the model, if it is one.
        source: The tensor whose dims are taken.
        span: Which dims: from, to.
        deps: Its dependencies.
    """

    kind: Literal["shape", "cut", "concat", "squeeze", "node", "constant"]
    cost: float
    node: ir.Node | None = None
    source: ir.Value | None = None
    span: tuple[int, int] = (0, 0)
    deps: tuple[Dep, ...] = ()


NO_RECIPE = SizeRecipe("constant", math.inf)


class SizeInventory:
    """The sizes that the main graph computes, and tensors with such dims.

    Attributes:
        order: The position of each node in the graph.
        needs: What each tensor that holds a size holds.
        makers: The first node that computes each size.
        shapes: The first tensor of each shape, with the position of its producer.
        kept_nodes: The nodes that stay whatever is planned: what graph outputs are computed from,
            and dead ones, which no pass removes.
        kept: The first of them for each size.
        opset: The version of the standard opset.
    """

    def __init__(self, look: FoldView) -> None:
        self._look = look
        self.order: dict[ir.Node, int] = {}
        self.needs: dict[ir.Value, WantedSize] = {}
        self.makers: dict[WantedSize, ir.Node] = {}
        self.shapes: dict[tuple[Key, ...], tuple[int, ir.Value]] = {}
        model = look.view.model
        self.opset = opset_of(model)
        for value in model.graph.inputs:
            if not value.is_initializer():
                self._add_shape(value, -1)
        for i, node in enumerate(model.graph):
            self.order[node] = i
            for value in node.outputs:
                self._add_shape(value, i)
            need = self._size_of_node(node)
            if need is not None:
                self.needs[node.outputs[0]] = need
                self.makers.setdefault(need, node)
        self.kept_nodes = {*self._nodes_of_ends()}
        self.kept: dict[WantedSize, ir.Node] = {}
        for node in sorted(self.kept_nodes, key=self.order.__getitem__):
            self.kept.setdefault(self.needs[node.outputs[0]], node)

    def _nodes_of_ends(self) -> Iterator[ir.Node]:
        """Yield the nodes that compute sizes which are outputs or which nobody reads."""
        ends = (x for x in self.needs if x.is_graph_output() or not x.uses())
        return reachable_from(
            (x.producer() for x in ends),
            lambda node: (x.producer() for x in self.size_inputs(node) if x in self.needs),
        )

    def _add_shape(self, value: ir.Value, order: int) -> None:
        dims = self._look.dims(value)
        if not dims or dims in self.shapes or all(isinstance(x, int) for x in dims):
            return
        if not _goes_into_activation(value):
            self.shapes[dims] = order, value

    def _size_of_node(self, node: ir.Node) -> WantedSize | None:
        if len(node.outputs) != 1 or is_op(node, "Constant"):
            return None
        output = node.outputs[0]
        if self._look.view.shapes.known_elements(output) is None:  # nearly always
            return None
        dtype, rank = self._look.view.shapes.dtype(output), self._look.view.shapes.rank(output)
        elements = self._look.data(output)
        if elements is None or rank is None or dtype not in INTEGERS:
            return None
        return WantedSize(dtype, rank, elements)

    def size_inputs(self, node: ir.Node) -> Iterator[ir.Value]:
        """Yield what a node computes a size from; nothing for a Shape."""
        if node not in ops.MEASURES:
            yield from (x for x in node.inputs if x is not None)

    def dependencies_of(self, node: ir.Node) -> tuple[Dep, ...]:
        """Return the inputs of a node, as sizes where they are sizes."""
        return tuple(self.needs.get(x, x) for x in self.size_inputs(node))

    def constant_vector(self, value: ir.Value) -> WantedSize | None:
        """Return the content of a constant as a vector, or None."""
        elements, dtype = self._look.data(value), self._look.view.shapes.dtype(value)
        return None if elements is None or dtype not in INTEGERS else WantedSize(dtype, 1, elements)


def _goes_into_activation(value: ir.Value) -> bool:
    """Return whether nothing but an activation reads a tensor, beside Shapes.

    DirectML computes both in one kernel if no Shape reads what lies between. Behind the activation
    there is a tensor of the same shape.
    """
    readers = [x.node for x in value.uses() if x.node not in ops.MEASURES]
    maker = value.producer()
    if maker is None or len(readers) != 1 or len(readers[0].inputs) != 1:
        return False
    return readers[0] in ACTIVATIONS_TAKEN.get(ops.qualified_name(maker), ())


class RecipeChooser:
    """Chooses how to compute each size, one by one, in the order of the graph.

    A size that is planned costs nothing for later ones.

    Attributes:
        chosen: The recipe of each size that is needed.
    """

    def __init__(self, stock: SizeInventory) -> None:
        self._stock = stock
        self.chosen: dict[WantedSize, SizeRecipe] = {}
        self._in_progress: set[WantedSize] = set()
        self._costs: dict[WantedSize, float] = {}

    def choose(self, dep: Dep, before: int) -> None:
        """Choose a recipe for ``dep``, for a node at position ``before``, and for all it needs."""
        if isinstance(dep, ir.Value) or dep.is_constant or dep in self.chosen:
            return
        if self._is_kept(dep, before):
            node = self._stock.kept[dep]
            deps = self._stock.dependencies_of(node)
            self.chosen[dep] = SizeRecipe("node", 0, node=node, deps=deps)
            for dependency in deps:
                self.choose(dependency, self._stock.order[node])
            return
        recipe = self._cheapest_recipe(dep, before)
        self._in_progress.add(dep)  # a recipe must not need itself
        for dependency in recipe.deps:
            self.choose(dependency, before)
        self._in_progress.discard(dep)
        self.chosen[dep] = recipe
        self._costs.clear()

    def _cheapest_recipe(self, need: WantedSize, before: int) -> SizeRecipe:
        """Return the cheapest recipe for ``need``, where planned sizes cost nothing."""
        self._in_progress.add(need)
        # At equal cost a Concat of existing tensors: a Shape is a kernel on the device.
        recipes = self._recipes_for(need, before)
        cheapest = min(recipes, key=lambda x: (x.cost, x.kind != "concat"), default=NO_RECIPE)
        self._in_progress.discard(need)
        return cheapest

    def _cost_of(self, dep: Dep, before: int) -> float:
        if isinstance(dep, ir.Value) or dep.is_constant or dep in self.chosen:
            return 0
        if self._is_kept(dep, before):
            return 0
        if dep in self._in_progress:
            return math.inf
        if dep not in self._costs:
            cost = self._cheapest_recipe(dep, before).cost
            if math.isinf(cost):  # perhaps only from here
                return cost
            self._costs[dep] = cost
        return self._costs[dep]

    def _is_kept(self, need: WantedSize, before: int) -> bool:
        """Return whether a node that stays whatever is planned has computed the size by then."""
        node = self._stock.kept.get(need)
        return node is not None and self._stock.order[node] <= before

    def _recipes_for(self, need: WantedSize, before: int) -> Iterator[SizeRecipe]:
        """Yield the recipes for a size, those that all its users can share first."""
        if need.rank == 1 and need.dtype == ir.DataType.INT64:
            yield from self._recipes_from_dims(need, before)
            if len(need.elements) > 1:
                pieces = tuple(self._split_into_pieces(need, before))
                if len(pieces) > 1:
                    yield self._recipe_from("concat", pieces, before)
            yield from self._vector_recipes(need, before)
        if need.rank == 0 and need.dtype == ir.DataType.INT64:
            yield self._recipe_from("squeeze", (need.vector_of(*need.elements),), before)
        producer = self._stock.makers.get(need)
        if producer is not None and self._stock.order[producer] <= before:
            deps = self._stock.dependencies_of(producer)
            yield SizeRecipe(
                "node", self._recipe_from("node", deps, before).cost, node=producer, deps=deps
            )

    def _recipe_from(
        self, kind: Literal["concat", "squeeze", "node", "cut"], deps: tuple[Dep, ...], before: int
    ) -> SizeRecipe:
        return SizeRecipe(
            kind, 1 + sum(self._cost_of(x, before) for x in dict.fromkeys(deps)), deps=deps
        )

    def _recipes_from_dims(self, need: WantedSize, before: int) -> Iterator[SizeRecipe]:
        """Yield the dims of the first tensor that has them side by side, or of a planned Shape."""
        size = len(need.elements)
        is_first = True
        for dims, (order, value) in self._stock.shapes.items():  # in the order of the graph
            if order >= before:
                return
            full_shape = need.vector_of(*dims)
            if not is_first and full_shape not in self.chosen:
                continue
            start = next(
                (i for i in range(len(dims) - size + 1) if dims[i : i + size] == need.elements),
                None,
            )
            if start is None:
                continue
            is_first = False
            span = (start, start + size)
            if self._stock.opset >= 15 or size == len(dims):
                yield SizeRecipe("shape", 1, source=value, span=span)
                return
            yield SizeRecipe(
                "cut",
                self._recipe_from("cut", (full_shape,), before).cost,
                span=span,
                deps=(full_shape,),
            )

    def _split_into_pieces(self, need: WantedSize, before: int) -> Iterator[WantedSize]:
        """Yield ``need`` in the fewest pieces: numbers, neighbouring dims, single sizes."""
        elements, i = need.elements, 0
        while i < len(elements):
            end = i + 1
            if isinstance(elements[i], int):
                while end < len(elements) and isinstance(elements[end], int):
                    end += 1
            else:
                for longer in range(len(elements) - (i == 0), i + 1, -1):
                    part, last = need.vector_of(*elements[i:longer]), elements[longer - 1]
                    # A number at the end joins the next piece, a constant.
                    ends = self._stock.opset < 15 or not isinstance(last, int)
                    if ends and any(
                        x.kind == "shape" for x in self._recipes_from_dims(part, before)
                    ):
                        end = longer
                        break
            yield need.vector_of(*elements[i:end])
            i = end

    def _vector_recipes(self, need: WantedSize, before: int) -> Iterator[SizeRecipe]:
        """Yield scalar arithmetic done with vectors of one element instead."""
        producer = self._stock.makers.get(WantedSize(need.dtype, 0, need.elements))
        if (
            producer is None
            or self._stock.order[producer] > before
            or producer not in _COMPUTES_SIZES
        ):
            return
        deps = self._stock.dependencies_of(producer)
        lifted = tuple(
            self._stock.constant_vector(x) if isinstance(x, ir.Value) else x.vector_of(*x.elements)
            for x in deps
        )
        if all(x is not None and len(x.elements) == 1 for x in lifted):
            vectors = tuple(x for x in lifted if x is not None)
            yield SizeRecipe(
                "node", self._recipe_from("node", vectors, before).cost, node=producer, deps=vectors
            )
