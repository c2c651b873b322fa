"""Rules for Concat and Pad: what is put before what is valid, and behind it."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import sympy

from graphfix.facts.pads import pad_mode
from graphfix.facts.symbolic.signs import never_negative
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, attr_ints, is_op
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, join_axes, require_sole_time
from graphfix.lengths.repairs.frames import AppendCopies, AppendFrames, PadFrames
from graphfix.lengths.repairs.repair import Leak
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.rules.shape_ops import infer_sizes

_LARGE = 1e18
"""What is larger may be none when it is squared."""


def infer_concat(site: RuleSite) -> facts.TensorState:
    """Infer a Concat: anything may come before time; behind it, only right behind what is valid."""
    states = [x for x in site.states if x is not None]
    if any(x.counts_padding for x in states):
        return infer_sizes(site)
    if any(x.axes is None for x in states):
        return site.output_without_time()
    rank = states[0].rank
    axis = attr_int(site.node, "axis", 0) % rank
    axes = [join_axes([x.factors_of(i) for x in states]) if i != axis else () for i in range(rank)]
    tails = [_common_tail(states, i) if facts.carries_time(a) else None for i, a in enumerate(axes)]
    first = next((i for i, x in enumerate(states) if facts.carries_time(x.factors_of(axis))), None)
    out = site.output_dims()[axis]
    if first is None:
        if any(facts.holds_rows(x.factors_of(axis)) for x in states):
            raise RefusedError("it joins batches")
        axes[axis] = (facts.OtherFactor(out),)
        return facts.state_with_tails(axes, tails, min((x.sign for x in states), default=0))
    require_sole_time(states[first].factors_of(axis), "it joins an axis that")
    axes[axis] = (facts.TimeFactor(out),)
    sign = min(x.sign for x in states)
    behind = states[first + 1 :]
    tails[axis] = states[first].tail_along(axis)
    if not behind:
        return facts.state_with_tails(axes, tails, sign)
    if all(x.fill == 0 for x in behind):
        tails[axis] = site.require_zero_tail(first, axis, "boundary leak").tail_along(axis)
        return facts.state_with_tails(axes, tails, sign)
    tails[axis] = facts.FINITE
    result = facts.state_with_tails(axes, tails, sign)
    if any(facts.carries_time(x.factors_of(axis)) for x in behind):
        return _append_copies(site, result, axis)
    before = sympy.expand(sympy.Add(*(x.size_along(axis) for x in states[: first + 1])))
    count = sympy.expand(out - before)
    if not count.is_Integer:
        raise RefusedError("how much it appends depends on the padded length")
    site.check_size(before)
    site.request_repair(AppendFrames(site.node, "boundary leak", axis, before, result, int(count)))
    return result


def _append_copies(site: RuleSite, result: facts.TensorState, axis: int) -> facts.TensorState:
    """Ask for copies of one frame, as many as its size says, right behind what is valid."""
    front = [x for x in site.states[:-1] if x is not None]
    frame = _find_repeated_frame(site, axis)
    if frame is None or any(facts.carries_time(x.factors_of(axis)) for x in front[:-1]):
        raise RefusedError(
            "it puts one stretch of time behind another, and only copies of one frame (a Tile or "
            "an Expand of it) can be put right behind what is valid: join them after the model, "
            "or make what follows of one frame"
        )
    before = sympy.expand(sympy.Add(*(facts.size_of(x.factors_of(axis)) for x in front)))
    size = facts.size_of(result.factors_of(axis))
    site.check_size(before)
    site.check_size(size)
    depth, wide = frame
    site.request_repair(
        AppendCopies(site.node, "boundary leak", axis, size, result, before, depth, wide)
    )
    return result


def _find_repeated_frame(site: RuleSite, axis: int) -> tuple[int, bool] | None:
    """Return how many nodes above its last input one frame is that this repeats along an axis.

    And whether that frame is as large as the others on all other axes.
    """
    value, depth = site.node.inputs[-1], 0
    last_state = site.states[-1]
    while value is not None and is_op(node := value.producer(), "Expand", "Tile", "Identity"):
        value, depth = node.inputs[0], depth + 1
        state = None if value is None else site.state_of(value)
        if (
            state is None
            or last_state is None
            or state.rank != last_state.rank
            or state.counts_padding
        ):
            return None
        if not state.factors_of(axis):
            axis_pairs = [
                (state.factors_of(i), last_state.factors_of(i))
                for i in range(last_state.rank)
                if i != axis
            ]
            # What a Tile repeats there is no copy of one frame.
            alike = all(a == b or not a for a, b in axis_pairs)
            return (depth, all(a == b for a, b in axis_pairs)) if alike else None
    return None


def _common_tail(states: Sequence[facts.TensorState], axis: int) -> facts.Tail:
    tails = {
        x.tail_along(axis)
        if x.tails[axis] is not None
        else x.tail_of_copies(facts.LAST if x.is_finite else facts.ANY)
        for x in states
    }
    if len(tails) == 1:
        return tails.pop()
    return facts.FINITE if all(x.is_finite for x in tails) else facts.ANY


def infer_pad(site: RuleSite) -> facts.TensorState:
    """Require behind the valid length what the padding would be."""
    state = site.input_state()
    if len(site.node.inputs) > 1:
        pads = site.input_contents(1)
    else:
        attribute = attr_ints(site.node, "pads")
        pads = None if attribute is None else [sympy.Integer(x) for x in attribute]
    if state.axes is None or pads is None:
        raise RefusedError("how much it pads is not known")
    mode = pad_mode(site.node)
    at = list(range(state.rank))
    if site.has_input(3):
        chosen = site.input_ints(3)
        if chosen is None:
            raise RefusedError("the axes that it pads are not constant")
        at = [x % state.rank for x in chosen]
    out = site.output_dims()
    for i, axis in enumerate(at):
        begin, end = pads[i], pads[i + len(at)]
        if begin == 0 and end == 0:
            continue
        if not facts.carries_time(state.factors_of(axis)):
            if facts.holds_rows(state.factors_of(axis)):
                raise RefusedError("it pads the batch")
            if site.grows_with_padding(begin) or site.grows_with_padding(end):
                state = _pad_to_length(site, state, axis, begin)
                continue
            if mode == "constant":
                state = _with_border(state, axis, _pad_value(site))
            state = state.with_axis(axis, (facts.OtherFactor(out[axis]),), None)
            continue
        only_axis = all(p == 0 for j, p in enumerate(pads) if j % len(at) != i)
        state = _pad_time(site, state, axis, begin, end, only_axis=only_axis)
    return state


def _pad_value(site: RuleSite) -> float | None:
    """Return what it pads with; None if it is not constant."""
    array = const_of(site.node.inputs[2]) if site.has_input(2) else np.zeros(1)
    return None if array is None else float(array.reshape(-1)[0]) if array.size else 0.0


def _with_border(state: facts.TensorState, axis: int, value: float | None) -> facts.TensorState:
    """Adjust what is known of all elements for a border of others along an axis."""
    number = math.nan if value is None else value
    finite = facts.FINITE if state.is_finite and abs(number) < _LARGE else facts.ANY
    unchanged = (facts.Tail("number", number), facts.LAST)
    tails = [
        x if x is None or i == axis or x in unchanged else finite for i, x in enumerate(state.tails)
    ]
    sign: facts.Sign = min(state.sign, facts.sign_of_number(number))
    fill = state.fill if state.fill == number else None
    return dataclasses.replace(state, tails=tuple(tails), sign=sign, fill=fill, inside=None)


def _pad_to_length(
    site: RuleSite, state: facts.TensorState, axis: int, begin: sympy.Expr
) -> facts.TensorState:
    """Infer an axis that a number makes as long as the clip, behind what it holds."""
    if site.grows_with_padding(begin):
        raise RefusedError("how much it puts in front depends on the padded length")
    number = _pad_value(site)
    if pad_mode(site.node) != "constant" or number is None:
        raise RefusedError("what it puts behind what it pads is not one number")
    new, tail = (facts.TimeFactor(site.output_dims()[axis]),), facts.Tail("number", number)
    return dataclasses.replace(
        _with_border(state, axis, number).with_axis(axis, new, tail), fixed=False
    )


def _pad_time(
    site: RuleSite,
    state: facts.TensorState,
    axis: int,
    begin: sympy.Expr,
    end: sympy.Expr,
    *,
    only_axis: bool,
) -> facts.TensorState:
    time, out = (
        require_sole_time(state.factors_of(axis), "it pads an axis that"),
        site.output_dims()[axis],
    )
    mode = pad_mode(site.node)
    if not begin.is_Integer:
        raise RefusedError("how much it puts in front depends on the padded length")
    if mode == "constant":
        value = _pad_value(site)
        if value is None:
            raise RefusedError("what it pads with is not constant")
        if end == 0 or (end.is_Integer and end < 0):
            tail = state.tail_along(axis) if end == 0 else state.tail_along(axis).after_arithmetic
        elif value == 0:
            tail = site.require_zero_tail(0, axis, "boundary leak").tail_along(axis)
        elif state.tail_along(axis) == facts.Tail("number", value):
            tail = state.tail_along(axis)
        else:
            raise RefusedError(
                f"it pads with {value:g}, and only zeros can be put behind what is valid"
            )
        return _with_border(state, axis, value).with_axis(axis, (facts.TimeFactor(out),), tail)
    if end == 0 and mode in ("edge", "reflect"):
        return state.with_axis(axis, (facts.TimeFactor(out),), state.tail_along(axis))
    longer = never_negative(end) if not end.is_Integer else True
    if mode not in ("edge", "reflect") or not longer or not only_axis:
        raise RefusedError(f"there is no repair for its mode {mode} here")
    if not (mode == "edge" and state.tail_along(axis).kind == "last"):
        site.check_size(time.size)
        site.check_size(out)
        reflect = mode == "reflect"
        leak: Leak = "frame copy"
        site.request_repair(
            PadFrames(site.node, leak, axis, time.size, state, out, int(begin), reflect)
        )
    return state.with_axis(
        axis, (facts.TimeFactor(out),), facts.LAST if mode == "edge" else facts.FINITE
    )


RULES = {
    "Concat": PaddingRule(infer_concat, AcceptedInputs.SIZES | AcceptedInputs.SHRINKING),
    "Pad": PaddingRule(infer_pad, AcceptedInputs.SIZES),
}
