"""Splits many tokens into chunks that containers have a size for."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphfix.errors import FeedError


@dataclass(frozen=True)
class Chunk:
    """A part of the tokens, and the container that it runs in.

    Attributes:
        start: The index of its first token.
        valid: How many tokens it has.
        size: How many the container takes; the difference is padding in front.
    """

    start: int
    valid: int
    size: int


def largest_takeable(count: int, sizes: Sequence[int], *, joins: bool = True) -> int:
    """Return the most entries up to ``count`` that containers take; the smallest size at least.

    Args:
        count: How many entries there may be.
        sizes: What containers take, the smallest first.
        joins: Whether there may be several parts.
    """
    if not joins:
        return next((x for x in reversed(sizes) if x <= count), sizes[0])
    rest = count
    for size in reversed(sizes):
        rest %= size
    return max(count - rest, sizes[0])


def split_into_chunks(
    count: int, sizes: Sequence[int], *, partial: bool, joins: bool = True
) -> list[Chunk]:
    """Split ``count`` tokens into the largest sizes that fit; a padded chunk comes first.

    37 of 16 are 5, filled up to 16, then 16 and 16. Where nothing may be filled up, the small ones
    come last: 16, 16 and five times 1.

    Args:
        count: How many tokens there are.
        sizes: What containers take, the smallest first.
        partial: Whether the first part may be filled up in front.
        joins: Whether there may be several parts.

    Raises:
        FeedError: No sum of sizes is that many.
    """
    if not joins and count not in sizes:
        raise FeedError(
            f"{count} new entries: this model takes as many at once as a container has "
            f"({', '.join(map(str, sizes))}), since parts of them do not give what all of them do; "
            "nothing was run. Ship with a container of that size too"
        )
    if partial:
        largest = sizes[-1]
        remainder = count % largest
        fits = next((x for x in sizes if x >= remainder), largest)
        parts = [Chunk(0, remainder, fits)] if remainder else []
        return [
            *parts,
            *(Chunk(start, largest, largest) for start in range(remainder, count, largest)),
        ]
    parts, start = [], 0
    while start < count:
        size = next((x for x in reversed(sizes) if x <= count - start), None)
        if size is None:
            size_list = ", ".join(map(str, sizes))
            raise FeedError(
                f"{count} new entries are no sum of the sizes that containers have ({size_list}); "
                "nothing was run. Ship with a container of 1 too"
            )
        parts.append(Chunk(start, size, size))
        start += size
    return parts
