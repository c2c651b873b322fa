"""Rules for LSTM, GRU and RNN: told each row's length, they stop there and run back from there."""

import sympy

from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.lengths.joint_axes import RefusedError, check_rows_unmixed
from graphfix.lengths.repairs.statistics import SequenceLens
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.tail_state import (
    ZERO,
    Axis,
    BatchFactor,
    TensorState,
    TimeFactor,
    fixed_axis,
    same_size,
    state_without_time,
)


def infer_recurrent(site: RuleSite) -> list[TensorState | None]:
    """Require ``sequence_lens`` that holds the valid length of each row."""
    state = site.input_state()
    layout = attr_int(site.node, "layout", 0)
    time_axis, batch_axis = (1, 0) if layout else (0, 1)
    time = state.factors_of(time_axis)
    check_rows_unmixed(state, (time_axis,))
    if [i for i in state.time_axes if i != time_axis]:
        raise RefusedError("time is its batch or its features")
    if time and not (len(time) == 1 and isinstance(time[0], TimeFactor)):
        raise RefusedError("its time axis holds something else beside time")
    rows = state.factors_of(batch_axis)
    lone = not rows or sum(isinstance(x, BatchFactor) for x in rows) == 1
    lone &= all(isinstance(x, BatchFactor) or x.size.is_Integer for x in rows)
    if site.source.batch is not None and not lone:
        raise RefusedError("its batch axis holds something else beside the batch")
    for i, parameter in enumerate(site.states[1:], 1):
        if parameter is not None and (parameter.time_axes or parameter.counts_padding) and i != 4:
            raise RefusedError("a parameter of it carries time")
    dims = site.dims_of(site.node.outputs[0]) if site.node.outputs[0].name else None
    if time and isinstance(time[0], TimeFactor):
        if time[0].turned:
            raise RefusedError("it runs over a tensor that was turned around")
        lengths_state = site.states[4] if site.has_input(4) else None
        if lengths_state is None or _gives_padded_size(site, time[0].size):
            site.check_size(time[0].size)
            site.request_repair(SequenceLens(site.node, "recurrence", time[0].size, state))
        elif lengths_state.length is None or lengths_state.length != time[0].size:
            raise RefusedError("the lengths that it is given are not those of what is valid")
    directions: Axis = _output_axis(dims, 2 if layout else 1)
    hidden: Axis = _output_axis(dims, 3)
    axes = (rows, time, directions, hidden) if layout else (time, directions, rows, hidden)
    tails = tuple(ZERO if i == time_axis and time else None for i in range(4))
    last = (rows, directions, hidden) if layout else (directions, rows, hidden)
    return [TensorState(axes, tails), *(state_without_time(last) for _ in site.node.outputs[1:])]


def _gives_padded_size(site: RuleSite, size: sympy.Expr) -> bool:
    """Return whether the lengths that it is given are the padded size, for all rows."""
    value = site.node.inputs[4]
    while (node := producer_of(value)) is not None:
        contents = site.contents_of(value)
        if contents is not None or not is_op(node, "Cast", "Expand", "Identity", "Tile"):
            return contents is not None and len(contents) == 1 and same_size(contents[0], size)
        value = node.inputs[0]
    return False


def _output_axis(dims: list[sympy.Expr] | None, index: int) -> Axis:
    return () if dims is None else fixed_axis(dims[index])


RULES = dict.fromkeys(
    ("GRU", "LSTM", "RNN"), PaddingRule(infer_recurrent, AcceptedInputs.SIZES_BEHIND)
)
