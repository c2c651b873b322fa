"""Operators that move whole axes, cut them, or join them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import sympy

from graphfix.lengths.domain import (
    ANY,
    FINITE,
    LAST,
    Other,
    Rows,
    State,
    Tail,
    Time,
    carries_time,
    size_of,
    time_of,
    timed,
)
from graphfix.lengths.repairs import Append, LastFrames, PadFrames
from graphfix.lengths.rules.sizes import of_sizes
from graphfix.lengths.site import RefusedError, Site, join
from graphfix.model.values import attr_int, attr_ints, axes_of, const_of, ints_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.lengths.domain import Axis

_FAR = 2**31 - 1


def transpose(site: Site) -> State:
    """The axes change places."""
    state = site.state()
    perm = attr_ints(site.node, "perm") or tuple(reversed(range(state.rank)))
    return dataclasses.replace(
        state,
        axes=tuple(state.at(i) for i in perm),
        tails=tuple(state.tails[i] for i in perm),
    )


def unsqueeze(site: Site) -> State:
    """New axes of size 1."""
    state, axes = site.state(), axes_of(site.node)
    if state.axes is None:
        return site.without_time()
    if axes is None:
        raise RefusedError("its axes are not constant")
    rank = state.rank + len(axes)
    new = {x % rank for x in axes}
    old = iter(range(state.rank))
    places = [None if i in new else next(old) for i in range(rank)]
    return _placed(state, places)


def squeeze(site: Site) -> State:
    """Axes of size 1 go."""
    state, axes = site.state(), axes_of(site.node)
    if state.axes is None:
        return site.without_time()
    if axes is None:
        axes = tuple(i for i, x in enumerate(state.axes) if not x)
        if state.rank - len(axes) != len(site.out_dims()):
            raise RefusedError("it drops whatever axes are of size 1")
    gone = {x % state.rank for x in axes}
    for axis in gone:
        if carries_time(state.at(axis)):
            raise RefusedError("it drops the axis that carries time")
    return _placed(state, [i for i in range(state.rank) if i not in gone])


def _placed(state: State, places: Sequence[int | None]) -> State:
    axes = tuple(() if i is None else state.at(i) for i in places)
    tails = tuple(None if i is None else state.tails[i] for i in places)
    return dataclasses.replace(state, axes=axes, tails=tails)


def expand(site: Site) -> State:
    """An axis of size 1 becomes as long as a size says: all of it is the same."""
    state = site.state()
    if state.physical:
        return dataclasses.replace(state, axes=site.axes_of(), tails=(None,) * len(site.axes_of()))
    made = site.axes_of()
    if state.axes is None:
        return site.without_time()
    old = ((),) * (len(made) - state.rank) + state.axes
    axes = tuple(a if a else b for a, b in zip(old, made, strict=True))
    tails: list[Tail | None] = []
    for i, axis in enumerate(axes):
        at = i - len(made) + state.rank
        has = at >= 0 and state.tails[at] is not None
        new = LAST if state.is_finite else ANY
        if state.fill is not None:
            new = Tail("number", state.fill)
        tails.append(state.tails[at] if has else new if carries_time(axis) else None)
    steps = state.steps if sum(map(carries_time, axes)) == len(state.timed) else None
    return dataclasses.replace(state, axes=axes, tails=tuple(tails), steps=steps)


def tile(site: Site) -> State:
    """As Expand, where it repeats only axes of size 1 or those without time."""
    state, repeats = site.state(), site.contents(1)
    if state.axes is None or repeats is None:
        raise RefusedError("how often it repeats is not known")
    made = site.axes_of()
    axes: list[Axis] = []
    tails: list[Tail | None] = []
    for i, (axis, count) in enumerate(zip(state.axes, repeats, strict=True)):
        if count == 1:
            axes.append(axis)
            tails.append(state.tails[i])
        elif carries_time(axis):
            raise RefusedError("it repeats the axis that carries time")
        elif not axis:
            axes.append(made[i])
            new = Tail("number", state.fill) if state.fill is not None else LAST
            tails.append(new if carries_time(made[i]) else None)
        else:
            axes.append((Other(count), *axis))
            tails.append(None)
    return dataclasses.replace(state, axes=tuple(axes), tails=tuple(tails), steps=None, length=None)


def slice_(site: Site) -> State:
    """A cut at the beginning moves what is valid along; one at the end reads at the end."""
    state = site.state()
    if state.physical:
        return of_sizes(site)
    starts, ends = site.contents(1), site.contents(2)
    if len(site.node.inputs) < 3:  # before opset 10 they were attributes
        raise RefusedError("it is written as before opset 10")
    if state.axes is None:
        return site.without_time()
    axes = site.contents(3) if site.has(3) else None
    at = (
        [int(x) % state.rank for x in axes]
        if axes is not None
        else list(range(len(starts or ends or ())))
    )
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
    size = size_of(factors)
    if step == -1 and carries_time(factors):
        return _turned(state, axis)
    if out == size and step == 1:
        return state
    if not carries_time(factors):
        if site.grows(out):
            # A table cut to the length of the clip, from a place that padding does not move.
            if start is None or site.grows(start) or step is None or step < 1:
                raise RefusedError("where it begins depends on the padded length")
            return _with_axis(state, axis, (Time(out),), FINITE if state.is_finite else ANY)
        if any(isinstance(x, Rows) for x in factors):
            raise RefusedError("it cuts the batch")
        return _with_axis(state, axis, () if out == 1 else (Other(out),), None)
    time = time_of(factors)
    if time is None:
        raise RefusedError(
            "it cuts an axis that holds time beside something else, or runs backwards"
        )
    if start is None or end is None or step is None or step < 1:
        raise RefusedError("where it cuts the axis that carries time is not known")
    tail = state.tail(axis)
    whole = (end.is_Integer and int(end) >= _FAR) or (end == time.size)
    fromend = _from_end(start, time.size)
    if fromend is not None and whole:
        # A clip that is shorter than that does not run, or gives another shape, natively too.
        out = sympy.Integer(-(fromend // step))
    if site.grows(out) and fromend is None and not site.grows(start):
        if not start.is_Integer and start != 0:
            raise RefusedError("where it begins is not constant")
        kept = tail if whole else FINITE if tail.is_finite else ANY
        if not whole and tail.kind == "last" and state.fill is None:
            kept = FINITE
        return _with_axis(state, axis, (Time(out),), kept)
    if not out.is_Integer:
        raise RefusedError("it begins at a place that depends on the padded length")
    if fromend is None:
        return _with_axis(state, axis, (Other(out),) if out != 1 else (), None)
    offsets = tuple(range(fromend, fromend + int(out) * step, step))
    return _read_last(site, state, axis, time, offsets, drop=False)


def _read_last(
    site: Site, state: State, axis: int, time: Time, offsets: tuple[int, ...], *, drop: bool
) -> State:
    same = state.fill is not None or (state.tail(axis).kind == "last" and offsets == (-1,))
    if not same:
        site.check_size(time.size)
        repair = LastFrames(site.node, "last-frame read", axis, time.size, offsets, drop, state)
        site.repair(repair)
    count = len(offsets)
    new: Axis = () if count == 1 else (Other(sympy.Integer(count)),)
    result = _with_axis(state, axis, new, None)
    return _placed(result, [i for i in range(result.rank) if i != axis]) if drop else result


def _from_end(start: sympy.Expr, size: sympy.Expr) -> int | None:
    """The place as counted from the end, if it is: -1 is the last."""
    if start.is_Integer and start < 0:
        return int(start)
    gap = sympy.expand(start - size)
    return int(gap) if gap.is_Integer and gap < 0 and not start.is_Integer else None


def _turned(state: State, axis: int) -> State:
    factors = state.at(axis)
    if len(factors) != 1 or not isinstance(factors[0], Time):
        raise RefusedError("it turns an axis that holds time beside something else")
    turned = Time(factors[0].size, not factors[0].turned)
    axes = (*(state.axes or ())[:axis], (turned,), *(state.axes or ())[axis + 1 :])
    return dataclasses.replace(state, axes=axes)


def _with_axis(state: State, axis: int, new: Axis, tail: Tail | None) -> State:
    axes = state.axes or ()
    tails = (*state.tails[:axis], tail, *state.tails[axis + 1 :])
    return dataclasses.replace(
        state, axes=(*axes[:axis], new, *axes[axis + 1 :]), tails=tails, steps=None, length=None
    )


def concat(site: Site) -> State:
    """In front of time anything may be put; behind it, only right behind what is valid."""
    states = [x for x in site.states if x is not None]
    if any(x.physical for x in states):
        return of_sizes(site)
    if any(x.axes is None for x in states):
        return site.without_time()
    rank = states[0].rank
    axis = attr_int(site.node, "axis", 0) % rank
    axes = [join([x.at(i) for x in states]) if i != axis else () for i in range(rank)]
    tails = [_common(states, i) if carries_time(a) else None for i, a in enumerate(axes)]
    first = next((i for i, x in enumerate(states) if carries_time(x.at(axis))), None)
    out = site.out_dims()[axis]
    if first is None:
        rows = any(isinstance(f, Rows) for x in states for f in x.at(axis))
        if rows:
            raise RefusedError("it joins batches")
        axes[axis] = (Other(out),)
        return timed(axes, tails, min((x.sign for x in states), default=0))
    time = time_of(states[first].at(axis))
    if time is None:
        raise RefusedError(
            "it joins an axis that holds time beside something else, or runs backwards"
        )
    axes[axis] = (Time(out),)
    sign = min(x.sign for x in states)
    behind = states[first + 1 :]
    tails[axis] = states[first].tail(axis)
    if not behind:
        return timed(axes, tails, sign)
    if any(carries_time(x.at(axis)) for x in behind) and not all(x.fill == 0 for x in behind):
        raise RefusedError("it puts one stretch of time behind another")
    if all(x.fill == 0 for x in behind):
        tails[axis] = site.need_zero(first, axis, "boundary leak").tail(axis)
        return timed(axes, tails, sign)
    count = (
        out
        - size_of(states[first].at(axis))
        - sympy.Add(*(size_of(x.at(axis)) for x in states[:first]))
    )
    before = sympy.expand(out - count)
    if not sympy.expand(count).is_Integer:
        raise RefusedError("how much it appends depends on the padded length")
    site.check_size(before)
    result = timed(axes, [*tails[:axis], FINITE, *tails[axis + 1 :]], sign)
    site.repair(Append(site.node, "boundary leak", axis, before, int(sympy.expand(count)), result))
    return result


def _common(states: Sequence[State], axis: int) -> Tail:
    found = {
        x.tail(axis)
        if x.tails[axis] is not None
        else Tail("number", x.fill)
        if x.fill is not None
        else LAST
        if x.is_finite
        else ANY
        for x in states
    }
    if len(found) == 1:
        return found.pop()
    return FINITE if all(x.is_finite for x in found) else ANY


def pad(site: Site) -> State:
    """Behind the valid length there must be what the padding would be."""
    state = site.state()
    if len(site.node.inputs) > 1:
        pads = site.contents(1)
    else:
        given = attr_ints(site.node, "pads")
        pads = None if given is None else [sympy.Integer(x) for x in given]
    if state.axes is None or pads is None:
        raise RefusedError("how much it pads is not known")
    attribute = site.node.attributes.get("mode")
    mode = "constant" if attribute is None else attribute.as_string()
    at = list(range(state.rank))
    if site.has(3):
        chosen = ints_of(site.node.inputs[3])
        if chosen is None:
            raise RefusedError("the axes that it pads are not constant")
        at = [x % state.rank for x in chosen]
    out = site.out_dims()
    for i, axis in enumerate(at):
        begin, end = pads[i], pads[i + len(at)]
        if begin == 0 and end == 0:
            continue
        if not carries_time(state.at(axis)):
            if any(isinstance(x, Rows) for x in state.at(axis)):
                raise RefusedError("it pads the batch")
            state = _with_axis(state, axis, (Other(out[axis]),), None)
            if mode == "constant":
                state = dataclasses.replace(
                    state, sign=min(state.sign, 1), fill=state.fill if state.fill == 0 else None
                )
            continue
        state = _padded(
            site,
            state,
            axis,
            begin,
            end,
            out[axis],
            mode,
            alone=all(p == 0 for j, p in enumerate(pads) if j % len(at) != i),
        )
    return state


def _padded(
    site: Site,
    state: State,
    axis: int,
    begin: sympy.Expr,
    end: sympy.Expr,
    out: sympy.Expr,
    mode: str,
    *,
    alone: bool,
) -> State:
    time = time_of(state.at(axis))
    if time is None:
        raise RefusedError(
            "it pads an axis that holds time beside something else, or runs backwards"
        )
    if not begin.is_Integer:
        raise RefusedError("how much it puts in front depends on the padded length")
    after = dataclasses.replace(state, sign=min(state.sign, 1))
    if mode == "constant":
        value = 0.0
        if site.has(2):
            array = const_of(site.node.inputs[2])
            if array is None:
                raise RefusedError("what it pads with is not constant")
            value = float(array.reshape(-1)[0]) if array.size else 0.0
        if end == 0 or (end.is_Integer and end < 0):
            tail = state.tail(axis) if end == 0 else FINITE if state.tail(axis).is_finite else ANY
        elif value == 0:
            tail = site.need_zero(0, axis, "boundary leak").tail(axis)
        elif state.tail(axis) == Tail("number", value):
            tail = state.tail(axis)
        else:
            raise RefusedError(
                f"it pads with {value:g}, and only zeros can be put behind what is valid"
            )
        if value < 0:
            after = dataclasses.replace(after, sign=0)
        keeps = state.fill is not None and state.fill == value
        after = dataclasses.replace(after, fill=state.fill if keeps else None)
        return _with_axis(after, axis, (Time(out),), tail)
    if end == 0:
        return _with_axis(state, axis, (Time(out),), state.tail(axis))
    if mode not in ("edge", "reflect") or not end.is_Integer or not alone:
        raise RefusedError(f"there is no repair for its mode {mode} here")
    if not (mode == "edge" and state.tail(axis).kind == "last"):
        site.check_size(time.size)
        site.check_size(out)
        reflect = mode == "reflect"
        repair = PadFrames(
            site.node, "frame copy", axis, time.size, out, int(begin), reflect, state
        )
        site.repair(repair)
    return _with_axis(state, axis, (Time(out),), LAST if mode == "edge" else FINITE)


def split(site: Site) -> list[State | None]:
    """Parts of an axis without time; of time, only the first part begins where it did."""
    state = site.state()
    if state.physical:
        raise RefusedError("it splits a vector of sizes")
    axis = attr_int(site.node, "axis", 0) % state.rank
    if carries_time(state.at(axis)):
        raise RefusedError("it splits the axis that carries time")
    parts: list[State | None] = []
    for i in range(len(site.node.outputs)):
        dims = site.out_dims(i)
        parts.append(_with_axis(state, axis, () if dims[axis] == 1 else (Other(dims[axis]),), None))
    return parts


def trilu(site: Site) -> State:
    """A triangle of the last two axes: zeros outside."""
    state = site.state()
    tails = tuple(
        None if x is None else x if x.is_zero else FINITE if x.is_finite else ANY
        for x in state.tails
    )
    return dataclasses.replace(state, tails=tails, sign=min(state.sign, 1), fill=None, steps=None)


RULES = {
    "Concat": concat,
    "Expand": expand,
    "Pad": pad,
    "Slice": slice_,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
