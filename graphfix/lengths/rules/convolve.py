"""Rules for convolutions and pooling: a window past the end must see the same as natively."""

import dataclasses

from graphfix.graph.nodes import attr_int, input_at, is_op
from graphfix.lengths.joint_axes import RefusedError, check_rows_unmixed
from graphfix.lengths.rule_site import PaddingRule, RuleSite
from graphfix.lengths.rules.quantize import subtract_zero_point
from graphfix.lengths.rules.reduce import require_masked_mean
from graphfix.lengths.tail_state import (
    Axis,
    Tail,
    TensorState,
    TimeFactor,
    carries_time,
    same_size,
    sole_time,
)
from graphfix.ops.windows import Window, window_of


def infer_conv(site: RuleSite, *, bias: int | None = 2) -> TensorState:
    """Require zeros in the tail if windows reach past the end."""
    state = check_window_input(site)
    for axis in spatial_time_axes(state):
        kernel, past = _read_window(site, axis)
        if kernel > 1 or past:
            _check_forward_time(state.factors_of(axis))
        if past:
            state = site.require_zero_tail(0, axis, "boundary leak")
    return _conv_result(site, state, bias=bias)


def infer_conv_integer(site: RuleSite) -> TensorState:
    """Infer a Conv of quantized numbers, whose zeros are zero points."""
    subtract_zero_point(site, 0, 2)
    return infer_conv(site, bias=None)


def infer_conv_transpose(site: RuleSite) -> TensorState:
    """Require zeros in the tail, which would spread over valid frames."""
    state = check_window_input(site)
    for axis in spatial_time_axes(state):
        window, place = _window_of(site), axis - 2
        _check_forward_time(state.factors_of(axis))
        # Behind the last frame there is room for the next, too, where it is as long as a stride.
        if window.kernel[place] > 1 or window.output_padding[place] >= window.strides[place]:
            state = site.require_zero_tail(0, axis, "boundary leak")
    return _conv_result(site, state, bias=2)


def infer_max_pool(site: RuleSite) -> TensorState:
    """Require a low tail, as past the end there is nothing that could be the largest."""
    state = check_window_input(site)
    for axis in spatial_time_axes(state):
        kernel, past = _read_window(site, axis)
        _check_forward_time(state.factors_of(axis))
        if kernel > 1 and (past or _may_overhang(site, axis)):
            state = site.require_low_tail(0, axis, "boundary leak")
    if len(site.node.outputs) > 1 and site.node.outputs[1].uses():
        raise RefusedError("its indices count the padding in")
    return dataclasses.replace(_conv_result(site, state, bias=None), sign=state.sign)


def infer_average_pool(site: RuleSite) -> TensorState:
    """Require zeros in the tail if zeros past the end count, and refuse other averages."""
    state = check_window_input(site)
    for axis in spatial_time_axes(state):
        kernel, past = _read_window(site, axis)
        _check_forward_time(state.factors_of(axis))
        if kernel == 1 or not (past or _may_overhang(site, axis)):
            continue
        if _may_overhang(site, axis) or not attr_int(site.node, "count_include_pad", 0):
            raise RefusedError("its last window is averaged over fewer frames than the others")
        state = site.require_zero_tail(0, axis, "boundary leak")
    return dataclasses.replace(_conv_result(site, state, bias=None), sign=min(state.sign, 1))


def infer_global_average_pool(site: RuleSite) -> TensorState:
    """Infer a mean over all spatial axes."""
    axes = tuple(range(2, check_window_input(site).rank))
    mean = require_masked_mean(site, axes, keep=True)
    out_axes = tuple(() if i in axes else x for i, x in enumerate(mean.axes or ()))
    return TensorState(out_axes, tuple(None if i in axes else x for i, x in enumerate(mean.tails)))


def check_window_input(site: RuleSite) -> TensorState:
    """Return the state of the input: [batch, channels, ...] with time behind these."""
    state = site.input_state()
    if state.axes is None:
        raise RefusedError("the rank of its input is not known")
    if state.rank < 3:
        raise RefusedError(f"its input is of rank {state.rank}, and has nothing to slide along")
    if carries_time(state.factors_of(1)):
        raise RefusedError("time is its channel axis")
    check_rows_unmixed(state, range(1, state.rank))
    site.check_parameters("its weights carry time")
    return state


def spatial_time_axes(state: TensorState) -> list[int]:
    """Return the axes behind the channels that carry time."""
    return [i for i in range(2, state.rank) if carries_time(state.factors_of(i))]


def _check_forward_time(axis: Axis) -> None:
    if sole_time(axis) is None:
        raise RefusedError("its time axis holds something else beside time, or runs backwards")


def _window_of(site: RuleSite) -> Window:
    weight_dims = site.source.shapes.dims(input_at(site.node, 1))
    window = window_of(site.node, weight_dims)
    if window is None:
        raise RefusedError("the size of its window is not known")
    return window


def _read_window(site: RuleSite, axis: int) -> tuple[int, bool]:
    """Return the size of the window on an axis, and whether it reaches past the end."""
    window, place = _window_of(site), axis - 2
    size = window.kernel[place]
    if window.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        if window.strides[place] > 1 and not is_op(site.node, "ConvTranspose"):
            raise RefusedError(
                f"how much {window.auto_pad} puts in front depends on the padded length; "
                "write it as pads"
            )
        return size, size > 1
    return size, window.after[place] > 0


def _may_overhang(site: RuleSite, axis: int) -> bool:
    """Return whether its last window may hang over the end: with a stride of 1 none does."""
    window = _window_of(site)
    return window.ceil_mode and window.strides[axis - 2] > 1


def _conv_result(site: RuleSite, state: TensorState, *, bias: int | None) -> TensorState:
    dims = site.output_dims()
    axes, tails = list[Axis](), list[Tail | None]()
    for i, (old, tail) in enumerate(zip(state.axes or (), state.tails, strict=True)):
        if i < 2 or not carries_time(old):
            axes.append(old if i == 0 else site.axis_of_size(dims[i]))
            tails.append(tail and tail.after_arithmetic)
            continue
        if not site.is_size_of_inputs(dims[i]):
            raise RefusedError(
                "how many frames its result has is not known; write its auto_pad as pads"
            )
        if not site.grows_with_padding(dims[i]):
            raise RefusedError(f"its result has {dims[i]} frames however long the clip is")
        same = same_size(state.size_along(i), dims[i])
        if not same:
            _check_forward_time(old)
        axes.append(old if same else (TimeFactor(dims[i]),))
        plain_one = _window_of(site).kernel[i - 2] == 1 and (
            bias is None or not site.has_input(bias)
        )
        tails.append(tail if plain_one and tail is not None and tail.is_zero else state.mixed_tail)
    return TensorState(tuple(axes), tuple(tails))


RULES = {
    "AveragePool": PaddingRule(infer_average_pool),
    "Conv": PaddingRule(infer_conv),
    "ConvInteger": PaddingRule(infer_conv_integer),
    "ConvTranspose": PaddingRule(infer_conv_transpose),
    "com.microsoft.FusedConv": PaddingRule(infer_conv),
    "GlobalAveragePool": PaddingRule(infer_global_average_pool),
    "MaxPool": PaddingRule(infer_max_pool),
}
