"""Relative positions: entries that stand for distances, and the shift that puts them in place.

A table of relative positions is cut around its middle, ``table[c - T + 1 : c + T]``, or counted,
``T - 1 - k``, so none of its entries stays where it was when T grows. Such an axis is a
:class:`~graphfix.lengths.tail_state.ShiftedFactor`. Operators on other axes carry it along, until
Pads, Reshapes and Slices, or a GatherElements, read entry ``j - i + shift`` for each i and j: where
``shift + first`` is the same at any length, each entry is in its place. All else is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir
import sympy

from graphfix import ops
from graphfix.facts.shifted_rows import shifted_rows_of
from graphfix.facts.symbolic.signs import never_negative
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op, producer_of
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.number_effects import keeps_finite
from graphfix.lengths.rule_site import PaddingRule, RuleSite
from graphfix.ops.axes import squeezed_axes

_SHIFT_ALIKE = ops.ELEMENTWISE | ops.named("Concat")
"""Operators whose inputs may all be shifted, each in the same way."""
_CARRY_SHIFT = _SHIFT_ALIKE | ops.PRODUCTS | ops.RESHAPES | ops.named("Expand Gather Transpose")
"""Operators that may leave a shifted axis what it was, where their rule says so of the axis."""
_MOVE_ROWS = ops.VIEWS | ops.named("Concat Pad Slice")
"""Operators that shift rows, several of them together."""
_DEEPEST = 12


@dataclass(frozen=True)
class CountingIndex:
    """The index ``start + sum(step * (i % period))`` over axes, i the place along the axis.

    Attributes:
        start: A number, or an expression in the symbol of the padded dim.
        counts: The step and the period of each axis that counts; -1 is the last axis.
    """

    start: sympy.Expr
    counts: dict[int, tuple[int, sympy.Expr]]


def infer_shift_start(site: RuleSite) -> facts.TensorState | None:
    """Infer the state where relative positions begin, as a cut table or a count; or None."""
    node = site.node
    if is_op(node, "Slice"):
        return _cut_table(site)
    begins = is_op(node, "Add", "Range", "Sub", "Tile")
    index = _read_index(site, node.outputs[0]) if begins else None
    if index is None or not (is_op(node, "Tile") or site.grows_with_padding(index.start)):
        return None
    if len(index.counts) != 1 or is_op(node, "Tile"):
        return _moving_state(site)
    ((place, (step, _)),) = index.counts.items()
    sizes = site.output_dims()
    axes = [site.axis_of_size(x) for x in sizes]
    axes[place] = (facts.ShiftedFactor(sizes[place], index.start / step),)
    return facts.TensorState(tuple(axes), (None,) * len(axes))


def is_two_sided(state: facts.TensorState, site: RuleSite) -> bool:
    """Return whether a tensor counts distances to both sides, 2 * T - 1, or indexes these."""
    if state.moving:
        return True
    times = {facts.size_of(x.factors_of(i)) for x in site.present_states() for i in x.time_axes}
    sizes = [x[0] for i in range(len(site.states)) if (x := site.input_contents(i)) and len(x) == 1]
    return any((sympy.expand(time - 2 * size)).is_Integer for time in times for size in sizes)


def follow_shift(site: RuleSite, rule: PaddingRule | None, view: View) -> facts.TensorState:
    """Infer the output's state of a node that reads relative positions.

    Raises:
        RefusedError: The node neither carries nor shifts them.
    """
    node = site.node
    if not any(x.moving for x in site.present_states()):
        carried = None if rule is None else _carry_shift(site, rule)
        result = carried or (_cut_table(site) if is_op(node, "Slice") else None)
        if result is not None:
            return result
    if is_op(node, "GatherElements"):
        return _settle_picked_entries(site)
    if is_op(node, "Slice") and (result := _settle_moved_rows(site, view)) is not None:
        return result
    if node in _MOVE_ROWS or _read_index(site, node.outputs[0]) is not None:
        return _moving_state(site)
    raise RefusedError("it computes with positions that move when the clip is padded")


def _moving_state(site: RuleSite) -> facts.TensorState:
    axes = site.output_axes()
    return facts.TensorState(axes, (None,) * len(axes), moving=True)


def _cut_table(site: RuleSite) -> facts.TensorState | None:
    """Infer a table, or a shifted tensor, cut from a start that depends on the length; or None."""
    state = site.input_state()
    cuts = None if state.axes is None else site.slice_cuts(state.rank)
    if cuts is None or len(cuts) != 1:
        return None
    ((axis, cut),) = cuts.items()
    factors = state.factors_of(axis)
    if cut.start is None or cut.step != 1 or not facts.counts_from_start(cut.start):
        return None
    if len(factors) != 1:
        return None
    factor, out = factors[0], site.output_dims()[axis]
    if isinstance(factor, facts.ShiftedFactor):
        shifted = replace(factor, size=out, first=factor.first + cut.start)
    elif (
        isinstance(factor, facts.OtherFactor)
        and factor.size.is_Integer
        and site.grows_with_padding(cut.start)
    ):
        shifted = facts.ShiftedFactor(out, cut.start)
    else:
        return None
    return replace(state.with_axis(axis, (shifted,), None), fixed=False)


def _carry_shift(site: RuleSite, rule: PaddingRule) -> facts.TensorState | None:
    """Apply a rule to the other axes if the shifted one stays as it is; or None."""
    before = site.present_states()
    shift = _common_shift(site.node, before)
    if shift is None:
        return None
    states_before = list(site.states)
    try:
        result = rule.infer_states(site)
    except RefusedError:
        result = ()
    kept_axis = _only_axis_like(result, shift) if isinstance(result, facts.TensorState) else None
    if not isinstance(result, facts.TensorState) or kept_axis is None:
        site.states, site.repairs = states_before, []
        return None
    operator = ops.qualified_name(site.node)
    if operator in ops.ELEMENTWISE and not keeps_finite(operator, before):
        shift = replace(shift, finite=False)
    return replace(result.with_axis(kept_axis, (shift,), None), fixed=False)


def _common_shift(node: ir.Node, states: Sequence[facts.TensorState]) -> facts.ShiftedFactor | None:
    """Return the shift that one axis of each shifted input has, if the node may carry it."""
    shifted = [x for x in states if x.shifted_axes]
    axes = {x.factors_of(i) for x in shifted for i in x.shifted_axes}
    if len(axes) != 1 or any(len(x.shifted_axes) != 1 for x in shifted):
        return None
    if node not in (_CARRY_SHIFT if len(shifted) == 1 else _SHIFT_ALIKE):
        return None
    factors = axes.pop()
    return factors[0] if len(factors) == 1 and isinstance(factors[0], facts.ShiftedFactor) else None


def _only_axis_like(state: facts.TensorState, shift: facts.ShiftedFactor) -> int | None:
    """Return the axis of a result that is shifted in this way, if no other axis is shifted."""
    axes = state.shifted_axes
    return axes[0] if len(axes) == 1 and state.factors_of(axes[0]) == (shift,) else None


def _settle_moved_rows(site: RuleSite, view: View) -> facts.TensorState | None:
    """Infer rows that Pads, Reshapes and Slices have put in place."""
    rows = shifted_rows_of(site.node.outputs[0], view)
    state = None if rows is None else site.state_of(rows.source)
    if rows is None or state is None or state.moving or rows.reads_outside:
        return None
    last = state.rank - 1
    if state.shifted_axes != (last,) or facts.sole_time(state.factors_of(last - 1)) is None:
        return None
    return _settle_shift(site, state, last, rows.shift)


def _settle_picked_entries(site: RuleSite) -> facts.TensorState:
    """Infer entries that a GatherElements puts in place by a counting index."""
    data, index = site.input_state(), _read_index(site, site.node.inputs[1])
    sizes = site.dims_of(site.node.inputs[1])
    axis = site.axis_attribute(data.rank)
    state = None
    is_shifted = data.shifted_axes == (axis,) and not data.moving
    if is_shifted and index and sizes and _picks_in_every_place(data, axis, index, sizes):
        state = _settle_shift(site, data, axis, index.start)
    if state is None:
        raise RefusedError("it reads at positions that move when the clip is padded")
    return state


def _picks_in_every_place(
    data: facts.TensorState, axis: int, index: CountingIndex, sizes: Sequence[sympy.Expr]
) -> bool:
    """Return whether an index of these sizes counts frames, and picks one for each place."""
    other_axes = [i for i in range(data.rank) if i != axis]
    if not all(facts.same_size(sizes[i], data.size_along(i)) for i in other_axes):
        return False
    counts = {i % data.rank: x for i, x in index.counts.items()}
    counts_frames = all(
        facts.same_size(period, sizes[i] if i == axis else _innermost_time(data, i))
        for i, (_, period) in counts.items()
    )
    least = sum((min(step, 0) * (period - 1) for step, period in counts.values()), index.start)
    return counts_frames and never_negative(sympy.expand(least))


def _innermost_time(state: facts.TensorState, axis: int) -> sympy.Expr:
    """Return the number of frames in the innermost factor of an axis; 0 if that is not time."""
    factor = state.factors_of(axis)[-1] if state.factors_of(axis) else None
    is_time = isinstance(factor, facts.TimeFactor) and not factor.reversed
    return factor.size if factor is not None and is_time else sympy.S.Zero


def _settle_shift(
    site: RuleSite, state: facts.TensorState, axis: int, shift: sympy.Expr
) -> facts.TensorState | None:
    """Return a state without shift if entry (i, j) stands for the same distance at any length."""
    (factor,) = state.factors_of(axis)
    if not isinstance(factor, facts.ShiftedFactor):
        return None
    if not facts.never_changes(sympy.expand(shift + factor.first)):
        return None
    axes = list(state.axes or ())
    axes[axis] = site.axis_of_size(site.output_dims()[axis])
    return facts.state_with_tail(
        axes, facts.FINITE if state.is_finite and factor.finite else facts.ANY
    )


def _read_index(
    site: RuleSite, value: ir.Value | None, depth: int = _DEEPEST
) -> CountingIndex | None:
    """Return the counting index that an integer tensor holds, or None."""
    node = producer_of(value)
    if value is None or not depth:
        return None
    index = _index_of_state(site, value)
    if index is not None:
        return index
    if is_op(node, "Range"):
        return _index_of_range(site, node)
    if is_op(node, "Add", "Sub"):
        lhs, rhs = (_read_index(site, x, depth - 1) for x in node.inputs)
        return _add_indices(lhs, rhs, 1 if node.op_type == "Add" else -1)
    if is_op(node, "Unsqueeze"):
        inner = _read_index(site, node.inputs[0], depth - 1)
        rank = site.source.shapes.rank(value)
        axes = None if rank is None else squeezed_axes(node, rank)
        if inner is None or axes is None or rank is None:
            return None
        return _unsqueeze_index(inner, axes, rank)
    if is_op(node, "Cast", "Expand", "Identity", "Tile"):
        return _read_index(site, node.inputs[0], depth - 1)
    return None


def _index_of_state(site: RuleSite, value: ir.Value) -> CountingIndex | None:
    """Return the index that follows from the state of a tensor: one number, or steps."""
    state, contents = site.state_of(value), site.contents_of(value)
    if contents is not None and len(contents) == 1:
        return CountingIndex(contents[0], {})
    if state is None or state.steps is None or len(state.time_axes) != 1:
        return None
    (axis,), (start, step) = state.time_axes, state.steps
    counts = {axis - state.rank: (step, state.size_along(axis))}
    return CountingIndex(sympy.Integer(start), counts)


def _index_of_range(site: RuleSite, node: ir.Node) -> CountingIndex | None:
    first, _, step = map(site.contents_of, node.inputs)
    sizes = site.dims_of(node.outputs[0])
    if not first or not step or not sizes or not step[0].is_Integer or not step[0]:
        return None
    return CountingIndex(first[0], {-1: (int(step[0]), sizes[0])})


def _add_indices(
    a: CountingIndex | None, b: CountingIndex | None, sign: int
) -> CountingIndex | None:
    """Return the sum or difference of two indices that count along different axes."""
    if a is None or b is None or a.counts.keys() & b.counts.keys():
        return None
    signed = {axis: (sign * step, period) for axis, (step, period) in b.counts.items()}
    return CountingIndex(a.start + sign * b.start, {**a.counts, **signed})


def _unsqueeze_index(index: CountingIndex, axes: Sequence[int], rank: int) -> CountingIndex:
    """Return the same index with axes of size 1 at these places."""
    old_axes = [i - rank for i in range(rank) if i not in axes]
    return CountingIndex(index.start, {old_axes[i]: x for i, x in index.counts.items()})
