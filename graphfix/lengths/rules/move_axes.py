"""Rules for operators that move whole axes, or repeat them."""

import dataclasses

import sympy

from graphfix.lengths.joint_axes import RefusedError, require_sole_time
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.rules.result_tail import tail_from_end
from graphfix.lengths.tail_state import (
    LAST,
    Axis,
    OtherFactor,
    Tail,
    TensorState,
    carries_time,
    fixed_axis,
    holds_rows,
)
from graphfix.ops.axes import permutation_of
from graphfix.ops.splits import read_sequence_part, sequence_data


def infer_transpose(site: RuleSite) -> TensorState:
    """Move the axes to their new places."""
    state = site.input_state()
    perm = permutation_of(site.node, state.rank)
    if len(perm) != state.rank:
        raise RefusedError(f"it permutes other axes than the {state.rank} of its input")
    return state.rearrange_axes(perm)


def infer_unsqueeze(site: RuleSite) -> TensorState:
    """Insert axes of size 1."""
    state, axes = site.input_state(), site.axes_operand()
    if state.axes is None:
        return site.output_without_time()
    if axes is None:
        raise RefusedError("its axes are not constant")
    rank = state.rank + len(axes)
    new = {x % rank for x in axes}
    old = iter(range(state.rank))
    return state.rearrange_axes([None if i in new else next(old) for i in range(rank)])


def infer_squeeze(site: RuleSite) -> TensorState:
    """Drop axes of size 1."""
    state, axes = site.input_state(), site.axes_operand()
    if state.axes is None:
        return site.output_without_time()
    if axes is None:
        axes = tuple(i for i, x in enumerate(state.axes) if not x)
        if state.rank - len(axes) != len(site.output_dims()):
            raise RefusedError("it drops whatever axes are of size 1")
    dropped_axes = {x % state.rank for x in axes}
    for axis in dropped_axes:
        if carries_time(state.factors_of(axis)):
            raise RefusedError("it drops the axis that carries time")
    return state.rearrange_axes([i for i in range(state.rank) if i not in dropped_axes])


def infer_expand(site: RuleSite) -> TensorState:
    """Repeat axes of size 1."""
    state, out_axes = site.input_state(), site.output_axes()
    if state.counts_padding:
        return dataclasses.replace(state, axes=out_axes, tails=(None,) * len(out_axes))
    if state.axes is None:
        return site.output_without_time()
    old = ((),) * (len(out_axes) - state.rank) + state.axes
    axes = tuple(a or site.axis_of_repeats(x) for a, x in zip(old, site.output_dims(), strict=True))
    places = zip(range(-len(out_axes), 0), axes, strict=True)
    tails = (tail_from_end(state, i) if carries_time(x) else None for i, x in places)
    steps = state.steps if sum(map(carries_time, axes)) == len(state.time_axes) else None
    return dataclasses.replace(state, axes=axes, tails=tuple(tails), steps=steps)


def infer_tile(site: RuleSite) -> TensorState:
    """Repeat axes of size 1, and axes without time."""
    state, repeats = site.input_state(), site.input_contents(1)
    if state.axes is None or repeats is None:
        raise RefusedError("how often it repeats is not known")
    out_axes = site.output_axes()
    axes, tails = list[Axis](), list[Tail | None]()
    for i, (axis, count) in enumerate(zip(state.axes, repeats, strict=True)):
        if count == 1:
            axes.append(axis)
            tails.append(state.tails[i])
        elif carries_time(axis):
            raise RefusedError("it repeats the axis that carries time")
        elif not axis:
            axes.append(out_axes[i])
            tails.append(state.tail_of_copies(LAST) if carries_time(out_axes[i]) else None)
        else:
            axes.append((OtherFactor(count), *axis))
            tails.append(None)
    return dataclasses.replace(state, axes=tuple(axes), tails=tuple(tails), steps=None, length=None)


def infer_split(site: RuleSite) -> list[TensorState | None]:
    """Split an axis without time."""
    state = site.input_state()
    if state.counts_padding:
        raise RefusedError("it splits a vector of sizes")
    axis = site.axis_attribute(state.rank)
    if carries_time(state.factors_of(axis)):
        raise RefusedError("it splits the axis that carries time")
    sizes = [site.output_dims(i)[axis] for i in range(len(site.node.outputs))]
    return [state.with_axis(axis, fixed_axis(x), None) for x in sizes]


def infer_split_to_sequence(site: RuleSite) -> TensorState:
    """Infer the parts of an axis without time: of each, what is known of the whole."""
    state = site.input_state()
    axis = site.axis_attribute(state.rank)
    if carries_time(state.factors_of(axis)):
        raise RefusedError("it splits the axis that carries time")
    if holds_rows(state.factors_of(axis)):
        raise RefusedError("it splits the batch")
    return state


def infer_sequence_at(site: RuleSite) -> TensorState:
    """Infer one part of a SplitToSequence."""
    state, data = site.input_state(), sequence_data(site.node)
    dims = site.dims_of(data) or ()
    sizes = [int(x) if x.is_Integer else None for x in dims]
    part = None if data is None else read_sequence_part(site.node, sizes, site.ints_of)
    if state.axes is None or part is None:
        raise RefusedError("which part of a sequence it takes is not known")
    if part.keeps_axis:
        return state.with_axis(part.axis, fixed_axis(sympy.Integer(part.size)), None)
    return state.rearrange_axes([i for i in range(state.rank) if i != part.axis])


def infer_trilu(site: RuleSite) -> TensorState:
    """Keep a triangle of the last two axes, with zeros outside."""
    state = site.input_state()
    if state.axes is None:
        return site.output_without_time()
    for axis in filter(carries_time, state.axes[-2:]):
        require_sole_time(axis, "an axis of it")
    if site.has_input(1) and not site.input_state(1).fixed:
        raise RefusedError("which diagonal it begins at is not fixed")
    triangle = state.with_other_numbers(
        state.tails_after_arithmetic(zeros=True), min(state.sign, 1)
    )
    return dataclasses.replace(triangle, length=state.length)


RULES = {
    "Expand": PaddingRule(
        infer_expand, AcceptedInputs.SIZES | AcceptedInputs.SHRINKING | AcceptedInputs.PLACES
    ),
    "SequenceAt": PaddingRule(infer_sequence_at),
    "Split": PaddingRule(infer_split, AcceptedInputs.SIZES_BEHIND),
    "SplitToSequence": PaddingRule(infer_split_to_sequence, AcceptedInputs.SIZES_BEHIND),
    "Squeeze": PaddingRule(infer_squeeze, AcceptedInputs.SIZES),
    "Tile": PaddingRule(infer_tile, AcceptedInputs.SIZES | AcceptedInputs.SHRINKING),
    "Transpose": PaddingRule(infer_transpose, AcceptedInputs.SIZES),
    "Trilu": PaddingRule(infer_trilu),
    "Unsqueeze": PaddingRule(infer_unsqueeze, AcceptedInputs.SIZES),
}
