"""Arrays of one case at given sizes: data, tokens, masks, lengths, positions."""

import math
import zlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphfix.errors import FeedError
from graphfix.feeds import array_fill
from graphfix.feeds.case import Array, Case, PerRow, key_by_user_name
from graphfix.feeds.case_style import USUAL, Ends, Style, row_lengths
from graphfix.feeds.input import Input
from graphfix.feeds.roles import TELLS
from graphfix.feeds.signature import Signature
from graphfix.spec.quoting import quote_name

# (rows, length) of the usual cases, in the order they are tried. A length of 1 and 2 finds
# off-by-ones, an odd one wrong roundings, two rows of different lengths a mask that is ignored.
SCHEDULE = ((1, 7), (1, 1), (2, 2), (2, 23), (3, 40))
# As many rows as a case of the schedule has at most, and more: choices differ from step to step.
_ROWS = 5
_LARGE = ("bumps", "spikes", "loud")
# What an input is made up of at most: a gigabyte of float64.
_MOST = 1 << 27


class CaseMaker:
    """Makes the arrays of a case for given sizes.

    Args:
        signature: The inputs.
        seed: The same seed makes the same arrays.
        positive: Whether floats are above 0 in every case, for a graph that takes a logarithm.

    Attributes:
        governed_times: The times along which a mask or a length says what is content.
        has_floats: Whether some input is made of any numbers.
        options: The values of each input that selects.
    """

    def __init__(self, signature: Signature, seed: int, *, positive: bool = False) -> None:
        self._signature = signature
        self._seed = seed
        self._positive = positive
        self.governed_times = _times_with_lengths(signature)
        self.has_floats = any(
            x.role.kind == "data" and np.dtype(x.dtype).kind in "fV" for x in signature.inputs
        )
        self._images = any(map(array_fill.is_image, signature.inputs))
        self.options = {
            x.name: values for x in signature.inputs if (values := array_fill.selector_values(x))
        }

    def make_case(
        self,
        step: int,
        groups: Mapping[str, int],
        valid: PerRow | None = None,
        style: Style = USUAL,
        chosen: PerRow | None = None,
    ) -> Case:
        """Make the case of one step at the given sizes.

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
        if not self.has_floats:
            style = replace(style, values="usual")
        elif self._images and style.values in _LARGE:
            style = replace(style, values="pixels")
        sizes = self._signature.symbol_sizes(groups)
        rows = self.row_count(sizes)
        lengths = {
            time: _only_row_length(groups[time], step, style.ends)
            if rows == 1 and self._signature.batch is None and style == USUAL
            else row_lengths(style.ends, groups[time], rows, step)
            for time in self.governed_times
        }
        lengths |= {time: rows for time, rows in (valid or {}).items() if time in lengths}
        picked = {**self._pick_options(step, rows), **(chosen or {})}
        for item in self._signature.inputs:
            if math.prod(item.shape_at(sizes)) > _MOST:
                raise FeedError(f"{item.name!r} would have more than {_MOST:,} elements")
        details = (step, sizes, lengths, rows, style, picked)
        feeds = {item.name: self._make_array(item, *details) for item in self._signature.inputs}
        if style.other:
            feeds |= self._override_defaults(step)
        feeds |= self._signature.constants
        valid_lengths = {
            s: lengths[time]
            for time in self.governed_times
            for s in self._signature.symbols_in(time)
        }
        valid_lengths = {
            s: v
            for s, v in valid_lengths.items()
            if sizes[s] == groups[self._signature.group_of(s)]
        }
        name = self.describe_sizes(groups, lengths) or f"fixed shape, set {step + 1}"
        return Case(
            f"{name}, {style.label}" if style.label else name,
            key_by_user_name(self._signature, sizes),
            feeds,
            key_by_user_name(self._signature, valid_lengths),
            side=style.side,
            large_caches=bool(self._signature.past) and style.values in _LARGE,
        )

    def pads_by_id(self, item: Input) -> bool:
        """Return whether the graph can recognise padding of ``item`` only by a special token id."""
        asks = item.role.kind == "tokens" and bool(item.role.choices) and item.time is not None
        return asks and self._signature.time_of(item) not in self.governed_times

    def row_count(self, sizes: Mapping[str, int]) -> int:
        """Return the number of rows in a batch, for a size of each symbol."""
        if self._signature.batch is not None:
            return sizes[self._signature.batch]
        fixed = [x.dims[x.rows] for x in self._signature.inputs if x.rows is not None]
        return next((d for d in fixed if isinstance(d, int)), 1)

    def describe_sizes(self, groups: Mapping[str, int], lengths: PerRow | None = None) -> str:
        """Return the sizes of a case as text, in the user's names."""
        parts = [f"{quote_name(self._signature.user_name(g))}={n}" for g, n in groups.items()]
        for time, rows in (lengths or {}).items():
            if any(n < groups[time] for n in rows):
                parts.append(f"lengths {','.join(map(str, rows))}")
        return " ".join(parts)

    def _pick_options(self, step: int, rows: int) -> dict[str, tuple[int, ...]]:
        """Return a value for each row of selector inputs, in other combinations at other steps."""
        picks: dict[str, tuple[int, ...]] = {}
        stride = 1
        for name, values in self.options.items():
            item = self._signature.input_named(name)
            each = item.rows is not None and item.role.kind == "tokens"
            first = step * (_ROWS if each else 1)
            turn = [(first + (row if each else 0)) // stride for row in range(max(rows, 1))]
            picks[name] = tuple(values[k % len(values)] for k in turn)
            stride = stride * len(values) if stride * len(values) <= 4 * _ROWS else 1
        return picks

    def _override_defaults(self, step: int) -> dict[str, Array]:
        """Return other values for the inputs that have a default."""
        rng = np.random.default_rng([self._seed, step])
        overrides: dict[str, Array] = {}
        for name, default in self._signature.defaults.items():
            if default.dtype.kind in "fV":
                overrides[name] = (default * 1.5 + rng.uniform(0.2, 0.8)).astype(default.dtype)
        return overrides

    def _make_array(
        self,
        item: Input,
        step: int,
        sizes: Mapping[str, int],
        lengths: PerRow,
        rows: int,
        style: Style,
        picked: PerRow,
    ) -> Array:
        item = item.bounded_by_sizes(sizes)
        shape, role = item.shape_at(sizes), item.role
        rng = np.random.default_rng([self._seed, step, zlib.crc32(item.name.encode())])
        if style.other and not role.sure:
            return array_fill.draw_other_reading(rng, item, shape)
        time = self._signature.time_of(item)
        valid = lengths.get(time) if time is not None else None
        full_length = sizes[time] if time is not None else 0
        if role.kind == "mask":
            if valid is None:  # its length is a number: some rows are shorter all the same
                full_length = shape[item.time] if item.time is not None else 1
                valid = row_lengths(style.ends, full_length, rows, step)
            return array_fill.make_mask(item, shape, valid, full_length, style.side)
        if role.kind in ("lengths", "relative-lengths"):
            if valid is None:
                valid = self._fixed_lengths(rows, step, style.ends)
            divisor = max(full_length, 1) if role.kind == "relative-lengths" else 1
            return array_fill.repeat_rows(np.asarray(valid) / divisor, shape).astype(item.dtype)
        if role.kind == "cu-lengths":
            return (
                np.linspace(0, full_length, int(np.prod(shape))).reshape(shape).astype(item.dtype)
            )
        if role.kind == "positions":
            axis = item.time if item.time is not None else len(shape) - 1
            start = max((sizes[t] for t in self._signature.past), default=0) if style.wide else 0
            return array_fill.count_positions(shape, axis, role, start).astype(item.dtype)
        if item.name in picked:
            return array_fill.repeat_rows(np.asarray(picked[item.name]), shape).astype(item.dtype)
        array = array_fill.draw_content(rng, item, shape, style, positive=self._positive)
        if self.pads_by_id(item) and style.ends in ("first short", "none full"):
            ends = row_lengths(style.ends, shape[item.time or 0], rows, step)
            padding = array_fill.padding_mask(item, shape, ends, style.side)
            array[padding] = role.choices[step % len(role.choices)]
            return array
        beyond = (
            array_fill.padding_mask(item, shape, valid, style.side) if valid is not None else None
        )
        if beyond is not None:
            array[beyond] = role.choices[0] if role.choices else role.low
        return array

    def _fixed_lengths(self, rows: int, step: int, ends: Ends) -> tuple[int, ...]:
        """Return row lengths where the time axis has a fixed size."""
        items = (x for x in self._signature.inputs if x.role.kind in ("data", "tokens"))
        dims = (d for x in items for a, d in enumerate(x.dims) if a != x.rows)
        return row_lengths(ends, next((d for d in dims if isinstance(d, int)), 1), rows, step)


def _times_with_lengths(signature: Signature) -> list[str]:
    """Return the times along which a mask or a length says what is content."""
    times = [signature.time_of(x) for x in signature.inputs if x.role.kind in TELLS]
    return list(dict.fromkeys(t for t in times if t is not None))


def _only_row_length(full_length: int, step: int, ends: Ends) -> tuple[int, ...]:
    """Return the length of the only row, which is padded in the last usual case."""
    return (max(1, round(full_length * 0.7)),) if step == len(SCHEDULE) - 1 else (full_length,)
