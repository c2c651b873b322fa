"""Many tokens in parts that containers have a size for."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphfix.errors import FeedError


@dataclass(frozen=True)
class Chunk:
    """A part of the tokens, and the container that it runs in.

    Attributes:
        start: The first of them.
        valid: How many they are.
        size: What the container takes; what is left of it is filled up in front.
    """

    start: int
    valid: int
    size: int


def chunks(count: int, sizes: Sequence[int], *, partial: bool, joins: bool = True) -> list[Chunk]:
    """``count`` tokens in parts: the largest that fit, and what does not fit first.

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
        rest = count % largest
        fits = next((x for x in sizes if x >= rest), largest)
        made = [Chunk(0, rest, fits)] if rest else []
        return [*made, *(Chunk(at, largest, largest) for at in range(rest, count, largest))]
    made, at = [], 0
    while at < count:
        size = next((x for x in reversed(sizes) if x <= count - at), None)
        if size is None:
            told = ", ".join(map(str, sizes))
            raise FeedError(
                f"{count} new entries are no sum of the sizes that containers have ({told}); "
                "nothing was run. Ship with a container of 1 too"
            )
        made.append(Chunk(at, size, size))
        at += size
    return made
