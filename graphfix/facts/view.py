"""One look at a model: its nodes in order, its scopes, its shapes, its equal values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from operator import itemgetter

import onnx_ir as ir

from graphfix.facts.numbering import Numbering
from graphfix.facts.shapes import Shapes, infer, input_symbols, is_named, shapes_of
from graphfix.graph.walks import all_graphs, all_nodes, bodies_of, opset_of

Index = dict[tuple[str, str], list[tuple[int, ir.Node]]]
"""The nodes of each type, each with its place."""

_INDEX = "graphfix.nodes"
_RANDOM = ("Random", "Multinomial", "Bernoulli")


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

    @cached_property
    def in_usual_runs(self) -> View:
        """The same model with those for its shapes."""
        view = View(self.model)
        view.shapes = self.usual
        return view

    @cached_property
    def symbols(self) -> frozenset[str]:
        """What the symbolic dims of the inputs are called: a decoder with caches has hundreds."""
        return frozenset(input_symbols(self.model))

    @cached_property
    def fixed(self) -> frozenset[ir.Value]:
        """What ONNX Runtime knows when a session is made, of what was there at the start.

        Constants, and what is made of constants alone.
        """
        held = (x for graph in all_graphs(self.model) for x in graph.initializers.values())
        found = {x for x in held if not x.is_graph_input()}
        for node in all_nodes(self.model):  # each after those that it reads
            given = node.inputs
            told = given and all(x is None or x in found for x in given)
            if node.op_type == "Constant" or (told and not node.op_type.startswith(_RANDOM)):
                found.update(node.outputs)
        return frozenset(found)

    @cached_property
    def places(self) -> dict[ir.Node, int]:
        """Where each node stands, of what was there at the start."""
        return {node: i for i, node in enumerate(all_nodes(self.model))}

    def nodes(self, *op_types: str) -> Iterator[ir.Node]:
        """Every node of the given types: the graph, its subgraphs, local functions.

        Args:
            *op_types: Operators; one of another domain than ONNX's with it: ``com.microsoft.Gelu``.
        """
        wanted = {op_type.rpartition(".")[::2] for op_type in op_types}
        if (index := self.model.meta.get(_INDEX)) is not None:
            found = chain.from_iterable(index.get(key, ()) for key in wanted)
            yield from (node for _, node in sorted(found, key=itemgetter(0)))
        else:
            yield from (node for node in all_nodes(self.model) if _key(node) in wanted)

    def opset(self, node: ir.Node) -> int:
        """The version of the standard opset that governs ``node``."""
        graph = self.scope(node.graph)[-1] if node.graph is not None else self.model.graph
        return opset_of(graph if graph.opset_imports else self.model)

    def in_function(self, node: ir.Node) -> bool:
        """Whether ``node`` is in the body of a local function, where shapes depend on the call."""
        return node.graph is not None and self.scope(node.graph)[-1] is not self.model.graph

    def owner(self, graph: ir.Graph | ir.Function | None) -> ir.Node | None:
        """The If, Loop or Scan node that ``graph`` is a body of; None for a top-level graph."""
        return None if graph is self.model.graph else self._owners.get(graph)

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
    def _owners(self) -> dict[ir.Graph | ir.Function | None, ir.Node]:
        return {body: node for node in all_nodes(self.model) for body in bodies_of(node)}


def index(model: ir.Model) -> None:
    """Let views of ``model`` find nodes by their type in one walk for all of them.

    That holds until :func:`forget_index`, which whoever edits nodes has to call first.
    """
    if _INDEX in model.meta:
        return
    found: Index = defaultdict(list)
    for i, node in enumerate(all_nodes(model)):
        found[_key(node)].append((i, node))
    model.meta[_INDEX] = dict(found)


def forget_index(model: ir.Model) -> Index | None:
    """Say that the nodes of ``model`` are about to change, or may have; the index that it had."""
    index: Index | None = model.meta.pop(_INDEX, None)
    return index


def keep_index(model: ir.Model, index: Index) -> None:
    """Let an index hold again that was forgotten: no node has changed."""
    model.meta[_INDEX] = index


def _key(node: ir.Node) -> tuple[str, str]:
    domain = node.domain
    return "" if domain == "ai.onnx" else domain, node.op_type
