"""Removal of nodes that nothing reads any more, with all that only they used."""

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from graphfix.graph.nodes import use_count
from graphfix.graph.text import NodeText, is_inlined_constant
from graphfix.graph.walks import bodies_of


def empty_body(body: ir.Graph) -> list[ir.Value]:
    """Empty the body of a node that is removed, and return the values that it was using."""
    used = []
    for node in list(body):
        for inner in bodies_of(node):
            used += empty_body(inner)
        for i, value in enumerate(node.inputs):
            if value is not None:
                used.append(value)
                node.replace_input_with(i, None)
    body.outputs.clear()
    body.remove(list(body))
    return used


def remove_orphans(
    values: Sequence[ir.Value | None], lines: Mapping[ir.Node, NodeText]
) -> list[NodeText]:
    """Remove what made ``values`` and has no other use; return its lines, in order.

    Those that :func:`is_inlined_constant` are none of them: they are read where they were used.
    ``lines`` has those whose outputs have lost their names.
    """
    removed: list[NodeText] = []
    pending = [x for x in values if x is not None]
    while pending:
        value = pending.pop()
        if value.is_graph_output() or value.is_graph_input() or use_count(value):
            continue
        node = value.producer()
        if node is None:
            if value.is_initializer() and value.graph is not None and value.name is not None:
                value.graph.initializers.pop(value.name, None)
            continue
        graph = node.graph
        if graph is None or _has_other_used_output(node, value):
            continue
        if not is_inlined_constant(node):
            removed.append(lines.get(node) or NodeText.from_node(node))
        for i, source in enumerate(node.inputs):
            if source is not None:
                pending.append(source)
                node.replace_input_with(i, None)
        for body in bodies_of(node):
            pending.extend(empty_body(body))
        graph.remove(node)  # nothing uses it, and it uses nothing any more
    return removed[::-1]


def _has_other_used_output(node: ir.Node, value: ir.Value) -> bool:
    outputs = node.outputs
    return len(outputs) > 1 and any(
        x is not value and (x.is_graph_output() or use_count(x)) for x in outputs
    )
