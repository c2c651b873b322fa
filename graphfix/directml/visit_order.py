"""The order in which ONNX Runtime visits the nodes of a graph, which decides what is fused."""

import onnx_ir as ir


def visited(graph: ir.Graph) -> list[ir.Node]:
    """The nodes as GraphViewer's default order has them (Graph::ReverseDFSFrom in graph.cc).

    From what nothing uses, the last in the file first, through the inputs, again the last first.
    """
    number = {node: i for i, node in enumerate(graph)}

    def makers_of(node: ir.Node) -> list[ir.Node]:
        makers = {value.producer() for value in node.inputs if value is not None}
        return sorted((x for x in makers if x in number), key=number.__getitem__)

    feeds = {node: makers_of(node) for node in number}
    fed = {maker for makers in feeds.values() for maker in makers}
    stack = [(node, False) for node in number if node not in fed]
    found: list[ir.Node] = []
    seen: set[ir.Node] = set()
    while stack:
        node, leaving = stack.pop()
        if leaving:
            found.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(maker, False) for maker in feeds[node] if maker not in seen]
    return found


def same(first: ir.Graph, second: ir.Graph) -> bool:
    """Whether two graphs have the same nodes in the same order, by what they make."""
    one, other = ([(n.op_type, *(x.name for x in n.outputs)) for n in g] for g in (first, second))
    return one == other
