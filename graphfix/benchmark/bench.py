"""How long models take, in the phases that matter on DirectML, and whether they compute the same.

Models side by side are run in turns, one run each: what else the machine does falls on all of
them. See :mod:`graphfix.benchmark.rounds` for the turns, :mod:`graphfix.benchmark.timing` for the
ratios.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from graphfix.benchmark.entrant import Entrant, enter
from graphfix.benchmark.outcome import AS_IT_IS, FIXED, PHASES, Benchmark, Result, Setup, Timed
from graphfix.benchmark.rounds import Job
from graphfix.benchmark.timing import ratio
from graphfix.errors import FeedError, ModelError, UsageError
from graphfix.feeds.case import Case
from graphfix.feeds.search import make_cases
from graphfix.proof.compare import Tolerance, computes_in_half
from graphfix.runtime.python import choose, here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from graphfix.benchmark.entrant import MapFeeds
    from graphfix.runtime.python import Wanted

__all__ = ["PHASES", "Benchmark", "Result", "Setup", "Timed", "bench"]


def bench(
    models: Sequence[str | os.PathLike[str]],
    *,
    ep: Wanted = "auto",
    dims: Mapping[str, int] | None = None,
    other: Mapping[str, int] | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
    runs: int = 10,
    sessions: int = 3,
    io_binding: bool = False,
    map_feeds: Sequence[MapFeeds | None] | None = None,
    tolerance: Tolerance | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Benchmark:
    """Time models side by side, and compare what they compute meanwhile.

    Each is timed as it is; with its dims fixed by free-dimension overrides, if any are symbolic;
    and with a session for each bucket.

    Args:
        models: Files; the first is what the others are compared with.
        ep: Where: ``"auto"`` is DirectML if there is one, else the CPU, and says so.
        dims: The sizes to time at, by the name of the symbolic dim.
        other: The sizes of another shape; by default three quarters of the longest dim.
        buckets: Sizes of a dim that get a session each, with the dims fixed.
        runs: How many steady runs; half as many at the other shape and back.
        sessions: How many times sessions are made and run first, each time in a fresh process.
        io_binding: Whether inputs and outputs stay in the device's memory while the clock runs.
        map_feeds: For each model, what makes its inputs from those of the first; None for those
            that take the same.
        tolerance: How far outputs may differ from those of the first model on the CPU; a hundred
            times further where one computes in float16.
        seed: The same seed makes the same inputs.
        progress: Called with a short text at each step.

    Raises:
        UsageError: The provider is not to be had, or there is nothing to time.
        ModelError: The first model cannot be read.
        FeedError: No inputs could be made at these sizes.
    """
    if not models:
        raise UsageError("name at least one model to time")
    if runs < 1 or sessions < 1:
        raise UsageError(f"--runs {runs}, --sessions {sessions}: at least 1 of each")
    tell = progress or (lambda _: None)
    where, note = choose(ep)
    timed = [Timed(os.fspath(x)) for x in models]
    entrants = _entered(timed, map_feeds)
    tell("making inputs")
    plan = _plan(models[0], entrants, dims, other, buckets, seed)
    for one, entrant in zip(timed, entrants, strict=True):
        if entrant is not None:
            one.notes += _notes(entrant, plan)
    tolerance = tolerance or Tolerance()
    if any(x is not None and computes_in_half(x.graph) for x in entrants):
        tolerance = tolerance.for_half()
    about: dict[str, str] = {}
    for setup, first, second in plan:
        taking: list[tuple[Entrant, Result]] = []
        for one, entrant in zip(timed, entrants, strict=True):
            if entrant is None:
                continue
            if entrant.fits(first.feeds):
                one.results[setup.name] = Result()
                taking.append((entrant, one.results[setup.name]))
            elif setup.name == AS_IT_IS:
                one.results[setup.name] = Result(error=f"it does not take {_sizes(first)}")
        Job(
            setup=setup,
            first=first,
            other=second,
            entrants=taking,
            runner=here(where),
            runs=runs,
            sessions=sessions,
            bind=io_binding,
            tolerance=tolerance,
            tell=tell,
            about=about,
        ).run()
        base = timed[0].results[setup.name]
        for one in timed[1:]:
            if (result := one.results.get(setup.name)) is not None:
                _rate(result, base)
    return Benchmark(where, note, about, [x[0] for x in plan], timed, io_binding)


def _entered(
    timed: Sequence[Timed], map_feeds: Sequence[MapFeeds | None] | None
) -> list[Entrant | None]:
    """The models; of one that cannot be read, unless it is the first, that is its result."""
    entrants: list[Entrant | None] = []
    for i, one in enumerate(timed):
        try:
            entrants.append(enter(one.model, map_feeds[i] if map_feeds else None))
        except ModelError as error:
            if not i:
                raise
            one.results[AS_IT_IS] = Result(error=f"does not load: {error}")
            entrants.append(None)
    return entrants


def _rate(result: Result, base: Result) -> None:
    if result.error or base.error:
        return
    for phase, timing in result.phases.items():
        if found := ratio(timing.seconds, base.phases[phase].seconds):
            result.ratios[phase] = found


def _plan(
    model: str | os.PathLike[str],
    entrants: Sequence[Entrant | None],
    dims: Mapping[str, int] | None,
    other: Mapping[str, int] | None,
    buckets: Mapping[str, Sequence[int]] | None,
    seed: int,
) -> list[tuple[Setup, Case, Case | None]]:
    """The setups, each with its inputs and those of its other shape."""
    sizes = {**_only_sizes(entrants), **(dims or {})}
    first, second = _two_cases(model, sizes, other, seed)
    plan = [(Setup(AS_IT_IS, first.dims, second.dims if second else {}), first, second)]
    if any(x is not None and x.free_dims(first.feeds) for x in entrants):
        plan.append((Setup(FIXED, first.dims, fixed=True), first, None))
    for combination in itertools.product(*(buckets or {}).values()) if buckets else ():
        bucket = dict(zip(buckets or {}, combination, strict=True))
        exact = {name: [size] for name, size in {**first.dims, **bucket}.items()}
        case = _exactly(model, exact, seed)
        name = " ".join(f"{name}={size}" for name, size in bucket.items())
        plan.append((Setup(f"bucket {name}", case.dims, fixed=True), case, None))
    return plan


def _only_sizes(entrants: Sequence[Entrant | None]) -> dict[str, int]:
    """Sizes of dims that are symbols in the first model and numbers in another."""
    found: dict[str, int] = {}
    first = entrants[0]
    assert first is not None
    for one in entrants[1:]:
        if one is not None:
            found.update(one.only_sizes(first))
    return found


def _notes(entrant: Entrant, plan: Sequence[tuple[Setup, Case, Case | None]]) -> list[str]:
    shown = [
        _sizes(case)
        for _, first, second in plan
        for case in (first, second)
        if case is not None and not entrant.fits(case.feeds)
    ]
    return [f"it does not take {shapes}" for shapes in dict.fromkeys(shown)]


def _sizes(case: Case) -> str:
    return " ".join(f"{name}={size}" for name, size in case.dims.items())


def _two_cases(
    model: str | os.PathLike[str],
    dims: Mapping[str, int],
    other: Mapping[str, int] | None,
    seed: int,
) -> tuple[Case, Case | None]:
    """The inputs to time at, and those of another shape if the model takes one."""
    given = {name: [size] for name, size in dims.items()}
    cases = make_cases(model, dims=given, seed=seed)
    # One row, as in use, and as long as the model takes it among what was tried.
    first = min(cases, key=lambda c: (_rows(c), c.ragged, -sum(c.dims.values())))
    if other:
        sizes = {**{n: [s] for n, s in first.dims.items()}, **{n: [s] for n, s in other.items()}}
        return first, _exactly(model, sizes, seed)
    shorter = [c for c in cases if _shapes(c) != _shapes(first) and not c.ragged]
    if shorter:
        return first, max(shorter, key=lambda c: (-_rows(c), sum(c.dims.values())))
    if not first.dims:
        return first, None
    longest = max(first.dims, key=lambda n: first.dims[n])
    smaller = max(1, first.dims[longest] * 3 // 4)
    sizes = {**{n: [s] for n, s in first.dims.items()}, longest: [smaller]}
    try:
        second = _exactly(model, sizes, seed)
    except FeedError:
        return first, None  # a model of one size
    return first, second if _shapes(second) != _shapes(first) else None


def _exactly(model: str | os.PathLike[str], sizes: Mapping[str, Sequence[int]], seed: int) -> Case:
    cases = make_cases(model, dims=sizes, seed=seed)
    return min(cases, key=lambda c: (_rows(c), c.ragged))


def _rows(case: Case) -> int:
    return min((x.shape[0] for x in case.feeds.values() if x.ndim), default=1)


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in case.feeds.items()}
