"""How long models take, in the phases that matter on DirectML, and whether they compute the same.

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

from graphfix.benchmark.bench_result import AS_IT_IS, PHASES, Benchmark, Result, Seen, Setup, Timed
from graphfix.benchmark.candidate import Entrant, MapFeeds, enter
from graphfix.benchmark.interleave import Course, FailedError, take_turns
from graphfix.benchmark.timed_process import Trial, survey, time_alone
from graphfix.benchmark.timing import claim, ratio
from graphfix.benchmark.timing_plan import notes_of, plan_of, sizes_of
from graphfix.benchmark.untimed_run import Reference, look
from graphfix.errors import ModelError, UsageError
from graphfix.files.given import Given, on_disk, one_size, require_known
from graphfix.paths import StrPath
from graphfix.proof.compare import Tolerance, computes_in_half
from graphfix.runtime.provider import Ep
from graphfix.runtime.python import Wanted, choose, here
from graphfix.runtime.scratch import Folder

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
    models: Given | Sequence[Given],
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
    given = models if isinstance(models, (list, tuple)) else [models]
    if not given:
        raise UsageError("name at least one model to time")
    scratch = Folder()  # it goes at the end of this function
    models = [on_disk(x, scratch.path / f"model-{i}.onnx") for i, x in enumerate(given)]
    for option, count in (("--runs", runs), ("--processes", processes)):
        if count is not None and count < 1:
            raise UsageError(f"{option} {count}: at least 1")
    require_known(ep=(ep, ("auto", *get_args(Ep))))
    tell = progress or (lambda _: None)
    where, note = choose(ep)
    effort = (CAREFUL if careful else EFFORT)[where]
    seconds = effort.seconds if seconds is None else seconds
    effort = Effort(processes or effort.processes, runs or effort.runs, seconds)
    entrants, results = _entered(models, map_feeds)
    tell("making inputs")
    plan = plan_of(models[0], entrants, one_size(dims), one_size(other), fixed=fixed, seed=seed)
    notes = [notes_of(x, plan) if x is not None else () for x in entrants]
    tolerance = tolerance or Tolerance()
    if any(x is not None and computes_in_half(x.graph) for x in entrants):
        tolerance = tolerance.for_half()
    tell("starting a process")
    about = survey(here(where))
    for setup, first, second in plan:
        taking = {i: x for i, x in enumerate(entrants) if x is not None and x.fits(first.feeds)}
        for i, entrant in enumerate(entrants):
            if entrant is not None and i not in taking and setup.name == AS_IT_IS:
                results[i][setup.name] = Result(error=f"it does not take {sizes_of(first)}")
        trial = Trial(
            setup,
            first,
            second,
            here(where),
            effort.runs,
            effort.seconds,
            lambda said, name=setup.name: tell(f"timing, {name}: {said}"),  # type: ignore[misc]
        )
        tried = _tried(trial, taking, effort.processes, tolerance, seed, copy=copy)
        for i, result in tried.items():
            results[i][setup.name] = result
    together = zip(models, results, notes, strict=True)
    timed = (Timed(os.fspath(model), found, said) for model, found, said in together)
    return Benchmark(where, note, about, tuple(x[0] for x in plan), tuple(timed))


def _entered(
    models: Sequence[StrPath], map_feeds: Sequence[MapFeeds | None] | None
) -> tuple[list[Entrant | None], list[dict[str, Result]]]:
    """The models; of one that cannot be read, unless it is the first, that is its result."""
    entrants: list[Entrant | None] = []
    results: list[dict[str, Result]] = []
    for i, model in enumerate(models):
        results.append({})
        try:
            entrants.append(enter(model, map_feeds[i] if map_feeds else None))
        except ModelError as error:
            if not i:
                raise
            results[i][AS_IT_IS] = Result(error=f"does not load: {error}")
            entrants.append(None)
    return entrants, results


def _tried(
    trial: Trial,
    entrants: Mapping[int, Entrant],
    turns: int,
    tolerance: Tolerance,
    seed: int,
    *,
    copy: bool,
) -> dict[int, Result]:
    """One setup: what each model computes there, and then how long it takes, by its number."""
    seen: dict[int, Seen] = {}
    found: dict[int, Result] = {}
    reference = Reference(entrants[0])
    for i, entrant in entrants.items():
        trial.tell(f"what it computes, model {i + 1}")
        try:
            seen[i] = look(trial, entrant, reference, tolerance)
        except FailedError as error:
            found[i] = Result(error=str(error))
    # The copy is the first model once more; where there is nothing beside it, it has none.
    beside = [0] if copy and 0 in seen and len(seen) > 1 else []
    members = [*seen, *beside]
    courses = take_turns(
        members, lambda i: time_alone(trial, entrants[i]), turns=turns, seed=seed, tell=trial.tell
    )
    again = courses[-1] if beside else None
    for i, course in zip(seen, courses, strict=False):
        why = course.error or (again.error if again is not None and i == 0 else "")
        phases = {x: course.timing(x) for x in PHASES if course.timing(x).processes}
        found[i] = Result(phases, seen=seen[i], error=why)
    return _judged(found, again)


def _judged(found: Mapping[int, Result], copy: Course | None) -> dict[int, Result]:
    """The results, with what the first model's copy lets be said of the others beside it."""
    base = found[0]
    again = {x: copy.timing(x) for x in base.phases} if copy is not None else {}
    judged = {0: base}
    if again and not base.error:
        same = {x: ratio(again[x], base.phases[x]) for x in base.phases}
        judged[0] = replace(base, copy={x: r for x, r in same.items() if r is not None})
    for i, result in found.items():
        if i and not base.error and not result.error:
            both = [x for x in PHASES if x in base.phases and x in result.phases]
            claims = {x: claim(result.phases[x], base.phases[x], again.get(x)) for x in both}
            judged[i] = replace(result, claims=claims)
        elif i:
            judged[i] = result
    return judged
