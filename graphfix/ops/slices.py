"""Read Slice: attributes before opset 10, inputs since."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeGuard, TypeVar

import onnx_ir as ir

from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import input_at
from graphfix.ops.operands import Read, is_given, normalize_axes, read_axes, read_operand

T = TypeVar("T")

OPEN_END = 2**31 - 1
"""The least number that exporters write for an end that is the end of the axis."""
_OPEN_ENDS = (OPEN_END, 2**63 - 1)


class Cut(NamedTuple, Generic[T]):
    """What a Slice takes along one axis, in ONNX's terms."""

    start: T
    end: T
    step: T


def sliced_axes(
    node: ir.Node, rank: int | None, read: Read[object] = ints_of
) -> tuple[int, ...] | None:
    """Return the axes that a Slice cuts, in its order.

    Args:
        node: A Slice.
        rank: Of its data; None leaves negative axes as they are written.
        read: Reads an input.

    Returns:
        None if they are known only in a run, or lie outside of the rank.
    """
    if is_given(node, 3, "axes"):
        axes = read_axes(node, 3, "axes", read)
        if not axes:
            return None
    else:
        count = _count_axes(node, read)
        if count is None:
            return None
        axes = tuple(range(count))
    return axes if rank is None else normalize_axes(axes, rank)


def cuts_of_slice(
    node: ir.Node, rank: int, read: Read[int] = ints_of
) -> dict[int, Cut[int]] | None:
    """Return the cut along each axis; None unless all of it is known."""
    cuts = read_cuts(node, rank, read)
    if cuts is None:
        return None
    known_cuts = {axis: cut for axis, cut in cuts.items() if is_known(cut)}
    return known_cuts if len(known_cuts) == len(cuts) else None


def is_known(cut: Cut[T | None]) -> TypeGuard[Cut[T]]:
    """Return whether start, end and step are known."""
    return None not in cut


def read_cuts(node: ir.Node, rank: int, read: Read[T]) -> dict[int, Cut[T | int | None]] | None:
    """Return the cut along each axis, with None for starts, ends or steps that ``read`` misses.

    Args:
        node: A Slice.
        rank: Of its data; axes count from the front in the result.
        read: Reads an input: ``ints_of``, or what is known of symbolic sizes.

    Returns:
        None if the axes are not known, or one is named twice.
    """
    axes = sliced_axes(node, rank, read)
    if axes is None or len({*axes}) != len(axes):
        return None
    unknown: tuple[T | int | None, ...] = (None,) * len(axes)
    steps: tuple[T | int | None, ...] = (1,) * len(axes)
    if is_given(node, 4, "steps"):
        steps = read_operand(node, 4, "steps", read) or unknown
    starts = read_operand(node, 1, "starts", read) or unknown
    ends = read_operand(node, 2, "ends", read) or unknown
    if not len(starts) == len(ends) == len(steps) == len(axes):
        return None
    limits = zip(starts, ends, steps, strict=True)
    return {axis: Cut(*limit) for axis, limit in zip(axes, limits, strict=True)}


def python_slice(cut: Cut[int], size: int) -> slice:
    """Return the slice of a list that takes what a cut takes of an axis.

    Backwards, ONNX begins at the first element where the start lies before it; Python would take
    nothing. ONNX Runtime reads the greatest integers as an open end, backwards too.
    """
    is_open = cut.step < 0 and cut.end in _OPEN_ENDS
    return slice(max(cut.start, -size), None if is_open else cut.end, cut.step)


def cut_length(cut: Cut[int], size: int) -> int:
    """Return how many elements a cut takes of an axis."""
    return len(range(*python_slice(cut, size).indices(size)))


def cut_of_cut(first: Cut[int], second: Cut[int]) -> Cut[int] | None:
    """Return the cut that takes what ``second`` takes of what ``first`` takes, at every size.

    None if there is none, or if it depends on the size: of a start that counts from the end, of a
    step backwards, or of an end that counts from the front in one and from the end in the other.
    """
    if min(first.start, second.start) < 0 or min(first.step, second.step) < 1:
        return None
    start, step = first.start + first.step * second.start, first.step * second.step
    if second.end >= OPEN_END:
        end = first.end
    elif second.end >= 0:
        end = first.start + first.step * second.end
        if first.end < 0:
            return None
        end = min(end, first.end)
    elif first.end >= OPEN_END:
        end = first.step * second.end
    elif first.end < 0:
        end = first.end + first.step * second.end
    else:
        return None
    fits = max(start, step) < OPEN_END and end > -OPEN_END
    return Cut(start, end, step) if fits else None


def _count_axes(node: ir.Node, read: Read[object]) -> int | None:
    """Return how many axes a Slice without axes cuts, by its starts or its ends."""
    for index, attribute in ((1, "starts"), (2, "ends")):
        contents = read_operand(node, index, attribute, read)
        if contents is not None:
            return len(contents)
        value = input_at(node, index)
        shape = None if value is None else value.shape
        if shape is not None and len(shape) == 1 and isinstance(shape[0], int):
            return shape[0]
    return None
