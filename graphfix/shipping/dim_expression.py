"""The size of a dim, as shape inference writes it: ``floor((T - 400)/160) + 1``.

Whole numbers, names of dims, ``+ - * /``, ``floor``, ``ceiling``, ``Mod``, ``Max`` and ``Min``,
computed exactly.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache

from graphfix.shipped.manifest import Port

_OPERATIONS: dict[object, Callable[..., Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
    "floor": math.floor,
    "ceiling": math.ceil,
    "Max": max,
    "Min": min,
    "Mod": operator.mod,
}


def size_of(dim: int | str, sizes: Mapping[str, int]) -> int:
    """Return the size of a dim, given the sizes of the named dims.

    Raises:
        ValueError: The text is no such expression, a name has no size, or the result is no size.
    """
    if isinstance(dim, int):
        return dim
    if (size := sizes.get(dim)) is not None:
        return size
    try:
        value = _evaluate(parse_expression(dim), sizes)
    except (KeyError, ZeroDivisionError, TypeError, RecursionError) as error:
        raise ValueError(
            f"the size {dim[:200]} cannot be computed from {dict(sizes)}: {error}"
        ) from None
    if value.denominator != 1 or value < 0:
        raise ValueError(f"{dim} is {value} where {dict(sizes)}, which is no size")
    return int(value)


def shape_of(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of an input or output at these sizes of dims.

    Raises:
        ValueError: A dim cannot be computed from them.
    """
    return tuple(size_of(dim, sizes) for dim in port.dims)


@lru_cache(maxsize=256)
def names_in(dim: int | str) -> frozenset[str]:
    """Return the names of dims in an expression.

    Raises:
        ValueError: The text is no such expression.
    """
    if isinstance(dim, int):
        return frozenset()
    names = {x.id for x in ast.walk(parse_expression(dim)) if isinstance(x, ast.Name)}
    return frozenset(names - _OPERATIONS.keys())


@lru_cache(maxsize=256)
def parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression.

    Raises:
        ValueError: The text is none.
    """
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{text[:200]!r} is no size") from None


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> Fraction:
    match node:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.Name(id=name):
            return Fraction(sizes[name])
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_evaluate(inner, sizes)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATIONS:
            return Fraction(
                _OPERATIONS[type(sign)](_evaluate(left, sizes), _evaluate(right, sizes))
            )
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in _OPERATIONS:
            return Fraction(_OPERATIONS[name](*(_evaluate(x, sizes) for x in given)))
    raise ValueError(f"{ast.unparse(node)[:200]!r} is no size")
