"""The arrays of one case, made for given sizes: data, tokens, masks, lengths, positions."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from graphfix.feeds.case import Array, Case, named

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from graphfix.feeds.input import Input
    from graphfix.feeds.roles import Role
    from graphfix.feeds.signature import Signature

# (rows, length) of the usual cases, in the order they are tried. A length of 1 and 2 finds
# off-by-ones, an odd one wrong roundings, two rows of different lengths a mask that is ignored.
SCHEDULE = ((1, 7), (1, 1), (2, 2), (2, 23), (3, 40))


class Maker:
    """Makes the arrays of a case for given sizes.

    Args:
        signature: The inputs.
        seed: The same seed makes the same arrays.
    """

    def __init__(self, signature: Signature, seed: int) -> None:
        self._signature = signature
        self._seed = seed
        self._governed = _governed(signature)

    def case(
        self,
        step: int,
        groups: Mapping[str, int],
        valid: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Case:
        """A case.

        Args:
            step: Which of a choice to take; another step makes other arrays, too.
            groups: The size of each group of symbols.
            valid: How much of a time is content in each row, by its group; where a mask or a
                length governs a time that is not named here, the step says it.

        Raises:
            FeedError: A dim would have a negative size.
        """
        sizes = self._signature.sizes(groups)
        rows = self.rows(sizes)
        alone = rows == 1 and self._signature.batch is None
        lengths = {
            time: _single(groups[time], step) if alone else _lengths(groups[time], rows, step)
            for time in self._governed
        }
        lengths |= {time: rows for time, rows in (valid or {}).items() if time in lengths}
        feeds = {
            item.name: self._fill(item, step, sizes, lengths, rows)
            for item in self._signature.inputs
        }
        known = {s: lengths[time] for time in self._governed for s in self._signature.members(time)}
        known = {s: v for s, v in known.items() if sizes[s] == groups[self._signature.group(s)]}
        return Case(
            self.name(groups, lengths) or f"fixed shape, set {step + 1}",
            named(self._signature, sizes),
            feeds,
            named(self._signature, known),
        )

    def rows(self, sizes: Mapping[str, int]) -> int:
        """How many rows a batch has, for a size of each symbol."""
        if self._signature.batch is not None:
            return sizes[self._signature.batch]
        fixed = [x.dims[x.rows] for x in self._signature.inputs if x.rows is not None]
        return next((d for d in fixed if isinstance(d, int)), 1)

    def name(
        self, groups: Mapping[str, int], lengths: Mapping[str, tuple[int, ...]] | None = None
    ) -> str:
        """The sizes of a case, in the user's names."""
        parts = [f"{self._signature.user_name(g)}={n}" for g, n in groups.items()]
        for time, rows in (lengths or {}).items():
            if any(n < groups[time] for n in rows):
                parts.append(f"lengths {','.join(map(str, rows))}")
        return " ".join(parts)

    def _fill(
        self,
        item: Input,
        step: int,
        sizes: Mapping[str, int],
        lengths: Mapping[str, tuple[int, ...]],
        rows: int,
    ) -> Array:
        shape, role = item.shape(sizes), item.role
        rng = np.random.default_rng([self._seed, step, zlib.crc32(item.name.encode())])
        time = self._signature.time_of(item)
        valid = lengths.get(time) if time is not None else None
        whole = sizes[time] if time is not None else 0
        if role.kind == "mask":
            if valid is None:  # its length is a number: some rows are shorter all the same
                whole = shape[item.time] if item.time is not None else 1
                valid = _lengths(whole, rows, step)
            return _mask(item, shape, valid, whole)
        if role.kind in ("lengths", "relative-lengths"):
            known = np.asarray(valid if valid is not None else _fixed(self._signature, rows, step))
            divisor = max(whole, 1) if role.kind == "relative-lengths" else 1
            return _per_row(known / divisor, shape).astype(item.dtype)
        if role.kind == "cu-lengths":
            return np.linspace(0, whole, int(np.prod(shape))).reshape(shape).astype(item.dtype)
        if role.kind == "positions":
            axis = item.time if item.time is not None else len(shape) - 1
            return _counting(shape, axis, role).astype(item.dtype)
        if role.kind == "choice":
            return np.full(shape, role.choices[step % len(role.choices)]).astype(item.dtype)
        if role.kind in ("tokens", "int"):
            array = token_ids(rng, role, shape).astype(item.dtype)
        elif np.dtype(item.dtype).kind in "iub":
            array = rng.integers(0, 2, shape).astype(item.dtype)
        else:
            array = rng.standard_normal(shape).astype(item.dtype)
        beyond = beyond_in(item, shape, valid) if valid is not None else None
        if beyond is not None:
            array[beyond] = role.choices[0] if role.choices else role.low
        return array


def _governed(signature: Signature) -> list[str]:
    """The times along which a mask or a length says what is content."""
    kinds = ("mask", "lengths", "relative-lengths", "cu-lengths")
    found = [signature.time_of(x) for x in signature.inputs if x.role.kind in kinds]
    return list(dict.fromkeys(t for t in found if t is not None))


def _lengths(whole: int, rows: int, step: int) -> tuple[int, ...]:
    """The first row is full: some models take the longest length for the size of the array."""
    shares = (0.48, 0.31, 0.85)
    shorter = (round(whole * shares[(row + step) % 3]) for row in range(rows - 1))
    return (whole, *(max(min(n, whole - 1), min(1, whole)) for n in shorter))


def _single(whole: int, step: int) -> tuple[int, ...]:
    """The only row there can ever be: padded in the last of the usual cases."""
    return (max(1, round(whole * 0.7)),) if step == len(SCHEDULE) - 1 else (whole,)


def _fixed(signature: Signature, rows: int, step: int) -> tuple[int, ...]:
    """Lengths where the time axis is a number."""
    sizes = [
        d
        for x in signature.inputs
        if x.role.kind in ("data", "tokens")
        for a, d in enumerate(x.dims)
        if a != x.rows and isinstance(d, int)
    ]
    return _lengths(sizes[0] if sizes else 1, rows, step)


def _mask(item: Input, shape: tuple[int, ...], valid: tuple[int, ...], whole: int) -> Array:
    if item.time is None:
        return np.full(shape, item.role.valid).astype(item.dtype)
    size = shape[item.time]
    # A mask over a cache and the new tokens: the cache, on the left, is all valid.
    ends = _per_row(np.asarray(valid) + (size - whole), _ones(shape, item.rows))
    inside = _index(shape, item.time) < ends
    array = np.where(inside, item.role.valid, item.role.padded)
    return np.broadcast_to(array, shape).astype(item.dtype)


def _index(shape: tuple[int, ...], axis: int) -> npt.NDArray[np.int64]:
    """0, 1, 2, ... along ``axis``, with 1 for every other dim."""
    around = [1] * len(shape)
    around[axis] = shape[axis]
    return np.arange(shape[axis]).reshape(around)


def _ones(shape: tuple[int, ...], rows: int | None) -> tuple[int, ...]:
    return tuple(n if a == rows else 1 for a, n in enumerate(shape))


def _per_row(values: Array, shape: tuple[int, ...]) -> Array:
    """One value a row, as an array of ``shape``, of which at most one dim is not 1."""
    count = int(np.prod(shape))
    return np.resize(values, count).reshape(shape) if count else np.zeros(shape, values.dtype)


def _counting(shape: tuple[int, ...], axis: int, role: Role) -> Array:
    count = _index(shape, axis) if shape else np.zeros(shape, np.int64)
    return np.broadcast_to(np.minimum(count + role.low, role.high - 1), shape)


def token_ids(
    rng: np.random.Generator, role: Role, shape: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """Random ids other than the padding ids, as far as there are others."""
    ids = np.arange(role.low, min(role.high, role.low + 4096))
    content = ids[~np.isin(ids, role.choices)]
    return rng.choice(content if content.size else ids, shape)


def beyond_in(
    item: Input, shape: tuple[int, ...], valid: tuple[int, ...]
) -> npt.NDArray[np.bool_] | None:
    """Where the padding of a data or token array is; None if it has no time axis."""
    if item.time is None:
        return None
    ends = _per_row(np.asarray(valid), _ones(shape, item.rows))
    return np.broadcast_to(_index(shape, item.time) >= ends, shape)
