"""How long something took, and how much longer than something else; on a machine that does more.

Two models are run in turns, and it is the ratio within each turn that is looked at: what else the
machine does in that moment falls on both. The ratio is the median over the turns; its interval is
between two order statistics of them, which needs no assumption on how times are distributed: the
median lies between the k-th smallest and the k-th largest of n with the probability that a fair
coin, thrown n times, shows at least k heads and at least k tails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERVAL = "between order statistics of the ratios of each turn"
"""How :attr:`Ratio.low` and :attr:`Ratio.high` are found."""
_CONFIDENCE = 0.95


@dataclass
class Timing:
    """How long one phase of one model took, in seconds, run by run."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median."""
        return float(np.median(self.seconds))

    @property
    def p95(self) -> float:
        """What 95 of 100 runs stay below."""
        return float(np.percentile(self.seconds, 95))

    @property
    def spread(self) -> float:
        """From the first quartile to the third, as a share of the median."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float((high - low) / self.median) if self.median else 0.0

    def to_json(self) -> dict[str, object]:
        """In milliseconds, as plain data."""
        if not self.seconds:
            return {"runs": 0}
        return {
            "runs": len(self.seconds),
            "median_ms": self.median * 1e3,
            "p95_ms": self.p95 * 1e3,
            "spread": self.spread,
            "all_ms": [x * 1e3 for x in self.seconds],
        }


@dataclass(frozen=True)
class Ratio:
    """How many times as long one model took as another, in the same phase.

    Attributes:
        value: The median of the ratios of each turn.
        low: Where the interval begins.
        high: Where it ends.
        confidence: How surely the interval holds the true median: the least that is 0.95 or more,
            or what the smallest to the largest gives where there were fewer than six turns.
        turns: How many turns there were.
    """

    value: float
    low: float
    high: float
    confidence: float
    turns: int

    def to_json(self) -> dict[str, object]:
        """As plain data."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "turns": self.turns,
            "interval": INTERVAL,
        }


def ratio(own: Sequence[float], base: Sequence[float]) -> Ratio | None:
    """How many times as long ``own`` took as ``base``, turn by turn.

    Args:
        own: Seconds of each turn.
        base: Those of the other model, in the same turns.

    Returns:
        None if there were no turns, or the two are not of the same turns.
    """
    if not own or len(own) != len(base) or min(base) <= 0:
        return None
    ratios = np.sort(np.asarray(own) / np.asarray(base))
    rank, confidence = _ranks(len(ratios))
    low, high = float(ratios[rank]), float(ratios[-1 - rank])
    return Ratio(float(np.median(ratios)), low, high, confidence, len(ratios))


def _ranks(count: int) -> tuple[int, float]:
    """How many to leave out at either end, and how surely the rest holds the median."""
    best = 0, max(0.0, 1 - 2 * 0.5**count)
    outside = 0.0
    for rank in range((count + 1) // 2):
        outside += math.comb(count, rank) * 0.5**count
        if 1 - 2 * outside < _CONFIDENCE:
            break
        best = rank, 1 - 2 * outside
    return best
