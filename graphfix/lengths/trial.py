"""One run of a node at one size, element by element: see :mod:`graphfix.lengths.cells`."""

from __future__ import annotations

import zlib

import numpy as np
import sympy

from graphfix.lengths.axes import RefusedError
from graphfix.lengths.domain import Axis, Ids, Rows, Sizes, Time
from graphfix.lengths.site import Site

GARBAGE = -1
"""The cell of what is no part of the clip."""
FILL = -2
"""The cell of a number that is the same everywhere."""
LARGEST = 1 << 20
"""How many cells are followed at most."""


class Trial:
    """One run at one size of the padded dim: dims and contents as numbers.

    Attributes:
        site: The node.
        size: The clip, and what it is run in.
        alone: Whether this is the run of the clip alone.
        length: The size of the padded dim.
        rows: How many rows the batch has.
    """

    def __init__(self, site: Site, size: Sizes, *, alone: bool) -> None:
        self.site = site
        self.size = size
        self.alone = alone
        self.length = size.clip if alone else size.container
        self.rows = 1 if alone else size.rows

    def number(self, size: sympy.Expr, length: int | None = None) -> int:
        """A size in this run."""
        at = self.length if length is None else length
        source = self.site.source
        known = {source.symbol: at, source.batch: self.rows}
        names = {x: known.get(x.name, 1) for x in size.free_symbols}
        if any(x.name not in source.symbols for x in names):
            raise RefusedError("a size that it needs is not known")
        return int(size.subs(names))

    def dims(self, index: int = 0) -> list[int]:
        """The dims of an output in this run."""
        return [self.number(x) for x in self.site.out_dims(index)]

    def contents(self, index: int) -> list[int]:
        """What a small integer input holds in this run."""
        held = self.site.contents(index)
        if held is None:
            raise RefusedError("what shapes it is not known")
        return [self.number(x) for x in held]

    def of(self, index: int, place: int) -> Ids:
        """The cells of an input: its own, or which tensor it is, and positions in time."""
        state, real = self.site.state(index), self.real(index)
        if state.cells is not None:
            return state.cells.ids[place][0 if self.alone else 1]
        ids: Ids = np.zeros((1,) * state.rank, np.int64)
        if state.fill is not None:
            return ids + FILL
        name = self.site.node.inputs[index].name or ""  # type: ignore[union-attr]
        ids = ids + zlib.crc32(name.encode())
        for axis, factors in enumerate(state.axes or ()):
            if any(isinstance(x, Rows) for x in factors):
                ids = mix(ids, self._rows(factors).reshape(_along(axis, state.rank)))
        for axis in state.timed:
            time = state.at(axis)
            if len(time) != 1 or not isinstance(time[0], Time) or time[0].turned:
                raise RefusedError("an axis holds time beside something else, or runs backwards")
            at: Ids = np.arange(real[axis], dtype=np.int64)
            valid = self.number(time[0].size, self.size.clip)
            here = np.where(at < valid, at + 1, GARBAGE)
            ids = mix(ids, here.reshape(_along(axis, state.rank)))
        return ids

    def _rows(self, factors: Axis) -> Ids:
        """Which row of the batch it is, and what else is in one axis with it."""
        sizes = [self.number(x.size) for x in factors]
        found: Ids = np.zeros(sizes, np.int64)
        for i, factor in enumerate(factors):
            first = self.size.row if self.alone and isinstance(factor, Rows) else 0
            at = first + np.arange(sizes[i], dtype=np.int64)
            found = mix(found, at.reshape(_along(i, len(sizes))))
        return found

    def real(self, index: int) -> list[int]:
        """The dims of an input in this run."""
        dims = self.site.dims(self.site.node.inputs[index])
        if dims is None:
            raise RefusedError("the shape of one of its inputs is not known")
        return [self.number(x) for x in dims]


def _along(axis: int, rank: int) -> list[int]:
    return [-1 if i == axis else 1 for i in range(rank)]


def mix(a: Ids, b: Ids) -> Ids:
    """The cells of what is made of two: a number for each pair; garbage stays garbage."""
    with np.errstate(over="ignore"):
        mixed = (a * np.int64(0x9E3779B1) ^ (b + np.int64(0x7F4A7C15)) * np.int64(0x85EBCA77)) >> 1
    mixed = np.abs(mixed) + 10
    result: Ids = np.where((a == GARBAGE) | (b == GARBAGE), GARBAGE, mixed)
    return result
