"""Inputs for a model, made from the model itself.

A case is one set of inputs: sizes for the symbolic dims, lengths for the rows of the batch, and
arrays that agree with both. Sizes that the model cannot run at are dropped, with ONNX Runtime's
reason; if few remain, as for a waveform model that needs 400 samples, larger ones are tried.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.measure.runtime import RunError, Session
from graphfix.measure.signature import Input, Signature, Tie, symbols
from graphfix.model import io

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from graphfix.measure.roles import Role

Array = npt.NDArray[Any]
T = TypeVar("T")
Poison = Literal["", "NaN", "large values", "other ids"]

# (rows, length) of the cases, in the order they are tried. A length of 1 and 2 finds off-by-ones,
# an odd one finds wrong roundings, two rows of different lengths find a mask that is ignored.
_SCHEDULE = ((1, 7), (1, 1), (2, 2), (2, 23), (3, 40))
# The same where the user gives the lengths: batches of one, two and three rows come first.
_WITH_GIVEN = ((1, 7), (2, 23), (3, 40), (1, 1), (2, 2))
# Beyond it, until three lengths run: for models that need a minimum or a multiple.
_GROWTH = (5, 12, 80, 161, 400, 720, 1600, 3200, 6400, 12800, 25600, 51200)
_ENOUGH = 3
# The longest that is tried of what is not a waveform: attention takes the square of it in memory.
_LONGEST = 3200
_PAST = (4, 0, 1, 9, 16)
_LARGE = 1e4
_FEWER_ROWS = 1


@dataclass(frozen=True)
class Case:
    """One set of inputs.

    Attributes:
        name: What it is, for a user: ``batch=2 frames=23 lengths 23,11``.
        dims: The size of every symbolic dim of the inputs, by the model's own names.
        feeds: An array for each input.
        valid: For each symbol that a mask or length input governs, how much of it is content in
            each row of the batch. Empty if the model has no such input.
        poison: What lies beyond the valid length of the data: nothing special, NaN, or 1e4.
        base: For a poisoned case, the name of the case that it is otherwise equal to.
    """

    name: str
    dims: dict[str, int]
    feeds: dict[str, Array]
    valid: dict[str, tuple[int, ...]] = field(default_factory=dict)
    poison: Poison = ""
    base: str = ""

    @property
    def ragged(self) -> bool:
        """Whether some row is shorter than its array."""
        return any(length < self.dims[s] for s, rows in self.valid.items() for length in rows)


@dataclass(frozen=True)
class Dropped:
    """A case that was tried and that the model as given cannot run."""

    name: str
    reason: str


class Cases(list[Case]):
    """The cases that run, what was dropped, and what each input was taken for.

    Attributes:
        dropped: Cases that the model as given cannot run, with ONNX Runtime's reason.
        signature: The inputs, their roles and their symbols.
    """

    def __init__(
        self, cases: Iterable[Case], dropped: Iterable[Dropped], signature: Signature
    ) -> None:
        super().__init__(cases)
        self.dropped = list(dropped)
        self.signature = signature

    @property
    def roles(self) -> dict[str, Role]:
        """What each input was taken for, and why."""
        return {x.name: x.role for x in self.signature.inputs}


def make_cases(
    model: str | os.PathLike[str] | ir.Model,
    *,
    dims: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    session: Session | None = None,
) -> Cases:
    """Cases that ``model`` runs: several lengths, batches of one to three rows, ragged lengths.

    Args:
        model: The model; it is not changed.
        dims: Sizes to use, by the name of the symbolic dim; they replace the usual ones.
        seed: The same seed makes the same arrays.
        session: The model, already loaded, to save loading it again.

    Returns:
        The cases, at least one.

    Raises:
        ModelError: ONNX Runtime rejects the model.
        FeedError: No case runs, an input cannot be made up, or ``dims`` names no dim.
    """
    graph = model if isinstance(model, ir.Model) else io.load(model)
    opened = session or Session(model, optimize=False)
    try:
        return search(graph, lambda case: opened.run(case.feeds), dims=dims, seed=seed)
    finally:
        if session is None:
            opened.close()


def search(
    model: ir.Model,
    run: Callable[[Case], object],
    *,
    dims: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
) -> Cases:
    """As :func:`make_cases`, with ``run``, which raises RunError for a case that does not run."""
    ties: tuple[Tie, ...] = ("graph", "one-time", "past")
    first: Cases | None = None
    tried: set[tuple[object, ...]] = set()
    for tie in ties:
        signature = Signature(model, tie)
        shape = _fingerprint(signature)
        if shape in tried:
            continue
        tried.add(shape)
        cases = _Search(signature, run, dims or {}, seed).cases()
        if cases:
            return cases
        first = first or cases
    assert first is not None
    raise FeedError(_nothing_runs(first))


def given_case(feeds: str | os.PathLike[str] | Mapping[str, Array], signature: Signature) -> Case:
    """The user's own inputs as a case.

    Args:
        feeds: An ``.npz`` file with an array for each input, or those arrays.
        signature: The inputs of the model.

    Raises:
        FeedError: The file cannot be read, or an input is missing or has another rank.
    """
    arrays = _read_npz(feeds) if isinstance(feeds, (str, os.PathLike)) else dict(feeds)
    missing = [x.name for x in signature.inputs if x.name not in arrays]
    if missing:
        raise FeedError(
            f"the given feeds lack {', '.join(map(repr, missing))}; "
            f"they have {', '.join(map(repr, arrays)) or 'nothing'}"
        )
    sizes: dict[str, int] = {}
    for item in signature.inputs:
        array = arrays[item.name]
        if item.problem:
            continue
        if array.ndim != len(item.dims):
            raise FeedError(
                f"the given {item.name!r} has shape {list(array.shape)}, but the model wants "
                f"{[d if isinstance(d, int) else signature.user_name(str(d)) for d in item.dims]}"
            )
        for dim, size in zip(item.dims, array.shape, strict=True):
            if isinstance(dim, ir.SymbolicDim) and dim.value in symbols(dim):
                sizes.setdefault(str(dim.value), size)
    valid = _lengths_in(signature, arrays, sizes)
    return Case("given", _named(signature, sizes), arrays, _named(signature, valid))


def poisoned(case: Case, signature: Signature, seed: int = 0) -> list[Case]:
    """``case`` with garbage in its padding: once NaN, once values of size 1e4.

    Only inputs whose time axis is governed by a mask or a length are changed, beyond the valid
    length; token ids there become other valid ids. No case comes back if there is no padding.
    """
    governed = [x for x in signature.inputs if x.role.kind in ("data", "tokens")]
    governed = [x for x in governed if _padding(x, case, signature) is not None]
    if not governed:
        return []
    rng = np.random.default_rng([seed, zlib.crc32(case.name.encode())])
    kinds: tuple[Poison, ...] = ("NaN", "large values")
    if not any(_holds_nan(case.feeds[x.name]) for x in governed):
        kinds = ("other ids",)
    made = []
    for kind in kinds:
        feeds = dict(case.feeds)
        for item in governed:
            beyond = _padding(item, case, signature)
            assert beyond is not None
            feeds[item.name] = _spoil(feeds[item.name], beyond, item.role, kind, rng)
        name = f"{case.name}, {kind} in the padding"
        made.append(replace(case, name=name, feeds=feeds, poison=kind, base=case.name))
    return made


# One attempt


class _Search:
    """Tries sizes until enough lengths run."""

    def __init__(
        self,
        signature: Signature,
        run: Callable[[Case], object],
        dims: Mapping[str, Sequence[int]],
        seed: int,
    ) -> None:
        for item in signature.inputs:
            if item.problem:
                raise FeedError(
                    f"the input {item.name!r} cannot be made up: {item.problem}; "
                    "give inputs with --feeds file.npz"
                )
        self._signature = signature
        self._run = run
        self._wanted = wanted_sizes(signature, dims)
        self._maker = Maker(signature, seed)
        self._found: list[Case] = []
        self._dropped: list[Dropped] = []
        self._lengths: set[int] = set()
        self._seen: set[tuple[tuple[str, int], ...]] = set()

    def cases(self) -> Cases:
        for step, (rows, length) in enumerate(self._steps()):
            self._try(step, rows, length)
        if self._varies() and len(self._lengths) < _ENOUGH:
            self._grow()
        return Cases(self._found, self._dropped, self._signature)

    def _steps(self) -> Iterator[tuple[int, int]]:
        if not self._wanted:
            yield from _SCHEDULE
            return
        count = max(len(v) for v in self._wanted.values())
        for step in range(max(count, 2 if self._free_rows() else 1)):
            yield _WITH_GIVEN[step % len(_WITH_GIVEN)]

    def _free_rows(self) -> bool:
        batch = self._signature.batch
        return batch is not None and batch not in self._wanted

    def _varies(self) -> bool:
        """Whether other lengths than those tried are ours to choose."""
        return any(t not in self._wanted for t in self._signature.times)

    def _grow(self) -> None:
        for step, length in enumerate(_GROWTH, start=len(_SCHEDULE)):
            # Three lengths just above the minimum would be one, two and three frames.
            if len(self._lengths) >= _ENOUGH and max(self._lengths) >= 8 * min(self._lengths):
                return
            if length > _LONGEST and not _is_waveform(self._signature):
                return
            self._try(step, 1 + step % 2, length)

    def _try(self, step: int, rows: int, length: int) -> None:
        """Try one size; with one row if that many rows are what does not run."""
        if self._attempt(step, rows, length) or rows == _FEWER_ROWS or not self._free_rows():
            return
        self._attempt(step, _FEWER_ROWS, length)

    def _attempt(self, step: int, rows: int, length: int) -> bool:
        groups = self._groups(step, rows, length)
        static = not self._signature.symbols()
        key = (("", step) if static else ("", 0), *sorted(groups.items()))
        if key in self._seen:
            return True
        self._seen.add(key)
        try:
            case = self._maker.case(step, groups)
        except FeedError as error:  # a dim such as T - 5 would be negative
            self._dropped.append(Dropped(self._maker.name(groups), str(error)))
            return False
        try:
            self._run(case)
        except RunError as error:
            self._dropped.append(Dropped(case.name, str(error)))
            return False
        self._found.append(case)
        self._lengths.add(groups[self._signature.times[0]] if self._signature.times else rows)
        return True

    def _groups(self, step: int, rows: int, length: int) -> dict[str, int]:
        """The size of each group at a step."""
        signature = self._signature
        sizes = {signature.batch: rows} if signature.batch else {}
        grows = step < len(_SCHEDULE)
        usual = [t for t in signature.times if t not in signature.past]
        for place, time in enumerate(usual):
            # Times that are not tied get different sizes, so that a mix-up is seen.
            small = _SCHEDULE[step % len(_SCHEDULE)][1]
            own = length if grows or place == 0 else small
            sizes[time] = own // (place + 1) + 2 * place
        for time in signature.past:
            sizes[time] = _PAST[step % len(_PAST)]
        for time, values in self._wanted.items():
            sizes[time] = values[step % len(values)]
        return sizes


def _is_waveform(signature: Signature) -> bool:
    """Whether some input is one number a time step, which a model must shorten first."""
    return any(
        x.role.kind == "data"
        and x.time is not None
        and all(d == 1 for a, d in enumerate(x.dims) if a not in (x.rows, x.time))
        for x in signature.inputs
    )


def wanted_sizes(
    signature: Signature, dims: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """The sizes that a user asks for, by group instead of by the name of a dim.

    Raises:
        FeedError: No input has a dim of that name, or a size is negative.
    """
    wanted: dict[str, tuple[int, ...]] = {}
    for name, values in dims.items():
        symbol = signature.symbol_of(name)
        if symbol is None:
            known = ", ".join(signature.user_name(s) for s in signature.symbols()) or "none"
            raise FeedError(f"no input has a dim named {name!r}; the symbolic dims are: {known}")
        if not values or any(v < 0 for v in values):
            raise FeedError(f"the sizes of {name!r} must be numbers from 0 up, not {values}")
        wanted[signature.group(symbol)] = tuple(values)
    return wanted


def _fingerprint(signature: Signature) -> tuple[object, ...]:
    probe = {g: 3 + 4 * i for i, g in enumerate((*signature.times, signature.batch or ""))}
    return tuple(sorted(signature.sizes(probe).items()))


def _nothing_runs(cases: Cases) -> str:
    tried = "; ".join(f"{x.name}" for x in cases.dropped[:4])
    more = f" and {len(cases.dropped) - 4} more" if len(cases.dropped) > 4 else ""
    roles = ", ".join(f"{name} as {role.kind}" for name, role in cases.roles.items())
    last = cases.dropped[-1].reason if cases.dropped else "no size to try"
    example = next((cases.signature.user_name(t) for t in cases.signature.times), "T")
    return (
        f"the model as given runs at none of the sizes tried ({tried}{more}), with {roles}. "
        f"ONNX Runtime: {last} Give inputs with --feeds file.npz, or sizes with "
        f"--dims {example}=.."
    )


# The arrays of one case


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
            _named(self._signature, sizes),
            feeds,
            _named(self._signature, known),
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
            array = _tokens(rng, role, shape).astype(item.dtype)
        elif np.dtype(item.dtype).kind in "iub":
            array = rng.integers(0, 2, shape).astype(item.dtype)
        else:
            array = rng.standard_normal(shape).astype(item.dtype)
        beyond = _beyond(item, shape, valid) if valid is not None else None
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
    return (max(1, round(whole * 0.7)),) if step == len(_SCHEDULE) - 1 else (whole,)


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


def _tokens(rng: np.random.Generator, role: Role, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Ids other than the padding ids, as far as there are others."""
    ids = np.arange(role.low, min(role.high, role.low + 4096))
    content = ids[~np.isin(ids, role.choices)]
    return rng.choice(content if content.size else ids, shape)


def _beyond(
    item: Input, shape: tuple[int, ...], valid: tuple[int, ...]
) -> npt.NDArray[np.bool_] | None:
    """Where the padding of a data or token array is; None if it has no time axis."""
    if item.time is None:
        return None
    ends = _per_row(np.asarray(valid), _ones(shape, item.rows))
    return np.broadcast_to(_index(shape, item.time) >= ends, shape)


def _padding(item: Input, case: Case, signature: Signature) -> npt.NDArray[np.bool_] | None:
    """Where the padding of one input of a case is; None if it has none."""
    time = signature.time_of(item)
    valid = case.valid.get(signature.user_name(time)) if time is not None else None
    if valid is None:
        return None
    beyond = _beyond(item, case.feeds[item.name].shape, valid)
    return beyond if beyond is not None and beyond.any() else None


def _holds_nan(array: Array) -> bool:
    return array.dtype.kind == "f"


def _spoil(
    array: Array,
    beyond: npt.NDArray[np.bool_],
    role: Role,
    kind: Poison,
    rng: np.random.Generator,
) -> Array:
    array = array.copy()
    if role.kind == "tokens":
        array[beyond] = _tokens(rng, role, array.shape)[beyond]
    elif not _holds_nan(array):
        array[beyond] = rng.integers(0, 2, array.shape)[beyond]
    elif kind == "NaN":
        array[beyond] = np.nan
    else:
        array[beyond] = (_LARGE * rng.uniform(-1, 1, array.shape))[beyond]
    return array


def _named(signature: Signature, by_symbol: Mapping[str, T]) -> dict[str, T]:
    return {signature.user_name(s): v for s, v in by_symbol.items()}


# The user's own inputs


def _read_npz(path: str | os.PathLike[str]) -> dict[str, Array]:
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise FeedError(f"{path}: holds one array; save them with np.savez(path, name=..)")
            return {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise FeedError(f"{path}: no such file") from error
    except (OSError, ValueError, EOFError) as error:
        raise FeedError(f"{path}: not an .npz file of arrays: {error}") from error


def _lengths_in(
    signature: Signature, arrays: Mapping[str, Array], sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """What the given masks and lengths say is content."""
    valid: dict[str, tuple[int, ...]] = {}
    for item in signature.inputs:
        time = signature.time_of(item)
        if time is None or time not in sizes:
            continue
        array = arrays[item.name]
        if item.role.kind == "lengths":
            rows = tuple(int(n) for n in array.reshape(-1))
        elif item.role.kind == "mask" and item.time is not None and item.role.padded != 1.0:
            rows = _prefixes(array, item)
        else:
            continue
        if all(0 <= n <= sizes[time] for n in rows):
            valid.update({s: rows for s in signature.members(time) if s in sizes})
    return valid


def _prefixes(array: Array, item: Input) -> tuple[int, ...]:
    """How long the content of each row is, by a mask."""
    assert item.time is not None
    axes = tuple(a for a in range(array.ndim) if a not in (item.rows, item.time))
    inside = np.any(array >= item.role.valid, axis=axes, keepdims=True)
    rows = np.moveaxis(inside, item.time, -1).reshape(-1, array.shape[item.time])
    return tuple(int(n) for n in rows.sum(axis=-1))


__all__ = ["Case", "Cases", "Dropped", "given_case", "make_cases", "poisoned", "search"]
