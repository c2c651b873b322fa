"""Which nodes of a graph matter: those that an output depends on, and what their bodies use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.lengths.rules.index import written

if TYPE_CHECKING:
    import onnx_ir as ir


def captured(node: ir.Node) -> list[ir.Value]:
    """The values of the graph around that the bodies of a node use."""
    found: list[ir.Value] = []
    for attribute in node.attributes.values():
        if attribute.is_ref() or attribute.type.name not in ("GRAPH", "GRAPHS"):
            continue
        graphs = [attribute.as_graph()] if attribute.type.name == "GRAPH" else attribute.as_graphs()
        for graph in graphs:
            found += [x for inner in graph.all_nodes() for x in inner.inputs if x is not None]
            found += list(graph.outputs)
    return found


def needed_by(model: ir.Model) -> set[ir.Node]:
    """The nodes that an output depends on."""
    needed: set[ir.Node] = set()
    pending = [x.producer() for x in model.graph.outputs]
    while pending:
        node = pending.pop()
        if node is None or node in needed or node.graph is not model.graph:
            continue
        needed.add(node)
        inputs = node.inputs[:2] if written(node) is not None else node.inputs
        values = [x for x in (*inputs, *captured(node)) if x is not None]
        pending += [x.producer() for x in values]
    return needed
