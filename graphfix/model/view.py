"""One look at a model: its nodes in order, its scopes, its shapes, its equal values."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model.shapes import Shapes, infer, is_named, shapes_of
from graphfix.model.values import Numbering, bodies_of, is_op, nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterator


class View:
    """What ``match`` may ask of the model around a node. Everything is found on demand."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.numbering = Numbering(self._contents)

    @cached_property
    def shapes(self) -> Shapes:
        """Symbolic shapes; values made by this pass have those of what they replace."""
        return shapes_of(self.model)

    @cached_property
    def usual(self) -> Shapes:
        """Shapes in usual runs: no size is 0 or over a million. Of what was there at the start."""
        return infer(self.model, usual=True)

    def nodes(self, *op_types: str) -> Iterator[ir.Node]:
        """Every node of the given standard types: the graph, its subgraphs, local functions."""
        for graph in (self.model.graph, *(f.graph for f in self.model.functions.values())):
            for node in nodes_of(graph):
                if is_op(node, *op_types):
                    yield node

    def opset(self, node: ir.Node) -> int:
        """The version of the standard opset that governs ``node``."""
        graph = self.scope(node.graph)[-1] if node.graph is not None else self.model.graph
        imports = graph.opset_imports or self.model.graph.opset_imports
        return imports.get("", imports.get("ai.onnx", 1))

    def in_function(self, node: ir.Node) -> bool:
        """Whether ``node`` is in the body of a local function, where shapes depend on the call."""
        return node.graph is not None and self.scope(node.graph)[-1] is not self.model.graph

    def owner(self, graph: ir.Graph) -> ir.Node | None:
        """The If, Loop or Scan node that ``graph`` is a body of; None for a top-level graph."""
        return self._owners.get(graph)

    def scope(self, graph: ir.Graph) -> list[ir.Graph]:
        """``graph`` and the graphs around it, innermost first."""
        chain = [graph]
        while (node := self.owner(chain[-1])) is not None and node.graph is not None:
            chain.append(node.graph)
        return chain

    def _contents(self, value: ir.Value) -> tuple[object, ...] | None:
        """What a shape tensor holds, as a key: equal dims make equal shape tensors."""
        data, dims = self.shapes.data(value), self.shapes.dims(value)
        if data is None or dims is None or not all(is_named(x) for x in data):
            return None
        return ("data", self.shapes.dtype(value), len(dims), *map(str, data))

    @cached_property
    def _owners(self) -> dict[ir.Graph, ir.Node]:
        return {
            body: node
            for graph in (self.model.graph, *(f.graph for f in self.model.functions.values()))
            for node in nodes_of(graph)
            for body in bodies_of(node)
        }
