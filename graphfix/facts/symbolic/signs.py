"""Expressions in sizes that are nowhere below 0."""

import functools

import sympy

_FAR = 2**10


@functools.lru_cache(maxsize=1 << 14)
def never_negative(expr: sympy.Expr) -> bool:
    """Whether an expression in sizes, each at least 1, is at least 0; False if it is not seen."""
    expr = sympy.expand(expr)
    if expr.is_nonnegative:
        return True
    if _grows(expr):
        return bool(expr.subs(dict.fromkeys(expr.free_symbols, 1)) >= 0)
    # Those that are taken away first: F - 2 * floor((F - 3) / 2) is at least 3, whatever F is.
    least = bounded(bounded(expr, taken=True))
    if least.is_nonnegative:
        return True
    if _grows(least):
        edge = least.subs(dict.fromkeys(least.free_symbols, 1))
        return bool((edge > -1) if expr.is_integer else (edge >= 0))  # more than -1 is 0, or more
    return _is_sum_of_powers(least) or _is_more_than_one_side(expr) or _never_falls_below(expr)


def bounded(expr: sympy.Expr, *, taken: bool = False) -> sympy.Expr:
    """What an expression is at least: floor(p / q) is between (p - q + 1) / q and p / q."""
    least = sympy.Integer(0)
    for term in sympy.Add.make_args(expr):
        number, rest = term.as_coeff_Mul()
        if isinstance(rest, sympy.floor) and (number < 0 or not taken):
            above, below = sympy.fraction(sympy.together(rest.args[0]))
            rest = above / below if number < 0 else (above - below + 1) / below
        least += number * rest
    return sympy.expand(least)


def _is_sum_of_powers(expr: sympy.Expr) -> bool:
    """Whether nothing is subtracted in a polynomial in how much each size is more than 1."""
    symbols = expr.free_symbols
    if not symbols or not expr.is_polynomial(*symbols):
        return False
    more = sympy.expand(expr.subs({x: x + 1 for x in symbols}, simultaneous=True))
    return all(x.as_coeff_Mul()[0] >= 0 for x in sympy.Add.make_args(more))


def _is_more_than_one_side(expr: sympy.Expr) -> bool:
    """Whether ``Max(a, b) + c`` is at least 0 since ``a + c`` is, or ``b + c``."""
    for term in sympy.Add.make_args(expr):
        number, rest = term.as_coeff_Mul()
        if number > 0 and isinstance(rest, sympy.Max):
            return any(never_negative(expr - term + number * x) for x in rest.args)
    return False


def _never_falls_below(expr: sympy.Expr) -> bool:
    """Whether it is at least 0 at each of the sizes that a Max or Min tells apart, and behind them.

    ``samples - Max(256, samples) + Max(0, 256 - samples)`` is 0 of more than 256 samples.
    """
    edges = [x for y in expr.atoms(sympy.Max, sympy.Min) for x in y.atoms(sympy.Integer)]
    edge, symbols = max(map(abs, edges), default=0), expr.free_symbols
    if len(symbols) != 1 or not 0 < edge <= _FAR:
        return False
    symbol = next(iter(symbols))
    behind = expr.subs(symbol, symbol + edge)
    if behind.has(sympy.Max, sympy.Min) or not never_negative(behind):
        return False
    return all(expr.subs(symbol, x) >= 0 for x in range(1, edge + 1))


def _grows(expr: sympy.Expr) -> bool:
    """Whether an expression is nowhere smaller where a symbol is larger."""
    if expr.is_Number or isinstance(expr, sympy.Symbol):
        return True
    if isinstance(expr, sympy.floor | sympy.Max | sympy.Min | sympy.Add):
        return all(_grows(x) for x in expr.args)
    if isinstance(expr, sympy.Mul):
        number, rest = expr.as_coeff_Mul()
        factors = sympy.Mul.make_args(rest)
        return bool(number > 0) and all(
            isinstance(x, sympy.Symbol) or (_grows(x) and len(factors) == 1) for x in factors
        )
    return False
