"""Read the inputs of attention in one node: ONNX's own and com.microsoft's."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.graph.nodes import attr_int
from graphfix.ops.op_set import qualified_name


@dataclass(frozen=True)
class AttentionSlots:
    """Which input plays which role; None where the operator has no such input.

    Attributes:
        query: The queries; one tensor for all three, before its product with ``weights``, where
            key and value are the same input.
        key: The keys.
        value: The values.
        weights: Of the projections, where they are part of the operator.
        bias: Of the projections.
        mask: Which keys count: their number or a mask of integers.
        addend: What is added to the scores (``attention_bias``); ONNX's may be a boolean mask.
        past_key: Keys of earlier runs.
        past_value: Values of earlier runs.
        past: Both in one tensor.
    """

    query: int
    key: int
    value: int
    weights: int | None = None
    bias: int | None = None
    mask: int | None = None
    addend: int | None = None
    past_key: int | None = None
    past_value: int | None = None
    past: int | None = None

    @property
    def pasts(self) -> tuple[int, ...]:
        """Return the inputs that hold keys or values of earlier runs."""
        roles = (self.past_key, self.past_value, self.past)
        return tuple(index for index in roles if index is not None)


_SLOTS = {
    "Attention": AttentionSlots(0, 1, 2, addend=3, past_key=4, past_value=5),
    "com.microsoft.Attention": AttentionSlots(0, 0, 0, weights=1, bias=2, mask=3, addend=5, past=4),
    "com.microsoft.DecoderMaskedMultiHeadAttention": AttentionSlots(
        0, 1, 2, bias=10, mask=3, addend=4, past_key=5, past_value=6
    ),
    "com.microsoft.GroupQueryAttention": AttentionSlots(
        0, 1, 2, mask=5, addend=10, past_key=3, past_value=4
    ),
    "com.microsoft.MultiHeadAttention": AttentionSlots(
        0, 1, 2, bias=3, mask=4, addend=5, past_key=6, past_value=7
    ),
    "com.microsoft.PackedAttention": AttentionSlots(0, 0, 0, weights=1, bias=2, addend=5),
    "com.microsoft.PackedMultiHeadAttention": AttentionSlots(0, 1, 2, bias=3, addend=6),
    "com.microsoft.QAttention": AttentionSlots(0, 0, 0, weights=1, bias=2, mask=5, past=8),
}


def attention_slots(node: ir.Node) -> AttentionSlots | None:
    """Return which input of an attention is what; None if the node is none that is known."""
    return _SLOTS.get(qualified_name(node))


def cache_window(node: ir.Node) -> int | None:
    """Return how many entries an attention sees whose caches are as small; None of any other.

    It drops older entries itself, so that past and present have one size, whatever the length.
    """
    if not attr_int(node, "sliding_window_cache", 0):
        return None
    window = attr_int(node, "local_window_size", -1)
    return window if window > 0 else None
