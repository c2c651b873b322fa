"""Slice: what is cut from an axis, and what is read at its end."""

import sympy

from graphfix.lengths.joint_axes import RefusedError, only_time
from graphfix.lengths.rule_site import Rule, Site, Takes
from graphfix.lengths.rules.shape_ops import of_sizes
from graphfix.lengths.tail_state import FINITE, State, Time, carries_time, fixed_axis, holds_rows

FAR = 2**31 - 1


def slice_(site: Site) -> State:
    """A cut at the beginning moves what is valid along; one at the end reads at the end."""
    state = site.state()
    if state.physical:
        return of_sizes(site)
    starts, ends = site.contents(1), site.contents(2)
    if state.axes is None:
        return site.without_time()
    axes = site.contents(3) if site.has(3) else None
    cut = range(len(starts or ends or ())) if axes is None else map(int, axes)
    at = [axis % state.rank for axis in cut]
    steps = site.contents(4) if site.has(4) else [sympy.Integer(1)] * len(at)
    out = site.out_dims()
    for i, axis in enumerate(at):
        start = None if starts is None else starts[i]
        end = None if ends is None else ends[i]
        step = None if steps is None or not steps[i].is_Integer else int(steps[i])
        state = _cut(site, state, axis, start, end, step, out[axis])
    return state


def _cut(
    site: Site,
    state: State,
    axis: int,
    start: sympy.Expr | None,
    end: sympy.Expr | None,
    step: int | None,
    out: sympy.Expr,
) -> State:
    factors = state.at(axis)
    size = state.size(axis)
    if step == -1 and carries_time(factors) and _is_whole(start, end, size):
        return _turned(site, state, axis)
    if out == size and step == 1:
        return state
    if not carries_time(factors):
        if site.grows(out):
            # A table cut to the length of the clip, from a place that padding does not move.
            if start is None or site.grows(start) or step is None or step < 1:
                raise RefusedError("where it begins depends on the padded length")
            return state.with_axis(axis, (Time(out),), state.made)
        if holds_rows(factors):
            raise RefusedError("it cuts the batch")
        return state.with_axis(axis, fixed_axis(out), None)
    time = only_time(factors, "it cuts an axis that")
    if start is None or end is None or step is None or step < 1:
        raise RefusedError("where it cuts the axis that carries time is not known")
    tail = state.tail(axis)
    whole = (end.is_Integer and int(end) >= FAR) or (end == time.size)
    fromend = _from_end(start, time.size)
    if fromend is not None and whole:
        # A clip that is shorter than that does not run, or gives another shape, natively too.
        out = sympy.Integer(-(fromend // step))
    if site.grows(out) and fromend is None and not site.grows(start):
        if not start.is_Integer and start != 0:
            raise RefusedError("where it begins is not constant")
        kept = tail if whole else tail.recomputed
        if not whole and tail.kind == "last" and state.fill is None:
            kept = FINITE
        return state.with_axis(axis, (Time(out),), kept)
    if not site.is_known(out):
        raise RefusedError("how much it leaves of the axis that carries time is not known")
    if not out.is_Integer:
        raise RefusedError("it begins at a place that depends on the padded length")
    if fromend is None:
        return state.with_axis(axis, fixed_axis(out), None)
    offsets = tuple(range(fromend, fromend + int(out) * step, step))
    site.read_last(state, axis, offsets, drop=False)
    return state.with_axis(axis, fixed_axis(sympy.Integer(len(offsets))), None)


def _from_end(start: sympy.Expr, size: sympy.Expr) -> int | None:
    """The place as counted from the end, if it is: -1 is the last."""
    if start.is_Integer and start < 0:
        return int(start)
    gap = sympy.expand(start - size)
    return int(gap) if gap.is_Integer and gap < 0 and not start.is_Integer else None


def _is_whole(start: sympy.Expr | None, end: sympy.Expr | None, size: sympy.Expr) -> bool:
    """Whether a Slice of step -1 begins at the last and ends with the first."""
    if start is None or end is None:
        return False
    last = start == -1 or start == size - 1 or (start.is_Integer and int(start) >= FAR)
    return bool(last and end.is_Integer and int(end) <= -FAR)


def _turned(site: Site, state: State, axis: int) -> State:
    """Backwards, with the padding in front."""
    factors = state.at(axis)
    if len(factors) != 1 or not isinstance(factors[0], Time):
        raise RefusedError("it turns an axis that holds time beside something else")
    time = factors[0]
    return state.with_axis(axis, (Time(time.size, not time.turned),), state.tail(axis))


RULES = {"Slice": Rule(slice_, Takes.SIZES)}
