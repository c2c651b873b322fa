"""Axes along which a cache has its entries, and numbers that are counted from its length.

A cache of ``past`` entries gets a size, and its valid entries are the last ones. So an axis of
``past + c`` is aligned at its end, and a number that has ``past`` in it ``n`` times is too large by
``n`` times the entries that are not valid.
"""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.expressions import Dim, symbols_of, with_zero_sizes
from graphfix.facts.symbolic.sums import coefficient_in, drop_zero_max, window_limit


class UnclearError(Exception):
    """Raised with the reason why a node cannot be analysed."""


@dataclass(frozen=True)
class CacheAxis:
    """An axis of ``past + extra`` entries, or of the last ``window`` of these.

    Attributes:
        extra: The number of entries besides those of the cache.
        window: The most entries there are; None if there is no limit.
    """

    extra: Dim
    window: Dim | None = None


class LengthDependence:
    """How the dims and numbers of a model depend on the length of its caches.

    Args:
        shapes: The symbolic shapes of the model.
        symbol: The dim that is the length.
        most: The largest length, where the model itself cuts its caches; None if unlimited.
    """

    def __init__(self, shapes: Shapes, symbol: str, most: int | None = None) -> None:
        self._most = most
        self.shapes = shapes
        self.symbol = symbol
        self.casts: dict[ir.Value, tuple[int, ...]] = {}

    def cache_axes(self, value: ir.Value | None) -> dict[int, CacheAxis]:
        """Return the axes of a value along which a cache has its entries.

        Raises:
            UnclearError: A dim depends on the length in another way, such as twice it.
        """
        dims = self.shapes.dims(value) or ()
        return {i: self._cache_axis_of(x) for i, x in enumerate(dims) if self.depends_on_length(x)}

    def depends_on_length(self, dim: Dim) -> bool:
        """Return whether a dim depends on the length of the caches."""
        return self.symbol in symbols_of(dim)

    def length_multiple(self, dim: Dim) -> int:
        """Return how many times the length is a term of a number.

        Raises:
            UnclearError: The number is no sum of it.
        """
        if not self.depends_on_length(dim):
            return 0
        multiple = coefficient_in(self._limit_length(dim), self.symbol)
        if multiple is None:
            raise UnclearError(f"{dim} is no sum of the length {self.symbol}")
        return multiple

    def length_multiples(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """Return how many times the length is in each element of a value, or None if unknown.

        Raises:
            UnclearError: An element is no sum of the length.
        """
        if value is None:
            return None
        if value in self.casts:
            return self.casts[value]
        data = self.shapes.known_elements(value)
        return None if data is None else tuple(map(self.length_multiple, data))

    def without_length(self, dim: Dim) -> Dim:
        """Return a dim or number where the length is 0."""
        return with_zero_sizes(self._limit_length(dim), [self.symbol])

    def _cache_axis_of(self, dim: Dim) -> CacheAxis:
        cut = window_limit(dim, self.symbol)
        if cut is not None and self.length_multiple(cut[0]) == 1:
            return CacheAxis(self.without_length(cut[0]), cut[1])
        if self.length_multiple(dim) != 1:
            raise UnclearError(f"an axis of {dim} entries has those of a cache more than once")
        return CacheAxis(self.without_length(dim))

    def _limit_length(self, dim: Dim) -> Dim:
        return dim if self._most is None else drop_zero_max(dim, self.symbol, self._most)
