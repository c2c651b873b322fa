"""Order in which ONNX Runtime visits the nodes of a graph, which decides what is fused."""

from collections.abc import Mapping

import onnx_ir as ir


def nodes_in_visit_order(graph: ir.Graph) -> list[ir.Node]:
    """Return the nodes in GraphViewer's default order (Graph::ReverseDFSFrom in graph.cc).

    From what nothing uses, the last in the file first, through the inputs, again the last first.
    """
    number = {node: i for i, node in enumerate(graph)}
    producers = {node: _producers_in(number, node) for node in number}
    read = {producer for nodes in producers.values() for producer in nodes}
    stack = [(node, False) for node in number if node not in read]
    order: list[ir.Node] = []
    entered: set[ir.Node] = set()
    while stack:
        node, is_leaving = stack.pop()
        if is_leaving:
            order.append(node)
        elif node not in entered:
            entered.add(node)
            stack.append((node, True))
            stack += [(x, False) for x in producers[node] if x not in entered]
    return order


def _producers_in(number: Mapping[ir.Node, int], node: ir.Node) -> list[ir.Node]:
    """Return the nodes that make the inputs of ``node``, of those that have a number, by it."""
    producers = {value.producer() for value in node.inputs if value is not None}
    return sorted((x for x in producers if x is not None and x in number), key=number.__getitem__)


def have_same_nodes(first: ir.Graph, second: ir.Graph) -> bool:
    """Return whether two graphs have the same nodes in the same order, by what they make."""
    lhs, rhs = ([(n.op_type, *(x.name for x in n.outputs)) for n in g] for g in (first, second))
    return lhs == rhs
