"""The size of a dim, as the manifest writes it: ``floor((T - 400)/160) + 1``.

Whole numbers, names of dims, ``+ - * /``, ``floor``, ``ceiling``, ``Mod``, ``Max`` and ``Min``,
computed exactly. Only the standard library is used, so that importing a session costs nothing.
"""

from __future__ import annotations

import ast
import math
import operator
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Operation = Callable[..., Fraction]

_BINARY: dict[type[ast.operator], Operation] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
}
_CALLS: dict[str, Operation] = {
    "floor": lambda x: Fraction(math.floor(x)),
    "ceiling": lambda x: Fraction(math.ceil(x)),
    "Max": max,
    "Min": min,
    "Mod": operator.mod,
}
_DEEPEST = 60


def size_of(dim: int | str, sizes: Mapping[str, int]) -> int:
    """The size of a dim where the named dims have these sizes.

    Raises:
        ValueError: The text is no such expression, a name has no size, or the result is no size.
    """
    if isinstance(dim, int):
        return dim
    try:
        value = _value(_parsed(dim), sizes, 0)
    except (KeyError, ZeroDivisionError, TypeError) as error:
        raise ValueError(f"the size {dim} cannot be computed from {dict(sizes)}: {error}") from None
    if value.denominator != 1 or value < 0:
        raise ValueError(f"{dim} is {value} where {dict(sizes)}, which is no size")
    return int(value)


def shape_of(dims: tuple[int | str, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The sizes of all dims; remembered, since a stream asks for the same again and again.

    Raises:
        ValueError: As :func:`size_of`.
    """
    return _shape_of(dims, tuple(sizes.items()))


@lru_cache(maxsize=4096)
def _shape_of(dims: tuple[int | str, ...], sizes: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    known = dict(sizes)
    return tuple(size_of(dim, known) for dim in dims)


def names_in(dim: int | str) -> frozenset[str]:
    """The names of dims in an expression.

    Raises:
        ValueError: The text is no such expression.
    """
    if isinstance(dim, int):
        return frozenset()
    tree = _parsed(dim)
    called = {id(x.func) for x in ast.walk(tree) if isinstance(x, ast.Call)}
    return frozenset(
        x.id for x in ast.walk(tree) if isinstance(x, ast.Name) and id(x) not in called
    )


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{text[:200]!r} is no size") from None


def _value(node: ast.expr, sizes: Mapping[str, int], depth: int) -> Fraction:
    if depth > _DEEPEST:
        raise ValueError("a size is nested too deeply")
    match node:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.Name(id=name):
            return Fraction(sizes[name])
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, sizes, depth + 1)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            law = _BINARY[type(sign)]
            return law(_value(left, sizes, depth + 1), _value(right, sizes, depth + 1))
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in _CALLS:
            return _CALLS[name](*(_value(x, sizes, depth + 1) for x in given))
    raise ValueError(f"{ast.unparse(node)[:200]!r} is no size")
