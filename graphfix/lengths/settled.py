"""Whether what positions were moved to is where it is in the clip alone: see ``cells``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import sympy

from graphfix.lengths.axes import RefusedError
from graphfix.lengths.domain import Other, Rows
from graphfix.lengths.trial import GARBAGE, Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.lengths.domain import Axis, Cells, Ids, Sizes
    from graphfix.lengths.site import Site


def settled(site: Site, cells: Cells) -> tuple[Axis, ...] | None:
    """The axes of a node's output, if what is valid is in its place: the beginning of each.

    None if it is not, or not yet: while batch and time are in one axis, say.
    """
    axes: list[Axis] = []
    for place, size in enumerate(site.out_dims()):
        own = _axis(site, size, cells, place)
        if own is None:
            return None
        axes.append(own)
    ours = zip(cells.trials, cells.ids, strict=True)
    return tuple(axes) if all(_keeps(site, axes, size, *both) for size, both in ours) else None


def _axis(site: Site, size: sympy.Expr, cells: Cells, place: int) -> Axis | None:
    """What an axis holds: the batch beside a number, before it or behind it, as rows show."""
    batch = site.source.batch
    if batch is None or all(x.name != batch for x in size.free_symbols):
        return site.axis_of(size)
    if str(size) == batch:
        return (Rows(size),)
    symbol = next(x for x in size.free_symbols if x.name == batch)
    beside = sympy.cancel(size / symbol)
    if not beside.is_Integer:
        return None
    if all(padded.shape[place] == 1 for _, padded in cells.ids):
        return site.axis_of(size)  # the same all along
    found: list[Axis] = [(Rows(symbol), Other(beside)), (Other(beside), Rows(symbol))]
    ours = list(zip(cells.trials, cells.ids, strict=True))
    return next((x for x in found if all(_in_rows(x, place, s, *b) for s, b in ours)), None)


def _in_rows(axis: Axis, place: int, size: Sizes, alone: Ids, padded: Ids) -> bool:
    """Whether a row of the batch holds what the clip alone holds, as far as its first frame."""
    here = np.take(padded, _row(axis, size, padded.shape[place]), axis=place)
    first = tuple(slice(None) if i == place else slice(0, 1) for i in range(alone.ndim))
    return here.shape[place] == alone.shape[place] and np.array_equal(alone[first], here[first])


def _row(axis: Axis, size: Sizes, whole: int) -> Ids:
    """Where a row of the batch is along an axis that holds it."""
    at: Ids = np.arange(whole, dtype=np.int64)
    beside = whole // size.rows
    rows = at // beside if isinstance(axis[0], Rows) else at % size.rows
    found: Ids = at[rows == size.row]
    return found


def _keeps(site: Site, axes: Sequence[Axis], size: Sizes, alone: Ids, padded: Ids) -> bool:
    """Whether a container holds what the clip alone does, at the beginning of each axis."""
    dims = Trial(site, size, alone=True).dims()
    for i, (axis, n) in enumerate(zip(axes, dims, strict=True)):
        if padded.shape[i] == 1:
            continue
        if any(isinstance(x, Rows) for x in axis):
            padded = np.take(padded, _row(axis, size, padded.shape[i]), axis=i)
        else:
            padded = np.take(padded, np.arange(min(n, padded.shape[i])), axis=i)
    try:
        here, there = np.broadcast_arrays(alone, padded)
    except ValueError:
        raise RefusedError("what it makes is not as long as its shape says") from None
    return bool(np.array_equal(here, there) and not (alone == GARBAGE).any())
