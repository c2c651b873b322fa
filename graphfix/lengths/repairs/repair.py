"""The base class of repairs, and what several of them build with."""

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import onnx_ir as ir
import sympy

from graphfix.editing.builder import Builder
from graphfix.lengths.length_nodes import LengthNodes
from graphfix.lengths.tail_state import TensorState, holds_rows

Leak = Literal[
    "mean pollution",
    "statistics pollution",
    "boundary leak",
    "attention dilution",
    "sum pollution",
    "maximum pollution",
    "minimum pollution",
    "last-frame read",
    "frame copy",
    "stray index",
    "recurrence",
    "length as data",
    "poisoned input",
]
"""What padding does to the numbers."""


@dataclass(frozen=True)
class Repair(abc.ABC):
    """A leak, and how to close it.

    Attributes:
        node: The node that lets padding into the valid part.
        leak: Which leak it is.
    """

    node: ir.Node
    leak: Leak
    remedy: ClassVar[str]
    """What is done about it, for a user."""

    @abc.abstractmethod
    def rewrite(self, op: Builder, lengths: LengthNodes) -> ir.Value | None:
        """Build the repair; return the new first output of the node, or None if the node stays."""


@dataclass(frozen=True)
class FrameRepair(Repair):
    """Base of repairs that pick frames, for each row of the batch by its own length.

    Attributes:
        axis: The axis of frames.
        size: Its size, padding included.
        state: What is known of the tensor.
    """

    axis: int
    size: sympy.Expr
    state: TensorState

    def pick_frames(
        self, op: Builder, lengths: LengthNodes, x: ir.Value, index: ir.Value
    ) -> ir.Value:
        """Return ``x`` with the frames that ``index`` names on the axis.

        Args:
            op: The builder.
            lengths: The lengths of the model.
            x: A tensor of the same axes; at most one carries the batch, and nothing else.
            index: int64 [B, N], or [1, N] where there is no batch; none of it negative.

        Returns:
            A tensor like ``x``, of size N on that axis.
        """
        state, axis = self.state, self.axis
        rows = next((i for i, a in enumerate(state.axes or ()) if holds_rows(a)), None)
        if rows is None:
            return op.Gather(x, op.Reshape(index, np.array([-1], np.int64)), axis=axis)
        if (rows, axis) == (0, 1) and lengths.opset >= 12:
            return op.GatherND(x, lengths.unsqueeze(index, [2]), batch_dims=1)
        # GatherElements wants an index in the shape of the result.
        if rows > axis:
            index = op.Transpose(index, perm=[1, 0])
        index = lengths.unsqueeze(index, [i for i in range(state.rank) if i not in (rows, axis)])
        is_axis = np.array([i == axis for i in range(state.rank)])
        target = op.Where(is_axis, np.ones(state.rank, np.int64), op.Shape(x))
        return op.GatherElements(x, op.Expand(index, target), axis=axis)


def zero_tail(
    op: Builder,
    lengths: LengthNodes,
    value: ir.Value,
    state: TensorState,
    axis: int,
    point: ir.Value | None,
) -> ir.Value:
    """Return ``value`` with a tail of zeros, or of zero points, on one axis; built once for all."""
    dtype = lengths.dtype_of(value)

    def make() -> ir.Value:
        mask = lengths.valid_mask(value, state.axes or (), axis)
        if dtype == ir.DataType.BOOL:
            return op.And(value, mask)
        if state.is_finite and dtype.is_floating_point():
            return op.Mul(value, lengths.cast_mask(mask, dtype))
        nought = np.zeros((), dtype.numpy()) if point is None else lengths.to_scalar(point)
        return op.Where(mask, value, nought)

    sources = (value,) if point is None else (value, point)
    return op.build_once(("zero", value, axis, point), make, *sources)


def required_input(node: ir.Node, index: int) -> ir.Value:
    """Return an input that must be present."""
    value = node.inputs[index]
    if value is None:
        raise RuntimeError(f"input {index} of {node.name} is missing")
    return value


def required_producer(value: ir.Value) -> ir.Node:
    """Return the node that makes a value, which some node must make."""
    node = value.producer()
    if node is None:
        raise RuntimeError(f"{value.name} is made by no node")
    return node
