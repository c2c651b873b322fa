"""Patterns of names, many at once: a search by running names hundreds of nodes."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from functools import cached_property


class NamePatterns:
    """Patterns with ``*``, ``?`` and ``[...]``, the first of which counts.

    Args:
        patterns: The patterns, in order.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self.patterns = tuple(patterns)

    def first_match(self, names: Iterable[str]) -> str:
        """Return the first pattern that matches one of the names, or ""."""
        numbers = (number for name in names for number in self._match_numbers(name))
        number = min(numbers, default=None)
        return "" if number is None else self.patterns[number]

    def _match_numbers(self, name: str) -> Iterable[int]:
        """Yield numbers of patterns that match a name, the first of all among them."""
        if match := self._of_one_length.fullmatch(name):
            yield (match.lastindex or 0) - 1
        yield from (number for number, regex in self._of_any_length if regex.match(name))

    @cached_property
    def _of_one_length(self) -> re.Pattern[str]:
        """Return all patterns without ``*`` in one; each is the group of its number plus one."""
        nothing = "(?!)"
        texts = (nothing if "*" in x else fnmatch.translate(x) for x in self.patterns)
        return re.compile("|".join(f"({x})" for x in texts) or nothing)

    @cached_property
    def _of_any_length(self) -> list[tuple[int, re.Pattern[str]]]:
        """Return the patterns with ``*``, and their numbers."""
        return [
            (number, re.compile(fnmatch.translate(x)))
            for number, x in enumerate(self.patterns)
            if "*" in x
        ]
