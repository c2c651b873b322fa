"""What operators do to cells, as numpy does it: see :mod:`graphfix.lengths.cells`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphfix.lengths.axes import RefusedError
from graphfix.lengths.domain import Ids, Rows
from graphfix.lengths.numbered import NUMBERS, numbers_of
from graphfix.lengths.trial import FILL, LARGEST, Trial, mix
from graphfix.model.slicing import slice_of
from graphfix.model.values import attr_int, attr_ints, const_of

if TYPE_CHECKING:
    from collections.abc import Callable


def _slice(trial: Trial, place: int) -> Ids:
    state, real = trial.site.state(), trial.real(0)
    starts, ends = trial.contents(1), trial.contents(2)
    axes = trial.contents(3) if trial.site.has(3) else list(range(len(starts)))
    steps = trial.contents(4) if trial.site.has(4) else [1] * len(starts)
    ids = trial.of(0, place)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis %= state.rank
        at = np.arange(real[axis], dtype=np.int64)[slice_of(start, end, step, real[axis])]
        if ids.shape[axis] > 1:
            ids = np.take(ids, at, axis=axis)
        elif state.fill is None and not np.array_equal(at, np.arange(real[axis])):
            shape = [1] * state.rank
            shape[axis] = -1
            ids = mix(ids, at.reshape(shape) + 1)
    return ids


def _range(trial: Trial, place: int) -> Ids:
    start, limit, step = (trial.contents(i)[0] for i in range(3))
    return np.arange(start, limit, step, dtype=np.int64) + NUMBERS


def _reshape(trial: Trial, place: int) -> Ids:
    old, new = trial.real(0), trial.dims()
    ids = trial.of(0, place)
    # What is the same at both ends need not be laid out.
    lead = 0
    while lead < min(len(old), len(new)) and old[lead] == new[lead]:
        lead += 1
    trail = 0
    while trail < min(len(old), len(new)) - lead and old[-1 - trail] == new[-1 - trail]:
        trail += 1
    inner = old[lead : len(old) - trail]
    kept = ids.shape[len(old) - trail :]
    between = range(lead, len(old) - trail)
    if all(ids.shape[i] == 1 for i in between) and not _any_grows(trial, between, trail):
        middle: list[int] = [1] * (len(new) - lead - trail)
        return ids.reshape([*ids.shape[:lead], *middle, *kept])
    if int(np.prod(inner)) * ids[..., :1].size > LARGEST * 16:
        raise RefusedError("there is too much of it to follow")
    full = np.broadcast_to(ids, [*ids.shape[:lead], *inner, *kept])
    for axis in range(lead, len(old) - trail):
        if ids.shape[axis] == 1 and old[axis] > 1:
            shape = [1] * full.ndim
            shape[axis] = -1
            full = mix(full, np.arange(old[axis], dtype=np.int64).reshape(shape))
    return full.reshape([*ids.shape[:lead], *new[lead : len(new) - trail], *kept])


def _any_grows(trial: Trial, between: range, trail: int) -> bool:
    """Whether what is dealt out anew is as long as the clip."""
    site = trial.site
    old, new = site.dims(site.node.inputs[0]) or [], site.out_dims()
    sizes = [old[i] for i in between] + new[between.start : len(new) - trail]
    return any(map(site.grows, sizes))


def _transpose(trial: Trial, place: int) -> Ids:
    ids = trial.of(0, place)
    return np.transpose(ids, attr_ints(trial.site.node, "perm"))


def _unsqueeze(trial: Trial, place: int) -> Ids:
    ids = trial.of(0, place)
    axes = trial.site.axes()
    if axes is None:
        raise RefusedError("its axes are not constant")
    return np.expand_dims(ids, tuple(x % (ids.ndim + len(axes)) for x in axes))


def _squeeze(trial: Trial, place: int) -> Ids:
    ids = trial.of(0, place)
    axes = trial.site.axes()
    return np.squeeze(ids, None if axes is None else tuple(axes))


def _same(trial: Trial, place: int) -> Ids:
    return trial.of(0, place)


def _expand(trial: Trial, place: int) -> Ids:
    """An axis of size 1 stands for all of it already."""
    ids = trial.of(0, place)
    return ids.reshape([*[1] * (len(trial.site.out_dims()) - ids.ndim), *ids.shape])


def _mixed(trial: Trial, place: int) -> Ids:
    """Element by element of several tensors."""
    made = trial.site.node.outputs[0]
    if any(x is not None and x.physical for x in trial.site.states):
        numbers = numbers_of(trial, made)
        if numbers is not None:
            return numbers + NUMBERS
    found: Ids | None = None
    for i, state in enumerate(trial.site.states):
        if state is None or state.physical:
            raise RefusedError("it computes with a size")
        ids = trial.of(i, place)
        found = ids if found is None else mix(found, ids)
    if found is None:
        raise RefusedError("it has no inputs")
    return found


def _matmul(trial: Trial, place: int) -> Ids:
    a, b = (trial.of(i, place) for i in (0, 1))
    if a.ndim < 2 or b.ndim < 2:
        raise RefusedError("it sums over positions that move when the clip is padded")
    count = trial.real(0)[-1]
    return mix(_folded(a, -1, count), _folded(b, -2, count))


def _gemm(trial: Trial, place: int) -> Ids:
    """The product, and what is added to it."""
    node = trial.site.node
    a, b = (trial.of(i, place) for i in (0, 1))
    rows = attr_int(node, "transA", 0)
    along = attr_int(node, "transB", 0)
    count = trial.real(0)[0 if rows else 1]
    a, b = (a.T if rows else a), (b.T if along else b)
    found = mix(_folded(a, -1, count), _folded(b, -2, count))
    return mix(found, trial.of(2, place)) if trial.site.has(2) else found


def _folded(ids: Ids, axis: int, count: int) -> Ids:
    """What a sum over an axis is made of: all that lies along it, in order."""
    parts = np.moveaxis(ids, axis, 0)
    found: Ids = mix(parts[0], np.full((1,) * (ids.ndim - 1), count, np.int64))
    for part in parts[1:]:
        found = mix(found, part)
    return np.expand_dims(found, axis)


def _concat(trial: Trial, place: int) -> Ids:
    site = trial.site
    axis = attr_int(site.node, "axis", 0) % site.state().rank
    parts: list[Ids] = []
    for i in range(len(site.states)):
        real = trial.real(i)
        ids = trial.of(i, place)
        ids = _laid_out(ids, axis, real[axis], site.state(i).fill is not None)
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


def _laid_out(ids: Ids, axis: int, size: int, same: bool) -> Ids:
    """Every entry along an axis that one stands for: each is another, or they are the same."""
    if ids.shape[axis] != 1 or size <= 1:
        return ids
    if same:
        return np.repeat(ids, size, axis=axis)
    at: Ids = np.arange(size, dtype=np.int64).reshape(
        [-1 if j == axis else 1 for j in range(ids.ndim)]
    )
    return mix(ids, at)


def _pad(trial: Trial, place: int) -> Ids:
    site = trial.site
    mode = site.node.attributes.get("mode")
    if mode is not None and mode.as_string() != "constant":
        raise RefusedError("it copies positions that move when the clip is padded")
    value = const_of(site.node.inputs[2]) if site.has(2) else np.zeros(1)
    if value is None:
        raise RefusedError("what it pads with is not constant")
    real = trial.real(0)
    ids = trial.of(0, place)
    pads = trial.contents(1)
    half, held = len(pads) // 2, site.contents(1) or pads
    laid = ids
    for i, n in enumerate(real):
        if held[i] != 0 or held[i + half] != 0:  # perhaps 0 at this size, as at no other
            laid = _laid_out(laid, i, n, site.state().fill is not None)
    return np.pad(laid, list(zip(pads[:half], pads[half:], strict=True)), constant_values=FILL)


def _gather(trial: Trial, place: int) -> Ids:
    """A table read at positions: the position says which entry."""
    data, index = trial.site.state(0), trial.site.state(1)
    axis = attr_int(trial.site.node, "axis", 0) % data.rank
    rows = any(isinstance(x, Rows) for x in data.at(axis))
    if data.cells is not None or data.timed or rows:
        raise RefusedError("it reads positions that move when the clip is padded")
    ids, table = trial.of(1, place), trial.of(0, place)
    ids = ids.reshape([*[1] * axis, *ids.shape, *[1] * (data.rank - axis - 1)])
    own = [*table.shape[:axis], *[1] * index.rank, *table.shape[axis + 1 :]]
    return mix(ids, table.reshape(own))


def _gather_elements(trial: Trial, place: int) -> Ids:
    """What each element is read from, where it is known which that is."""
    data = trial.site.state(0)
    index = numbers_of(trial, trial.site.node.inputs[1])
    if index is None or data.fill is not None:
        raise RefusedError("it reads at positions that move when the clip is padded")
    real = trial.real(0)
    axis = attr_int(trial.site.node, "axis", 0) % data.rank
    ids = trial.of(0, place)
    ids = _laid_out(ids, axis, real[axis], False)
    shape = [max(a, b) for a, b in zip(ids.shape, index.shape, strict=True)]
    shape[axis] = index.shape[axis]
    laid = list(shape)
    laid[axis] = ids.shape[axis]
    return np.take_along_axis(np.broadcast_to(ids, laid), np.broadcast_to(index, shape), axis)


def _tile(trial: Trial, place: int) -> Ids:
    """Again and again along each axis."""
    ids, real, repeats = trial.of(0, place), trial.real(0), trial.contents(1)
    same = trial.site.state().fill is not None
    for axis, count in enumerate(repeats):
        if count != 1:
            ids = _laid_out(ids, axis, real[axis], same)
    return np.tile(ids, repeats)


MOVES: dict[str, Callable[[Trial, int], Ids]] = {
    "Identity": _same,
    "Add": _mixed,
    "Concat": _concat,
    "Div": _mixed,
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Mul": _mixed,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _mixed,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _mixed,
}
