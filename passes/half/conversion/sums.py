"""Sums that float16 spoils.

Squares and their means, of norms in pieces, overflow or are lost. Along time, an error in each of
4,000 steps is 4,000 errors in the last.
"""

from collections.abc import Iterator
from itertools import islice

import onnx_ir as ir

from graphfix import ops
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import is_op, producer_of
from graphfix.graph.walks import reachable_from
from graphfix.ops.squares import ADDS_SQUARES, squared_input

from .constants import has_weights, is_constant
from .kept_nodes import KeptNodes
from .number_kinds import COMPUTES_LITTLE

_AVERAGES = ops.named("ReduceMean GlobalAveragePool AveragePool")
# A small error before one of these may be a whole step behind it.
_STEPS = (ops.MAKES_WHOLE_NUMBERS - ops.named("Sign")) | ops.ORDER_COMPARISONS | ops.named("Mod")
# Of a phase only the remainder counts.
_TAKES_PHASE = ops.named("Sin Cos")
_LEADS_TO_STEP = COMPUTES_LITTLE | _TAKES_PHASE | _STEPS | ops.named("Resize")


def keep_statistics(kept_nodes: KeptNodes) -> None:
    """Keep a mean of squares in float32, up to where it meets the data again."""
    reason = "squares and their mean overflow beyond 255, and are lost below 1/256"
    for node in kept_nodes.nodes:
        if node in _AVERAGES or is_op(node, "ReduceSum"):
            moves = _nodes_up_to_square(node)
            for made_of_squares in moves:
                kept_nodes.keep_node(made_of_squares, reason)
            if not moves:
                continue
        elif is_op(node, "LpNormalization"):
            # Run on onnxruntime-directml 1.24.4, rows of 256 numbers: zeros from a spread of 300
            # on, of both norms; 2 % off at 1e-3. ReduceL2 and LpPool add up in float32 there.
            kept_nodes.keep_node(node, "DirectML adds its powers up in float16")
            continue
        elif node not in ADDS_SQUARES:
            continue
        kept_nodes.keep_node(node, reason)
        _keep_until_root(kept_nodes, node, reason)


def _nodes_up_to_square(node: ir.Node) -> list[ir.Node]:
    """Return the nodes between a sum and the square whose elements it adds; none if it is none."""
    moves: list[ir.Node] = []
    producer = producer_of(node.inputs[0])
    while ops.MOVES_FIRST_INPUT.has(producer):
        moves.append(producer)
        producer = producer_of(producer.inputs[0])
    return [*moves, producer] if producer is not None and _is_square(producer) else []


def _keep_until_root(kept_nodes: KeptNodes, node: ir.Node, reason: str) -> None:
    """Keep what follows up to the root; a divisor may be a count, which is kept as well."""
    for value in node.outputs:
        for use in value.uses():
            reader = use.node
            if not is_op(reader, "Add", "Sqrt", "Reciprocal", "Pow", "Div", "Clip", "Max", "Mul"):
                continue
            other_inputs = [x for i, x in enumerate(reader.inputs) if i != use.idx]
            has_count = is_op(reader, "Div") and use.idx == 0 and reader in kept_nodes.reasons
            if has_count or all(x is None or is_constant(x) for x in other_inputs):
                kept_nodes.keep_node(reader, reason)
                _keep_until_root(kept_nodes, reader, reason)


def _is_square(node: ir.Node) -> bool:
    power = scalar_of(node.inputs[1]) if is_op(node, "Pow") else None
    return squared_input(node) is not None or (power is not None and power >= 2)


def keep_running_sums(kept_nodes: KeptNodes) -> None:
    """Keep in float32 what a CumSum sums, and what is compared or rounded after it.

    Of a phase only the remainder counts, which has the error of the whole sum: there all that the
    sum is computed from is kept, otherwise only what comes after the nearest weights.
    """
    for node in kept_nodes.nodes:
        if not is_op(node, "CumSum") or not kept_nodes.types.is_float(node.outputs[0]):
            continue
        following = _nodes_after_sum(kept_nodes, node)
        preceding = _nodes_before_sum(
            kept_nodes, node, to_inputs=any(x in _TAKES_PHASE for x in following)
        )
        for neighbor in (*preceding, *following):
            kept_nodes.keep_node(neighbor, "a sum along time adds up its errors")


def _nodes_after_sum(kept_nodes: KeptNodes, node: ir.Node) -> set[ir.Node]:
    """Return the nodes from a sum to where it is compared, rounded, or used as a phase."""
    visited, relevant = [node], {node}
    for top in visited:
        users = {use.node for x in top.outputs for use in x.uses()} - {*visited}
        visited += (x for x in users if x in _LEADS_TO_STEP)
    for last in reversed(visited):
        leads_on = any(use.node in relevant - {node} for x in last.outputs for use in x.uses())
        if leads_on or last in _TAKES_PHASE or last in _STEPS:
            relevant.add(last)
    return {x for x in relevant if kept_nodes.uses_float32(x)}


def _nodes_before_sum(
    kept_nodes: KeptNodes, node: ir.Node, *, to_inputs: bool
) -> Iterator[ir.Node]:
    """Yield the nodes that compute the operand of a sum, back to weights or to the inputs."""

    def float_producers(top: ir.Node) -> Iterator[ir.Node | None]:
        if top is node or to_inputs or not has_weights(top):
            yield from (producer_of(x) for x in top.inputs if kept_nodes.types.is_float(x))

    return islice(reachable_from([node], float_producers), 1, None)
