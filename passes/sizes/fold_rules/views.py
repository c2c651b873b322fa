"""Reshape, Unsqueeze, Squeeze and Flatten: the same elements in the same order, once more."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.symbolic.expressions import Dim
from graphfix.graph.nodes import is_op
from graphfix.ops.broadcast import is_broadcast

from ...common.lookup import VIEWS, Key, Look, Replacement, alone, keys_of, nothing, root_of
from ...common.reshape_targets import constant_target, with_axes

Reshaping = Callable[[ir.Value, Builder], ir.Value]
"""Makes a view of a tensor."""


def view(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """Reshape, Unsqueeze, Squeeze, Flatten."""
    root = root_of(node.outputs[0])
    dims = look.dims(node.outputs[0])
    if dims is None:
        return None
    if dims == look.dims(root):
        return nothing(root, node)
    if _puts_ones_in_front(look.dims(source), dims) and _spares_ones(node.outputs[0], look):
        gemm = source.producer()  # gemm-matmul takes it away with the view before it
        flat = is_op(gemm, "Gemm") and gemm.inputs[0] is not None and gemm.inputs[0].producer()
        return None if flat and is_op(flat, *VIEWS) else nothing(source, node)
    start, cast = source, alone(source, "Cast")
    if (
        cast is not None
        and cast.inputs[0] is not None
        and alone(cast.inputs[0], *VIEWS) is not None
    ):
        start = cast.inputs[0]
    else:
        cast = None
    while (before := alone(start, *VIEWS)) is not None and before.inputs[0] is not None:
        start = before.inputs[0]
    computed = is_op(node, "Reshape") and len(node.inputs) > 1 and look.numbers(node.inputs[1])
    if start is source and computed is not None:
        return None
    again = _remade(node, start, look)
    if again is None:
        return None
    what = f"it can be made of {start.name!r} at once"
    if cast is None:
        return Replacement(what, lambda op: [again(op)])
    return Replacement(f"{what}, before the Cast", lambda op: [op.again(cast, again(op))])


def _puts_ones_in_front(given: tuple[Key, ...] | None, made: tuple[Key, ...]) -> bool:
    """Whether ``made`` is ``given`` behind dims of 1; a vector is a size, planned with the rest."""
    return given is not None and len(made) > 1 and made == (1,) * (len(made) - len(given)) + given


def _spares_ones(value: ir.Value, look: Look) -> bool:
    """Whether all who use ``value`` broadcast it to as many dims of another tensor.

    Views do not count, which may lose their own: masks of [B, 1, 1, T] and [1, 1, T, T] stay.
    """
    rank, shapes = look.view.shapes.rank(value) or 0, look.view.shapes
    users = [use.node for use in value.uses()]
    for user in users:
        others = {x for x in user.inputs if x is not None} - {value}
        ranks = [shapes.rank(x) or 0 for x in others if not is_op(x.producer(), *VIEWS)]
        if not is_broadcast(user, look.view.opset(user)) or max(ranks, default=0) < rank:
            return False
    return bool(users)


def _remade(node: ir.Node, source: ir.Value, look: Look) -> Callable[[Builder], ir.Value] | None:
    """One view of ``source`` with the shape that ``node`` makes."""
    given, made = look.view.shapes.dims(source), look.view.shapes.dims(node.outputs[0])
    if given is None or made is None or keys_of(given) is None or keys_of(made) is None:
        return None
    shape = node.inputs[1] if is_op(node, "Reshape") and len(node.inputs) > 1 else None
    told = look.view.shapes.data(shape) if node.inputs[0] is source else None
    view = by_ones(given, made)
    if view is None and shape is not None and 0 not in (look.numbers(shape) or (0,)):
        return lambda op: op.again(node, source, shape)
    view = view or by_constant(given, made, told, look)
    return None if view is None else partial(view, source)


def by_ones(given: Sequence[Dim], made: Sequence[Dim]) -> Reshaping | None:
    """An Unsqueeze or Squeeze from one shape to another."""
    few, many = keys_of(given), keys_of(made)
    if few is None or many is None:
        return None
    for op_type, small, large in (("Unsqueeze", few, many), ("Squeeze", many, few)):
        axes = _ones(small, large)
        if axes is not None:
            return lambda value, op: with_axes(op_type, value, axes, op)
    return None


def by_constant(
    given: Sequence[Dim], made: Sequence[Dim], told: Sequence[Dim] | None, look: Look
) -> Reshaping | None:
    """A Reshape to a constant from one shape to another; ``told`` is what the shape held before."""
    target = constant_target(given, made, told, look.view.shapes)
    if isinstance(target, str):
        return None
    return lambda value, op: op.Reshape(value, np.array(target, np.int64))


def _ones(small: tuple[Key, ...], large: tuple[Key, ...]) -> tuple[int, ...] | None:
    """The axes of ``large`` that are 1 and are all that it has more than ``small``."""
    axes, left = [], list(small)
    for i, dim in enumerate(large):
        if left and left[0] == dim:
            left.pop(0)
        elif dim == 1:
            axes.append(i)
        else:
            return None
    return tuple(axes) if not left and axes else None
