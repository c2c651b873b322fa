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


def sequence_index(node: ir.Node, read: Read[int]) -> int | None:
    """Return which part a SequenceAt takes, below 0 from the end; None if it is not known."""
    place = input_at(node, 1)
    index = None if place is None else read(place)
    return index[0] if index else None


def sequence_axis(split: ir.Node, rank: int) -> int | None:
    """Return the axis of a SplitToSequence, counted from the front; None outside of the rank."""
    axes = normalize_axes((attr_int(split, "axis", 0),), rank)
    return None if axes is None else axes[0]


def keeps_split_axis(split: ir.Node) -> bool:
    """Return whether the parts of a SplitToSequence have the axis; without sizes they may not."""
    return input_at(split, 1) is not None or bool(attr_int(split, "keepdims", 1))


def sequence_sizes(split: ir.Node, size: int | None, read: Read[int]) -> tuple[int, ...] | None:
    """Return how long each part of a SplitToSequence is along its axis.

    Args:
        split: A SplitToSequence.
        size: Of the axis; None if it is not known.
        read: Reads its second input.

    Returns:
        None if they are known only in a run. Of parts of one size the last may be shorter.
    """
    sizes = _written_sizes(split, read)
    if len(sizes) > 1:
        return sizes
    if not sizes or size is None or sizes[0] < 1:
        return None
    return tuple(min(sizes[0], size - start) for start in range(0, size, sizes[0]))


def read_sequence_part(
    node: ir.Node, dims: Sequence[int | None], read: Read[int]
) -> SequencePart | None:
    """Return the part that a SequenceAt takes; None if which part, or its size, is not known.

    Args:
        node: A SequenceAt.
        dims: The sizes of the tensor that is split, None where they are not known.
        read: Reads the small inputs of both nodes.
    """
    split, index = producer_of(node.inputs[0]), sequence_index(node, read)
    axis = sequence_axis(split, len(dims)) if is_op(split, "SplitToSequence") else None
    if split is None or index is None or axis is None:
        return None
    sizes = sequence_sizes(split, dims[axis], read)
    if sizes is None:  # of how many parts is not known, but those of 1 have no shorter one
        size = 1 if _written_sizes(split, read) == (1,) else None
    else:
        size = sizes[index] if -len(sizes) <= index < len(sizes) else None
    return None if size is None else SequencePart(axis, size, keeps_split_axis(split))


def _written_sizes(split: ir.Node, read: Read[int]) -> tuple[int, ...]:
    """Return the sizes that a SplitToSequence is given, the one of all its parts, or none."""
    value = input_at(split, 1)
    return (1,) if value is None else tuple(read(value) or ())
