"""A dim expression as int64 nodes, of the padded size or of valid lengths."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import sympy

from graphfix.editing.builder import Builder
from graphfix.facts.symbolic.signs import never_negative


@dataclass
class Arithmetic:
    """Expressions in one symbol, evaluated in the graph, each a single time.

    Attributes:
        op: The builder.
        name: Of what: keeps the nodes of two of these apart.
        symbol: The symbol.
        base: Makes what stands for the symbol, int64 [B] or [1], at least 0.
        home: A value in the graph that the nodes are to be in.
    """

    op: Builder
    name: str
    symbol: str
    base: Callable[[], ir.Value]
    home: ir.Value

    def of(self, expr: sympy.Expr) -> ir.Value:
        """The value of an expression."""
        if str(expr) == self.symbol:
            return self.base()
        if expr.is_Integer:
            return self.op.constant(_row(expr))
        return self.op.once((self.name, str(expr)), lambda: self._make(expr), self.home)

    def _make(self, expr: sympy.Expr) -> ir.Value:
        op = self.op
        if isinstance(expr, sympy.floor):
            return self._divide(expr.args[0])
        if isinstance(expr, sympy.Max | sympy.Min):
            name: Literal["Max", "Min"] = "Max" if isinstance(expr, sympy.Max) else "Min"
            return extremum(op, name, [self.of(x) for x in expr.args])
        if isinstance(expr, sympy.Mod):
            return op.Mod(*(self.of(x) for x in expr.args))
        if sympy.fraction(sympy.together(expr))[1] != 1:
            return self._divide(expr)
        if isinstance(expr, sympy.Add):
            # Without the constant the sum may be one that is there already.
            constant, rest = expr.as_coeff_Add()
            if constant == 0:
                return functools.reduce(op.Add, map(self.of, expr.args))
            return (op.Add if constant > 0 else op.Sub)(self.of(rest), _row(abs(constant)))
        if isinstance(expr, sympy.Mul):
            number, rest = expr.as_coeff_Mul()
            if number == 1:
                return functools.reduce(op.Mul, map(self.of, expr.args))
            return op.Mul(self.of(rest), _row(number))
        raise NotImplementedError(str(expr))

    def _divide(self, quotient: sympy.Expr) -> ir.Value:
        """``floor(quotient)``. ONNX's Div of integers rounds to 0, so it is kept from below 0."""
        op = self.op
        above, below = sympy.fraction(sympy.together(quotient))
        lift = _lift(above, below, self.symbol)
        if not never_negative(above + lift * below):  # it falls somewhere as the length grows
            value, number = self.of(sympy.expand(above)), _row(below)
            return op.Div(op.Sub(value, op.Mod(value, number)), number)
        value = self.of(sympy.expand(above + lift * below))
        if below != 1:
            value = op.Div(value, _row(below))
        return op.Sub(value, _row(lift)) if lift else value


def extremum(
    op: Builder, name: Literal["Max", "Min"], values: Sequence[ir.Value | npt.NDArray[np.generic]]
) -> ir.Value:
    """The largest or the least of int64 values, element by element.

    Args:
        op: The builder.
        name: Which.
        values: At least two.
    """
    if op.view.opset(op.site) >= 12:  # from where on they take integers
        return op.make(name, *values)
    found, *others = values
    for other in others:
        pair = (other, found) if name == "Max" else (found, other)
        found = op.Where(op.Less(found, other), *pair)
    if isinstance(found, np.ndarray):
        raise TypeError("one value alone has no extremum")
    return found


def counting(length: ir.Value, op: Builder) -> ir.Value:
    """0, 1, 2, ..., as many as ``length``, [1], says."""
    ones = op.ConstantOfShape(length, value=ir.tensor(np.ones(1, np.int64)))
    return op.CumSum(ones, np.array(0, np.int64), exclusive=1)


def size_of(value: ir.Value, axis: int, op: Builder) -> ir.Value:
    """The size of an axis of ``value``, [1]; a Shape takes it apart since opset 15."""
    if op.view.opset(op.site) < 15:
        return op.Gather(op.Shape(value), np.array([axis], np.int64), axis=0)
    return op.Shape(value, start=axis, end=axis + 1)


def lowers(expr: sympy.Expr, symbol: str) -> bool:
    """Whether an expression can be made into nodes: it is one in this symbol alone."""
    if any(x.name != symbol for x in expr.free_symbols):
        return False
    known = sympy.Add | sympy.Mul | sympy.Symbol | sympy.Number | sympy.Max | sympy.Min
    parts = list(sympy.preorder_traversal(expr))
    if not all(isinstance(x, known | sympy.floor | sympy.Mod) for x in parts):
        return False
    quotients = [expr, *(x.args[0] for x in parts if isinstance(x, sympy.floor))]
    return all(sympy.fraction(sympy.together(x))[1].is_Integer for x in quotients)


def _lift(above: sympy.Expr, below: sympy.Expr, symbol: str) -> int:
    """How often ``below`` must be added to ``above`` for it not to be negative at any length."""
    # Dims grow with the length: they are smallest at 0.
    zero = {x: 0 for x in above.free_symbols if x.name == symbol}
    return max(0, int(sympy.ceiling(-above.subs(zero) / below)))


def _row(number: sympy.Expr | int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array([int(number)], np.int64)
