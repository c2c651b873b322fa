"""Sizes that follow from others: numbers that a host computes with, without a parser."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LARGEST_SIZE = 2**62


@dataclass(frozen=True)
class DerivedSize:
    """A size that follows from other sizes.

    It is ``(add + sum of of[d] * sizes[d]) / divide``, rounded down, then not below ``least`` and
    not above ``most``.

    Attributes:
        name: What ``dims`` and later derived sizes call it: the expression that it is.
        of: A whole number for each dim or earlier derived size.
        add: A whole number.
        divide: A whole number above 0.
        least: The smallest value; None if there is none.
        most: The largest value; None if there is none.
        exact: Whether the original takes only what ``divide`` divides without a rest.
    """

    name: str
    of: dict[str, int]
    add: int = 0
    divide: int = 1
    least: int | None = None
    most: int | None = None
    exact: bool = False

    def value_at(self, sizes: Mapping[str, int]) -> int:
        """Return the value, given the sizes of what it follows from.

        Raises:
            ValueError: A size is missing, it is not whole where it must be, or far too large.
        """
        try:
            total = self.add + sum(factor * sizes[name] for name, factor in self.of.items())
        except KeyError as error:
            raise ValueError(f"{self.name!r:.80} follows from {error}, which has no size") from None
        value, rest = divmod(total, self.divide)
        if rest and self.exact:
            raise ValueError(f"{self.name:.80} is {total}/{self.divide}, which is no whole number")
        if abs(value) >= LARGEST_SIZE:
            raise ValueError(f"{self.name!r:.80} is {value:.3g}, which is no size")
        if self.least is not None:
            value = max(value, self.least)
        return value if self.most is None else min(value, self.most)


def with_derived_sizes(derived: Iterable[DerivedSize], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return these sizes, and those that follow from them.

    Raises:
        ValueError: One cannot be computed.
    """
    known = dict(sizes)
    for item in derived:
        known[item.name] = item.value_at(known)
    return known


def sources_of(derived: Iterable[DerivedSize]) -> dict[str, frozenset[str]]:
    """Return the dims that each derived size follows from in the end."""
    sources: dict[str, frozenset[str]] = {}
    for item in derived:
        sources[item.name] = frozenset().union(
            *(sources.get(name, frozenset({name})) for name in item.of)
        )
    return sources
