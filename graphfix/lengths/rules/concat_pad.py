"""Concat and Pad: what is put before what is valid, and behind it."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import sympy

from graphfix.facts.pads import mode_of
from graphfix.facts.symbolic.signs import never_negative
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, attr_ints, is_op
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, join, only_time
from graphfix.lengths.repairs.frames import Append, FillUp, PadFrames
from graphfix.lengths.repairs.repair import Leak
from graphfix.lengths.rule_site import Rule, Site, Takes
from graphfix.lengths.rules.shape_ops import of_sizes

_LARGE = 1e18
"""What is larger may be none when it is squared."""


def concat(site: Site) -> facts.State:
    """In front of time anything may be put; behind it, only right behind what is valid."""
    states = [x for x in site.states if x is not None]
    if any(x.physical for x in states):
        return of_sizes(site)
    if any(x.axes is None for x in states):
        return site.without_time()
    rank = states[0].rank
    axis = attr_int(site.node, "axis", 0) % rank
    axes = [join([x.at(i) for x in states]) if i != axis else () for i in range(rank)]
    tails = [_common(states, i) if facts.carries_time(a) else None for i, a in enumerate(axes)]
    first = next((i for i, x in enumerate(states) if facts.carries_time(x.at(axis))), None)
    out = site.out_dims()[axis]
    if first is None:
        if any(facts.holds_rows(x.at(axis)) for x in states):
            raise RefusedError("it joins batches")
        axes[axis] = (facts.Other(out),)
        return facts.timed(axes, tails, min((x.sign for x in states), default=0))
    only_time(states[first].at(axis), "it joins an axis that")
    axes[axis] = (facts.Time(out),)
    sign = min(x.sign for x in states)
    behind = states[first + 1 :]
    tails[axis] = states[first].tail(axis)
    if not behind:
        return facts.timed(axes, tails, sign)
    if all(x.fill == 0 for x in behind):
        tails[axis] = site.need_zero(first, axis, "boundary leak").tail(axis)
        return facts.timed(axes, tails, sign)
    tails[axis] = facts.FINITE
    result = facts.timed(axes, tails, sign)
    if any(facts.carries_time(x.at(axis)) for x in behind):
        return _filled_up(site, result, axis)
    before = sympy.expand(sympy.Add(*(x.size(axis) for x in states[: first + 1])))
    count = sympy.expand(out - before)
    if not count.is_Integer:
        raise RefusedError("how much it appends depends on the padded length")
    site.check_size(before)
    site.repair(Append(site.node, "boundary leak", axis, before, result, int(count)))
    return result


def _filled_up(site: Site, result: facts.State, axis: int) -> facts.State:
    """Behind time, copies of one frame, as many as its size says, stand behind what is valid."""
    front = [x for x in site.states[:-1] if x is not None]
    frame = _repeated(site, axis)
    if frame is None or any(facts.carries_time(x.at(axis)) for x in front[:-1]):
        raise RefusedError(
            "it puts one stretch of time behind another, and only copies of one frame (a Tile or "
            "an Expand of it) can be put right behind what is valid: join them after the model, "
            "or make what follows of one frame"
        )
    before = sympy.expand(sympy.Add(*(facts.size_of(x.at(axis)) for x in front)))
    size = facts.size_of(result.at(axis))
    site.check_size(before)
    site.check_size(size)
    depth, wide = frame
    site.repair(FillUp(site.node, "boundary leak", axis, size, result, before, depth, wide))
    return result


def _repeated(site: Site, axis: int) -> tuple[int, bool] | None:
    """How many nodes above its last input there is the one frame that this repeats along an axis.

    And whether that frame is as large as the others on all other axes.
    """
    value, depth = site.node.inputs[-1], 0
    whole = site.states[-1]
    while value is not None and is_op(node := value.producer(), "Expand", "Tile", "Identity"):
        value, depth = node.inputs[0], depth + 1
        state = None if value is None else site.known(value)
        if state is None or whole is None or state.rank != whole.rank or state.physical:
            return None
        if not state.at(axis):
            other = [(state.at(i), whole.at(i)) for i in range(whole.rank) if i != axis]
            # What a Tile repeats there is no copy of one frame.
            alike = all(a == b or not a for a, b in other)
            return (depth, all(a == b for a, b in other)) if alike else None
    return None


def _common(states: Sequence[facts.State], axis: int) -> facts.Tail:
    found = {
        x.tail(axis)
        if x.tails[axis] is not None
        else x.repeated(facts.LAST if x.is_finite else facts.ANY)
        for x in states
    }
    if len(found) == 1:
        return found.pop()
    return facts.FINITE if all(x.is_finite for x in found) else facts.ANY


def pad(site: Site) -> facts.State:
    """Behind the valid length there must be what the padding would be."""
    state = site.state()
    if len(site.node.inputs) > 1:
        pads = site.contents(1)
    else:
        given = attr_ints(site.node, "pads")
        pads = None if given is None else [sympy.Integer(x) for x in given]
    if state.axes is None or pads is None:
        raise RefusedError("how much it pads is not known")
    mode = mode_of(site.node)
    at = list(range(state.rank))
    if site.has(3):
        chosen = site.ints(3)
        if chosen is None:
            raise RefusedError("the axes that it pads are not constant")
        at = [x % state.rank for x in chosen]
    out = site.out_dims()
    for i, axis in enumerate(at):
        begin, end = pads[i], pads[i + len(at)]
        if begin == 0 and end == 0:
            continue
        if not facts.carries_time(state.at(axis)):
            if facts.holds_rows(state.at(axis)):
                raise RefusedError("it pads the batch")
            if site.grows(begin) or site.grows(end):
                state = _made_long(site, state, axis, begin)
                continue
            if mode == "constant":
                state = _framed(state, axis, _number(site))
            state = state.with_axis(axis, (facts.Other(out[axis]),), None)
            continue
        alone = all(p == 0 for j, p in enumerate(pads) if j % len(at) != i)
        state = _padded(site, state, axis, begin, end, alone=alone)
    return state


def _number(site: Site) -> float | None:
    """What it pads with; None if it is not constant."""
    array = const_of(site.node.inputs[2]) if site.has(2) else np.zeros(1)
    return None if array is None else float(array.reshape(-1)[0]) if array.size else 0.0


def _framed(state: facts.State, axis: int, value: float | None) -> facts.State:
    """What is known of all elements once there are others along an axis, in the padding as well."""
    number = math.nan if value is None else value
    finite = facts.FINITE if state.is_finite and abs(number) < _LARGE else facts.ANY
    kept = (facts.Tail("number", number), facts.LAST)
    tails = [
        x if x is None or i == axis or x in kept else finite for i, x in enumerate(state.tails)
    ]
    sign: facts.Sign = min(state.sign, facts.sign_in(number))
    fill = state.fill if state.fill == number else None
    return dataclasses.replace(state, tails=tuple(tails), sign=sign, fill=fill, inside=None)


def _made_long(site: Site, state: facts.State, axis: int, begin: sympy.Expr) -> facts.State:
    """What has no time is made as long as the clip: by a number, behind what it holds."""
    if site.grows(begin):
        raise RefusedError("how much it puts in front depends on the padded length")
    number = _number(site)
    if mode_of(site.node) != "constant" or number is None:
        raise RefusedError("what it puts behind what it pads is not one number")
    new, tail = (facts.Time(site.out_dims()[axis]),), facts.Tail("number", number)
    return dataclasses.replace(_framed(state, axis, number).with_axis(axis, new, tail), fixed=False)


def _padded(
    site: Site, state: facts.State, axis: int, begin: sympy.Expr, end: sympy.Expr, *, alone: bool
) -> facts.State:
    time, out = only_time(state.at(axis), "it pads an axis that"), site.out_dims()[axis]
    mode = mode_of(site.node)
    if not begin.is_Integer:
        raise RefusedError("how much it puts in front depends on the padded length")
    if mode == "constant":
        value = _number(site)
        if value is None:
            raise RefusedError("what it pads with is not constant")
        if end == 0 or (end.is_Integer and end < 0):
            tail = state.tail(axis) if end == 0 else state.tail(axis).recomputed
        elif value == 0:
            tail = site.need_zero(0, axis, "boundary leak").tail(axis)
        elif state.tail(axis) == facts.Tail("number", value):
            tail = state.tail(axis)
        else:
            raise RefusedError(
                f"it pads with {value:g}, and only zeros can be put behind what is valid"
            )
        return _framed(state, axis, value).with_axis(axis, (facts.Time(out),), tail)
    if end == 0 and mode in ("edge", "reflect"):
        return state.with_axis(axis, (facts.Time(out),), state.tail(axis))
    longer = never_negative(end) if not end.is_Integer else True
    if mode not in ("edge", "reflect") or not longer or not alone:
        raise RefusedError(f"there is no repair for its mode {mode} here")
    if not (mode == "edge" and state.tail(axis).kind == "last"):
        site.check_size(time.size)
        site.check_size(out)
        reflect = mode == "reflect"
        leak: Leak = "frame copy"
        site.repair(PadFrames(site.node, leak, axis, time.size, state, out, int(begin), reflect))
    return state.with_axis(axis, (facts.Time(out),), facts.LAST if mode == "edge" else facts.FINITE)


RULES = {"Concat": Rule(concat, Takes.SIZES | Takes.SHRINKING), "Pad": Rule(pad, Takes.SIZES)}
