"""Passes take turns over one model until none of them finds anything that is left.

They run in the order in which they are given. But what a pass makes, one before it may repair: a
start that was computed is a constant once it is folded, and a Slice of it a site. So each that the
others have changed something behind is asked again, and runs again if it has a site.
"""

import dataclasses
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import onnx_ir as ir

from graphfix.core import Check, Match, Pass, Result
from graphfix.editing import exclusions
from graphfix.engine.report import ROUNDS, PassReport
from graphfix.errors import GraphfixError, PassError
from graphfix.facts import shapes
from graphfix.facts.view import index
from graphfix.graph.names import made_twice

R = TypeVar("R")


class Turns:
    """The turns of passes over one model.

    Attributes:
        ran: What each has done, in all its turns.
        endless: The passes that still changed something in the last round there was, as ``-p``
            takes them.
    """

    def __init__(self, model: ir.Model, progress: Callable[[str], None] | None) -> None:
        self._model, self._progress = model, progress
        self._reports: list[PassReport] = []
        self._checks: list[Check] = []
        # How often the model was changed, and how often when a pass last found no automatic repair.
        self._changed = 0
        self._seen: dict[str, int] = {}
        self._renewed = 0  # how often it was changed when its sizes were last inferred again
        self.endless: tuple[str, ...] = ()
        self._unclear = made_twice(model) is not None

    @property
    def ran(self) -> tuple[PassReport, ...]:
        """What each pass did, in the order in which they were given."""
        return tuple(self._reports)

    def take(self, check: Check, given: Check) -> None:
        """Run a pass for the first time; ``given`` is what it was before it was settled.

        Raises:
            PassError: It raises what is no error of ours.
        """
        self._reports.append(self._turn(check, given))
        self._checks.append(check)

    def again(self) -> None:
        """Give all passes further turns until none finds anything.

        Those that were called for what they make of the interface, of padding or of types have one
        turn only. Before one that rounds, the passes before it have had theirs; behind it only
        those that change no number have more, such as of what made an output and no longer does.
        """
        rounding = [i for i, x in enumerate(self._checks) if isinstance(x, Pass) and x.measured]
        start = rounding[-1] + 1 if rounding else 0
        passes = ((i, x) for i, x in enumerate(self._checks) if isinstance(x, Pass))
        again = ((i, x) for i, x in passes if i >= start or x.safety == "exact")
        taking = {i: x for i, x in again if x.dispensable}
        busy: list[str] = []
        for _ in range(ROUNDS):
            self._renew()
            busy = []
            for i, check in taking.items():
                if self._finds(check):
                    done = self._turn(check, check)
                    self._reports[i] = _both(self._reports[i], done)
                    busy += [check.spec()] if done.changes else []
            if not busy:
                return
        if any(map(self._finds, taking.values())):
            self.endless = tuple(dict.fromkeys((*self.endless, *busy)))

    def _renew(self) -> None:
        """Infer sizes again if some are not known and a pass has changed something since.

        Two tensors whose sizes the data say are seen to be one when what makes them has become one.
        """
        if self._renewed != self._changed and shapes.renew(self._model):
            self._seen.clear()  # who found nothing may find something now
        self._renewed = self._changed

    def _finds(self, check: Pass) -> bool:
        """Whether there is a site, of a pass behind whose last turn something was changed."""
        if self._seen.get(check.spec(), 0) == self._changed:
            return False
        if exclusions.why_pass(self._model, check.spec()) is not None:
            return False
        found = self._guarded(check, lambda x: any(isinstance(y, Match) for y in check.sites(x)))
        if not found:
            self._seen[check.spec()] = self._changed
        return found

    def _turn(self, check: Check, given: Check) -> PassReport:
        if self._progress is not None:
            self._progress(f"repairing: {given.name}")
        done = self._guarded(given, lambda model: _run(check, model))
        if done.changes and not self._unclear and (name := made_twice(self._model)) is not None:
            raise PassError(name_of(given), f"the pass {given.name} makes {name!r} a second time")
        self._changed += bool(done.changes)
        self._seen[name_of(check)] = self._changed
        return done

    def _guarded(self, given: Check, work: Callable[[ir.Model], R]) -> R:
        """What ``work`` gives; what it raises, if it is no error of ours, is the pass's fault."""
        index(self._model)  # of what most passes only look at
        try:
            return work(self._model)
        except (GraphfixError, MemoryError):
            raise
        except Exception as error:  # a fault of the pass, whatever it is
            raise PassError(name_of(given), _fault(given, error)) from error


def name_of(one: Check) -> str:
    """A pass or a check as ``-p`` takes it."""
    return one.spec() if isinstance(one, Pass) else one.name


def _run(check: Check, model: ir.Model) -> PassReport:
    start = time.perf_counter()
    safety = check.safety if isinstance(check, Pass) else "exact"
    report = PassReport(check.name, name_of(check), safety)
    if (why := exclusions.why_pass(model, report.spec)) is not None:
        return dataclasses.replace(report, left=why)
    if not isinstance(check, Pass):
        report = dataclasses.replace(report, findings=tuple(check.findings(model)))
    else:
        made = check(model)
        if not isinstance(made, Result):
            raise GraphfixError(f"the pass {check.name} did not return a graphfix.Result")
        advice = check.advice if made.changes else ""
        report = dataclasses.replace(report, changes=made.changes, skips=made.skips, advice=advice)
    return dataclasses.replace(report, seconds=time.perf_counter() - start)


def _both(first: PassReport, then: PassReport) -> PassReport:
    """What a pass did in two turns; what it skipped in the first it may have repaired since."""
    return dataclasses.replace(
        then,
        changes=(*first.changes, *then.changes),
        seconds=first.seconds + then.seconds,
        advice=first.advice or then.advice,
    )


def _fault(check: Check, error: Exception) -> str:
    """What a pass raised, and where in it."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    said = " ".join(str(error).split())
    return f"the pass {check.name} failed: {type(error).__name__}{at}: {said}"
