"""Merge nodes that compute the same."""

import onnx_ir as ir

from graphfix.graph.nodes import is_op
from graphfix.graph.walks import bodies_of

from ...common.fold_view import FoldView, Replacement


class EqualNodes:
    """The nodes visited so far, by what they compute.

    Random operators, other domains and nodes with subgraphs never equal another; a node in a branch
    is replaced by one outside of it, never the other way round.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, list[ir.Node]] = {}

    def __call__(self, node: ir.Node, look: FoldView) -> Replacement | None:
        """Replace a node that computes what an earlier one does."""
        if is_op(node, "Constant") or bodies_of(node) or not node.outputs:
            return None
        key = look.numbering.number_of(node.outputs[0])
        if (earlier := self._nodes.get(key)) is None:  # nearly always
            self._nodes[key] = [node]
            return None
        while earlier and earlier[0].graph is None:  # went with what used it
            earlier.pop(0)
        if not any(x.is_graph_output() for x in node.outputs):
            count = len(node.outputs)
            candidates = (
                x
                for x in earlier
                if len(x.outputs) == count and look.is_in_scope(node, x.outputs[0])
            )
            equal_node = next(candidates, None)
            if equal_node is not None:
                outputs = equal_node.outputs
                return Replacement(f"{outputs[0].name!r} holds the same", lambda op: outputs)
        earlier.append(node)
        return None
