"""Shape arithmetic with the fewest nodes.

Exporters take the shape of each tensor and split it again in every layer. Here each shape tensor
that a node needs gets its cheapest recipe: adjacent dims of one tensor, a few joined pieces, or the
nodes that the model has. All recipes are chosen first; if they do not save nodes, nothing changes.
"""

import contextlib

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.editing.builder import Builder
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import reachable_from

from ...common.fold_view import FoldView, Replacement
from .size_recipes import NO_RECIPE, Dep, RecipeChooser, SizeInventory, SizeRecipe, WantedSize

_OPERATORS_OF_RECIPE = {"concat": ("Concat",), "squeeze": ("Squeeze",), "cut": ("Gather", "Slice")}


class SizePlan:
    """The plan for the sizes of a model, and how each node of it is replaced."""

    def __init__(self, look: FoldView) -> None:
        self._look = look
        self._stock = SizeInventory(look)
        self._chooser = RecipeChooser(self._stock)
        self._built: dict[WantedSize, ir.Value] = {}
        self._plan: dict[ir.Node, WantedSize] = {}
        if self._stock.needs:
            with contextlib.suppress(RecursionError):  # a chain of hundreds stays as it is
                self._plan = self._find_replacements()

    @property
    def op_types_to_replace(self) -> frozenset[str]:
        """Return the operators that are replaced."""
        return frozenset(node.op_type for node in self._plan)

    def __call__(self, node: ir.Node, look: FoldView) -> Replacement | None:
        """Replace a node that computes a size otherwise than planned."""
        need = self._plan.get(node)
        if need is None:
            return None
        reason = "the size it computes can be had for fewer nodes"
        return Replacement(reason, lambda op: [self._build_size(need, op)])

    def _find_replacements(self) -> dict[ir.Node, WantedSize]:
        """Return the nodes to replace; none if the plan has no fewer nodes."""
        needs, inputs = self._stock.needs, self._stock.size_inputs
        needed = {x: needs[x.outputs[0]] for x in self._stock.order if self._is_needed(x)}
        producers = reachable_from(
            needed, lambda x: (y.producer() for y in inputs(x) if y in needs)
        )
        kept = self._stock.kept_nodes
        node_count = sum(not needs[x.outputs[0]].is_constant for x in {*producers} - kept)
        for node, need in needed.items():
            self._chooser.choose(need, self._stock.order[node])
        # Equal sizes may depend on each other: the next round merges them.
        recipes = self._chooser.chosen.values()
        if NO_RECIPE in recipes or sum(x.node not in kept for x in recipes) >= node_count:
            return {}
        return {node: need for node, need in needed.items() if not self._follows_plan(node, need)}

    def _is_needed(self, node: ir.Node) -> bool:
        """Return whether a node that computes no size needs this size."""
        output = node.outputs[0] if len(node.outputs) == 1 else None
        if (
            output is None
            or output not in self._stock.needs
            or self._stock.needs[output].is_constant
        ):
            return False
        return not output.is_graph_output() and any(
            len(use.node.outputs) != 1 or use.node.outputs[0] not in self._stock.needs
            for use in output.uses()
        )

    def _follows_plan(self, node: ir.Node, need: WantedSize) -> bool:
        """Return whether ``node`` and all that it is computed from are as planned."""
        recipe, operands = self._chooser.chosen[need], list(self._stock.size_inputs(node))
        if recipe.kind == "node":
            return recipe.node is node and all(map(self._is_planned, operands, recipe.deps))
        if recipe.kind == "shape":
            return is_op(node, "Shape")  # of another tensor: as good
        if recipe.kind != "concat":
            operands = operands[:1]  # the other inputs say which part is taken
        has_operator = is_op(node, *_OPERATORS_OF_RECIPE[recipe.kind]) and len(operands) == len(
            recipe.deps
        )
        return has_operator and all(map(self._is_planned, operands, recipe.deps))

    def _is_planned(self, value: ir.Value, dep: Dep) -> bool:
        """Return whether ``value`` is what is planned for ``dep``."""
        if not isinstance(dep, WantedSize):
            return value is dep
        if dep.is_constant:
            return self._look.data(value) == dep.elements
        maker = value.producer()
        if maker is None or self._stock.needs.get(value) != dep:
            return False
        return self._follows_plan(maker, dep)

    def _build_size(self, need: WantedSize, op: Builder) -> ir.Value:
        """Return the tensor that holds ``need``, existing or built before the site."""
        existing = self._built.get(need)
        if existing is not None and (maker := existing.producer()) is not None and maker.graph:
            return existing
        if need.is_constant:
            array = np.array(need.elements, need.dtype.numpy())
            return op.constant(array if need.rank else array.reshape(()))
        output = self._built[need] = self._build_recipe(need, self._chooser.chosen[need], op)
        return output

    def _build_recipe(self, need: WantedSize, recipe: SizeRecipe, op: Builder) -> ir.Value:
        if recipe.kind == "shape" and recipe.source is not None:
            start, end = recipe.span
            if recipe.span == (0, self._look.view.shapes.rank(recipe.source)):
                return op.Shape(recipe.source)
            return op.Shape(recipe.source, start=start, end=end)
        operands = [
            self._build_size(x, op) if isinstance(x, WantedSize) else x for x in recipe.deps
        ]
        if recipe.kind == "concat":
            return op.Concat(*operands, axis=0)
        if recipe.kind == "squeeze":
            return op.Squeeze(*operands)
        if recipe.kind == "cut":
            first, last = (np.array([x], np.int64) for x in recipe.span)
            if recipe.span[1] - recipe.span[0] == 1:
                return op.Gather(*operands, first, axis=0)
            return op.Slice(*operands, first, last)
        if recipe.node is None:
            raise RuntimeError(f"there is no way to make {need}")
        return self._repeat_node(recipe.node, need, operands, op)

    def _repeat_node(
        self, node: ir.Node, need: WantedSize, operands: list[ir.Value], op: Builder
    ) -> ir.Value:
        """Return the output of a node of the model, or of a clone of it with other operands."""
        if node in ops.MEASURES:
            return op.clone_node(node, *node.inputs)
        output = node.outputs[0]
        has_operands = list(self._stock.size_inputs(node)) == operands
        if has_operands and self._stock.needs[output] == need and node.graph is not None:
            return output
        return op.clone_node(node, *operands)
