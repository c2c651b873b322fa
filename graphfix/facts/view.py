"""A view of a model: its nodes in order, its scopes, its shapes, its equal values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from operator import itemgetter

import onnx_ir as ir

from graphfix.facts.numbering import ValueNumbering
from graphfix.facts.shapes import Shapes, infer, input_dim_symbols, is_known_dim, shapes_of
from graphfix.graph.walks import all_graphs, all_nodes, bodies_of, opset_of

Index = dict[tuple[str, str], list[tuple[int, ir.Node]]]
"""The nodes of each type, each with its place."""

_INDEX = "graphfix.nodes"
_RANDOM = ("Random", "Multinomial", "Bernoulli")


class View:
    """Facts about the model around a node, for ``match``; each is computed on first use."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.numbering = ValueNumbering(self._shape_tensor_key)

    @cached_property
    def shapes(self) -> Shapes:
        """Symbolic shapes; values made by this pass have the shapes of what they replace."""
        return shapes_of(self.model)

    @cached_property
    def usual_shapes(self) -> Shapes:
        """Shapes where no size is 0 or over a million, as of the start of the pass."""
        return infer(self.model, usual=True)

    @cached_property
    def with_usual_shapes(self) -> View:
        """The same model, viewed with the shapes of usual runs."""
        view = View(self.model)
        view.shapes = self.usual_shapes
        return view

    @cached_property
    def dim_symbols(self) -> frozenset[str]:
        """The symbols of the inputs' dims; a decoder with caches has hundreds."""
        return frozenset(input_dim_symbols(self.model))

    @cached_property
    def constant_values(self) -> frozenset[ir.Value]:
        """Values that ONNX Runtime knows when it creates a session, as of the start of the pass.

        Constants, and what is computed from constants alone.
        """
        initializers = (x for graph in all_graphs(self.model) for x in graph.initializers.values())
        constants = {x for x in initializers if not x.is_graph_input()}
        for node in all_nodes(self.model):  # each after those that it reads
            inputs = node.inputs
            is_computed = inputs and all(x is None or x in constants for x in inputs)
            if node.op_type == "Constant" or (is_computed and not node.op_type.startswith(_RANDOM)):
                constants.update(node.outputs)
        return frozenset(constants)

    @cached_property
    def node_positions(self) -> dict[ir.Node, int]:
        """The position of each node in the order of the model, as of the start of the pass."""
        return {node: i for i, node in enumerate(all_nodes(self.model))}

    def nodes(self, *op_types: str) -> Iterator[ir.Node]:
        """Yield every node of the given types: of the graph, its subgraphs and local functions.

        Args:
            *op_types: Operators; one of another domain than ONNX's with it: ``com.microsoft.Gelu``.
        """
        keys = {op_type.rpartition(".")[::2] for op_type in op_types}
        if (index := self.model.meta.get(_INDEX)) is not None:
            entries = chain.from_iterable(index.get(key, ()) for key in keys)
            yield from (node for _, node in sorted(entries, key=itemgetter(0)))
        else:
            yield from (node for node in all_nodes(self.model) if _operator_key(node) in keys)

    def opset_of_node(self, node: ir.Node) -> int:
        """Return the version of the standard opset that governs ``node``."""
        graph = (
            self.enclosing_graphs(node.graph)[-1] if node.graph is not None else self.model.graph
        )
        return opset_of(graph if graph.opset_imports else self.model)

    def in_function(self, node: ir.Node) -> bool:
        """Return whether ``node`` is in a local function, where shapes depend on the call."""
        return (
            node.graph is not None and self.enclosing_graphs(node.graph)[-1] is not self.model.graph
        )

    def owner_of_body(self, graph: ir.Graph | ir.Function | None) -> ir.Node | None:
        """Return the If, Loop or Scan that ``graph`` is a body of; None for a top-level graph."""
        return None if graph is self.model.graph else self._owner_by_body.get(graph)

    def enclosing_graphs(self, graph: ir.Graph) -> list[ir.Graph]:
        """Return ``graph`` and the graphs around it, innermost first."""
        graphs = [graph]
        while (node := self.owner_of_body(graphs[-1])) is not None and node.graph is not None:
            graphs.append(node.graph)
        return graphs

    def _shape_tensor_key(self, value: ir.Value) -> tuple[object, ...] | None:
        """Return a key of a shape tensor's contents: equal dims give equal keys."""
        data, dims = self.shapes.known_elements(value), self.shapes.dims(value)
        if data is None or dims is None or not all(is_known_dim(x) for x in data):
            return None
        return ("data", self.shapes.dtype(value), len(dims), *map(str, data))

    @cached_property
    def _owner_by_body(self) -> dict[ir.Graph | ir.Function | None, ir.Node]:
        return {body: node for node in all_nodes(self.model) for body in bodies_of(node)}


def index_nodes(model: ir.Model) -> None:
    """Index the nodes of ``model`` by type, for all views of it.

    That holds until :func:`drop_node_index`, which whoever edits nodes has to call first.
    """
    if _INDEX in model.meta:
        return
    nodes_by_type: Index = defaultdict(list)
    for i, node in enumerate(all_nodes(model)):
        nodes_by_type[_operator_key(node)].append((i, node))
    model.meta[_INDEX] = dict(nodes_by_type)


def drop_node_index(model: ir.Model) -> Index | None:
    """Drop the index of ``model``, whose nodes may change, and return it."""
    index: Index | None = model.meta.pop(_INDEX, None)
    return index


def restore_node_index(model: ir.Model, index: Index) -> None:
    """Restore an index that was dropped, if no node has changed."""
    model.meta[_INDEX] = index


def _operator_key(node: ir.Node) -> tuple[str, str]:
    domain = node.domain
    return "" if domain == "ai.onnx" else domain, node.op_type
