"""Tails that are set: zeros, or something far from every score."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.graph.nodes import attr_float, attr_int
from graphfix.lengths.length_nodes import Lengths
from graphfix.lengths.repairs.repair import Repair, input_of, zeroed
from graphfix.lengths.tail_state import ANY, State, holds_rows, with_tails

MASK_FILTER = -10000.0
"""What the mask of keys of an attention adds to a score, unless it says otherwise."""
# Which input of ONNX's own Attention is its mask.
STANDARD_MASK = 3
_ONE = np.ones(1, np.int64)


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
    what = "its tail is set to zero first"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """``Where(mask, x, 0)`` or ``x * mask``."""
        value = input_of(self.node, self.index)
        op.rewire(self.index, zeroed(op, lengths, value, self.state, self.axis, self.point))


@dataclass(frozen=True)
class Hide(Repair):
    """An input gets a tail far below every score: ``x + (1 - mask) * floor``.

    Attributes:
        index: The input.
        axis: The axis of it whose tail is hidden.
        state: What was known of it.
    """

    index: int
    axis: int
    state: State
    what = "a mask is added to its scores"

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
            far = lengths.floor(dtype) if scores else lengths.extreme(dtype, high=False)
            return op.Where(lengths.mask(value, axes, self.axis), value, far)

        op.rewire(self.index, op.once(("hide", value, self.axis, scores), hide, value))


@dataclass(frozen=True)
class Slots:
    """Which inputs of an attention in one node are what.

    Attributes:
        key: Its keys, [batch, time, features]; of Attention they are made of its only tensor.
        value: Its values.
        bias: What is added to queries, keys and values.
        mask: The mask of keys, int32.
        added: What is added to the scores, [batch, heads, queries, keys].
    """

    key: int
    value: int
    bias: int
    mask: int
    added: int


@dataclass(frozen=True)
class HideKeys(Repair):
    """A MultiHeadAttention, or an Attention, sees no key behind the valid length.

    By a mask of keys if it has none; beside one that is its own, by an addend that hides what
    either hides: DirectML takes a mask and an addend together for something else (run).

    Attributes:
        slots: Its inputs.
        state: What is known of the keys.
        kept: Whether it has a mask of its own that hides valid keys, too.
    """

    slots: Slots
    state: State
    kept: bool
    what = "the keys of its padding are hidden"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """A mask of keys, int32 [B, T], or ``attention_bias``, [B, H, S, T]."""
        slots, key = self.slots, input_of(self.node, self.slots.key)
        rows = self.state.at(0)
        valid = lengths.mask(key, (rows, self.state.at(1)), 1)
        if self.kept:
            mask = input_of(self.node, slots.mask)
            op.rewire(slots.added, self._addend(op, lengths, mask, valid))
            op.rewire(slots.mask, None)
            return

        def build() -> ir.Value:
            mask = op.Cast(valid, to=ir.DataType.INT32)
            if not rows or holds_rows(rows):
                return mask
            # One length for all rows.
            return op.Expand(mask, op.Concat(lengths.count(key, 0), _ONE, axis=0))

        op.rewire(slots.mask, op.once(("keys", valid, str(rows)), build, valid))
        op.give("mask_filter_value", float(lengths.floor(lengths.dtype(key))))

    def _addend(self, op: Builder, lengths: Lengths, mask: ir.Value, valid: ir.Value) -> ir.Value:
        """What both masks hide, for every head and query: so DirectML wants it."""
        query, key = input_of(self.node, 0), input_of(self.node, self.slots.key)
        dtype, heads = lengths.dtype(key), attr_int(self.node, "num_heads", 1)
        low = attr_float(self.node, "mask_filter_value", MASK_FILTER)

        def build() -> ir.Value:
            own = op.Cast(op.Less(mask, _ONE.astype(np.int32)), to=dtype)
            own = op.Mul(own, np.array(low, dtype.numpy()))
            behind = op.Mul(op.Cast(op.Not(valid), to=dtype), lengths.floor(dtype))
            both = lengths.unsqueeze(op.Add(own, behind), [1, 2])
            sizes = (lengths.count(query, 0), heads * _ONE, lengths.count(query, 1))
            return op.Expand(both, op.Concat(*sizes, lengths.count(key, 1), axis=0))

        sizes = tuple(map(str, lengths.source.shapes.dims(query) or (query.name,)))
        return op.once(("keys", mask, valid, low, heads, sizes), build, mask, valid)


@dataclass(frozen=True)
class MaskKeys(Repair):
    """An Attention without a mask gets one of its valid keys.

    Attributes:
        state: What is known of the keys, as [batch, time].
        at: Their axis of time.
    """

    state: State
    at: int
    what = "the keys of its padding are hidden"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """A mask of keys, bool [B, 1, S, T]: ONNX Runtime broadcasts no other axes."""
        query, key = input_of(self.node, 0), input_of(self.node, 1)
        valid = lengths.mask(key, self.state.axes or (), 1)

        def build() -> ir.Value:
            sizes = (lengths.count(query, 0), _ONE, lengths.count(query, self.at))
            shape = op.Concat(*sizes, lengths.count(key, self.at), axis=0)
            return op.Expand(lengths.unsqueeze(valid, [1, 2]), shape)

        sizes = tuple(map(str, lengths.source.shapes.dims(query) or (query.name,)))
        op.rewire(STANDARD_MASK, op.once(("standard keys", valid, sizes), build, valid))


@dataclass(frozen=True)
class PoisonedInput(Repair):
    """An input of the model gets a tail of zeros, whatever a caller has put there.

    Attributes:
        value: The input.
        state: What is known of it.
    """

    value: ir.Value
    state: State
    what = "whatever is in its padding becomes zero"

    def rewrite(self, op: Builder, lengths: Lengths) -> None:
        """``Where(mask, x, 0)``, for all who read it but those who ask only for its size."""
        readers = [x for x in self.value.uses() if x.node.op_type not in ("Shape", "Size")]
        clean, given = self.value, with_tails(self.state.axes or (), ANY)
        for axis in self.state.timed:
            clean = zeroed(op, lengths, clean, given, axis, None)
        op.reroute(self.value, readers, clean)
