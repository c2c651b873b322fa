"""Read Reshape and Flatten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import onnx_ir as ir

from graphfix.graph.nodes import attr_int
from graphfix.ops.operands import Read, read_operand

T = TypeVar("T")


def reshape_target(node: ir.Node, read: Read[T]) -> tuple[T | int, ...] | None:
    """Return the target of a Reshape as it is written, with 0 and -1; None if it is not known.

    An input, or an attribute before opset 5.
    """
    return read_operand(node, 1, "shape", read)


def copies_zeros(node: ir.Node) -> bool:
    """Return whether a 0 in the target of a Reshape means the dim of the input at that place.

    With ``allowzero=1``, since opset 14, it means a dim of 0.
    """
    return not attr_int(node, "allowzero", 0)


def reshaped_dims(
    node: ir.Node, dims: Sequence[int], target: Sequence[int]
) -> tuple[int, ...] | None:
    """Return the shape that a Reshape gives a tensor.

    Args:
        node: A Reshape.
        dims: The shape of its data.
        target: The target as it is written, with 0 and -1.

    Returns:
        None if the elements do not fit, where ONNX Runtime fails too.
    """
    sizes = list(target)
    if copies_zeros(node):
        if any(size == 0 and i >= len(dims) for i, size in enumerate(sizes)):
            return None
        sizes = [dims[i] if size == 0 else size for i, size in enumerate(sizes)]
    total = math.prod(dims)
    if -1 in sizes:
        known_product = math.prod(size for size in sizes if size != -1)
        if sizes.count(-1) > 1 or known_product == 0 or total % known_product:
            return None
        sizes[sizes.index(-1)] = total // known_product
    return tuple(sizes) if math.prod(sizes) == total else None
