"""Relative positions: proof by trial that a shift puts each of them in its place.

A table of relative positions is cut around its middle, ``table[c - T + 1 : c + T]``, so none of its
entries stays where it was when T grows; products with it are padded, reshaped and cut ("rel_shift")
until entry (i, j) holds what belongs to j - i, and all is well again. No rule of one operator sees
that. So such a tensor is followed element by element at a few small sizes: each element has a cell,
a number that says what it is made of, and at the end the cells of a padded run are held against
those of the clip alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import sympy

from graphfix.lengths.domain import FINITE, State, Time, carries_time
from graphfix.lengths.numbers import UNARY
from graphfix.lengths.site import RefusedError, Site
from graphfix.model.values import attr_int, attr_ints, axes_of, const_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Ids = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

_GARBAGE = -1
_FILL = -2
_LONGEST = 4096
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Cells:
    """What each element is made of, in trial runs.

    Attributes:
        trials: For each, the size of the padded dim in the clip alone and in its container.
        ids: For each, the cells of the tensor in both; an axis of size 1 stands for all of it.
    """

    trials: tuple[tuple[int, int], ...]
    ids: tuple[tuple[Ids, Ids], ...]


class Trial:
    """One run at one size of the padded dim: dims and contents as numbers.

    Attributes:
        site: The node.
        length: The size of the padded dim.
        clip: The size in the clip alone: of what is longer, the rest is garbage.
    """

    def __init__(self, site: Site, length: int, clip: int) -> None:
        self.site = site
        self.length = length
        self.clip = clip

    def number(self, size: sympy.Expr, length: int | None = None) -> int:
        """A size in this run."""
        at = self.length if length is None else length
        names = {x: at if x.name == self.site.source.symbol else 1 for x in size.free_symbols}
        if any(x.name not in self.site.source.symbols for x in names):
            raise RefusedError("a size that it needs is not known")
        return int(size.subs(names))

    def dims(self, index: int = 0) -> list[int]:
        """The dims of an output in this run; the batch is 1."""
        return [self.number(x) for x in self.site.out_dims(index)]

    def contents(self, index: int) -> list[int]:
        """What a small integer input holds in this run."""
        held = self.site.contents(index)
        if held is None:
            raise RefusedError("what shapes it is not known")
        return [self.number(x) for x in held]

    def of(self, state: State, place: int, real: list[int]) -> Ids:
        """The cells of an input: its own, or positions in time."""
        if state.cells is not None:
            pair = state.cells.ids[place]
            return pair[0] if self.length == self.clip else pair[1]
        ids: Ids = np.zeros((1,) * state.rank, np.int64)
        if state.fill is not None:
            return ids + _FILL
        for axis in state.timed:
            time = state.at(axis)
            if len(time) != 1 or not isinstance(time[0], Time) or time[0].turned:
                raise RefusedError("an axis holds time beside something else, or runs backwards")
            at: Ids = np.arange(real[axis], dtype=np.int64)
            valid = self.number(time[0].size, self.clip)
            here = np.where(at < valid, at + 1, _GARBAGE)
            shape = [1] * state.rank
            shape[axis] = -1
            ids = mix(ids, here.reshape(shape))
        return ids

    def real(self, index: int) -> list[int]:
        """The dims of an input in this run."""
        dims = self.site.dims(self.site.node.inputs[index])
        if dims is None:
            raise RefusedError("the shape of one of its inputs is not known")
        return [self.number(x) for x in dims]


def mix(a: Ids, b: Ids) -> Ids:
    """The cells of what is made of two: a number for each pair; garbage stays garbage."""
    with np.errstate(over="ignore"):
        mixed = (a * np.int64(0x9E3779B1) ^ (b + np.int64(0x7F4A7C15)) * np.int64(0x85EBCA77)) >> 1
    mixed = np.abs(mixed) + 10
    result: Ids = np.where((a == _GARBAGE) | (b == _GARBAGE), _GARBAGE, mixed)
    return result


def follow(site: Site) -> State:
    """The state of a node's output, element by element.

    Raises:
        RefusedError: There is no way to follow this operator, or what it makes is not known.
    """
    op = _FOLLOWED.get(site.node.op_type) or (_same if site.node.op_type in UNARY else None)
    states = [x for x in site.states if x is not None]
    if op is None:
        raise RefusedError("it computes with positions that move when the clip is padded")
    if not all(x.is_finite for x in states):
        raise RefusedError("it moves what may be no number")
    trials = next((x.cells.trials for x in states if x.cells is not None), None) or _trials(site)
    made: list[tuple[Ids, Ids]] = []
    for place, (clip, container) in enumerate(trials):
        alone = op(Trial(site, clip, clip), place)
        padded = op(Trial(site, container, clip), place)
        if max(alone.size, padded.size) > _LARGEST:
            raise RefusedError("there is too much of it to follow")
        made.append((alone, padded))
    axes = site.axes_of()
    tails = tuple(FINITE if carries_time(x) else None for x in axes)
    state = State(axes, tails)
    cells = Cells(trials, tuple(made))
    return state if _is_settled(site, cells) else dataclasses.replace(state, cells=cells)


def _is_settled(site: Site, cells: Cells) -> bool:
    """Whether what is valid is in its place: the beginning of each axis."""
    for (clip, _), (alone, padded) in zip(cells.trials, cells.ids, strict=True):
        dims = Trial(site, clip, clip).dims()
        crop = tuple(
            slice(None) if size == 1 else slice(0, n)
            for size, n in zip(padded.shape, dims, strict=True)
        )
        here, there = np.broadcast_arrays(alone, padded[crop])
        if not np.array_equal(here, there):
            return False
        if (alone == _GARBAGE).any():
            return False
    return True


def _trials(site: Site) -> tuple[tuple[int, int], ...]:
    """Sizes of the padded dim at which the node's output is small, and another one each time."""
    symbols = {x for size in site.out_dims() for x in size.free_symbols}
    symbol = next((x for x in symbols if x.name == site.source.symbol), None)
    if symbol is None:
        raise RefusedError("how it depends on the padded length is not known")
    size = next(x for x in site.out_dims() if x.has(symbol))
    other = {x: 1 for x in size.free_symbols if x is not symbol}
    at = np.arange(1, _LONGEST * 8)
    values = np.broadcast_to(sympy.lambdify(symbol, size.subs(other), "numpy")(at), at.shape)
    first: dict[int, int] = {}
    for length, value in zip(at.tolist(), values.tolist(), strict=True):
        if value > 1 and int(value) not in first:
            first[int(value)] = length
            if len(first) == 6:
                break
    lengths = list(first.values())
    if len(lengths) < 4:
        raise RefusedError("it is not as long as a multiple of the clip")
    return ((lengths[1], lengths[3]), (lengths[2], lengths[-1]), (lengths[1], lengths[2]))


def _slice(trial: Trial, place: int) -> Ids:
    state, real = trial.site.state(), trial.real(0)
    starts, ends = trial.contents(1), trial.contents(2)
    axes = trial.contents(3) if trial.site.has(3) else list(range(len(starts)))
    steps = trial.contents(4) if trial.site.has(4) else [1] * len(starts)
    ids = trial.of(state, place, real)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis %= state.rank
        at = np.arange(real[axis], dtype=np.int64)[_python_slice(start, end, step, real[axis])]
        if ids.shape[axis] > 1:
            ids = np.take(ids, at, axis=axis)
        elif state.cells is None and not carries_time(state.at(axis)):
            shape = [1] * state.rank
            shape[axis] = -1
            ids = mix(ids, at.reshape(shape) + 1)
        else:
            ids = ids[tuple(slice(None) for _ in ids.shape)]
    return ids


def _python_slice(start: int, end: int, step: int, size: int) -> slice:
    return slice(start, None if step < 0 and end < -size else end, step)


def _range(trial: Trial, place: int) -> Ids:
    start, limit, step = (trial.contents(i)[0] for i in range(3))
    return np.arange(start, limit, step, dtype=np.int64) + 100_000


def _reshape(trial: Trial, place: int) -> Ids:
    old, new = trial.real(0), trial.dims()
    ids = trial.of(trial.site.state(), place, old)
    # What is the same at both ends need not be laid out.
    lead = 0
    while lead < min(len(old), len(new)) and old[lead] == new[lead]:
        lead += 1
    trail = 0
    while trail < min(len(old), len(new)) - lead and old[-1 - trail] == new[-1 - trail]:
        trail += 1
    inner = old[lead : len(old) - trail]
    kept = ids.shape[len(old) - trail :]
    if all(ids.shape[i] == 1 for i in range(lead, len(old) - trail)):
        middle: list[int] = [1] * (len(new) - lead - trail)
        return ids.reshape([*ids.shape[:lead], *middle, *kept])
    if int(np.prod(inner)) * ids[..., :1].size > _LARGEST * 16:
        raise RefusedError("there is too much of it to follow")
    full = np.broadcast_to(ids, [*ids.shape[:lead], *inner, *kept])
    for axis in range(lead, len(old) - trail):
        if ids.shape[axis] == 1 and old[axis] > 1:
            shape = [1] * full.ndim
            shape[axis] = -1
            full = mix(full, np.arange(old[axis], dtype=np.int64).reshape(shape))
    return full.reshape([*ids.shape[:lead], *new[lead : len(new) - trail], *kept])


def _transpose(trial: Trial, place: int) -> Ids:
    ids = trial.of(trial.site.state(), place, trial.real(0))
    return np.transpose(ids, attr_ints(trial.site.node, "perm"))


def _unsqueeze(trial: Trial, place: int) -> Ids:
    ids = trial.of(trial.site.state(), place, trial.real(0))
    axes = axes_of(trial.site.node)
    if axes is None:
        raise RefusedError("its axes are not constant")
    return np.expand_dims(ids, tuple(x % (ids.ndim + len(axes)) for x in axes))


def _squeeze(trial: Trial, place: int) -> Ids:
    ids = trial.of(trial.site.state(), place, trial.real(0))
    axes = axes_of(trial.site.node)
    return np.squeeze(ids, None if axes is None else tuple(axes))


def _same(trial: Trial, place: int) -> Ids:
    return trial.of(trial.site.state(), place, trial.real(0))


def _expand(trial: Trial, place: int) -> Ids:
    """An axis of size 1 stands for all of it already."""
    ids = trial.of(trial.site.state(), place, trial.real(0))
    return ids.reshape([*[1] * (len(trial.site.out_dims()) - ids.ndim), *ids.shape])


def _mixed(trial: Trial, place: int) -> Ids:
    """Element by element of several tensors."""
    found: Ids | None = None
    for i, state in enumerate(trial.site.states):
        if state is None or state.physical:
            raise RefusedError("it computes with a size")
        ids = trial.of(state, place, trial.real(i))
        found = ids if found is None else mix(found, ids)
    if found is None:
        raise RefusedError("it has no inputs")
    return found


def _matmul(trial: Trial, place: int) -> Ids:
    a, b = (trial.of(trial.site.state(i), place, trial.real(i)) for i in (0, 1))
    if a.ndim < 2 or b.ndim < 2:
        raise RefusedError("it sums over positions that move when the clip is padded")
    return mix(_folded(a, -1), _folded(b, -2))


def _folded(ids: Ids, axis: int) -> Ids:
    """What a sum over an axis is made of: all that lies along it, in order."""
    parts = np.moveaxis(ids, axis, 0)
    found: Ids = parts[0]
    for part in parts[1:]:
        found = mix(found, part)
    return np.expand_dims(found, axis)


def _concat(trial: Trial, place: int) -> Ids:
    site = trial.site
    axis = attr_int(site.node, "axis", 0) % site.state().rank
    parts: list[Ids] = []
    for i in range(len(site.states)):
        real = trial.real(i)
        ids = trial.of(site.state(i), place, real)
        if ids.shape[axis] == 1 and real[axis] > 1:
            if site.state(i).fill is None:
                at = np.arange(real[axis], dtype=np.int64).reshape(
                    [-1 if j == axis else 1 for j in range(ids.ndim)]
                )
                ids = mix(ids, at)
            else:
                ids = np.repeat(ids, real[axis], axis=axis)
        if real[axis]:
            parts.append(ids)
    shape = np.broadcast_shapes(
        *(tuple(1 if j == axis else n for j, n in enumerate(x.shape)) for x in parts)
    )
    parts = [
        np.broadcast_to(x, [x.shape[axis] if j == axis else n for j, n in enumerate(shape)])
        for x in parts
    ]
    return np.concatenate(parts, axis=axis)


def _pad(trial: Trial, place: int) -> Ids:
    site = trial.site
    mode = site.node.attributes.get("mode")
    if mode is not None and mode.as_string() != "constant":
        raise RefusedError("it copies positions that move when the clip is padded")
    value = const_of(site.node.inputs[2]) if site.has(2) else np.zeros(1)
    if value is None:
        raise RefusedError("what it pads with is not constant")
    real = trial.real(0)
    ids = trial.of(site.state(), place, real)
    pads = trial.contents(1)
    half = len(pads) // 2
    full = [n if pads[i] or pads[i + half] else ids.shape[i] for i, n in enumerate(real)]
    laid = np.broadcast_to(ids, full)
    return np.pad(laid, list(zip(pads[:half], pads[half:], strict=True)), constant_values=_FILL)


def _gather(trial: Trial, place: int) -> Ids:
    """A table read at positions: the position says which entry."""
    data, index = trial.site.state(0), trial.site.state(1)
    axis = attr_int(trial.site.node, "axis", 0) % data.rank
    if data.cells is not None or data.timed:
        raise RefusedError("it reads positions that move when the clip is padded")
    ids = trial.of(index, place, trial.real(1))
    return ids.reshape([*[1] * axis, *ids.shape, *[1] * (data.rank - axis - 1)])


_FOLLOWED: dict[str, Callable[[Trial, int], Ids]] = {
    "Add": _mixed,
    "Concat": _concat,
    "Div": _mixed,
    "Expand": _expand,
    "Gather": _gather,
    "MatMul": _matmul,
    "Mul": _mixed,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _mixed,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _mixed,
}
STARTS = frozenset({"Range", "Reshape", "Slice"})
"""Operators that may move positions, where their own rules see no way."""
