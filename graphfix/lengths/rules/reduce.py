"""Rules for reductions: the tail must be neutral, or the valid frames counted."""

import dataclasses

from graphfix.graph.nodes import attr_int
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, check_rows_unmixed
from graphfix.lengths.repairs.statistics import MaskedMean
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.rules.shape_ops import infer_sizes

_ZERO = ("ReduceLogSum", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare")


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
    for axis in times if op_type != "ReduceMean" else ():
        if op_type in _ZERO:
            site.require_zero_tail(0, axis, "sum pollution")
        elif op_type in ("ReduceMax", "ReduceLogSumExp"):
            site.require_low_tail(0, axis, "maximum pollution")
        else:
            raise RefusedError("there is no repair for it over time")
    keep = bool(attr_int(site.node, "keepdims", 1))
    state = (
        require_masked_mean(site, axes, keep=keep)
        if op_type == "ReduceMean"
        else site.input_state()
    )
    result = reduce_axes(state, axes, keep=keep, times=bool(times))
    # A mean over the largest number is that number; other reductions make a new one.
    sign = {"ReduceMean": state.sign, "ReduceMax": state.sign, "ReduceMin": state.sign}
    signs = {**sign, "ReduceSum": state.sign, "ReduceL2": 1, "ReduceL1": 1, "ReduceSumSquare": 1}
    return dataclasses.replace(result, sign=signs.get(op_type, 0), length=length)


def require_masked_mean(site: RuleSite, axes: tuple[int, ...], *, keep: bool) -> facts.TensorState:
    """Ask for a mean over ``axes`` that counts valid frames only, and return its input's state."""
    state = site.input_state()
    times = [i for i in axes if facts.carries_time(state.factors_of(i))]
    for axis in times:
        state = site.require_zero_tail(0, axis, "mean pollution")
        site.check_mask(state, axis)
    if times:
        site.request_repair(MaskedMean(site.node, "mean pollution", axes, keep, state))
    return state


def _reduced_axes(site: RuleSite, state: facts.TensorState) -> tuple[int, ...]:
    axes = site.axes_parameter()
    if axes is None and len(site.node.inputs) > 1 and site.node.inputs[1] is not None:
        raise RefusedError("the axes that it is over are not constant")
    if not axes:
        return () if attr_int(site.node, "noop_with_empty_axes", 0) else tuple(range(state.rank))
    return tuple(sorted(x % state.rank for x in axes))


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
    """Return whether sums, and other reductions, over another axis leave a tail what it was."""
    return tail.is_zero or tail.kind == "last"


def infer_arg_max(site: RuleSite) -> facts.TensorState:
    """Infer the place of the largest, which the tail must not be."""
    state = site.input_state()
    if state.axes is None:
        return site.output_without_time()
    axis = attr_int(site.node, "axis", 0) % state.rank
    check_rows_unmixed(state, (axis,))
    time = facts.carries_time(state.factors_of(axis))
    if time:
        last = attr_int(site.node, "select_last_index", 0)
        if last or site.node.op_type == "ArgMin" or facts.sole_time(state.factors_of(axis)) is None:
            raise RefusedError("there is no repair for it over time")
        state = site.require_low_tail(0, axis, "maximum pollution")
    result = reduce_axes(state, (axis,), keep=bool(attr_int(site.node, "keepdims", 1)), times=time)
    tails = tuple(None if x is None else facts.FINITE for x in result.tails)
    return dataclasses.replace(result, tails=tails, sign=1)


def infer_cumsum(site: RuleSite) -> facts.TensorState:
    """Infer a running sum: forwards it has not seen the tail yet; backwards it begins there."""
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
        if backwards != factors[0].turned:
            state = site.require_zero_tail(0, at, "sum pollution")
        elif not state.tail_along(at).is_zero:
            return _running_sums(state, at, state.mixed_tail, _running_steps(site, step, state))
        # Started in a tail of zeros it is zero there; run into one, it stays what it was.
        tail = (
            facts.ZERO
            if backwards != factors[0].turned
            else facts.FINITE
            if attr_int(site.node, "exclusive", 0)
            else facts.LAST
        )
        return _running_sums(state, at, tail, None)
    return _running_sums(state, None, facts.FINITE, None)


def _running_steps(
    site: RuleSite, step: int | None, state: facts.TensorState
) -> tuple[int, int] | None:
    """Return where the sums of one number start, and by what they go on."""
    if not step or attr_int(site.node, "reverse", 0) or len(state.time_axes) != 1:
        return None
    return (0 if attr_int(site.node, "exclusive", 0) else step), step


def _running_sums(
    state: facts.TensorState, axis: int | None, tail: facts.Tail, steps: tuple[int, int] | None
) -> facts.TensorState:
    other_tails = (x and (x if _survives_sum(x) else x.after_arithmetic) for x in state.tails)
    tails = tuple(x and tail if i == axis else x for i, x in enumerate(other_tails))
    return dataclasses.replace(
        state, tails=tails, fill=None, inside=None, steps=steps, sign=min(state.sign, 1)
    )


_REDUCTIONS = ("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin")
RULES = {
    **dict.fromkeys(
        (*_REDUCTIONS, *_ZERO, "ReduceProd"), PaddingRule(infer_reduce, AcceptedInputs.SIZES)
    ),
    "ArgMax": PaddingRule(infer_arg_max),
    "ArgMin": PaddingRule(infer_arg_max),
    "CumSum": PaddingRule(infer_cumsum),
}
