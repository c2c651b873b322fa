"""The arrays of one case, made for given sizes: data, tokens, masks, lengths, positions."""

import math
import zlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphfix.errors import FeedError
from graphfix.feeds import array_fill
from graphfix.feeds.case import Array, Case, PerRow, named
from graphfix.feeds.case_style import USUAL, Ends, Style, ends_of
from graphfix.feeds.input import Input
from graphfix.feeds.roles import TELLS
from graphfix.feeds.signature import Signature
from graphfix.spec.quoting import quoted

# (rows, length) of the usual cases, in the order they are tried. A length of 1 and 2 finds
# off-by-ones, an odd one wrong roundings, two rows of different lengths a mask that is ignored.
SCHEDULE = ((1, 7), (1, 1), (2, 2), (2, 23), (3, 40))
# As many rows as a case of the schedule has at most, and more: choices differ from step to step.
_ROWS = 5
_LARGE = ("bumps", "spikes", "loud")
# What an input is made up of at most: a gigabyte of float64.
_MOST = 1 << 27


class Maker:
    """Makes the arrays of a case for given sizes.

    Args:
        signature: The inputs.
        seed: The same seed makes the same arrays.
        positive: Whether floats are above 0 in every case, for a graph that takes a logarithm.

    Attributes:
        governed: The times along which a mask or a length says what is content.
        floats: Whether some input is made of any numbers.
        options: The values of each input that selects.
    """

    def __init__(self, signature: Signature, seed: int, *, positive: bool = False) -> None:
        self._signature = signature
        self._seed = seed
        self._positive = positive
        self.governed = _governed(signature)
        self.floats = any(
            x.role.kind == "data" and np.dtype(x.dtype).kind in "fV" for x in signature.inputs
        )
        self._images = any(map(array_fill.is_image, signature.inputs))
        self.options = {
            x.name: values for x in signature.inputs if (values := array_fill.options_of(x))
        }

    def case(
        self,
        step: int,
        groups: Mapping[str, int],
        valid: PerRow | None = None,
        style: Style = USUAL,
        chosen: PerRow | None = None,
    ) -> Case:
        """A case.

        Args:
            step: Which of a choice to take; another step makes other arrays, too.
            groups: The size of each group of symbols.
            valid: How much of a time is content in each row, by its group; where a mask or a
                length governs a time that is not named here, the style says it.
            style: How arrays are made.
            chosen: The value in each row of inputs that select; what is not named here follows
                from the step.

        Raises:
            FeedError: A dim would have a negative size, or an input too many elements.
        """
        if not self.floats:
            style = replace(style, values="usual")
        elif self._images and style.values in _LARGE:
            style = replace(style, values="pixels")
        sizes = self._signature.sizes(groups)
        rows = self.rows(sizes)
        lengths = {
            time: _single(groups[time], step, style.ends)
            if rows == 1 and self._signature.batch is None and style == USUAL
            else ends_of(style.ends, groups[time], rows, step)
            for time in self.governed
        }
        lengths |= {time: rows for time, rows in (valid or {}).items() if time in lengths}
        picked = {**self._picked(step, rows), **(chosen or {})}
        for item in self._signature.inputs:
            if math.prod(item.shape(sizes)) > _MOST:
                raise FeedError(f"{item.name!r} would have more than {_MOST:,} elements")
        given = (step, sizes, lengths, rows, style, picked)
        feeds = {item.name: self._fill(item, *given) for item in self._signature.inputs}
        if style.other:
            feeds |= self._overridden(step)
        feeds |= self._signature.constants
        known = {s: lengths[time] for time in self.governed for s in self._signature.members(time)}
        known = {s: v for s, v in known.items() if sizes[s] == groups[self._signature.group(s)]}
        name = self.name(groups, lengths) or f"fixed shape, set {step + 1}"
        return Case(
            f"{name}, {style.label}" if style.label else name,
            named(self._signature, sizes),
            feeds,
            named(self._signature, known),
            side=style.side,
            beyond=bool(self._signature.past) and style.values in _LARGE,
        )

    def pads_by_id(self, item: Input) -> bool:
        """Whether the graph may tell padding by an id that it asks for, and by nothing else."""
        asks = item.role.kind == "tokens" and bool(item.role.choices) and item.time is not None
        return asks and self._signature.time_of(item) not in self.governed

    def rows(self, sizes: Mapping[str, int]) -> int:
        """How many rows a batch has, for a size of each symbol."""
        if self._signature.batch is not None:
            return sizes[self._signature.batch]
        fixed = [x.dims[x.rows] for x in self._signature.inputs if x.rows is not None]
        return next((d for d in fixed if isinstance(d, int)), 1)

    def name(self, groups: Mapping[str, int], lengths: PerRow | None = None) -> str:
        """The sizes of a case, in the user's names."""
        parts = [f"{quoted(self._signature.user_name(g))}={n}" for g, n in groups.items()]
        for time, rows in (lengths or {}).items():
            if any(n < groups[time] for n in rows):
                parts.append(f"lengths {','.join(map(str, rows))}")
        return " ".join(parts)

    def _picked(self, step: int, rows: int) -> dict[str, tuple[int, ...]]:
        """The value in each row of inputs that select: other combinations in other steps."""
        found: dict[str, tuple[int, ...]] = {}
        stride = 1
        for name, values in self.options.items():
            item = self._signature.item(name)
            each = item.rows is not None and item.role.kind == "tokens"
            first = step * (_ROWS if each else 1)
            turn = [(first + (row if each else 0)) // stride for row in range(max(rows, 1))]
            found[name] = tuple(values[k % len(values)] for k in turn)
            stride = stride * len(values) if stride * len(values) <= 4 * _ROWS else 1
        return found

    def _overridden(self, step: int) -> dict[str, Array]:
        """Other values for the inputs that have a default."""
        rng = np.random.default_rng([self._seed, step])
        found: dict[str, Array] = {}
        for name, default in self._signature.defaults.items():
            if default.dtype.kind in "fV":
                found[name] = (default * 1.5 + rng.uniform(0.2, 0.8)).astype(default.dtype)
        return found

    def _fill(
        self,
        item: Input,
        step: int,
        sizes: Mapping[str, int],
        lengths: PerRow,
        rows: int,
        style: Style,
        picked: PerRow,
    ) -> Array:
        item = item.at(sizes)
        shape, role = item.shape(sizes), item.role
        rng = np.random.default_rng([self._seed, step, zlib.crc32(item.name.encode())])
        if style.other and not role.sure:
            return array_fill.other_reading(rng, item, shape)
        time = self._signature.time_of(item)
        valid = lengths.get(time) if time is not None else None
        whole = sizes[time] if time is not None else 0
        if role.kind == "mask":
            if valid is None:  # its length is a number: some rows are shorter all the same
                whole = shape[item.time] if item.time is not None else 1
                valid = ends_of(style.ends, whole, rows, step)
            return array_fill.mask_of(item, shape, valid, whole, style.side)
        if role.kind in ("lengths", "relative-lengths"):
            if valid is None:
                valid = self._fixed_lengths(rows, step, style.ends)
            divisor = max(whole, 1) if role.kind == "relative-lengths" else 1
            return array_fill.per_row(np.asarray(valid) / divisor, shape).astype(item.dtype)
        if role.kind == "cu-lengths":
            return np.linspace(0, whole, int(np.prod(shape))).reshape(shape).astype(item.dtype)
        if role.kind == "positions":
            axis = item.time if item.time is not None else len(shape) - 1
            start = max((sizes[t] for t in self._signature.past), default=0) if style.wide else 0
            return array_fill.counting(shape, axis, role, start).astype(item.dtype)
        if item.name in picked:
            return array_fill.per_row(np.asarray(picked[item.name]), shape).astype(item.dtype)
        array = array_fill.numbers(rng, item, shape, style, positive=self._positive)
        if self.pads_by_id(item) and style.ends in ("first short", "none full"):
            ends = ends_of(style.ends, shape[item.time or 0], rows, step)
            padding = array_fill.beyond_in(item, shape, ends, style.side)
            array[padding] = role.choices[step % len(role.choices)]
            return array
        beyond = array_fill.beyond_in(item, shape, valid, style.side) if valid is not None else None
        if beyond is not None:
            array[beyond] = role.choices[0] if role.choices else role.low
        return array

    def _fixed_lengths(self, rows: int, step: int, ends: Ends) -> tuple[int, ...]:
        """Lengths where the time axis is a number."""
        items = (x for x in self._signature.inputs if x.role.kind in ("data", "tokens"))
        dims = (d for x in items for a, d in enumerate(x.dims) if a != x.rows)
        return ends_of(ends, next((d for d in dims if isinstance(d, int)), 1), rows, step)


def _governed(signature: Signature) -> list[str]:
    """The times along which a mask or a length says what is content."""
    found = [signature.time_of(x) for x in signature.inputs if x.role.kind in TELLS]
    return list(dict.fromkeys(t for t in found if t is not None))


def _single(whole: int, step: int, ends: Ends) -> tuple[int, ...]:
    """The only row there can ever be: padded in the last of the usual cases."""
    return (max(1, round(whole * 0.7)),) if step == len(SCHEDULE) - 1 else (whole,)
