"""Read Pad: attributes before opset 11, inputs since, with axes since opset 18."""

from __future__ import annotations

from typing import TypeVar

import onnx_ir as ir

from graphfix.graph.constants import ints_of, scalar_of
from graphfix.graph.nodes import attr_float, attr_text, input_at
from graphfix.ops.operands import Read, normalize_axes, read_axes, read_operand

T = TypeVar("T")


def pad_mode(node: ir.Node) -> str:
    """Return how a Pad fills: constant, reflect, edge or wrap."""
    return attr_text(node, "mode", "constant")


def pad_fill(node: ir.Node) -> float | int | bool | None:
    """Return the number that a Pad in mode constant fills with; None if it is not constant."""
    if input_at(node, 2) is not None:
        return scalar_of(node.inputs[2])
    return attr_float(node, "value", 0.0)


def pads_by_axis(
    node: ir.Node, rank: int, read: Read[T]
) -> dict[int, tuple[T | int, T | int]] | None:
    """Return what a Pad puts before and behind each axis; it cuts where that is negative.

    Args:
        node: A Pad.
        rank: Of its data.
        read: Reads an input: ``ints_of``, or what is known of symbolic sizes.

    Returns:
        The pads of the axes that the node names, all axes by default. None if they are known only
        in a run.
    """
    pads = read_operand(node, 1, "paddings" if "paddings" in node.attributes else "pads", read)
    axes = padded_axes(node, rank, read)
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return None
    return dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))


def padded_axes(node: ir.Node, rank: int, read: Read[object] = ints_of) -> tuple[int, ...] | None:
    """Return the axes that a Pad names, all by default; None if they are known only in a run."""
    if input_at(node, 3) is None:
        return tuple(range(rank))
    axes = read_axes(node, 3, "axes", read)
    return normalize_axes(axes, rank) if axes else None
