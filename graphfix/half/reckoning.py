"""How long a run takes, told from the graph and from what it is fed.

A clock would say it too, and something else where the machine has other work: what stays in float32
shall be the same on all, and each time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from graphfix.feeds.input import plain, symbols
from graphfix.feeds.work import products
from graphfix.model.shapes import shapes_of
from graphfix.model.symbolic import evaluator
from graphfix.model.values import nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir

    from graphfix.core import Feeds
    from graphfix.model.symbolic import Dim

# Seconds on one slow core, of a graph that is not optimized; to call a kernel costs some, too.
_MULTIPLICATION, _ELEMENT, _NODE = 1e-10, 4e-9, 1e-5


def reckoned(model: ir.Model, feeds: Feeds) -> float:
    """Seconds, nearly: of products and tensors whose sizes the shapes tell.

    Args:
        model: The model.
        feeds: Its inputs.
    """
    shapes = shapes_of(model)
    sizes = {
        name: np.asarray(size, np.int64)
        for value in model.graph.inputs
        for dim, size in zip(value.shape or (), _shape(feeds, value), strict=False)
        if (name := plain(dim)) is not None
    }
    found: dict[Dim, int] = {}

    def size(dim: Dim) -> int:
        if isinstance(dim, int):
            return max(dim, 0)
        if dim not in found:
            known = dim.value is not None and symbols(dim) <= sizes.keys()
            found[dim] = max(int(evaluator(dim)(sizes)), 0) if known else 0
        return found[dim]

    def volume(of: Iterable[tuple[Dim, ...]]) -> int:
        return sum(math.prod(map(size, dims)) for dims in of)

    nodes = list(nodes_of(model.graph))
    made = (shapes.dims(x) for node in nodes for x in node.outputs)
    return (
        _MULTIPLICATION * volume(products(model.graph, lambda: shapes))
        + _ELEMENT * volume(dims for dims in made if dims is not None)
        + _NODE * len(nodes)
    )


def _shape(feeds: Feeds, value: ir.Value) -> tuple[int, ...]:
    array = feeds.get(value.name or "")
    return () if array is None else array.shape
