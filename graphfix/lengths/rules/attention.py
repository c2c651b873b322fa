"""Rules for attention in one node: com.microsoft's operators and ONNX's own.

ONNX Runtime docs/ContribOperators.md has the inputs of the first; graphfix's fuse-attention writes
them. ONNX's Attention and RotaryEmbedding, of opset 23 and 24, take [B, H, T, D] or [B, T, F] each.
"""

import dataclasses

import onnx_ir as ir

from graphfix.facts.hidden_scores import hides_score
from graphfix.graph.nodes import attr_float, attr_int
from graphfix.lengths.joint_axes import RefusedError, check_maskable, join_axes
from graphfix.lengths.repairs.fill_tail import MASK_FILTER, STANDARD_MASK, HideKeys, MaskKeys
from graphfix.lengths.rule_site import PaddingRule, RuleSite
from graphfix.lengths.tail_state import Axis, TensorState, carries_time, sole_time
from graphfix.ops.attention import AttentionSlots, attention_slots

# A mask this low hides a score, however large.
_LOWEST = -1e30
# The input of ONNX's Attention that holds how many keys of each row are valid.
_VALID_KEYS = 6


def infer_multi_head_attention(site: RuleSite) -> list[TensorState | None]:
    """Require keys behind the valid length that are hidden and finite."""
    inputs = [site.input_state(i) if site.has_input(i) else None for i in range(3)]
    if any(x is None or x.rank != 3 for x in inputs):
        raise RefusedError(
            "its queries, keys and values are not [batch, time, features] each, or are packed "
            "into one; export them apart, or run ilens-mask before it is fused"
        )
    return _infer_attention(site)


def infer_packed_attention(site: RuleSite) -> list[TensorState | None]:
    """Infer an attention whose queries, keys and values are products of one tensor."""
    if site.input_state().rank != 3:
        raise RefusedError("its input is not [batch, time, features]")
    if site.input_state(1).time_axes:
        raise RefusedError("its weights carry time")
    return _infer_attention(site)


def _infer_attention(site: RuleSite) -> list[TensorState | None]:
    slots = _slots_of(site)
    query, key, value = (site.input_state(i) for i in (slots.query, slots.key, slots.value))
    if any(map(site.has_input, slots.pasts)):
        raise RefusedError("its keys are joined to those of earlier runs")
    bias = site.optional_state(slots.bias)
    if bias is not None and bias.time_axes:
        raise RefusedError("a bias of it carries time")
    if any(carries_time(x.factors_of(2)) for x in (query, key, value)):
        raise RefusedError("time is its feature axis")
    batch = join_axes([x.factors_of(0) for x in (query, key, value)])
    keys = join_axes([key.factors_of(1), value.factors_of(1)])
    _check_masks(site, slots, batch, query.factors_of(1), keys)
    if carries_time(keys):
        for i in (slots.key, slots.value):
            site.require_finite_tails(i, "attention dilution")
        if not (attr_int(site.node, "unidirectional", 0) and query.factors_of(1) == keys):
            _hide_keys(site, slots, batch, keys)
    # The batch itself may carry time, as that of windows does.
    batch_tails = (site.input_state(i).tails[0] for i in (slots.query, slots.key, slots.value))
    tails = (next(filter(None, batch_tails), None), query.tails[1], None)
    axes = (batch, query.factors_of(1), site.axis_of_size(site.output_dims()[2]))
    return _with_other_outputs(site, site.state_after_arithmetic(axes, tails))


def _slots_of(site: RuleSite) -> AttentionSlots:
    slots = attention_slots(site.node)
    if slots is None:
        raise RefusedError("which of its inputs is what is not known")
    return slots


def _with_other_outputs(site: RuleSite, state: TensorState) -> list[TensorState | None]:
    """Return the state of the first output, and None for the others."""
    return [state, *[None] * (len(site.node.outputs) - 1)]


def _check_masks(
    site: RuleSite, slots: AttentionSlots, batch: Axis, queries: Axis, keys: Axis
) -> None:
    """Refuse a mask or an addend whose axes are not those of the scores."""
    mask = site.optional_state(slots.mask)
    if mask is not None:
        if mask.rank != 2:
            raise RefusedError(
                f"its mask is of rank {mask.rank}; there is a rule for one of [batch, keys] alone"
            )
        join_axes([mask.factors_of(0), batch])
        join_axes([mask.factors_of(1), keys])
    addend = site.optional_state(slots.addend)
    if addend is not None:
        if addend.rank != 4 or carries_time(addend.factors_of(1)):
            raise RefusedError("its attention_bias is not [batch, heads, queries, keys]")
        for i, axis in ((0, batch), (2, queries), (3, keys)):
            join_axes([addend.factors_of(i), axis])


def _hide_keys(site: RuleSite, slots: AttentionSlots, batch: Axis, keys: Axis) -> None:
    """Hide keys by the mask or the addend that the model has, or by a mask."""
    mask, addend = site.optional_state(slots.mask), site.optional_state(slots.addend)
    if mask is not None and _mask_hides_padding(site, mask):
        return
    if addend is not None and slots.addend is not None:
        if addend.tails[3] is None:  # the same for all keys
            raise RefusedError("its attention_bias is the same for all keys")
        _spread_over_rows(site, slots.addend, batch)
        site.require_hidden_tail(slots.addend, 3)
        return
    state = TensorState(
        (batch, keys, site.input_state(slots.key).factors_of(2)), site.input_state(slots.key).tails
    )
    time = sole_time(keys)
    if time is None:
        raise RefusedError("its keys hold something else beside time, or run backwards")
    check_maskable(state.axes or (), 1, site.source)
    if any(len(x) > 1 for x in state.axes or ()):
        raise RefusedError("its batch axis holds something else beside the batch")
    site.check_size(time.size)
    keeps_mask = mask is not None and mask.valid_value != 1
    site.request_repair(HideKeys(site.node, "attention dilution", slots, state, keeps_mask))


def _spread_over_rows(site: RuleSite, index: int, batch: Axis) -> None:
    """Give a mask the batch axis that it has once it is combined with valid lengths."""
    mask = site.input_state(index)
    site.states[index] = dataclasses.replace(mask, axes=(batch, *(mask.axes or ())[1:]))


def _mask_hides_padding(site: RuleSite, mask: TensorState) -> bool:
    """Return whether a mask of the model hides what is behind the valid length."""
    low = attr_float(site.node, "mask_filter_value", MASK_FILTER)
    is_zero = mask.tails[1] is not None and mask.tail_along(1).is_zero
    return is_zero and (low <= _LOWEST or (hides_score(low) and mask.valid_value == 1))


def infer_rotary_embedding(site: RuleSite) -> TensorState:
    """Infer a rotation of each place by its own row of the tables."""
    state = _rotated_input(site)
    places, *tables = (site.input_state(i) for i in (1, 2, 3))
    if any(x.counts_padding for x in (places, *tables)):
        raise RefusedError("its tables hold padded sizes")
    for table in (x for x in tables if x.time_axes):
        if not places.fixed or places.time_axes or site.input_ints(1) != (0,):
            raise RefusedError(
                "it reads rows of a table that carries time, and it is not seen which"
            )
        join_axes([table.factors_of(0), state.factors_of(state.rank - 2)])
    return site.state_after_arithmetic(state.axes, state.tails)


def _rotated_input(site: RuleSite) -> TensorState:
    """Return the state of the input of a rotary embedding, whose last axis is features."""
    state = site.input_state()
    if state.rank not in (3, 4) or carries_time(state.factors_of(state.rank - 1)):
        raise RefusedError("time is its feature axis, or its rank is not known")
    return state


def infer_standard_attention(site: RuleSite) -> list[TensorState | None]:
    """Require keys behind the valid length that are hidden and finite."""
    query, key, value = states = [site.input_state(i) for i in range(3)]
    time_axis = query.rank - 2
    _check_standard_inputs(site, states, time_axis)
    batch = join_axes([x.factors_of(0) for x in states])
    keys = join_axes([key.factors_of(time_axis), value.factors_of(time_axis)])
    if carries_time(keys):
        for i in (1, 2):
            site.require_finite_tails(i, "attention dilution")
        if not (attr_int(site.node, "is_causal", 0) and query.factors_of(time_axis) == keys):
            _hide_standard_keys(site, batch, keys, time_axis)
    inner = tuple(query.factors_of(i) for i in range(1, query.rank - 1))
    axes = (batch, *inner, site.axis_of_size(site.output_dims()[-1]))
    return _with_other_outputs(site, site.state_after_arithmetic(axes, (*query.tails[:-1], None)))


def _check_standard_inputs(site: RuleSite, states: list[TensorState], time_axis: int) -> None:
    """Refuse layouts without a rule, and keys that are joined to those of earlier runs."""
    rank = states[0].rank
    if time_axis not in (1, 2) or any(x.rank != rank for x in states):
        raise RefusedError("its queries, keys and values are not [batch, heads, time, features]")
    keys_are_joined = any(map(site.has_input, (*_slots_of(site).pasts, _VALID_KEYS)))
    if keys_are_joined or any(x.name for x in site.node.outputs[1:]):
        raise RefusedError("its keys are joined to those of earlier runs, or counted")
    other_axes = [i for i in range(1, rank) if i != time_axis]
    if any(carries_time(x.factors_of(i)) for x in states for i in other_axes):
        raise RefusedError("time is its axis of heads or of features")


def _hide_standard_keys(site: RuleSite, batch: Axis, keys: Axis, time_axis: int) -> None:
    """Hide keys by the mask that the model has, or by one of its own."""
    if not site.has_input(STANDARD_MASK):
        tails = site.input_state(1).tails
        state = TensorState((batch, keys), (tails[0], tails[time_axis]))
        check_maskable(state.axes or (), 1, site.source)
        site.request_repair(MaskKeys(site.node, "attention dilution", state, time_axis))
        return
    mask = site.input_state(STANDARD_MASK)
    if mask.rank != 4 or mask.tails[3] is None:
        raise RefusedError("its mask is not [batch, heads, queries, keys]")
    join_axes([mask.factors_of(3), keys])
    _spread_over_rows(site, STANDARD_MASK, batch)
    if site.source.shapes.dtype(site.node.inputs[STANDARD_MASK]) == ir.DataType.BOOL:
        site.require_zero_tail(STANDARD_MASK, 3, "attention dilution")
    else:
        site.require_hidden_tail(STANDARD_MASK, 3)


def infer_standard_rotary(site: RuleSite) -> TensorState:
    """Infer a rotation by rows of the tables, which each place has or looks up."""
    state = _rotated_input(site)
    tables = [site.input_state(i) for i in (1, 2)]
    if any(x.counts_padding or (site.has_input(3) and x.time_axes) for x in tables):
        raise RefusedError("its tables hold padded sizes, or rows that are looked up")
    for table in tables if not site.has_input(3) else ():
        join_axes([table.factors_of(1), state.factors_of(state.rank - 2)])
    return site.state_after_arithmetic(state.axes, state.tails)


# From opset 23 on ONNX has namesakes of two of these, with other inputs.
RULES = {
    "Attention": PaddingRule(infer_standard_attention),
    "RotaryEmbedding": PaddingRule(infer_standard_rotary),
    "com.microsoft.Attention": PaddingRule(infer_packed_attention),
    "com.microsoft.MultiHeadAttention": PaddingRule(infer_multi_head_attention),
    "com.microsoft.RotaryEmbedding": PaddingRule(infer_rotary_embedding),
}
