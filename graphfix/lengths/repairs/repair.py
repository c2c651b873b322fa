"""What a repair is, and what several of them build with."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import onnx_ir as ir
import sympy

from graphfix.editing.builder import Builder
from graphfix.lengths.length_nodes import Lengths
from graphfix.lengths.tail_state import State

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


def zeroed(
    op: Builder,
    lengths: Lengths,
    value: ir.Value,
    axes: tuple[tuple[object, ...], ...],
    axis: int,
    finite: bool,
    point: ir.Value | None = None,
) -> ir.Value:
    """``value`` with a tail of zeros, or of zero points, on one axis; made once for all who ask."""
    dtype = lengths.dtype(value)

    def make() -> ir.Value:
        mask = lengths.mask(value, axes, axis)  # type: ignore[arg-type]
        if dtype == ir.DataType.BOOL:
            return op.And(value, mask)
        if finite and dtype.is_floating_point():
            return op.Mul(value, lengths.cast(mask, dtype))
        nought = np.zeros((), dtype.numpy()) if point is None else lengths.scalar(point)
        return op.Where(mask, value, nought)

    return op.once(
        ("zero", value, axis, point), make, *(x for x in (value, point) if x is not None)
    )


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
