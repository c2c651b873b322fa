"""One input of a model: its dims, its role, and its batch and time axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy.typing as npt

from graphfix.errors import FeedError
from graphfix.facts.symbolic import expressions
from graphfix.facts.symbolic.expressions import Dim
from graphfix.feeds.roles import Role

symbols = expressions.symbols_of
"""The names in a dim."""


@dataclass(frozen=True)
class Input:
    """One input of the model.

    Attributes:
        name: Its name.
        dtype: Its element type.
        dims: Its dims; every symbol is an identifier.
        role: What it is for.
        rows: The axis of the batch, or None.
        time: The axis along which it is ragged, or None.
        problem: Why no array can be made for it; empty if one can.
    """

    name: str
    dtype: npt.DTypeLike
    dims: tuple[Dim, ...]
    role: Role
    rows: int | None = None
    time: int | None = None
    problem: str = ""

    def shape_at(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape, in elements, for sizes of all symbols."""
        return tuple(size_of_dim(d, sizes) for d in self.dims)

    def bounded_by_sizes(self, sizes: Mapping[str, int]) -> Input:
        """Return the same input, with its integers below the sizes of one run."""
        below = self.role.below
        if not below:
            return self
        # If a size is known only inside the graph, index 0 alone is safe.
        is_known = all(symbols(d) <= sizes.keys() for d in below)
        high = min(self.role.high, *(size_of_dim(d, sizes) for d in below)) if is_known else 1
        return replace(self, role=replace(self.role, high=max(high, self.role.low + 1)))


def size_of_dim(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Return the number that ``dim`` is for these sizes.

    Raises:
        FeedError: A symbol in it has no size, or the size would be negative.
    """
    if isinstance(dim, int):
        size: object = dim
    else:  # most dims are one name: a look-up is faster than evaluating an expression
        name = single_symbol(dim)
        size = int(sizes[name]) if name is not None and name in sizes else dim.evaluate(sizes)
    if not isinstance(size, int) or size < 0:
        raise FeedError(f"the dim {dim} has no size at {dict(sizes)}; give one with --dims")
    return size


def single_symbol(dim: Dim) -> str | None:
    """Return the name of a dim that is a single symbol, or None."""
    if isinstance(dim, int) or dim.value is None or not dim.value.isidentifier():
        return None
    return dim.value


def all_symbols(inputs: Iterable[Input]) -> list[str]:
    """Return every symbol of the inputs, in order of appearance."""
    dims = dict.fromkeys(d for x in inputs for d in x.dims)  # thousands of inputs share a few
    return list(dict.fromkeys(s for d in dims for s in sorted(symbols(d))))
