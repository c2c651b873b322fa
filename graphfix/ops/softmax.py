"""Read Softmax, LogSoftmax and Hardmax.

Before opset 13 they flatten: the default axis is 1, and all axes from it on are one. Since then the
default is the last axis, and it alone is normalized.
"""

from __future__ import annotations

import onnx_ir as ir

from graphfix.ops.axes import mixed_axes


def softmax_axes(node: ir.Node, rank: int, opset: int) -> tuple[int, ...] | None:
    """Return the axes that a Softmax normalizes together, counted from the front.

    Args:
        node: A Softmax, LogSoftmax or Hardmax.
        rank: Of its input.
        opset: The version of the standard opset at the node.

    Returns:
        One axis since opset 13; before, the axis and all behind it. None if it lies outside of the
        rank.
    """
    return mixed_axes(node, rank, opset)


def softmax_axis(node: ir.Node, rank: int, opset: int) -> int | None:
    """Return the axis of a Softmax if it normalizes one alone, counted from the front; else None.

    Before opset 13 that is so only for the last axis.
    """
    axes = softmax_axes(node, rank, opset)
    return axes[0] if axes is not None and len(axes) == 1 else None


def is_along_last_axis(node: ir.Node, rank: int, opset: int) -> bool:
    """Return whether a Softmax normalizes the last axis and no other."""
    return softmax_axis(node, rank, opset) == rank - 1
