"""What one array of a case holds: a mask, positions, token ids, choices, data."""

import numpy as np
import numpy.typing as npt

from graphfix.feeds.case import Array
from graphfix.feeds.case_style import Side, Style, Values
from graphfix.feeds.input import Input
from graphfix.feeds.roles import Role

Shape = tuple[int, ...]
Mask = npt.NDArray[np.bool_]

# Large values, not larger than they must be: the tolerance of what they reach grows with them.
_LARGE = {"bumps": (1.3e3, -1.2e3), "spikes": (1.3e4, -1.2e4)}
_LOUD, _QUIET = 30.0, 0.03
_WHITE, _IMAGE_RANK = 255.0, 4
# Whole numbers that nothing bounds, in a case that is to go beyond 0 and 1: most, and one.
_WIDEST, _FAR = (-3, 10), 120
# A table with so few rows, asked for one row by each clip, is a choice: a language, a speaker.
_FEW = 64


def mask_of(item: Input, shape: Shape, valid: tuple[int, ...], whole: int, side: Side) -> Array:
    """A mask: ``valid`` elements of each row are content, of ``whole``."""
    if item.time is None:
        return np.full(shape, item.role.valid).astype(item.dtype)
    # A mask over a cache and the new tokens: the cache, on the left, is all valid; if anything is.
    known = np.asarray(valid)
    ends = np.where(known, known + (shape[item.time] - whole), 0)
    beyond = _beyond(item.time, item.rows, shape, ends, side)
    return np.where(beyond, item.role.padded, item.role.valid).astype(item.dtype)


def beyond_in(item: Input, shape: Shape, valid: Shape, side: Side = "right") -> Mask | None:
    """Where the padding of a data or token array is; None if it has no time axis."""
    return None if item.time is None else _beyond(item.time, item.rows, shape, valid, side)


def _beyond(time: int, rows: int | None, shape: Shape, valid: npt.ArrayLike, side: Side) -> Mask:
    ends = per_row(np.asarray(valid), tuple(n if a == rows else 1 for a, n in enumerate(shape)))
    count = index(shape, time)
    return np.broadcast_to(count < shape[time] - ends if side == "left" else count >= ends, shape)


def along(values: Array, axis: int, rank: int) -> Array:
    """Numbers along one axis of so many."""
    around = [1] * rank
    around[axis] = -1
    return values.reshape(around)


def index(shape: Shape, axis: int) -> npt.NDArray[np.int64]:
    """0, 1, 2, ... along ``axis``, with 1 for every other dim."""
    return along(np.arange(shape[axis]), axis, len(shape))


def per_row(values: Array, shape: Shape) -> Array:
    """One value a row, as an array of ``shape``, of which at most one dim is not 1."""
    count = int(np.prod(shape))
    return np.resize(values, count).reshape(shape) if count else np.zeros(shape, values.dtype)


def counting(shape: Shape, axis: int, role: Role, start: int = 0) -> Array:
    """Positions along ``axis``, within what the role allows."""
    count = index(shape, axis) if shape else np.zeros(shape, np.int64)
    return np.broadcast_to(np.minimum(count + role.low + start, role.high - 1), shape)


def token_ids(rng: np.random.Generator, role: Role, shape: Shape) -> npt.NDArray[np.int64]:
    """Random ids of the whole table, other than the padding ids as far as there are others.

    The last id of the table is among them, where there is room for two.
    """
    ids = rng.integers(role.low, role.high, shape)
    if ids.size > 1:
        ids.reshape(-1)[ids.size // 2] = role.high - 1
    asked = np.isin(ids, role.choices)
    if asked.any():
        others = next((x for x in range(role.low, role.high) if x not in role.choices), None)
        if others is not None:
            again = rng.integers(role.low, role.high, shape)
            again[np.isin(again, role.choices)] = others
            ids = np.where(asked, again, ids)
    return ids


def options_of(item: Input) -> tuple[int, ...]:
    """The values of an input that selects, one for all or one for each row; empty for others."""
    role = item.role
    if role.kind == "choice":
        # What is compared with constants may be none of them.
        other = (max(role.choices) + 1,) if np.dtype(item.dtype).kind in "iu" and role.free else ()
        return (*role.choices, *other)
    alone = all(d == 1 for a, d in enumerate(item.dims) if a != item.rows)
    if role.kind == "tokens" and item.time is None and alone and role.high - role.low <= _FEW:
        return tuple(range(role.low, role.high))
    return ()


def whole_numbers(rng: np.random.Generator, item: Input, shape: Shape, *, wide: bool) -> Array:
    """Whole numbers between the role's bounds; beyond them, if nothing in the graph set them."""
    role, dtype = item.role, np.dtype(item.dtype)
    if not (wide and role.free) or dtype.kind == "b":
        return rng.integers(role.low, max(role.high, role.low + 1), shape).astype(dtype)
    info = np.iinfo(dtype)
    if dtype.itemsize == 1:
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    array = rng.integers(max(_WIDEST[0], info.min), _WIDEST[1], shape).astype(dtype)
    if array.size > 1:
        array[_spot(item, shape)] = _FAR
    return array


def floats(
    rng: np.random.Generator, item: Input, shape: Shape, values: Values, *, positive: bool = False
) -> npt.NDArray[np.float64]:
    """Numbers as the style says; all above 0 if they must be."""
    if item.role.span is not None:
        return rng.uniform(*item.role.span, shape)
    array = rng.standard_normal(shape)
    if values == "pixels" and is_image(item):
        array = rng.uniform(0, _WHITE, shape)
    elif values == "loud":
        array = array * _LOUD
    elif values == "quiet":
        array = array * _QUIET
    elif values == "silent":
        array = np.zeros(shape)
    elif values in _LARGE and array.size > 1:
        _spike(array, item, *_LARGE[values])
    return np.abs(array) + 0.2 if positive or values == "positive" else array


def is_image(item: Input) -> bool:
    """Whether an input holds three colours: by rows and columns, none is above 255."""
    return len(item.dims) == _IMAGE_RANK and 3 in (item.dims[1], item.dims[3])


def _spot(item: Input, shape: Shape) -> tuple[int, ...]:
    """An element in the first quarter of the second row, or of the only one."""
    at = [0] * len(shape)
    if item.rows is not None:
        at[item.rows] = min(1, shape[item.rows] - 1)
    if item.time is not None:
        at[item.time] = shape[item.time] // 4
    return tuple(at)


def _spike(array: npt.NDArray[np.float64], item: Input, high: float, low: float) -> None:
    """Two large values in one frame of one row: the others stay as tight to compare."""
    at = list(_spot(item, array.shape))
    array[tuple(at)] = high
    last = next((a for a in reversed(range(array.ndim)) if a not in (item.rows, item.time)), None)
    last = item.time if last is None else last
    if last is not None and array.shape[last] > 1:
        at[last] = (at[last] + 1) % array.shape[last]
        array[tuple(at)] = low


def other_reading(rng: np.random.Generator, item: Input, shape: Shape) -> Array:
    """What may be fed to an input that was taken for a mask or a length, and may be a gain."""
    if np.dtype(item.dtype).kind in "iub":
        return rng.integers(0, 9, shape).astype(item.dtype)
    return rng.uniform(0.3, 1.7, shape).astype(item.dtype)


def numbers(
    rng: np.random.Generator, item: Input, shape: Shape, style: Style, *, positive: bool = False
) -> Array:
    """The content of a data or token array; floats are above 0 if they must be."""
    if item.role.kind == "tokens":
        return token_ids(rng, item.role, shape).astype(item.dtype)
    if np.dtype(item.dtype).kind in "iub":
        return whole_numbers(rng, item, shape, wide=style.wide)
    return floats(rng, item, shape, style.values, positive=positive).astype(item.dtype)
