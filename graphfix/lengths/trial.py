"""One run of a node at one size, element by element: see :mod:`graphfix.lengths.cells`."""

from __future__ import annotations

import numpy as np
import sympy

from graphfix.lengths.axes import RefusedError
from graphfix.lengths.domain import Ids, State, Time
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
            return ids + FILL
        for axis in state.timed:
            time = state.at(axis)
            if len(time) != 1 or not isinstance(time[0], Time) or time[0].turned:
                raise RefusedError("an axis holds time beside something else, or runs backwards")
            at: Ids = np.arange(real[axis], dtype=np.int64)
            valid = self.number(time[0].size, self.clip)
            here = np.where(at < valid, at + 1, GARBAGE)
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
    result: Ids = np.where((a == GARBAGE) | (b == GARBAGE), GARBAGE, mixed)
    return result
