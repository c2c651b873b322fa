"""Rule for Slice: what is cut from an axis, and what is read at its end."""

import sympy

from graphfix.lengths.joint_axes import RefusedError, require_sole_time
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.rules.shape_ops import infer_sizes
from graphfix.lengths.tail_state import (
    FINITE,
    TensorState,
    TimeFactor,
    carries_time,
    fixed_axis,
    holds_rows,
)

FAR = 2**31 - 1


def infer_slice(site: RuleSite) -> TensorState:
    """Infer cuts: one at the beginning moves what is valid along; one at the end reads there."""
    state = site.input_state()
    if state.counts_padding:
        return infer_sizes(site)
    starts, ends = site.input_contents(1), site.input_contents(2)
    if state.axes is None:
        return site.output_without_time()
    axes = site.input_contents(3) if site.has_input(3) else None
    cut = range(len(starts or ends or ())) if axes is None else map(int, axes)
    at = [axis % state.rank for axis in cut]
    steps = site.input_contents(4) if site.has_input(4) else [sympy.Integer(1)] * len(at)
    out = site.output_dims()
    for i, axis in enumerate(at):
        start = None if starts is None else starts[i]
        end = None if ends is None else ends[i]
        step = None if steps is None or not steps[i].is_Integer else int(steps[i])
        state = _cut_axis(site, state, axis, start, end, step, out[axis])
    return state


def _cut_axis(
    site: RuleSite,
    state: TensorState,
    axis: int,
    start: sympy.Expr | None,
    end: sympy.Expr | None,
    step: int | None,
    out: sympy.Expr,
) -> TensorState:
    factors = state.factors_of(axis)
    size = state.size_along(axis)
    if step == -1 and carries_time(factors) and _reverses_all(start, end, size):
        return _reverse_axis(site, state, axis)
    if out == size and step == 1:
        return state
    if not carries_time(factors):
        if site.grows_with_padding(out):
            # A table cut to the length of the clip, from a place that padding does not move.
            if start is None or site.grows_with_padding(start) or step is None or step < 1:
                raise RefusedError("where it begins depends on the padded length")
            return state.with_axis(axis, (TimeFactor(out),), state.mixed_tail)
        if holds_rows(factors):
            raise RefusedError("it cuts the batch")
        return state.with_axis(axis, fixed_axis(out), None)
    time = require_sole_time(factors, "it cuts an axis that")
    if start is None or end is None or step is None or step < 1:
        raise RefusedError("where it cuts the axis that carries time is not known")
    tail = state.tail_along(axis)
    reaches_end = (end.is_Integer and int(end) >= FAR) or (end == time.size)
    fromend = _offset_from_end(start, time.size)
    if fromend is not None and reaches_end:
        # A clip that is shorter than that does not run, or gives another shape, natively too.
        out = sympy.Integer(-(fromend // step))
    if site.grows_with_padding(out) and fromend is None and not site.grows_with_padding(start):
        if not start.is_Integer and start != 0:
            raise RefusedError("where it begins is not constant")
        new_tail = tail if reaches_end else tail.after_arithmetic
        if not reaches_end and tail.kind == "last" and state.fill is None:
            new_tail = FINITE
        return state.with_axis(axis, (TimeFactor(out),), new_tail)
    if not site.is_size_of_inputs(out):
        raise RefusedError("how much it leaves of the axis that carries time is not known")
    if not out.is_Integer:
        raise RefusedError("it begins at a place that depends on the padded length")
    if fromend is None:
        return state.with_axis(axis, fixed_axis(out), None)
    offsets = tuple(range(fromend, fromend + int(out) * step, step))
    site.request_last_frames(state, axis, offsets, drop=False)
    return state.with_axis(axis, fixed_axis(sympy.Integer(len(offsets))), None)


def _offset_from_end(start: sympy.Expr, size: sympy.Expr) -> int | None:
    """Return the place as counted from the end, if it is: -1 is the last."""
    if start.is_Integer and start < 0:
        return int(start)
    gap = sympy.expand(start - size)
    return int(gap) if gap.is_Integer and gap < 0 and not start.is_Integer else None


def _reverses_all(start: sympy.Expr | None, end: sympy.Expr | None, size: sympy.Expr) -> bool:
    """Return whether a Slice of step -1 begins at the last and ends with the first."""
    if start is None or end is None:
        return False
    last = start == -1 or start == size - 1 or (start.is_Integer and int(start) >= FAR)
    return bool(last and end.is_Integer and int(end) <= -FAR)


def _reverse_axis(site: RuleSite, state: TensorState, axis: int) -> TensorState:
    """Reverse an axis, with the padding in front."""
    factors = state.factors_of(axis)
    if len(factors) != 1 or not isinstance(factors[0], TimeFactor):
        raise RefusedError("it turns an axis that holds time beside something else")
    time = factors[0]
    return state.with_axis(axis, (TimeFactor(time.size, not time.turned),), state.tail_along(axis))


RULES = {"Slice": PaddingRule(infer_slice, AcceptedInputs.SIZES)}
