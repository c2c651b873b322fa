"""Softmax and its kin: what lies in the tail must weigh nothing."""

from __future__ import annotations

from graphfix.lengths.joint_axes import RefusedError, check_apart
from graphfix.lengths.rule_site import Rule, Site
from graphfix.lengths.tail_state import ANY, FINITE, ZERO, State, carries_time
from graphfix.model.values import attr_int


def softmax(site: Site) -> State:
    """Over time, scores in the tail must be far below the others."""
    state = site.state()
    axes = over(site, state)
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


def over(site: Site, state: State) -> tuple[int, ...]:
    """The axes that a Softmax is over: before opset 13, all from its axis on."""
    if state.axes is None:
        raise RefusedError("the rank of its input is not known")
    if site.opset >= 13:
        return (attr_int(site.node, "axis", -1) % state.rank,)
    return tuple(range(attr_int(site.node, "axis", 1) % state.rank, state.rank))


RULES = dict.fromkeys(("LogSoftmax", "Softmax"), Rule(softmax))
