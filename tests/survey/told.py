"""Whether each row of a survey that is wrong has a rule or a reason, for tests of the tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Entry = tuple[str, str, object]
"""Operator and kind, each a regular expression, and what tells of them, or why nothing does."""
Row = tuple[str, str]


def covers(entry: Entry, row: Row) -> bool:
    """Return whether an entry is about a row."""
    return all(re.fullmatch(a, b) is not None for a, b in zip(entry[:2], row, strict=True))


def untold(rows: Iterable[Row], entries: Sequence[Entry]) -> list[Row]:
    """Return the rows that no entry is about."""
    return [row for row in rows if not any(covers(x, row) for x in entries)]


def stale(rows: Sequence[Row], entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that are about no row."""
    return [x for x in entries if not any(covers(x, row) for row in rows)]
