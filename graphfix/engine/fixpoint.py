"""Rounds of passes over one model, until none of them finds anything more.

Passes run in the order in which they are given. But a pass may create work for an earlier one: a
computed start is a constant once it is folded, and a Slice of it a site. So each pass behind whose
last turn the model was changed is asked again, and runs again if it has a site.
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
from graphfix.facts.view import index_nodes
from graphfix.graph.names import find_hiding_name

R = TypeVar("R")


class PassTurns:
    """The turns of passes over one model.

    Attributes:
        endless: The passes that still changed something in the last round there was, as ``-p``
            takes them.
    """

    def __init__(self, model: ir.Model, progress: Callable[[str], None] | None) -> None:
        self._model, self._progress = model, progress
        self._reports: list[PassReport] = []
        self._checks: list[Check] = []
        # How often the model was changed, and how often when a pass last found no automatic repair.
        self._change_count = 0
        self._change_when_done: dict[str, int] = {}
        # How often it was changed when its sizes were last inferred again.
        self._change_when_renewed = 0
        self.endless: tuple[str, ...] = ()
        self._has_hiding_name = find_hiding_name(model) is not None

    @property
    def pass_reports(self) -> tuple[PassReport, ...]:
        """Return what each pass did, in the order in which they were given."""
        return tuple(self._reports)

    def run_first(self, check: Check, original: Check) -> None:
        """Run a pass for the first time; ``original`` is the pass before it was calibrated.

        Raises:
            PassError: It raises what is no error of ours.
        """
        self._reports.append(self._run_turn(check, original))
        self._checks.append(check)

    def run_until_stable(self) -> None:
        """Give all passes further turns until none finds anything.

        Passes that change the interface, padding or types have one turn only. After a pass that
        rounds, an earlier pass has another turn only if it changes no number.
        """
        candidates = self._rerunnable_passes()
        busy: list[str] = []
        for _ in range(ROUNDS):
            self._renew_shapes()
            busy = []
            for i, check in candidates.items():
                if self._has_site(check):
                    report = self._run_turn(check, check)
                    self._reports[i] = _merge_reports(self._reports[i], report)
                    busy += [check.spec()] if report.changes else []
            if not busy:
                return
        if any(map(self._has_site, candidates.values())):
            self.endless = tuple(dict.fromkeys((*self.endless, *busy)))

    def _rerunnable_passes(self) -> dict[int, Pass]:
        """Return the passes that may have further turns, by their place in the order."""
        passes = {i: x for i, x in enumerate(self._checks) if isinstance(x, Pass)}
        last_rounding = max((i for i, x in passes.items() if x.needs_calibration), default=-1)
        return {
            i: x
            for i, x in passes.items()
            if x.is_removable and (i > last_rounding or x.safety == "exact")
        }

    def _renew_shapes(self) -> None:
        """Infer shapes again if some are unknown and a pass has changed something since.

        Two sizes that are computed from data turn out to be equal once duplicate nodes are merged.
        """
        if self._change_when_renewed != self._change_count and shapes.drop_incomplete_shapes(
            self._model
        ):
            self._change_when_done.clear()  # a pass without a site may have one now
        self._change_when_renewed = self._change_count

    def _has_site(self, check: Pass) -> bool:
        """Return whether a pass has a site, if the model was changed since its last turn."""
        if self._change_when_done.get(check.spec(), 0) == self._change_count:
            return False
        if exclusions.pass_exclusion_reason(self._model, check.spec()) is not None:
            return False
        is_found = self._run_guarded(
            check, lambda x: any(isinstance(y, Match) for y in check.sites(x))
        )
        if not is_found:
            self._change_when_done[check.spec()] = self._change_count
        return is_found

    def _run_turn(self, check: Check, original: Check) -> PassReport:
        if self._progress is not None:
            self._progress(f"repairing: {original.name}")
        report = self._run_guarded(original, lambda model: _run_check(check, model))
        if (
            report.changes
            and not self._has_hiding_name
            and (name := find_hiding_name(self._model)) is not None
        ):
            raise PassError(
                spec_of_check(original), f"the pass {original.name} makes {name!r} a second time"
            )
        self._change_count += bool(report.changes)
        self._change_when_done[spec_of_check(check)] = self._change_count
        return report

    def _run_guarded(self, check: Check, work: Callable[[ir.Model], R]) -> R:
        """Run ``work``; an unexpected exception is raised as a PassError of the pass."""
        index_nodes(self._model)  # of what most passes only look at
        try:
            return work(self._model)
        except (GraphfixError, MemoryError):
            raise
        except Exception as error:  # a fault of the pass, whatever it is
            raise PassError(spec_of_check(check), _describe_fault(check, error)) from error


def spec_of_check(check: Check) -> str:
    """Return a pass or a check as ``-p`` takes it."""
    return check.spec() if isinstance(check, Pass) else check.name


def _run_check(check: Check, model: ir.Model) -> PassReport:
    start = time.perf_counter()
    safety = check.safety if isinstance(check, Pass) else "exact"
    report = PassReport(check.name, spec_of_check(check), safety)
    if (reason := exclusions.pass_exclusion_reason(model, report.spec)) is not None:
        return dataclasses.replace(report, left=reason)
    if not isinstance(check, Pass):
        report = dataclasses.replace(report, findings=tuple(check.findings(model)))
    else:
        result = check(model)
        if not isinstance(result, Result):
            raise GraphfixError(f"the pass {check.name} did not return a graphfix.Result")
        advice = check.advice if result.changes else ""
        report = dataclasses.replace(
            report, changes=result.changes, skips=result.skips, advice=advice
        )
    return dataclasses.replace(report, seconds=time.perf_counter() - start)


def _merge_reports(first: PassReport, then: PassReport) -> PassReport:
    """Merge the reports of two turns; places skipped in the first may be repaired since."""
    return dataclasses.replace(
        then,
        changes=(*first.changes, *then.changes),
        seconds=first.seconds + then.seconds,
        advice=first.advice or then.advice,
    )


def _describe_fault(check: Check, error: Exception) -> str:
    """Return what a pass raised, and where in it, as a sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    message = " ".join(str(error).split())
    return f"the pass {check.name} failed: {type(error).__name__}{at}: {message}"
