"""What a Reshape does with axes: it keeps the order of the elements, and so the factors of sizes.

From ``[B, T, H * D]`` to ``[B * T, H, D]`` it deals the factors B, T, H and D to other axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from graphfix.facts.symbolic.expressions import Dim, equal_dims, product_of_dims

Size = TypeVar("Size")


class Part(NamedTuple, Generic[Size]):
    """A factor on an axis: all of it, or the part that the axis has room for.

    Attributes:
        factor: Which of the factors it is, or is a part of.
        size: How long it is.
    """

    factor: int
    size: Size


def deal_factors(
    factors: Sequence[Size],
    sizes: Sequence[Size],
    divide: Callable[[Size, Size], Size | None],
    split: Callable[[Part[Size], Size, Sequence[Size]], Size | None],
) -> list[list[Part[Size]]] | None:
    """Deal factors to axes, both in order and outermost first.

    Args:
        factors: The sizes of the factors.
        sizes: The sizes of the axes.
        divide: Returns a quotient of sizes if it is a size, else None.
        split: Returns the size of what remains of a part of which an axis takes only so much. It
            gets the part, the size that is taken, and the sizes of the axes behind; None if it
            cannot be split.

    Returns:
        The parts on each axis, none on one of size 1. None if they do not make up the axes, as far
        as is seen.
    """
    pending = [Part(i, size) for i, size in enumerate(factors)]
    axes: list[list[Part[Size]]] = []
    for place, size in enumerate(sizes):
        axis: list[Part[Size]] = []
        missing = size
        while missing != 1:
            if not pending:
                return None
            part = pending.pop(0)
            rest = divide(missing, part.size)
            if rest is not None:
                axis.append(part)
                missing = rest
                continue
            remainder = split(part, missing, sizes[place + 1 :])
            if remainder is None:
                return None
            axis.append(part._replace(size=missing))
            pending.insert(0, part._replace(size=remainder))
            break
        axes.append(axis)
    return None if any(part.size != 1 for part in pending) else axes


def cuts_alike(before: Sequence[Dim], axis: int, after: Sequence[Dim], place: int) -> bool:
    """Return whether a Reshape makes, of the axes from ``axis`` on, those from ``place`` on.

    Either the axes in front or those behind are seen to have as many elements.
    """
    pairs = ((before[:axis], after[:place]), (before[axis:], after[place:]))
    return any(_have_equal_counts(a, b) for a, b in pairs)


def keeps_axis(before: Sequence[Dim], axis: int, after: Sequence[Dim], place: int) -> bool:
    """Return whether an axis is, after a Reshape, the one at ``place``, element by element."""
    return cuts_alike(before, axis, after, place) and cuts_alike(before, axis + 1, after, place + 1)


def merged_axes(many: Sequence[Dim], few: Sequence[Dim]) -> list[int]:
    """Return which axes of ``few`` may be several neighbours of ``many`` in one, all others kept.

    Their sizes are seen to multiply to its own; one of size 1 merges nothing. Among axes of size 1
    in ``many`` there may be several answers.
    """
    extra = len(many) - len(few)
    if extra < 1:
        return []
    kept_before = [keeps_axis(many, i, few, i) for i in range(len(few))]
    kept_behind = [keeps_axis(many, i + extra, few, i) for i in range(len(few))]
    return [
        place
        for place, size in enumerate(few)
        if size != 1
        and all(kept_before[:place])
        and all(kept_behind[place + 1 :])
        and _have_equal_counts(many[place : place + extra + 1], [size])
    ]


def _have_equal_counts(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Return whether axes hold equally many elements; where there are none, nothing is seen."""
    count = product_of_dims(a)
    return count != 0 and equal_dims(count, product_of_dims(b))
