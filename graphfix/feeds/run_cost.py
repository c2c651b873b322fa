"""How much a model computes at given sizes: the multiplications of its products.

A clock would say it too, and something else on every machine: the same cases shall be made on all.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.facts.shapes import Dim, Shapes
from graphfix.facts.symbolic.expressions import compile_dim
from graphfix.feeds.input import symbols
from graphfix.feeds.signature import Signature
from graphfix.graph.nodes import is_op

_PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")


class RunCost:
    """Cost of running a model; symbolic shapes are inferred at the first question.

    Args:
        signature: The inputs.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature

    def multiplications_at(self, groups: Mapping[str, int]) -> int:
        """Return how many multiplications a run takes, in products whose sizes are known.

        0 of sizes that there cannot be.

        Args:
            groups: The size of each group.
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
        if is_op(node, *_PRODUCTS):
            shapes = get_shapes()
            operand_dims = [shapes.dims(x) for x in node.inputs[:2]]
            output_dims = shapes.dims(node.outputs[0])
            if operand_dims[0] and operand_dims[1] and output_dims is not None:
                yield _factors_of(node, operand_dims[0], operand_dims[1], output_dims)


def _factors_of(
    node: ir.Node, a: Sequence[Dim], b: Sequence[Dim], output_dims: Sequence[Dim]
) -> tuple[Dim, ...]:
    if is_op(node, "Conv", "ConvTranspose"):
        return (*(output_dims if is_op(node, "Conv") else a), *b[1:])
    return (*output_dims, a[0] if is_op(node, "Gemm") and "transA" in node.attributes else a[-1])
