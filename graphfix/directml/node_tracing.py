"""What became of each node of a model in the graph that ONNX Runtime's optimizer made of it.

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
    """What became of a node.

    Attributes:
        node: The node that does its work, or None.
        how: Why there is none, or what it became: "" if it is itself.
    """

    node: ir.Node | None
    how: str = ""


def graphs_of(model: ir.Model) -> Iterator[tuple[tuple[str, ...], ir.Graph]]:
    """The main graph and those inside it, each with a path that an optimized copy shares."""
    yield from _inside((), model.graph)


def _inside(path: tuple[str, ...], graph: ir.Graph) -> Iterator[tuple[tuple[str, ...], ir.Graph]]:
    yield path, graph
    for node in graph:
        for name, attribute in node.attributes.items():
            for i, body in enumerate(_bodies(attribute)):
                own = next((x.name or "" for x in node.outputs), "")
                yield from _inside((*path, f"{own}/{name}/{i}"), body)


def _bodies(attribute: ir.Attr) -> list[ir.Graph]:
    if attribute.is_ref():
        return []
    if attribute.type == ir.AttributeType.GRAPH:
        return [attribute.as_graph()]
    return list(attribute.as_graphs()) if attribute.type == ir.AttributeType.GRAPHS else []


def fates(model: ir.Model, final: ir.Model) -> dict[ir.Node, Fate]:
    """What became of every node of ``model``, in its order, in ``final``."""
    after = dict(graphs_of(final))
    # What was in the body of an If whose condition is constant now stands around it.
    everywhere = {x.name: n for _, g in graphs_of(final) for n in g for x in n.outputs}
    found: dict[ir.Node, Fate] = {}
    for path, graph in graphs_of(model):
        there = after.get(path)
        if there is not None:
            found.update(_traced(graph, there))
            continue
        for node in graph:
            names = _written_out(path[-1], graph, node)
            made = next((everywhere[x] for x in names if x in everywhere), None)
            here = made is not None and made.op_type == node.op_type
            found[node] = Fate(made) if here else Fate(None, "its branch is gone")
    return {node: found[node] for node in nodes_of(model.graph)}


def _written_out(place: str, graph: ir.Graph, node: ir.Node) -> list[str]:
    """What ONNX Runtime calls what a node makes, where the body of a decided If is written out."""
    own, attribute, _ = place.rsplit("/", 2)
    last = graph.outputs[0] if graph.outputs else None
    return [own if x is last else f"_if_{attribute}_{x.name}" for x in node.outputs]


def _traced(graph: ir.Graph, final: ir.Graph) -> dict[ir.Node, Fate]:
    makes = {x.name: node for node in final for x in node.outputs if x.name}
    named = {node.name: node for node in final if node.name}
    constants = set(final.initializers)
    outputs = {x.name for x in graph.outputs}
    found: dict[ir.Node, Fate] = {}
    for node in reversed(list(graph)):
        here = next((makes[x.name] for x in node.outputs if x.name in makes), None)
        moved = named.get(node.name or "") if here is None else None
        if moved is not None and moved.op_type == node.op_type:
            here = moved
        if here is not None and here.op_type != node.op_type and is_op(node, "If"):
            found[node] = Fate(None, DECIDED)
        elif here is not None:
            same = here.op_type == node.op_type
            found[node] = Fate(here, "" if same else f"part of {here.op_type}")
        elif is_op(node, "Constant"):
            found[node] = Fate(None, CONSTANT)
        elif any(x.name in constants for x in node.outputs):
            found[node] = Fate(None, COMPUTED)
        else:
            found[node] = _absorbed(node, found, outputs)
    known: set[ir.Value] = {x for x in graph.initializers.values() if not x.is_graph_input()}
    for node in graph:
        if _was_folded(node, found[node], known):
            known.update(node.outputs)
            if found[node].how != CONSTANT:
                found[node] = Fate(None, COMPUTED)
    return found


def _was_folded(node: ir.Node, fate: Fate, known: set[ir.Value]) -> bool:
    """Whether a node that is no longer there only had constants to compute from.

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
    return all(x is None or x in known for x in node.inputs)


def _absorbed(node: ir.Node, found: dict[ir.Node, Fate], outputs: set[str | None]) -> Fate:
    """A node whose outputs are no longer there: a part of a pattern, or simply gone."""
    users = [use.node for value in node.outputs for use in value.uses()]
    if not users and not any(x.name in outputs for x in node.outputs):
        return Fate(None, UNUSED)
    for user in users:
        fate = found.get(user)
        if fate is not None and fate.node is not None and fate.how:
            return fate
    if users and all(x in found and found[x].how == UNUSED for x in users):
        return Fate(None, UNUSED)
    return Fate(None, NOTHING)
