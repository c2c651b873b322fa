"""Equal computations, of which one is enough."""

import onnx_ir as ir

from graphfix.graph.nodes import is_op
from graphfix.graph.walks import bodies_of

from ...common.lookup import Look, Replacement


class Equal:
    """The nodes that a walk has met, by what they compute.

    Random operators, other domains and nodes with graphs inside are never equal to another; a node
    in a branch is replaced by one outside of it, never the other way round.
    """

    def __init__(self) -> None:
        self._seen: dict[int, list[ir.Node]] = {}

    def __call__(self, node: ir.Node, look: Look) -> Replacement | None:
        """A node that computes what one before it does becomes that one."""
        if is_op(node, "Constant") or bodies_of(node) or not node.outputs:
            return None
        number = look.numbering.of(node.outputs[0])
        if (before := self._seen.get(number)) is None:  # nearly always
            self._seen[number] = [node]
            return None
        while before and before[0].graph is None:  # went with what used it
            before.pop(0)
        if not any(x.is_graph_output() for x in node.outputs):
            count = len(node.outputs)
            same = (x for x in before if len(x.outputs) == count and look.sees(node, x.outputs[0]))
            other = next(same, None)
            if other is not None:
                outputs = other.outputs
                return Replacement(f"{outputs[0].name!r} holds the same", lambda op: outputs)
        before.append(node)
        return None
