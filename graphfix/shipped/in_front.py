"""Arrays whose valid entries are their last: filled up in front, or cut there; numpy only."""

from collections.abc import Sequence

import numpy as np

from graphfix.runtime.port import Array


def fit_in_front(array: Array, shape: Sequence[int], fill: float = 0.0) -> Array:
    """Fill an array up in front to a shape, or cut its first entries where it is longer."""
    if array.shape == tuple(shape):
        return array
    sizes = tuple(zip(array.shape, shape, strict=True))
    cut = array[tuple(slice(max(0, n - size), None) for n, size in sizes)]
    if cut.shape == tuple(shape):
        return cut
    result = np.full(shape, fill, array.dtype)
    result[tuple(slice(max(0, size - n), None) for n, size in sizes)] = cut
    return result


def last_entries(array: Array, axis: int, count: int) -> Array:
    """Return the last entries along an axis, or all if there are fewer."""
    return array[(slice(None),) * axis + (slice(max(0, array.shape[axis] - count), None),)]
