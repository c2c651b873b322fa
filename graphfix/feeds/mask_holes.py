"""Masks whose content is not one stretch: every third element inside it is hidden.

A packed batch, a dropped frame or a masked word makes such a mask, and a repair that reads a mask
as a length is wrong there.
"""

import zlib
from dataclasses import replace

import numpy as np

from graphfix.feeds.array_fill import Mask, index_along
from graphfix.feeds.case import Case, Poison
from graphfix.feeds.input import Input
from graphfix.feeds.poison import fill_garbage
from graphfix.feeds.signature import Signature

# Shorter content has no inside.
_LEAST = 4
HOLES = "holes in the mask"


def punch_holes(case: Case, signature: Signature, seed: int = 0) -> tuple[Case, Case] | None:
    """Return a case with holes in its masks, and the same with other content in the holes.

    Only masks with one axis besides the batch are changed, and the first and the last element of
    the content stay. None if there is no such mask, or no inside.

    Args:
        case: The case, without garbage.
        signature: The inputs.
        seed: The same seed makes the same content.
    """
    feeds, holes_by_time = dict(case.feeds), {}
    for item in signature.inputs:
        holes = _holes_of(item, case)
        if holes is not None and holes.any():
            padded = np.asarray(item.role.padded, feeds[item.name].dtype)
            feeds[item.name] = np.where(holes, padded, feeds[item.name])
            holes_by_time[signature.time_of(item)] = _by_row(item, holes)
    if not holes_by_time:
        return None
    by_name = {
        signature.user_name(symbol): rows
        for time, rows in holes_by_time.items()
        if time is not None
        for symbol in signature.symbols_in(time)
    }
    holed = replace(case, name=f"{case.name}, {HOLES}", feeds=feeds, holes=by_name)
    rng = np.random.default_rng([seed, zlib.crc32(holed.name.encode())])
    sizes, other, has_floats = signature.key_by_symbol(case.dims), dict(feeds), False
    for item in signature.inputs:
        if item.role.kind not in ("data", "tokens") or item.time is None:
            continue
        array, rows = feeds[item.name], holes_by_time.get(signature.time_of(item))
        if rows is not None and (places := _spread(item, rows, array.shape)) is not None:
            role = item.bounded_by_sizes(sizes).role
            other[item.name] = fill_garbage(array, places, role, "other numbers", rng)
            has_floats |= array.dtype.kind == "f"
    kind: Poison = "other numbers" if has_floats else "other ids"
    name = f"{holed.name}, {kind} in them"
    return holed, replace(holed, name=name, feeds=other, poison=kind, base=holed.name)


def _holes_of(item: Input, case: Case) -> Mask | None:
    """Return where a mask gets holes; None of what is no mask or has several axes of its own."""
    array = case.feeds[item.name]
    own_axes = [a for a, size in enumerate(array.shape) if size > 1 and a != item.rows]
    if item.role.kind != "mask" or item.time is None or own_axes != [item.time]:
        return None
    content = array == np.asarray(item.role.valid, array.dtype)
    before = np.cumsum(content, axis=item.time)
    count = before.max(axis=item.time, keepdims=True)
    row = index_along(array.shape, item.rows) if item.rows is not None else 0
    third = (index_along(array.shape, item.time) + row) % 3 == 1
    holes: Mask = content & (before > 1) & (before < count) & (count >= _LEAST) & third
    return holes


def _by_row(item: Input, holes: Mask) -> Mask:
    """Return holes as rows of times; of a mask without rows, one row."""
    axes = [a for a in (item.rows, item.time) if a is not None]
    others = tuple(a for a in range(holes.ndim) if a not in axes)
    rows = np.moveaxis(np.asarray(holes.any(axis=others, keepdims=True)), axes, range(len(axes)))
    return rows.reshape(-1, holes.shape[item.time or 0])


def _spread(item: Input, rows: Mask, shape: tuple[int, ...]) -> Mask | None:
    """Return the same places in an input of data; None if its time has another length."""
    if item.time is None or shape[item.time] != rows.shape[1]:
        return None
    if item.rows is None or shape[item.rows] != len(rows):
        rows = np.asarray(rows.any(axis=0, keepdims=True))
        axes = [item.time]
    else:
        axes = [item.rows, item.time]
    around = [size if a in axes else 1 for a, size in enumerate(shape)]
    placed = rows if len(axes) > 1 and axes[0] < axes[1] else rows.T
    return np.broadcast_to(placed.reshape(around), shape)
