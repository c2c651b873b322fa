"""How long models take, in the phases that matter on DirectML, and whether they agree.

One model a process, processes in turn (:mod:`graphfix.benchmark.interleave`), each alone with the
clock (:mod:`graphfix.benchmark.timed_process`); the ratio is over processes
(:mod:`graphfix.benchmark.timing`). A copy of the first model takes part: where it differs
measurably from the model, no ratio is reported. Outputs are compared in runs of their own
(:mod:`graphfix.benchmark.untimed_run`).
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graphfix.benchmark.bench_result import (
    AS_IT_IS,
    MEMORY,
    PHASES,
    Benchmark,
    Observations,
    Result,
    Setup,
    Timed,
)
from graphfix.benchmark.candidate import Entrant, MapFeeds, ReadOutputs, read_entrant
from graphfix.benchmark.interleave import Course, FailedError, take_turns
from graphfix.benchmark.places import find_places
from graphfix.benchmark.timed_process import Trial, time_in_process
from graphfix.benchmark.timing import Timing, compare_timings, time_ratio
from graphfix.benchmark.timing_plan import notes_of, plan_setups, sizes_text
from graphfix.benchmark.untimed_run import Reference, observe_run
from graphfix.errors import ModelError, UsageError
from graphfix.files.model_input import ModelLike, as_model_file, one_size_by_dim
from graphfix.paths import StrPath
from graphfix.proof.by_channel import ChannelRule
from graphfix.proof.compare import Tolerance
from graphfix.providers.table import PROVIDERS, Ep
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.runtime.python import Wanted, runner_for
from graphfix.runtime.scratch import ScratchFolder

__all__ = ["EFFORT", "PHASES", "Benchmark", "Effort", "Result", "Setup", "Timed", "bench"]


Member = tuple[int, Ep]
"""A model, by its number, on a provider."""


@dataclass(frozen=True)
class Effort:
    """How much is timed.

    Attributes:
        processes: How many processes of each model.
        runs: Minimum number of steady-state runs per process; half as many at the other shape and
            back.
        seconds: How long steady runs go on at least; half as long at the other shape and back.
    """

    processes: int
    runs: int
    seconds: float


# Under Wine a process takes seconds to start, and six are the fewest that hold an interval.
EFFORT: Mapping[Ep, Effort] = {
    "cpu": Effort(6, 3, 0.1),
    "cuda": Effort(6, 3, 0.1),
    "webgpu": Effort(6, 3, 0.3),
    "dml": Effort(6, 3, 0.3),
}
"""The default: an answer within half a minute for a small model."""
CAREFUL: Mapping[Ep, Effort] = {
    "cpu": Effort(9, 3, 0.5),
    "cuda": Effort(9, 3, 0.5),
    "webgpu": Effort(9, 3, 0.5),
    "dml": Effort(6, 3, 1.5),
}
"""More processes or longer runs, for a narrower interval."""


@raises_own_errors
def bench(
    models: ModelLike | Sequence[ModelLike],
    *,
    ep: Wanted | Sequence[Ep] = "auto",
    dims: Mapping[str, int | Sequence[int]] | None = None,
    other: Mapping[str, int | Sequence[int]] | None = None,
    fixed: bool = True,
    processes: int | None = None,
    runs: int | None = None,
    seconds: float | None = None,
    careful: bool = False,
    copy: bool = True,
    map_feeds: Sequence[MapFeeds | None] | None = None,
    read_outputs: Sequence[ReadOutputs | None] | None = None,
    tolerance: Tolerance | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Benchmark:
    """Compare what models compute, and time them, one model a process and processes in turn.

    Each model is timed unchanged, and with its symbolic dims, if it has any, fixed by
    free-dimension overrides.

    Args:
        models: Files or models; the first is what the others are compared with.
        ep: Where to run: ``"auto"`` is DirectML if available, else the CPU, with a note. Of several
            providers, each model runs on each of them, and ratios are to the first model on the
            first; those that are unavailable are left out, with the reason.
        dims: The sizes to time at, by the name of the symbolic dim.
        other: The sizes of another shape; by default three quarters of the longest dim.
        fixed: Whether models are also timed with their dims fixed.
        processes: How many processes of each model; by default those of :data:`EFFORT`. No ratio
            comes of fewer than six.
        runs: Minimum number of steady-state runs per process.
        seconds: How long steady runs go on at least.
        careful: Whether the defaults of these three are those of :data:`CAREFUL`.
        copy: Whether a copy of the first model is timed as well, to see whether this machine can
            tell two models apart; without it, ratios are reported unchecked.
        map_feeds: For each model, what makes its inputs from those of the first; None for those
            that take the same.
        read_outputs: For each model, what returns the outputs of the first as its own tell them;
            None for those that have the same.
        tolerance: How far outputs may differ from those of the first model on the CPU; a hundred
            times further where one computes in float16.
        seed: The same seed makes the same inputs, and draws the same orders of processes.
        progress: Called with a short text at each step.

    Raises:
        UsageError: The provider is unavailable, or all of several are; or there is nothing to time.
        ModelError: The first model cannot be read.
        FeedError: No inputs could be made at these sizes.
    """
    sources = models if isinstance(models, (list, tuple)) else [models]
    if not sources:
        raise UsageError("name at least one model to time")
    scratch = ScratchFolder()  # it goes at the end of this function
    models = [as_model_file(x, scratch.path / f"model-{i}.onnx") for i, x in enumerate(sources)]
    _require_positive(runs=runs, processes=processes)
    tell = progress or (lambda _: None)
    entrants, results = _read_entrants(models, map_feeds, read_outputs)
    places = find_places(ep, tell)
    efforts = {x: (CAREFUL if careful else EFFORT)[x] for x in places.about}
    tell("making inputs")
    plan = plan_setups(
        models[0], entrants, one_size_by_dim(dims), one_size_by_dim(other), fixed=fixed, seed=seed
    )
    notes = [notes_of(x, plan) if x is not None else () for x in entrants]
    results_by_place = {x: [dict(result) for result in results] for x in places.about}
    for setup, first, second in plan:
        trials = {
            place: Trial(
                setup,
                first,
                second,
                runner_for(place),
                runs or effort.runs,
                effort.seconds if seconds is None else seconds,
                _setup_progress(setup, tell),
            )
            for place, effort in efforts.items()
        }
        fitting = {
            place: _fitting_entrants(trial, entrants, results_by_place[place])
            for place, trial in trials.items()
        }
        tried = _run_setup(
            trials,
            {(i, place): x for place, found in fitting.items() for i, x in found.items()},
            processes or max(x.processes for x in efforts.values()),
            _rule_between(tolerance, entrants),
            seed,
            copy=copy,
        )
        for (i, place), result in tried.items():
            results_by_place[place][i][setup.name] = result
    timed = tuple(
        Timed(os.fspath(model), results_by_place[place][i], notes[i], place)
        for i, model in enumerate(models)
        for place in places.about
    )
    setups = tuple(x[0] for x in plan)
    (first_ep, about), *also = places.about.items()
    return Benchmark(first_ep, places.note, about, setups, timed, dict(also), places.missing)


def _require_positive(**counts: int | None) -> None:
    """Raise UsageError for an option that is less than 1."""
    for name, count in counts.items():
        if count is not None and count < 1:
            raise UsageError(f"--{name} {count}: at least 1")


def _setup_progress(setup: Setup, tell: Callable[[str], None]) -> Callable[[str], None]:
    """Return ``tell`` for the steps of a setup, each with the name of the setup."""
    return lambda message: tell(f"timing, {setup.name}: {message}")


def _rule_between(tolerance: Tolerance | None, entrants: Iterable[Entrant | None]) -> ChannelRule:
    """Return what may differ; more in an output that a model rounds to float16."""
    graphs = [x.graph for x in entrants if x is not None]
    rule = ChannelRule.between(graphs)
    return rule if tolerance is None else rule.with_tolerance(tolerance)


def _fitting_entrants(
    trial: Trial, entrants: Sequence[Entrant | None], results: Sequence[dict[str, Result]]
) -> dict[int, Entrant]:
    """Return the models that take the inputs of a trial, by number.

    Of the others, the results then say so, unless the dims are fixed.
    """
    readable = {i: x for i, x in enumerate(entrants) if x is not None}
    fitting = {i: x for i, x in readable.items() if x.fits(trial.first.feeds)}
    if trial.setup.name == AS_IT_IS:
        for i in readable.keys() - fitting.keys():
            error = f"it does not take {sizes_text(trial.first)}"
            results[i][AS_IT_IS] = Result(error=error)
    return fitting


def _read_entrants(
    models: Sequence[StrPath],
    map_feeds: Sequence[MapFeeds | None] | None,
    read_outputs: Sequence[ReadOutputs | None] | None,
) -> tuple[list[Entrant | None], list[dict[str, Result]]]:
    """Read the models; an unreadable one, unless it is the first, becomes a result.

    A file that is not there is a slip, and ends it before anything is timed.
    """
    entrants: list[Entrant | None] = []
    results: list[dict[str, Result]] = []
    for i, model in enumerate(models):
        results.append({})
        try:
            entrants.append(
                read_entrant(
                    model,
                    map_feeds[i] if map_feeds else None,
                    read_outputs[i] if read_outputs else None,
                )
            )
        except ModelError as error:
            if not i or not Path(model).exists():
                raise
            results[i][AS_IT_IS] = Result(error=f"does not load: {error}")
            entrants.append(None)
    return entrants, results


def _run_setup(
    trials: Mapping[Ep, Trial],
    entrants: Mapping[Member, Entrant],
    turns: int,
    rule: ChannelRule,
    seed: int,
    *,
    copy: bool,
) -> dict[Member, Result]:
    """Run one setup: what each model computes on each provider, then how long it takes.

    Args:
        trials: The setup on each provider; that of the first is what others are compared with.
        entrants: The models that take its inputs, each on each provider.
        turns: How many processes of each.
        rule: What may differ.
        seed: The same seed draws the same orders.
        copy: Whether a copy of the first model is timed as well.
    """
    observations: dict[Member, Observations] = {}
    results: dict[Member, Result] = {}
    base = 0, next(iter(trials))
    reference = Reference(entrants[base])
    tell = trials[base[1]].tell
    for member, entrant in sorted(entrants.items(), key=lambda item: item[0][0]):
        number, place = member
        tell(f"what it computes, model {number + 1} on {PROVIDERS[place].label}")
        try:
            observations[member] = observe_run(trials[place], entrant, reference, rule)
        except FailedError as error:
            results[member] = Result(error=str(error))
    # The copy is the first model once more; a model that runs alone has none.
    beside = [base] if copy and base in observations and len(observations) > 1 else []
    courses = take_turns(
        [*observations, *beside],
        lambda member: time_in_process(trials[member[1]], entrants[member]),
        turns=turns,
        seed=seed,
        tell=tell,
    )
    copy_course = courses[-1] if beside else None
    for member, course in zip(observations, courses, strict=False):
        reason = course.error
        if copy_course is not None and member == base:
            reason = reason or copy_course.error
        phases = {x: course.timing_of(x) for x in PHASES if course.timing_of(x).processes}
        memory = tuple(course.timing_of(MEMORY).seconds)
        results[member] = Result(phases, seen=observations[member], error=reason, memory=memory)
    return _judge_results(results, base, copy_course)


def _judge_results(
    results: Mapping[Member, Result], first: Member, copy: Course | None
) -> dict[Member, Result]:
    """Return the results with the claims that the copy of the first model allows."""
    base = results[first]
    if base.error:
        return dict(results)
    measured = _series_of(base)
    copy_series = {x: copy.timing_of(x) for x in measured} if copy is not None else {}
    judged = {i: _add_claims(x, measured, copy_series) for i, x in results.items()}
    judged[first] = base
    if copy_series:
        copy_ratios = {x: time_ratio(copy_series[x], measured[x]) for x in measured}
        judged[first] = replace(base, copy={x: r for x, r in copy_ratios.items() if r is not None})
    return judged


def _series_of(result: Result) -> dict[str, Timing]:
    """Return what was measured in each process, by phase; the memory is compared as times are."""
    memory = {MEMORY: Timing(tuple((x,) for x in result.memory))} if result.memory else {}
    return {**result.phases, **memory}


def _add_claims(result: Result, base: Mapping[str, Timing], copy: Mapping[str, Timing]) -> Result:
    """Return a result with what can be said of each phase, compared with the first model."""
    if result.error:
        return result
    own = _series_of(result)
    claims = {x: compare_timings(own[x], base[x], copy.get(x)) for x in base if x in own}
    return replace(result, claims=claims)
