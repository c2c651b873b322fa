"""Proofs that expressions in sizes are nowhere below 0."""

import functools

import sympy

_MAX_EDGE = 2**10


@functools.lru_cache(maxsize=1 << 14)
def never_negative(expr: sympy.Expr) -> bool:
    """Return whether an expression in sizes, each at least 1, is seen to be at least 0."""
    expr = sympy.expand(expr)
    if expr.is_nonnegative:
        return True
    if _is_monotonic(expr):
        return bool(expr.subs(dict.fromkeys(expr.free_symbols, 1)) >= 0)
    # Those that are taken away first: F - 2 * floor((F - 3) / 2) is at least 3, whatever F is.
    least = lower_bound(lower_bound(expr, subtracted_only=True))
    if least.is_nonnegative:
        return True
    if _is_monotonic(least):
        edge = least.subs(dict.fromkeys(least.free_symbols, 1))
        return bool((edge > -1) if expr.is_integer else (edge >= 0))  # more than -1 is 0, or more
    return _is_sum_of_powers(least) or _is_more_than_one_side(expr) or _never_falls_below(expr)


def lower_bound(expr: sympy.Expr, *, subtracted_only: bool = False) -> sympy.Expr:
    """Return a lower bound: floor(p / q) is between (p - q + 1) / q and p / q."""
    least = sympy.Integer(0)
    for term in sympy.Add.make_args(expr):
        number, factor = term.as_coeff_Mul()
        if isinstance(factor, sympy.floor) and (number < 0 or not subtracted_only):
            numerator, denominator = sympy.fraction(sympy.together(factor.args[0]))
            factor = (
                numerator / denominator
                if number < 0
                else (numerator - denominator + 1) / denominator
            )
        least += number * factor
    return sympy.expand(least)


def _is_sum_of_powers(expr: sympy.Expr) -> bool:
    """Return whether a polynomial in how much each size exceeds 1 subtracts nothing."""
    symbols = expr.free_symbols
    if not symbols or not expr.is_polynomial(*symbols):
        return False
    more = sympy.expand(expr.subs({x: x + 1 for x in symbols}, simultaneous=True))
    return all(x.as_coeff_Mul()[0] >= 0 for x in sympy.Add.make_args(more))


def _is_more_than_one_side(expr: sympy.Expr) -> bool:
    """Return whether ``Max(a, b) + c`` is at least 0 since ``a + c`` is, or ``b + c``."""
    for term in sympy.Add.make_args(expr):
        number, factor = term.as_coeff_Mul()
        if number > 0 and isinstance(factor, sympy.Max):
            return any(never_negative(expr - term + number * x) for x in factor.args)
    return False


def _never_falls_below(expr: sympy.Expr) -> bool:
    """Return whether it is at least 0 at each size that a Max or Min tells apart, and beyond.

    ``samples - Max(256, samples) + Max(0, 256 - samples)`` is 0 of more than 256 samples.
    """
    edges = [x for y in expr.atoms(sympy.Max, sympy.Min) for x in y.atoms(sympy.Integer)]
    edge, symbols = max(map(abs, edges), default=0), expr.free_symbols
    if len(symbols) != 1 or not 0 < edge <= _MAX_EDGE:
        return False
    symbol = next(iter(symbols))
    behind = expr.subs(symbol, symbol + edge)
    if behind.has(sympy.Max, sympy.Min) or not never_negative(behind):
        return False
    return all(expr.subs(symbol, x) >= 0 for x in range(1, edge + 1))


def _is_monotonic(expr: sympy.Expr) -> bool:
    """Return whether an expression is nowhere smaller where a symbol is larger."""
    if expr.is_Number or isinstance(expr, sympy.Symbol):
        return True
    if isinstance(expr, sympy.floor | sympy.Max | sympy.Min | sympy.Add):
        return all(_is_monotonic(x) for x in expr.args)
    if isinstance(expr, sympy.Mul):
        number, variable_part = expr.as_coeff_Mul()
        factors = sympy.Mul.make_args(variable_part)
        return bool(number > 0) and all(
            isinstance(x, sympy.Symbol) or (_is_monotonic(x) and len(factors) == 1) for x in factors
        )
    return False
