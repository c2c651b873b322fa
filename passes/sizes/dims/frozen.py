"""Sizes frozen at export: which entry of a constant shape stands for a symbolic dim."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.shapes import Dim, same_dim
from graphfix.facts.symbolic.expressions import symbols_of


@dataclass(frozen=True)
class ThawedTarget:
    """A Reshape target that fits at every size, and the one size the frozen one fits.

    Attributes:
        target: The shape, with 0 to copy a size of the input and at most one -1.
        dim: The dim that was frozen.
        size: The size that it was frozen at.
    """

    target: tuple[int, ...]
    dim: ir.SymbolicDim
    size: int


def thaw_target(
    dims: Sequence[Dim], target: Sequence[int], promised: Collection[str] = ()
) -> ThawedTarget | str | None:
    """Return what a constant target of a Reshape stands for, or a reason if that is not provable.

    Each entry is, at every size, an integer times a power of the frozen dim. The product of all
    entries is that of ``dims``, so it contains the dim as often as they do; if the entries as
    written do not contain its frozen size more often than that, each must contain the dim as often
    as it can. None if the target fits at every size as it is, or at none.

    Args:
        dims: The dims of the data.
        target: The target.
        promised: The symbols that the declared outputs have where inference gives 1.
    """
    if any(x == 0 and i >= len(dims) for i, x in enumerate(target)):
        return None
    balance = _Balance.between(dims, target)
    if not balance.open_dims or balance.fixed_size == 0:
        return None
    if -1 in target:
        return balance.minus_one_reason()
    if balance.target_size % balance.fixed_size:
        return None  # it fits at no size at all
    if not all(same_dim(balance.open_dims[0], x) for x in balance.open_dims):
        return balance.different_dims_reason()
    size = balance.frozen_size
    if size == 1 and symbols_of(balance.open_dims[0]) <= {*promised}:
        return balance.thaw_one() or balance.thaw(size)
    return None if size is None else balance.thaw(size)


@dataclass(frozen=True)
class _Balance:
    """The sizes on both sides of a Reshape, except those that a 0 copies.

    Attributes:
        dims: The dims of the data.
        target: The target.
        open_dims: The symbolic dims that are not copied.
        fixed_size: The product of the numbers among the dims that are not copied.
        target_size: The product of the positive entries of the target.
    """

    dims: Sequence[Dim]
    target: Sequence[int]
    open_dims: Sequence[ir.SymbolicDim]
    fixed_size: int
    target_size: int

    @classmethod
    def between(cls, dims: Sequence[Dim], target: Sequence[int]) -> _Balance:
        """Compare the dims of the data with a target."""
        remaining = [x for i, x in enumerate(dims) if i >= len(target) or target[i] != 0]
        open_dims = [x for x in remaining if not isinstance(x, int)]
        fixed_size = math.prod(x for x in remaining if isinstance(x, int))
        return cls(dims, target, open_dims, fixed_size, math.prod(x for x in target if x > 0))

    @property
    def description(self) -> str:
        """Return both sides as text."""
        return f"{dims_text(self.dims)} is reshaped to {dims_text(self.target)}"

    @property
    def open_product(self) -> str:
        """Return the product of the symbolic dims as text."""
        names = map(str, self.open_dims)
        return "*".join(x if x.isidentifier() else f"({x})" for x in names)

    @property
    def frozen_size(self) -> int | None:
        """Return the one size at which the target fits, where all open dims are one dim."""
        power = len(self.open_dims)
        quotient = self.target_size // self.fixed_size
        size = round(quotient ** (1 / power))
        return size if size**power == quotient else None

    def minus_one_reason(self) -> str | None:
        """Return why a target with -1 fits at some sizes only; None if it fits at all."""
        multiple = self.target_size // math.gcd(self.fixed_size, self.target_size)
        if multiple == 1:
            return None
        where = f"{self.open_product} is a multiple of {multiple}"
        return f"{self.description}, which runs only where {where}"

    def different_dims_reason(self) -> str:
        """Return why the sizes of different dims do not follow from their product."""
        quotient = self.target_size // self.fixed_size
        return (
            f"{self.description}, which runs only where {self.open_product} is {quotient}; "
            "fix-dims of all but one of them tells them apart"
        )

    def thaw_one(self) -> ThawedTarget | None:
        """Return the target whose only 1 that is no dim of the data copies the one open dim."""
        ones = [i for i, x in enumerate(self.target) if x == 1 and self.dims[i : i + 1] != (1,)]
        if len(self.open_dims) > 1 or len(ones) != 1 or ones[0] >= len(self.dims):
            return None
        if not same_dim(self.dims[ones[0]], self.open_dims[0]):
            return None
        target = (*self.target[: ones[0]], 0, *self.target[ones[0] + 1 :])
        return ThawedTarget(target, self.open_dims[0], 1)

    def thaw(self, size: int) -> ThawedTarget | str:
        """Return the target with the one open dim in place of its size, or why it has no place."""
        first, power = self.open_dims[0], len(self.open_dims)
        prefix = f"{self.description}, which runs only where {first} is {size}"
        if size == 1:
            return f"{prefix}; fix-dims:{first}=1 says so, and lets others be told apart"
        powers = [0 if x == 0 else _count_divisions(x, size) for x in self.target]
        if sum(powers) < power:
            return f"{prefix}: no entry holds it"
        if sum(powers) > power:
            return f"{prefix}: more than one entry may stand for it"
        in_place = [
            i < len(self.dims) and same_dim(self.dims[i], first) for i in range(len(powers))
        ]
        entries = tuple(
            _thaw_entry(x, n, size, place)
            for x, n, place in zip(self.target, powers, in_place, strict=True)
        )
        if entries.count(-1) > 1:
            return f"{prefix}: it needs more than one -1"
        return ThawedTarget(entries, first, size)


def _thaw_entry(entry: int, power: int, size: int, in_place: bool) -> int:
    if power == 0:
        return entry
    return 0 if entry == size and in_place else -1


def _count_divisions(number: int, factor: int) -> int:
    """Return how often ``factor`` can be divided out of ``number``."""
    count = 0
    while factor > 1 and number % factor == 0:
        number, count = number // factor, count + 1
    return count


def why_pinned(frozen: Sequence[Dim], dims: Sequence[Dim]) -> str | None:
    """Return at which sizes only ``dims`` broadcast against constant ones, or None."""
    for a, b in zip(reversed(frozen), reversed(dims), strict=False):
        if isinstance(a, int) and a > 1 and not isinstance(b, int):
            return f"{b} is {a} or 1"
    return None


def dims_text(dims: Sequence[Dim]) -> str:
    """Return dims as text: ``[1, T, 8]``."""
    return f"[{', '.join(str(x) for x in dims)}]"
