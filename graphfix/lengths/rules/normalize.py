"""Normalizations: statistics over time count what is valid; over features each has its own.

For a Softmax, what lies in the tail must weigh nothing.
"""

from collections.abc import Sequence

from graphfix.graph.nodes import attr_int
from graphfix.lengths.joint_axes import RefusedError, check_apart
from graphfix.lengths.repairs.repair import Leak
from graphfix.lengths.repairs.statistics import MaskedGroupNorm, MaskedNorm
from graphfix.lengths.rule_site import Rule, Site
from graphfix.lengths.tail_state import ANY, FINITE, ZERO, State, carries_time, size_of

_LEAK: Leak = "statistics pollution"
_PARAMETER = "a parameter of it carries time"


def instance_norm(site: Site) -> State:
    """Mean and variance over all spatial axes."""
    state = site.state()
    if state.axes is None:
        return site.without_time()
    return _norm(site, state, tuple(range(2, state.rank)), per_channel=True)


def rms_norm(site: Site) -> Sequence[State | None]:
    """The mean of squares over the last axes."""
    return layer_norm(site, centred=False)


def layer_norm(site: Site, *, centred: bool = True) -> Sequence[State | None]:
    """Mean and variance over the last axes, which it may also put out."""
    state = site.state()
    count = len(site.node.outputs)
    if state.axes is None:
        return [site.without_time(i) for i in range(count)]
    over = tuple(range(attr_int(site.node, "axis", -1) % state.rank, state.rank))
    result = _norm(site, state, over, per_channel=False, centred=centred)
    axes = tuple(() if i in over else x for i, x in enumerate(state.axes))
    tails = tuple(None if i in over else x for i, x in enumerate(result.tails))
    return [result, *[State(axes, tails)] * (count - 1)]


def _norm(
    site: Site, state: State, axes: tuple[int, ...], *, per_channel: bool, centred: bool = True
) -> State:
    check_apart(state, axes)
    site.check_behind(_PARAMETER)
    if _over_time(site, state, axes):
        site.repair(MaskedNorm(site.node, _LEAK, axes, state, per_channel, centred=centred))
    return State(state.axes, state.recomputed())


def _over_time(site: Site, state: State, axes: Sequence[int]) -> bool:
    """Whether statistics over these axes see padding; refuse what cannot be repaired."""
    times = [i for i in axes if carries_time(state.at(i))]
    for axis in times:
        site.check_mask(state, axis)
    if times and any(x.uses() or x.is_graph_output() for x in site.node.outputs[1:]):
        raise RefusedError("its mean or deviation over time is used elsewhere")
    return bool(times)


def group_norm(site: Site) -> State:
    """Mean and variance over all but the batch, in groups of channels."""
    state = site.state()
    if state.axes is None:
        return site.without_time()
    check_apart(state, range(1, state.rank))
    site.check_behind(_PARAMETER)
    channels = state.at(1)
    if _over_time(site, state, range(1, state.rank)):
        if carries_time(channels) or len(channels) > 1 or not size_of(channels).is_Integer:
            raise RefusedError("how many channels it has is not known")
        groups, each = attr_int(site.node, "num_groups", 1), site.opset >= 21
        site.repair(MaskedGroupNorm(site.node, _LEAK, groups, int(size_of(channels)), state, each))
    return State(state.axes, state.recomputed())


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
            raise RefusedError(_PARAMETER)
    return site.recomputed(state.axes, state.tails)


def skip_norm(site: Site) -> list[State | None]:
    """com.microsoft's sum and LayerNormalization in one; the sum may be its last output."""
    state = local(site)
    return [state if x.name else None for x in site.node.outputs]


def softmax(site: Site) -> State:
    """Over time, scores in the tail must be far below the others."""
    state = site.state()
    axes = _over(site, state)
    check_apart(state, axes)
    for axis in axes:
        if carries_time(state.at(axis)):
            state = site.need_hidden(0, axis)
    log = site.node.op_type == "LogSoftmax"
    behind = ANY if log else ZERO
    # A row that is hidden whole has no largest score.
    others = (x and (FINITE if x.is_bounded else ANY) for x in state.tails)
    tails = tuple(x and behind if i in axes else x for i, x in enumerate(others))
    return state.of_others(tails, 0 if log else 1)


def _over(site: Site, state: State) -> tuple[int, ...]:
    """The axes that a Softmax is over: before opset 13, all from its axis on."""
    if state.axes is None:
        raise RefusedError("the rank of its input is not known")
    if site.opset >= 13:
        return (attr_int(site.node, "axis", -1) % state.rank,)
    return tuple(range(attr_int(site.node, "axis", 1) % state.rank, state.rank))


RULES = {
    **dict.fromkeys(("LogSoftmax", "Softmax"), Rule(softmax)),
    "BatchNormalization": Rule(batch_norm),
    "GroupNormalization": Rule(group_norm),
    "InstanceNormalization": Rule(instance_norm),
    "LRN": Rule(batch_norm),
    "LayerNormalization": Rule(layer_norm),
    "RMSNormalization": Rule(rms_norm),
    "SimplifiedLayerNormalization": Rule(rms_norm),
    "SkipLayerNormalization": Rule(skip_norm),
    "SkipSimplifiedLayerNormalization": Rule(skip_norm),
}
