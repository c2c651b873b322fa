"""Cost of running a model at given sizes: the multiplications of its products.

Counted rather than timed, so that the same cases are made on every machine.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.errors import FeedError
from graphfix.facts.shapes import Dim, Shapes
from graphfix.facts.symbolic.expressions import compile_dim
from graphfix.feeds.input import symbols
from graphfix.feeds.signature import Signature
from graphfix.graph.nodes import attr_int, is_op
from graphfix.ops.einsums import equation_of
from graphfix.ops.products import second_factor
from graphfix.ops.windows import convolution_weight

_MULTIPLIES = ops.PRODUCTS | ops.CONVOLVES


class RunCost:
    """Cost of running a model; symbolic shapes are inferred at the first question.

    Args:
        signature: The inputs.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature

    def multiplications_at(self, groups: Mapping[str, int]) -> int:
        """Return how many multiplications a run takes, in products whose sizes are known.

        Args:
            groups: The size of each group. A size that is impossible costs 0.
        """
        try:
            sizes = {
                s: np.asarray(n, np.int64) for s, n in self._signature.symbol_sizes(groups).items()
            }
        except FeedError:  # a dim such as T - 5 would be negative
            return 0
        sizes_by_dim: dict[Dim, int] = {}

        def size_of_factor(dim: Dim) -> int:
            if dim not in sizes_by_dim:
                is_known = symbols(dim) <= sizes.keys()
                sizes_by_dim[dim] = max(int(compile_dim(dim)(sizes)), 0) if is_known else 0
            return sizes_by_dim[dim]

        return sum(math.prod(map(size_of_factor, factors)) for factors in self._product_factors)

    @cached_property
    def _product_factors(self) -> list[tuple[Dim, ...]]:
        """Return the factors of each product: the dims of its result and the dim it sums over."""
        return list(iter_products(self._signature.model.graph, lambda: self._signature.shapes))


def iter_products(graph: ir.Graph, get_shapes: Callable[[], Shapes]) -> Iterator[tuple[Dim, ...]]:
    """Yield the factors of each product whose dims are known.

    Args:
        graph: What is computed.
        get_shapes: Gives symbolic shapes; they are asked for if there is a product.
    """
    for node in graph:
        if node in _MULTIPLIES:
            shapes = get_shapes()
            if is_op(node, "Einsum"):
                yield from _einsum_factors(node, shapes)
                continue
            a = shapes.dims(node.inputs[0])
            is_convolution = node in ops.CONVOLVES
            b = shapes.dims((convolution_weight if is_convolution else second_factor)(node))
            output_dims = shapes.dims(node.outputs[0])
            if a and b and output_dims is not None:
                yield _factors_of(node, a, b, output_dims)


def _factors_of(
    node: ir.Node, a: Sequence[Dim], b: Sequence[Dim], output_dims: Sequence[Dim]
) -> tuple[Dim, ...]:
    if node in ops.CONVOLVES:
        return (*(a if is_op(node, "ConvTranspose") else output_dims), *b[1:])
    if not attr_int(node, "transA", 0):
        return (*output_dims, a[-1])
    rotates = attr_int(node, "transBatchA", 0)  # of a FusedMatMul: [K, batch, M]
    return (*output_dims, a[0 if rotates else -2])


def _einsum_factors(node: ir.Node, shapes: Shapes) -> Iterator[tuple[Dim, ...]]:
    """Yield the dims of all labels of an Einsum, if it names them all."""
    equation = equation_of(node)
    if equation is None or equation.has_ellipsis:
        return
    operands = [shapes.dims(x) for x in node.inputs]
    pairs = list(zip(equation.terms, operands, strict=False))
    if all(dims is not None and len(labels) == len(dims) for labels, dims in pairs):
        named_dims = (
            pair for labels, dims in pairs for pair in zip(labels, dims or (), strict=True)
        )
        yield tuple(dict(named_dims).values())
