"""Lengths of Slices whose end is computed and may be below 0 where the axis is short.

Frames stacked by ``x[:, i : 2 * ((T - 4) // 2) + i : 2]`` have such an end: of a clip of three
frames it is -2 + i, which counts from the end of the clip.
"""

import functools

import numpy as np
import sympy

from graphfix.facts.symbolic.expressions import compile_dim, dim_of, normal_form
from graphfix.facts.symbolic.signs import never_negative

# Where an end is below 0 at more sizes than these, it is not looked into.
_MAX_FIRST_SIZE = 64
_MAX_DELAY = 16
# From a little further on its form is often shorter.
_MAX_STARTS = 3
_MAX_TRIED_SIZE = 4096


@functools.lru_cache(maxsize=1024)
def symbolic_slice_length(
    size: sympy.Expr, start: sympy.Expr, end: sympy.Expr, step: int
) -> sympy.Expr | None:
    """Return how many elements ``start:end:step`` has, wherever the symbol is at least 1.

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
    thresholds = _nonnegative_thresholds(end, symbol)
    if not thresholds:
        return None
    symbol_sizes = np.arange(1, thresholds[-1])
    sizes = _evaluate_at_sizes(size, symbol, symbol_sizes)
    symbol_sizes = symbol_sizes[np.array(sizes, np.int64) >= 0]
    ends = _evaluate_at_sizes(end, symbol, symbol_sizes)
    limits = zip(ends, (n for n in sizes if n >= 0), strict=True)
    exact = [len(range(*slice(int(start), e, step).indices(n))) for e, n in limits]
    lasts = _clamped_ends(size, end, symbol, thresholds)
    plain = [normal_form(sympy.Max(0, ceil_quotient(last - start, step))) for last in lasts]
    candidates = [x for x in plain if _evaluate_at_sizes(x, symbol, symbol_sizes) == exact]
    below = [n for n, e in zip(symbol_sizes.tolist(), ends, strict=True) if e < 0]
    if not candidates and below:
        # Up to there it counts from the end; further on the last factor is not above 0.
        end_limit = max(exact) * (below[-1] + 1 - symbol)
        behind = sympy.Min(ceil_quotient(end + size - start, step), end_limit)
        sums = [normal_form(x + sympy.Max(0, behind)) for x in plain]
        candidates = [x for x in sums if _evaluate_at_sizes(x, symbol, symbol_sizes) == exact]
    return min(candidates, key=lambda x: len(str(x)), default=None)


def ceil_quotient(length: sympy.Expr, step: int) -> sympy.Expr:
    """Return how many steps it takes to go that far: a quotient, rounded up."""
    return sympy.floor((length + step - 1) / step)


def _nonnegative_thresholds(end: sympy.Expr, symbol: sympy.Symbol) -> list[int]:
    """Return sizes from which on ``end`` is seen not to be below 0, the least first."""
    below = np.flatnonzero(
        np.array(_evaluate_at_sizes(end, symbol, np.arange(1, _MAX_TRIED_SIZE))) < 0
    )
    first = 1 if not below.size else int(below[-1]) + 2
    thresholds: list[int] = []
    # What is rounded is seen to be large enough a little later than it is.
    for threshold in range(first, min(first + _MAX_DELAY, _MAX_FIRST_SIZE)):
        if never_negative(normal_form(end.subs(symbol, symbol + threshold - 1))):
            thresholds.append(threshold)
        if len(thresholds) == _MAX_STARTS:
            break
    return thresholds


def _clamped_ends(
    size: sympy.Expr, end: sympy.Expr, symbol: sympy.Symbol, thresholds: list[int]
) -> list[sympy.Expr]:
    """Return the end, cut to the size, in forms that hold from the last threshold on."""
    forms = []
    for threshold, ahead in [
        (thresholds[-1], end),
        *((x, _simplify_from(end, symbol, x)) for x in thresholds),
    ]:
        forms.append(sympy.Min(ahead, size))
        if never_negative(normal_form((size - end).subs(symbol, symbol + threshold - 1))):
            forms.append(ahead)
    return forms


def _simplify_from(expr: sympy.Expr, symbol: sympy.Symbol, least: int) -> sympy.Expr:
    """Return the expression in the form that it has for sizes of at least ``least``."""
    return normal_form(
        normal_form(expr.subs(symbol, symbol + least - 1)).subs(symbol, symbol - least + 1)
    )


def _evaluate_at_sizes(
    expr: sympy.Expr, symbol: sympy.Symbol, symbol_sizes: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> list[int]:
    results = compile_dim(dim_of(expr))({symbol.name: symbol_sizes})
    return [int(x) for x in np.broadcast_to(results, symbol_sizes.shape)]
