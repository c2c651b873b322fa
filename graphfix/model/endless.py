"""Loops that never end, as far as the graph alone tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model.values import bodies_of, const_of, is_op, nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_TRIPS = 1 << 40


def refusal(model: ir.Model) -> str | None:
    """Which loop never ends, as a sentence; None if all may."""
    for node in _nodes(model):
        if is_op(node, "Loop") and _is_endless(node):
            return (
                f"the Loop of {node.outputs[0].name!r} never ends: its condition is always true, "
                "and it has no number of trips, or one beyond any time"
            )
    return None


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    for graph in (model.graph, *(x.graph for x in model.functions.values())):
        yield from nodes_of(graph)


def _is_endless(loop: ir.Node) -> bool:
    trips = loop.inputs[0] if loop.inputs else None
    condition = loop.inputs[1] if len(loop.inputs) > 1 else None
    if trips is not None:
        most = const_of(trips)
        if most is None or most.size != 1 or int(most.reshape(-1)[0]) < _MOST_TRIPS:
            return False
    for body in bodies_of(loop):
        given, again = body.inputs[1], _source(body.outputs[0])
        if again is given:
            return condition is None or _is_true(condition)
        return (condition is None or _is_true(condition)) and _is_true(again)
    return False


def _source(value: ir.Value) -> ir.Value:
    """What a value is a copy of."""
    while is_op(node := value.producer(), "Identity"):
        before = node.inputs[0]
        if before is None:
            break
        value = before
    return value


def _is_true(value: ir.Value) -> bool:
    found = const_of(value)
    return found is not None and found.size == 1 and bool(found.reshape(-1)[0])
