"""Attention in one node, and what stands before it: com.microsoft's operators and ONNX's own.

ONNX Runtime docs/ContribOperators.md has the inputs of the first; graphfix's fuse-attention writes
them. ONNX's Attention and RotaryEmbedding, of opset 23 and 24, take [B, H, T, D] or [B, T, F] each.
"""

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from graphfix.graph.nodes import attr_float, attr_int
from graphfix.lengths.joint_axes import RefusedError, check_maskable, join
from graphfix.lengths.repairs.fill_tail import MASK_FILTER, STANDARD_MASK, HideKeys, MaskKeys, Slots
from graphfix.lengths.rule_site import Rule, Site
from graphfix.lengths.tail_state import LOW, Axis, State, carries_time, time_of

# As low as this a mask hides, whatever is valid: no score is as large.
_LOWEST = -1e30


def multi_head_attention(site: Site) -> list[State | None]:
    """Keys behind the valid length must weigh nothing, and be numbers."""
    given = [site.state(i) if site.has(i) else None for i in range(3)]
    if any(x is None or x.rank != 3 for x in given):
        raise RefusedError(
            "its queries, keys and values are not [batch, time, features] each, or are packed "
            "into one; export them apart, or run ilens-mask before it is fused"
        )
    return _attention(site, Slots(key=1, value=2, bias=3, mask=4, added=5), pasts=(6, 7))


def attention(site: Site) -> list[State | None]:
    """The same, of one tensor: its products with weights are in it."""
    if site.state().rank != 3:
        raise RefusedError("its input is not [batch, time, features]")
    if site.state(1).timed:
        raise RefusedError("its weights carry time")
    return _attention(site, Slots(key=0, value=0, bias=2, mask=3, added=5), pasts=(4,))


def _attention(site: Site, slots: Slots, pasts: Sequence[int]) -> list[State | None]:
    query, key, value = (site.state(i) for i in (0, slots.key, slots.value))
    if any(map(site.has, pasts)):
        raise RefusedError("its keys are joined to those of earlier runs")
    if site.has(slots.bias) and site.state(slots.bias).timed:
        raise RefusedError("a bias of it carries time")
    if any(carries_time(x.at(2)) for x in (query, key, value)):
        raise RefusedError("time is its feature axis")
    batch = join([x.at(0) for x in (query, key, value)])
    keys = join([key.at(1), value.at(1)])
    _check_beside(site, slots, batch, query.at(1), keys)
    if carries_time(keys):
        for i in (slots.key, slots.value):
            site.need_finite(i, "attention dilution")
        if not (attr_int(site.node, "unidirectional", 0) and query.at(1) == keys):
            _hide(site, slots, batch, keys)
    # What lies behind, where the batch carries time, as that of windows does.
    behind = (site.state(i).tails[0] for i in (0, slots.key, slots.value))
    tails = (next(filter(None, behind), None), query.tails[1], None)
    axes = (batch, query.at(1), site.axis_of(site.out_dims()[2]))
    return [site.recomputed(axes, tails), *[None] * (len(site.node.outputs) - 1)]


def _check_beside(site: Site, slots: Slots, batch: Axis, queries: Axis, keys: Axis) -> None:
    """Refuse a mask or an addend whose axes are not those of the scores."""
    if site.has(slots.mask):
        mask = site.state(slots.mask)
        if mask.rank != 2:
            raise RefusedError(
                f"its mask is of rank {mask.rank}; there is a rule for one of [batch, keys] alone"
            )
        join([mask.at(0), batch])
        join([mask.at(1), keys])
    if site.has(slots.added):
        added = site.state(slots.added)
        if added.rank != 4 or carries_time(added.at(1)):
            raise RefusedError("its attention_bias is not [batch, heads, queries, keys]")
        for i, axis in ((0, batch), (2, queries), (3, keys)):
            join([added.at(i), axis])


def _hide(site: Site, slots: Slots, batch: Axis, keys: Axis) -> None:
    """Hide keys by the mask or the addend that there is, or by a mask."""
    mask = site.state(slots.mask) if site.has(slots.mask) else None
    added = site.state(slots.added) if site.has(slots.added) else None
    if mask is not None and _hides(site, mask):
        return
    if added is not None:
        if added.tails[3] is None:  # the same for all keys
            raise RefusedError("its attention_bias is the same for all keys")
        # A mask that is added to one for all rows makes one for each.
        site.states[slots.added] = dataclasses.replace(added, axes=(batch, *(added.axes or ())[1:]))
        site.need_hidden(slots.added, 3)
        return
    state = State((batch, keys, site.state(slots.key).at(2)), site.state(slots.key).tails)
    time = time_of(keys)
    if time is None:
        raise RefusedError("its keys hold something else beside time, or run backwards")
    check_maskable(state.axes or (), 1, site.source)
    if any(len(x) > 1 for x in state.axes or ()):
        raise RefusedError("its batch axis holds something else beside the batch")
    site.check_size(time.size)
    kept = mask is not None and mask.level != 1
    site.repair(HideKeys(site.node, "attention dilution", slots, state, kept))


def _hides(site: Site, mask: State) -> bool:
    """Whether a mask of the model hides what is behind the valid length."""
    low = attr_float(site.node, "mask_filter_value", MASK_FILTER)
    here = mask.tails[1] is not None and mask.tail(1).is_zero
    return here and (low <= _LOWEST or (low <= LOW and mask.level == 1))


def rotary_embedding(site: Site) -> State:
    """Each place is turned by its own row of the tables."""
    state = _turned(site)
    places, *tables = (site.state(i) for i in (1, 2, 3))
    if any(x.physical for x in (places, *tables)):
        raise RefusedError("its tables hold padded sizes")
    for table in (x for x in tables if x.timed):
        if not places.fixed or places.timed or site.ints(1) != (0,):
            raise RefusedError(
                "it reads rows of a table that carries time, and it is not seen which"
            )
        join([table.at(0), state.at(state.rank - 2)])
    return site.recomputed(state.axes, state.tails)


def _turned(site: Site) -> State:
    """What a rotary embedding turns: its features, the last axis."""
    state = site.state()
    if state.rank not in (3, 4) or carries_time(state.at(state.rank - 1)):
        raise RefusedError("time is its feature axis, or its rank is not known")
    return state


def standard_attention(site: Site) -> list[State | None]:
    """Keys behind the valid length must weigh nothing, and be numbers."""
    query, key, value = (site.state(i) for i in range(3))
    at = query.rank - 2
    if at not in (1, 2) or {key.rank, value.rank} != {query.rank}:
        raise RefusedError("its queries, keys and values are not [batch, heads, time, features]")
    if any(map(site.has, (4, 5, 6))) or any(x.name for x in site.node.outputs[1:]):
        raise RefusedError("its keys are joined to those of earlier runs, or counted")
    others = [i for i in range(1, query.rank) if i != at]
    if any(carries_time(x.at(i)) for x in (query, key, value) for i in others):
        raise RefusedError("time is its axis of heads or of features")
    batch = join([x.at(0) for x in (query, key, value)])
    keys = join([key.at(at), value.at(at)])
    if carries_time(keys):
        for i in (1, 2):
            site.need_finite(i, "attention dilution")
        if not (attr_int(site.node, "is_causal", 0) and query.at(at) == keys):
            _hide_by_one(site, batch, keys, at)
    axes = (batch, *query.axes[1:-1], site.axis_of(site.out_dims()[-1]))  # type: ignore[index]
    tails = (*query.tails[:-1], None)
    return [site.recomputed(axes, tails), *[None] * (len(site.node.outputs) - 1)]


def _hide_by_one(site: Site, batch: Axis, keys: Axis, at: int) -> None:
    """Hide keys by the mask that there is, or by one of its own."""
    if not site.has(STANDARD_MASK):
        state = State((batch, keys), (site.state(1).tails[0], site.state(1).tails[at]))
        check_maskable(state.axes or (), 1, site.source)
        site.repair(MaskKeys(site.node, "attention dilution", state, at))
        return
    mask = site.state(STANDARD_MASK)
    last = mask.rank - 1
    if last != 3 or mask.tails[last] is None:
        raise RefusedError("its mask is not [batch, heads, queries, keys]")
    join([mask.at(last), keys])
    # A mask for all rows becomes one for each.
    site.states[STANDARD_MASK] = dataclasses.replace(mask, axes=(batch, *(mask.axes or ())[1:]))
    if site.source.shapes.dtype(site.node.inputs[STANDARD_MASK]) == ir.DataType.BOOL:
        site.need_zero(STANDARD_MASK, last, "attention dilution")
    else:
        site.need_hidden(STANDARD_MASK, last)


def standard_rotary(site: Site) -> State:
    """Each place is turned by its own row of the tables, which it has or looks up."""
    state = _turned(site)
    tables = [site.state(i) for i in (1, 2)]
    if any(x.physical or (site.has(3) and x.timed) for x in tables):
        raise RefusedError("its tables hold padded sizes, or rows that are looked up")
    for table in tables if not site.has(3) else ():
        join([table.at(1), state.at(state.rank - 2)])
    return site.recomputed(state.axes, state.tails)


# From opset 23 on ONNX has namesakes of two of these, with other inputs.
RULES = {
    "Attention": Rule(standard_attention),
    "RotaryEmbedding": Rule(standard_rotary),
    "com.microsoft.Attention": Rule(attention),
    "com.microsoft.MultiHeadAttention": Rule(multi_head_attention),
    "com.microsoft.RotaryEmbedding": Rule(rotary_embedding),
}
