"""Sizes that follow the inputs, written as integer nodes of a Shape."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, Shapes
from graphfix.facts.symbolic.expressions import expr_of, symbols_of
from graphfix.lengths.dim_nodes import Arithmetic, lowers, size_of


@dataclass(frozen=True)
class Written:
    """One size, and where the length that it follows is read.

    Attributes:
        dim: The size.
        symbol: The symbol in it; "" if it is a number.
        value: A tensor that has that symbol as a dim.
        axis: The axis.
    """

    dim: Dim
    symbol: str = ""
    value: ir.Value | None = None
    axis: int = 0

    def node(self, op: Builder) -> ir.Value:
        """It as int64[1]: sums, products and quotients of integers only, made once."""
        value = self.value
        if value is None:
            return op.constant(np.array([self.dim], np.int64))

        def base() -> ir.Value:
            return op.once(("size", value, self.axis), lambda: size_of(value, self.axis, op), value)

        return Arithmetic(op, f"of {value.name}", self.symbol, base, value).of(expr_of(self.dim))


def written(dim: Dim, tensors: Iterable[ir.Value], shapes: Shapes) -> Written | str:
    """How a size can be written, or why it cannot.

    Args:
        dim: The size, a number or an expression.
        tensors: Where to look for the length that it follows; they come before the site.
        shapes: Their shapes.
    """
    if isinstance(dim, int):
        return Written(dim)
    names = sorted(symbols_of(dim))
    if len(names) != 1:
        return f"{dim} is no function of one length"
    if not lowers(expr_of(dim), names[0]):
        return f"{dim} is not made of sums, products and quotients by numbers"
    for value in tensors:
        dims = [str(x) for x in shapes.dims(value) or ()]
        if names[0] in dims:
            return Written(dim, names[0], value, dims.index(names[0]))
    return f"no tensor before it is of the length {names[0]}"
