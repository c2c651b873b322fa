"""Which node it is that kills the process.

A process that dies says nothing of the node that it was at. So the graph is cut off ever earlier,
each cut run in a process that may die of it, until the first node is known whose cut does.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.graph.walks import bodies_of, nodes_of
from graphfix.runtime.run_errors import LoadDiedError, RunDiedError, RunError

Run = Callable[[ir.Model], object]


@dataclass(frozen=True)
class Killer:
    """The first node at which the process dies.

    Attributes:
        node: Its name; empty if it has none.
        op: Its operator.
        tensor: The first tensor that it makes.
    """

    node: str
    op: str
    tensor: str

    def __str__(self) -> str:
        if self.node:
            return f"at node {self.node!r} ({self.op})"
        return f"at the {self.op} that makes {self.tensor!r}"


def words(error: Exception, model: ir.Model, run: Run) -> str:
    """What to add to an error if a process died: ``"; it dies at node 'x' (Div)"``, or nothing."""
    if not isinstance(error, RunDiedError | LoadDiedError):
        return ""
    found = killer(model, run)
    return "" if found is None else f"; it dies {found}"


def killer(model: ir.Model, run: Run) -> Killer | None:
    """The first node whose graph, cut off after it, kills the process that runs it.

    Args:
        model: The model, which is not changed.
        run: Loads a model and runs it once, in a process that may die.

    Returns:
        None if no cut kills a process: it does not die each time, or not of one node.
    """
    nodes = list(model.graph)
    if not nodes or not _dies(model, run):
        return None
    counts = range(1, len(nodes))
    node = nodes[bisect_left(counts, True, key=lambda count: _dies(cut(model, count), run))]
    return Killer(node.name or "", node.op_type, node.outputs[0].name or "")


def cut(model: ir.Model, count: int) -> ir.Model:
    """A copy with the first ``count`` nodes; what the others would use are its outputs."""
    copy = model.clone()
    nodes = list(copy.graph)
    kept, rest = nodes[:count], nodes[count:]
    bodies = (body for node in kept for body in bodies_of(node))
    inside = {*kept, *(inner for body in bodies for inner in nodes_of(body))}
    made = (value for node in kept for value in node.outputs if value.name)
    ends = [x for x in made if x.is_graph_output() or not _within(x, inside)]
    copy.graph.outputs.clear()
    copy.graph.remove(rest, safe=False)
    copy.graph.outputs.extend(ends)
    return copy


def _within(value: ir.Value, inside: set[ir.Node]) -> bool:
    """Whether there are uses of a value, and all are by these nodes."""
    return bool(value.uses()) and all(use.node in inside for use in value.uses())


def _dies(model: ir.Model, run: Run) -> bool:
    try:
        run(model)
    except (ModelError, RunError) as error:
        return isinstance(error, RunDiedError | LoadDiedError)
    return False
