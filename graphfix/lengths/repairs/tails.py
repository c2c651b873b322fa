"""Tails that are set: zeros, or something far from every score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import onnx_ir as ir

from graphfix.lengths.domain import State
from graphfix.lengths.repairs.base import Repair, input_of, zeroed

if TYPE_CHECKING:
    from graphfix.build import Builder
    from graphfix.lengths.lower import Lengths


@dataclass(frozen=True)
class Zero(Repair):
    """An input gets a tail of zeros: ``x * mask``, or ``Where`` where the tail may hold NaN.

    Attributes:
        index: The input.
        axis: The axis of it whose tail is zeroed.
        state: What was known of it.
        point: What counts as zero, if the input is quantized: one number.
    """

    index: int
    axis: int
    state: State
    point: ir.Value | None = None
    what: ClassVar[str] = "its tail is set to zero first"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """``Where(mask, x, 0)`` or ``x * mask``."""
        value = input_of(self.node, self.index)
        axes = self.state.axes or ()
        finite = self.state.is_finite
        op.rewire(self.index, zeroed(op, lengths, value, axes, self.axis, finite, self.point))


@dataclass(frozen=True)
class Hide(Repair):
    """An input gets a tail far below every score: ``x + (1 - mask) * floor``.

    Attributes:
        index: The input.
        axis: The axis of it whose tail is hidden.
        state: What was known of it.
        high: Whether it is hidden above all others, from a minimum.
    """

    index: int
    axis: int
    state: State
    high: bool = False
    what: ClassVar[str] = "a mask is added to its scores"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """``x + addend``, with one addend for all who hide the same."""
        value, axes = input_of(self.node, self.index), self.state.axes or ()
        dtype = lengths.dtype(value)

        scores = self.leak == "attention dilution"

        def hide() -> ir.Value:
            if scores and dtype.is_floating_point() and self.state.is_bounded:
                limit = lengths.limit(value, axes, self.axis)
                if limit is not None:
                    return op.Min(value, limit)
                return op.Add(value, lengths.addend(value, axes, self.axis))
            far = lengths.floor(dtype) if scores else lengths.extreme(dtype, high=self.high)
            return op.Where(lengths.mask(value, axes, self.axis), value, far)

        op.rewire(self.index, op.once(("hide", value, self.axis, scores, self.high), hide, value))


@dataclass(frozen=True)
class PoisonedInput(Repair):
    """An input of the model gets a tail of zeros, whatever a caller has put there.

    Attributes:
        value: The input.
        state: What is known of it.
    """

    value: ir.Value
    state: State
    what: ClassVar[str] = "whatever is in its padding becomes zero"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """``Where(mask, x, 0)``, for all who read it but those who ask only for its size."""
        readers = [x for x in self.value.uses() if x.node.op_type not in ("Shape", "Size")]
        clean = self.value
        for axis in self.state.timed:
            clean = zeroed(op, lengths, clean, self.state.axes or (), axis, finite=False)
        op.reroute(self.value, readers, clean)
