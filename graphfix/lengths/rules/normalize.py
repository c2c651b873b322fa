"""Normalizations: statistics over time count what is valid; over features each has its own."""

from __future__ import annotations

import dataclasses

from graphfix.lengths.domain import ANY, FINITE, State, carries_time
from graphfix.lengths.repairs import MaskedNorm
from graphfix.lengths.rules.reduce import check_sizes
from graphfix.lengths.site import RefusedError, Site, check_maskable
from graphfix.model.values import attr_int


def instance_norm(site: Site) -> State:
    """Mean and variance over all spatial axes."""
    state = site.state()
    if state.axes is None:
        return site.without_time()
    return _norm(site, state, tuple(range(2, state.rank)), per_channel=True)


def layer_norm(site: Site) -> State:
    """Mean and variance over the last axes."""
    state = site.state()
    if state.axes is None:
        return site.without_time()
    first = attr_int(site.node, "axis", -1) % state.rank
    return _norm(site, state, tuple(range(first, state.rank)), per_channel=False)


def _norm(site: Site, state: State, axes: tuple[int, ...], *, per_channel: bool) -> State:
    times = [i for i in axes if carries_time(state.at(i))]
    if times:
        for axis in times:
            check_maskable(state.axes or (), axis, site.source)
            check_sizes(site, state.at(axis))
        if len(site.node.outputs) > 1 and any(x.uses() for x in site.node.outputs[1:]):
            raise RefusedError("its mean or deviation over time is used elsewhere")
        site.repair(MaskedNorm(site.node, "statistics pollution", axes, state, per_channel))
    tails = tuple(None if x is None else FINITE if x.is_finite else ANY for x in state.tails)
    return State(state.axes, tails)


def group_norm(site: Site) -> State:
    """Mean and variance over all but the batch, in groups of channels."""
    state = site.state()
    if any(carries_time(state.at(i)) for i in range(2, state.rank)):
        raise RefusedError("there is no repair for it over time; write it as InstanceNormalization")
    return dataclasses.replace(state, sign=0, fill=None, inside=None)


def local(site: Site) -> State:
    """Each frame by itself: features are normalized or scaled, never frames."""
    state = site.state()
    if state.axes is not None and state.rank and carries_time(state.at(state.rank - 1)):
        raise RefusedError("it normalizes over time")
    return _touched(site, state)


def batch_norm(site: Site) -> State:
    """A scale and a shift for each channel."""
    state = site.state()
    if attr_int(site.node, "training_mode", 0):
        raise RefusedError("it takes statistics of what it is fed")
    if state.axes is None or carries_time(state.at(1)):
        raise RefusedError("time is its channel axis")
    return _touched(site, state)


def _touched(site: Site, state: State) -> State:
    for other in site.states[1:]:
        if other is not None and other.timed and other.axes != state.axes:
            raise RefusedError("a parameter of it carries time")
    finite = all(x is None or x.is_finite for x in site.states)
    tails = tuple(
        None if x is None else FINITE if x.is_finite and finite else ANY for x in state.tails
    )
    return State(state.axes, tails)


def skip_norm(site: Site) -> list[State | None]:
    """com.microsoft's sum and LayerNormalization in one; the sum may be its last output."""
    state = local(site)
    return [state if x.name else None for x in site.node.outputs]


def l2_norm(site: Site) -> State:
    """Divides by the length of a vector."""
    state = site.state()
    axis = attr_int(site.node, "axis", -1) % max(state.rank, 1)
    if carries_time(state.at(axis)):
        state = site.need_zero(0, axis, "sum pollution")
    tails = tuple(None if x is None else ANY for x in state.tails)
    return State(state.axes, tails)


RULES = {
    "BatchNormalization": batch_norm,
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LRN": batch_norm,
    "LayerNormalization": layer_norm,
    "LpNormalization": l2_norm,
    "RMSNormalization": local,
    "SimplifiedLayerNormalization": local,
    "SkipLayerNormalization": skip_norm,
    "SkipSimplifiedLayerNormalization": skip_norm,
}
