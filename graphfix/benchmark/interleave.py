"""Runs processes alternately: each turn is one process of each member, in random order.

One after the other, never two at once. Whoever is second finds files and caches as the first has
left them, a machine that has grown warm, and another moment of what else runs there: drawn again in
each turn, the order gives none of them the better place, and a machine that gets slower from
process to process slows all of them alike.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from graphfix.benchmark.timing import Timing
from graphfix.errors import GraphfixError

Phases = Mapping[str, tuple[float, ...]]
"""How long the runs of one process took, by phase; its memory may be among them."""

T = TypeVar("T")


class FailedError(GraphfixError):
    """A model does not load or does not run; with the node at which a process dies of it."""


@dataclass(frozen=True)
class Course:
    """How the processes of one member went.

    Attributes:
        stints: What each of its processes took, in the order of the turns.
        error: Why it did not get through; it has no part in the turns after that.
    """

    stints: tuple[Phases, ...] = ()
    error: str = ""

    def timing_of(self, phase: str) -> Timing:
        """Return its runs in one phase; none if it failed."""
        if self.error:
            return Timing()
        return Timing(tuple(x[phase] for x in self.stints if x.get(phase)))


def take_turns(
    members: Sequence[T],
    run: Callable[[T], Phases],
    *,
    turns: int,
    seed: int,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Course]:
    """Run each member once in each turn.

    Args:
        members: What to run; the same one may be among them twice.
        run: Runs one in a process of its own. If it raises :class:`FailedError`, that is
            this member's result.
        turns: How many turns.
        seed: The same seed draws the same orders.
        tell: Called with a short text before each process.

    Returns:
        How it went, in the order of ``members``.
    """
    draw = np.random.default_rng(seed)
    courses = [Course() for _ in members]
    start, finished = time.monotonic(), 0
    for turn in range(turns):
        for i in draw.permutation(len(members)):
            if courses[i].error:
                continue
            tell(f"turn {turn + 1} of {turns}{_time_left(start, finished, turns * len(members))}")
            try:
                courses[i] = replace(courses[i], stints=(*courses[i].stints, run(members[i])))
            except FailedError as error:
                courses[i] = replace(courses[i], error=str(error))
            finished += 1
    return courses


def _time_left(start: float, finished: int, count: int) -> str:
    """Return how long it will still take, once that is known."""
    if not finished:
        return ""
    return f", about {(time.monotonic() - start) / finished * (count - finished):.0f} s left"
