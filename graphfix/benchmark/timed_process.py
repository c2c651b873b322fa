"""One model in one process, alone, with the clock running.

Two sessions in one DirectML process disturb each other: a model beside its own copy took 34 to
57 ms where it takes 34.5 to 40.0 alone. So a process times one model and ends.

DirectML builds its operators for the first shape that a session runs at; any other shape pays for
that again at every run. So a session is never warmed up with another length than the one that is
measured, and another length is timed as a phase of its own, several times.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from graphfix.benchmark.bench_result import (
    BACK,
    FIRST,
    MEMORY,
    NEW_LENGTH,
    OTHER,
    SESSION,
    STEADY,
    Setup,
)
from graphfix.benchmark.candidate import Entrant
from graphfix.benchmark.interleave import FailedError, Phases
from graphfix.errors import FeedError, ModelError
from graphfix.feeds.case import Case
from graphfix.runtime.killing_node import killing_node_text
from graphfix.runtime.process import Runner
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.run_errors import RunError

# It starts the device, so that the model is not charged with that.
_STARTER = '<ir_version: 8, opset_import: ["": 13]> g (float[4] x) => (float[4] y) { y = Neg (x) }'


@dataclass(frozen=True)
class Trial:
    """One setup of the benchmark, as every model is run in it.

    Attributes:
        setup: How sessions are made.
        first: The inputs to time at.
        other: Those of another shape; None if there is none.
        runner: The Python to start for each process.
        runs: How many steady runs at least.
        seconds: How long steady runs go on at least.
        tell: Called with a short text at each step.
    """

    setup: Setup
    first: Case
    other: Case | None
    runner: Runner
    runs: int
    seconds: float
    tell: Callable[[str], None]

    def cases_for(self, entrant: Entrant) -> list[Case]:
        """Return the inputs of both shapes, as far as a model takes them."""
        pair = [self.first] if self.other is None else [self.first, self.other]
        return [case for case in pair if entrant.fits(case.feeds)]

    def open_session(
        self, entrant: Entrant, runner: Runner, *, profile: bool = False
    ) -> RemoteSession:
        """Open a session of a model, with its dims fixed if the setup says so."""
        return RemoteSession(
            entrant.source,
            runner,
            free_dims=entrant.free_dims(self.first.feeds) if self.setup.fixed else None,
            profile=profile,
        )

    def explain_failure(self, entrant: Entrant, error: Exception, case: Case) -> FailedError:
        """Return the error in a sentence, with the node at which the process dies, if found."""
        verb = "load" if isinstance(error, ModelError) else "run"

        def run_model(model: ir.Model) -> None:
            with self.open_session(
                replace(entrant, source=model, graph=model), self.runner
            ) as session:
                session.run(entrant.own_feeds(case.feeds))

        source = entrant.source if isinstance(entrant.source, ir.Model) else entrant.graph
        return FailedError(
            f"does not {verb}, at {case.name}: {error}{killing_node_text(error, source, run_model)}"
        )


def describe_machine(runner: Runner) -> dict[str, str]:
    """Return the versions that a process reports, and facts about the machine.

    Raises:
        UsageError: It does not start, or lacks the provider.
        ModelError: There is no device.
    """
    with _start_process(replace(runner, sessions=1)) as session:
        about = {k: str(v) for k, v in session.python_facts.items() if k != "providers"}
        return {**about, **session.machine_facts()}


def time_in_process(trial: Trial, entrant: Entrant) -> Phases:
    """Time a model in a process that does nothing else; its peak memory is among the phases.

    Raises:
        FailedError: It does not load or does not run; perhaps its process died.
    """
    runner = replace(trial.runner, sessions=2)
    half = max(1, trial.runs // 2)
    case = trial.first
    try:
        _start_process(runner).close()
        with trial.open_session(entrant, runner) as session:
            times: dict[str, tuple[float, ...]] = {SESSION: (session.open_seconds,)}
            feeds = entrant.own_feeds(case.feeds)
            times[FIRST] = session.time_runs(feeds, 1)
            times[STEADY] = session.time_runs(feeds, trial.runs, seconds=trial.seconds)
            for case in trial.cases_for(entrant)[1:]:
                other = entrant.own_feeds(case.feeds)
                times[NEW_LENGTH] = session.time_runs(other, 1)
                times[OTHER] = session.time_runs(other, half, seconds=trial.seconds / 2)
                times[BACK] = session.time_runs(feeds, half, seconds=trial.seconds / 2)
            if peak := session.peak_memory():
                times[MEMORY] = (float(peak),)
    except (ModelError, RunError, FeedError) as error:
        raise trial.explain_failure(entrant, error, case) from error
    return times


def _start_process(runner: Runner) -> RemoteSession:
    """Start a process whose device has run something."""
    session = RemoteSession(ir.from_onnx_text(_STARTER), runner)
    try:
        session.run({"x": np.zeros(4, np.float32)})
    except RunError:
        session.close()
        raise
    return session
