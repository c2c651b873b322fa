"""Dims as expressions: the arithmetic of sizes, and when two of them are equal."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import sympy

# No public name parses the text of a SymbolicDim.
from onnx_shape_inference._symbolic_shapes import parse_symbolic_expression

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Array = npt.NDArray[np.object_]
    """Expressions in the shape of the tensor that holds them."""

Dim = int | ir.SymbolicDim


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> sympy.Expr:
    expr = parse_symbolic_expression(text)
    if text.count("floor(") < 2:
        return expr
    return expr.replace(lambda x: isinstance(x, sympy.floor), _unnested)


def _unnested(outer: sympy.Expr) -> sympy.Expr:
    """``floor((floor(x) + m) / n)`` as ``floor((x + m) / n)``, which is the same."""
    above, below = sympy.fraction(sympy.together(outer.args[0]))
    if not below.is_Integer:
        return outer
    for term in sympy.Add.make_args(sympy.expand(above)):
        if isinstance(term, sympy.floor):
            return sympy.floor(sympy.expand((above - term + term.args[0]) / below))
    return outer


def expr_of(dim: Dim) -> sympy.Expr:
    """A dim as an expression."""
    return sympy.Integer(dim) if isinstance(dim, int) else _parsed(str(dim))


def dim_of(expr: sympy.Expr) -> Dim:
    """An expression as a dim."""
    return int(expr) if expr.is_Integer else ir.SymbolicDim(_text(expr))


# sympy sorts its terms to print them, and the layers of a model have the same few dims.
_text = functools.lru_cache(maxsize=4096)(str)


def is_product_of(dim: Dim, symbols: frozenset[str]) -> bool:
    """Whether a dim is a positive number times some of ``symbols``."""
    number, rest = expr_of(dim).as_coeff_Mul()
    factors = sympy.Mul.make_args(rest)
    return bool(number > 0) and all(x == 1 or str(x) in symbols for x in factors)


def equal(a: Dim, b: Dim) -> bool:
    """Whether two dims are equal for all positive sizes of the inputs."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    if a.value is None or b.value is None:
        return False
    return a.value == b.value or _equal_text(a.value, b.value)


@functools.lru_cache(maxsize=4096)
def _equal_text(a: str, b: str) -> bool:
    first, second = _parsed(a), _parsed(b)
    if first.free_symbols != second.free_symbols:
        return False
    apart = sympy.expand(first - second)
    if apart.is_polynomial(*apart.free_symbols):
        return bool(apart == 0)
    return bool(sympy.simplify(apart) == 0)


def is_at_most(a: ir.SymbolicDim, b: ir.SymbolicDim) -> bool:
    """Whether ``a`` is ``b`` or a number of at least 2, whichever is less: 1 only if ``b`` is."""
    expr = expr_of(a)
    if not isinstance(expr, sympy.Min):
        return False
    return all(x == expr_of(b) or (x.is_Integer and x >= 2) for x in expr.args)


def array_of(items: Sequence[sympy.Expr], shape: Sequence[object]) -> Array:
    """``items`` as an array of that shape, in order."""
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return array.reshape([int(str(x)) for x in shape])


def items_of(array: Array) -> list[sympy.Expr]:
    """What an array holds, in order."""
    return list(array.flat)


def whole_numbers(array: Array | None) -> list[int] | None:
    """The numbers in ``array``, if it holds nothing else."""
    items = None if array is None else items_of(array)
    return None if items is None or not all(x.is_Integer for x in items) else [*map(int, items)]


def truth(decided: bool) -> sympy.Expr:
    """1 for True, 0 for False, as a tensor of booleans holds them here."""
    return sympy.Integer(int(decided))
