"""Nodes, int64, that compute a dim expression of the padded size or of valid lengths."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import sympy

from graphfix.editing.builder import Builder
from graphfix.errors import PaddingError
from graphfix.facts.symbolic.expressions import Dim, expr_of
from graphfix.facts.symbolic.signs import never_negative


@dataclass
class SizeArithmetic:
    """Builds expressions in one symbol as nodes, each of them once.

    Attributes:
        op: The builder.
        name: Keeps the nodes of different bases apart.
        symbol: The symbol.
        make_base: Makes the value of the symbol, int64 [B] or [1], at least 0.
        anchor: A value of the graph that gets the nodes.
    """

    op: Builder
    name: str
    symbol: str
    make_base: Callable[[], ir.Value]
    anchor: ir.Value

    def build(self, expr: sympy.Expr) -> ir.Value:
        """Build the nodes of an expression and return its value."""
        if str(expr) == self.symbol:
            return self.make_base()
        if expr.is_Integer:
            return self.op.constant(_int_vector(expr))
        return self.op.build_once(
            (self.name, str(expr)), lambda: self._build_expr(expr), self.anchor
        )

    def _build_expr(self, expr: sympy.Expr) -> ir.Value:
        op = self.op
        if isinstance(expr, sympy.floor):
            return self._build_quotient(expr.args[0])
        if isinstance(expr, sympy.Max | sympy.Min):
            name: Literal["Max", "Min"] = "Max" if isinstance(expr, sympy.Max) else "Min"
            return build_extremum(op, name, [self.build(x) for x in expr.args])
        if isinstance(expr, sympy.Mod):
            return op.Mod(*(self.build(x) for x in expr.args))
        if sympy.fraction(sympy.together(expr))[1] != 1:
            return self._build_quotient(expr)
        if isinstance(expr, sympy.Add):
            # The sum without the constant may have been built already.
            constant, remaining = expr.as_coeff_Add()
            if constant == 0:
                return functools.reduce(op.Add, map(self.build, expr.args))
            return (op.Add if constant > 0 else op.Sub)(
                self.build(remaining), _int_vector(abs(constant))
            )
        if isinstance(expr, sympy.Mul):
            number, remaining = expr.as_coeff_Mul()
            if number == 1:
                return functools.reduce(op.Mul, map(self.build, expr.args))
            return op.Mul(self.build(remaining), _int_vector(number))
        raise NotImplementedError(str(expr))

    def _build_quotient(self, quotient: sympy.Expr) -> ir.Value:
        """Build ``floor(quotient)``, lifted above 0 since ONNX's Div of integers rounds to 0."""
        op = self.op
        above, below = sympy.fraction(sympy.together(quotient))
        lift = _offset_above_zero(above, below, self.symbol)
        if not never_negative(above + lift * below):  # it may be negative at some length
            value, number = self.build(sympy.expand(above)), _int_vector(below)
            return op.Div(op.Sub(value, op.Mod(value, number)), number)
        value = self.build(sympy.expand(above + lift * below))
        if below != 1:
            value = op.Div(value, _int_vector(below))
        return op.Sub(value, _int_vector(lift)) if lift else value


def build_sum_of_sizes(
    dim: Dim, size_of: Callable[[str], ir.Value], anchor: ir.Value, op: Builder
) -> ir.Value:
    """Build a sum of products of numbers and sizes, such as ``9 + 2*floor(S/4)``, int64 [1].

    Args:
        dim: The sum.
        size_of: Builds the size of a name, int64 [1].
        anchor: A value of the graph that gets the nodes.
        op: The builder.

    Raises:
        PaddingError: A factor has several sizes in it.
    """
    number, terms = sympy.expand(expr_of(dim)).as_coeff_add()
    total = op.constant(_int_vector(number))
    for term in terms:
        total = op.Add(total, _build_product(term, size_of, anchor, op))
    return total


def _build_product(
    term: sympy.Expr, size_of: Callable[[str], ir.Value], anchor: ir.Value, op: Builder
) -> ir.Value:
    factors: dict[str, sympy.Expr] = {}
    for factor in sympy.Mul.make_args(term):
        names = sorted(x.name for x in factor.free_symbols)
        if len(names) > 1:
            raise PaddingError(f"the size {term} has several sizes in one factor")
        name = names[0] if names else ""
        factors[name] = factors.get(name, sympy.Integer(1)) * factor
    number = factors.pop("", sympy.Integer(1))
    sizes = [
        SizeArithmetic(op, "size", name, functools.partial(size_of, name), anchor).build(factor)
        for name, factor in factors.items()
    ]
    size = functools.reduce(op.Mul, sizes)
    return size if number == 1 else op.Mul(size, _int_vector(number))


def build_extremum(
    op: Builder, name: Literal["Max", "Min"], values: Sequence[ir.Value | npt.NDArray[np.generic]]
) -> ir.Value:
    """Build the largest or the least of int64 values, element by element.

    Args:
        op: The builder.
        name: Which of the two.
        values: At least two.
    """
    if op.view.opset_of_node(op.site) >= 12:  # since then Max and Min take integers
        return op.make(name, *values)
    result, *operands = values
    for operand in operands:
        pair = (operand, result) if name == "Max" else (result, operand)
        result = op.Where(op.Less(result, operand), *pair)
    if isinstance(result, np.ndarray):
        raise TypeError("one value alone has no extremum")
    return result


def build_positions(length: ir.Value, op: Builder) -> ir.Value:
    """Build 0, 1, 2, ..., ``length - 1``, from a length of shape [1]."""
    return op.CumSum(build_ones(length, op), np.array(0, np.int64), exclusive=1)


def build_ones(shape: ir.Value, op: Builder) -> ir.Value:
    """Build an int64 tensor of ones, of a shape that is a tensor itself."""
    return op.ConstantOfShape(shape, value=ir.tensor(np.ones(1, np.int64)))


def build_axis_size(value: ir.Value, axis: int, op: Builder) -> ir.Value:
    """Build the size of an axis of ``value``, [1]; since opset 15 Shape alone gives it."""
    if op.view.opset_of_node(op.site) < 15:
        return op.Gather(op.Shape(value), np.array([axis], np.int64), axis=0)
    return op.Shape(value, start=axis, end=axis + 1)


def is_buildable(expr: sympy.Expr, symbol: str) -> bool:
    """Return whether an expression can be built as nodes: it is one in this symbol alone."""
    if any(x.name != symbol for x in expr.free_symbols):
        return False
    simple_types = sympy.Add | sympy.Mul | sympy.Symbol | sympy.Number | sympy.Max | sympy.Min
    parts = list(sympy.preorder_traversal(expr))
    if not all(isinstance(x, simple_types | sympy.floor | sympy.Mod) for x in parts):
        return False
    quotients = [expr, *(x.args[0] for x in parts if isinstance(x, sympy.floor))]
    return all(sympy.fraction(sympy.together(x))[1].is_Integer for x in quotients)


def _offset_above_zero(above: sympy.Expr, below: sympy.Expr, symbol: str) -> int:
    """Return how often ``below`` must be added to ``above`` to be at least 0 at any length."""
    # Dims grow with the length: they are smallest at 0.
    zero = {x: 0 for x in above.free_symbols if x.name == symbol}
    return max(0, int(sympy.ceiling(-above.subs(zero) / below)))


def _int_vector(number: sympy.Expr | int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array([int(number)], np.int64)
