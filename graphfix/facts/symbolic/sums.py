"""Questions about dims that are sums, such as ``past + seq``, or are cut to a number."""

import sympy

from graphfix.facts.symbolic.expressions import Dim, dim_of, expr_of


def add_dims(a: Dim, b: Dim) -> Dim:
    """Return the sum of two dims."""
    return dim_of(sympy.expand(expr_of(a) + expr_of(b)))


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
    if (inner := _max_with_zero(expr)) is not None:
        expr = inner  # no size is less than 0
    if isinstance(expr, sympy.Min) and len(expr.args) == 2:
        number, inner = sorted(expr.args, key=lambda x: not x.is_Integer)
        return _limit_in(inner, number, symbol)
    limits = (_limit_of_term(expr, term, symbol) for term in sympy.Add.make_args(expr))
    return next(filter(None, limits), None)


def _limit_of_term(expr: sympy.Expr, term: sympy.Expr, symbol: str) -> tuple[Dim, int] | None:
    """Return the limit of ``x - Max(0, x - number)``, of which ``term`` is what is subtracted."""
    excess = _max_with_zero(-term)
    if excess is None:
        return None
    inner = sympy.expand(expr - term)
    return _limit_in(inner, sympy.expand(inner - excess), symbol)


def _limit_in(inner: sympy.Expr, number: sympy.Expr, symbol: str) -> tuple[Dim, int] | None:
    if not number.is_Integer or symbol not in {x.name for x in inner.free_symbols}:
        return None
    return dim_of(inner), int(number)


def _max_with_zero(expr: sympy.Expr) -> sympy.Expr | None:
    """Return ``x`` of ``Max(0, x)``; None for anything else."""
    if not isinstance(expr, sympy.Max) or len(expr.args) != 2 or 0 not in expr.args:
        return None
    return next(x for x in expr.args if x != 0)
