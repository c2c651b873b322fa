"""Search for the node that kills the process.

A process that dies does not name the node that it was running. So the graph is cut ever earlier,
each cut run in a process that may die of it, until the first node is known whose cut does.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.graph.walks import values_that_leave, with_bodies
from graphfix.runtime.run_errors import LoadDiedError, RunDiedError, RunError

Run = Callable[[ir.Model], object]


@dataclass(frozen=True)
class KillingNode:
    """The first node at which the process dies.

    Attributes:
        node: Its name; empty if it has none.
        op: Its operator.
        tensor: Its first output.
    """

    node: str
    op: str
    tensor: str

    def __str__(self) -> str:
        if self.node:
            return f"at node {self.node!r} ({self.op})"
        return f"at the {self.op} that makes {self.tensor!r}"


def killing_node_text(error: Exception, model: ir.Model, run: Run) -> str:
    """Return ``"; it dies at node 'x' (Div)"`` if a process died of the error, or nothing."""
    if not isinstance(error, RunDiedError | LoadDiedError):
        return ""
    node = find_killing_node(model, run)
    return "" if node is None else f"; it dies {node}"


def find_killing_node(model: ir.Model, run: Run) -> KillingNode | None:
    """Return the first node whose graph, cut off after it, kills the process that runs it.

    Args:
        model: The model, which is not changed.
        run: Loads a model and runs it once, in a process that may die.

    Returns:
        None if no cut kills a process: it does not die each time, or not of one node.
    """
    nodes = list(model.graph)
    if not nodes or not _kills_process(model, run):
        return None
    counts = range(1, len(nodes))
    node = nodes[
        bisect_left(counts, True, key=lambda count: _kills_process(cut_after(model, count), run))
    ]
    return KillingNode(node.name or "", node.op_type, node.outputs[0].name or "")


def cut_after(model: ir.Model, count: int) -> ir.Model:
    """Return a copy with the first ``count`` nodes; its outputs are what later nodes use."""
    copy = model.clone()
    nodes = list(copy.graph)
    first_nodes, later_nodes = nodes[:count], nodes[count:]
    ends = values_that_leave(first_nodes, with_bodies(first_nodes))
    copy.graph.outputs.clear()
    copy.graph.remove(later_nodes, safe=False)
    copy.graph.outputs.extend(ends)
    return copy


def _kills_process(model: ir.Model, run: Run) -> bool:
    try:
        run(model)
    except (ModelError, RunError) as error:
        return isinstance(error, RunDiedError | LoadDiedError)
    return False
