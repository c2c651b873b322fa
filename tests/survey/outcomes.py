"""Outcomes of cases, in a file that grows as they come: a survey goes on where it stopped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.survey.case import Case, model_of
from tests.survey.journal import add_lines, read_journal

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Attributes:
        verdict: ``right``, ``differs``, ``fails``, ``dies``, ``cpu`` or ``unknown``.
        worst: The largest difference to the CPU.
        seen: The first number that differs, or the error's code.
    """

    verdict: str
    worst: float = 0.0
    seen: str = ""


class Journal:
    """The outcomes of one version of the provider.

    Args:
        path: Its file; one that is there is read, and added to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = read_journal(path)
        self._outcomes = {key: Outcome(what, float(gap), seen) for key, what, gap, seen in lines}

    def get(self, case: Case) -> Outcome | None:
        """Return what came of a case, or None if it was not run."""
        return self._outcomes.get(key_of(case))

    def add(self, case: Case, outcome: Outcome) -> None:
        """Keep what came of a case."""
        key = key_of(case)
        self._outcomes[key] = outcome
        add_lines(self._path, [(key, outcome.verdict, repr(outcome.worst), outcome.seen)])


def key_of(case: Case) -> str:
    """Return a digest of a case's model and inputs: one that is changed is another case."""
    proto, feeds = model_of([case])
    digest = hashlib.sha256(proto.SerializeToString(deterministic=True))
    for name, array in feeds.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]
