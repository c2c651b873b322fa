"""Loops that never end, as far as the graph alone tells."""

import onnx_ir as ir

from graphfix.graph.constants import const_of
from graphfix.graph.nodes import before, is_op
from graphfix.graph.walks import all_nodes, bodies_of

_MOST_TRIPS = 1 << 40


def refusal(model: ir.Model) -> str | None:
    """Which loop never ends, as a sentence; None if all may."""
    for node in all_nodes(model):
        if is_op(node, "Loop") and _is_endless(node):
            return (
                f"the Loop of {node.outputs[0].name!r} never ends: its condition is always true, "
                "and it has no number of trips, or one beyond any time"
            )
    return None


def _is_endless(loop: ir.Node) -> bool:
    trips, condition = (*loop.inputs, None, None)[:2]
    if trips is not None and (_number(trips) or 0) < _MOST_TRIPS:
        return False
    starts = condition is None or bool(_number(condition))
    (body,) = bodies_of(loop)
    again = before(body.outputs[0], "Identity")
    return starts and again is not None and (again is body.inputs[1] or bool(_number(again)))


def _number(value: ir.Value) -> float | None:
    """The number in a constant; None if it is not constant, or has several."""
    found = const_of(value)
    return None if found is None or found.size != 1 else found.reshape(-1)[0].item()
