"""Transposes, and Einsums that are one: what they turn can often be made in their order."""

from collections.abc import Callable, Collection, Sequence

import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.graph.constants import axes_of
from graphfix.graph.nodes import is_op
from graphfix.ops.broadcast import BY_ELEMENT, is_broadcast

from ...common.fusible import swaps_last
from ...common.lookup import Look, Replacement, alone, nothing, perm_of
from ...common.reshape_targets import with_axes

# Steps from a Transpose to what it can go with.
_DEPTH = 16


def turned(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """A Transpose that moves nothing, or goes with another, or with the views before it."""
    perm, first = perm_of(node, look), source.producer()
    if not perm or len(perm) != look.view.shapes.rank(source):
        return None
    if is_op(node, "Einsum"):
        return Replacement("it is a Transpose", lambda op: [op.Transpose(source, perm=perm)])
    if perm == tuple(range(len(perm))):
        return nothing(source, node)
    if (two := _both(first, perm, look)) is not None:
        start, both = two
        if both == sorted(both):
            return nothing(start, node)
        if alone(source, "Transpose") is not None:
            return Replacement("two are one Transpose", lambda op: [op.Transpose(start, perm=both)])
    if (made := _in_order(source, perm, look, _DEPTH)) is not None:
        return Replacement("what it turns can be made in its order", lambda op: [made(op)])
    few = _unsqueezed(source, perm)
    if few is None or not swaps_last(few[1]):
        return None
    rows, inner, ones = few
    return Replacement(
        "it can be turned before dims of 1 are put in",
        lambda op: [with_axes("Unsqueeze", op.Transpose(rows, perm=inner), ones, op)],
    )


def squeezed(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """A Transpose after dims of 1 are taken out, where only rows and columns are left of it."""
    turn, axes = alone(source, "Transpose"), axes_of(node)
    start, perm = (None, ()) if turn is None else (turn.inputs[0], perm_of(turn, look))
    if start is None or axes is None or not perm:
        return None
    gone = {perm[x % len(perm)] for x in axes}
    inner = _without(perm, gone)
    if inner != sorted(inner) and not swaps_last(inner):
        return None

    def build(op: Builder) -> list[ir.Value]:
        few = with_axes("Squeeze", start, sorted(gone), op)
        return [few if inner == sorted(inner) else op.Transpose(few, perm=inner)]

    return Replacement("dims of 1 can be taken out before the Transpose", build)


def _in_order(
    value: ir.Value, perm: Sequence[int], look: Look, depth: int
) -> Callable[[Builder], ir.Value] | None:
    """What makes a tensor with its axes in an order, where no Transpose is needed for that."""
    maker, dims = value.producer(), look.dims(value)
    if [*perm] == sorted(perm) or (dims is not None and set(dims) <= {1}):
        return lambda op: value
    if maker is None or depth == 0 or len(dims or ()) != len(perm):
        return None
    if (two := _both(maker, perm, look)) is not None:
        start, both = two
        once = both == sorted(both) or alone(value, "Transpose") is not None
        return _in_order(start, both, look, depth - 1) if once else None
    if (few := _unsqueezed(value, perm)) is not None:
        start, inner, ones = few
        made = _in_order(start, inner, look, depth - 1)
        return made and (lambda op: with_axes("Unsqueeze", made(op), ones, op))
    by_element = is_op(maker, *BY_ELEMENT) or is_broadcast(maker, look.view.opset(maker))
    inside = any(x.node.graph is not maker.graph for x in value.uses())  # a loop, perhaps
    if not by_element or inside or alone(value, maker.op_type) is None:
        return None
    inputs = [x and _in_order(x, perm, look, depth - 1) for x in maker.inputs]
    if any(x is not None and y is None for x, y in zip(maker.inputs, inputs, strict=True)):
        return None
    return lambda op: op.again(maker, *(x and x(op) for x in inputs))


def _both(
    first: ir.Node | None, perm: Sequence[int], look: Look
) -> tuple[ir.Value, list[int]] | None:
    """What a Transpose is given, and how the one after it would have to turn that."""
    if not is_op(first, "Transpose") or first.inputs[0] is None:
        return None
    inner = perm_of(first, look)
    return (first.inputs[0], [inner[x] for x in perm]) if len(inner) == len(perm) else None


def _unsqueezed(
    value: ir.Value, perm: Sequence[int]
) -> tuple[ir.Value, list[int], list[int]] | None:
    """What dims of 1 are put into for a Transpose: how it is turned, and where they are then."""
    maker = alone(value, "Unsqueeze")
    start, axes = (None, None) if maker is None else (maker.inputs[0], axes_of(maker))
    if start is None or axes is None:
        return None
    ones = {x % len(perm) for x in axes}
    return start, _without(perm, ones), [i for i, x in enumerate(perm) if x in ones]


def _without(perm: Sequence[int], gone: Collection[int]) -> list[int]:
    """What a Transpose does to the axes that stay."""
    left = [x for x in perm if x not in gone]
    return [sorted(left).index(x) for x in left]
