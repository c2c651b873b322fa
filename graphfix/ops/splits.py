"""Read Split: an attribute before opset 13, an input since, a count of outputs since opset 18."""

from __future__ import annotations

from typing import TypeVar

import onnx_ir as ir

from graphfix.graph.nodes import attr_int
from graphfix.ops.operands import Read, is_given, read_operand

T = TypeVar("T")


def split_sizes(node: ir.Node, size: int | None, read: Read[T]) -> tuple[T | int, ...] | None:
    """Return how long each part of a Split is along its axis.

    Args:
        node: A Split.
        size: Of the axis that it splits; None if it is not known.
        read: Reads the input: ``ints_of``, or what is known of symbolic sizes.

    Returns:
        None if they are known only in a run. Without sizes all parts are equal; with
        ``num_outputs`` the last may be shorter.
    """
    if is_given(node, 1, "split"):
        return read_operand(node, 1, "split", read)
    count = attr_int(node, "num_outputs", len(node.outputs))
    if size is None or count < 1:
        return None
    part = -(-size // count)
    if size % count and "num_outputs" not in node.attributes:
        return None  # ONNX Runtime refuses it
    return tuple(max(0, min(part, size - i * part)) for i in range(count))
