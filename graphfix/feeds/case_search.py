"""Inputs for a model, made from the model itself.

Sizes for the symbolic dims are tried, and those that the model cannot run at are dropped, with ONNX
Runtime's reason. The ladder of sizes, of which a rung is climbed only if those before it are not
enough:

    forced    what a weight wants, solved from the graph (:mod:`graphfix.facts.forced_sizes`);
                all sizes below are the nearest that fit
    usual       7, 1, 2, 23 and 40 frames in batches of one to three rows (or what the user gives)
    fewer rows  one row, where it is the batch that does not run
    longer      up to 51,200 samples, until three lengths run: a minimum, a multiple, an image;
                then one to three rows at the shortest
    cover       conditions that the usual cases do not meet (:mod:`graphfix.feeds.condition_cover`)
    tied        all of it again with more dims of one size (:data:`graphfix.feeds.dim_groups.TIES`)
    wishes      the usual sizes where something broadcasts, and those that a branch of an If wants
"""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from graphfix.editing.builder import subject_of
from graphfix.errors import FeedError
from graphfix.facts.forced_sizes import Wishes
from graphfix.feeds.arrays import SCHEDULE, CaseMaker
from graphfix.feeds.case import Case, Cases, DroppedCase, PerRow
from graphfix.feeds.case_style import Style
from graphfix.feeds.condition_cover import CoverSearch, is_waveform
from graphfix.feeds.dim_groups import TIES, Tie
from graphfix.feeds.roles import LENGTH_KINDS
from graphfix.feeds.run_cost import RunCost
from graphfix.feeds.runnable_sizes import SizeLimits
from graphfix.feeds.signature import Signature
from graphfix.feeds.size_targets import find_size_targets
from graphfix.files import io
from graphfix.files.model_input import PathOrModel
from graphfix.graph.nodes import is_op
from graphfix.lengths.length_input import LengthInput
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Array
from graphfix.runtime.run_errors import OverBudgetError, RunError
from graphfix.spec.quoting import quote_name

# The usual cases where the user gives the lengths: batches of one, two and three rows come first.
_WITH_GIVEN = ((1, 7), (2, 23), (3, 40), (1, 1), (2, 2))
# Beyond them, until three lengths run: for models that need a minimum or a multiple, the frames of
# a second (98, 101), the sides of an image (224) or a window of samples (480, 512, 576); and 162, a
# multiple of 3 before the lengths are enough.
_SHORT = (5, 12, 32, 64, 98, 101, 160, 162, 224, 256, 400, 480, 512, 576, 720, 1600, 3200)
_GROWTH = (*_SHORT, 6400, 12800, 25600, 51200)
_ENOUGH = 3
# The longest that is tried of what is not a waveform: attention takes the square of it in memory.
_LONGEST = 3200
# If a row takes more multiplications, the lengths that ran are enough: images take their square.
_ENOUGH_WORK = 5_000_000_000
# Elements that are drawn at longer lengths, which may not run: a second or two. Counted rather than
# timed, so that the same cases are made on every machine. Two images of 3 x 3200 x 1600 fit, beside
# the smaller ones.
_MOST_DRAWN = 1 << 26
_PAST = (4, 0, 1, 9, 16)


def make_cases(
    model: PathOrModel,
    *,
    dims: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    constants: Mapping[str, Array] | None = None,
) -> Cases:
    """Make cases that ``model`` runs: several lengths, one to three rows, ragged lengths.

    Args:
        model: The model; it is not changed.
        dims: Sizes to use, by the name of the symbolic dim; they replace the usual ones.
        seed: The same seed makes the same arrays.
        constants: What some inputs are fed in every case.

    Returns:
        The cases, at least one.

    Raises:
        ModelError: ONNX Runtime rejects the model.
        FeedError: No case runs, an input cannot be made up, or ``dims`` names no dim.
    """
    graph = model if isinstance(model, ir.Model) else io.load(model)
    with Session(model, optimize=False) as session:
        return search_cases(
            graph, lambda case: session.run(case.feeds), dims=dims, seed=seed, constants=constants
        )


def search_cases(
    model: ir.Model,
    run: Callable[[Case], object],
    *,
    dims: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    cover: bool = False,
    positive: bool = False,
    constants: Mapping[str, Array] | None = None,
    length_input: LengthInput | None = None,
    frames: bool = False,
    repaired: ir.Model | None = None,
) -> Cases:
    """Make cases as :func:`make_cases` does; ``run`` raises RunError for one that fails.

    Args:
        model: The model.
        run: Runs it.
        dims: Sizes to use.
        seed: The same seed makes the same arrays.
        cover: Whether to add the cases of :mod:`graphfix.feeds.condition_cover`.
        positive: Whether floats are above 0 in every case.
        constants: What some inputs are fed in every case.
        length_input: The input that says what is valid to a repair of the model.
        frames: Whether no pool may have less than its window, see
            :class:`graphfix.feeds.runnable_sizes.SizeLimits`.
        repaired: The model that is to be compared, which may decide by other sizes.
    """
    first: Cases | None = None  # with the first tie, which the error is about
    usual: Cases | None = None  # with the tie that dropped the fewest cases
    tried: set[tuple[object, ...]] = set()
    sizes = dims or {}

    @functools.cache
    def signature_granting(wishes: Wishes) -> Signature:
        signature = Signature(model, TIES[0], constants, length_input, granted=wishes)
        return signature if repaired is None else signature.with_thresholds_of(repaired)

    for tie, wishes in _ties_and_wishes(model):
        if wishes != "usual" and usual is not None:
            break
        signature = signature_granting(wishes)
        if _asks_for_others(signature, sizes):
            signature = signature_granting("none")
        signature = signature.with_tie(tie)
        shape = _probe_sizes(signature)
        if shape in tried:
            continue
        tried.add(shape)
        maker = CaseMaker(signature, seed, positive=positive)
        limits = SizeLimits(signature, frames=frames)
        cases = _CaseSearch(signature, run, sizes, maker, limits, repaired).find_cases(cover)
        first = cases if first is None else first
        if cases and (usual is None or len(cases.dropped) < len(usual.dropped)):
            usual = cases
        if usual is not None and _are_enough(usual):
            break
    assert first is not None
    if usual is None:
        raise FeedError(_no_case_message(first))
    if cover:
        usual += _cases_of_other_wishes(usual, run, sizes, seed, positive=positive)
    return usual


def _ties_and_wishes(model: ir.Model) -> list[tuple[Tie, Wishes]]:
    """Return how sizes may be tied, and which wishes granted, in the order of the tries."""
    has_branches = any(is_op(x, "If") for x in model.graph.all_nodes())
    tries: list[tuple[Tie, Wishes]] = [(tie, "usual") for tie in TIES]
    tries += ((tie, "branches") for tie in TIES if has_branches)
    return [*tries, (TIES[0], "none")]


def _are_enough(cases: Cases) -> bool:
    """Return whether enough cases run, so that no other tie is tried.

    Where few do, sizes that must be equal may have been so by chance.
    """
    may_be_chance = len(cases) < _ENOUGH and cases.dropped
    return not may_be_chance and not _caches_stay_empty(cases)


def _asks_for_others(signature: Signature, dims: Mapping[str, Sequence[int]]) -> bool:
    """Return whether a user asks for sizes that the graph dictates only as a wish."""
    wishes = {name: x.size for name, x in signature.forced.items() if not x.sure}
    return any(size != wishes[name] for name in wishes & dims.keys() for size in dims[name])


def _cases_of_other_wishes(
    usual: Cases,
    run: Callable[[Case], object],
    dims: Mapping[str, Sequence[int]],
    seed: int,
    *,
    positive: bool,
) -> list[Case]:
    """Return cases at sizes that broadcast, and at those that a branch wants."""
    signature, cases = usual.signature, list[Case]()
    forced = {name: x.size for name, x in signature.forced.items()}
    wished = [name for name, x in signature.forced.items() if not x.sure]
    if any(x.role.kind in LENGTH_KINDS for x in signature.inputs):
        return []
    others = [signature.granting("none")] if wished else []
    if any(is_op(x, "If") for x in signature.model.graph.all_nodes()):
        others += [signature.granting("branches")]
    for other in others:
        if {name: x.size for name, x in other.forced.items()} == forced:
            continue
        maker = CaseMaker(other, seed, positive=positive)
        search = _CaseSearch(other, run, dims, maker, SizeLimits(other))
        cases += search.find_few_cases(wished)
    had = [case.dims for case in usual]
    return [case for case in cases if case.dims not in had]


def _caches_stay_empty(cases: Cases) -> bool:
    """Return whether no case runs with anything in a cache."""
    past = cases.signature.past
    sizes = (cases.signature.group_sizes(case.dims) for case in cases)
    return bool(past and cases.dropped) and not any(x[g] for x in sizes for g in past)


class _CaseSearch:
    """Search for sizes at which enough lengths run."""

    def __init__(
        self,
        signature: Signature,
        run: Callable[[Case], object],
        dims: Mapping[str, Sequence[int]],
        maker: CaseMaker,
        limits: SizeLimits,
        repaired: ir.Model | None = None,
    ) -> None:
        for item in signature.inputs:
            if item.problem:
                raise FeedError(
                    f"the input {item.name!r} cannot be made up: {item.problem}; "
                    "give inputs with --feeds file.npz"
                )
        self._signature = signature
        self._run = run
        self._requested_sizes = requested_sizes(signature, dims)
        self._maker = maker
        self._cases: list[Case] = []
        self._dropped: list[DroppedCase] = []
        self._limits = limits
        self._repaired = repaired
        self._work = RunCost(signature)
        self._drawn = 0
        self._left_out: list[str] = []
        self._unmet: list[str] = []
        self._lengths: set[int] = set()
        self._tried_sizes: set[tuple[tuple[str, int], ...]] = set()

    def find_cases(self, cover: bool) -> Cases:
        """Find the usual cases, and with ``cover`` those that meet more conditions."""
        equal = self._signature.rules.equal_sizes(self._group_sizes(0, *SCHEDULE[0]))
        if equal is not None and not equal.keys() & self._requested_sizes.keys():
            self._try_groups(0, equal)
        for step, (rows, length) in enumerate(self._rows_and_lengths()):
            self._try_size(step, rows, length)
        # Whether other lengths than those tried are ours to choose.
        varies = any(t not in self._requested_sizes for t in self._signature.times)
        if varies and len(self._lengths) < _ENOUGH:
            few = len(self._cases) < _ENOUGH
            self._try_longer_lengths()
            if few and self._cases:
                self._try_more_rows()
        if cover and self._cases:
            more = CoverSearch(
                self._signature,
                self._maker,
                self._requested_sizes,
                self._cases,
                self._try_cover_case,
                find_size_targets(self._signature, self._repaired),
            )
            more.run()
            self._left_out += more.left_out
            self._unmet += more.unmet
        return Cases(self._cases, self._dropped, self._signature, self._left_out, self._unmet)

    def find_few_cases(self, wished: Collection[str]) -> list[Case]:
        """Find cases at the usual sizes, and with 1 for the dims of these names in every other."""
        groups = {self._signature.symbol_of(name) for name in wished}
        ones = {g: 1 for g in self._signature.groups if g in groups - self._requested_sizes.keys()}
        for step, (rows, length) in enumerate(self._rows_and_lengths()):
            sizes = self._group_sizes(step, rows, length)
            self._try_groups(step, sizes if step % 2 else sizes | ones)
        return self._cases

    def _rows_and_lengths(self) -> Iterator[tuple[int, int]]:
        if not self._requested_sizes:
            yield from SCHEDULE
            return
        count = max(len(v) for v in self._requested_sizes.values())
        for step in range(max(count, 2 if self._can_vary_rows() else 1)):
            yield _WITH_GIVEN[step % len(_WITH_GIVEN)]

    def _can_vary_rows(self) -> bool:
        batch = self._signature.batch
        return batch is not None and batch not in self._requested_sizes

    def _try_longer_lengths(self) -> None:
        ran = True
        for step, length in enumerate(_GROWTH, start=len(SCHEDULE)):
            # Three lengths just above the minimum would be one, two and three frames.
            enough = len(self._lengths) >= _ENOUGH
            if enough and max(self._lengths) >= 8 * min(self._lengths):
                return
            costly = (
                self._cases
                and self._work.multiplications_at(self._group_sizes(step, 1, length)) > _ENOUGH_WORK
            )
            if costly and (enough or not ran):
                return
            if length > _LONGEST and not is_waveform(self._signature):
                return
            groups = self._group_sizes(step, 1 + step % 2, length)
            self._drawn += self._maker.element_count(groups)
            if self._drawn > _MOST_DRAWN:
                self._left_out.append(self._maker.describe_sizes(groups))
                return
            ran = self._try_size(step, 1 + step % 2, length)

    def _try_more_rows(self) -> None:
        """Try the usual numbers of rows at the shortest length that runs."""
        batch = self._signature.batch
        if batch is not None and self._can_vary_rows():
            time = self._signature.times[0]
            ran = [self._signature.group_sizes(case.dims) for case in self._cases]
            shortest = min(ran, key=lambda sizes: sizes[time])
            for step, rows in enumerate(sorted({rows for rows, _ in SCHEDULE})):
                self._try_groups(step, {**shortest, batch: rows})

    def _try_size(self, step: int, rows: int, length: int) -> bool:
        """Try one size, then one row of it if several rows do not run."""
        if self._try_groups(step, self._group_sizes(step, rows, length)):
            return True
        fewer = rows != 1 and self._can_vary_rows()
        return fewer and self._try_groups(step, self._group_sizes(step, 1, length))

    def _try_groups(self, step: int, groups: Mapping[str, int]) -> bool:
        groups = self._signature.rules.fit(groups, self._requested_sizes)
        key = (("", 0 if self._signature.symbols() else step), *sorted(groups.items()))
        if key in self._tried_sizes:
            return True
        self._tried_sizes.add(key)
        if reason := self._limits.undefined_reason(groups):
            self._dropped.append(
                DroppedCase(self._maker.describe_sizes(groups), reason, has_inputs=False)
            )
            return False
        try:
            case = self._maker.make_case(step, groups)
        except FeedError as error:  # a dim such as T - 5 would be negative
            self._dropped.append(
                DroppedCase(self._maker.describe_sizes(groups), str(error), has_inputs=False)
            )
            return False
        try:
            self._run(case)
        except OverBudgetError:
            return False
        except RunError as error:
            self._dropped.append(DroppedCase(case.name, str(error)))
            return False
        self._cases.append(case)
        self._lengths.add(groups.get((*self._signature.times, self._signature.batch or "")[0], 1))
        return True

    def _try_cover_case(
        self, step: int, groups: Mapping[str, int], style: Style, chosen: PerRow
    ) -> bool:
        """Try one case that meets more conditions; a failure is not reported."""
        try:
            if self._limits.undefined_reason(groups):
                return False
            case = self._maker.make_case(step, groups, None, style, chosen)
            if case.name in {x.name for x in self._cases}:
                case = replace(case, name=f"{case.name}, set {step + 1}")
            self._run(case)
        except (FeedError, RunError):
            return False
        self._cases.append(case)
        return True

    def _group_sizes(self, step: int, rows: int, length: int) -> dict[str, int]:
        """Return the size of each group at a step."""
        signature = self._signature
        sizes = {signature.batch: rows} if signature.batch else {}
        grows = step < len(SCHEDULE)
        for place, time in enumerate(signature.fresh):
            # Times that are not tied get different sizes, so that a mix-up is seen.
            own = length if grows or place == 0 else SCHEDULE[step % len(SCHEDULE)][1]
            sizes[time] = own // (place + 1) + 2 * place
            if not grows and place and length % 32 == 0:  # images: both sides a multiple
                sizes[time] = max(32, length // 64 * 32)
        for time in signature.past:
            sizes[time] = _PAST[step % len(_PAST)]
        for time, values in self._requested_sizes.items():
            sizes[time] = values[step % len(values)]
        return signature.rules.fit(sizes, self._requested_sizes)


def requested_sizes(
    signature: Signature, dims: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """Return the sizes that a user asks for, by group instead of by the name of a dim.

    Raises:
        FeedError: No input has a dim of that name, or a size is negative.
    """
    sizes_by_group: dict[str, tuple[int, ...]] = {}
    for name, values in dims.items():
        symbol = signature.symbol_of(name)
        if symbol is None and signature.require_forced(name, values):
            continue
        if symbol is None:
            known_dims = (
                ", ".join(quote_name(signature.user_name(s)) for s in signature.symbols()) or "none"
            )
            raise FeedError(
                f"no input has a dim named {name!r}; the symbolic dims are: {known_dims}"
            )
        if not values or any(v < 0 for v in values):
            raise FeedError(f"the sizes of {name!r} must be numbers from 0 up, not {values}")
        sizes_by_group[signature.group_of(symbol)] = tuple(values)
    return sizes_by_group


def check_sizes(model: ir.Model, dims: Mapping[str, Sequence[int]] | None) -> None:
    """Raise FeedError for sizes that a model cannot be asked for, before anything is run."""
    if dims:
        requested_sizes(Signature(model), dims)


def _probe_sizes(signature: Signature) -> tuple[object, ...]:
    probe = {g: 3 + 4 * i for i, g in enumerate((*signature.times, signature.batch or ""))}
    return tuple(sorted(signature.symbol_sizes(probe).items()))


def _no_case_message(cases: Cases) -> str:
    signature = cases.signature
    for symbol, text in signature.contradictions.items():
        name = signature.user_name(symbol)
        return f"the model runs at no size of {quote_name(name)}: {text}"
    tried = "; ".join(f"{x.name}" for x in cases.dropped[:4])
    more = f" and {len(cases.dropped) - 4} more" if len(cases.dropped) > 4 else ""
    roles = ", ".join(f"{name} as {role.kind}" for name, role in cases.input_roles.items())
    last = (
        cases.dropped[-1] if cases.dropped else DroppedCase("", "no size to try", has_inputs=False)
    )
    reason = f"{'ONNX Runtime: ' if last.has_inputs else ''}{last.reason.removesuffix('.')}."
    if cases.left_out:
        reason += f" From {cases.left_out[0]} on the inputs are too large to try in passing."
    example = quote_name(next((cases.signature.user_name(t) for t in cases.signature.times), "T"))
    return (
        f"{subject_of(cases.signature.model)} runs at none of the sizes tried ({tried}{more}), "
        f"with {roles}. {reason} "
        f"Give inputs with --feeds file.npz, or sizes with --dims {example}=.."
    )
