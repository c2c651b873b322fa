"""Repairs that count only valid frames in statistics, or replace a size by the valid length."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import sympy

from graphfix.editing.builder import Builder
from graphfix.graph.nodes import input_at
from graphfix.lengths.length_nodes import LengthNodes
from graphfix.lengths.repairs.repair import Repair, required_input, zero_tail
from graphfix.lengths.tail_state import (
    Axis,
    OtherFactor,
    TensorState,
    TimeFactor,
    holds_rows,
    size_of,
    state_without_time,
)
from graphfix.ops.norms import epsilon_of
from graphfix.ops.recurrent import ROW_LENGTHS, row_axis_of


@dataclass(frozen=True)
class LengthData(Repair):
    """Replaces a size that is used as a number by the valid length.

    Attributes:
        index: The input.
        rank: How many axes it has.
        trailing: How many axes follow the batch axis in the result.
    """

    index: int
    rank: int
    trailing: int
    remedy = "it gets the valid length"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> None:
        """Build the same arithmetic on the valid length."""
        value = required_input(self.node, self.index)
        op.set_input(self.index, lengths.recompute_on_lengths(value, self.rank, self.trailing))


@dataclass(frozen=True)
class MaskedMean(Repair):
    """Makes a mean over time the sum of the valid frames divided by their number.

    Attributes:
        axes: The axes that it is over.
        state: What was known of its input, by now with a tail of zeros.
    """

    axes: tuple[int, ...]
    keepdims: bool
    state: TensorState
    remedy = "it becomes the sum of the valid frames over their number"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> ir.Value:
        """Build ``ReduceSum(x) / max(length, 1)``."""
        mean = _build_mean(op, lengths, required_input(self.node, 0), self.state, self.axes)
        return mean if self.keepdims else lengths.squeeze(mean, self.axes)


@dataclass(frozen=True)
class _NormRepair(Repair):
    """Base of repairs that take the statistics of a norm over valid frames only.

    Attributes:
        centred: Whether the mean is taken off, as an RMSNormalization does not.
    """

    centred: bool = field(default=True, kw_only=True)
    remedy = "its mean and variance are taken over the valid frames"

    def _normalize(
        self,
        op: Builder,
        lengths: LengthNodes,
        x: ir.Value,
        state: TensorState,
        over: tuple[int, ...],
    ) -> ir.Value:
        """Build ``(x - mean) / deviation`` with mean and deviation of the valid frames."""
        dtype = lengths.dtype_of(x)
        small = dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        if small:  # the square of 256 overflows float16
            x = op.Cast(x, to=ir.DataType.FLOAT)

        def zero_padding(value: ir.Value) -> ir.Value:
            for axis in over:
                if state.tails[axis] is not None:
                    value = zero_tail(op, lengths, value, state, axis, None)
            return value

        if self.centred:
            x = op.Sub(x, _build_mean(op, lengths, zero_padding(x), state, over))
        clean = zero_padding(x)
        variance = _build_mean(op, lengths, op.Mul(clean, clean), state, over)
        least = np.full((1,) * state.rank, epsilon_of(self.node))
        y = op.Div(x, op.Sqrt(op.Add(variance, least.astype(lengths.dtype_of(x).numpy()))))
        return op.Cast(y, to=dtype) if small else y

    def _scale_and_shift(
        self, op: Builder, lengths: LengthNodes, y: ir.Value, trailing: Sequence[int]
    ) -> ir.Value:
        """Build ``y * scale + bias``, the inputs 1 and 2, with axes of size 1 at ``trailing``."""
        for index, make in ((1, op.Mul), (2, op.Add)):
            parameter = input_at(self.node, index)
            if parameter is not None:
                y = make(y, lengths.unsqueeze(parameter, trailing))
        return y


@dataclass(frozen=True)
class MaskedNorm(_NormRepair):
    """Takes the statistics of a norm over time from the valid frames only.

    Attributes:
        axes: The axes that mean and variance are over.
        state: What was known of the input.
        per_channel: Whether scale and bias lie along axis 1, as in InstanceNormalization, or along
            the last axes, as in LayerNormalization.
    """

    axes: tuple[int, ...]
    state: TensorState
    per_channel: bool

    def rewrite(self, op: Builder, lengths: LengthNodes) -> ir.Value:
        """Build ``(x - mean) / sqrt(variance + epsilon) * scale + bias``."""
        x, state = required_input(self.node, 0), self.state
        y = self._normalize(op, lengths, x, state, self.axes)
        return self._scale_and_shift(
            op, lengths, y, range(1, state.rank - 1) if self.per_channel else ()
        )


@dataclass(frozen=True)
class MaskedGroupNorm(_NormRepair):
    """Takes the statistics of groups of channels from the valid frames only.

    Attributes:
        groups: How many groups there are.
        channels: How many channels.
        state: What was known of the input.
        per_channel: Whether each channel has a scale and a bias (opset 21), or each group (18).
    """

    groups: int
    channels: int
    state: TensorState
    per_channel: bool

    def rewrite(self, op: Builder, lengths: LengthNodes) -> ir.Value:
        """Build an InstanceNormalization of [N, groups, channels of one, ...] over valid frames."""
        x, rank = required_input(self.node, 0), self.state.rank
        size = op.Shape(x)
        behind = op.Gather(size, np.arange(2, rank), axis=0)
        inner = np.array([self.groups, self.channels // self.groups], np.int64)
        shape = op.Concat(lengths.axis_size(x, 0), inner, behind, axis=0)
        split = tuple((OtherFactor(sympy.Integer(int(n))),) if n > 1 else () for n in inner)
        axes, tails = self.state.axes or (), self.state.tails
        state = TensorState((axes[0], *split, *axes[2:]), (tails[0], None, None, *tails[2:]))
        y = self._normalize(op, lengths, op.Reshape(x, shape), state, tuple(range(2, rank + 1)))
        if self.per_channel:
            return self._scale_and_shift(op, lengths, op.Reshape(y, size), range(1, rank - 1))
        return op.Reshape(self._scale_and_shift(op, lengths, y, range(1, rank)), size)


@dataclass(frozen=True)
class SequenceLens(Repair):
    """Gives an LSTM, GRU or RNN the length of each row.

    Attributes:
        size: The size of its time axis, the padding counted in.
        state: What was known of its input.
    """

    size: sympy.Expr
    state: TensorState
    remedy = "it is told how long each row is"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> None:
        """Build ``sequence_lens``, int32 [B]."""
        x = required_input(self.node, 0)
        rows = op.Cast(lengths.row_lengths(self.size), to=ir.DataType.INT32)
        axis = row_axis_of(self.node)
        batch = state_without_time((self.state.factors_of(axis),))
        rows = lengths.align_row_values(rows, batch)  # each row as often as it occurs
        if not any(map(holds_rows, self.state.axes or ())):
            rows = op.Expand(rows, lengths.axis_size(x, axis))
        op.set_input(ROW_LENGTHS, rows)


def _build_mean(
    op: Builder, lengths: LengthNodes, x: ir.Value, state: TensorState, axes: tuple[int, ...]
) -> ir.Value:
    """Build the mean over ``axes``, which stay with size 1, of what is valid; x's tail is zero."""
    dtype = lengths.dtype_of(x)
    # The sum over minutes of audio overflows float16.
    small = dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    total = lengths.reduce_sum(op.Cast(x, to=ir.DataType.FLOAT) if small else x, axes)
    count = op.Cast(
        _count_valid(op, lengths, x, state, axes), to=ir.DataType.FLOAT if small else dtype
    )
    mean = op.Div(total, lengths.align_row_values(count, state))
    return op.Cast(mean, to=dtype) if small else mean


def _count_valid(
    op: Builder, lengths: LengthNodes, x: ir.Value, state: TensorState, axes: tuple[int, ...]
) -> ir.Value:
    """Build how many elements of each row are valid over ``axes``, int64 [B] or [1], at least 1."""
    counts: list[ir.Value] = []
    fixed_count = 1
    for axis in axes:
        times, other_size = _split_times(state.factors_of(axis))
        for time in times:
            rows = lengths.row_lengths(time.size)
            counts.append(lengths.elementwise_max(rows, np.ones(1, np.int64)))
        if other_size.is_Integer:
            fixed_count *= int(other_size)
        else:
            counts.append(lengths.axis_size(x, axis))
    if not counts:
        raise RuntimeError("a mean over no time")
    valid = functools.reduce(op.Mul, counts)
    return op.Mul(valid, np.array([fixed_count], np.int64)) if fixed_count > 1 else valid


def _split_times(axis: Axis) -> tuple[list[TimeFactor], sympy.Expr]:
    """Return the times that an axis carries, and the size of all else in it."""
    times = [x for x in axis if isinstance(x, TimeFactor)]
    return times, size_of(tuple(x for x in axis if not isinstance(x, TimeFactor)))
