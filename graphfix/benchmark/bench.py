"""How long models take, in the phases that matter on DirectML, and whether they agree.

One model a process, processes in turn (:mod:`graphfix.benchmark.interleave`), each alone with the
clock (:mod:`graphfix.benchmark.timed_process`); the ratio is over processes
(:mod:`graphfix.benchmark.timing`). A copy of the first model takes part: where the clock tells a
model from its own copy, it tells nothing of others. Outputs are compared in runs of their own
(:mod:`graphfix.benchmark.untimed_run`).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from graphfix.benchmark.bench_result import (
    AS_IT_IS,
    PHASES,
    Benchmark,
    Observations,
    Result,
    Setup,
    Timed,
)
from graphfix.benchmark.candidate import Entrant, MapFeeds, read_entrant
from graphfix.benchmark.interleave import Course, FailedError, take_turns
from graphfix.benchmark.timed_process import Trial, describe_machine, time_in_process
from graphfix.benchmark.timing import compare_timings, time_ratio
from graphfix.benchmark.timing_plan import notes_of, plan_setups, sizes_text
from graphfix.benchmark.untimed_run import Reference, observe_run
from graphfix.errors import ModelError, UsageError
from graphfix.files.given import ModelLike, as_model_file, one_size_by_dim, require_valid_choices
from graphfix.paths import StrPath
from graphfix.proof.compare import Tolerance, computes_in_half
from graphfix.runtime.provider import Ep
from graphfix.runtime.python import Wanted, choose_provider, runner_for
from graphfix.runtime.scratch import ScratchFolder

__all__ = ["EFFORT", "PHASES", "Benchmark", "Effort", "Result", "Setup", "Timed", "bench"]


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
    "dml": Effort(6, 3, 0.3),
}
"""What is done where nothing else is said: an answer within half a minute for a small model."""
CAREFUL: Mapping[Ep, Effort] = {
    "cpu": Effort(9, 3, 0.5),
    "cuda": Effort(9, 3, 0.5),
    "dml": Effort(6, 3, 1.5),
}
"""What is done for a narrower interval."""


def bench(
    models: ModelLike | Sequence[ModelLike],
    *,
    ep: Wanted = "auto",
    dims: Mapping[str, int | Sequence[int]] | None = None,
    other: Mapping[str, int | Sequence[int]] | None = None,
    fixed: bool = True,
    processes: int | None = None,
    runs: int | None = None,
    seconds: float | None = None,
    careful: bool = False,
    copy: bool = True,
    map_feeds: Sequence[MapFeeds | None] | None = None,
    tolerance: Tolerance | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Benchmark:
    """Compare what models compute, and time them, one model a process and processes in turn.

    Each is timed as it is, and with its dims fixed by free-dimension overrides, if any are
    symbolic.

    Args:
        models: Files or models; the first is what the others are compared with.
        ep: Where: ``"auto"`` is DirectML if there is one, else the CPU, and says so.
        dims: The sizes to time at, by the name of the symbolic dim.
        other: The sizes of another shape; by default three quarters of the longest dim.
        fixed: Whether they are timed with their dims fixed at all.
        processes: How many processes of each model; by default those of :data:`EFFORT`. No ratio
            comes of fewer than six.
        runs: Minimum number of steady-state runs per process.
        seconds: How long steady runs go on at least.
        careful: Whether the defaults of these three are those of :data:`CAREFUL`.
        copy: Whether a copy of the first model is timed beside it; without, what is said of the
            others rests on what else is known of this clock.
        map_feeds: For each model, what makes its inputs from those of the first; None for those
            that take the same.
        tolerance: How far outputs may differ from those of the first model on the CPU; a hundred
            times further where one computes in float16.
        seed: The same seed makes the same inputs, and draws the same orders of processes.
        progress: Called with a short text at each step.

    Raises:
        UsageError: The provider is unavailable, or there is nothing to time.
        ModelError: The first model cannot be read.
        FeedError: No inputs could be made at these sizes.
    """
    sources = models if isinstance(models, (list, tuple)) else [models]
    if not sources:
        raise UsageError("name at least one model to time")
    scratch = ScratchFolder()  # it goes at the end of this function
    models = [as_model_file(x, scratch.path / f"model-{i}.onnx") for i, x in enumerate(sources)]
    for option, count in (("--runs", runs), ("--processes", processes)):
        if count is not None and count < 1:
            raise UsageError(f"{option} {count}: at least 1")
    require_valid_choices(ep=(ep, ("auto", *get_args(Ep))))
    tell = progress or (lambda _: None)
    provider, note = choose_provider(ep)
    effort = (CAREFUL if careful else EFFORT)[provider]
    seconds = effort.seconds if seconds is None else seconds
    effort = Effort(processes or effort.processes, runs or effort.runs, seconds)
    entrants, results = _read_entrants(models, map_feeds)
    tell("making inputs")
    plan = plan_setups(
        models[0], entrants, one_size_by_dim(dims), one_size_by_dim(other), fixed=fixed, seed=seed
    )
    notes = [notes_of(x, plan) if x is not None else () for x in entrants]
    tolerance = tolerance or Tolerance()
    if any(x is not None and computes_in_half(x.graph) for x in entrants):
        tolerance = tolerance.for_half()
    tell("starting a process")
    about = describe_machine(runner_for(provider))
    for setup, first, second in plan:
        taking = {i: x for i, x in enumerate(entrants) if x is not None and x.fits(first.feeds)}
        for i, entrant in enumerate(entrants):
            if entrant is not None and i not in taking and setup.name == AS_IT_IS:
                results[i][setup.name] = Result(error=f"it does not take {sizes_text(first)}")
        trial = Trial(
            setup,
            first,
            second,
            runner_for(provider),
            effort.runs,
            effort.seconds,
            lambda message, name=setup.name: tell(f"timing, {name}: {message}"),  # type: ignore[misc]
        )
        tried = _run_setup(trial, taking, effort.processes, tolerance, seed, copy=copy)
        for i, result in tried.items():
            results[i][setup.name] = result
    model_results = zip(models, results, notes, strict=True)
    timed = (
        Timed(os.fspath(model), results_by_setup, message)
        for model, results_by_setup, message in model_results
    )
    return Benchmark(provider, note, about, tuple(x[0] for x in plan), tuple(timed))


def _read_entrants(
    models: Sequence[StrPath], map_feeds: Sequence[MapFeeds | None] | None
) -> tuple[list[Entrant | None], list[dict[str, Result]]]:
    """Read the models; an unreadable one, unless it is the first, becomes a result."""
    entrants: list[Entrant | None] = []
    results: list[dict[str, Result]] = []
    for i, model in enumerate(models):
        results.append({})
        try:
            entrants.append(read_entrant(model, map_feeds[i] if map_feeds else None))
        except ModelError as error:
            if not i:
                raise
            results[i][AS_IT_IS] = Result(error=f"does not load: {error}")
            entrants.append(None)
    return entrants, results


def _run_setup(
    trial: Trial,
    entrants: Mapping[int, Entrant],
    turns: int,
    tolerance: Tolerance,
    seed: int,
    *,
    copy: bool,
) -> dict[int, Result]:
    """Run one setup: what each model computes, then how long it takes; by model number."""
    observations: dict[int, Observations] = {}
    results: dict[int, Result] = {}
    reference = Reference(entrants[0])
    for i, entrant in entrants.items():
        trial.tell(f"what it computes, model {i + 1}")
        try:
            observations[i] = observe_run(trial, entrant, reference, tolerance)
        except FailedError as error:
            results[i] = Result(error=str(error))
    # The copy is the first model once more; where there is nothing beside it, it has none.
    beside = [0] if copy and 0 in observations and len(observations) > 1 else []
    members = [*observations, *beside]
    courses = take_turns(
        members,
        lambda i: time_in_process(trial, entrants[i]),
        turns=turns,
        seed=seed,
        tell=trial.tell,
    )
    copy_course = courses[-1] if beside else None
    for i, course in zip(observations, courses, strict=False):
        reason = course.error or (copy_course.error if copy_course is not None and i == 0 else "")
        phases = {x: course.timing_of(x) for x in PHASES if course.timing_of(x).processes}
        results[i] = Result(phases, seen=observations[i], error=reason)
    return _judge_results(results, copy_course)


def _judge_results(results: Mapping[int, Result], copy: Course | None) -> dict[int, Result]:
    """Return the results with the claims that the copy of the first model allows."""
    base = results[0]
    copy_timings = {x: copy.timing_of(x) for x in base.phases} if copy is not None else {}
    judged = {0: base}
    if copy_timings and not base.error:
        copy_ratios = {x: time_ratio(copy_timings[x], base.phases[x]) for x in base.phases}
        judged[0] = replace(base, copy={x: r for x, r in copy_ratios.items() if r is not None})
    for i, result in results.items():
        if i and not base.error and not result.error:
            shared_phases = [x for x in PHASES if x in base.phases and x in result.phases]
            claims = {
                x: compare_timings(result.phases[x], base.phases[x], copy_timings.get(x))
                for x in shared_phases
            }
            judged[i] = replace(result, claims=claims)
        elif i:
            judged[i] = result
    return judged
