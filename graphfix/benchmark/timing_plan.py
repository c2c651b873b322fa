"""The setups of a benchmark: at which shapes models are timed, with which sessions."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence

from graphfix.benchmark.bench_result import AS_IT_IS, FIXED, Setup
from graphfix.benchmark.candidate import Entrant
from graphfix.benchmark.usual_sizes import usual_sizes
from graphfix.errors import FeedError
from graphfix.facts.fixed_inputs import fixed_input_arrays
from graphfix.feeds.case import Case, Cases
from graphfix.feeds.case_search import make_cases
from graphfix.feeds.signature import Signature
from graphfix.graph.dims import newly_fixed_dims
from graphfix.paths import StrPath
from graphfix.runtime.port import Array
from graphfix.spec.quoting import quote_name

Planned = tuple[Setup, Case, Case | None]


def plan_setups(
    model: StrPath,
    entrants: Sequence[Entrant | None],
    dims: Mapping[str, int] | None,
    other_dims: Mapping[str, int] | None,
    *,
    fixed: bool,
    seed: int,
) -> list[Planned]:
    """Return the setups, each with its inputs and those of its other shape if it has one.

    Args:
        model: The first model.
        entrants: All of them, it among them; None for those that cannot be read.
        dims: The sizes to time at, by the name of the symbolic dim.
        other_dims: The sizes of another shape; by default three quarters of the longest dim.
        fixed: Whether the first sizes are timed with the dims fixed, too.
        seed: The same seed makes the same inputs.

    Raises:
        FeedError: No inputs could be made at these sizes.
    """
    sizes, constants = _fixed_by_others(entrants)
    make = functools.partial(make_cases, model, seed=seed, constants=constants)
    first, second = _choose_cases(make, {**sizes, **(dims or {})}, other_dims)
    plan = [(Setup(AS_IT_IS, first.dims, second.dims if second else {}), first, second)]
    if fixed and any(x is not None and x.free_dims(first.feeds) for x in entrants):
        plan.append((Setup(FIXED, first.dims, fixed=True), first, None))
    return plan


def _fixed_by_others(entrants: Sequence[Entrant | None]) -> tuple[dict[str, int], dict[str, Array]]:
    """Return the sizes and constants that the other models fix."""
    first, *following = entrants
    assert first is not None
    sizes: dict[str, int] = {}
    constants: dict[str, Array] = {}
    for entrant in following:
        if entrant is not None:
            sizes.update(newly_fixed_dims(first.graph, entrant.graph))
            constants.update(fixed_input_arrays(first.graph, entrant.graph))
    return sizes, constants


def notes_of(entrant: Entrant, plan: Sequence[Planned]) -> tuple[str, ...]:
    """Return notes on the sizes of the plan that a model does not take."""
    cases = (case for _, *pair in plan for case in pair if case is not None)
    shown = [sizes_text(case) for case in cases if not entrant.fits(case.feeds)]
    return tuple(f"it does not take {shapes}" for shapes in dict.fromkeys(shown))


def sizes_text(case: Case) -> str:
    """Return the sizes of the inputs, as a user writes them."""
    return " ".join(f"{quote_name(name)}={size}" for name, size in case.dims.items())


def _choose_cases(
    make: Callable[..., Cases], dims: Mapping[str, int], other_dims: Mapping[str, int] | None
) -> tuple[Case, Case | None]:
    """Return the inputs to time at, and those of another shape if the model takes one."""
    cases = _cases_at(make, dims)
    signature = cases.signature
    # One row, as in use, and as long as the model takes it among what was tried.
    longest_case = min(cases, key=lambda c: (_row_count(c), c.is_ragged, -sum(c.dims.values())))
    first = _usual_case(make, signature, longest_case.dims, dims) or longest_case
    if other_dims:
        return first, _single_row_case(make, {**first.dims, **other_dims})
    shorter = [c for c in cases if _input_shapes(c) != _input_shapes(first) and not c.is_ragged]
    if shorter and first is longest_case:
        return first, max(shorter, key=lambda c: (-_row_count(c), sum(c.dims.values())))
    if not first.dims:
        return first, None
    settled = {*signature.forced, *map(signature.user_name, signature.derived)}
    free = {name: size for name, size in first.dims.items() if name not in settled}
    if not free:
        return first, None
    longest = max(free, key=lambda n: free[n])
    sizes = _with_size(signature, first.dims, longest, max(1, free[longest] * 3 // 4))
    try:
        second = _single_row_case(make, sizes)
    except FeedError:
        return first, None  # a model of one size
    return first, second if _input_shapes(second) != _input_shapes(first) else None


def _usual_case(
    make: Callable[..., Cases],
    signature: Signature,
    tried: Mapping[str, int],
    dims: Mapping[str, int],
) -> Case | None:
    """Return the inputs of a usual clip or sentence, or of a half, quarter or eighth of it.

    None where the model takes none of these, or where it is not known what its dims count.

    Args:
        make: Makes inputs at sizes.
        signature: The inputs of the first model.
        tried: Sizes that it takes.
        dims: The sizes that the user names.
    """
    usual = {name: size for name, size in usual_sizes(signature).items() if name not in dims}
    for share in (1, 2, 4, 8) if usual else ():
        sizes = {name: size // share for name, size in usual.items()}
        with contextlib.suppress(FeedError):
            return _single_row_case(make, {**tried, **sizes, **dims})
    return None


def _with_size(
    signature: Signature, dims: Mapping[str, int], name: str, size: int
) -> dict[str, int]:
    """Return the sizes of a case where a dim, and all that are one with it, has another size.

    Sizes that follow from others are left out.
    """
    derived = {signature.user_name(x) for x in signature.derived}
    symbol = signature.symbol_of(name)
    members = signature.symbols_in(signature.group_of(symbol)) if symbol else ()
    changed = {name, *map(signature.user_name, members)}
    return {k: size if k in changed else x for k, x in dims.items() if k not in derived}


def _single_row_case(make: Callable[..., Cases], sizes: Mapping[str, int]) -> Case:
    return min(_cases_at(make, sizes), key=lambda c: (_row_count(c), c.is_ragged))


def _cases_at(make: Callable[..., Cases], sizes: Mapping[str, int]) -> Cases:
    return make(dims={name: [size] for name, size in sizes.items()})


def _row_count(case: Case) -> int:
    return min((x.shape[0] for x in case.feeds.values() if x.ndim), default=1)


def _input_shapes(case: Case) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in case.feeds.items()}
