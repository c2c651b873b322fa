"""Sizes frozen at export: which entry of a constant shape stands for a symbolic dim."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.shapes import Dim, same


@dataclass(frozen=True)
class Thawed:
    """A target that fits at every size, and the one size at which the frozen one did.

    Attributes:
        target: The shape, with 0 for "as the input has it here" and at most one -1.
        dim: What was frozen.
        size: At which size.
    """

    target: tuple[int, ...]
    dim: ir.SymbolicDim
    size: int


def thawed(dims: Sequence[Dim], target: Sequence[int]) -> Thawed | str | None:
    """What a constant target of a Reshape stands for; a reason if that is not provable.

    Each entry is, at every size, a whole number times a power of the frozen dim. The product of
    all entries is that of ``dims``, so it holds the dim as often as they do; if the entries, as
    they stand, do not hold its frozen size more often than that, each must hold it as often as it
    can. None if the target fits at every size as it is.
    """
    if any(x == 0 and i >= len(dims) for i, x in enumerate(target)):
        return None
    left = [x for i, x in enumerate(dims) if i >= len(target) or target[i] != 0]
    open_dims = [x for x in left if not isinstance(x, int)]
    have = math.prod(x for x in left if isinstance(x, int))
    want = math.prod(x for x in target if x > 0)
    if not open_dims or have == 0:
        return None
    shown = f"{written(dims)} is reshaped to {written(target)}"
    product = "*".join(x if x.isidentifier() else f"({x})" for x in map(str, open_dims))
    if -1 in target:
        multiple = want // math.gcd(have, want)
        if multiple == 1:
            return None
        return f"{shown}, which runs only where {product} is a multiple of {multiple}"
    if want % have:
        return None  # it fits at no size at all
    first, power = open_dims[0], len(open_dims)
    if not all(same(first, x) for x in open_dims):
        return (
            f"{shown}, which runs only where {product} is {want // have}; "
            "fix-dims of all but one of them tells them apart"
        )
    size = round((want // have) ** (1 / power))
    if size**power * have != want:
        return None
    once = f"{shown}, which runs only where {first} is {size}"
    held = [0 if x == 0 else _times(x, size) for x in target]
    if size == 1:
        return f"{once}; fix-dims:{first}=1 says so, and lets others be told apart"
    if sum(held) != power:
        which = "no entry holds it" if sum(held) < power else "more than one entry may stand for it"
        return f"{once}: {which}"
    pairs = enumerate(zip(target, held, strict=True))
    entries = [_entry(x, n, size, i < len(dims) and same(dims[i], first)) for i, (x, n) in pairs]
    if entries.count(-1) > 1:
        return f"{once}: it needs more than one -1"
    return Thawed(tuple(entries), first, size)


def _entry(entry: int, held: int, size: int, in_place: bool) -> int:
    if held == 0:
        return entry
    return 0 if entry == size and in_place else -1


def _times(number: int, factor: int) -> int:
    """How often ``factor`` can be divided out of ``number``."""
    count = 0
    while factor > 1 and number % factor == 0:
        number, count = number // factor, count + 1
    return count


def pinned(frozen: Sequence[Dim], dims: Sequence[Dim]) -> str | None:
    """At which sizes only ``dims`` broadcast against constant ones; None if at all."""
    for a, b in zip(reversed(frozen), reversed(dims), strict=False):
        if isinstance(a, int) and a > 1 and not isinstance(b, int):
            return f"{b} is {a} or 1"
    return None


def written(dims: Sequence[Dim]) -> str:
    """``[1, T, 8]``."""
    return f"[{', '.join(str(x) for x in dims)}]"
