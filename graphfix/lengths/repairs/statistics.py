"""Means and statistics that count what is valid, and lengths where a size was a number."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import sympy

from graphfix.editing.builder import Builder
from graphfix.graph.nodes import attr_float, attr_int, input_at
from graphfix.lengths.length_nodes import Lengths
from graphfix.lengths.repairs.repair import Repair, input_of, zeroed
from graphfix.lengths.tail_state import Other, State, Time, holds_rows, plain, size_of


@dataclass(frozen=True)
class LengthData(Repair):
    """A size that is used as a number becomes the valid length.

    Attributes:
        index: The input.
        rank: How many axes it has.
        trailing: How many axes follow that of the batch where it is used.
    """

    index: int
    rank: int
    trailing: int
    what = "it gets the valid length"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """The same arithmetic on the valid length."""
        value = input_of(self.node, self.index)
        op.rewire(self.index, lengths.instead_of(value, self.rank, self.trailing))


@dataclass(frozen=True)
class MaskedMean(Repair):
    """A mean over time counts the valid frames only: their sum over their number.

    Attributes:
        axes: The axes that it is over.
        state: What was known of its input, by now with a tail of zeros.
    """

    axes: tuple[int, ...]
    keepdims: bool
    state: State
    what = "it becomes the sum of the valid frames over their number"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``ReduceSum(x) / max(length, 1)``."""
        mean = _mean(op, lengths, input_of(self.node, 0), self.state, self.axes)
        return mean if self.keepdims else lengths.squeeze(mean, self.axes)


@dataclass(frozen=True)
class _Norm(Repair):
    """A norm over time: its statistics count the valid frames only.

    Attributes:
        centred: Whether the mean is taken off, as an RMSNormalization does not.
    """

    centred: bool = field(default=True, kw_only=True)
    what = "its mean and variance are taken over the valid frames"

    def _normalized(
        self, op: Builder, lengths: Lengths, x: ir.Value, state: State, over: tuple[int, ...]
    ) -> ir.Value:
        """``x`` less its mean, over its deviation, both taken of what is valid."""
        dtype = lengths.dtype(x)
        small = dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        if small:  # the square of 256 is no number in float16
            x = op.Cast(x, to=ir.DataType.FLOAT)

        def zero(value: ir.Value) -> ir.Value:
            for axis in over:
                if state.tails[axis] is not None:
                    value = zeroed(op, lengths, value, state, axis, None)
            return value

        if self.centred:
            x = op.Sub(x, _mean(op, lengths, zero(x), state, over))
        kept = zero(x)
        variance = _mean(op, lengths, op.Mul(kept, kept), state, over)
        least = np.full((1,) * state.rank, attr_float(self.node, "epsilon", 1e-5))
        y = op.Div(x, op.Sqrt(op.Add(variance, least.astype(lengths.dtype(x).numpy()))))
        return op.Cast(y, to=dtype) if small else y

    def _scaled(
        self, op: Builder, lengths: Lengths, y: ir.Value, trailing: Sequence[int]
    ) -> ir.Value:
        """``y * scale + bias``, the inputs 1 and 2, with axes of size 1 at ``trailing``."""
        for index, make in ((1, op.Mul), (2, op.Add)):
            given = input_at(self.node, index)
            if given is not None:
                y = make(y, lengths.unsqueeze(given, trailing))
        return y


@dataclass(frozen=True)
class MaskedNorm(_Norm):
    """Statistics over time count the valid frames only.

    Attributes:
        axes: The axes that mean and variance are over.
        state: What was known of the input.
        per_channel: Whether scale and bias lie along axis 1, as in InstanceNormalization, or along
            the last axes, as in LayerNormalization.
    """

    axes: tuple[int, ...]
    state: State
    per_channel: bool

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``(x - mean) / sqrt(variance + epsilon) * scale + bias``."""
        x, state = input_of(self.node, 0), self.state
        y = self._normalized(op, lengths, x, state, self.axes)
        return self._scaled(op, lengths, y, range(1, state.rank - 1) if self.per_channel else ())


@dataclass(frozen=True)
class MaskedGroupNorm(_Norm):
    """Statistics of groups of channels count the valid frames only.

    Attributes:
        groups: How many groups there are.
        channels: How many channels.
        state: What was known of the input.
        per_channel: Whether each channel has a scale and a bias (opset 21), or each group (18).
    """

    groups: int
    channels: int
    state: State
    per_channel: bool

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """An InstanceNormalization of [N, groups, channels of one, ...], over valid frames."""
        x, rank = input_of(self.node, 0), self.state.rank
        size = op.Shape(x)
        behind = op.Gather(size, np.arange(2, rank), axis=0)
        inner = np.array([self.groups, self.channels // self.groups], np.int64)
        shape = op.Concat(lengths.count(x, 0), inner, behind, axis=0)
        split = tuple((Other(sympy.Integer(int(n))),) if n > 1 else () for n in inner)
        axes, tails = self.state.axes or (), self.state.tails
        state = State((axes[0], *split, *axes[2:]), (tails[0], None, None, *tails[2:]))
        y = self._normalized(op, lengths, op.Reshape(x, shape), state, tuple(range(2, rank + 1)))
        if self.per_channel:
            return self._scaled(op, lengths, op.Reshape(y, size), range(1, rank - 1))
        return op.Reshape(self._scaled(op, lengths, y, range(1, rank)), size)


@dataclass(frozen=True)
class SequenceLens(Repair):
    """An LSTM, GRU or RNN is told how long each row is.

    Attributes:
        size: The size of its time axis, the padding counted in.
        batch: How many rows it has.
        state: What was known of its input.
    """

    size: sympy.Expr
    state: State
    what = "it is told how long each row is"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """``sequence_lens``, int32 [B]."""
        x = input_of(self.node, 0)
        rows = op.Cast(lengths.rows(self.size), to=ir.DataType.INT32)
        axis = 0 if attr_int(self.node, "layout", 0) else 1
        batch = self.state.at(axis)
        if len(batch) > 1:  # each row as often as it is there
            rows = lengths.along_rows(rows, plain((batch,)))
        if not any(map(holds_rows, self.state.axes or ())):
            rows = op.Expand(rows, lengths.count(x, axis))
        op.rewire(4, rows)


def _mean(
    op: Builder, lengths: Lengths, x: ir.Value, state: State, axes: tuple[int, ...]
) -> ir.Value:
    """The mean over ``axes``, kept as axes of size 1, of what is valid; the tail of x is zero."""
    dtype = lengths.dtype(x)
    # The sum over minutes of audio is no number in float16.
    small = dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    total = lengths.reduce_sum(op.Cast(x, to=ir.DataType.FLOAT) if small else x, axes)
    valid: ir.Value | None = None
    others = 1
    for axis in axes:
        factors = state.at(axis)
        rest = size_of(tuple(a for a in factors if not isinstance(a, Time)))
        others *= int(rest) if rest.is_Integer else 1
        for time in [a for a in factors if isinstance(a, Time)]:
            rows = lengths.larger(lengths.rows(time.size), np.ones(1, np.int64))
            valid = rows if valid is None else op.Mul(valid, rows)
        if not rest.is_Integer:
            count = lengths.count(x, axis)
            valid = count if valid is None else op.Mul(valid, count)
    if valid is None:
        raise RuntimeError("a mean over no time")
    if others > 1:
        valid = op.Mul(valid, np.array([others], np.int64))
    wide = ir.DataType.FLOAT if small else dtype
    mean = op.Div(total, lengths.along_rows(op.Cast(valid, to=wide), state))
    return op.Cast(mean, to=dtype) if small else mean
