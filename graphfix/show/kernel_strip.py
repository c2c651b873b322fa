"""A model as one line: its nodes in order, each in the colour of where it runs."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from graphfix.directml.plan import Where

ORDER: tuple[Where, ...] = ("fused", "dml", "cpu", "gone")
WORDS: dict[Where, str] = {"fused": "fused", "dml": "DirectML", "cpu": "CPU", "gone": "gone"}
BLOCKS: dict[Where, str] = {"fused": "█", "dml": "▓", "cpu": "░", "gone": "·"}
LETTERS: dict[Where, str] = {"fused": "#", "dml": "=", "cpu": "-", "gone": "."}


def text(wheres: Sequence[Where], width: int) -> list[Where]:
    """The strip in at most ``width`` cells, each what most of its nodes are.

    What is gone does not run, so a cell shows it only where nothing else is; of two that are
    equally many, the one that costs more is shown.
    """
    cells = min(width, len(wheres))
    found: list[Where] = []
    for i in range(cells):
        here = wheres[i * len(wheres) // cells : (i + 1) * len(wheres) // cells]
        counted = Counter(here)
        found.append(max(ORDER, key=lambda x: (bool(counted[x] and x != "gone"), counted[x], x)))
    return found


def runs(wheres: Iterable[Where]) -> list[tuple[Where, int]]:
    """The strip as (where, how many nodes in a row)."""
    return [(where, sum(1 for _ in group)) for where, group in groupby(wheres)]
