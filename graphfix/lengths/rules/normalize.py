"""Rules for norms and Softmax: statistics over time must count valid frames only.

Over features each frame has statistics of its own, and padding does not matter.
"""

from collections.abc import Sequence

from graphfix.graph.nodes import attr_int
from graphfix.lengths.joint_axes import RefusedError, check_rows_unmixed
from graphfix.lengths.repairs.repair import Leak
from graphfix.lengths.repairs.statistics import MaskedGroupNorm, MaskedNorm
from graphfix.lengths.rule_site import PaddingRule, RuleSite
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    PARTLY_HIDDEN,
    ZERO,
    Tail,
    TensorState,
    carries_time,
    size_of,
)
from graphfix.ops.softmax import softmax_axes

_LEAK: Leak = "statistics pollution"
_PARAMETER = "a parameter of it carries time"


def infer_instance_norm(site: RuleSite) -> TensorState:
    """Infer a norm by mean and variance over all spatial axes."""
    state = site.input_state()
    if state.axes is None:
        return site.output_without_time()
    return _infer_norm(site, state, tuple(range(2, state.rank)), per_channel=True)


def infer_rms_norm(site: RuleSite) -> Sequence[TensorState | None]:
    """Infer a norm by the mean of squares over the last axes."""
    return infer_layer_norm(site, centred=False)


def infer_layer_norm(site: RuleSite, *, centred: bool = True) -> Sequence[TensorState | None]:
    """Infer a norm by mean and variance over the last axes; both may be outputs, too."""
    state = site.input_state()
    count = len(site.node.outputs)
    if state.axes is None:
        return [site.output_without_time(i) for i in range(count)]
    over = tuple(range(site.axis_attribute(state.rank), state.rank))
    result = _infer_norm(site, state, over, per_channel=False, centred=centred)
    axes = tuple(() if i in over else x for i, x in enumerate(state.axes))
    tails = tuple(None if i in over else x for i, x in enumerate(result.tails))
    return [result, *[TensorState(axes, tails)] * (count - 1)]


def _infer_norm(
    site: RuleSite,
    state: TensorState,
    axes: tuple[int, ...],
    *,
    per_channel: bool,
    centred: bool = True,
) -> TensorState:
    check_rows_unmixed(state, axes)
    site.check_parameters(_PARAMETER)
    if _spans_time(site, state, axes):
        site.request_repair(MaskedNorm(site.node, _LEAK, axes, state, per_channel, centred=centred))
    return TensorState(state.axes, state.tails_after_arithmetic())


def _spans_time(site: RuleSite, state: TensorState, axes: Sequence[int]) -> bool:
    """Return whether statistics over these axes see padding; refuse what cannot be repaired."""
    times = [i for i in axes if carries_time(state.factors_of(i))]
    for axis in times:
        site.check_mask(state, axis)
    if times and any(x.uses() or x.is_graph_output() for x in site.node.outputs[1:]):
        raise RefusedError("its mean or deviation over time is used elsewhere")
    return bool(times)


def infer_group_norm(site: RuleSite) -> TensorState:
    """Infer a norm over all axes but the batch, in groups of channels."""
    state = site.input_state()
    if state.axes is None:
        return site.output_without_time()
    check_rows_unmixed(state, range(1, state.rank))
    site.check_parameters(_PARAMETER)
    channels = state.factors_of(1)
    if _spans_time(site, state, range(1, state.rank)):
        if carries_time(channels) or len(channels) > 1 or not size_of(channels).is_Integer:
            raise RefusedError("how many channels it has is not known")
        groups, each = attr_int(site.node, "num_groups", 1), site.opset >= 21
        site.request_repair(
            MaskedGroupNorm(site.node, _LEAK, groups, int(size_of(channels)), state, each)
        )
    return TensorState(state.axes, state.tails_after_arithmetic())


def infer_framewise(site: RuleSite) -> TensorState:
    """Infer a norm over the features of each frame."""
    state = site.input_state()
    if state.axes is not None and state.rank and carries_time(state.factors_of(state.rank - 1)):
        raise RefusedError("it normalizes over time")
    return _framewise_result(site, state)


def infer_batch_norm(site: RuleSite) -> TensorState:
    """Infer a scale and a shift for each channel."""
    state = site.input_state()
    if attr_int(site.node, "training_mode", 0):
        raise RefusedError("it takes statistics of what it is fed")
    if state.axes is None or carries_time(state.factors_of(1)):
        raise RefusedError("time is its channel axis")
    return _framewise_result(site, state)


def _framewise_result(site: RuleSite, state: TensorState) -> TensorState:
    for parameter in site.states[1:]:
        if parameter is not None and parameter.time_axes and parameter.axes != state.axes:
            raise RefusedError(_PARAMETER)
    return site.state_after_arithmetic(state.axes, state.tails)


def infer_skip_norm(site: RuleSite) -> list[TensorState | None]:
    """Infer com.microsoft's sum and norm in one; the sum may be its last output."""
    state = infer_framewise(site)
    return [state if x.name else None for x in site.node.outputs]


def infer_softmax(site: RuleSite) -> TensorState:
    """Require scores in the tail that are far below the others, if it is over time."""
    state = site.input_state()
    axes = _softmax_axes(site, state)
    check_rows_unmixed(state, axes)
    for axis in axes:
        if carries_time(state.factors_of(axis)):
            state = site.require_hidden_tail(0, axis)
    log = site.node.op_type == "LogSoftmax"
    behind = ANY if log else ZERO
    tails = tuple(
        x and (behind if i in axes else _tail_of_weights(state, i, axes, log=log))
        for i, x in enumerate(state.tails)
    )
    return state.with_other_numbers(tails, 0 if log else 1)


def _tail_of_weights(state: TensorState, axis: int, summed: Sequence[int], *, log: bool) -> Tail:
    """Return the tail of a Softmax along an axis that it does not sum over.

    A row whose scores are all -inf gives NaN; one that has a finite score among them does not.
    """
    tail = state.tail_along(axis)
    keeps_score = tail == PARTLY_HIDDEN and {*state.time_axes} <= {axis, *summed} and not log
    return FINITE if tail.is_bounded or keeps_score else ANY


def _softmax_axes(site: RuleSite, state: TensorState) -> tuple[int, ...]:
    axes = None if state.axes is None else softmax_axes(site.node, state.rank, site.opset)
    if axes is None:
        raise RefusedError("the rank of its input is not known")
    return axes


RULES = {
    **dict.fromkeys(("LogSoftmax", "Softmax"), PaddingRule(infer_softmax)),
    "BatchNormalization": PaddingRule(infer_batch_norm),
    "GroupNormalization": PaddingRule(infer_group_norm),
    "InstanceNormalization": PaddingRule(infer_instance_norm),
    "LRN": PaddingRule(infer_batch_norm),
    "LayerNormalization": PaddingRule(infer_layer_norm),
    "RMSNormalization": PaddingRule(infer_rms_norm),
    "SimplifiedLayerNormalization": PaddingRule(infer_rms_norm),
    "com.microsoft.SkipLayerNormalization": PaddingRule(infer_skip_norm),
    "com.microsoft.SkipSimplifiedLayerNormalization": PaddingRule(infer_skip_norm),
}
