"""Repairs that set a tail to zeros, or to something far below every score."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.editing.builder import Builder
from graphfix.graph.nodes import attr_float, attr_int
from graphfix.lengths.length_nodes import LengthNodes
from graphfix.lengths.repairs.repair import Repair, required_input, zero_tail
from graphfix.lengths.tail_state import ANY, TensorState, holds_rows, state_with_tail
from graphfix.ops.attention import AttentionSlots

MASK_FILTER = -10000.0
"""The default of ``mask_filter_value``, which a masked key adds to its scores."""
# Which input of ONNX's own Attention is its mask.
STANDARD_MASK = 3
_ONE = np.ones(1, np.int64)


@dataclass(frozen=True)
class ZeroTail(Repair):
    """Gives an input a tail of zeros: ``x * mask``, or ``Where`` where it may hold NaN.

    Attributes:
        index: The input.
        axis: The axis of it whose tail is zeroed.
        state: What was known of it.
        point: What counts as zero, if the input is quantized: one number.
    """

    index: int
    axis: int
    state: TensorState
    point: ir.Value | None = None
    remedy = "its tail is set to zero first"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> None:
        """Build ``Where(mask, x, 0)`` or ``x * mask``."""
        value = required_input(self.node, self.index)
        op.set_input(self.index, zero_tail(op, lengths, value, self.state, self.axis, self.point))


@dataclass(frozen=True)
class HideTail(Repair):
    """Gives an input a tail far below every score: ``x + (1 - mask) * floor``.

    Attributes:
        index: The input.
        axis: The axis of it whose tail is hidden.
        state: What was known of it.
    """

    index: int
    axis: int
    state: TensorState
    remedy = "a mask is added to its scores"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> None:
        """Build ``x + addend``; scores with the same mask share the addend."""
        value, axes = required_input(self.node, self.index), self.state.axes or ()
        dtype = lengths.dtype_of(value)

        scores = self.leak == "attention dilution"

        def hide() -> ir.Value:
            if scores and dtype.is_floating_point() and self.state.is_bounded:
                limit = lengths.score_limit(value, axes, self.axis)
                if limit is not None:
                    return op.Min(value, limit)
                return op.Add(value, lengths.hiding_addend(value, axes, self.axis))
            far = lengths.score_floor(dtype) if scores else lengths.limit_scalar(dtype, high=False)
            return op.Where(lengths.valid_mask(value, axes, self.axis), value, far)

        op.set_input(self.index, op.build_once(("hide", value, self.axis, scores), hide, value))


@dataclass(frozen=True)
class RaiseTail(Repair):
    """Gives an input a tail of a number that no element exceeds: ``Where(mask, x, number)``.

    Attributes:
        index: The input.
        axis: The axis of it whose tail is raised.
        state: What was known of it.
        number: The number.
    """

    index: int
    axis: int
    state: TensorState
    number: float
    remedy = "its tail is set to the largest number first"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> None:
        """Build ``Where(mask, x, number)``."""
        value = required_input(self.node, self.index)
        number = np.array(self.number, lengths.dtype_of(value).numpy())

        def build() -> ir.Value:
            mask = lengths.valid_mask(value, self.state.axes or (), self.axis)
            return op.Where(mask, value, number)

        key = ("raise", value, self.axis, self.number)
        op.set_input(self.index, op.build_once(key, build, value))


@dataclass(frozen=True)
class HideKeys(Repair):
    """Hides the keys behind the valid length from com.microsoft's MultiHeadAttention or Attention.

    A node without a mask gets a mask of keys. A mask that the node has is merged with it into an
    addend: DirectML was seen to misread a mask beside an addend.

    Attributes:
        slots: Its inputs.
        state: What is known of the keys.
        keeps_mask: Whether the node has a mask that hides valid keys, too.
    """

    slots: AttentionSlots
    state: TensorState
    keeps_mask: bool
    remedy = "the keys of its padding are hidden"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> None:
        """Build a mask of keys, int32 [B, T], or ``attention_bias``, [B, H, S, T]."""
        slots, key = self.slots, required_input(self.node, self.slots.key)
        rows = self.state.factors_of(0)
        valid = lengths.valid_mask(key, (rows, self.state.factors_of(1)), 1)
        if slots.mask is None or slots.addend is None:
            raise RuntimeError(f"{self.node.op_type} takes no mask of keys")
        if self.keeps_mask:
            mask = required_input(self.node, slots.mask)
            op.set_input(slots.addend, self._combine_masks(op, lengths, mask, valid))
            op.set_input(slots.mask, None)
            return

        def build() -> ir.Value:
            mask = op.Cast(valid, to=ir.DataType.INT32)
            if not rows or holds_rows(rows):
                return mask
            # One length for all rows.
            return op.Expand(mask, op.Concat(lengths.axis_size(key, 0), _ONE, axis=0))

        op.set_input(slots.mask, op.build_once(("keys", valid, str(rows)), build, valid))
        op.set_float_attribute(
            "mask_filter_value", float(lengths.score_floor(lengths.dtype_of(key)))
        )

    def _combine_masks(
        self, op: Builder, lengths: LengthNodes, mask: ir.Value, valid: ir.Value
    ) -> ir.Value:
        """Build an addend of both masks, expanded to all heads and queries for DirectML."""
        query, key = required_input(self.node, 0), required_input(self.node, self.slots.key)
        dtype, heads = lengths.dtype_of(key), attr_int(self.node, "num_heads", 1)
        low = attr_float(self.node, "mask_filter_value", MASK_FILTER)

        def build() -> ir.Value:
            own = op.Cast(op.Less(mask, _ONE.astype(np.int32)), to=dtype)
            own = op.Mul(own, np.array(low, dtype.numpy()))
            behind = op.Mul(op.Cast(op.Not(valid), to=dtype), lengths.score_floor(dtype))
            addend = lengths.unsqueeze(op.Add(own, behind), [1, 2])
            sizes = (lengths.axis_size(query, 0), heads * _ONE, lengths.axis_size(query, 1))
            return op.Expand(addend, op.Concat(*sizes, lengths.axis_size(key, 1), axis=0))

        sizes = tuple(map(str, lengths.source.shapes.dims(query) or (query.name,)))
        return op.build_once(("keys", mask, valid, low, heads, sizes), build, mask, valid)


@dataclass(frozen=True)
class MaskKeys(Repair):
    """Gives an Attention without a mask one of its valid keys.

    Attributes:
        state: What is known of the keys, as [batch, time].
        time_axis: Their axis of time.
    """

    state: TensorState
    time_axis: int
    remedy = "the keys of its padding are hidden"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> None:
        """Build a mask of keys, bool [B, 1, S, T]: ONNX Runtime broadcasts no other axes."""
        query, key = required_input(self.node, 0), required_input(self.node, 1)
        valid = lengths.valid_mask(key, self.state.axes or (), 1)

        def build() -> ir.Value:
            sizes = (lengths.axis_size(query, 0), _ONE, lengths.axis_size(query, self.time_axis))
            shape = op.Concat(*sizes, lengths.axis_size(key, self.time_axis), axis=0)
            return op.Expand(lengths.unsqueeze(valid, [1, 2]), shape)

        sizes = tuple(map(str, lengths.source.shapes.dims(query) or (query.name,)))
        op.set_input(STANDARD_MASK, op.build_once(("standard keys", valid, sizes), build, valid))


@dataclass(frozen=True)
class PoisonedInput(Repair):
    """Gives an input of the model a tail of zeros, whatever a caller puts there.

    Attributes:
        value: The input.
        state: What is known of it.
    """

    value: ir.Value
    state: TensorState
    remedy = "whatever is in its padding becomes zero"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> None:
        """Build ``Where(mask, x, 0)`` for all readers except those that read only the shape."""
        readers = [x for x in self.value.uses() if x.node not in ops.READS_ONLY_SHAPE]
        clean, dirty_state = self.value, state_with_tail(self.state.axes or (), ANY)
        for axis in self.state.time_axes:
            clean = zero_tail(op, lengths, clean, dirty_state, axis, None)
        op.redirect_uses(readers, clean)
