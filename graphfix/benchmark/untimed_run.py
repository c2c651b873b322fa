"""What each model computes, what ran where, and its memory: in a run of its own, without a clock.

It comes before the clock starts: a model that does not run takes no part in the turns, and its file
has been read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from graphfix.benchmark.bench_result import Seen
from graphfix.benchmark.candidate import Entrant
from graphfix.benchmark.timed_process import Trial
from graphfix.errors import FeedError, ModelError
from graphfix.feeds.case import Case
from graphfix.proof.compare import Array, OutputDiff, Tolerance, compare
from graphfix.runtime.local_session import Session
from graphfix.runtime.profiling import placed
from graphfix.runtime.run_errors import RunError

Outputs = dict[str, Array]


def look(trial: Trial, entrant: Entrant, reference: Reference, tolerance: Tolerance) -> Seen:
    """Run a model at both shapes and back, and hold it to the first model on the CPU.

    Raises:
        FailedError: It does not load or does not run; perhaps its process died.
        GraphfixError: The first model does not load or run on the CPU.
    """
    cases = trial.cases(entrant)
    cases = [cases[0], *cases, cases[0]]
    wanted = reference.outputs(cases)
    worst: dict[tuple[str, str], OutputDiff] = {}
    case = cases[0]
    try:
        with trial.open(entrant, replace(trial.runner, sessions=1), profile=True) as session:
            for case, original in zip(cases, wanted, strict=True):
                outputs = session.run(entrant.feeds(case.feeds))
                for diff in _diffs(original, outputs, case.name, tolerance):
                    known = worst.get((diff.output, diff.case))
                    if known is None or _badness(diff) > _badness(known):
                        worst[diff.output, diff.case] = diff
            peak = session.peak_memory()
            return Seen(tuple(worst.values()), placed(session.profile()), peak)
    except (ModelError, RunError, FeedError) as error:
        raise trial.failed(entrant, error, case) from error


@dataclass(frozen=True)
class Reference:
    """What the first model computes on the CPU: as exported it may crash on DirectML.

    A model that draws random numbers draws the same ones in each fresh session, where it is run as
    often and in the same order.

    Attributes:
        first: The first model.
    """

    first: Entrant
    _known: dict[tuple[str, ...], list[Outputs]] = field(default_factory=dict)

    def outputs(self, cases: Sequence[Case]) -> list[Outputs]:
        """What it computes in a row of runs.

        Raises:
            ModelError: It does not load.
            RunError: It does not run.
            FeedError: There is no array for one of its inputs.
        """
        names = tuple(case.name for case in cases)
        if names not in self._known:
            with Session(self.first.source, optimize=False) as session:
                self._known[names] = [session.run(self.first.feeds(x.feeds)) for x in cases]
        return self._known[names]


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


def _badness(diff: OutputDiff) -> tuple[bool, float]:
    return not diff.ok, diff.max_abs
