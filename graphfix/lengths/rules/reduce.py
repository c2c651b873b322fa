"""Rules for reductions: the tail must be neutral, or the valid frames counted."""

import dataclasses

import onnx_ir as ir

from graphfix import ops
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, check_rows_unmixed
from graphfix.lengths.repairs.statistics import MaskedMean
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.rules.shape_ops import infer_sizes
from graphfix.ops.axes import keeps_dims, reduced_axes


def infer_reduce(site: RuleSite) -> facts.TensorState:
    """Require zeros in the tail for sums, something low for maxima, a count for means."""
    state, op_type = site.input_state(), site.node.op_type
    if state.counts_padding:
        return infer_sizes(site)
    if state.axes is None:
        return site.output_without_time()
    axes = _reduced_axes(site, state)
    times = [i for i in axes if facts.carries_time(state.factors_of(i))]
    for axis in axes:
        if facts.holds_rows(state.factors_of(axis)) and state.time_axes:
            raise RefusedError("it sums over the batch, in which each row has its own length")
    # A sum of a mask's ones is how many are valid.
    length = state.length if op_type == "ReduceSum" and len(axes) == len(times) == 1 else None
    if op_type != "ReduceMean":
        for axis in times:
            _require_neutral_tail(site, axis)
    keep = keeps_dims(site.node)
    state = (
        require_masked_mean(site, axes, keep=keep)
        if op_type == "ReduceMean"
        else site.input_state()
    )
    result = reduce_axes(state, axes, keep=keep, times=bool(times))
    return dataclasses.replace(result, sign=_sign_of_reduction(site.node, state), length=length)


def _require_neutral_tail(site: RuleSite, axis: int) -> None:
    """Request a tail along an axis that does not change the result of a reduction."""
    if site.node in ops.REDUCES_PAST_ZEROS:
        site.require_zero_tail(0, axis, "sum pollution")
    elif is_op(site.node, "ReduceMax", "ReduceLogSumExp"):
        site.require_low_tail(0, axis, "maximum pollution")
    elif is_op(site.node, "ReduceMin"):
        # 1 is the largest truth, and the largest integer is none on DirectML, which keeps 32 bits.
        most = 1 if _is_truth(site.node.inputs[0], site) else None
        site.require_high_tail(0, axis, "minimum pollution", most)
    else:
        raise RefusedError("there is no repair for it over time")


def _is_truth(value: ir.Value | None, site: RuleSite) -> bool:
    """Return whether numbers are 0 or 1, as those of a boolean: the least is whether all are."""
    node = producer_of(value)
    dtype = None if node is None else site.source.shapes.dtype(node.inputs[0])
    return node in ops.CASTS and dtype == ir.DataType.BOOL


def _sign_of_reduction(node: ir.Node, state: facts.TensorState) -> facts.Sign:
    """Return the sign of a reduction; an extreme, a sum and a mean keep that of the elements."""
    if node in ops.REDUCES_TO_EXTREME or is_op(node, "ReduceMean", "ReduceSum"):
        return state.sign
    if node in ops.NEVER_NEGATIVE:
        return 1
    return min(state.sign, 1) if node in ops.KEEPS_NONNEGATIVE else 0


def require_masked_mean(site: RuleSite, axes: tuple[int, ...], *, keep: bool) -> facts.TensorState:
    """Request a mean over ``axes`` of valid frames only, and return the state of its input."""
    state = site.input_state()
    times = [i for i in axes if facts.carries_time(state.factors_of(i))]
    for axis in times:
        state = site.require_zero_tail(0, axis, "mean pollution")
        site.check_mask(state, axis)
    if times:
        site.request_repair(MaskedMean(site.node, "mean pollution", axes, keep, state))
    return state


def _reduced_axes(site: RuleSite, state: facts.TensorState) -> tuple[int, ...]:
    axes = reduced_axes(site.node, state.rank, site.opset, site.ints_of)
    if axes is None:
        raise RefusedError("the axes that it is over are not constant")
    return tuple(sorted(axes))


def reduce_axes(
    state: facts.TensorState, axes: tuple[int, ...], *, keep: bool, times: bool
) -> facts.TensorState:
    """Return the state that a reduction over ``axes`` leaves."""
    places = [i for i in range(state.rank) if keep or i not in axes]
    new_axes: list[facts.Axis] = [() if i in axes else state.factors_of(i) for i in places]
    tails = (None if i in axes else state.tails[i] for i in places)
    new_tails = (
        x if x is None or (not times and _survives_sum(x)) else state.mixed_tail for x in tails
    )
    return facts.TensorState(tuple(new_axes), tuple(new_tails))


def _survives_sum(tail: facts.Tail) -> bool:
    """Return whether reductions over another axis keep a tail."""
    return tail.is_zero or tail.kind == "last"


def infer_arg_max(site: RuleSite) -> facts.TensorState:
    """Infer an ArgMax or ArgMin, whose place must not be in the tail."""
    state = site.input_state()
    if state.axes is None:
        return site.output_without_time()
    axis = site.axis_attribute(state.rank)
    check_rows_unmixed(state, (axis,))
    time = facts.carries_time(state.factors_of(axis))
    if time:
        last = attr_int(site.node, "select_last_index", 0)
        if last or facts.sole_time(state.factors_of(axis)) is None:
            raise RefusedError("there is no repair for it over time")
        if is_op(site.node, "ArgMin"):
            state = site.require_high_tail(0, axis, "minimum pollution")
        else:
            state = site.require_low_tail(0, axis, "maximum pollution")
    result = reduce_axes(state, (axis,), keep=keeps_dims(site.node), times=time)
    tails = tuple(None if x is None else facts.FINITE for x in result.tails)
    return dataclasses.replace(result, tails=tails, sign=1)


def infer_top_k(site: RuleSite) -> list[facts.TensorState | None]:
    """Infer the values and the places of a TopK along an axis without time."""
    state = site.input_state()
    if state.axes is None:
        return [site.output_without_time(i) for i in range(len(site.node.outputs))]
    axis = site.axis_attribute(state.rank)
    check_rows_unmixed(state, (axis,))
    if facts.carries_time(state.factors_of(axis)):
        raise RefusedError("it ranks along the axis that carries time")
    if site.has_input(1) and not site.input_state(1).fixed:
        raise RefusedError("how many it gives is not fixed")
    size = facts.fixed_axis(site.output_dims(0)[axis])
    values = state.with_axis(axis, size, None)
    values = values.with_other_numbers(
        values.tails_after_arithmetic(zeros=True), min(state.sign, 1)
    )
    finite = tuple(None if x is None else facts.FINITE for x in values.tails)
    return [values, values.with_other_numbers(finite, 1)]


def infer_cumsum(site: RuleSite) -> facts.TensorState:
    """Infer a running sum: forwards the valid part comes first; backwards it begins in the tail."""
    state, axis = site.input_state(), site.input_ints(1)
    if axis is None or state.axes is None:
        raise RefusedError("its axis is not constant")
    at = axis[0] % state.rank
    check_rows_unmixed(state, (at,))
    step = None if state.fill is None or not state.fill.is_integer() else int(state.fill)
    if facts.carries_time(state.factors_of(at)):
        factors = state.factors_of(at)
        if len(factors) != 1 or not isinstance(factors[0], facts.TimeFactor):
            raise RefusedError("its axis holds time beside something else")
        backwards = bool(attr_int(site.node, "reverse", 0))
        if backwards != factors[0].reversed:
            state = site.require_zero_tail(0, at, "sum pollution")
        elif not state.tail_along(at).is_zero:
            return _running_sums(state, at, state.mixed_tail, _running_steps(site, step, state))
        # A sum that begins in a tail of zeros is zero there; one that ends there stays the same.
        tail = (
            facts.ZERO
            if backwards != factors[0].reversed
            else facts.FINITE
            if attr_int(site.node, "exclusive", 0)
            else facts.LAST
        )
        return _running_sums(state, at, tail, None)
    return _running_sums(state, None, facts.FINITE, None)


def _running_steps(
    site: RuleSite, step: int | None, state: facts.TensorState
) -> tuple[int, int] | None:
    """Return start and step of the running sums of one number."""
    if not step or attr_int(site.node, "reverse", 0) or len(state.time_axes) != 1:
        return None
    return (0 if attr_int(site.node, "exclusive", 0) else step), step


def _running_sums(
    state: facts.TensorState, axis: int | None, tail: facts.Tail, steps: tuple[int, int] | None
) -> facts.TensorState:
    other_tails = (x and (x if _survives_sum(x) else x.after_arithmetic) for x in state.tails)
    tails = tuple(x and tail if i == axis else x for i, x in enumerate(other_tails))
    return dataclasses.replace(
        state, tails=tails, fill=None, valid_fill=None, steps=steps, sign=min(state.sign, 1)
    )


RULES = {
    **dict.fromkeys(ops.REDUCES, PaddingRule(infer_reduce, AcceptedInputs.SIZES)),
    "ArgMax": PaddingRule(infer_arg_max),
    "ArgMin": PaddingRule(infer_arg_max),
    "CumSum": PaddingRule(infer_cumsum),
    "TopK": PaddingRule(infer_top_k),
}
