"""The repairs: each closes one leak, at one node, with nodes of its own."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import onnx_ir as ir

from graphfix.lengths.domain import Rows, State, Time, size_of
from graphfix.lengths.takes import take_rows
from graphfix.model.values import attr_int

if TYPE_CHECKING:
    import sympy

    from graphfix.build import Builder
    from graphfix.lengths.lower import Lengths

Leak = Literal[
    "mean pollution",
    "statistics pollution",
    "boundary leak",
    "attention dilution",
    "sum pollution",
    "maximum pollution",
    "last-frame read",
    "frame copy",
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
class Zero(Repair):
    """An input gets a tail of zeros: ``x * mask``, or ``Where`` where the tail may hold NaN.

    Attributes:
        index: The input.
        axis: The axis of it whose tail is zeroed.
        state: What was known of it.
    """

    index: int
    axis: int
    state: State
    what: ClassVar[str] = "its tail is set to zero first"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """``Where(mask, x, 0)`` or ``x * mask``."""
        value = _input(self.node, self.index)
        axes = self.state.axes or ()
        op.rewire(self.index, zeroed(op, lengths, value, axes, self.axis, self.state.is_finite))


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
        value, axes = _input(self.node, self.index), self.state.axes or ()
        dtype = lengths.dtype(value)

        scores = self.leak == "attention dilution"

        def hide() -> ir.Value:
            if scores and dtype.is_floating_point() and self.state.is_finite:
                return op.Add(value, lengths.addend(value, axes, self.axis))
            far = lengths.floor(dtype) if scores else lengths.extreme(dtype, high=self.high)
            return op.Where(lengths.mask(value, axes, self.axis), value, far)

        op.rewire(self.index, op.once(("hide", value, self.axis, scores, self.high), hide, value))


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
    what: ClassVar[str] = "it gets the valid length"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """The same arithmetic on the valid length."""
        value = _input(self.node, self.index)
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
    what: ClassVar[str] = "it becomes the sum of the valid frames over their number"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``ReduceSum(x) / max(length, 1)``."""
        mean = _mean(op, lengths, _input(self.node, 0), self.state, self.axes)
        return mean if self.keepdims else lengths.squeeze(mean, self.axes)


@dataclass(frozen=True)
class MaskedNorm(Repair):
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
    what: ClassVar[str] = "its mean and variance are taken over the valid frames"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``(x - mean) / sqrt(variance + epsilon) * scale + bias``."""
        x, axes = _input(self.node, 0), self.state.axes or ()
        dtype = lengths.dtype(x)
        times = [i for i in self.axes if self.state.tails[i] is not None]
        finite = self.state.is_finite

        def zero(value: ir.Value) -> ir.Value:
            for axis in times:
                value = zeroed(op, lengths, value, axes, axis, finite)
            return value

        centred = op.Sub(x, _mean(op, lengths, zero(x), self.state, self.axes))
        kept = zero(centred)
        variance = _mean(op, lengths, op.Mul(kept, kept), self.state, self.axes)
        epsilon = self.node.attributes.get("epsilon")
        least = np.full((1,) * self.state.rank, 1e-5 if epsilon is None else epsilon.as_float())
        deviation = op.Sqrt(op.Add(variance, least.astype(dtype.numpy())))
        y = op.Div(centred, deviation)
        for name, make in (("scale", op.Mul), ("bias", op.Add)):
            index = 1 if name == "scale" else 2
            if index < len(self.node.inputs) and (given := self.node.inputs[index]) is not None:
                if self.per_channel:
                    given = lengths.unsqueeze(given, range(1, self.state.rank - 1))
                y = make(y, given)
        return y


@dataclass(frozen=True)
class MaskedPool(Repair):
    """An average counts the frames of its window that are there: the average of what is valid,
    over the average of how much of the window is valid.

    Attributes:
        axis: The axis that carries time.
        state: What was known of its input, by now with a tail of zeros.
    """

    axis: int
    state: State
    what: ClassVar[str] = "its windows count the valid frames only"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``AveragePool(x) / AveragePool(mask)``, both with the padding counted in."""
        x, dtype = _input(self.node, 0), lengths.dtype(_input(self.node, 0))
        given = {k: v.value for k, v in self.node.attributes.items()} | {"count_include_pad": 1}
        mask = lengths.cast(lengths.mask(x, self.state.axes or (), self.axis), dtype)
        others = [i for i in range(self.state.rank) if i not in (0, 1, self.axis)]
        ones = op.Expand(mask, _kept_sizes(op, x, self.state.rank, [self.axis, *others]))
        share = op.make("AveragePool", ones, **given)
        # Behind the valid length there is nothing to count.
        tiny = np.array(np.finfo(dtype.numpy()).tiny, dtype.numpy())
        return op.Div(op.make("AveragePool", x, **given), op.Max(share, tiny))


def _kept_sizes(op: Builder, x: ir.Value, rank: int, axes: list[int]) -> ir.Value:
    here = np.array([i in axes for i in range(rank)])
    return op.Where(here, op.Shape(x), np.ones(rank, np.int64))


@dataclass(frozen=True)
class CopiedTail(Repair):
    """An input gets a tail of copies of its last valid frame.

    Attributes:
        axis: The axis.
        size: Its size, the padding counted in.
        state: What was known of it.
    """

    axis: int
    size: sympy.Expr
    state: State
    what: ClassVar[str] = "copies of the last valid frame follow it first"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """``x[min(i, length - 1)]``."""
        x = _input(self.node, 0)
        at = lengths.unsqueeze(lengths.positions(self.size), [0])
        last = op.Sub(lengths.unsqueeze(lengths.rows(self.size), [1]), np.array([[1]], np.int64))
        at = op.Max(op.Min(at, last), np.zeros((1, 1), np.int64))
        op.rewire(0, take_rows(op, lengths, x, at, self.state, self.axis))


@dataclass(frozen=True)
class LastFrames(Repair):
    """A read from the end of the axis becomes a read from the end of what is valid.

    Attributes:
        axis: The axis.
        size: The size of that axis, the padding counted in.
        offsets: Where is read, counted from the end: -1 is the last.
        drop: Whether the axis goes, as with a Gather at a scalar.
        state: What was known of the input.
    """

    axis: int
    size: sympy.Expr
    offsets: tuple[int, ...]
    drop: bool
    state: State
    what: ClassVar[str] = "it reads at the end of what is valid"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``x[length + offset]``."""
        x = _input(self.node, 0)
        rows = lengths.rows(self.size)
        index = op.Add(lengths.unsqueeze(rows, [1]), np.array([self.offsets], np.int64))
        index = op.Max(index, np.zeros((1, 1), np.int64))
        taken = take_rows(op, lengths, x, index, self.state, self.axis)
        return lengths.squeeze(taken, [self.axis]) if self.drop else taken


@dataclass(frozen=True)
class ClampedFrames(Repair):
    """An index that is cut to the last frame is cut to the last valid one.

    Attributes:
        axis: The axis that is read.
        last: The last index, the padding counted in.
        rank: How many axes the index has.
        state: What was known of the data.
    """

    axis: int
    last: sympy.Expr
    rank: int
    state: State
    what: ClassVar[str] = "it stops at the last valid frame"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``x[min(index, length - 1)]``."""
        x, index = _input(self.node, 0), _input(self.node, 1)
        flat = op.Reshape(index, np.array([1, -1], np.int64))
        if lengths.dtype(index) != ir.DataType.INT64:
            flat = op.Cast(flat, to=ir.DataType.INT64)
        at = op.Min(flat, lengths.unsqueeze(lengths.rows(self.last), [1]))
        taken = take_rows(op, lengths, x, at, self.state, self.axis)
        if self.rank == 1:
            return taken
        size = op.Shape(x)
        parts = [op.Shape(index)]
        if self.axis > 0:
            before = np.arange(self.axis)
            parts.insert(0, op.Gather(size, before, axis=0))
        if self.axis < self.state.rank - 1:
            behind = np.arange(self.axis + 1, self.state.rank)
            parts.append(op.Gather(size, behind, axis=0))
        target = op.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]
        return op.Reshape(taken, target)


@dataclass(frozen=True)
class PadFrames(Repair):
    """Padding with copies (edge, reflect) copies what is valid.

    Attributes:
        axis: The axis.
        size: Its size before, the padding counted in.
        result: Its size after.
        begin: How many are put before the first.
        reflect: Whether they are mirrored, not copies of the outermost.
        state: What was known of the input.
    """

    axis: int
    size: sympy.Expr
    result: sympy.Expr
    begin: int
    reflect: bool
    state: State
    what: ClassVar[str] = "its copies are taken from what is valid"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``x[i]`` with ``i`` clamped to, or mirrored at, the last valid index."""
        x = _input(self.node, 0)
        at = op.Sub(lengths.positions(self.result), np.array(self.begin, np.int64))
        at = lengths.unsqueeze(at, [0])
        last = op.Sub(lengths.unsqueeze(lengths.rows(self.size), [1]), np.array([[1]], np.int64))
        if self.reflect:
            at = op.Sub(last, op.Abs(op.Sub(last, op.Abs(at))))
        # Beyond the valid length any index will do that exists.
        at = op.Max(op.Min(at, last), np.zeros((1, 1), np.int64))
        return take_rows(op, lengths, x, at, self.state, self.axis)


@dataclass(frozen=True)
class Append(Repair):
    """What is appended to an axis is put right behind what is valid.

    Attributes:
        axis: The axis.
        size: The size of what it is appended to, the padding counted in.
        count: How many frames are appended.
        state: What is known of the result.
    """

    axis: int
    size: sympy.Expr
    count: int
    state: State
    what: ClassVar[str] = "what it appends goes right behind what is valid"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``concat[i]`` where ``i`` jumps over the padding."""
        whole = op.Concat(*self.node.inputs, axis=self.axis)
        at = lengths.unsqueeze(lengths.positions(self.size + self.count), [0])
        valid = lengths.unsqueeze(lengths.rows(self.size), [1])
        end = lengths.size(self.size)
        behind = op.Cast(op.Not(op.Less(at, valid)), to=ir.DataType.INT64)
        within = op.Less(at, op.Add(valid, np.array([[self.count]], np.int64)))
        jump = op.Mul(behind, op.Cast(within, to=ir.DataType.INT64))
        at = op.Add(at, op.Mul(jump, op.Sub(end, valid)))
        return take_rows(op, lengths, whole, at, self.state, self.axis)


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
    what: ClassVar[str] = "it is told how long each row is"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """``sequence_lens``, int32 [B]."""
        x = _input(self.node, 0)
        rows = op.Cast(lengths.rows(self.size), to=ir.DataType.INT32)
        if not any(isinstance(a, Rows) for axis in self.state.axes or () for a in axis):
            axis = 0 if attr_int(self.node, "layout", 0) else 1
            rows = op.Expand(rows, lengths.count(x, axis))
        op.rewire(4, rows)


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


def zeroed(
    op: Builder,
    lengths: Lengths,
    value: ir.Value,
    axes: tuple[tuple[object, ...], ...],
    axis: int,
    finite: bool,
) -> ir.Value:
    """``value`` with a tail of zeros on one axis; made once for all who ask."""
    dtype = lengths.dtype(value)

    def make() -> ir.Value:
        mask = lengths.mask(value, axes, axis)  # type: ignore[arg-type]
        if dtype == ir.DataType.BOOL:
            return op.And(value, mask)
        if finite and dtype.is_floating_point():
            return op.Mul(value, lengths.cast(mask, dtype))
        return op.Where(mask, value, np.zeros((), dtype.numpy()))

    return op.once(("zero", value, axis), make, value)


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
        times = [a for a in factors if isinstance(a, Time)]
        rest = size_of(tuple(a for a in factors if not isinstance(a, Time)))
        others *= int(rest) if rest.is_Integer else 1
        for time in times:
            rows = op.Max(lengths.rows(time.size), np.ones(1, np.int64))
            valid = rows if valid is None else op.Mul(valid, rows)
        if not rest.is_Integer:
            count = lengths.count(x, axis)
            valid = count if valid is None else op.Mul(valid, count)
    if valid is None:
        raise RuntimeError("a mean over no time")
    if others > 1:
        valid = op.Mul(valid, np.array([others], np.int64))
    wide = ir.DataType.FLOAT if small else dtype
    per_row = lengths.along_rows(op.Cast(valid, to=wide), state)
    mean = op.Div(total, per_row)
    if small:
        mean = op.Cast(mean, to=dtype)
    return mean


def _input(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    if value is None:
        raise RuntimeError(f"input {index} of {node.name} is missing")
    return value
