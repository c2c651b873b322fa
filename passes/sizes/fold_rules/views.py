"""Reshape, Unsqueeze, Squeeze and Flatten: the same elements in the same order."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.editing.builder import Builder
from graphfix.facts.symbolic.expressions import Dim
from graphfix.graph.nodes import is_op

from ...common.fold_view import (
    FoldView,
    Key,
    Replacement,
    exclusive_producer,
    forward_value,
    keys_of,
    root_of,
)
from ...common.reshape_targets import constant_target, with_axes

Reshaping = Callable[[ir.Value, Builder], ir.Value]
"""Makes a view of a tensor."""


def simplify_view(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Drop a view or merge it with the views before it."""
    root = root_of(node.outputs[0])
    dims = look.dims(node.outputs[0])
    if dims is None:
        return None
    if dims == look.dims(root):
        return forward_value(root, node)
    if _prepends_unit_dims(look.dims(source), dims) and _is_broadcast_by_readers(
        node.outputs[0], look
    ):
        return None if _flattens_for_gemm(source) else forward_value(source, node)
    cast = _cast_of_view(source)
    start = _skip_views(source if cast is None else cast.inputs[0] or source)
    computed = is_op(node, "Reshape") and len(node.inputs) > 1 and look.numbers(node.inputs[1])
    if start is source and computed is not None:
        return None
    build_view = _view_builder(node, start, look)
    if build_view is None:
        return None
    reason = f"it can be made of {start.name!r} at once"
    if cast is None:
        return Replacement(reason, lambda op: [build_view(op)])
    return Replacement(
        f"{reason}, before the Cast", lambda op: [op.clone_node(cast, build_view(op))]
    )


def _flattens_for_gemm(value: ir.Value) -> bool:
    """Return whether a Gemm behind a view makes ``value``: gemm-matmul removes both views."""
    gemm = value.producer()
    data = gemm.inputs[0] if is_op(gemm, "Gemm") else None
    return data is not None and ops.RESHAPES.has(data.producer())


def _cast_of_view(value: ir.Value) -> ir.Node | None:
    """Return the Cast that makes ``value`` of a view, if nothing else reads either."""
    cast = exclusive_producer(value, "Cast")
    data = None if cast is None else cast.inputs[0]
    return None if exclusive_producer(data, *ops.RESHAPES) is None else cast


def _skip_views(value: ir.Value) -> ir.Value:
    """Return what ``value`` is a view of, behind all views that have no other reader."""
    while (view := exclusive_producer(value, *ops.RESHAPES)) is not None:
        if view.inputs[0] is None:
            break
        value = view.inputs[0]
    return value


def _prepends_unit_dims(source_dims: tuple[Key, ...] | None, target_dims: tuple[Key, ...]) -> bool:
    """Return whether a view only puts dims of 1 in front; vectors are sizes, and excluded."""
    return (
        source_dims is not None
        and len(target_dims) > 1
        and target_dims == (1,) * (len(target_dims) - len(source_dims)) + source_dims
    )


def _is_broadcast_by_readers(value: ir.Value, look: FoldView) -> bool:
    """Return whether all readers broadcast ``value`` to as many dims of another tensor.

    Views do not count, which may lose their own: masks of [B, 1, 1, T] and [1, 1, T, T] stay. Who
    reads a graph output has its dims.
    """
    if value.is_graph_output():
        return False
    rank, shapes = look.view.shapes.rank(value) or 0, look.view.shapes
    readers = [use.node for use in value.uses()]
    for reader in readers:
        operands = {x for x in reader.inputs if x is not None} - {value}
        ranks = [shapes.rank(x) or 0 for x in operands if not ops.RESHAPES.has(x.producer())]
        if (
            reader not in ops.BROADCASTS.at(look.view.opset_of_node(reader))
            or max(ranks, default=0) < rank
        ):
            return False
    return bool(readers)


def _view_builder(
    node: ir.Node, source: ir.Value, look: FoldView
) -> Callable[[Builder], ir.Value] | None:
    """Return what builds one view of ``source`` with the shape of ``node``, or None."""
    source_dims, target_dims = look.view.shapes.dims(source), look.view.shapes.dims(node.outputs[0])
    if (
        source_dims is None
        or target_dims is None
        or keys_of(source_dims) is None
        or keys_of(target_dims) is None
    ):
        return None
    shape = node.inputs[1] if is_op(node, "Reshape") and len(node.inputs) > 1 else None
    shape_data = look.view.shapes.known_elements(shape) if node.inputs[0] is source else None
    reshape = view_by_unit_axes(source_dims, target_dims)
    if reshape is None and shape is not None and 0 not in (look.numbers(shape) or (0,)):
        return lambda op: op.clone_node(node, source, shape)
    reshape = reshape or view_by_constant(source_dims, target_dims, shape_data, look)
    return None if reshape is None else partial(reshape, source)


def view_by_unit_axes(source_dims: Sequence[Dim], target_dims: Sequence[Dim]) -> Reshaping | None:
    """Return an Unsqueeze or Squeeze from one shape to another, or None."""
    few, many = keys_of(source_dims), keys_of(target_dims)
    if few is None or many is None:
        return None
    for op_type, small, large in (("Unsqueeze", few, many), ("Squeeze", many, few)):
        axes = _added_unit_axes(small, large)
        if axes is not None:
            return lambda value, op: with_axes(op_type, value, axes, op)
    return None


def view_by_constant(
    source_dims: Sequence[Dim],
    target_dims: Sequence[Dim],
    shape_data: Sequence[Dim] | None,
    look: FoldView,
) -> Reshaping | None:
    """Return a Reshape to a constant, or None; ``shape_data`` is what the shape was."""
    target = constant_target(source_dims, target_dims, shape_data, look.view.shapes)
    if isinstance(target, str):
        return None
    return lambda value, op: op.Reshape(value, np.array(target, np.int64))


def _added_unit_axes(small: tuple[Key, ...], large: tuple[Key, ...]) -> tuple[int, ...] | None:
    """Return the axes of 1 that ``large`` has more than ``small``, or None."""
    axes, remaining = [], list(small)
    for i, dim in enumerate(large):
        if remaining and remaining[0] == dim:
            remaining.pop(0)
        elif dim == 1:
            axes.append(i)
        else:
            return None
    return tuple(axes) if not remaining and axes else None
