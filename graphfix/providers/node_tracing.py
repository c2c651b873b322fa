"""Fate of each node of a model in the graph that ONNX Runtime's optimizer made of it.

Nodes are followed by the names of what they make: the optimizer keeps the name of a tensor that
is left, and gives the last name of a pattern to the operator that replaces it. Only where it moves
a Transpose past a node does that node keep its own name and make a new tensor (seen in 1.24.4).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.graph.nodes import is_op
from graphfix.graph.walks import nodes_of

CONSTANT = "a constant"
COMPUTED = "computed from constants when the session is made"
DECIDED = "its condition is constant, and one branch stands in its place"
UNUSED = "nothing uses it"
NOTHING = "does nothing, or is the same as another node"


@dataclass(frozen=True)
class Fate:
    """What became of a node in the optimized graph.

    Attributes:
        node: The node that does its work, or None.
        how: Why there is none, or what the node became; "" if it is itself.
    """

    node: ir.Node | None
    how: str = ""


def graphs_with_paths(model: ir.Model) -> Iterator[tuple[tuple[str, ...], ir.Graph]]:
    """Yield the main graph and those inside it, each with a path that an optimized copy shares."""
    yield from _walk_graphs((), model.graph)


def _walk_graphs(
    path: tuple[str, ...], graph: ir.Graph
) -> Iterator[tuple[tuple[str, ...], ir.Graph]]:
    yield path, graph
    for node in graph:
        for name, attribute in node.attributes.items():
            for i, body in enumerate(_attribute_graphs(attribute)):
                own = next((x.name or "" for x in node.outputs), "")
                yield from _walk_graphs((*path, f"{own}/{name}/{i}"), body)


def _attribute_graphs(attribute: ir.Attr) -> list[ir.Graph]:
    if attribute.is_ref():
        return []
    if attribute.type == ir.AttributeType.GRAPH:
        return [attribute.as_graph()]
    return list(attribute.as_graphs()) if attribute.type == ir.AttributeType.GRAPHS else []


def trace_fates(model: ir.Model, final: ir.Model) -> dict[ir.Node, Fate]:
    """Return what became of every node of ``model``, in its order, in ``final``."""
    after = dict(graphs_with_paths(final))
    # The body of an If whose condition is constant is inlined into the graph around it.
    everywhere = {x.name: n for _, g in graphs_with_paths(final) for n in g for x in n.outputs}
    fate_of: dict[ir.Node, Fate] = {}
    for path, graph in graphs_with_paths(model):
        final_graph = after.get(path)
        if final_graph is not None:
            fate_of.update(_trace_graph(graph, final_graph))
            continue
        for node in graph:
            names = _names_when_inlined(path[-1], graph, node)
            replacement = next((everywhere[x] for x in names if x in everywhere), None)
            is_same_op = replacement is not None and replacement.op_type == node.op_type
            fate_of[node] = Fate(replacement) if is_same_op else Fate(None, "its branch is gone")
    return {node: fate_of[node] for node in nodes_of(model.graph)}


def _names_when_inlined(place: str, graph: ir.Graph, node: ir.Node) -> list[str]:
    """Return how ONNX Runtime names a node's outputs where a decided If's body is inlined."""
    own, attribute, _ = place.rsplit("/", 2)
    last = graph.outputs[0] if graph.outputs else None
    return [own if x is last else f"_if_{attribute}_{x.name}" for x in node.outputs]


def _trace_graph(graph: ir.Graph, final: ir.Graph) -> dict[ir.Node, Fate]:
    """Return what became of every node of one graph in the same graph after the optimizer."""
    survivors = _Survivors(final)
    outputs = {x.name for x in graph.outputs}
    fate_of: dict[ir.Node, Fate] = {}
    for node in reversed(list(graph)):
        fate = survivors.fate_of(node)
        fate_of[node] = _fate_of_absorbed(node, fate_of, outputs) if fate is None else fate
    constant_values = {x for x in graph.initializers.values() if not x.is_graph_input()}
    for node in graph:
        if _was_folded(node, fate_of[node], constant_values):
            constant_values.update(node.outputs)
            if fate_of[node].how != CONSTANT:
                fate_of[node] = Fate(None, COMPUTED)
    return fate_of


class _Survivors:
    """What the optimizer left of a graph, by the names of tensors and nodes."""

    def __init__(self, final: ir.Graph) -> None:
        self._producers = {x.name: node for node in final for x in node.outputs if x.name}
        self._nodes_by_name = {node.name: node for node in final if node.name}
        self._constants = set(final.initializers)

    def fate_of(self, node: ir.Node) -> Fate | None:
        """Return what became of a node of the original graph; None if its outputs are gone."""
        survivor = self._survivor_of(node)
        if survivor is not None and survivor.op_type == node.op_type:
            return Fate(survivor)
        if survivor is not None:
            is_decided = is_op(node, "If")
            return (
                Fate(None, DECIDED) if is_decided else Fate(survivor, f"part of {survivor.op_type}")
            )
        if is_op(node, "Constant"):
            return Fate(None, CONSTANT)
        is_computed = any(x.name in self._constants for x in node.outputs)
        return Fate(None, COMPUTED) if is_computed else None

    def _survivor_of(self, node: ir.Node) -> ir.Node | None:
        """Return the node that makes its outputs now, else one of its name and operator."""
        for value in node.outputs:
            if value.name in self._producers:
                return self._producers[value.name]
        namesake = self._nodes_by_name.get(node.name or "")
        return namesake if namesake is not None and namesake.op_type == node.op_type else None


def _was_folded(node: ir.Node, fate: Fate, constant_values: set[ir.Value]) -> bool:
    """Return whether a node that is no longer there only had constants to compute from.

    What is merged into another node but computes from constants alone, as the scale of a pattern
    may be, was folded before.
    """
    if fate.how in (CONSTANT, COMPUTED):
        return True
    if fate.how in ("", DECIDED) or not node.inputs:
        return False
    home = fate.node
    if home is not None and {x.name for x in node.outputs} & {x.name for x in home.outputs}:
        return False  # it is there, under another operator
    return all(x is None or x in constant_values for x in node.inputs)


def _fate_of_absorbed(
    node: ir.Node, fate_of: dict[ir.Node, Fate], outputs: set[str | None]
) -> Fate:
    """Return the fate of a node whose outputs are gone: part of a pattern, or unused."""
    users = [use.node for value in node.outputs for use in value.uses()]
    if not users and not any(x.name in outputs for x in node.outputs):
        return Fate(None, UNUSED)
    for user in users:
        fate = fate_of.get(user)
        if fate is not None and fate.node is not None and fate.how:
            return fate
    if users and all(x in fate_of and fate_of[x].how == UNUSED for x in users):
        return Fate(None, UNUSED)
    return Fate(None, NOTHING)
