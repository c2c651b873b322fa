"""Shape arithmetic with the fewest nodes: what to make each size from.

Exporters ask each tensor for its shape and take it apart again in every layer. Here each shape
tensor that something needs is made the cheapest way: as the dims of a tensor that stand side by
side, of a few pieces, or as it was. All of it is planned first; if it is not less, nothing is done.
"""

import contextlib

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import reached

from ...common.lookup import Look, Replacement
from .size_recipes import NO_WAY, Dep, Stock, WantedSize, Way, Ways

_MADE_BY = {"concat": ("Concat",), "squeeze": ("Squeeze",), "cut": ("Gather", "Slice")}


class Sizes:
    """The plan for one model, and how each node of it is replaced."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._stock = Stock(look)
        self._ways = Ways(self._stock)
        self._made: dict[WantedSize, ir.Value] = {}
        self._plan: dict[ir.Node, WantedSize] = {}
        if self._stock.needs:
            with contextlib.suppress(RecursionError):  # a chain of hundreds stays as it is
                self._plan = self._better()

    @property
    def finds(self) -> frozenset[str]:
        """The operators that are replaced."""
        return frozenset(node.op_type for node in self._plan)

    def __call__(self, node: ir.Node, look: Look) -> Replacement | None:
        """A node that makes a size another way than planned is replaced."""
        need = self._plan.get(node)
        if need is None:
            return None
        why = "the size it computes can be had for fewer nodes"
        return Replacement(why, lambda op: [self._realise(need, op)])

    def _better(self) -> dict[ir.Node, WantedSize]:
        """The nodes to replace; none if that would not make the whole any smaller."""
        needs, inputs = self._stock.needs, self._stock.inputs
        wanted = {x: needs[x.outputs[0]] for x in self._stock.order if self._is_wanted(x)}
        made = reached(wanted, lambda x: (y.producer() for y in inputs(x) if y in needs))
        now = sum(not needs[x.outputs[0]].known for x in made)
        for node, need in wanted.items():
            self._ways.choose(need, self._stock.order[node])
        # Equal sizes may be made of each other: another round finds them one.
        if NO_WAY in self._ways.chosen.values() or len(self._ways.chosen) >= now:
            return {}
        return {node: need for node, need in wanted.items() if not self._stays(node, need)}

    def _is_wanted(self, node: ir.Node) -> bool:
        """Whether a size is needed by something that computes no size."""
        made = node.outputs[0] if len(node.outputs) == 1 else None
        if made is None or made not in self._stock.needs or self._stock.needs[made].known:
            return False
        return not made.is_graph_output() and any(
            len(use.node.outputs) != 1 or use.node.outputs[0] not in self._stock.needs
            for use in made.uses()
        )

    def _stays(self, node: ir.Node, need: WantedSize) -> bool:
        """Whether ``node`` and all that it is made from are as planned."""
        way, given = self._ways.chosen[need], list(self._stock.inputs(node))
        if way.kind == "node":
            return way.node is node and all(map(self._is_made, given, way.deps))
        if way.kind == "shape":
            return is_op(node, "Shape")  # of another tensor: as good
        if way.kind != "concat":
            given = given[:1]  # the other inputs say which part is taken
        same = is_op(node, *_MADE_BY[way.kind]) and len(given) == len(way.deps)
        return same and all(map(self._is_made, given, way.deps))

    def _is_made(self, value: ir.Value, dep: Dep) -> bool:
        """Whether ``value`` is what is planned for ``dep``."""
        if not isinstance(dep, WantedSize):
            return value is dep
        if dep.known:
            return self._look.data(value) == dep.holds
        maker = value.producer()
        if maker is None or self._stock.needs.get(value) != dep:
            return False
        return self._stays(maker, dep)

    def _realise(self, need: WantedSize, op: Builder) -> ir.Value:
        """The tensor that holds ``need``: one that is there, or made before the site."""
        found = self._made.get(need)
        if found is not None and (maker := found.producer()) is not None and maker.graph:
            return found
        if need.known:
            array = np.array(need.holds, need.dtype.numpy())
            return op.constant(array if need.rank else array.reshape(()))
        made = self._made[need] = self._build(need, self._ways.chosen[need], op)
        return made

    def _build(self, need: WantedSize, way: Way, op: Builder) -> ir.Value:
        if way.kind == "shape" and way.source is not None:
            start, end = way.at
            if way.at == (0, self._look.view.shapes.rank(way.source)):
                return op.Shape(way.source)
            return op.Shape(way.source, start=start, end=end)
        given = [self._realise(x, op) if isinstance(x, WantedSize) else x for x in way.deps]
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
        same = self._stock.needs[made] == need and list(self._stock.inputs(node)) == given
        return made if same and node.graph is not None else op.again(node, *given)
