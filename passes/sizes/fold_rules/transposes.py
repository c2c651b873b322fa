"""Transposes, and Einsums that are one, that go if their input is computed in permuted order."""

from collections.abc import Callable, Collection, Sequence

import onnx_ir as ir

from graphfix import ops
from graphfix.editing.builder import Builder
from graphfix.graph.nodes import is_op
from graphfix.ops.axes import squeezed_axes

from ...common.fold_view import FoldView, Replacement, exclusive_producer, forward_value, perm_of
from ...common.fusible import swaps_last_axes
from ...common.reshape_targets import with_axes

_UNARY = ops.UNARY - ops.IDLE | ops.named("Identity")
# How many nodes above a Transpose are tried.
_DEPTH = 16


def simplify_transpose(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Drop a Transpose that moves nothing, or merge it with another or with views before."""
    perm, first = perm_of(node, look), source.producer()
    if not perm or len(perm) != look.view.shapes.rank(source):
        return None
    if is_op(node, "Einsum"):
        return Replacement("it is a Transpose", lambda op: [op.Transpose(source, perm=perm)])
    if perm == tuple(range(len(perm))):
        return forward_value(source, node)
    if (merged := _merge_perms(first, perm, look)) is not None:
        start, merged_perm = merged
        if merged_perm == sorted(merged_perm):
            return forward_value(start, node)
        if exclusive_producer(source, "Transpose") is not None:
            return Replacement(
                "two are one Transpose", lambda op: [op.Transpose(start, perm=merged_perm)]
            )
    if (build := _permuted_builder(source, perm, look, _DEPTH)) is not None:
        return Replacement("what it turns can be made in its order", lambda op: [build(op)])
    unsqueeze = _unsqueeze_before(source, perm)
    if unsqueeze is None or not swaps_last_axes(unsqueeze[1]):
        return None
    rows, inner, unit_axes = unsqueeze
    return Replacement(
        "it can be turned before dims of 1 are put in",
        lambda op: [with_axes("Unsqueeze", op.Transpose(rows, perm=inner), unit_axes, op)],
    )


def squeeze_before_transpose(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Move a Squeeze before a Transpose that then swaps at most rows and columns."""
    transpose = exclusive_producer(source, "Transpose")
    start, perm = (
        (None, ()) if transpose is None else (transpose.inputs[0], perm_of(transpose, look))
    )
    axes = squeezed_axes(node, len(perm))
    if start is None or axes is None or not perm:
        return None
    removed = {perm[x] for x in axes}
    inner = _perm_without(perm, removed)
    if inner != sorted(inner) and not swaps_last_axes(inner):
        return None

    def build(op: Builder) -> list[ir.Value]:
        few = with_axes("Squeeze", start, sorted(removed), op)
        return [few if inner == sorted(inner) else op.Transpose(few, perm=inner)]

    return Replacement("dims of 1 can be taken out before the Transpose", build)


def _permuted_builder(
    value: ir.Value, perm: Sequence[int], look: FoldView, depth: int
) -> Callable[[Builder], ir.Value] | None:
    """Return what builds ``value`` with permuted axes without a Transpose, or None."""
    maker, dims = value.producer(), look.dims(value)
    if [*perm] == sorted(perm) or (dims is not None and set(dims) <= {1}):
        return lambda op: value
    if maker is None or depth == 0 or len(dims or ()) != len(perm):
        return None
    if (merged := _merge_perms(maker, perm, look)) is not None:
        start, merged_perm = merged
        is_alone = exclusive_producer(value, "Transpose") is not None
        is_free = is_alone or merged_perm == sorted(merged_perm)
        return _permuted_builder(start, merged_perm, look, depth - 1) if is_free else None
    if (unsqueeze := _unsqueeze_before(value, perm)) is not None:
        start, inner, unit_axes = unsqueeze
        build_source = _permuted_builder(start, inner, look, depth - 1)
        return build_source and (lambda op: with_axes("Unsqueeze", build_source(op), unit_axes, op))
    return _permuted_elementwise_builder(maker, value, perm, look, depth)


def _permuted_elementwise_builder(
    maker: ir.Node, value: ir.Value, perm: Sequence[int], look: FoldView, depth: int
) -> Callable[[Builder], ir.Value] | None:
    """Return what builds ``value`` from the permuted inputs of an elementwise node, or None."""
    broadcasts = maker in ops.BROADCASTS.at(look.view.opset_of_node(maker))
    if not broadcasts and maker not in _UNARY:
        return None
    inside = any(x.node.graph is not maker.graph for x in value.uses())  # a loop, perhaps
    if inside or exclusive_producer(value, maker.op_type) is None:
        return None
    inputs = [x and _permuted_builder(x, perm, look, depth - 1) for x in maker.inputs]
    if any(x is not None and y is None for x, y in zip(maker.inputs, inputs, strict=True)):
        return None
    return lambda op: op.clone_node(maker, *(x and x(op) for x in inputs))


def _merge_perms(
    first: ir.Node | None, perm: Sequence[int], look: FoldView
) -> tuple[ir.Value, list[int]] | None:
    """Return the input of a Transpose and the permutation of it and the next, or None."""
    if not is_op(first, "Transpose") or first.inputs[0] is None:
        return None
    inner = perm_of(first, look)
    return (first.inputs[0], [inner[x] for x in perm]) if len(inner) == len(perm) else None


def _unsqueeze_before(
    value: ir.Value, perm: Sequence[int]
) -> tuple[ir.Value, list[int], list[int]] | None:
    """Return the input of an Unsqueeze, its permutation, and the new axes after it, or None."""
    maker = exclusive_producer(value, "Unsqueeze")
    start, axes = (
        (None, None) if maker is None else (maker.inputs[0], squeezed_axes(maker, len(perm)))
    )
    if start is None or axes is None:
        return None
    return start, _perm_without(perm, axes), [i for i, x in enumerate(perm) if x in axes]


def _perm_without(perm: Sequence[int], removed: Collection[int]) -> list[int]:
    """Return how a Transpose permutes the axes that stay."""
    remaining = [x for x in perm if x not in removed]
    return [sorted(remaining).index(x) for x in remaining]
