"""Operators that move whole axes, or repeat them."""

import dataclasses

from graphfix.graph.nodes import attr_int, attr_ints
from graphfix.lengths.joint_axes import RefusedError, only_time
from graphfix.lengths.rule_site import Rule, Site, Takes
from graphfix.lengths.rules.result_tail import content
from graphfix.lengths.tail_state import LAST, Axis, Other, State, Tail, carries_time, fixed_axis


def transpose(site: Site) -> State:
    """The axes change places."""
    state = site.state()
    return state.placed(attr_ints(site.node, "perm") or range(state.rank)[::-1])


def unsqueeze(site: Site) -> State:
    """New axes of size 1."""
    state, axes = site.state(), site.axes()
    if state.axes is None:
        return site.without_time()
    if axes is None:
        raise RefusedError("its axes are not constant")
    rank = state.rank + len(axes)
    new = {x % rank for x in axes}
    old = iter(range(state.rank))
    return state.placed([None if i in new else next(old) for i in range(rank)])


def squeeze(site: Site) -> State:
    """Axes of size 1 go."""
    state, axes = site.state(), site.axes()
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
    return state.placed([i for i in range(state.rank) if i not in gone])


def expand(site: Site) -> State:
    """An axis of size 1 becomes as long as a size says: all of it is the same."""
    state, made = site.state(), site.axes_of()
    if state.physical:
        return dataclasses.replace(state, axes=made, tails=(None,) * len(made))
    if state.axes is None:
        return site.without_time()
    old = ((),) * (len(made) - state.rank) + state.axes
    axes = tuple(a or site.same_along(x) for a, x in zip(old, site.out_dims(), strict=True))
    places = zip(range(-len(made), 0), axes, strict=True)
    tails = (content(state, i) if carries_time(x) else None for i, x in places)
    steps = state.steps if sum(map(carries_time, axes)) == len(state.timed) else None
    return dataclasses.replace(state, axes=axes, tails=tuple(tails), steps=steps)


def tile(site: Site) -> State:
    """As Expand, where it repeats only axes of size 1 or those without time."""
    state, repeats = site.state(), site.contents(1)
    if state.axes is None or repeats is None:
        raise RefusedError("how often it repeats is not known")
    made = site.axes_of()
    axes, tails = list[Axis](), list[Tail | None]()
    for i, (axis, count) in enumerate(zip(state.axes, repeats, strict=True)):
        if count == 1:
            axes.append(axis)
            tails.append(state.tails[i])
        elif carries_time(axis):
            raise RefusedError("it repeats the axis that carries time")
        elif not axis:
            axes.append(made[i])
            tails.append(state.repeated(LAST) if carries_time(made[i]) else None)
        else:
            axes.append((Other(count), *axis))
            tails.append(None)
    return dataclasses.replace(state, axes=tuple(axes), tails=tuple(tails), steps=None, length=None)


def split(site: Site) -> list[State | None]:
    """Parts of an axis without time; of time, only the first part begins where it did."""
    state = site.state()
    if state.physical:
        raise RefusedError("it splits a vector of sizes")
    axis = attr_int(site.node, "axis", 0) % state.rank
    if carries_time(state.at(axis)):
        raise RefusedError("it splits the axis that carries time")
    sizes = [site.out_dims(i)[axis] for i in range(len(site.node.outputs))]
    return [state.with_axis(axis, fixed_axis(x), None) for x in sizes]


def trilu(site: Site) -> State:
    """A triangle of the last two axes: zeros outside."""
    state = site.state()
    if state.axes is None:
        return site.without_time()
    for axis in filter(carries_time, state.axes[-2:]):
        only_time(axis, "an axis of it")
    if site.has(1) and not site.state(1).fixed:
        raise RefusedError("which diagonal it begins at is not fixed")
    kept = state.of_others(state.recomputed(zeros=True), min(state.sign, 1))
    return dataclasses.replace(kept, length=state.length)


RULES = {
    "Expand": Rule(expand, Takes.SIZES | Takes.SHRINKING | Takes.PLACES),
    "Split": Rule(split, Takes.SIZES_BEHIND),
    "Squeeze": Rule(squeeze, Takes.SIZES),
    "Tile": Rule(tile, Takes.SIZES | Takes.SHRINKING),
    "Transpose": Rule(transpose, Takes.SIZES),
    "Trilu": Rule(trilu),
    "Unsqueeze": Rule(unsqueeze, Takes.SIZES),
}
