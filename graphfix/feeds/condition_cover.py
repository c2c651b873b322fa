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
from graphfix.facts.symbolic.expressions import Dim, evaluator
from graphfix.feeds.arrays import Maker
from graphfix.feeds.case import Case, PerRow
from graphfix.feeds.case_style import Style
from graphfix.feeds.input import size_of, symbols
from graphfix.feeds.run_cost import Work
from graphfix.feeds.signature import Signature

Attempt = Callable[[int, Mapping[str, int], Style, PerRow], bool]


@dataclass(frozen=True)
class Outline:
    """A case that is wanted; sizes that the model does not run at are changed, not the style."""

    rows: int
    length: int
    past: int
    style: Style


# What DirectML is given: one clip in a container.
_ALONE = Outline(1, 20, 8, Style("none full"))
# With 7, 1, 2, 23 and 40: lengths of every residue mod 2, 3, 4, 5 and 8, and multiples of 32; up
# to nine rows; one length over 64 and one over 256; caches over 8, and one token behind a cache.
OUTLINES = (
    Outline(5, 12, 20, Style("all full", values="spikes", wide=True)),
    Outline(4, 15, 3, Style("first short", values="bumps")),
    Outline(3, 18, 0, Style("first short", side="left")),
    Outline(9, 25, 6, Style("first short")),
    Outline(2, 96, 7, Style("none full", values="loud", wide=True)),
    Outline(1, 261, 33, Style("all full")),
    Outline(3, 14, 0, Style("an empty row")),
    Outline(9, 3, 12, Style("all full", values="silent")),
    Outline(6, 4, 1, Style("all full", values="positive")),
    _ALONE,
    Outline(2, 1, 17, Style("all full", wide=True)),
    Outline(2, 9, 5, Style("all full", other=True)),
)
# Numbers that differ from those of the usual cases and of the larger sizes.
_FIRST_STEP = 32
# Rows times length of these cases together: at most this, or twice that of the usual ones.
_FRAMES = 1800
# Multiplications of these cases together, or those of the usual ones: some ten seconds on two
# cores. A row of a model for images of a fixed size may take a tenth of them.
_WORK = 200_000_000_000
# So many cases are made at most for inputs that select, and so many rows put into one.
_MOST_CHOICES, _MOST_ROWS, _MOST_ALONE = 8, 32, 16
_SHORT = 3
# Sizes that a model may want multiples of, such as the height and width of images.
_MULTIPLE = 32


# One second of a waveform, and the length up to which the others have several frames of any hop.
_SECOND, _FRAMED = 16_000, 261


def hop_of(signature: Signature) -> int:
    """How many steps of the first time are one frame, where the graph makes the fewest of them.

    The strides of convolutions, multiplied along the way, the hop of an STFT, the step of a Slice.
    """
    if not signature.fresh:
        return 1
    fixed, first = dict.fromkeys(signature.groups, 8), signature.fresh[0]
    try:
        short, long = (signature.sizes({**fixed, first: n}) for n in (1 << 24, 1 << 25))
    except FeedError:  # a dim that does not follow from the others
        return 1
    sizes = {s: np.asarray([n, long[s]], np.int64) for s, n in short.items()}
    hop = 1
    for dim in {d for dims in signature.value_dims().values() for d in dims}:
        if symbols(dim) and symbols(dim) <= sizes.keys():
            made = np.broadcast_to(evaluator(dim)(sizes), 2)  # the symbol may cancel
            grown = int(made[1]) - int(made[0])
            hop = max(hop, round((1 << 24) / grown)) if grown > 0 else hop
    return hop


def is_waveform(signature: Signature) -> bool:
    """Whether some input is one number a time step, which a model must shorten first."""
    data = (x for x in signature.inputs if x.role.kind == "data" and x.time is not None)
    return any(all(d == 1 for a, d in enumerate(x.dims) if a not in (x.rows, x.time)) for x in data)


class Cover:
    """Makes the cases that hit what the usual ones do not.

    Args:
        signature: The inputs.
        maker: Makes arrays.
        wanted: Sizes that the user asks for, by group.
        found: The cases that ran, to which those that run are added by ``attempt``.
        attempt: Tries a case and says whether it ran.

    Attributes:
        left_out: Cases that would cost too much, in words.
    """

    def __init__(
        self,
        signature: Signature,
        maker: Maker,
        wanted: Mapping[str, Sequence[int]],
        found: Sequence[Case],
        attempt: Attempt,
    ) -> None:
        self._signature, self._maker, self._wanted = signature, maker, wanted
        self._found, self._attempt = found, attempt
        self._hop = hop_of(signature)
        self._usual = [signature.groups_in(case.dims) for case in found]
        usual = [self._frames(groups) for groups in self._usual]
        self._left = max(_FRAMES, 2 * sum(usual))
        self._most = max(_FRAMES // 3, *usual) if usual else 0
        self._work = Work(signature)
        work = [self._work.at(groups) for groups in self._usual]
        self._work_left = max(_WORK, sum(work))
        self._most_work = max(_WORK // 6, min(work)) if work else 0
        self._step = itertools.count(_FIRST_STEP)
        self._unsure = any(not x.role.sure for x in signature.inputs) or bool(signature.defaults)
        self._masks = any(x.role.kind == "mask" and x.time is not None for x in signature.inputs)
        self._masks |= any(maker.pads_by_id(x) for x in signature.inputs)
        self.left_out: list[str] = []

    def run(self) -> None:
        """Try them all."""
        for number, outline in enumerate((*OUTLINES, *self._strided())):
            if self._matters(outline):
                self._try(number, outline)
        self._choose()

    def _strided(self) -> Iterator[Outline]:
        """Several frames, where those of the others are within one or two; speech, and a second."""
        if is_waveform(self._signature):
            yield Outline(4, 19, 5, Style("all full", values="quiet"))
            if self._hop > 1:
                yield Outline(1, _SECOND, 0, Style("all full"))
        if 5 * self._hop > _FRAMED:
            yield Outline(2, 2 * self._hop + 1, 0, Style("first short"))
            yield Outline(1, 5 * self._hop - 1, 33, Style("all full"))

    def _matters(self, outline: Outline) -> bool:
        style = outline.style
        if style.other:
            return self._unsure
        if style.side == "left":
            return self._masks
        if style.ends == "an empty row" or outline == _ALONE:
            return bool(self._maker.governed)
        if style.values == "positive":
            return self._maker.floats
        new = style.values != "usual" or style.wide
        return bool(self._signature.symbols()) or bool(self._maker.governed) or new

    def _try(self, number: int, outline: Outline) -> None:
        step = next(self._step)
        plain = replace(outline.style, values="usual", wide=False)
        dear: dict[str, int] = {}
        for style in dict.fromkeys((outline.style, plain)):
            for groups in self._sizes(number, outline):
                if not self._affordable(groups):
                    dear = dear or groups
                elif self._attempt(step, groups, style, {}):
                    self._spend(groups)
                    return
        if dear and dear not in (self._signature.groups_in(case.dims) for case in self._found):
            self.left_out.append(self._maker.name(dear))

    def _sizes(self, number: int, outline: Outline) -> Iterator[dict[str, int]]:
        """The sizes of an outline, and those to fall back on: fewer rows, lengths known to run."""
        batch = self._signature.batch
        seen: set[tuple[tuple[str, int], ...]] = set()
        for rows, lengths in self._ways(number, outline):
            groups = ({} if batch is None else {batch: rows}) | lengths
            groups |= {g: v[number % len(v)] for g, v in self._wanted.items() if g in groups}
            if batch is not None and batch in self._wanted and outline.rows > 1:
                groups[batch] = max(self._wanted[batch])
            key = tuple(sorted(groups.items()))
            if key not in seen:
                seen.add(key)
                yield groups

    def _ways(self, number: int, outline: Outline) -> Iterator[tuple[int, dict[str, int]]]:
        signature = self._signature
        times = ([n for g, n in x.items() if g != signature.batch] for x in self._usual)
        ran = [max(sizes, default=1) for sizes in times]
        least = min(ran, default=1)
        lengths = [outline.length] if least < outline.length else [outline.length + least]
        while lengths[-1] > _MULTIPLE * 2:
            lengths.append(lengths[-1] // 2)
        unit = math.gcd(*ran)
        if unit > 1:  # patches, or images: another multiple
            more = outline.length // unit if outline.length > _FRAMED else outline.length % 7
            lengths = [least + unit * more]
        known = sorted(self._usual, key=self._frames)
        fallback = known[-1 if outline.length > _MULTIPLE else number % len(known)]
        ways = [self._times(n, outline.past) for n in lengths]
        ways.append({t: n for t, n in fallback.items() if t != signature.batch})
        fewer = () if signature.batch is None else (min(2, outline.rows), 1)
        for way in ways:
            yield outline.rows, way
        yield from itertools.product(fewer, (ways[0], ways[-1]))

    def _times(self, length: int, past: int) -> dict[str, int]:
        """Sizes of all groups but the batch: times that are not tied get different ones."""
        sizes: dict[str, int] = {}
        for place, time in enumerate(self._signature.fresh):
            if place and length <= _SHORT:
                sizes[time] = 1
            elif length % _MULTIPLE == 0:
                sizes[time] = max(length - _MULTIPLE * place, _MULTIPLE)
            else:
                sizes[time] = length // (place + 1) + 2 * place
        return sizes | dict.fromkeys(self._signature.past, past)

    def _affordable(self, groups: Mapping[str, int]) -> bool:
        if self._frames(groups) > min(self._left, self._most):
            return False
        return self._work.at(groups) <= min(self._work_left, self._most_work)

    def _spend(self, groups: Mapping[str, int]) -> None:
        self._left -= self._frames(groups)
        self._work_left -= self._work.at(groups)

    def _frames(self, groups: Mapping[str, int]) -> int:
        """Rows times the frames of the longest, or height times width: what a case costs."""
        try:
            sizes = self._signature.sizes(groups)
        except FeedError:  # a dim such as T - 5 would be negative
            return 0
        most = max([1, *(math.prod(size_of(d, sizes) for d in free) for free in self._free)])
        return -(-most // self._hop)

    @cached_property
    def _free(self) -> list[tuple[Dim, ...]]:
        """The open dims of each input of content, each combination once."""
        items = (x for x in self._signature.inputs if x.role.kind in ("data", "tokens"))
        return list({tuple(d for d in x.dims if not isinstance(d, int)): None for x in items})

    # Inputs that select

    def _choose(self) -> None:
        """Every value of inputs that select, in every combination as far as that is few."""
        options = self._maker.options
        if not options or not self._usual:
            return
        each = all(self._signature.item(name).rows is not None for name in options)
        batched = each and self._signature.batch not in (None, *self._wanted)
        groups = min(self._usual, key=lambda x: self._frames(x))
        groups = {t: max(n, _SHORT) if t not in self._wanted else n for t, n in groups.items()}
        self._alone(options, groups, batched)
        for _ in range(_MOST_CHOICES):
            missing = self._missing(options)
            if not missing:
                return
            count = min(len(missing), _MOST_ROWS) if batched else 1
            if batched and self._signature.batch:
                groups[self._signature.batch] = count
            rows = self._maker.rows(self._signature.sizes(groups))
            turn = [missing[row % count] for row in range(max(rows, 1))]
            chosen = {name: tuple(one[name] for one in turn) for name in options}
            if not self._affordable(groups):
                self.left_out.append(self._maker.name(groups))
                return
            self._spend(groups)
            if not self._attempt(next(self._step), groups, Style("all full"), chosen):
                return

    def _alone(self, options: PerRow, groups: dict[str, int], batched: bool) -> None:
        """Each value for all rows, as when one clip is run alone."""
        if batched and self._signature.batch:
            groups = groups | {self._signature.batch: 1}
        rows = max(self._maker.rows(self._signature.sizes(groups)), 1)
        had = {
            (name, int(array.reshape(-1)[0]))
            for case in self._found
            for name in options
            if (array := case.feeds[name]).size and (array == array.reshape(-1)[0]).all()
        }
        for k in range(min(_MOST_ALONE, max(map(len, options.values())))):
            one = {name: v[(k + k // len(v)) % len(v)] for name, v in options.items()}
            if all(pair in had for pair in one.items()) or not self._affordable(groups):
                continue
            chosen = {name: (value,) * rows for name, value in one.items()}
            if self._attempt(next(self._step), groups, Style("all full"), chosen):
                self._spend(groups)

    def _missing(self, options: PerRow) -> list[dict[str, int]]:
        """Combinations that no row has had."""
        had: set[tuple[int, ...]] = set()
        for case in self._found:
            arrays = [case.feeds[name].reshape(-1) for name in options]
            rows = max(array.size for array in arrays)
            had |= {tuple(int(a[min(r, a.size - 1)]) for a in arrays) for r in range(rows)}
        first = itertools.islice(itertools.product(*options.values()), _MOST_ROWS * _MOST_CHOICES)
        return [dict(zip(options, one, strict=True)) for one in first if one not in had]
