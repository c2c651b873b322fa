"""The constant that a Reshape to a computed shape, or a chain of them, can have instead."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, Shapes, same
from graphfix.graph.text import size_told

# DirectML has tensors of up to so many dims.
_MOST_DIMS = 8


@dataclass(frozen=True)
class Target:
    """A Reshape to a constant, with what brings sizes to where a 0 copies them.

    Attributes:
        shape: The constant.
        before: Where the input gets dims of 1 first, as axes of what it then is.
        after: Which dims of ``shape`` are 1 and go again.
    """

    shape: tuple[int, ...]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def build(self, value: ir.Value, op: Builder) -> ir.Value:
        """``value`` in that shape."""
        value = with_axes("Unsqueeze", value, self.before, op)
        value = op.Reshape(value, np.array(self.shape, np.int64))
        return with_axes("Squeeze", value, self.after, op)


def target_of(
    source: Sequence[Dim], sizes: Sequence[Dim], shapes: Shapes, given: Sequence[Dim] | None = None
) -> Target | str:
    """What reshapes ``source`` to ``sizes`` by a constant, or why nothing does.

    A 0 copies a size from the same place, and there is one -1. So ``[B, H, T, D]`` to ``[B*H, T,
    D]`` is ``[1, -1, 0, 0]`` and a Squeeze: sizes that lie somewhere else come to their place by
    dims of 1 in what is made, or in what is given. The arguments are those of
    :func:`constant_target`.
    """
    direct = constant_target(source, sizes, given, shapes)
    if not isinstance(direct, str):
        return Target(direct)
    # Where nothing is given, the sizes stand for it: there is no -1 among them either.
    for (axes, wide), (_, told) in zip(_widened(sizes), _widened(given or sizes), strict=False):
        found = constant_target(source, wide, told, shapes)
        if not isinstance(found, str):
            return Target(found, after=axes)
    for axes, wide in _widened(source):
        found = constant_target(wide, sizes, given, shapes)
        if not isinstance(found, str):
            return Target(found, before=axes)
    return direct


def may_copy(
    source: Sequence[Dim], sizes: Sequence[Dim], given: Sequence[Dim] | None, shapes: Shapes
) -> bool:
    """Whether a size may be 0 where the input's size is not: the computed shape then copies that.

    So ``[B, T, B]`` to ``[B*T, B]`` gives [0, 1] where B is 0 and T is 1. Beside a -1 no size is 0.
    """
    if given is not None and -1 in given:
        return False
    return any(
        not shapes.never_empty(size, source[i] if i < len(source) else 1)
        for i, size in enumerate(sizes)
    )


def _widened(dims: Sequence[Dim]) -> Iterator[tuple[tuple[int, ...], list[Dim]]]:
    """``dims`` with one or more dims of 1 at each place in turn, and which dims those are."""
    for count in range(1, _MOST_DIMS - len(dims) + 1):
        for start in range(len(dims) + 1):
            axes = tuple(range(start, start + count))
            yield axes, [*dims[:start], *(1 for _ in axes), *dims[start:]]


def with_axes(op_type: str, value: ir.Value, axes: Sequence[int], op: Builder) -> ir.Value:
    """Unsqueeze or Squeeze, if there are axes: they are an attribute before opset 13."""
    if not axes:
        return value
    if op.view.opset(op.site) < 13:
        return op.make(op_type, value, axes=list(axes))
    return op.make(op_type, value, np.array(axes, np.int64))


def reshaped(value: ir.Value, sizes: ir.Value, op: Builder) -> ir.Value:
    """A value of these sizes, where a 0 is a size; below opset 14 it copies one."""
    if op.view.opset(op.site) < 14:
        return op.Reshape(value, sizes)
    return op.Reshape(value, sizes, allowzero=1)


def constant_target(
    source: Sequence[Dim], sizes: Sequence[Dim], given: Sequence[Dim] | None, shapes: Shapes
) -> tuple[int, ...] | str:
    """The constant that reshapes ``source`` to ``sizes``, or why there is none.

    Args:
        source: The dims of the input; empty if they are unknown.
        sizes: The dims of the output.
        given: What the computed shape holds, where a -1 may be among it.
        shapes: Knows which dims are never 0.
    """
    target: list[int] = []
    copied: list[Dim] = []
    left: list[int] = []
    for i, size in enumerate(sizes):
        if isinstance(size, int):
            if size == 0:
                return f"entry {i} is 0, which a constant shape cannot say without allowzero=1"
            target.append(size)
        elif i < len(source) and same(source[i], size):
            copied.append(size)
            target.append(0)
        else:
            left.append(i)
            target.append(-1)
    if len(left) > 1:
        entries = " and ".join(f"entry {i} ({size_told(sizes[i])})" for i in left)
        dims = ", ".join(size_told(x) for x in source)
        return f"one -1 is not enough: {entries} are not what the input [{dims}] has there"
    if left and not (given is not None and len(given) == len(sizes) and given[left[0]] == -1):
        perhaps = [str(x) for x in copied if not shapes.never_empty(x)]
        if perhaps:
            entry = f"entry {left[0]} ({size_told(sizes[left[0]])})"
            return f"{entry} would have to be -1, which is ambiguous if {' or '.join(perhaps)} is 0"
    return tuple(target)
