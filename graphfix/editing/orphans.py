"""Removal of nodes that nothing reads any more, with all that only they used."""

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from graphfix.graph.nodes import use_count
from graphfix.graph.text import NodeText, is_inlined_constant
from graphfix.graph.walks import bodies_of


def empty_body(body: ir.Graph) -> list[ir.Value]:
    """Empty the body of a node that is removed, and return the values that it was using."""
    used = [value for node in list(body) for value in _detach_inputs(node)]
    body.outputs.clear()
    body.remove(list(body))
    return used


def remove_orphans(
    values: Sequence[ir.Value | None], lines: Mapping[ir.Node, NodeText]
) -> list[NodeText]:
    """Remove what made ``values`` and has no other use; return its lines, in order.

    Inlined constants (:func:`is_inlined_constant`) have no line: they are written in the lines of
    their readers.

    Args:
        values: Values that may have no use any more.
        lines: The text of nodes whose outputs have lost their names since.
    """
    removed: list[NodeText] = []
    pending = [x for x in values if x is not None]
    while pending:
        value = pending.pop()
        if _is_used(value):
            continue
        node = value.producer()
        if node is None:
            _remove_initializer(value)
        elif node.graph is not None and not any(map(_is_used, node.outputs)):
            if not is_inlined_constant(node):
                removed.append(lines.get(node) or NodeText.from_node(node))
            pending += _detach_inputs(node)
            node.graph.remove(node)  # nothing uses it, and it uses nothing any more
    return removed[::-1]


def _is_used(value: ir.Value) -> bool:
    """Return whether something reads a value, or it belongs to the signature of a graph."""
    return value.is_graph_output() or value.is_graph_input() or use_count(value) > 0


def _remove_initializer(value: ir.Value) -> None:
    if value.is_initializer() and value.graph is not None and value.name is not None:
        value.graph.initializers.pop(value.name, None)


def _detach_inputs(node: ir.Node) -> list[ir.Value]:
    """Take from a node all that it and its bodies read, and return that."""
    sources = [x for x in node.inputs if x is not None]
    for i in range(len(node.inputs)):
        node.replace_input_with(i, None)
    for body in bodies_of(node):
        sources += empty_body(body)
    return sources
