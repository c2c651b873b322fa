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
from graphfix.facts.symbolic.expressions import evaluator
from graphfix.feeds.input import symbols
from graphfix.feeds.signature import Signature
from graphfix.graph.nodes import is_op

_PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")


class Work:
    """What a model computes; symbolic shapes are inferred when it is first asked.

    Args:
        signature: The inputs.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature

    def at(self, groups: Mapping[str, int]) -> int:
        """How many multiplications a run takes, of those products whose sizes are known.

        0 of sizes that there cannot be.

        Args:
            groups: The size of each group.
        """
        try:
            sizes = {s: np.asarray(n, np.int64) for s, n in self._signature.sizes(groups).items()}
        except FeedError:  # a dim such as T - 5 would be negative
            return 0
        found: dict[Dim, int] = {}

        def size(dim: Dim) -> int:
            if dim not in found:
                known = symbols(dim) <= sizes.keys()
                found[dim] = max(int(evaluator(dim)(sizes)), 0) if known else 0
            return found[dim]

        return sum(math.prod(map(size, factors)) for factors in self._products)

    @cached_property
    def _products(self) -> list[tuple[Dim, ...]]:
        """The factors of each: the sizes of what it makes, or takes, and of what it sums over."""
        return list(products(self._signature.model.graph, lambda: self._signature.shapes))


def products(graph: ir.Graph, known: Callable[[], Shapes]) -> Iterator[tuple[Dim, ...]]:
    """The factors of each product whose sizes are known.

    Args:
        graph: What is computed.
        known: Gives symbolic shapes; they are asked for if there is a product.
    """
    for node in graph:
        if is_op(node, *_PRODUCTS):
            shapes = known()
            given = [shapes.dims(x) for x in node.inputs[:2]]
            made = shapes.dims(node.outputs[0])
            if given[0] and given[1] and made is not None:
                yield _of(node, given[0], given[1], made)


def _of(node: ir.Node, a: Sequence[Dim], b: Sequence[Dim], made: Sequence[Dim]) -> tuple[Dim, ...]:
    if is_op(node, "Conv", "ConvTranspose"):
        return (*(made if is_op(node, "Conv") else a), *b[1:])
    return (*made, a[0] if is_op(node, "Gemm") and "transA" in node.attributes else a[-1])
