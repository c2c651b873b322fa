"""Budgets: how long a proof may run the original, and how much a search may try."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from graphfix.feeds.case import Case
from graphfix.runtime.run_errors import OverBudgetError, StoppedError
from graphfix.wording import plural

T = TypeVar("T")

SECONDS = 60.0
"""About how long a proof may take by default; a fast model tries all cases in far less."""
# The original takes a third, the repaired model another, and all further sessions the rest.
_PARTS = 3


@dataclass
class Budget:
    """A budget that refuses cases that would take too long, judged by those that ran.

    Attributes:
        seconds: How long the whole proof may take.
        total: The budget that this is a part of, as users know it.
        over: The cases that were not tried.
    """

    seconds: float = SECONDS
    total: float | None = None
    over: list[str] = field(default_factory=list)
    _spent: float = 0.0
    _largest: tuple[int, float] = (0, 0.0)  # elements fed, seconds taken

    @property
    def part(self) -> float:
        """Return how many seconds one of the parts of a proof may take."""
        return self.seconds / _PARTS

    def run(self, case: Case, run: Callable[[], T]) -> T:
        """Run a case and return what ``run`` returns; the first case always runs.

        Raises:
            OverBudgetError: It would take too long, or was stopped.
            StoppedError: It was stopped, and no case ran before.
        """
        volume, duration = self._largest
        predicted = duration * max(1.0, case.element_count / max(volume, 1))
        if volume and self._spent + predicted > self.part:
            self.over.append(case.name)
            raise OverBudgetError(f"it would take {predicted:.0f} s")
        start = time.perf_counter()
        try:
            return run()
        except StoppedError as error:
            if not volume:
                raise StoppedError(
                    f"{error}; it was case {case.name!r}: give smaller sizes with --dims"
                ) from error
            self.over.append(case.name)
            raise OverBudgetError(str(error)) from error
        finally:
            duration = time.perf_counter() - start
            self._spent += duration
            self._largest = max(self._largest, (case.element_count, duration))

    def __str__(self) -> str:
        more = plural(len(dict.fromkeys(self.over)), "more case")
        return f"{more}, such as {self.over[0]!r} (over --budget {self.total or self.seconds:g})"


class SpentError(Exception):
    """A search may try no more."""


@dataclass
class SearchBudget:
    """What a search may spend: so many tries, and about so many seconds.

    Attributes:
        most: How many tries.
        seconds: How long, from now on; the first try, and one that has begun, may take longer.
        total: The budget that this is a part of, as users know it.
        tries: How many there were.
        spent: What ended the search, in a few words; empty while it may go on.
    """

    most: int
    seconds: float = SECONDS
    total: float | None = None
    tries: int = 0
    spent: str = ""
    _start: float = field(default_factory=lambda: time.monotonic())

    def has_time(self, share: float = 1.0) -> bool:
        """Return whether less than a share of the time has passed."""
        return time.monotonic() - self._start < share * self.seconds

    def take_try(self) -> None:
        """Count one more try.

        Raises:
            SpentError: There may be no more.
        """
        if self.tries >= self.most:
            self.spent = plural(self.most, "try", "tries")
        elif self.tries and not self.has_time():
            self.spent = f"--budget {self.total or self.seconds:g}"
        if self.spent:
            raise SpentError
        self.tries += 1
