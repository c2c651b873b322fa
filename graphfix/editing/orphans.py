"""What is left over once nothing reads it any more goes, with all that only it was using."""

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from graphfix.graph.nodes import users_of
from graphfix.graph.text import Line, stands_in_place
from graphfix.graph.walks import bodies_of


def discard(body: ir.Graph) -> list[ir.Value]:
    """Empty the body of a node that goes, so that it uses nothing; return what it was using."""
    used = []
    for node in list(body):
        for inner in bodies_of(node):
            used += discard(inner)
        for i, value in enumerate(node.inputs):
            if value is not None:
                used.append(value)
                node.replace_input_with(i, None)
    body.outputs.clear()
    body.remove(list(body))
    return used


def remove_orphans(values: Sequence[ir.Value | None], lines: Mapping[ir.Node, Line]) -> list[Line]:
    """Remove what made ``values`` and has no other use; return the nodes, in order.

    Those that :func:`stands_in_place` are none of them: they are read where they were used.
    ``lines`` has those whose outputs have lost their names.
    """
    removed: list[Line] = []
    pending = [x for x in values if x is not None]
    while pending:
        value = pending.pop()
        if value.is_graph_output() or value.is_graph_input() or users_of(value):
            continue
        node = value.producer()
        if node is None:
            if value.is_initializer() and value.graph is not None and value.name is not None:
                value.graph.initializers.pop(value.name, None)
            continue
        graph = node.graph
        if graph is None or _others_are_used(node, value):
            continue
        if not stands_in_place(node):
            removed.append(lines.get(node) or Line.of(node))
        for i, source in enumerate(node.inputs):
            if source is not None:
                pending.append(source)
                node.replace_input_with(i, None)
        for body in bodies_of(node):
            pending.extend(discard(body))
        graph.remove(node)  # nothing uses it, and it uses nothing any more
    return removed[::-1]


def _others_are_used(node: ir.Node, value: ir.Value) -> bool:
    outputs = node.outputs
    return len(outputs) > 1 and any(
        x is not value and (x.is_graph_output() or users_of(x)) for x in outputs
    )
