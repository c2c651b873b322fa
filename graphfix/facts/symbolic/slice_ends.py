"""How much a Slice leaves whose end is computed and may be below 0 where the axis is short.

Frames stacked by ``x[:, i : 2 * ((T - 4) // 2) + i : 2]`` have such an end: of a clip of three
frames it is -2 + i, which counts from the end of the clip.
"""

import functools

import numpy as np
import sympy

from graphfix.facts.symbolic.expressions import dim_of, evaluator, settled
from graphfix.facts.symbolic.signs import never_negative

# Where an end is below 0 at more sizes than these, it is not looked into.
_FEW = 64
_LATER = 16
# From a little further on its form is often shorter.
_SEEN = 3
_TRIED = 4096


@functools.lru_cache(maxsize=1024)
def length_to(size: sympy.Expr, start: sympy.Expr, end: sympy.Expr, step: int) -> sympy.Expr | None:
    """How many elements ``start:end:step`` has, wherever the symbol is at least 1.

    Where the size itself would be below 0, as ``4 * n - 20`` of few frames, there is no such axis.

    Args:
        size: How long the axis is, in one symbol.
        start: Where it begins, not below 0.
        end: Where it ends, in the same symbol; below 0 at a few of the least sizes, if at all.
        step: By which step, at least 1.

    Returns:
        An expression in that symbol, or None if it is not seen where the end ceases to be below 0.
    """
    symbols = size.free_symbols | end.free_symbols
    if len(symbols) != 1 or not start.is_Integer:
        return None
    symbol = next(iter(symbols))
    turns = _turns(end, symbol)
    if not turns:
        return None
    at = np.arange(1, turns[-1])
    sizes = _values(size, symbol, at)
    at = at[np.array(sizes, np.int64) >= 0]
    ends = _values(end, symbol, at)
    limits = zip(ends, (n for n in sizes if n >= 0), strict=True)
    exact = [len(range(*slice(int(start), e, step).indices(n))) for e, n in limits]
    lasts = _lasts(size, end, symbol, turns)
    plain = [settled(sympy.Max(0, steps_in(last - start, step))) for last in lasts]
    found = [x for x in plain if _values(x, symbol, at) == exact]
    below = [n for n, e in zip(at.tolist(), ends, strict=True) if e < 0]
    if not found and below:
        # Up to there it counts from the end; further on the last factor is not above 0.
        only = max(exact) * (below[-1] + 1 - symbol)
        behind = sympy.Min(steps_in(end + size - start, step), only)
        both = [settled(x + sympy.Max(0, behind)) for x in plain]
        found = [x for x in both if _values(x, symbol, at) == exact]
    return min(found, key=lambda x: len(str(x)), default=None)


def steps_in(length: sympy.Expr, step: int) -> sympy.Expr:
    """How many steps it takes to go that far: a quotient, rounded up."""
    return sympy.floor((length + step - 1) / step)


def _turns(end: sympy.Expr, symbol: sympy.Symbol) -> list[int]:
    """Sizes from which on ``end`` is seen not to be below 0, the least first."""
    below = np.flatnonzero(np.array(_values(end, symbol, np.arange(1, _TRIED))) < 0)
    first = 1 if not below.size else int(below[-1]) + 2
    seen: list[int] = []
    # What is rounded is seen to be large enough a little later than it is.
    for turn in range(first, min(first + _LATER, _FEW)):
        if never_negative(settled(end.subs(symbol, symbol + turn - 1))):
            seen.append(turn)
        if len(seen) == _SEEN:
            break
    return seen


def _lasts(
    size: sympy.Expr, end: sympy.Expr, symbol: sympy.Symbol, turns: list[int]
) -> list[sympy.Expr]:
    """The end, cut to the size, in forms that hold from the last of these turns on."""
    found = []
    for turn, ahead in [(turns[-1], end), *((x, _from(end, symbol, x)) for x in turns)]:
        found.append(sympy.Min(ahead, size))
        if never_negative(settled((size - end).subs(symbol, symbol + turn - 1))):
            found.append(ahead)
    return found


def _from(expr: sympy.Expr, symbol: sympy.Symbol, least: int) -> sympy.Expr:
    """The expression in the form that it has for sizes of at least ``least``."""
    return settled(settled(expr.subs(symbol, symbol + least - 1)).subs(symbol, symbol - least + 1))


def _values(
    expr: sympy.Expr, symbol: sympy.Symbol, at: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> list[int]:
    found = evaluator(dim_of(expr))({symbol.name: at})
    return [int(x) for x in np.broadcast_to(found, at.shape)]
