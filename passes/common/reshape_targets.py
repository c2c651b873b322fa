"""Constant targets for Reshapes to a computed shape, or for chains of Reshapes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, Shapes, same_dim
from graphfix.graph.text import size_text

# DirectML has tensors of up to so many dims.
_MOST_DIMS = 8


@dataclass(frozen=True)
class ReshapeTarget:
    """A Reshape to a constant, with the dims of 1 that align sizes with the zeros that copy them.

    Attributes:
        shape: The constant.
        before: The axes of the widened input that are inserted as dims of 1 first.
        after: The dims of ``shape`` that are 1 and are removed again.
    """

    shape: tuple[int, ...]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def build(self, value: ir.Value, op: Builder) -> ir.Value:
        """Build ``value`` in that shape."""
        value = with_axes("Unsqueeze", value, self.before, op)
        value = op.Reshape(value, np.array(self.shape, np.int64))
        return with_axes("Squeeze", value, self.after, op)


def reshape_target_of(
    source: Sequence[Dim],
    sizes: Sequence[Dim],
    shapes: Shapes,
    shape_data: Sequence[Dim] | None = None,
) -> ReshapeTarget | str:
    """Return what reshapes ``source`` to ``sizes`` by a constant, or why nothing does.

    A 0 copies a size from the same place, and there is one -1. So ``[B, H, T, D]`` to ``[B*H, T,
    D]`` is ``[1, -1, 0, 0]`` and a Squeeze: sizes from other places are aligned by dims of 1 in
    the output or in the input. The arguments are those of :func:`constant_target`.
    """
    direct_shape = constant_target(source, sizes, shape_data, shapes)
    if not isinstance(direct_shape, str):
        return ReshapeTarget(direct_shape)
    # Where nothing is given, the sizes stand for it: there is no -1 among them either.
    for (axes, wide), (_, wide_data) in zip(
        _insert_unit_dims(sizes), _insert_unit_dims(shape_data or sizes), strict=False
    ):
        shape = constant_target(source, wide, wide_data, shapes)
        if not isinstance(shape, str):
            return ReshapeTarget(shape, after=axes)
    for axes, wide in _insert_unit_dims(source):
        shape = constant_target(wide, sizes, shape_data, shapes)
        if not isinstance(shape, str):
            return ReshapeTarget(shape, before=axes)
    return direct_shape


def may_copy_at_zero(
    source: Sequence[Dim], sizes: Sequence[Dim], shape_data: Sequence[Dim] | None, shapes: Shapes
) -> bool:
    """Return whether a size may be 0 where the input's size is not, so that it copies that one.

    So ``[B, T, B]`` to ``[B*T, B]`` gives [0, 1] where B is 0 and T is 1. Beside a -1 no size is 0.
    """
    if shape_data is not None and -1 in shape_data:
        return False
    return any(
        not shapes.is_never_empty(size, source[i] if i < len(source) else 1)
        for i, size in enumerate(sizes)
    )


def _insert_unit_dims(dims: Sequence[Dim]) -> Iterator[tuple[tuple[int, ...], list[Dim]]]:
    """Yield ``dims`` with one or more dims of 1 at each place in turn, and their axes."""
    for count in range(1, _MOST_DIMS - len(dims) + 1):
        for start in range(len(dims) + 1):
            axes = tuple(range(start, start + count))
            yield axes, [*dims[:start], *(1 for _ in axes), *dims[start:]]


def with_axes(op_type: str, value: ir.Value, axes: Sequence[int], op: Builder) -> ir.Value:
    """Build an Unsqueeze or Squeeze of these axes, an attribute before opset 13, if any."""
    if not axes:
        return value
    if op.view.opset_of_node(op.site) < 13:
        return op.make(op_type, value, axes=list(axes))
    return op.make(op_type, value, np.array(axes, np.int64))


def build_reshape(value: ir.Value, sizes: ir.Value, op: Builder) -> ir.Value:
    """Build a value of these sizes, where 0 is a size; below opset 14 it copies one."""
    if op.view.opset_of_node(op.site) < 14:
        return op.Reshape(value, sizes)
    return op.Reshape(value, sizes, allowzero=1)


def constant_target(
    source: Sequence[Dim], sizes: Sequence[Dim], shape_data: Sequence[Dim] | None, shapes: Shapes
) -> tuple[int, ...] | str:
    """The constant that reshapes ``source`` to ``sizes``, or why there is none.

    Args:
        source: The dims of the input; empty if they are unknown.
        sizes: The dims of the output.
        shape_data: The elements of the computed shape, if known; one may be -1.
        shapes: The shapes, which know the dims that are never 0.
    """
    target: list[int] = []
    copied: list[Dim] = []
    inferred: list[int] = []
    for i, size in enumerate(sizes):
        if isinstance(size, int):
            if size == 0:
                return f"entry {i} is 0, which a constant shape cannot say without allowzero=1"
            target.append(size)
        elif i < len(source) and same_dim(source[i], size):
            copied.append(size)
            target.append(0)
        else:
            inferred.append(i)
            target.append(-1)
    if len(inferred) > 1:
        entries = " and ".join(f"entry {i} ({size_text(sizes[i])})" for i in inferred)
        dims = ", ".join(size_text(x) for x in source)
        return f"one -1 is not enough: {entries} are not what the input [{dims}] has there"
    if inferred and not (
        shape_data is not None and len(shape_data) == len(sizes) and shape_data[inferred[0]] == -1
    ):
        maybe_empty = [str(x) for x in copied if not shapes.is_never_empty(x)]
        if maybe_empty:
            entry = f"entry {inferred[0]} ({size_text(sizes[inferred[0]])})"
            return (
                f"{entry} would have to be -1, which is ambiguous if "
                f"{' or '.join(maybe_empty)} is 0"
            )
    return tuple(target)
