"""Reductions: the tail must be neutral, or the valid frames counted."""

import dataclasses

from graphfix.graph.nodes import attr_int
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, check_apart
from graphfix.lengths.repairs.statistics import MaskedMean
from graphfix.lengths.rule_site import Rule, Site, Takes
from graphfix.lengths.rules.shape_ops import of_sizes

_ZERO = ("ReduceLogSum", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare")


def reduce_(site: Site) -> facts.State:
    """Sums want zeros behind the valid length, maxima something low, means a count."""
    state, op_type = site.state(), site.node.op_type
    if state.physical:
        return of_sizes(site)
    if state.axes is None:
        return site.without_time()
    axes = _axes(site, state)
    times = [i for i in axes if facts.carries_time(state.at(i))]
    for axis in axes:
        if facts.holds_rows(state.at(axis)) and state.timed:
            raise RefusedError("it sums over the batch, in which each row has its own length")
    # A sum of a mask's ones is how many are valid.
    length = state.length if op_type == "ReduceSum" and len(axes) == len(times) == 1 else None
    for axis in times if op_type != "ReduceMean" else ():
        if op_type in _ZERO:
            site.need_zero(0, axis, "sum pollution")
        elif op_type in ("ReduceMax", "ReduceLogSumExp"):
            site.need_low(0, axis, "maximum pollution")
        else:
            raise RefusedError("there is no repair for it over time")
    keep = bool(attr_int(site.node, "keepdims", 1))
    state = masked_mean(site, axes, keep=keep) if op_type == "ReduceMean" else site.state()
    result = dropped(state, axes, keep=keep, times=bool(times))
    # A mean over the largest number is that number; other reductions make a new one.
    sign = {"ReduceMean": state.sign, "ReduceMax": state.sign, "ReduceMin": state.sign}
    signs = {**sign, "ReduceSum": state.sign, "ReduceL2": 1, "ReduceL1": 1, "ReduceSumSquare": 1}
    return dataclasses.replace(result, sign=signs.get(op_type, 0), length=length)


def masked_mean(site: Site, axes: tuple[int, ...], *, keep: bool) -> facts.State:
    """The state of the input of a mean over ``axes`` that is to count valid frames only."""
    state = site.state()
    times = [i for i in axes if facts.carries_time(state.at(i))]
    for axis in times:
        state = site.need_zero(0, axis, "mean pollution")
        site.check_mask(state, axis)
    if times:
        site.repair(MaskedMean(site.node, "mean pollution", axes, keep, state))
    return state


def _axes(site: Site, state: facts.State) -> tuple[int, ...]:
    axes = site.axes()
    if axes is None and len(site.node.inputs) > 1 and site.node.inputs[1] is not None:
        raise RefusedError("the axes that it is over are not constant")
    if not axes:
        return () if attr_int(site.node, "noop_with_empty_axes", 0) else tuple(range(state.rank))
    return tuple(sorted(x % state.rank for x in axes))


def dropped(state: facts.State, axes: tuple[int, ...], *, keep: bool, times: bool) -> facts.State:
    """What a reduction over ``axes`` leaves."""
    places = [i for i in range(state.rank) if keep or i not in axes]
    left: list[facts.Axis] = [() if i in axes else state.at(i) for i in places]
    tails = (None if i in axes else state.tails[i] for i in places)
    kept = (x if x is None or (not times and _is_same(x)) else state.made for x in tails)
    return facts.State(tuple(left), tuple(kept))


def _is_same(tail: facts.Tail) -> bool:
    """Whether sums, and other reductions, over another axis leave a tail what it was."""
    return tail.is_zero or tail.kind == "last"


def arg(site: Site) -> facts.State:
    """The place of the largest; the tail must not be it."""
    state = site.state()
    if state.axes is None:
        return site.without_time()
    axis = attr_int(site.node, "axis", 0) % state.rank
    check_apart(state, (axis,))
    time = facts.carries_time(state.at(axis))
    if time:
        last = attr_int(site.node, "select_last_index", 0)
        if last or site.node.op_type == "ArgMin" or facts.time_of(state.at(axis)) is None:
            raise RefusedError("there is no repair for it over time")
        state = site.need_low(0, axis, "maximum pollution")
    result = dropped(state, (axis,), keep=bool(attr_int(site.node, "keepdims", 1)), times=time)
    tails = tuple(None if x is None else facts.FINITE for x in result.tails)
    return dataclasses.replace(result, tails=tails, sign=1)


def cumsum(site: Site) -> facts.State:
    """Forwards it has not seen the tail yet; backwards it begins there."""
    state, axis = site.state(), site.ints(1)
    if axis is None or state.axes is None:
        raise RefusedError("its axis is not constant")
    at = axis[0] % state.rank
    check_apart(state, (at,))
    step = None if state.fill is None or not state.fill.is_integer() else int(state.fill)
    if facts.carries_time(state.at(at)):
        factors = state.at(at)
        if len(factors) != 1 or not isinstance(factors[0], facts.Time):
            raise RefusedError("its axis holds time beside something else")
        backwards = bool(attr_int(site.node, "reverse", 0))
        if backwards != factors[0].turned:
            state = site.need_zero(0, at, "sum pollution")
        elif not state.tail(at).is_zero:
            return _sums(state, at, state.made, _counting(site, step, state))
        # Started in a tail of zeros it is zero there; run into one, it stays what it was.
        tail = (
            facts.ZERO
            if backwards != factors[0].turned
            else facts.FINITE
            if attr_int(site.node, "exclusive", 0)
            else facts.LAST
        )
        return _sums(state, at, tail, None)
    return _sums(state, None, facts.FINITE, None)


def _counting(site: Site, step: int | None, state: facts.State) -> tuple[int, int] | None:
    """What the sums of one number count: where they start, and by what they go on."""
    if not step or attr_int(site.node, "reverse", 0) or len(state.timed) != 1:
        return None
    return (0 if attr_int(site.node, "exclusive", 0) else step), step


def _sums(
    state: facts.State, axis: int | None, tail: facts.Tail, steps: tuple[int, int] | None
) -> facts.State:
    kept = (x and (x if _is_same(x) else x.recomputed) for x in state.tails)
    tails = tuple(x and tail if i == axis else x for i, x in enumerate(kept))
    return dataclasses.replace(
        state, tails=tails, fill=None, inside=None, steps=steps, sign=min(state.sign, 1)
    )


_REDUCTIONS = ("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin")
RULES = {
    **dict.fromkeys((*_REDUCTIONS, *_ZERO, "ReduceProd"), Rule(reduce_, Takes.SIZES)),
    "ArgMax": Rule(arg),
    "ArgMin": Rule(arg),
    "CumSum": Rule(cumsum),
}
