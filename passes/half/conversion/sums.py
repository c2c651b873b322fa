"""Sums that float16 spoils.

Squares and their means, of norms in pieces, overflow or are lost. Along time, an error in each of
4,000 steps is 4,000 errors in the last.
"""

from collections.abc import Iterator
from itertools import islice

import onnx_ir as ir

from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import is_op, maker_of
from graphfix.graph.walks import reached

from .constants import has_weights, is_constant
from .kept_nodes import Stay
from .number_kinds import ELEMENTWISE

_SQUARED = ("ReduceMean", "ReduceSum", "GlobalAveragePool", "AveragePool")
_STATISTICS = ("Add", "Sqrt", "Reciprocal", "Pow", "Div", "Clip", "Max", "Mul")
_PERIODIC = ("Sin", "Cos")
_CUT = ("Mod", "Floor", "Ceil", "Round", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


def statistics(stay: Stay) -> None:
    """Let stay a mean of squares, up to where it meets the data again."""
    why = "squares and their mean overflow beyond 255, and are lost below 1/256"
    for node in stay.nodes:
        if not is_op(node, *_SQUARED, "ReduceSumSquare", "ReduceL2"):
            continue
        square = node.inputs[0].producer() if node.inputs and node.inputs[0] else None
        if is_op(node, *_SQUARED):
            if square is None or not _is_square(square):
                continue
            stay.add(square, why)
        stay.add(node, why)
        _then(stay, node, why)


def _then(stay: Stay, node: ir.Node, why: str) -> None:
    """Up to the root; what it is divided by may be a count, which stays as well."""
    for value in node.outputs:
        for use in value.uses():
            after = use.node
            if not is_op(after, *_STATISTICS):
                continue
            others = [x for i, x in enumerate(after.inputs) if i != use.idx]
            counted = is_op(after, "Div") and use.idx == 0 and after in stay.reasons
            if counted or all(x is None or is_constant(x) for x in others):
                stay.add(after, why)
                _then(stay, after, why)


def _is_square(node: ir.Node) -> bool:
    if is_op(node, "Pow"):
        power = scalar_of(node.inputs[1])
        return power is not None and power >= 2
    return is_op(node, "Mul") and node.inputs[0] is node.inputs[1]


def running_sums(stay: Stay) -> None:
    """Let stay what a CumSum takes, and what is compared or rounded after it.

    Of a phase only its rest counts, which has the error of the whole sum: there all that it is
    computed from stays. Elsewhere it is up to the weights that what is summed comes from.
    """
    for node in stay.nodes:
        if not is_op(node, "CumSum") or not stay.types.is_float(node.outputs[0]):
            continue
        behind = _behind(stay, node)
        before = _before(stay, node, whole=any(is_op(x, *_PERIODIC) for x in behind))
        for other in (*before, *behind):
            stay.add(other, "a sum along time adds up its errors")


def _behind(stay: Stay, node: ir.Node) -> set[ir.Node]:
    """The nodes from a sum to where it is compared, rounded, or a phase."""
    reached, kept = [node], {node}
    for top in reached:
        users = {use.node for x in top.outputs for use in x.uses()} - {*reached}
        reached += (x for x in users if is_op(x, *ELEMENTWISE, *_PERIODIC, *_CUT, "Resize"))
    for last in reversed(reached):
        taken = any(use.node in kept - {node} for x in last.outputs for use in x.uses())
        if taken or is_op(last, *_PERIODIC, *_CUT):
            kept.add(last)
    return {x for x in kept if stay.touches(x)}


def _before(stay: Stay, node: ir.Node, *, whole: bool) -> Iterator[ir.Node]:
    """The nodes that make what is summed, back to weights or, if ``whole``, to the inputs."""

    def makers(top: ir.Node) -> Iterator[ir.Node | None]:
        if top is node or whole or not has_weights(top):
            yield from (maker_of(x) for x in top.inputs if stay.types.is_float(x))

    return islice(reached([node], makers), 1, None)
