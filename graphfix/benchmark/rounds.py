"""Models run in turns, one run each, in one process that may die of them.

DirectML builds its operators for the first shape that a session runs at; any other shape pays for
that again at every run. So a session is never warmed up with another length than the one that is
measured, and another length is timed as a phase of its own, several times.

A process whose graph kills it takes the sessions of the others with it, and what those had been
warmed up with: so without the one that did it, the others start the round afresh.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

import numpy as np
import onnx_ir as ir

from graphfix.errors import FeedError, ModelError
from graphfix.proof.compare import OutputDiff, compare
from graphfix.runtime.errors import LoadDiedError, RunDiedError, RunError
from graphfix.runtime.killer import words
from graphfix.runtime.profile import placed
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphfix.benchmark.entrant import Entrant
    from graphfix.benchmark.outcome import Result, Setup
    from graphfix.feeds.case import Case
    from graphfix.proof.compare import Array, Tolerance
    from graphfix.runtime.process import Runner

    Outputs = dict[str, Array]

T = TypeVar("T")

# It starts the device, so that the first model is not charged with that.
_STARTER = '<ir_version: 8, opset_import: ["": 13]> g (float[4] x) => (float[4] y) { y = Neg (x) }'


@dataclass
class Job:
    """One setup, and the models that take part in it.

    Attributes:
        setup: How sessions are made.
        first: The inputs to time at.
        other: Those of another shape; None if there is none.
        entrants: The models, each with what is found of it.
        runner: The process that they run in.
        runs: How many steady runs; half as many at the other shape and back.
        sessions: How many times sessions are made, each time in a fresh process; the last ones go
            on to the steady runs.
        bind: Whether inputs and outputs stay on the device.
        tolerance: How far outputs may differ from what the first model computes on the CPU.
        tell: Called with a short text at each step.
        about: Filled with what the process says of itself and of the machine, unless it is already.
    """

    setup: Setup
    first: Case
    other: Case | None
    entrants: Sequence[tuple[Entrant, Result]]
    runner: Runner
    runs: int
    sessions: int
    bind: bool
    tolerance: Tolerance
    tell: Callable[[str], None]
    about: dict[str, str]

    def run(self) -> None:
        """Time all of them; what is found goes into their results."""
        with _Reference(self.entrants[0][0]) as reference:
            for i in range(self.sessions):
                last = i == self.sessions - 1
                while not _Round(self, reference, i, last).run():
                    self.tell(f"{self.setup.name}: a process died; the others start afresh")
        for entrant, result in self.entrants:
            if not result.error:
                self.tell(f"{self.setup.name}: what runs where")
                self._look(entrant, result)

    def open(self, entrant: Entrant, runner: Runner, *, profile: bool = False) -> RemoteSession:
        """A session of a model, with its dims fixed if the setup says so."""
        return RemoteSession(
            entrant.source,
            runner,
            free_dims=entrant.free_dims(self.first.feeds) if self.setup.fixed else None,
            profile=profile,
        )

    def _look(self, entrant: Entrant, result: Result) -> None:
        """In a process of its own, whose memory is the model's; profiling slows runs, too."""
        try:
            session = self.open(entrant, replace(self.runner, sessions=1), profile=True)
        except ModelError as error:
            result.error = f"does not load once more: {error}"
            return
        try:
            for _ in range(2):
                session.run(entrant.feeds(self.first.feeds))
            memory = session.memory()
            result.peak_memory, result.gpu_memory = memory["peak"], memory["gpu"]
            result.gpu_reason = memory["gpu_reason"]
            result.placed = placed(session.profile())
        except RunError as error:
            result.error = f"does not run once more: {error}"
        finally:
            session.close()

    def find_killer(self, entrant: Entrant, result: Result, error: Exception, case: Case) -> None:
        """Say at which node the process dies, as far as that can be found."""
        self.tell(f"{self.setup.name}: looking for the node at which the process died")
        feeds = entrant.feeds(case.feeds)

        def run(model: ir.Model) -> None:
            part = replace(entrant, source=model, graph=model)
            session = self.open(part, self.runner)
            try:
                session.run(feeds)
            finally:
                session.close()

        source = entrant.source if isinstance(entrant.source, ir.Model) else entrant.graph
        result.error += words(error, source, run)


class _Round:
    """Sessions made once, and run in turns; nothing is kept of it if a process dies."""

    def __init__(self, job: Job, reference: _Reference, number: int, steady: bool) -> None:
        self._job, self._reference = job, reference
        self._running = [x for x in job.entrants if not x[1].error]
        self._number, self._steady = number, steady
        self._turns = number
        self._seconds: list[tuple[Result, str, float]] = []
        self._diffs: list[tuple[Result, OutputDiff]] = []

    def run(self) -> bool:
        """Whether it is done; False if it is to be done again without one of the models."""
        job = self._job
        if not self._running:
            return True
        try:
            with ExitStack() as stack:
                sessions = self._open(stack)
                self._reference.fresh()
                self._turn(sessions, job.first, "first run", 1)
                if self._steady:
                    half = max(2, job.runs // 2) if job.other is not None else 0
                    self._turn(sessions, job.first, "steady", job.runs)
                    self._turn(sessions, job.other, "other shape", half)
                    self._turn(sessions, job.first, "back", half)
        except _AgainError:
            return False
        for result, phase, seconds in self._seconds:
            result.phases[phase].seconds.append(seconds)
        for result, diff in self._diffs:
            _keep(result, diff)
        return True

    def _open(self, stack: ExitStack) -> list[tuple[Entrant, Result, RemoteSession]]:
        job, found = self._job, []
        runner = replace(job.runner, sessions=len(self._running) + 1)
        starter = RemoteSession(ir.from_onnx_text(_STARTER), runner)
        stack.callback(starter.close)
        starter.run({"x": np.zeros(4, np.float32)})
        if not job.about:
            about = {k: str(v) for k, v in starter.about.items() if k != "providers"}
            job.about.update({**about, **starter.machine()})
        for entrant, result in self._turned(self._running):
            job.tell(f"{job.setup.name}: loading, {self._number + 1} of {job.sessions}")
            try:
                session = job.open(entrant, runner)
            except LoadDiedError as error:
                self._died(entrant, result, f"does not load: {error}", error, job.first)
            except ModelError as error:
                result.error = f"does not load: {error}"
            else:
                stack.callback(session.close)
                found.append((entrant, result, session))
                self._seconds.append((result, "session", session.open_seconds))
        return found

    def _turn(
        self,
        sessions: list[tuple[Entrant, Result, RemoteSession]],
        case: Case | None,
        phase: str,
        count: int,
    ) -> None:
        """Run each model so many times; who begins changes from turn to turn."""
        if case is None:
            return
        for i in range(count):
            self._job.tell(f"{self._job.setup.name}: {phase}, {i + 1} of {count}")
            wanted = self._reference.outputs(case)
            for entrant, result, session in self._turned(sessions):
                if result.error or not entrant.fits(case.feeds):
                    continue
                try:
                    feeds = entrant.feeds(case.feeds)
                    outputs = session.run(feeds, bind=self._job.bind)
                except RunDiedError as error:
                    reason = f"does not run, in phase {phase!r}: {error}"
                    self._died(entrant, result, reason, error, case)
                except (RunError, FeedError) as error:
                    result.error = f"does not run, in phase {phase!r}: {error}"
                    continue
                self._seconds.append((result, phase, session.run_seconds))
                for diff in _diffs(wanted, outputs, case.name, self._job.tolerance):
                    self._diffs.append((result, diff))
            self._turns += 1

    def _turned(self, items: Sequence[T]) -> list[T]:
        shift = self._turns % len(items) if items else 0
        return [*items[shift:], *items[:shift]]

    def _died(
        self, entrant: Entrant, result: Result, reason: str, error: Exception, case: Case
    ) -> NoReturn:
        result.error = reason
        self._job.find_killer(entrant, result, error, case)
        raise _AgainError from error


class _AgainError(Exception):
    """A process died, and with it what the round had found so far."""


class _Reference:
    """What the first model computes on the CPU: as exported it may crash on DirectML.

    A model that draws random numbers is run once for each turn, so that it draws the same ones.
    """

    def __init__(self, first: Entrant) -> None:
        self._first = first
        self._known: dict[str, Outputs] = {}
        self._session = self._made()

    def _made(self) -> Session:
        return Session(self._first.source, optimize=False)

    def fresh(self) -> None:
        """Sessions were made anew: the random numbers start anew."""
        if self._first.random:
            self._session.close()
            self._session = self._made()

    def outputs(self, case: Case) -> Outputs:
        """What it computes in the next turn."""
        if self._first.random:
            return self._session.run(self._first.feeds(case.feeds))
        if case.name not in self._known:
            self._known[case.name] = self._session.run(self._first.feeds(case.feeds))
        return self._known[case.name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()


def _diffs(wanted: Outputs, outputs: Outputs, case: str, tolerance: Tolerance) -> list[OutputDiff]:
    found = []
    for name, array in wanted.items():
        if name not in outputs:
            found.append(OutputDiff(name, case, ok=False, reason="is missing"))
            continue
        mine = outputs[name]
        if array.dtype != mine.dtype and {array.dtype.kind, mine.dtype.kind} == {"f"}:
            mine = mine.astype(array.dtype)  # a model and its half: only the numbers are compared
        found.append(compare(name, case, array, mine, tolerance))
    return found


def _keep(result: Result, diff: OutputDiff) -> None:
    """The worst of each output and shape is enough."""
    for i, known in enumerate(result.diffs):
        if (known.output, known.case) == (diff.output, diff.case):
            if (not diff.ok, diff.max_abs) > (not known.ok, known.max_abs):
                result.diffs[i] = diff
            return
    result.diffs.append(diff)
