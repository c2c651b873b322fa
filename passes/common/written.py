"""Sizes that follow the inputs, written as integer nodes of a Shape."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, Shapes
from graphfix.facts.symbolic.expressions import expr_of, symbols_of
from graphfix.lengths.dim_nodes import SizeArithmetic, build_axis_size, is_buildable


@dataclass(frozen=True)
class WritableSize:
    """A size, and the tensor from which the length in it is read.

    Attributes:
        dim: The size.
        symbol: The symbol in it; "" if it is a number.
        value: A tensor with that symbol as a dim.
        axis: The axis.
    """

    dim: Dim
    symbol: str = ""
    value: ir.Value | None = None
    axis: int = 0

    def build_node(self, op: Builder) -> ir.Value:
        """Build it as int64[1], once: sums, products and quotients of integers only."""
        value = self.value
        if value is None:
            return op.constant(np.array([self.dim], np.int64))

        def read_length() -> ir.Value:
            return op.build_once(
                ("size", value, self.axis), lambda: build_axis_size(value, self.axis, op), value
            )

        return SizeArithmetic(op, f"of {value.name}", self.symbol, read_length, value).build(
            expr_of(self.dim)
        )


def writable_size_of(dim: Dim, tensors: Iterable[ir.Value], shapes: Shapes) -> WritableSize | str:
    """Return how a size can be built, or why it cannot.

    Args:
        dim: The size, a number or an expression.
        tensors: The tensors before the site in which to look for its length.
        shapes: Their shapes.
    """
    if isinstance(dim, int):
        return WritableSize(dim)
    names = sorted(symbols_of(dim))
    if len(names) != 1:
        return f"{dim} is no function of one length"
    if not is_buildable(expr_of(dim), names[0]):
        return f"{dim} is not made of sums, products and quotients by numbers"
    for value in tensors:
        dims = [str(x) for x in shapes.dims(value) or ()]
        if names[0] in dims:
            return WritableSize(dim, names[0], value, dims.index(names[0]))
    return f"no tensor before it is of the length {names[0]}"
