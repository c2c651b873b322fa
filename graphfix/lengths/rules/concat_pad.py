"""Rules for Concat and Pad, which put something before or behind the valid part."""

import dataclasses
import math
from collections.abc import Sequence

import sympy

from graphfix.facts.symbolic.signs import never_negative
from graphfix.graph.nodes import is_op
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, join_axes, require_sole_time
from graphfix.lengths.repairs.frames import AppendCopies, AppendFrames, PadFrames
from graphfix.lengths.repairs.repair import Leak
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.rules.shape_ops import infer_sizes
from graphfix.ops.pads import pad_fill, pad_mode, padded_axes


def infer_concat(site: RuleSite) -> facts.TensorState:
    """Infer a Concat: what it appends to time must come right behind the valid part."""
    states = site.present_states()
    if any(x.counts_padding for x in states):
        return infer_sizes(site)
    if any(x.axes is None for x in states):
        return site.output_without_time()
    axis = site.axis_attribute(states[0].rank)
    joined = _join_other_axes(states, axis)
    if not any(facts.carries_time(x.factors_of(axis)) for x in states):
        if any(facts.holds_rows(x.factors_of(axis)) for x in states):
            raise RefusedError("it joins batches")
        return joined.with_axis(axis, (facts.OtherFactor(site.output_dims()[axis]),), None)
    return _concat_along_time(site, joined, axis)


def _join_other_axes(states: Sequence[facts.TensorState], axis: int) -> facts.TensorState:
    """Return the state of joined tensors on all axes but the one that they are joined along."""
    axes: list[facts.Axis] = [
        join_axes([x.factors_of(i) for x in states], broadcasts=False) if i != axis else ()
        for i in range(states[0].rank)
    ]
    tails = [_common_tail(states, i) if facts.carries_time(a) else None for i, a in enumerate(axes)]
    return facts.state_with_tails(axes, tails, min(x.sign for x in states))


def _concat_along_time(site: RuleSite, joined: facts.TensorState, axis: int) -> facts.TensorState:
    """Infer tensors put before and behind the first that carries time along the axis."""
    states, out = site.present_states(), site.output_dims()[axis]
    first = next(i for i, x in enumerate(states) if facts.carries_time(x.factors_of(axis)))
    require_sole_time(states[first].factors_of(axis), "it joins an axis that")
    behind = states[first + 1 :]
    if all(x.fill == 0 for x in behind):
        if behind:
            states[first] = site.require_zero_tail(first, axis, "boundary leak")
        return joined.with_axis(axis, (facts.TimeFactor(out),), states[first].tail_along(axis))
    result = joined.with_axis(axis, (facts.TimeFactor(out),), facts.FINITE)
    if any(facts.carries_time(x.factors_of(axis)) for x in behind):
        return _append_copies(site, result, axis)
    before = sympy.expand(sympy.Add(*(x.size_along(axis) for x in states[: first + 1])))
    count = sympy.expand(out - before)
    if not count.is_Integer:
        raise RefusedError("how much it appends depends on the padded length")
    site.check_size(before)
    site.request_repair(AppendFrames(site.node, "boundary leak", axis, before, result, int(count)))
    return result


def _append_copies(site: RuleSite, result: facts.TensorState, axis: int) -> facts.TensorState:
    """Request that copies of one frame come right behind the valid part."""
    front = [x for x in site.states[:-1] if x is not None]
    frame = _find_repeated_frame(site, axis)
    if frame is None or any(facts.carries_time(x.factors_of(axis)) for x in front[:-1]):
        raise RefusedError(
            "it puts one stretch of time behind another, and only copies of one frame (a Tile or "
            "an Expand of it) can be put right behind what is valid: join them after the model, "
            "or make what follows of one frame"
        )
    before = sympy.expand(sympy.Add(*(facts.size_of(x.factors_of(axis)) for x in front)))
    size = facts.size_of(result.factors_of(axis))
    site.check_size(before)
    site.check_size(size)
    depth, wide = frame
    site.request_repair(
        AppendCopies(site.node, "boundary leak", axis, size, result, before, depth, wide)
    )
    return result


def _find_repeated_frame(site: RuleSite, axis: int) -> tuple[int, bool] | None:
    """Find the one frame that the last input repeats along an axis.

    Returns:
        How many nodes above the last input it is, and whether it has the full size on all other
        axes; None if the last input does not repeat one frame.
    """
    value, depth = site.node.inputs[-1], 0
    last_state = site.states[-1]
    while value is not None and is_op(node := value.producer(), "Expand", "Tile", "Identity"):
        value, depth = node.inputs[0], depth + 1
        state = None if value is None else site.state_of(value)
        if (
            state is None
            or last_state is None
            or state.rank != last_state.rank
            or state.counts_padding
        ):
            return None
        if not state.factors_of(axis):
            axis_pairs = [
                (state.factors_of(i), last_state.factors_of(i))
                for i in range(last_state.rank)
                if i != axis
            ]
            # On another axis a Tile may repeat more than one frame.
            alike = all(a == b or not a for a, b in axis_pairs)
            return (depth, all(a == b for a, b in axis_pairs)) if alike else None
    return None


def _common_tail(states: Sequence[facts.TensorState], axis: int) -> facts.Tail:
    tails = {
        x.tail_along(axis)
        if x.tails[axis] is not None
        else x.tail_of_copies(facts.LAST if x.is_finite else facts.ANY)
        for x in states
    }
    if len(tails) == 1:
        return tails.pop()
    return facts.FINITE if all(x.is_finite for x in tails) else facts.ANY


def infer_pad(site: RuleSite) -> facts.TensorState:
    """Require a tail that equals the padding."""
    state = site.input_state()
    pads = None if state.axes is None else site.pad_amounts(state.rank)
    if pads is None:
        if state.axes is not None and padded_axes(site.node, state.rank, site.ints_of) is None:
            raise RefusedError("the axes that it pads are not constant")
        raise RefusedError("how much it pads is not known")
    padded = {axis: pad for axis, pad in pads.items() if pad != (0, 0)}
    for axis, (begin, end) in padded.items():
        if facts.carries_time(state.factors_of(axis)):
            state = _pad_time(site, state, axis, begin, end, only_axis=len(padded) == 1)
        else:
            state = _pad_other_axis(site, state, axis, begin, end)
    return state


def _pad_other_axis(
    site: RuleSite, state: facts.TensorState, axis: int, begin: sympy.Expr, end: sympy.Expr
) -> facts.TensorState:
    """Infer an axis that does not carry time, but may be made as long as the clip."""
    if facts.holds_rows(state.factors_of(axis)):
        raise RefusedError("it pads the batch")
    if site.grows_with_padding(begin) or site.grows_with_padding(end):
        return _pad_to_length(site, state, axis, begin)
    if pad_mode(site.node) == "constant":
        state = _with_border(state, axis, pad_fill(site.node))
    return state.with_axis(axis, (facts.OtherFactor(site.output_dims()[axis]),), None)


def _with_border(state: facts.TensorState, axis: int, value: float | None) -> facts.TensorState:
    """Adjust the facts about all elements for a border along an axis; None is an unknown number."""
    number = math.nan if value is None else value
    border = facts.Tail("number", number)
    finite = facts.FINITE if state.is_finite and border.is_finite else facts.ANY
    unchanged = (border, facts.LAST)
    tails = [
        x if x is None or i == axis or x in unchanged else finite for i, x in enumerate(state.tails)
    ]
    sign: facts.Sign = min(state.sign, facts.sign_of_number(number))
    fill = state.fill if state.fill == number else None
    return dataclasses.replace(state, tails=tuple(tails), sign=sign, fill=fill, valid_fill=None)


def _pad_to_length(
    site: RuleSite, state: facts.TensorState, axis: int, begin: sympy.Expr
) -> facts.TensorState:
    """Infer an axis that is filled up with a number to the length of the clip."""
    if site.grows_with_padding(begin):
        raise RefusedError("how much it puts in front depends on the padded length")
    number = pad_fill(site.node)
    if pad_mode(site.node) != "constant" or number is None:
        raise RefusedError("what it puts behind what it pads is not one number")
    new, tail = (facts.TimeFactor(site.output_dims()[axis]),), facts.Tail("number", number)
    return dataclasses.replace(
        _with_border(state, axis, number).with_axis(axis, new, tail), fixed=False
    )


def _pad_time(
    site: RuleSite,
    state: facts.TensorState,
    axis: int,
    begin: sympy.Expr,
    end: sympy.Expr,
    *,
    only_axis: bool,
) -> facts.TensorState:
    """Infer padding along time.

    Args:
        site: The Pad.
        state: What is known of its input, with the axes before this one padded.
        axis: An axis that carries time.
        begin: How many frames are put in front.
        end: How many are put behind; a negative number cuts.
        only_axis: Whether no other axis is padded.
    """
    require_sole_time(state.factors_of(axis), "it pads an axis that")
    if not begin.is_Integer:
        raise RefusedError("how much it puts in front depends on the padded length")
    padded = (facts.TimeFactor(site.output_dims()[axis]),)
    mode = pad_mode(site.node)
    if mode == "constant":
        number = pad_fill(site.node)
        if number is None:
            raise RefusedError("what it pads with is not constant")
        tail = _tail_behind_number(site, state, axis, float(number), end)
        return _with_border(state, axis, float(number)).with_axis(axis, padded, tail)
    if mode not in ("edge", "reflect"):
        raise RefusedError(f"there is no repair for its mode {mode} here")
    if end == 0:
        return state.with_axis(axis, padded, state.tail_along(axis))
    if not only_axis or not (end.is_Integer or never_negative(end)):
        raise RefusedError(f"there is no repair for its mode {mode} here")
    if mode == "reflect" or state.tail_along(axis).kind != "last":
        _request_copies(site, state, axis, int(begin), reflect=mode == "reflect")
    return state.with_axis(axis, padded, facts.LAST if mode == "edge" else facts.FINITE)


def _tail_behind_number(
    site: RuleSite, state: facts.TensorState, axis: int, number: float, end: sympy.Expr
) -> facts.Tail:
    """Return the tail of time with a number put behind it; ask for a tail of zeros before that."""
    tail = state.tail_along(axis)
    if end == 0:
        return tail
    if end.is_Integer and end < 0:
        return tail.after_arithmetic
    if number == 0:
        return site.require_zero_tail(0, axis, "boundary leak").tail_along(axis)
    if tail == facts.Tail("number", number):
        return tail
    raise RefusedError(f"it pads with {number:g}, and only zeros can be put behind what is valid")


def _request_copies(
    site: RuleSite, state: facts.TensorState, axis: int, begin: int, *, reflect: bool
) -> None:
    """Ask for padding that copies valid frames."""
    size, padded_size = state.size_along(axis), site.output_dims()[axis]
    site.check_size(size)
    site.check_size(padded_size)
    leak: Leak = "frame copy"
    site.request_repair(PadFrames(site.node, leak, axis, size, state, padded_size, begin, reflect))


RULES = {
    "Concat": PaddingRule(infer_concat, AcceptedInputs.SIZES | AcceptedInputs.SHRINKING),
    "Pad": PaddingRule(infer_pad, AcceptedInputs.SIZES),
}
