"""Rule for Slice: cuts at the beginning of an axis, and reads at its end."""

import sympy

from graphfix.lengths.joint_axes import RefusedError, require_sole_time
from graphfix.lengths.rule_site import AcceptedInputs, DimCut, PaddingRule, RuleSite
from graphfix.lengths.rules.shape_ops import infer_sizes
from graphfix.lengths.tail_state import (
    FINITE,
    TensorState,
    TimeFactor,
    carries_time,
    fixed_axis,
    holds_rows,
)
from graphfix.ops.slices import OPEN_END


def infer_slice(site: RuleSite) -> TensorState:
    """Infer cuts: at the beginning of time the rest stays valid; at its end frames are read."""
    state = site.input_state()
    if state.counts_padding:
        return infer_sizes(site)
    if state.axes is None:
        return site.output_without_time()
    cuts = site.slice_cuts(state.rank)
    if cuts is None and not state.time_axes:
        return site.output_without_time()
    if cuts is None:
        raise RefusedError("the axes that it cuts are not known")
    out = site.output_dims()
    for axis, cut in cuts.items():
        state = _cut_axis(site, state, axis, cut, out[axis])
    return state


def _cut_axis(
    site: RuleSite, state: TensorState, axis: int, cut: DimCut, out: sympy.Expr
) -> TensorState:
    """Infer one axis cut to the size ``out``."""
    factors, size = state.factors_of(axis), state.size_along(axis)
    if carries_time(factors) and _reverses_all(cut, size):
        return _reverse_axis(state, axis)
    if out == size and cut.step == 1:
        return state
    if carries_time(factors):
        return _cut_time(site, state, axis, cut, out)
    if site.grows_with_padding(out):
        return _cut_table(site, state, axis, cut, out)
    if holds_rows(factors):
        raise RefusedError("it cuts the batch")
    return state.with_axis(axis, fixed_axis(out), None)


def _cut_table(
    site: RuleSite, state: TensorState, axis: int, cut: DimCut, out: sympy.Expr
) -> TensorState:
    """Infer a table cut to the length of the clip, from a place that padding does not move."""
    if cut.start is None or site.grows_with_padding(cut.start) or not _forward_step(cut):
        raise RefusedError("where it begins depends on the padded length")
    return state.with_axis(axis, (TimeFactor(out),), state.mixed_tail)


def _cut_time(
    site: RuleSite, state: TensorState, axis: int, cut: DimCut, out: sympy.Expr
) -> TensorState:
    """Infer an axis of time cut at its beginning, or read at its end."""
    time = require_sole_time(state.factors_of(axis), "it cuts an axis that")
    step = _forward_step(cut)
    if cut.start is None or cut.end is None or not step:
        raise RefusedError("where it cuts the axis that carries time is not known")
    reaches_end = bool(cut.end.is_Integer and cut.end >= OPEN_END) or cut.end == time.size
    from_end = _offset_from_end(cut.start, time.size)
    if from_end is not None and reaches_end:
        # A clip shorter than that fails, or gives another shape, without padding too.
        out = sympy.Integer(-(from_end // step))
    moves_with_padding = from_end is not None or site.grows_with_padding(cut.start)
    if site.grows_with_padding(out) and not moves_with_padding:
        return _drop_first(state, axis, cut.start, out, reaches_end=reaches_end)
    if not site.is_size_of_inputs(out):
        raise RefusedError("how much it leaves of the axis that carries time is not known")
    if not out.is_Integer:
        raise RefusedError("it begins at a place that depends on the padded length")
    if from_end is None:
        return state.with_axis(axis, fixed_axis(out), None)
    offsets = tuple(range(from_end, from_end + int(out) * step, step))
    site.request_last_frames(state, axis, offsets, drop=False)
    return state.with_axis(axis, fixed_axis(sympy.Integer(len(offsets))), None)


def _drop_first(
    state: TensorState, axis: int, start: sympy.Expr, out: sympy.Expr, *, reaches_end: bool
) -> TensorState:
    """Infer time without its first frames, or only every so many of them."""
    if not start.is_Integer:
        raise RefusedError("where it begins is not constant")
    tail = state.tail_along(axis)
    if not reaches_end:
        repeats_last = tail.kind == "last" and state.fill is None
        tail = FINITE if repeats_last else tail.after_arithmetic
    return state.with_axis(axis, (TimeFactor(out),), tail)


def _forward_step(cut: DimCut) -> int:
    """Return the step of a cut that runs forwards; 0 if it runs backwards or is not known."""
    return max(0, int(cut.step)) if cut.step is not None and cut.step.is_Integer else 0


def _offset_from_end(start: sympy.Expr, size: sympy.Expr) -> int | None:
    """Return a start that counts from the end, -1 for the last; None if it does not."""
    if start.is_Integer and start < 0:
        return int(start)
    gap = sympy.expand(start - size)
    return int(gap) if gap.is_Integer and gap < 0 and not start.is_Integer else None


def _reverses_all(cut: DimCut, size: sympy.Expr) -> bool:
    """Return whether a cut begins at the last element and goes back to the first."""
    if cut.step != -1 or cut.start is None or cut.end is None:
        return False
    last = (
        cut.start == -1
        or cut.start == size - 1
        or (cut.start.is_Integer and int(cut.start) >= OPEN_END)
    )
    return bool(last and cut.end.is_Integer and int(cut.end) <= -OPEN_END)


def _reverse_axis(state: TensorState, axis: int) -> TensorState:
    """Reverse an axis, with the padding in front."""
    factors = state.factors_of(axis)
    if len(factors) != 1 or not isinstance(factors[0], TimeFactor):
        raise RefusedError("it turns an axis that holds time beside something else")
    time = factors[0]
    return state.with_axis(
        axis, (TimeFactor(time.size, not time.reversed),), state.tail_along(axis)
    )


RULES = {"Slice": PaddingRule(infer_slice, AcceptedInputs.SIZES)}
