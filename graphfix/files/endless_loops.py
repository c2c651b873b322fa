"""Loops that never end, as far as the graph alone tells."""

import onnx_ir as ir

from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op, value_before
from graphfix.graph.walks import all_nodes, bodies_of

_MOST_TRIPS = 1 << 40


def find_endless_loop(model: ir.Model) -> str | None:
    """Return a sentence that names a Loop that never ends; None if all may end."""
    for node in all_nodes(model):
        if is_op(node, "Loop") and _is_endless(node):
            return (
                f"the Loop of {node.outputs[0].name!r} never ends: its condition is always true, "
                "and it has no number of trips, or one beyond any time"
            )
    return None


def _is_endless(loop: ir.Node) -> bool:
    trips, condition = (*loop.inputs, None, None)[:2]
    if trips is not None and (_constant_number(trips) or 0) < _MOST_TRIPS:
        return False
    is_entered = condition is None or bool(_constant_number(condition))
    (body,) = bodies_of(loop)
    next_condition = value_before(body.outputs[0], "Identity")
    return (
        is_entered
        and next_condition is not None
        and (next_condition is body.inputs[1] or bool(_constant_number(next_condition)))
    )


def _constant_number(value: ir.Value) -> float | None:
    """Return the number in a constant; None if it is not constant, or has several."""
    array = const_of(value)
    return None if array is None or array.size != 1 else array.reshape(-1)[0].item()
