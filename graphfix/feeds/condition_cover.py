"""Cases that hit what the usual ones do not: many conditions at once, in few runs.

A repair may be wrong for batches of five only, for a first row that is short, for padding on the
left, for one language of sixteen. Each of these cases meets several such conditions, and their
sizes have other residues than the usual ones.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from graphfix.errors import FeedError
from graphfix.facts.symbolic.expressions import Dim, Ints, compile_dim
from graphfix.feeds.array_fill import is_image, is_wave
from graphfix.feeds.arrays import CaseMaker
from graphfix.feeds.case import Case, PerRow
from graphfix.feeds.case_style import Style
from graphfix.feeds.input import size_of_dim, symbols
from graphfix.feeds.run_cost import RunCost
from graphfix.feeds.signature import Signature
from graphfix.feeds.size_targets import SizeTarget

Attempt = Callable[[int, Mapping[str, int], Style, PerRow], bool]


@dataclass(frozen=True)
class CaseOutline:
    """A planned case; its sizes may be adapted to the model, its style is kept."""

    rows: int
    length: int
    past: int
    style: Style
    other: int = 9
    """The length along a second time, such as the text beside the audio."""


# What DirectML is given: one clip in a container.
_ALONE = CaseOutline(1, 64, 7, Style("none full"), other=66)
# With 7, 1, 2, 23 and 40: the kinds of sizes (1, odd, even, over 64) of rows, lengths, caches and
# second lengths in pairs; lengths of 0 and -1 modulo 7, 10, 16, 64 and 160, which are windows, hops
# and patches, of every residue modulo 2, 3, 4, 5 and 8, and multiples of 32; up to nine rows; one
# length over 256; caches over 8 and over 64, and one token behind a cache.
OUTLINES = (
    CaseOutline(5, 12, 20, Style("all full", values="spikes", wide=True), other=1),
    CaseOutline(3, 18, 0, Style("first short", side="left"), other=11),
    CaseOutline(9, 13, 66, Style("first short", values="bumps"), other=24),
    CaseOutline(5, 67, 7, Style("none full", values="loud", wide=True), other=7),
    CaseOutline(1, 319, 1, Style("all full"), other=1),
    CaseOutline(2, 160, 0, Style("all full", values="ties"), other=12),
    CaseOutline(4, 14, 0, Style("an empty row"), other=8),
    CaseOutline(6, 1, 12, Style("all full", values="positive"), other=1),
    _ALONE,
    CaseOutline(5, 1, 70, Style("all full", values="silent", wide=True), other=66),
    CaseOutline(2, 9, 5, Style("all full", other=True)),
    CaseOutline(3, 9, 5, Style("all full", values="guarded")),
)
# Numbers that differ from those of the usual cases and of the larger sizes.
_FIRST_STEP = 32
# Rows times length of these cases together: at most this, or twice that of the usual ones.
_FRAMES = 2400
# Multiplications of these cases together, or those of the usual ones: some ten seconds on two
# cores. A row of a model for images of a fixed size may take a tenth of them.
_WORK = 200_000_000_000
# So many cases are made at most for inputs that select, and so many rows put into one.
_MOST_CHOICES, _MOST_ROWS, _MOST_ALONE = 8, 32, 16
_SHORT = 3
# So many cases are made at most for sizes at which a graph decides, and from sizes up to this.
_MOST_TARGETS, _LARGEST_TARGET = 16, 2048
# Rows times length of these and of the cases for inputs that select, together.
_SMALL_FRAMES = 2400
# Sizes that a model may want multiples of, such as the height and width of images.
_MULTIPLE = 32


# One second of a waveform, and the length up to which the others have several frames of any hop.
_SECOND, _FRAMED = 16_000, 319


def frame_hop(signature: Signature) -> int:
    """Return the largest number of input time steps per frame of any tensor in the graph.

    The strides of convolutions, multiplied along the way, the hop of an STFT, the step of a Slice.
    """
    if not signature.fresh:
        return 1
    fixed, first = dict.fromkeys(signature.groups, 8), signature.fresh[0]
    try:
        short, long = (signature.symbol_sizes({**fixed, first: n}) for n in (1 << 24, 1 << 25))
    except FeedError:  # a dim that does not follow from the others
        return 1
    sizes = {s: np.asarray([n, long[s]], np.int64) for s, n in short.items()}
    hop = 1
    for dim in {d for dims in signature.value_dims().values() for d in dims}:
        if symbols(dim) and symbols(dim) <= sizes.keys():
            frames = np.broadcast_to(compile_dim(dim)(sizes), 2)  # the symbol may cancel
            added = int(frames[1]) - int(frames[0])
            hop = max(hop, round((1 << 24) / added)) if added > 0 else hop
    return hop


def is_waveform(signature: Signature) -> bool:
    """Return whether some input is audio samples."""
    return any(map(is_wave, signature.inputs))


class CoverSearch:
    """Search for cases that meet conditions which the usual cases miss.

    Args:
        signature: The inputs.
        maker: Makes arrays.
        requested_sizes: Sizes that the user asks for, by group.
        cases: The cases that ran, to which those that run are added by ``attempt``.
        attempt: Tries a case and says whether it ran.
        targets: Sizes at which a graph decides; those of one entry are to be met together.

    Attributes:
        left_out: Cases that would cost too much, in words.
        unmet: Sizes at which a graph decides and that no case has, in words.
    """

    def __init__(
        self,
        signature: Signature,
        maker: CaseMaker,
        requested_sizes: Mapping[str, Sequence[int]],
        cases: Sequence[Case],
        attempt: Attempt,
        targets: Sequence[Sequence[SizeTarget]] = (),
    ) -> None:
        self._signature, self._maker, self._requested_sizes = signature, maker, requested_sizes
        self._cases, self._attempt, self._targets = cases, attempt, targets
        self._hop = frame_hop(signature)
        self._usual = [signature.group_sizes(case.dims) for case in cases]
        usual = [self._frame_count(groups) for groups in self._usual]
        self._frames_left = max(_FRAMES, 2 * sum(usual))
        self._most_frames = max(_FRAMES // 4, *usual) if usual else 0
        self._work = RunCost(signature)
        work = [self._work.multiplications_at(groups) for groups in self._usual]
        self._work_left = max(_WORK, sum(work))
        self._most_work = max(_WORK // 6, min(work)) if work else 0
        self._step = itertools.count(_FIRST_STEP)
        self._unsure = any(not x.role.sure for x in signature.inputs) or bool(signature.defaults)
        self._masks = any(x.role.kind == "mask" and x.time is not None for x in signature.inputs)
        self._masks |= any(maker.pads_by_id(x) for x in signature.inputs)
        self.left_out: list[str] = []
        self.unmet: list[str] = []

    def run(self) -> None:
        """Try all outlines, then sizes at which a graph decides, and inputs that select."""
        for number, outline in enumerate((*OUTLINES, *self._multi_frame_outlines())):
            if self._is_relevant(outline):
                self._try_outline(number, outline)
        # Both have rows of their own, however many the outlines have taken.
        self._frames_left, self._most_frames = _SMALL_FRAMES, _SMALL_FRAMES // 2
        self._cover_targets()
        self._cover_options()

    def _multi_frame_outlines(self) -> Iterator[CaseOutline]:
        """Yield outlines of several frames, where the fixed ones cover only one or two."""
        if is_waveform(self._signature):
            yield CaseOutline(4, 19, 5, Style("all full", values="quiet"))
            if self._hop > 1:
                yield CaseOutline(1, _SECOND, 0, Style("all full", values="recording"))
        if 5 * self._hop > _FRAMED:
            yield CaseOutline(2, 2 * self._hop + 1, 0, Style("first short"))
            yield CaseOutline(1, 5 * self._hop - 1, 33, Style("all full"))

    def _is_relevant(self, outline: CaseOutline) -> bool:
        style = outline.style
        if style.other:
            return self._unsure
        if style.side == "left":
            return self._masks
        if style.ends == "an empty row":
            return bool(self._maker.governed_times)
        if style.values == "guarded":
            return self._maker.has_guards
        if style.values == "positive":
            return self._maker.has_floats
        if style.values == "ties" and not self._maker.has_ties:
            style = replace(style, values="usual")
        new = style.values != "usual" or style.wide
        return bool(self._signature.symbols()) or bool(self._maker.governed_times) or new

    def _try_outline(self, number: int, outline: CaseOutline) -> None:
        step = next(self._step)
        narrow = replace(outline.style, wide=False)
        plain = replace(narrow, values="usual")
        dear: dict[str, int] = {}
        # Without NaN and infinity, the case that has them would be another usual one.
        plainer = () if outline.style.values == "guarded" else (narrow, plain)
        for style in dict.fromkeys((outline.style, *plainer)):
            for groups in self._sizes_to_try(number, outline):
                if not self._is_affordable(groups):
                    dear = dear or groups
                elif self._attempt(step, groups, style, {}):
                    self._spend_budget(groups)
                    return
        if dear and dear not in (self._signature.group_sizes(case.dims) for case in self._cases):
            self.left_out.append(self._maker.describe_sizes(dear))

    def _sizes_to_try(self, number: int, outline: CaseOutline) -> Iterator[dict[str, int]]:
        """Yield the sizes of an outline, then fallbacks: fewer rows, lengths known to run."""
        batch = self._signature.batch
        tried: set[tuple[tuple[str, int], ...]] = set()
        for rows, lengths in self._rows_and_lengths(number, outline):
            groups = ({} if batch is None else {batch: rows}) | lengths
            groups |= {
                g: v[number % len(v)] for g, v in self._requested_sizes.items() if g in groups
            }
            if batch is not None and batch in self._requested_sizes and outline.rows > 1:
                groups[batch] = max(self._requested_sizes[batch])
            groups = self._signature.rules.fit(groups, self._requested_sizes)
            key = tuple(sorted(groups.items()))
            if key not in tried:
                tried.add(key)
                yield groups

    def _lengths_to_try(self, length: int, unit: int) -> list[int]:
        """Return lengths near one, the preferred first: ever shorter ones, or one that fits.

        Args:
            length: How long the case should be.
            unit: What the lengths of all cases that ran are multiples of, as patches are.
        """
        first = self._signature.fresh[:1] or self._signature.times[:1]
        least = min((x[t] for x in self._usual for t in first), default=1)
        if unit > 1:
            return [least + unit * (length // unit if length > _FRAMED else length % 7)]
        lengths = [length] if least <= length else [length + least]
        while lengths[-1] > _MULTIPLE * 2:
            lengths.append(lengths[-1] // 2)
        return lengths

    def _rows_and_lengths(
        self, number: int, outline: CaseOutline
    ) -> Iterator[tuple[int, dict[str, int]]]:
        signature = self._signature
        times = ([n for g, n in x.items() if g != signature.batch] for x in self._usual)
        unit = math.gcd(*(max(sizes, default=1) for sizes in times))
        by_frames = sorted(self._usual, key=self._frame_count)
        fallback = by_frames[-1 if outline.length > _MULTIPLE else number % len(by_frames)]
        lengths = self._lengths_to_try(outline.length, unit)
        candidates = [self._time_sizes(n, outline.past) for n in lengths]
        if unit == 1 and not any(map(is_image, signature.inputs)):
            others = {t: outline.other + 2 * k for k, t in enumerate(signature.fresh[1:])}
            if others:
                candidates.insert(0, {**candidates[0], **others})
        candidates.append({t: n for t, n in fallback.items() if t != signature.batch})
        fewer = () if signature.batch is None else (min(2, outline.rows), 1)
        for candidate in candidates:
            yield outline.rows, candidate
        yield from itertools.product(fewer, (candidates[0], candidates[-1]))

    def _time_sizes(self, length: int, past: int) -> dict[str, int]:
        """Return the sizes of all groups but the batch; untied times get different ones."""
        sizes: dict[str, int] = {}
        for place, time in enumerate(self._signature.fresh):
            if place and length <= _SHORT:
                sizes[time] = 1
            elif length % _MULTIPLE == 0:
                sizes[time] = max(length - _MULTIPLE * place, _MULTIPLE)
            else:
                sizes[time] = length // (place + 1) + 2 * place
        return sizes | dict.fromkeys(self._signature.past, past)

    def _is_affordable(self, groups: Mapping[str, int]) -> bool:
        if self._frame_count(groups) > min(self._frames_left, self._most_frames):
            return False
        return self._work.multiplications_at(groups) <= min(self._work_left, self._most_work)

    def _spend_budget(self, groups: Mapping[str, int]) -> None:
        self._frames_left -= self._frame_count(groups)
        self._work_left -= self._work.multiplications_at(groups)

    def _frame_count(self, groups: Mapping[str, int]) -> int:
        """Return the cost of a case: rows times the longest's frames, or height times width."""
        try:
            sizes = self._signature.symbol_sizes(groups)
        except FeedError:  # a dim such as T - 5 would be negative
            return 0
        most = max(
            [1, *(math.prod(size_of_dim(d, sizes) for d in free) for free in self._symbolic_dims)]
        )
        return -(-most // self._hop)

    @cached_property
    def _symbolic_dims(self) -> list[tuple[Dim, ...]]:
        """Return the symbolic dims of each content input, each combination once."""
        items = (x for x in self._signature.inputs if x.role.kind in ("data", "tokens"))
        return list({tuple(d for d in x.dims if not isinstance(d, int)): None for x in items})

    # Sizes at which a graph decides

    def _cover_targets(self) -> None:
        """Try a size for each target that no case meets, as far as they are few."""
        signature, tried = self._signature, 0
        for targets in self._targets if self._usual else ():
            if self._are_met_together(targets):
                continue
            sizes = [x for x in self._sizes_meeting(targets) if self._is_affordable(x)]
            if not sizes and len(targets) == 1 and targets[0].number > 0 and not targets[0].other:
                self.unmet.append(targets[0].describe(signature.user_name))
            # What is the larger of two sizes is met by a change of either.
            for groups in sizes if targets[0].other else sizes[:1]:
                tried += 1
                if tried > _MOST_TARGETS:
                    return
                if self._attempt(next(self._step), groups, Style("all full"), {}):
                    self._spend_budget(groups)

    def _sizes_meeting(self, targets: Sequence[SizeTarget]) -> Iterator[dict[str, int]]:
        """Yield sizes that meet all targets: each varies one more group of the smallest ones."""
        batch = self._signature.batch
        candidates = [self._smallest_sizes()]
        if batch is not None and batch not in self._requested_sizes:
            candidates[0][batch] = min(x[batch] for x in self._usual)
        for target in targets:
            candidates = [x for base in candidates for x in self._vary(base, target)]
        rules = self._signature.rules
        yield from (x for x in candidates if rules.fit(x, self._requested_sizes) == x)

    def _vary(self, base: Mapping[str, int], target: SizeTarget) -> Iterator[dict[str, int]]:
        """Yield sizes that meet a target, the least for each group of which one varies."""
        signature = self._signature
        within = {signature.group_of(x) for x in target.symbols}
        for group in (*signature.times, *filter(None, [signature.batch])):
            if group not in within or group in self._requested_sizes:
                continue
            sizes = np.arange(1, _LARGEST_TARGET)
            met = np.flatnonzero(target.are_met(self._symbol_arrays({**base, group: sizes})))
            if met.size:
                yield {**base, group: int(sizes[met[0]])}

    def _are_met_together(self, targets: Sequence[SizeTarget]) -> bool:
        """Return whether one of the cases meets all targets."""
        cases = [self._signature.group_sizes(case.dims) for case in self._cases]
        arrays = {group: np.asarray([x[group] for x in cases]) for group in cases[0]}
        met = [target.are_met(self._symbol_arrays(arrays)) for target in targets]
        return bool(np.logical_and.reduce(met).any())

    def _symbol_arrays(self, groups: Mapping[str, int | Ints]) -> dict[str, Ints]:
        """Return several sizes of each symbol, for those of each group."""
        signature = self._signature
        free = [x for x in signature.symbols() if x not in signature.derived]
        sizes = {x: np.asarray(groups[signature.group_of(x)], np.int64) for x in free}
        for symbol, dim in signature.derived.items():
            sizes[symbol] = np.asarray(compile_dim(dim)(sizes))
        return sizes

    # Inputs that select

    def _cover_options(self) -> None:
        """Try every combination of the values of selector inputs, as far as they are few."""
        options = self._maker.options
        if not options or not self._usual:
            return
        groups = self._smallest_sizes()
        batch = self._variable_batch(options)
        self._cover_uniform_options(options, groups, batch)
        for _ in range(_MOST_CHOICES):
            missing = self._missing_combinations(options)
            if not missing:
                return
            count = 1 if batch is None else min(len(missing), _MOST_ROWS)
            if batch is not None:
                groups[batch] = count
            rows = self._maker.row_count(self._signature.symbol_sizes(groups))
            combinations = [missing[row % count] for row in range(max(rows, 1))]
            chosen = {name: tuple(x[name] for x in combinations) for name in options}
            if not self._is_affordable(groups):
                self.left_out.append(self._maker.describe_sizes(groups))
                return
            self._spend_budget(groups)
            if not self._attempt(next(self._step), groups, Style("all full"), chosen):
                return

    def _smallest_sizes(self) -> dict[str, int]:
        """Return the cheapest usual sizes, none too short unless the user asks for it."""
        groups = min(self._usual, key=self._frame_count)
        return {t: n if t in self._requested_sizes else max(n, _SHORT) for t, n in groups.items()}

    def _variable_batch(self, options: PerRow) -> str | None:
        """Return the batch, if its size is free and every row may select another value."""
        batch = self._signature.batch
        has_rows = all(self._signature.input_named(name).rows is not None for name in options)
        return batch if has_rows and batch not in self._requested_sizes else None

    def _cover_uniform_options(
        self, options: PerRow, groups: dict[str, int], batch: str | None
    ) -> None:
        """Try each value for all rows, as when one clip runs alone."""
        if batch is not None:
            groups = groups | {batch: 1}
        rows = max(self._maker.row_count(self._signature.symbol_sizes(groups)), 1)
        had = {
            (name, int(array.reshape(-1)[0]))
            for case in self._cases
            for name in options
            if (array := case.feeds[name]).size and (array == array.reshape(-1)[0]).all()
        }
        for k in range(min(_MOST_ALONE, max(map(len, options.values())))):
            combination = {name: v[(k + k // len(v)) % len(v)] for name, v in options.items()}
            if all(pair in had for pair in combination.items()) or not self._is_affordable(groups):
                continue
            chosen = {name: (value,) * rows for name, value in combination.items()}
            if self._attempt(next(self._step), groups, Style("all full"), chosen):
                self._spend_budget(groups)

    def _missing_combinations(self, options: PerRow) -> list[dict[str, int]]:
        """Return the combinations that no row has had."""
        had: set[tuple[int, ...]] = set()
        for case in self._cases:
            arrays = [case.feeds[name].reshape(-1) for name in options]
            rows = max(array.size for array in arrays)
            had |= {tuple(int(a[min(r, a.size - 1)]) for a in arrays) for r in range(rows)}
        first = itertools.islice(itertools.product(*options.values()), _MOST_ROWS * _MOST_CHOICES)
        return [
            dict(zip(options, combination, strict=True))
            for combination in first
            if combination not in had
        ]
