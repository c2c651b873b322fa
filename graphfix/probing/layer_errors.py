"""The course of an error through a model: a row a layer, as deep as still fits a page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.probing.compared import ComparedTensor

# The deepest modules that make at most so many rows are shown; seven rows of a model of a hundred
# layers would say nothing, so then one level more is taken.
_ROWS = 40
_FEW = 8
_MANY = 250
# Below this a difference is nothing, above 1 it is everything.
_LEAST = 1e-7


@dataclass(frozen=True)
class Row:
    """What was found in one module.

    Attributes:
        name: The module, or a range of tensors where the exporter names none.
        worst: The tensor whose difference is the largest share of its scale; one that leads to
            an output that parts comes before one that does no harm.
        tensors: How many tensors were compared.
        parted: How many of them have parted, and lead to an output that parts.
        harmless: How many have parted, and no output shows it.
        skipped: How many could not be compared.
        site: Whether the runs part here: at a node that takes what is the same.
    """

    name: str
    worst: ComparedTensor
    tensors: int
    parted: int
    harmless: int
    skipped: int
    site: bool

    def to_json(self) -> dict[str, object]:
        """The row as plain data."""
        inner = self.worst.inner
        return {
            "name": self.name,
            "max_abs": inner.max_abs,
            "cosine": inner.cosine,
            "relative": inner.relative,
            "worst": inner.tensor,
            "tensors": self.tensors,
            "parted": self.parted,
            "harmless": self.harmless,
            "skipped": self.skipped,
            "site": self.site,
        }


def course(places: Sequence[ComparedTensor], sites: Sequence[str], most: int = _ROWS) -> list[Row]:
    """The rows of a table, in the order of the graph.

    Args:
        places: The tensors that were looked at, in order.
        sites: The tensors at which the runs part.
        most: How many rows there should be at most.
    """
    groups = _groups(places, most)
    return [_row(name, found, set(sites)) for name, found in groups.items()]


def magnitude(relative: float) -> float:
    """A share of the scale as a number from 0 (nothing) to 1 (everything), by its logarithm."""
    if not math.isfinite(relative) or relative >= 1:
        return 1.0
    if relative <= _LEAST:
        return 0.0
    return 1.0 - math.log10(relative) / math.log10(_LEAST)


def _row(name: str, places: Sequence[ComparedTensor], sites: set[str]) -> Row:
    skipped = sum(x.inner.state == "skipped" for x in places)
    worst = max(places, key=lambda x: (x.inner.state != "skipped", x.reached, x.inner.relative))
    parted = sum(x.inner.state == "parted" for x in places)
    leading = sum(x.inner.state == "parted" and x.reached for x in places)
    return Row(
        name,
        worst,
        len(places) - skipped,
        leading,
        parted - leading,
        skipped,
        any(x.inner.tensor in sites for x in places),
    )


def _groups(places: Sequence[ComparedTensor], most: int) -> dict[str, list[ComparedTensor]]:
    deepest = max((len(x.module) for x in places), default=0)
    chosen: dict[str, list[ComparedTensor]] = {}
    for depth in range(1, deepest + 1):
        groups = _at_depth(places, depth)
        if len(groups) > most and not (len(chosen) < _FEW and len(groups) <= _MANY):
            break
        chosen = groups
    if len(chosen) > 1 or len(places) < 2:
        return chosen or _at_depth(places, 1)
    return _even(places, min(most, 20))


def _at_depth(places: Sequence[ComparedTensor], depth: int) -> dict[str, list[ComparedTensor]]:
    groups: dict[str, list[ComparedTensor]] = {}
    for place in places:
        groups.setdefault("/".join(place.module[:depth]) or "(no module)", []).append(place)
    return groups


def _even(places: Sequence[ComparedTensor], rows: int) -> dict[str, list[ComparedTensor]]:
    """Runs of tensors of the same number, called by their first and last."""
    size = max(1, math.ceil(len(places) / rows))
    runs = (places[i : i + size] for i in range(0, len(places), size))
    return {f"{run[0].inner.tensor} .. {run[-1].inner.tensor}": list(run) for run in runs}
