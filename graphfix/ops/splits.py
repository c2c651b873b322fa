"""Read Split: an attribute before opset 13, an input since, a count of outputs since opset 18.

And SplitToSequence, whose parts a SequenceAt takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import onnx_ir as ir

from graphfix.graph.nodes import attr_int, input_at, is_op, producer_of
from graphfix.ops.operands import Read, is_given, normalize_axes, read_operand

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


@dataclass(frozen=True)
class SequencePart:
    """A part of a tensor that a SequenceAt takes from a SplitToSequence.

    Attributes:
        axis: The axis that the tensor is split along, counted from the front.
        size: How long the part is along it.
        keeps_axis: Whether the part has that axis.
    """

    axis: int
    size: int
    keeps_axis: bool


def sequence_data(node: ir.Node) -> ir.Value | None:
    """Return the tensor that a SequenceAt takes a part of; None if no SplitToSequence made it."""
    split = producer_of(node.inputs[0])
    return split.inputs[0] if is_op(split, "SplitToSequence") else None


def read_sequence_part(
    node: ir.Node, dims: Sequence[int | None], read: Read[int]
) -> SequencePart | None:
    """Return the part that a SequenceAt takes; None if which part, or its size, is not known.

    Args:
        node: A SequenceAt.
        dims: The sizes of the tensor that is split, None where they are not known.
        read: Reads the small inputs of both nodes.
    """
    split, place = producer_of(node.inputs[0]), input_at(node, 1)
    index = None if place is None else read(place)
    if not is_op(split, "SplitToSequence") or not index:
        return None
    axes = normalize_axes((attr_int(split, "axis", 0),), len(dims))
    value = input_at(split, 1)
    sizes = (1,) if value is None else tuple(read(value) or ())
    size = _part_size(sizes, index[0], None if axes is None else dims[axes[0]])
    if axes is None or size is None:
        return None
    keeps_axis = value is not None or bool(attr_int(split, "keepdims", 1))
    return SequencePart(axes[0], size, keeps_axis)


def _part_size(sizes: Sequence[int], index: int, whole: int | None) -> int | None:
    """Return the size of a part, of a list of sizes or of parts of one size; or None."""
    if len(sizes) > 1:
        return sizes[index] if -len(sizes) <= index < len(sizes) else None
    # Of parts of one size the last may be shorter.
    fits = bool(sizes) and (sizes[0] == 1 or (whole is not None and whole % sizes[0] == 0))
    return sizes[0] if fits else None
