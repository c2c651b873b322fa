"""What is asked of dims that are sums, such as ``past + seq``, or that are cut to a number."""

import sympy

from graphfix.facts.symbolic.expressions import Dim, dim_of, expr_of


def minus(a: Dim, b: Dim) -> Dim:
    """The difference of two dims."""
    return dim_of(sympy.expand(expr_of(a) - expr_of(b)))


def times_in(dim: Dim, symbol: str) -> int | None:
    """How often a symbol is in a sum; None if the dim is no sum of it."""
    expr = sympy.expand(expr_of(dim))
    found = next((x for x in expr.free_symbols if x.name == symbol), None)
    if found is None:
        return 0
    factor = expr.coeff(found)
    rest = sympy.expand(expr - factor * found)
    return int(factor) if factor.is_Integer and not rest.has(found) else None


def terms_of(dim: Dim) -> tuple[int, list[tuple[int, str]]]:
    """A sum as a number, and how often it has each symbol."""
    number, terms = sympy.expand(expr_of(dim)).as_coeff_add()
    pairs = [x.as_coeff_mul() for x in terms]
    return int(number), [(int(factor), names[0].name) for factor, names in pairs]


def within(dim: Dim, symbol: str, most: int) -> Dim:
    """``Max(0, past - 5)`` as 0 where ``past`` is 5 at most."""

    def is_nothing(part: sympy.Expr) -> bool:
        if not isinstance(part, sympy.Max) or 0 not in part.args:
            return False
        return bool(part.subs({x: most for x in part.free_symbols if x.name == symbol}) == 0)

    return dim_of(expr_of(dim).replace(is_nothing, lambda *_: sympy.Integer(0)))


def window_of(dim: Dim, symbol: str) -> tuple[Dim, int] | None:
    """Of a size that is at most a number, what it is below, and the number; None of others.

    ``Min(past + seq, 6)``, which inference may have as ``past + seq - Max(0, past + seq - 6)``.
    """
    expr = expr_of(dim)
    if isinstance(expr, sympy.Max) and len(expr.args) == 2 and 0 in expr.args:
        expr = next(x for x in expr.args if x != 0)  # no size is less
    if isinstance(expr, sympy.Min) and len(expr.args) == 2:
        number, rest = sorted(expr.args, key=lambda x: not x.is_Integer)
        return (dim_of(rest), int(number)) if number.is_Integer and _has(rest, symbol) else None
    for term in expr.args if isinstance(expr, sympy.Add) else ():
        if isinstance(-term, sympy.Max) and 0 in (-term).args:
            rest = sympy.expand(expr - term)
            number = sympy.expand(rest - next(x for x in (-term).args if x != 0))
            if number.is_Integer and _has(rest, symbol):
                return dim_of(rest), int(number)
    return None


def _has(expr: sympy.Expr, symbol: str) -> bool:
    return symbol in {x.name for x in expr.free_symbols}
