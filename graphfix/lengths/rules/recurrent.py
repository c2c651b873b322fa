"""LSTM, GRU, RNN: told how long each row is, they stop there, and run back from there."""

import sympy

from graphfix.graph.nodes import attr_int, is_op, maker_of
from graphfix.lengths.joint_axes import RefusedError, check_apart
from graphfix.lengths.repairs.statistics import SequenceLens
from graphfix.lengths.rule_site import Rule, Site, Takes
from graphfix.lengths.tail_state import ZERO, Axis, Rows, State, Time, fixed_axis, plain, same_size


def recur(site: Site) -> list[State | None]:
    """``sequence_lens`` holds the valid length of each row."""
    state = site.state()
    layout = attr_int(site.node, "layout", 0)
    time_axis, batch_axis = (1, 0) if layout else (0, 1)
    time = state.at(time_axis)
    check_apart(state, (time_axis,))
    if [i for i in state.timed if i != time_axis]:
        raise RefusedError("time is its batch or its features")
    if time and not (len(time) == 1 and isinstance(time[0], Time)):
        raise RefusedError("its time axis holds something else beside time")
    rows = state.at(batch_axis)
    lone = not rows or sum(isinstance(x, Rows) for x in rows) == 1
    lone &= all(isinstance(x, Rows) or x.size.is_Integer for x in rows)
    if site.source.batch is not None and not lone:
        raise RefusedError("its batch axis holds something else beside the batch")
    for i, other in enumerate(site.states[1:], 1):
        if other is not None and (other.timed or other.physical) and i != 4:
            raise RefusedError("a parameter of it carries time")
    dims = site.dims(site.node.outputs[0]) if site.node.outputs[0].name else None
    if time and isinstance(time[0], Time):
        if time[0].turned:
            raise RefusedError("it runs over a tensor that was turned around")
        given = site.states[4] if site.has(4) else None
        if given is None or _is_whole(site, time[0].size):
            site.check_size(time[0].size)
            site.repair(SequenceLens(site.node, "recurrence", time[0].size, state))
        elif given.length is None or given.length != time[0].size:
            raise RefusedError("the lengths that it is given are not those of what is valid")
    directions: Axis = _axis(dims, 2 if layout else 1)
    hidden: Axis = _axis(dims, 3)
    axes = (rows, time, directions, hidden) if layout else (time, directions, rows, hidden)
    tails = tuple(ZERO if i == time_axis and time else None for i in range(4))
    last = (rows, directions, hidden) if layout else (directions, rows, hidden)
    return [State(axes, tails), *(plain(last) for _ in site.node.outputs[1:])]


def _is_whole(site: Site, size: sympy.Expr) -> bool:
    """Whether the lengths that it is given are the padded size, for all rows."""
    value = site.node.inputs[4]
    while (node := maker_of(value)) is not None:
        held = site.held(value)
        if held is not None or not is_op(node, "Cast", "Expand", "Identity", "Tile"):
            return held is not None and len(held) == 1 and same_size(held[0], size)
        value = node.inputs[0]
    return False


def _axis(dims: list[sympy.Expr] | None, index: int) -> Axis:
    return () if dims is None else fixed_axis(dims[index])


RULES = dict.fromkeys(("GRU", "LSTM", "RNN"), Rule(recur, Takes.SIZES_BEHIND))
