"""Questions about dims that are sums, such as ``past + seq``, or are cut to a number."""

import sympy

from graphfix.facts.symbolic.expressions import Dim, dim_of, expr_of


def subtract_dims(a: Dim, b: Dim) -> Dim:
    """Return the difference of two dims."""
    return dim_of(sympy.expand(expr_of(a) - expr_of(b)))


def coefficient_in(dim: Dim, symbol: str) -> int | None:
    """Return the coefficient of a symbol in a sum; None if the dim is no such sum."""
    expr = sympy.expand(expr_of(dim))
    variable = next((x for x in expr.free_symbols if x.name == symbol), None)
    if variable is None:
        return 0
    factor = expr.coeff(variable)
    remainder = sympy.expand(expr - factor * variable)
    return int(factor) if factor.is_Integer and not remainder.has(variable) else None


def linear_terms(dim: Dim) -> tuple[int, list[tuple[int, str]]]:
    """Return the number of a sum, and the coefficient and name of each of its symbols."""
    number, terms = sympy.expand(expr_of(dim)).as_coeff_add()
    pairs = [x.as_coeff_mul() for x in terms]
    return int(number), [(int(factor), names[0].name) for factor, names in pairs]


def drop_zero_max(dim: Dim, symbol: str, most: int) -> Dim:
    """Replace a Max such as ``Max(0, past - 5)`` by 0 if it is 0 where ``symbol`` is ``most``."""

    def is_zero_max(part: sympy.Expr) -> bool:
        if not isinstance(part, sympy.Max) or 0 not in part.args:
            return False
        return bool(part.subs({x: most for x in part.free_symbols if x.name == symbol}) == 0)

    return dim_of(expr_of(dim).replace(is_zero_max, lambda *_: sympy.Integer(0)))


def window_limit(dim: Dim, symbol: str) -> tuple[Dim, int] | None:
    """Return ``(dim, number)`` if a size is ``Min(dim, number)`` with ``symbol`` in it, or None.

    ``Min(past + seq, 6)``, which inference may have as ``past + seq - Max(0, past + seq - 6)``.
    """
    expr = expr_of(dim)
    if isinstance(expr, sympy.Max) and len(expr.args) == 2 and 0 in expr.args:
        expr = next(x for x in expr.args if x != 0)  # no size is less
    if isinstance(expr, sympy.Min) and len(expr.args) == 2:
        number, inner = sorted(expr.args, key=lambda x: not x.is_Integer)
        return (
            (dim_of(inner), int(number))
            if number.is_Integer and _has_symbol(inner, symbol)
            else None
        )
    for term in expr.args if isinstance(expr, sympy.Add) else ():
        if isinstance(-term, sympy.Max) and 0 in (-term).args:
            inner = sympy.expand(expr - term)
            number = sympy.expand(inner - next(x for x in (-term).args if x != 0))
            if number.is_Integer and _has_symbol(inner, symbol):
                return dim_of(inner), int(number)
    return None


def _has_symbol(expr: sympy.Expr, symbol: str) -> bool:
    return symbol in {x.name for x in expr.free_symbols}
