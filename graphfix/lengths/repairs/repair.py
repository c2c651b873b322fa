"""What a repair is, and what several of them build with."""

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import onnx_ir as ir
import sympy

from graphfix.editing.builder import Builder
from graphfix.lengths.length_nodes import Lengths
from graphfix.lengths.tail_state import State, holds_rows

Leak = Literal[
    "mean pollution",
    "statistics pollution",
    "boundary leak",
    "attention dilution",
    "sum pollution",
    "maximum pollution",
    "last-frame read",
    "frame copy",
    "stray index",
    "recurrence",
    "length as data",
    "poisoned input",
]
"""What padding does to the numbers, in the words of the field."""


@dataclass(frozen=True)
class Repair(abc.ABC):
    """A leak and what closes it.

    Attributes:
        node: The node that lets padding into the valid part.
        leak: How.
    """

    node: ir.Node
    leak: Leak
    what: ClassVar[str]
    """What is done about it, for a user."""

    @abc.abstractmethod
    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value | None:
        """Build it. Returns what replaces the node's first output, None if the node stays."""


@dataclass(frozen=True)
class FrameRepair(Repair):
    """A repair that picks frames again, for each row of the batch by its own length.

    Attributes:
        axis: The axis that they are picked from.
        size: Its size, the padding counted in.
        state: What is known of the tensor.
    """

    axis: int
    size: sympy.Expr
    state: State

    def taken(self, op: Builder, lengths: Lengths, x: ir.Value, index: ir.Value) -> ir.Value:
        """``x`` with the frames that ``index`` names on the axis.

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
        here = np.array([i == axis for i in range(state.rank)])
        target = op.Where(here, np.ones(state.rank, np.int64), op.Shape(x))
        return op.GatherElements(x, op.Expand(index, target), axis=axis)


def zeroed(
    op: Builder, lengths: Lengths, value: ir.Value, state: State, axis: int, point: ir.Value | None
) -> ir.Value:
    """``value`` with a tail of zeros, or of zero points, on one axis; made once for all who ask."""
    dtype = lengths.dtype(value)

    def make() -> ir.Value:
        mask = lengths.mask(value, state.axes or (), axis)
        if dtype == ir.DataType.BOOL:
            return op.And(value, mask)
        if state.is_finite and dtype.is_floating_point():
            return op.Mul(value, lengths.cast(mask, dtype))
        nought = np.zeros((), dtype.numpy()) if point is None else lengths.scalar(point)
        return op.Where(mask, value, nought)

    sources = (value,) if point is None else (value, point)
    return op.once(("zero", value, axis, point), make, *sources)


def input_of(node: ir.Node, index: int) -> ir.Value:
    """An input that must be there."""
    value = node.inputs[index]
    if value is None:
        raise RuntimeError(f"input {index} of {node.name} is missing")
    return value


def made_by(value: ir.Value) -> ir.Node:
    """The node that makes a value that one must make."""
    node = value.producer()
    if node is None:
        raise RuntimeError(f"{value.name} is made by no node")
    return node
