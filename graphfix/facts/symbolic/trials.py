"""Sizes of one symbol, evaluated for clips of many lengths.

A size is made of quotients rounded down, minima and maxima: what holds of such expressions over
many periods holds for good.
"""

import functools

import numpy as np
import sympy

from graphfix.facts.symbolic.expressions import compile_dim, dim_of

Sizes = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

TRIAL_LENGTHS = np.arange(1, 4097)
_LONGEST = 1 << 18
"""16 seconds of audio at 16 kHz."""


@functools.lru_cache(maxsize=4096)
def size_at_trials(size: sympy.Expr) -> Sizes:
    """Evaluate a size at each trial length of its only symbol, or a number as often."""
    if not size.free_symbols:
        return np.full_like(TRIAL_LENGTHS, int(size))
    name = str(next(iter(size.free_symbols)))
    return np.broadcast_to(compile_dim(dim_of(size))({name: TRIAL_LENGTHS}), TRIAL_LENGTHS.shape)


@functools.lru_cache(maxsize=4096)
def must_be_equal(a: sympy.Expr, b: sympy.Expr, *, broadcasts: bool = True) -> bool:
    """Return whether two sizes of one symbol are equal in each run that a node beside them allows.

    ``2 * floor(T / 2)`` beside ``T`` runs for even lengths alone. There must be such lengths
    without end; a size of 0 is no usual run.

    Args:
        a: One size.
        b: The other.
        broadcasts: Whether the node repeats a size of 1.
    """
    symbols = a.free_symbols | b.free_symbols
    if len(symbols) != 1 or a.free_symbols != b.free_symbols:
        return False
    first, second = size_at_trials(a), size_at_trials(b)
    usual = (first >= 1) & (second >= 1)
    equal = usual & (first == second)
    repeats = usual & ~equal & ((first == 1) | (second == 1))
    return bool(equal[len(equal) // 2 :].any() and not (broadcasts and repeats.any()))


def lengths_where_equal(a: sympy.Expr, b: sympy.Expr) -> tuple[int, int] | None:
    """Return the least and the largest length at which two sizes of one symbol are equal.

    None if there is no such length up to 262,144, or no end of them.
    """
    symbols = a.free_symbols | b.free_symbols
    if len(symbols) != 1:
        return None
    name, lengths = str(next(iter(symbols))), np.arange(1, _LONGEST)
    first, second = (compile_dim(dim_of(size))({name: lengths}) for size in (a, b))
    equal = lengths[(first == second) & (first >= 1)]
    if not len(equal) or equal[-1] > _LONGEST // 2:
        return None
    return int(equal[0]), int(equal[-1])
