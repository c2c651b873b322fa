"""Rules for recurrences: with the length of each row they stop, and turn back, at its end."""

import sympy

from graphfix import ops
from graphfix.graph.nodes import is_op, producer_of
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
from graphfix.ops.recurrent import ROW_LENGTHS, row_axis_of


def infer_recurrent(site: RuleSite) -> list[TensorState | None]:
    """Require ``sequence_lens`` that holds the valid length of each row."""
    state = site.input_state()
    batch_axis = row_axis_of(site.node)
    time_axis = 1 - batch_axis
    batch_first = batch_axis == 0
    check_rows_unmixed(state, (time_axis,))
    time = _time_of_steps(state, time_axis)
    if time is not None and site.node in ops.COMPUTES_QUANTIZED:
        # One range is taken over all steps of all rows: those behind the end of a row count.
        state = site.require_zero_tail(0, time_axis, "maximum pollution")
    rows = state.factors_of(batch_axis)
    if site.source.batch is not None and not _is_batch_alone(rows):
        raise RefusedError("its batch axis holds something else beside the batch")
    _check_parameters(site)
    if time is not None:
        _require_row_lengths(site, state, time)
    steps: Axis = () if time is None else (time,)
    directions, hidden = (_output_axis(site, i) for i in (2 if batch_first else 1, 3))
    if batch_first:
        axes, last = (rows, steps, directions, hidden), (rows, directions, hidden)
    else:
        axes, last = (steps, directions, rows, hidden), (directions, rows, hidden)
    tails = tuple(ZERO if i == time_axis and steps else None for i in range(4))
    return [TensorState(axes, tails), *(state_without_time(last) for _ in site.node.outputs[1:])]


def _time_of_steps(state: TensorState, time_axis: int) -> TimeFactor | None:
    """Return the time that it steps along; None if there is one step."""
    if any(i != time_axis for i in state.time_axes):
        raise RefusedError("time is its batch or its features")
    factors = state.factors_of(time_axis)
    if not factors:
        return None
    if len(factors) > 1 or not isinstance(factors[0], TimeFactor):
        raise RefusedError("its time axis holds something else beside time")
    return factors[0]


def _is_batch_alone(rows: Axis) -> bool:
    """Return whether an axis is the batch, or the batch and fixed sizes."""
    if not rows:
        return True
    batches = [x for x in rows if isinstance(x, BatchFactor)]
    return len(batches) == 1 and all(x in batches or x.size.is_Integer for x in rows)


def _check_parameters(site: RuleSite) -> None:
    for i, parameter in enumerate(site.states[1:], 1):
        carries_time = parameter is not None and (parameter.time_axes or parameter.counts_padding)
        if carries_time and i != ROW_LENGTHS:
            raise RefusedError("a parameter of it carries time")


def _require_row_lengths(site: RuleSite, state: TensorState, time: TimeFactor) -> None:
    """Ask for the valid lengths, unless the model has them already."""
    if time.reversed:
        raise RefusedError("it runs over a tensor that was turned around")
    lengths = site.optional_state(ROW_LENGTHS)
    if lengths is None or _is_padded_size(site, time.size):
        site.check_size(time.size)
        site.request_repair(SequenceLens(site.node, "recurrence", time.size, state))
    elif lengths.length is None or lengths.length != time.size:
        raise RefusedError("the lengths that it is given are not those of what is valid")


def _is_padded_size(site: RuleSite, size: sympy.Expr) -> bool:
    """Return whether the lengths of all rows are the size of the time axis, padding included."""
    value = site.node.inputs[ROW_LENGTHS]
    while (node := producer_of(value)) is not None:
        contents = site.contents_of(value)
        if contents is not None or not is_op(node, "Cast", "Expand", "Identity", "Tile"):
            return contents is not None and len(contents) == 1 and same_size(contents[0], size)
        value = node.inputs[0]
    return False


def _output_axis(site: RuleSite, index: int) -> Axis:
    """Return an axis of the first output; of size 1 where that is absent."""
    output = site.node.outputs[0]
    dims = site.dims_of(output) if output.name else None
    return () if dims is None else fixed_axis(dims[index])


_RULE = PaddingRule(infer_recurrent, AcceptedInputs.SIZES_BEHIND)
RULES = dict.fromkeys(ops.RECURRENT, _RULE)
