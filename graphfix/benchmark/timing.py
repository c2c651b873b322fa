"""How long something took, and how much longer than something else, on a busy machine.

Runs in one process are no independent tries: how its memory lies, and what else the machine does in
that second, falls on all of them. So a process is one try, and says one number: its *typical* run,
which a tenth of its steady runs stay below. What else a machine does only ever makes a run longer,
so the fast runs are those that show the model. On two cores with eight other busy processes, the
first decile of a process varied by 1 to 4 %, its median by 2 to 80 % (three models, 60 processes
each); and unlike the fastest run, it does not fall because a fast model gets more runs.

A ratio is taken turn by turn, of processes that ran one after the other. It is the median of its
turns. Its interval goes from the k-th smallest of them to the k-th largest, which needs no
assumption on how times are distributed: the median of n lies there with the probability that a
fair coin, thrown n times, shows at least k heads and at least k tails. Six turns are the fewest
that hold it with 95 %; with nine, one outlier on either side does no harm. (A bootstrap of so few
does not hold what it says; signed ranks hold it for symmetric noise only, and were 2 to 8 %
narrower with nine turns.)
"""

import math
from dataclasses import asdict, dataclass

import numpy as np

INTERVAL = "from a low to a high rank of the ratios of each turn"
"""How :attr:`Ratio.low` and :attr:`Ratio.high` are found."""
CONFIDENCE = 0.95
TYPICAL = 0.1
"""The share of a process's runs that are faster than its typical one."""


@dataclass(frozen=True)
class Timing:
    """How long one phase of one model took, in seconds.

    Attributes:
        processes: The runs of each process, in the order of the turns.
    """

    processes: tuple[tuple[float, ...], ...] = ()

    @property
    def seconds(self) -> list[float]:
        """Return the typical run of each process."""
        return [float(np.quantile(runs, TYPICAL)) for runs in self.processes]

    @property
    def runs(self) -> int:
        """Return how many runs there were in all processes together."""
        return sum(len(runs) for runs in self.processes)

    @property
    def median(self) -> float:
        """Return the median of the processes."""
        return float(np.median(self.seconds))

    @property
    def spread(self) -> float:
        """Return the interquartile range of the processes, as a share of the median."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float((high - low) / self.median) if self.median else 0.0

    def to_json(self) -> dict[str, object]:
        """Return the timing in milliseconds, as plain data."""
        if not self.processes:
            return {"processes": 0, "runs": 0}
        return {
            "processes": len(self.processes),
            "runs": self.runs,
            "median_ms": self.median * 1e3,
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

    def contains(self, value: float) -> bool:
        """Return whether a value lies in the interval."""
        return self.low <= value <= self.high

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data for JSON."""
        return {**asdict(self), "interval": INTERVAL}


@dataclass(frozen=True)
class Claim:
    """How the time of one model compares with that of another.

    Attributes:
        ratio: How many times as long it took; None if that cannot be inferred.
        why: Why it cannot be inferred; empty if it can.
    """

    ratio: Ratio | None = None
    why: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data; ``value`` is None where it cannot be inferred."""
        if self.ratio is not None:
            return self.ratio.to_json()
        return {"value": None, "cannot_tell": self.why}


def compare_timings(own: Timing, base: Timing, copy: Timing | None) -> Claim:
    """Return how a model's time compares with another's, if the clock can tell.

    Args:
        own: Of the model.
        base: Of the one that it is compared with.
        copy: Of that one once more, in the same turns; None if the clock is known to be good.
    """
    estimate, copy_ratio = time_ratio(own, base), None if copy is None else time_ratio(copy, base)
    if estimate is None or (copy is not None and copy_ratio is None):
        return Claim(why="they were not timed in the same turns")
    if estimate.confidence < CONFIDENCE:
        return Claim(
            why=f"{estimate.turns} of the {_fewest_turns()} processes that an interval with "
            f"{CONFIDENCE:.0%} confidence takes"
        )
    if copy_ratio is None:
        return Claim(estimate)
    return doubt_claim(estimate, copy_ratio.value, copy_ratio.low, copy_ratio.high)


def doubt_claim(ratio: Ratio, copy: float, low: float, high: float) -> Claim:
    """Return a ratio as a claim if the clock holds it.

    Args:
        ratio: Of a model to the original.
        copy: The ratio of a copy of the original to the original.
        low: Where its interval begins. It must hold 1, and a difference must lie outside of it.
        high: Where it ends.
    """
    is_difference = not ratio.contains(1.0)
    if low <= 1.0 <= high and not (is_difference and low <= ratio.value <= high):
        return Claim(ratio)
    return Claim(
        why=f"a model beside its own copy took {copy:.3f} of the time ({low:.3f} to {high:.3f})"
    )


def time_ratio(own: Timing, base: Timing) -> Ratio | None:
    """Return how many times as long ``own`` took as ``base``, turn by turn.

    Returns:
        None if there were no turns, or the two are not of the same turns.
    """
    own_seconds, base_seconds = own.seconds, base.seconds
    if not own_seconds or len(own_seconds) != len(base_seconds) or min(base_seconds) <= 0:
        return None
    ratios = np.sort(np.asarray(own_seconds) / np.asarray(base_seconds))
    rank, confidence = _interval_rank(len(ratios))
    low, high = float(ratios[rank]), float(ratios[-1 - rank])
    return Ratio(float(np.median(ratios)), low, high, confidence, len(ratios))


def _interval_rank(count: int) -> tuple[int, float]:
    """Return how many values to leave out at either end, and the confidence of the rest."""
    best = 0, max(0.0, 1 - 2 * 0.5**count)
    outside = 0.0
    for rank in range((count + 1) // 2):
        outside += math.comb(count, rank) * 0.5**count
        if 1 - 2 * outside < CONFIDENCE:
            break
        best = rank, 1 - 2 * outside
    return best


def _fewest_turns() -> int:
    """Return how many turns an interval takes."""
    return next(n for n in range(1, 100) if _interval_rank(n)[1] >= CONFIDENCE)
