"""Dims that must be equal in a run though nothing says so, found by running the model.

An exporter calls the batch ``N`` in one input and ``S`` in the state beside it, and what ties them
may be inside an operator or a branch. Where no case runs with all sizes different, sets of dims are
made equal, the smallest sets first; one is taken if the model runs with it and, with any one of its
dims at another size, does not.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from graphfix.errors import FeedError, UsageError
from graphfix.feeds.arrays import Maker
from graphfix.feeds.fitting import Fit
from graphfix.feeds.signature import Signature
from graphfix.quoting import quoted
from graphfix.runtime.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import onnx_ir as ir

    from graphfix.feeds.case import Array
    from graphfix.feeds.ties import Tie

    Sizes = Mapping[str, int]
    Run = Callable[[Mapping[str, Array]], object]

TIES: tuple[Tie, ...] = ("graph", "one-time", "past")
# More dims are more sets than there is time for.
_MOST_GROUPS, _MOST_RUNS = 6, 160
# What dims that are not tied get: all different, none 1, which goes with everything.
_APART = (3, 5, 11, 13, 17, 19)
# Lengths to try where no case runs at all; a waveform needs some hundreds.
_LENGTHS = (23, 64, 576, 1600, 6400)


def signatures(
    model: ir.Model,
    run: Run,
    constants: Mapping[str, Array] | None = None,
    *,
    fits: Callable[[Signature], object],
) -> Iterator[Signature]:
    """The inputs, by each way to tie their dims; at last by what trying finds, if anything.

    Where a dim has no size of its own, it may be one that must be what another is: then what
    trying finds comes first, and nothing after it.

    Args:
        model: The model.
        run: Runs it; raises RunError.
        constants: What some inputs are fed in every case.
        fits: Raises FeedError or UsageError where a dim has no size.
    """
    first = Signature(model, TIES[0], constants)
    try:
        fits(first)
    except (FeedError, UsageError):
        joined = tied(first, run, {})
        if not joined:
            raise
    else:
        yield first
        for tie in TIES[1:]:
            yield Signature(model, tie, constants)
        joined = tied(first, run, {})
    if joined:
        yield Signature(model, first.tie, constants, joined)


def told(signature: Signature) -> list[str]:
    """What trying has found, in sentences."""
    sets = (sorted(map(signature.user_name, joined)) for joined in signature.joined)
    return [
        f"{' and '.join(map(quoted, names))} must be the same size, which was found by trying: the "
        "model does not run with one of them at another"
        for names in sets
    ]


def with_fixed(signature: Signature, fixed: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The dims that must be what a fixed one is, each with its size.

    Args:
        signature: The inputs.
        fixed: The sizes that a repair has fixed, by the name of the dim.
    """
    found: dict[str, int] = {}
    for joined in signature.joined:
        symbols = (x for group in sorted(joined) for x in signature.members(group))
        names = [signature.user_name(x) for x in symbols]
        sizes = {fixed[name][0] for name in names if name in fixed}
        if len(sizes) == 1:
            found.update(dict.fromkeys((x for x in names if x not in fixed), sizes.pop()))
    return found


def tied(
    signature: Signature,
    run: Run,
    wanted: Mapping[str, Sequence[int]],
    ran: Sequence[Sizes] = (),
) -> tuple[frozenset[str], ...]:
    """The sets of dims that must be equal in a run.

    Args:
        signature: The inputs, as they are tied so far.
        run: Runs the model; raises RunError.
        wanted: Sizes that are not free to choose, by group.
        ran: Sizes, by group, that run.
    """
    groups = list(dict.fromkeys(signature.group(s) for s in signature.symbols()))
    groups = [g for g in groups if g in (signature.batch, *signature.times)]
    if not 1 < len(groups) <= _MOST_GROUPS or any(_apart(x) for x in ran):
        return ()
    trying = _Trying(signature, run, wanted)
    for base in trying.bases(groups, ran):
        if _apart(base) and trying.runs(base):
            return ()
        found = trying.sets(groups, base)
        if found or trying.left <= 0:
            return found
    return ()


def _apart(sizes: Sizes) -> bool:
    """Whether all sizes are different, and none goes with everything."""
    known = [n for n in sizes.values() if n > 1]
    return len(set(known)) == len(sizes)


class _Trying:
    def __init__(self, signature: Signature, run: Run, wanted: Mapping[str, Sequence[int]]) -> None:
        self._maker, self._run = Maker(signature, 0), run
        self._fit = Fit(signature, wanted)
        self._wanted = {g: sizes[0] for g, sizes in wanted.items() if sizes}
        self.left = _MOST_RUNS

    def bases(self, groups: Sequence[str], ran: Sequence[Sizes]) -> Iterator[dict[str, int]]:
        """Sizes to begin with: the largest that run; or lengths, with a small size for the rest."""
        largest = sorted(ran, key=lambda x: -sum(x.values()))
        yield from (dict(x) for x in largest[:1])
        if largest:
            return
        apart = dict(zip(groups, _APART, strict=False))
        for length, long in itertools.product(_LENGTHS, groups):
            yield self._fit.snapped({**apart, long: length, **self._wanted})

    def sets(self, groups: Sequence[str], base: Mapping[str, int]) -> tuple[frozenset[str], ...]:
        """The first set that lets the model run, without those of it that need not be equal."""
        for count in range(2, len(groups) + 1):
            for members in itertools.combinations(groups, count):
                size = next((self._wanted[g] for g in members if g in self._wanted), 2)
                if any(self._wanted.get(g, size) != size for g in members):
                    continue
                sizes = {**base, **dict.fromkeys(members, size)}
                if not self.runs(sizes):
                    continue
                held = [g for g in members if not self._runs_apart(g, sizes)]
                if len(held) > 1:
                    return (frozenset(held),)
        return ()

    def _runs_apart(self, group: str, sizes: Mapping[str, int]) -> bool:
        """Whether the model runs with another size of ``group`` alone."""
        others = self._fit.others(group, sizes)
        return any(self.runs({**sizes, group: other}) for other in others)

    def runs(self, sizes: Mapping[str, int]) -> bool:
        """Whether the model runs at these sizes."""
        self.left -= 1
        if self.left < 0:
            return False
        try:
            self._run(self._maker.case(0, sizes).feeds)
        except (FeedError, RunError):
            return False
        return True
