"""Order in which ONNX Runtime visits the nodes of a graph, which decides what is fused."""

import onnx_ir as ir


def nodes_in_visit_order(graph: ir.Graph) -> list[ir.Node]:
    """Return the nodes in GraphViewer's default order (Graph::ReverseDFSFrom in graph.cc).

    From what nothing uses, the last in the file first, through the inputs, again the last first.
    """
    number = {node: i for i, node in enumerate(graph)}

    def makers_of(node: ir.Node) -> list[ir.Node]:
        makers = {value.producer() for value in node.inputs if value is not None}
        return sorted((x for x in makers if x in number), key=number.__getitem__)

    feeds = {node: makers_of(node) for node in number}
    fed = {maker for makers in feeds.values() for maker in makers}
    stack = [(node, False) for node in number if node not in fed]
    order: list[ir.Node] = []
    entered: set[ir.Node] = set()
    while stack:
        node, leaving = stack.pop()
        if leaving:
            order.append(node)
        elif node not in entered:
            entered.add(node)
            stack.append((node, True))
            stack += [(maker, False) for maker in feeds[node] if maker not in entered]
    return order


def have_same_nodes(first: ir.Graph, second: ir.Graph) -> bool:
    """Return whether two graphs have the same nodes in the same order, by what they make."""
    lhs, rhs = ([(n.op_type, *(x.name for x in n.outputs)) for n in g] for g in (first, second))
    return lhs == rhs
