"""What each model computes, and where its nodes run: in an untimed run.

It comes before the clock starts: a model that does not run takes no part in the turns, and its file
has been read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from graphfix.benchmark.bench_result import Observations
from graphfix.benchmark.candidate import Entrant
from graphfix.benchmark.timed_process import Trial
from graphfix.core import Readings
from graphfix.errors import FeedError, ModelError
from graphfix.feeds.case import Case
from graphfix.proof.budget import Budget
from graphfix.proof.by_channel import ChannelRule, MeasureNoise, OutputPair, Scales
from graphfix.proof.compare import Array, OutputDiff
from graphfix.proof.noise import Noise, NoiseSource
from graphfix.providers.table import Ep, ep_called
from graphfix.runtime.local_session import Session
from graphfix.runtime.profiling import read_placement
from graphfix.runtime.run_errors import RunError

Outputs = dict[str, Array]


def observe_run(
    trial: Trial, entrant: Entrant, reference: Reference, rule: ChannelRule
) -> Observations:
    """Run a model at both shapes and back, and compare it with the first model on the CPU.

    Raises:
        FailedError: It does not load or does not run; perhaps its process died.
        GraphfixError: The first model does not load or run on the CPU.
    """
    cases = trial.cases_for(entrant)
    cases = [cases[0], *cases, cases[0]]
    expected = reference.outputs_at(cases)
    rule = replace(rule, measure_noise=reference.noise_at(cases, ep_called(trial.runner.provider)))
    worst: dict[tuple[str, str], OutputDiff] = {}
    case = cases[0]
    try:
        with trial.open_session(
            entrant, replace(trial.runner, sessions=1), profile=True
        ) as session:
            for case, original in zip(cases, expected, strict=True):
                outputs = session.run(entrant.own_feeds(case.feeds))
                read_back = sum(x.nbytes for x in outputs.values())
                readings = entrant.read_outputs(outputs, original)
                for diff in _compare_outputs(original, readings, case.name, rule):
                    previous = worst.get((diff.output, diff.case))
                    if previous is None or _severity_key(diff) > _severity_key(previous):
                        worst[diff.output, diff.case] = diff
            placed = read_placement(session.end_profile())
            return Observations(tuple(worst.values()), placed, read_back)
    except (ModelError, RunError, FeedError) as error:
        raise trial.explain_failure(entrant, error, case) from error


@dataclass(frozen=True)
class Reference:
    """The outputs of the first model on the CPU: on DirectML the export may crash.

    A model that draws random numbers draws the same ones in each fresh session, where it is run as
    often and in the same order.

    Attributes:
        first: The first model.
    """

    first: Entrant
    _outputs_by_cases: dict[tuple[str, ...], list[Outputs]] = field(default_factory=dict)

    def outputs_at(self, cases: Sequence[Case]) -> list[Outputs]:
        """Return the outputs of successive runs.

        Raises:
            ModelError: It does not load.
            RunError: It does not run.
            FeedError: There is no array for one of its inputs.
        """
        names = tuple(case.name for case in cases)
        if names not in self._outputs_by_cases:
            with Session(self.first.source, optimize=False) as session:
                self._outputs_by_cases[names] = [
                    session.run(self.first.own_feeds(x.feeds)) for x in cases
                ]
        return self._outputs_by_cases[names]

    def noise_at(self, cases: Sequence[Case], ep: Ep) -> MeasureNoise:
        """Return what measures how far the first model differs from itself in one of the cases.

        Args:
            cases: The cases; their names are the keys.
            ep: Where the models run that are compared with it.
        """

        def measure_case(name: str, scales: Scales) -> Noise:
            number = next(i for i, x in enumerate(cases) if x.name == name)
            feeds = self.first.own_feeds(cases[number].feeds)
            outputs = self.outputs_at(cases)[number]
            source = NoiseSource(self.first.source, self.first.graph, ep)
            return source.measure_case(feeds, outputs, scales, Budget().part)

        return measure_case


def _compare_outputs(
    expected: Outputs, outputs: Readings, case: str, rule: ChannelRule
) -> list[OutputDiff]:
    diffs, pairs = [], []
    for name, array in expected.items():
        actual = outputs.get(name)
        if actual is None:
            if name not in outputs:  # and no pass drops it
                diffs.append(OutputDiff(name, case, ok=False, reason="is missing"))
            continue
        if array.dtype != actual.dtype and {array.dtype.kind, actual.dtype.kind} == {"f"}:
            # Of a model and its float16 twin only the numbers are compared.
            actual = actual.astype(array.dtype)
        pairs.append(OutputPair(name, case, array, actual, case))
    return [*diffs, *rule.compare_pairs(pairs)]


def _severity_key(diff: OutputDiff) -> tuple[bool, float]:
    return not diff.ok, diff.max_abs
