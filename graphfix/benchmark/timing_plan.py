"""At which shapes models are timed, and how their sessions are made."""

import functools
from collections.abc import Callable, Mapping, Sequence

from graphfix.benchmark.bench_result import AS_IT_IS, FIXED, Setup
from graphfix.benchmark.candidate import Entrant
from graphfix.errors import FeedError
from graphfix.facts.fixed_inputs import arrays_since
from graphfix.feeds.case import Case, Cases
from graphfix.feeds.case_search import make_cases
from graphfix.graph.dims import fixed_since
from graphfix.paths import StrPath
from graphfix.runtime.port import Array
from graphfix.spec.quoting import quoted

Planned = tuple[Setup, Case, Case | None]


def plan_of(
    model: StrPath,
    entrants: Sequence[Entrant | None],
    dims: Mapping[str, int] | None,
    other: Mapping[str, int] | None,
    *,
    fixed: bool,
    seed: int,
) -> list[Planned]:
    """The setups, each with its inputs and those of its other shape if it has one.

    Args:
        model: The first model.
        entrants: All of them, it among them; None for those that cannot be read.
        dims: The sizes to time at, by the name of the symbolic dim.
        other: The sizes of another shape; by default three quarters of the longest dim.
        fixed: Whether the first sizes are timed with the dims fixed, too.
        seed: The same seed makes the same inputs.

    Raises:
        FeedError: No inputs could be made at these sizes.
    """
    sizes, constants = _given_by(entrants)
    make = functools.partial(make_cases, model, seed=seed, constants=constants)
    first, second = _two_cases(make, {**sizes, **(dims or {})}, other)
    plan = [(Setup(AS_IT_IS, first.dims, second.dims if second else {}), first, second)]
    if fixed and any(x is not None and x.free_dims(first.feeds) for x in entrants):
        plan.append((Setup(FIXED, first.dims, fixed=True), first, None))
    return plan


def _given_by(entrants: Sequence[Entrant | None]) -> tuple[dict[str, int], dict[str, Array]]:
    """What another model leaves no choice of: sizes that are numbers there, and constants."""
    first, *others = entrants
    assert first is not None
    sizes: dict[str, int] = {}
    constants: dict[str, Array] = {}
    for one in others:
        if one is not None:
            sizes.update(fixed_since(first.graph, one.graph))
            constants.update(arrays_since(first.graph, one.graph))
    return sizes, constants


def notes_of(entrant: Entrant, plan: Sequence[Planned]) -> tuple[str, ...]:
    """Which sizes of the plan a model does not take."""
    cases = (case for _, *both in plan for case in both if case is not None)
    shown = [sizes_of(case) for case in cases if not entrant.fits(case.feeds)]
    return tuple(f"it does not take {shapes}" for shapes in dict.fromkeys(shown))


def sizes_of(case: Case) -> str:
    """The sizes of the inputs, as a user writes them."""
    return " ".join(f"{quoted(name)}={size}" for name, size in case.dims.items())


def _two_cases(
    make: Callable[..., Cases], dims: Mapping[str, int], other: Mapping[str, int] | None
) -> tuple[Case, Case | None]:
    """The inputs to time at, and those of another shape if the model takes one."""
    cases = _cases(make, dims)
    # One row, as in use, and as long as the model takes it among what was tried.
    first = min(cases, key=lambda c: (_rows(c), c.ragged, -sum(c.dims.values())))
    if other:
        return first, _exactly(make, {**first.dims, **other})
    shorter = [c for c in cases if _shapes(c) != _shapes(first) and not c.ragged]
    if shorter:
        return first, max(shorter, key=lambda c: (-_rows(c), sum(c.dims.values())))
    if not first.dims:
        return first, None
    longest = max(first.dims, key=lambda n: first.dims[n])
    try:
        second = _exactly(make, {**first.dims, longest: max(1, first.dims[longest] * 3 // 4)})
    except FeedError:
        return first, None  # a model of one size
    return first, second if _shapes(second) != _shapes(first) else None


def _exactly(make: Callable[..., Cases], sizes: Mapping[str, int]) -> Case:
    return min(_cases(make, sizes), key=lambda c: (_rows(c), c.ragged))


def _cases(make: Callable[..., Cases], sizes: Mapping[str, int]) -> Cases:
    return make(dims={name: [size] for name, size in sizes.items()})


def _rows(case: Case) -> int:
    return min((x.shape[0] for x in case.feeds.values() if x.ndim), default=1)


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in case.feeds.items()}
