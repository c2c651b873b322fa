"""Sizes frozen at export: which entry of a constant shape stands for a symbolic dim."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.shapes import Dim, same_dim


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


def thaw_target(dims: Sequence[Dim], target: Sequence[int]) -> ThawedTarget | str | None:
    """Return what a constant target of a Reshape stands for, or a reason if that is not provable.

    Each entry is, at every size, an integer times a power of the frozen dim. The product of all
    entries is that of ``dims``, so it contains the dim as often as they do; if the entries as
    written do not contain its frozen size more often than that, each must contain the dim as often
    as it can. None if the target fits at every size as it is.
    """
    if any(x == 0 and i >= len(dims) for i, x in enumerate(target)):
        return None
    remaining = [x for i, x in enumerate(dims) if i >= len(target) or target[i] != 0]
    open_dims = [x for x in remaining if not isinstance(x, int)]
    fixed_size = math.prod(x for x in remaining if isinstance(x, int))
    target_size = math.prod(x for x in target if x > 0)
    if not open_dims or fixed_size == 0:
        return None
    description = f"{dims_text(dims)} is reshaped to {dims_text(target)}"
    product = "*".join(x if x.isidentifier() else f"({x})" for x in map(str, open_dims))
    if -1 in target:
        multiple = target_size // math.gcd(fixed_size, target_size)
        if multiple == 1:
            return None
        return f"{description}, which runs only where {product} is a multiple of {multiple}"
    if target_size % fixed_size:
        return None  # it fits at no size at all
    first, power = open_dims[0], len(open_dims)
    if not all(same_dim(first, x) for x in open_dims):
        return (
            f"{description}, which runs only where {product} is {target_size // fixed_size}; "
            "fix-dims of all but one of them tells them apart"
        )
    size = round((target_size // fixed_size) ** (1 / power))
    if size**power * fixed_size != target_size:
        return None
    prefix = f"{description}, which runs only where {first} is {size}"
    powers = [0 if x == 0 else _count_divisions(x, size) for x in target]
    if size == 1:
        return f"{prefix}; fix-dims:{first}=1 says so, and lets others be told apart"
    if sum(powers) != power:
        cause = (
            "no entry holds it" if sum(powers) < power else "more than one entry may stand for it"
        )
        return f"{prefix}: {cause}"
    pairs = enumerate(zip(target, powers, strict=True))
    entries = [
        _thaw_entry(x, n, size, i < len(dims) and same_dim(dims[i], first)) for i, (x, n) in pairs
    ]
    if entries.count(-1) > 1:
        return f"{prefix}: it needs more than one -1"
    return ThawedTarget(tuple(entries), first, size)


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
