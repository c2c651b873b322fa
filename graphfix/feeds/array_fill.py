"""Contents of one array of a case: a mask, positions, token ids, choices or data."""

import itertools
import math

import numpy as np
import numpy.typing as npt

from graphfix.feeds.case import Array
from graphfix.feeds.case_style import Side, Style, Values
from graphfix.feeds.full_scale import WHITE
from graphfix.feeds.input import Input
from graphfix.feeds.roles import Role

Shape = tuple[int, ...]
Mask = npt.NDArray[np.bool_]

# Large values, not larger than they must be: the tolerance of what they reach grows with them.
_LARGE = {"bumps": (1.3e3, -1.2e3), "spikes": (1.3e4, -1.2e4)}
_LOUD, _QUIET = 30.0, 0.03
# All of one loud row is below minus this, so that a fill that is not low enough shows.
_BELOW = 120.0
_IMAGE_RANK = 4
# A voice at 16 kHz: the pitch in Hz, syllables a second, and where noise begins to fall.
_RATE, _PITCH, _SYLLABLES, _CORNER = 16_000, 125, 4, 500
_HARMONICS = range(1, 13)
# Integers that nothing bounds, in a wide case: the range of most of them, and outliers; where only
# whole numbers follow, those that float32 and int32 cannot hold, whose products fit their own type.
_WIDE_RANGE, _OUTLIER = (-3, 10), 120
_LARGE_INTEGERS = {
    64: (70_001, 2**24 + 1, 2**31 + 7, -(2**24) - 3, -(2**31) - 9),
    32: (2**24 + 1, 70_001, -(2**24) - 3),
}
_LARGE_FACTORS = (40_001, -30_001)
# The values of floats beside which whole numbers are wide, one case each.
_WIDE_STYLES = ("spikes", "loud", "silent")
_LARGE_SIZE = 1 << 16
# On a coarse grid: halves of both parities of the whole part first, which are rounded to even.
_HALVES = (0.5, 2.5, -1.5, 1.5, -0.5)
_SHARE_OF_TIES, _SHARE_OF_GUARDED = 0.3, 0.15
# A table of at most so many rows, of which a clip takes one, is a choice: a language, a speaker.
_MOST_OPTIONS = 64


def make_mask(
    item: Input, shape: Shape, valid: tuple[int, ...], full_length: int, side: Side
) -> Array:
    """Return a mask whose rows mark their first or last ``valid`` elements as content."""
    if item.time is None:
        return np.full(shape, item.role.valid).astype(item.dtype)
    # A mask over a cache and the new tokens: the cache, on the left, is all valid; if anything is.
    content = np.asarray(valid)
    ends = np.where(content, content + (shape[item.time] - full_length), 0)
    beyond = _mark_padding(item.time, item.rows, shape, ends, side)
    return np.where(beyond, item.role.padded, item.role.valid).astype(item.dtype)


def padding_mask(item: Input, shape: Shape, valid: Shape, side: Side = "right") -> Mask | None:
    """Return where a data or token array has padding, or None without a time axis."""
    return None if item.time is None else _mark_padding(item.time, item.rows, shape, valid, side)


def rows_with_content(item: Input, shape: Shape, valid: Shape) -> Mask:
    """Return which rows have any content, with size 1 in every dim but that of the rows."""
    rows = tuple(n if axis == item.rows else 1 for axis, n in enumerate(shape))
    return repeat_rows(np.asarray(valid) > 0, rows)


def _mark_padding(
    time: int, rows: int | None, shape: Shape, valid: npt.ArrayLike, side: Side
) -> Mask:
    ends = repeat_rows(np.asarray(valid), tuple(n if a == rows else 1 for a, n in enumerate(shape)))
    count = index_along(shape, time)
    return np.broadcast_to(count < shape[time] - ends if side == "left" else count >= ends, shape)


def add_other_true(mask: Array, item: Input) -> Array:
    """Return a mask in which every third number is a 2, where that is the same to the graph.

    The same as a 1, or as a 0. Masks of booleans and additive ones come back as they are.
    """
    uses = item.role.uses
    if item.role.is_addend or mask.dtype.kind == "b":
        return mask
    same = [number for number, is_same in ((1, uses.as_one), (0, uses.as_zero)) if is_same]
    is_third = np.arange(mask.size).reshape(mask.shape) % 3 == 1
    return np.where(np.isin(mask, same) & is_third, np.asarray(2, mask.dtype), mask)


def reshape_along(values: Array, axis: int, rank: int) -> Array:
    """Reshape a vector to lie along one axis of an array with ``rank`` dims."""
    around = [1] * rank
    around[axis] = -1
    return values.reshape(around)


def index_along(shape: Shape, axis: int) -> npt.NDArray[np.int64]:
    """Return 0, 1, 2, ... along ``axis``, with size 1 in every other dim."""
    return reshape_along(np.arange(shape[axis]), axis, len(shape))


def repeat_rows(values: Array, shape: Shape) -> Array:
    """Return one value per row as an array of ``shape``, in which at most one dim is not 1."""
    count = int(np.prod(shape))
    return np.resize(values, count).reshape(shape) if count else np.zeros(shape, values.dtype)


def hide_by_query(mask: Array, item: Input) -> Array:
    """Return a mask with an axis of queries, ``[B, T, T]``, in which each hides other elements.

    A query sees itself, so that no row of scores is all hidden. Other masks come back as they are.
    """
    time = item.time
    if time is None:
        return mask
    queries = [a for a, dim in enumerate(item.dims) if a != time and dim == item.dims[time]]
    if not queries:
        return mask
    q, k = (index_along(mask.shape, axis) for axis in (queries[0], time))
    row = index_along(mask.shape, item.rows) if item.rows is not None else 0
    hidden = (k != q) & ((k + 2 * q + row) % 3 == 0)
    return np.where(hidden, np.asarray(item.role.padded, mask.dtype), mask)


def count_positions(shape: Shape, axis: int, role: Role, start: int = 0) -> Array:
    """Return 0, 1, 2, ... along ``axis``, bounded to what the role allows."""
    count = index_along(shape, axis) if shape else np.zeros(shape, np.int64)
    return np.broadcast_to(np.minimum(count + role.low + start, role.high - 1), shape)


def draw_positions(
    rng: np.random.Generator, item: Input, shape: Shape, axis: int, start: int
) -> Array:
    """Return positions that start late, jump and repeat, and differ between rows.

    Args:
        rng: What they are drawn with.
        item: The input; what is written at its positions is never written twice.
        shape: Its shape.
        axis: The axis of time.
        start: The first position, in the first row.
    """
    role = item.role
    if role.writes or not shape:
        return count_positions(shape, axis, role, start)
    steps = rng.choice([0, 1, 1, 1, 4], shape)
    first = index_along(shape, item.rows) if item.rows is not None and item.rows != axis else 0
    positions = role.low + start + 3 * first + np.cumsum(steps, axis)
    # Past the end of a short table they wrap, so that rows differ there too.
    span = max(role.high - role.low, 1) * (2 if role.wraps else 1)
    return role.low + (positions - role.low) % span


def draw_token_ids(rng: np.random.Generator, role: Role, shape: Shape) -> npt.NDArray[np.int64]:
    """Return random ids of the whole table, avoiding padding ids where there are others.

    The last id of the table is among them, where there is room for two.
    """
    ids = rng.integers(role.low, role.high, shape)
    if ids.size > 1:
        ids.reshape(-1)[ids.size // 2] = role.high - 1
    is_special = np.isin(ids, role.choices)
    if is_special.any():
        substitute = next((x for x in range(role.low, role.high) if x not in role.choices), None)
        if substitute is not None:
            redrawn = rng.integers(role.low, role.high, shape)
            redrawn[np.isin(redrawn, role.choices)] = substitute
            ids = np.where(is_special, redrawn, ids)
    return ids


def add_rare_ids(ids: npt.NDArray[np.int64], item: Input) -> npt.NDArray[np.int64]:
    """Return ids with each special one among them, and every fifth counted from the table's end.

    Numbers below 0 only where the smallest is 0 and the table's size is known; past the end where
    the graph brings them back.
    """
    role, ids = item.role, ids.copy()
    flat = ids.reshape(-1)
    if role.wraps:
        flat[flat.size // 2 :: 4] += role.high - role.low
    if not role.low and not role.below and np.dtype(item.dtype).kind == "i":
        flat[1::5] -= role.high
    count = min(len(role.choices), flat.size - 1)
    if count > 0:
        flat[1 : 1 + count] = role.choices[:count]
    return ids


def selector_values(item: Input) -> tuple[int, ...]:
    """Return the values of an input that selects, such as a language; empty for others."""
    role = item.role
    if role.kind == "choice":
        # What is compared with constants may be none of them.
        unlisted = (
            (max(role.choices) + 1,) if np.dtype(item.dtype).kind in "iu" and role.free else ()
        )
        return (*role.choices, *unlisted)
    is_one_per_row = all(d == 1 for a, d in enumerate(item.dims) if a != item.rows)
    if (
        role.kind == "tokens"
        and item.time is None
        and is_one_per_row
        and role.high - role.low <= _MOST_OPTIONS
    ):
        past = (role.high, role.high + 1) if role.wraps else ()
        return (role.low, *past, *range(role.low + 1, role.high))
    return ()


def draw_integers(
    rng: np.random.Generator, item: Input, shape: Shape, *, wide: bool, values: Values = "usual"
) -> Array:
    """Return integers between the role's bounds, or beyond them if nothing bounds them."""
    role, dtype = item.role, np.dtype(item.dtype)
    if role.full_scale is not None and values in ("recording", "pixels", "silent"):
        info = np.iinfo(dtype)
        return draw_floats(rng, item, shape, values).clip(info.min, info.max).astype(dtype)
    if not (wide and role.free) or dtype.kind == "b":
        return rng.integers(role.low, max(role.high, role.low + 1), shape).astype(dtype)
    info = np.iinfo(dtype)
    if dtype.itemsize == 1:
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    array = rng.integers(max(_WIDE_RANGE[0], info.min), _WIDE_RANGE[1], shape).astype(dtype)
    if array.size > 1:
        array[_spike_index(item, shape)] = _OUTLIER
    turn = _WIDE_STYLES.index(values) if values in _WIDE_STYLES else 0
    return _add_large_integers(rng, array, role, turn)


def _add_large_integers(rng: np.random.Generator, array: Array, role: Role, turn: int = 0) -> Array:
    """Return whole numbers of which many are large, or near what the graph asks about.

    Another turn takes others first, where there is no place for all.
    """
    if array.dtype.kind == "b":
        return array
    info = np.iinfo(array.dtype)
    large = [x for x in _large_integers(role) if info.min <= x <= info.max]
    if array.size == 1 and large:
        return np.full(array.shape, rng.choice([*array.reshape(-1), *large]), array.dtype)
    array = array.copy()
    places = rng.permutation(array.size)[: array.size - array.size // 3]
    first = turn * -(-len(large) // len(_WIDE_STYLES))
    for place, number in zip(places, np.roll(large, -first), strict=False):
        array.reshape(-1)[place] = number
    return array


def _large_integers(role: Role) -> list[int]:
    """Return whole numbers that only an exact type holds, and those around a threshold."""
    bits = role.uses.exact_bits
    # A number that may yet become a size is not a large one.
    asked = (int(x) for x in role.uses.thresholds if bits or abs(x) < _LARGE_SIZE)
    near = [x + step for x in asked for step in (-1, 0, 1)]
    if bits == 32 and role.uses.multiplied:
        return [*_LARGE_FACTORS, *near]
    return [*_LARGE_INTEGERS.get(bits, ()), *near]


def draw_floats(
    rng: np.random.Generator, item: Input, shape: Shape, values: Values, *, positive: bool = False
) -> npt.NDArray[np.float64]:
    """Return floats as the style says; all above 0 if ``positive``."""
    if item.role.span is not None:
        return rng.uniform(*item.role.span, shape)
    array = _draw_in_style(rng, item, shape, values, positive=positive)
    if positive or values == "positive":
        array = np.abs(array) + 0.2
    if values == "ties" and item.role.uses.ties:
        array = _round_to_ties(rng, array, item, positive=positive)
    elif values == "guarded" and item.role.uses.guarded:
        is_guarded = np.asarray(rng.random(shape) < _SHARE_OF_GUARDED)
        is_guarded.reshape(-1)[:1] = True
        array = np.where(is_guarded, rng.choice(item.role.uses.guarded, shape), array)
    return array


def _lower_last_row(array: npt.NDArray[np.float64], axis: int | None) -> None:
    """Make the last of several rows scores that are all far below 0, in place."""
    if axis is not None and array.shape[axis] > 1:
        last = np.moveaxis(array, axis, 0)[-1:]
        last[...] = -np.abs(last) - _BELOW


def _draw_in_style(
    rng: np.random.Generator, item: Input, shape: Shape, values: Values, *, positive: bool
) -> npt.NDArray[np.float64]:
    """Return floats of the size and the kind of a style, of either sign except for low scores."""
    scale = item.role.full_scale
    array = rng.standard_normal(shape) * (1.0 if scale is None else scale.usual)
    is_usual = values in ("usual", "ties", "guarded")
    if is_image(item) and (values == "pixels" or (scale is not None and is_usual)):
        array = draw_picture(rng, shape)
    elif values == "recording" and is_wave(item):
        array = draw_recording(rng, item, shape)
    elif values == "loud":
        array = array * _LOUD
        if not positive:
            _lower_last_row(array, item.rows)
    elif values == "quiet":
        array = array * _QUIET
    elif values == "silent":
        array = np.zeros(shape)
        array.reshape(-1)[1::2] = -0.0  # the same number, but its reciprocal is another
    elif values in _LARGE and array.size > 1:
        _add_spikes(array, item, *_LARGE[values])
    return array


def _round_to_ties(
    rng: np.random.Generator, array: npt.NDArray[np.float64], item: Input, *, positive: bool
) -> npt.NDArray[np.float64]:
    """Return elements on a coarse grid, many of them equal, some halves or thresholds."""
    step = np.where(rng.random(array.shape) < 0.5, 0.5, 0.125)
    array = np.array(np.round(array / step) * step)
    pairs = itertools.zip_longest(item.role.uses.thresholds, _HALVES)
    numbers = [x for pair in pairs for x in pair if x is not None and (x > 0 or not positive)]
    places = rng.permutation(array.size)[: math.ceil(array.size * _SHARE_OF_TIES)]
    flat = array.reshape(-1)
    flat[places] = np.resize(numbers, len(places))
    others = np.setdiff1d(np.arange(array.size), places)
    flat[others[1:2]] = flat[others[: len(others[1:2])]]  # two are equal, however few
    return np.maximum(array, 0.125) if positive else array


def draw_picture(rng: np.random.Generator, shape: Shape) -> npt.NDArray[np.float64]:
    """Return pixels from 0 to 255, of which a quarter is white: a sky, a page."""
    array = rng.uniform(0, WHITE, shape)
    sides = sorted(range(len(shape)), key=shape.__getitem__)[-2:]
    array[tuple(slice(n // 2) if a in sides else slice(None) for a, n in enumerate(shape))] = WHITE
    return array


def draw_recording(rng: np.random.Generator, item: Input, shape: Shape) -> npt.NDArray[np.float64]:
    """Return sound like speech, up to full scale: a voice and falling noise, in syllables."""
    axes = (a for a in range(len(shape)) if a != item.rows)
    axis = item.time if item.time is not None else max(axes, key=shape.__getitem__, default=0)
    size = shape[axis]
    if not size:
        return np.zeros(shape)
    seconds = index_along(shape, axis) / _RATE
    spectrum = np.fft.rfft(rng.standard_normal(shape), axis=axis)
    hertz = index_along(spectrum.shape, axis) * (_RATE / size)
    noise = np.fft.irfft(spectrum / (1 + hertz / _CORNER), size, axis=axis)
    voice = sum(np.sin(2 * np.pi * _PITCH * k * seconds + k) / k for k in _HARMONICS)
    syllables = 0.2 + np.abs(np.sin(np.pi * _SYLLABLES * seconds + 1))
    array = syllables * (noise / max(float(np.std(noise)), 1e-9) + voice)
    largest = 1.0 if item.role.full_scale is None else item.role.full_scale.largest
    return np.asarray(array * (largest / float(np.max(np.abs(array), initial=1e-9))))


def is_image(item: Input) -> bool:
    """Return whether an input holds three colour channels, before or behind rows and columns.

    Or anything else of which the graph shows that 255 is white.
    """
    scale = item.role.full_scale
    if scale is not None and scale.largest == WHITE:
        return True
    return len(item.dims) == _IMAGE_RANK and 3 in (item.dims[1], item.dims[3])


def is_wave(item: Input) -> bool:
    """Return whether an input is audio: one number per time step, or samples by its full scale."""
    scale = item.role.full_scale
    if scale is not None:
        return scale.largest != WHITE
    others = (d for a, d in enumerate(item.dims) if a not in (item.rows, item.time))
    return item.role.kind == "data" and item.time is not None and all(d == 1 for d in others)


def _spike_index(item: Input, shape: Shape) -> tuple[int, ...]:
    """Return the index of an element in the first quarter of the second row, or of the only one."""
    at = [0] * len(shape)
    if item.rows is not None:
        at[item.rows] = min(1, shape[item.rows] - 1)
    if item.time is not None:
        at[item.time] = shape[item.time] // 4
    return tuple(at)


def _add_spikes(array: npt.NDArray[np.float64], item: Input, high: float, low: float) -> None:
    """Put two large values into one frame of one row; the other rows stay tight to compare."""
    at = list(_spike_index(item, array.shape))
    array[tuple(at)] = high
    last = next((a for a in reversed(range(array.ndim)) if a not in (item.rows, item.time)), None)
    last = item.time if last is None else last
    if last is not None and array.shape[last] > 1:
        at[last] = (at[last] + 1) % array.shape[last]
        array[tuple(at)] = low


def draw_other_reading(rng: np.random.Generator, item: Input, shape: Shape) -> Array:
    """Return values for an input taken for a mask or a length that may be a gain."""
    if np.dtype(item.dtype).kind in "iub":
        return _add_large_integers(rng, rng.integers(0, 9, shape).astype(item.dtype), item.role)
    return rng.uniform(0.3, 1.7, shape).astype(item.dtype)


def draw_content(
    rng: np.random.Generator, item: Input, shape: Shape, style: Style, *, positive: bool = False
) -> Array:
    """Return the content of a data or token array; floats are above 0 if ``positive``."""
    if item.role.kind == "tokens":
        ids = draw_token_ids(rng, item.role, shape)
        return (add_rare_ids(ids, item) if style.wide else ids).astype(item.dtype)
    if np.dtype(item.dtype).kind in "iub":
        return draw_integers(rng, item, shape, wide=style.wide, values=style.values)
    return draw_floats(rng, item, shape, style.values, positive=positive).astype(item.dtype)
