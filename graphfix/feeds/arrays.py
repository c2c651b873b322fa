"""Arrays of one case at given sizes: data, tokens, masks, lengths, positions."""

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from graphfix.errors import FeedError
from graphfix.feeds import array_fill
from graphfix.feeds.case import Array, Case, PerRow, key_by_user_name
from graphfix.feeds.case_style import USUAL, Style, row_lengths
from graphfix.feeds.input import Input
from graphfix.feeds.roles import LENGTH_KINDS
from graphfix.feeds.signature import Signature
from graphfix.spec.quoting import quote_name

# (rows, length) of the usual cases, in the order they are tried. A length of 1 and 2 finds
# off-by-ones, an odd one wrong roundings, two rows of different lengths a mask that is ignored.
SCHEDULE = ((1, 7), (1, 1), (2, 2), (2, 23), (3, 40))
# More rows than any case of the schedule has, so that options differ from step to step.
_ROWS = 5
_LARGE, _FULL_SCALE = ("bumps", "spikes", "loud"), ("recording", "pixels")
# The largest array that is made: a gigabyte of float64.
_MOST_ELEMENTS = 1 << 27


@dataclass(frozen=True)
class _CasePlan:
    """What all arrays of a case are made from.

    Attributes:
        step: Another step makes other arrays.
        sizes: The size of each symbol.
        lengths: How much of each row is content, by the time that a mask or a length governs.
        rows: How many rows there are.
        style: How arrays are made.
        chosen: The value in each row of the inputs that select.
    """

    step: int
    sizes: Mapping[str, int]
    lengths: PerRow
    rows: int
    style: Style
    chosen: PerRow


class CaseMaker:
    """Makes the arrays of a case for given sizes.

    Args:
        signature: The inputs.
        seed: The same seed makes the same arrays.
        positive: Whether floats are above 0 in every case, for a graph that takes a logarithm.

    Attributes:
        governed_times: The times along which a mask or a length says what is content.
        has_floats: Whether some input takes floats of any size.
        has_ties: Whether the graph decides by equal or half-way floats of some input.
        has_guards: Whether it guards against NaN or infinity in some input.
        options: The values of each input that selects.
    """

    def __init__(self, signature: Signature, seed: int, *, positive: bool = False) -> None:
        self._signature = signature
        self._seed = seed
        self._positive = positive
        self.governed_times = _times_with_lengths(signature)
        floats = [
            x.role
            for x in signature.inputs
            if x.role.kind == "data" and np.dtype(x.dtype).kind in "fV"
        ]
        self.has_floats = bool(floats)
        self.has_ties = any(role.uses.ties for role in floats)
        self.has_guards = any(role.uses.guarded for role in floats)
        self._images = any(map(array_fill.is_image, signature.inputs))
        self._scaled_waves = any(
            x.role.full_scale is not None and array_fill.is_wave(x) for x in signature.inputs
        )
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
        style = self._suitable_style(style)
        sizes = self._signature.symbol_sizes(groups)
        rows = self.row_count(sizes)
        lengths = self._row_lengths(groups, rows, step, style)
        lengths |= {time: ends for time, ends in (valid or {}).items() if time in lengths}
        for item in self._signature.inputs:
            if math.prod(item.shape_at(sizes)) > _MOST_ELEMENTS:
                raise FeedError(f"{item.name!r} would have more than {_MOST_ELEMENTS:,} elements")
        options = {**self._pick_options(step, rows), **(chosen or {})}
        plan = _CasePlan(step, sizes, lengths, rows, style, options)
        feeds = {item.name: self._make_array(item, plan) for item in self._signature.inputs}
        if style.other:
            feeds |= self._override_defaults(step)
        feeds |= self._signature.constants
        name = self.describe_sizes(groups, lengths) or f"fixed shape, set {step + 1}"
        return Case(
            f"{name}, {style.label}" if style.label else name,
            self._dims_of_case(sizes),
            feeds,
            key_by_user_name(self._signature, self._valid_lengths(groups, plan)),
            side=style.side,
            large_caches=bool(self._signature.past) and style.values in _LARGE,
            full_scale=style.values in _FULL_SCALE,
            poison="guarded numbers" if style.values == "guarded" else "",
        )

    def element_count(self, groups: Mapping[str, int]) -> int:
        """Return how many elements the inputs of a case have; 0 at impossible sizes."""
        try:
            sizes = self._signature.symbol_sizes(groups)
            return sum(math.prod(item.shape_at(sizes)) for item in self._signature.inputs)
        except FeedError:  # a dim such as T - 5 would be negative
            return 0

    def _dims_of_case(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the size of each dim by the user's names, those that the graph dictates too."""
        forced = {name: x.size for name, x in self._signature.forced.items()}
        return key_by_user_name(self._signature, sizes) | forced

    def _suitable_style(self, style: Style) -> Style:
        """Return the style with values that suit the inputs: images have no values over 255."""
        if style.values == "ties" and not self.has_ties:
            return replace(style, values="usual")
        if self._images and style.values in _LARGE:
            return replace(style, values="pixels")
        if self._scaled_waves and style.values == "loud":
            return replace(style, values="recording")
        suits_integers = style.values in ("recording", "silent") and self._scaled_waves
        return style if self.has_floats or suits_integers else replace(style, values="usual")

    def _row_lengths(
        self, groups: Mapping[str, int], rows: int, step: int, style: Style
    ) -> dict[str, tuple[int, ...]]:
        """Return how much of each row is content, for each time that a mask or a length governs."""
        has_one_row = rows == 1 and self._signature.batch is None and style == USUAL
        return {
            time: _only_row_length(groups[time], step)
            if has_one_row
            else row_lengths(style.ends, groups[time], rows, step)
            for time in self.governed_times
        }

    def _valid_lengths(
        self, groups: Mapping[str, int], plan: _CasePlan
    ) -> dict[str, tuple[int, ...]]:
        """Return how much of each row is content, by the symbols that are as long as their time."""
        return {
            symbol: plan.lengths[time]
            for time in self.governed_times
            for symbol in self._signature.symbols_in(time)
            if plan.sizes[symbol] == groups[time]
        }

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
            varies_by_row = item.rows is not None and item.role.kind == "tokens"
            first = step * (_ROWS if varies_by_row else 1)
            row_steps = range(max(rows, 1)) if varies_by_row else [0] * max(rows, 1)
            picks[name] = tuple(values[(first + k) // stride % len(values)] for k in row_steps)
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

    def _make_array(self, item: Input, plan: _CasePlan) -> Array:
        item = item.bounded_by_sizes(plan.sizes)
        seed = [self._seed, plan.step, zlib.crc32(item.name.encode())]
        rng = np.random.default_rng(seed)
        if plan.style.other and not item.role.sure:
            return array_fill.draw_other_reading(rng, item, item.shape_at(plan.sizes))
        match item.role.kind:
            case "mask":
                return self._make_mask(item, plan)
            case "lengths" | "relative-lengths":
                return self._make_lengths(item, plan)
            case "cu-lengths":
                return self._make_joined_lengths(item, plan)
            case "positions":
                return self._make_positions(rng, item, plan)
            case _:
                return self._make_content(rng, item, plan)

    def _make_mask(self, item: Input, plan: _CasePlan) -> Array:
        shape, time = item.shape_at(plan.sizes), self._signature.time_of(item)
        if time is not None and time in plan.lengths:
            full_length, valid = plan.sizes[time], plan.lengths[time]
        else:  # its length is a number: some rows are shorter all the same
            full_length = shape[item.time] if item.time is not None else 1
            valid = row_lengths(plan.style.ends, full_length, plan.rows, plan.step)
        mask = array_fill.make_mask(item, shape, valid, full_length, plan.style.side)
        if not plan.style.wide:
            return mask
        return array_fill.add_other_true(array_fill.hide_by_query(mask, item), item)

    def _make_lengths(self, item: Input, plan: _CasePlan) -> Array:
        """Return the length of each row, or its share of the full length."""
        time = self._signature.time_of(item)
        full_length = self._fixed_length() if time is None else plan.sizes[time]
        valid = plan.lengths.get(time or "")
        valid = valid or row_lengths(plan.style.ends, full_length, plan.rows, plan.step)
        is_share = item.role.kind == "relative-lengths"
        lengths = np.asarray(valid) / (max(full_length, 1) if is_share else 1)
        return array_fill.repeat_rows(lengths, item.shape_at(plan.sizes)).astype(item.dtype)

    def _fixed_length(self) -> int:
        """Return the size of the time axis where that is fixed."""
        items = (x for x in self._signature.inputs if x.role.kind in ("data", "tokens"))
        dims = (d for x in items for a, d in enumerate(x.dims) if a != x.rows)
        return next((d for d in dims if isinstance(d, int)), 1)

    def _make_joined_lengths(self, item: Input, plan: _CasePlan) -> Array:
        """Return where each of several joined clips ends: 0, ..., the full length."""
        shape, time = item.shape_at(plan.sizes), self._signature.time_of(item)
        full_length = plan.sizes[time] if time is not None else 0
        ends = np.linspace(0, full_length, math.prod(shape))
        return ends.reshape(shape).astype(item.dtype)

    def _make_positions(self, rng: np.random.Generator, item: Input, plan: _CasePlan) -> Array:
        """Return 0, 1, 2, ... along time; of a wide style they jump, repeat and differ by row.

        Those of a wide style start behind the cache, in each row somewhere else.
        """
        shape = item.shape_at(plan.sizes)
        axis = item.time if item.time is not None else len(shape) - 1
        if not plan.style.wide:
            return array_fill.count_positions(shape, axis, item.role).astype(item.dtype)
        start = max((plan.sizes[t] for t in self._signature.past), default=0)
        return array_fill.draw_positions(rng, item, shape, axis, start).astype(item.dtype)

    def _make_content(self, rng: np.random.Generator, item: Input, plan: _CasePlan) -> Array:
        """Return data, tokens or the values of an input that selects, with padding behind them."""
        shape, style, choices = item.shape_at(plan.sizes), plan.style, item.role.choices
        if item.name in plan.chosen:
            values = np.asarray(plan.chosen[item.name])
            return array_fill.repeat_rows(values, shape).astype(item.dtype)
        array = array_fill.draw_content(rng, item, shape, style, positive=self._positive)
        if self.pads_by_id(item) and style.ends in ("first short", "none full"):
            ends = row_lengths(style.ends, shape[item.time or 0], plan.rows, plan.step)
            padding = array_fill.padding_mask(item, shape, ends, style.side)
            array[padding] = choices[plan.step % len(choices)]
            return array
        valid = plan.lengths.get(self._signature.time_of(item) or "")
        beyond = array_fill.padding_mask(item, shape, valid, style.side) if valid else None
        if valid and beyond is not None:
            # An empty row keeps its numbers, so that what is taken for content shows.
            beyond = beyond & array_fill.rows_with_content(item, shape, valid)
            array[beyond] = choices[0] if choices else max(item.role.low, 0)
        return array


def _times_with_lengths(signature: Signature) -> list[str]:
    """Return the times along which a mask or a length says what is content."""
    times = [signature.time_of(x) for x in signature.inputs if x.role.kind in LENGTH_KINDS]
    return list(dict.fromkeys(t for t in times if t is not None))


def _only_row_length(full_length: int, step: int) -> tuple[int, ...]:
    """Return the length of the only row, which is padded in the last usual case."""
    return (round(full_length * 0.7),) if step == len(SCHEDULE) - 1 else (full_length,)
