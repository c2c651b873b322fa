"""Axes along which a cache has its entries, and numbers that are counted from its length.

A cache of ``past`` entries gets a size, and its valid entries are the last ones. So an axis of
``past + c`` is aligned at its end, and a number that has ``past`` in it ``n`` times is too large by
``n`` times the entries that are not valid.
"""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.expressions import Dim, symbols_of, without
from graphfix.facts.symbolic.sums import times_in, window_of, within


class UnclearError(Exception):
    """Why a node cannot be analysed."""


@dataclass(frozen=True)
class Slots:
    """An axis of ``past + behind`` entries, or of the last ``window`` of these.

    Attributes:
        behind: How many entries there are besides those of the cache.
        window: How many there are at most; None if all.
    """

    behind: Dim
    window: Dim | None = None


class Lengths:
    """What of a model depends on the length of its caches.

    Args:
        shapes: The symbolic shapes of the model.
        symbol: The dim that is the length.
        most: What it never is above, as the model itself cuts its caches; None if nothing says so.
    """

    def __init__(self, shapes: Shapes, symbol: str, most: int | None = None) -> None:
        self._most = most
        self.shapes = shapes
        self.symbol = symbol
        self.casts: dict[ir.Value, tuple[int, ...]] = {}

    def slots(self, value: ir.Value | None) -> dict[int, Slots]:
        """The axes of a value along which a cache has its entries.

        Raises:
            UnclearError: A dim depends on the length in another way, such as twice it.
        """
        dims = self.shapes.dims(value) or ()
        return {i: self._slots(x) for i, x in enumerate(dims) if self.depends(x)}

    def depends(self, dim: Dim) -> bool:
        """Whether a dim is another where caches have another length."""
        return self.symbol in symbols_of(dim)

    def times(self, dim: Dim) -> int:
        """How often the length is in a number.

        Raises:
            UnclearError: The number is no sum of it.
        """
        if not self.depends(dim):
            return 0
        times = times_in(self._within(dim), self.symbol)
        if times is None:
            raise UnclearError(f"{dim} is no sum of the length {self.symbol}")
        return times

    def counted(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """How often the length is in each element of a number or a short vector; None if unknown.

        Raises:
            UnclearError: An element is no sum of the length.
        """
        if value is None:
            return None
        if value in self.casts:
            return self.casts[value]
        data = self.shapes.data(value)
        return None if data is None else tuple(map(self.times, data))

    def rest(self, dim: Dim) -> Dim:
        """A dim or number where the length is 0."""
        return without(self._within(dim), [self.symbol])

    def _slots(self, dim: Dim) -> Slots:
        cut = window_of(dim, self.symbol)
        if cut is not None and self.times(cut[0]) == 1:
            return Slots(self.rest(cut[0]), cut[1])
        if self.times(dim) != 1:
            raise UnclearError(f"an axis of {dim} entries has those of a cache more than once")
        return Slots(self.rest(dim))

    def _within(self, dim: Dim) -> Dim:
        return dim if self._most is None else within(dim, self.symbol, self._most)
