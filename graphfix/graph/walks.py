"""Walks over a graph: all of its nodes and graphs, or what is reached from a place in it."""

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import onnx_ir as ir

T = TypeVar("T", bound=Hashable)


def reached(starts: Iterable[T | None], more: Callable[[T], Iterable[T | None]]) -> Iterator[T]:
    """``starts`` and all that ``more`` leads to from there, each once, the nearest first.

    None leads nowhere. Where to go on from is asked once the caller has seen what was reached.
    """
    found = list(dict.fromkeys(starts))
    seen = {None, *found}
    for top in found:
        if top is not None:
            yield top
            new = [x for x in dict.fromkeys(more(top)) if x not in seen]
            seen.update(new)
            found += new


def inputs_of(node: ir.Node | None, among: Container[str]) -> Sequence[ir.Value | None]:
    """The inputs of a node of one of these types; of another there are none."""
    return node.inputs if node is not None and node.op_type in among else ()


_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def nodes_of(graph: ir.Graph) -> Iterator[ir.Node]:
    """The nodes of a graph, each followed by those of the graphs inside it.

    In the order of ``graph.all_nodes()``, which takes five times as long on graphs of 100,000
    nodes; each pass goes through them at least once.
    """
    for node in graph:
        yield node
        if node.attributes.data:
            for body in bodies_of(node):
                yield from nodes_of(body)


def tops_of(model: ir.Model) -> tuple[ir.Graph, ...]:
    """The main graph of a model, and the bodies of its local functions."""
    return (model.graph, *(function.graph for function in model.functions.values()))


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node of a model, those of its functions behind those of its graph."""
    for graph in tops_of(model):
        yield from nodes_of(graph)


def all_graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """Every graph of a model, those inside others too."""
    for graph in tops_of(model):
        yield from graphs_of(graph)


def opset_of(graph: ir.Model | ir.Graph) -> int:
    """The version of the standard opset that a model imports, or a graph that says so itself."""
    imports = graph.opset_imports
    return imports.get("", imports.get("ai.onnx", 1))


def graphs_of(graph: ir.Graph) -> Iterator[ir.Graph]:
    """A graph and the graphs inside it, at any depth."""
    yield graph
    for node in graph:
        for body in bodies_of(node):
            yield from graphs_of(body)


def values_of(graphs: Iterable[ir.Graph]) -> Iterator[ir.Value]:
    """Every value of these graphs themselves: inputs, initializers, and what their nodes make."""
    for graph in graphs:
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


def bodies_of(node: ir.Node) -> tuple[ir.Graph, ...]:
    """The graphs among the attributes of ``node``: the body of a Loop, the branches of an If."""
    # The dict that a UserDict wraps: asked of every node, many times over.
    attributes = node.attributes.data
    found: tuple[ir.Graph, ...] = ()
    if not attributes:
        return found
    for attribute in attributes.values():
        kind = attribute.type
        if kind == _GRAPH and not attribute.is_ref():
            found += (attribute.as_graph(),)
        elif kind == _GRAPHS and not attribute.is_ref():
            found += tuple(attribute.as_graphs())
    return found


def captured(node: ir.Node) -> list[ir.Value]:
    """The values of the graph around a node that its bodies use, and what they make themselves."""
    found: list[ir.Value] = []
    for body in bodies_of(node):
        found += [x for inner in body.all_nodes() for x in inner.inputs if x is not None]
        found += list(body.outputs)
    return found
