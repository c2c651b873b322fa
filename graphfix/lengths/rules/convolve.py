"""Convolutions and pooling: a window that reaches past the end must find there what padding is."""

import dataclasses

from graphfix.graph.nodes import attr_int, attr_ints, attr_text
from graphfix.lengths.joint_axes import RefusedError, check_apart
from graphfix.lengths.rule_site import Rule, Site
from graphfix.lengths.rules.quantize import unbiased
from graphfix.lengths.rules.reduce import masked_mean
from graphfix.lengths.tail_state import Axis, State, Tail, Time, carries_time, same_size, time_of


def conv(site: Site, *, bias: int | None = 2) -> State:
    """Zeros are put behind the end; the same must be behind the valid length."""
    state = checked(site)
    for axis in spatial(state):
        kernel, past = _window(site, axis)
        if kernel > 1 or past:
            _forward(state.at(axis))
        if past:
            state = site.need_zero(0, axis, "boundary leak")
    return _result(site, state, bias=bias)


def conv_integer(site: Site) -> State:
    """As Conv, with zero points for zeros."""
    unbiased(site, 0, 2)
    return conv(site, bias=None)


def conv_transpose(site: Site) -> State:
    """Each frame is spread over several; those behind the valid length must spread nothing."""
    state = checked(site)
    for axis in spatial(state):
        kernel, _ = _window(site, axis)
        _forward(state.at(axis))
        if kernel > 1:
            state = site.need_zero(0, axis, "boundary leak")
    return _result(site, state, bias=2)


def max_pool(site: Site) -> State:
    """Nothing is larger than what a window finds past the end."""
    state = checked(site)
    for axis in spatial(state):
        kernel, past = _window(site, axis)
        _forward(state.at(axis))
        if kernel > 1 and (past or _hangs(site, axis)):
            state = site.need_low(0, axis, "boundary leak")
    if len(site.node.outputs) > 1 and site.node.outputs[1].uses():
        raise RefusedError("its indices count the padding in")
    return dataclasses.replace(_result(site, state, bias=None), sign=state.sign)


def average_pool(site: Site) -> State:
    """Zeros past the end count only if it says so."""
    state = checked(site)
    for axis in spatial(state):
        kernel, past = _window(site, axis)
        _forward(state.at(axis))
        if kernel == 1 or not (past or _hangs(site, axis)):
            continue
        if _hangs(site, axis) or not attr_int(site.node, "count_include_pad", 0):
            raise RefusedError("its last window is averaged over fewer frames than the others")
        state = site.need_zero(0, axis, "boundary leak")
    return dataclasses.replace(_result(site, state, bias=None), sign=min(state.sign, 1))


def global_average_pool(site: Site) -> State:
    """A mean over all spatial axes."""
    axes = tuple(range(2, checked(site).rank))
    mean = masked_mean(site, axes, keep=True)
    kept = tuple(() if i in axes else x for i, x in enumerate(mean.axes or ()))
    return State(kept, tuple(None if i in axes else x for i, x in enumerate(mean.tails)))


def checked(site: Site) -> State:
    """The state of what a window slides over: [batch, channels, ...], time among the rest."""
    state = site.state()
    if state.axes is None:
        raise RefusedError("the rank of its input is not known")
    if state.rank < 3:
        raise RefusedError(f"its input is of rank {state.rank}, and has nothing to slide along")
    if carries_time(state.at(1)):
        raise RefusedError("time is its channel axis")
    check_apart(state, range(1, state.rank))
    site.check_behind("its weights carry time")
    return state


def spatial(state: State) -> list[int]:
    """The axes behind the channels that carry time."""
    return [i for i in range(2, state.rank) if carries_time(state.at(i))]


def _forward(axis: Axis) -> None:
    if time_of(axis) is None:
        raise RefusedError("its time axis holds something else beside time, or runs backwards")


def _kernel(site: Site, axis: int) -> int:
    """The size of the window on an axis."""
    node = site.node
    kernel = attr_ints(node, "kernel_shape")
    if kernel is not None:
        return kernel[axis - 2]
    weights = site.source.shapes.dims(node.inputs[1]) if len(node.inputs) > 1 else None
    size = None if weights is None else weights[axis]
    if not isinstance(size, int):
        raise RefusedError("the size of its window is not known")
    return size


def _window(site: Site, axis: int) -> tuple[int, bool]:
    """The size of the window on an axis, and whether it reaches past the end."""
    node, place = site.node, axis - 2
    size = _kernel(site, axis)
    auto = attr_text(node, "auto_pad", "NOTSET")
    pads = attr_ints(node, "pads")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        strides = attr_ints(node, "strides")
        if strides is not None and strides[place] > 1 and node.op_type != "ConvTranspose":
            raise RefusedError(
                f"how much {auto} puts in front depends on the padded length; write it as pads"
            )
        return size, size > 1
    end = 0 if pads is None or auto == "VALID" else pads[len(pads) // 2 + place]
    return size, end > 0


def _hangs(site: Site, axis: int) -> bool:
    """Whether its last window may hang over the end: with a stride of 1 none does."""
    strides = attr_ints(site.node, "strides")
    return bool(attr_int(site.node, "ceil_mode", 0)) and (strides or ())[axis - 2 :][:1] > (1,)


def _result(site: Site, state: State, *, bias: int | None) -> State:
    dims = site.out_dims()
    axes, tails = list[Axis](), list[Tail | None]()
    for i, (old, kept) in enumerate(zip(state.axes or (), state.tails, strict=True)):
        if i < 2 or not carries_time(old):
            axes.append(old if i == 0 else site.axis_of(dims[i]))
            tails.append(kept and kept.recomputed)
            continue
        if not site.grows(dims[i]):
            raise RefusedError(f"its result has {dims[i]} frames however long the clip is")
        same = same_size(state.size(i), dims[i])
        if not same:
            _forward(old)
        axes.append(old if same else (Time(dims[i]),))
        plain_one = _kernel(site, i) == 1 and (bias is None or not site.has(bias))
        tails.append(kept if plain_one and kept is not None and kept.is_zero else state.made)
    return State(tuple(axes), tuple(tails))


RULES = {
    "AveragePool": Rule(average_pool),
    "Conv": Rule(conv),
    "ConvInteger": Rule(conv_integer),
    "ConvTranspose": Rule(conv_transpose),
    "FusedConv": Rule(conv),
    "GlobalAveragePool": Rule(global_average_pool),
    "MaxPool": Rule(max_pool),
}
