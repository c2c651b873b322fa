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

from graphfix.facts.shifted_rows import shifted_rows_of
from graphfix.facts.symbolic.signs import never_negative
from graphfix.facts.view import View
from graphfix.graph.constants import axes_of
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.number_effects import MANY, UNARY, keeps_finite
from graphfix.lengths.rule_site import PaddingRule, RuleSite

_ALL_ALIKE = frozenset({*UNARY, *MANY, "Concat"})
"""Operators whose inputs may all be shifted, each in the same way."""
_CARRY = _ALL_ALIKE | {"Einsum", "Expand", "Gather", "Gemm", "MatMul", "Reshape", "Squeeze"}
_CARRY |= {"Transpose", "Unsqueeze"}
_MOVE = ("Concat", "Identity", "Pad", "Reshape", "Slice", "Squeeze", "Unsqueeze")
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
    """Infer the output's state where relative positions begin: a table that is cut, a count."""
    node = site.node
    if node.op_type == "Slice":
        return _cut_table(site)
    begins = node.op_type in ("Add", "Range", "Sub", "Tile")
    index = _read_index(site, node.outputs[0]) if begins else None
    if index is None or not (node.op_type == "Tile" or site.grows_with_padding(index.start)):
        return None
    if len(index.counts) != 1 or node.op_type == "Tile":
        return _moving_state(site)
    ((place, (step, _)),) = index.counts.items()
    sizes = site.output_dims()
    axes = [site.axis_of_size(x) for x in sizes]
    axes[place] = (facts.ShiftedFactor(sizes[place], index.start / step),)
    return facts.TensorState(tuple(axes), (None,) * len(axes))


def is_two_sided(state: facts.TensorState, site: RuleSite) -> bool:
    """Return whether it is as long as distances to both sides, or an index of these."""
    if state.moving:
        return True
    times = {
        facts.size_of(x.factors_of(i)) for x in site.states if x is not None for i in x.time_axes
    }
    sizes = [x[0] for i in range(len(site.states)) if (x := site.input_contents(i)) and len(x) == 1]
    return any((sympy.expand(time - 2 * size)).is_Integer for time in times for size in sizes)


def follow_shift(site: RuleSite, rule: PaddingRule | None, view: View) -> facts.TensorState:
    """Infer the output's state of a node that reads relative positions.

    Raises:
        RefusedError: It does something else with them than to carry or to shift them.
    """
    node = site.node
    if not any(x is not None and x.moving for x in site.states):
        carried = None if rule is None else _carry_shift(site, rule)
        result = carried or (_cut_table(site) if node.op_type == "Slice" else None)
        if result is not None:
            return result
    if node.op_type == "GatherElements":
        return _settle_picked_entries(site)
    if node.op_type == "Slice" and (result := _settle_moved_rows(site, view)) is not None:
        return result
    if node.op_type in _MOVE or _read_index(site, node.outputs[0]) is not None:
        return _moving_state(site)
    raise RefusedError("it computes with positions that move when the clip is padded")


def _moving_state(site: RuleSite) -> facts.TensorState:
    axes = site.output_axes()
    return facts.TensorState(axes, (None,) * len(axes), moving=True)


def _cut_table(site: RuleSite) -> facts.TensorState | None:
    """Infer a table, or what is shifted already, cut at a place that depends on the length."""
    state, starts = site.input_state(), site.input_contents(1)
    axes = site.input_contents(3) if site.has_input(3) else [sympy.Integer(0)]
    steps = site.input_contents(4) if site.has_input(4) else [sympy.Integer(1)]
    if state.axes is None or starts is None or axes is None or steps != [1] or len(starts) != 1:
        return None
    axis, start = int(axes[0]) % state.rank, starts[0]
    factors = state.factors_of(axis)
    if len(factors) != 1 or len(axes) != 1 or not facts.counts_from_start(start):
        return None
    atom, out = factors[0], site.output_dims()[axis]
    if isinstance(atom, facts.ShiftedFactor):
        cut = replace(atom, size=out, first=atom.first + start)
    elif (
        isinstance(atom, facts.OtherFactor)
        and atom.size.is_Integer
        and site.grows_with_padding(start)
    ):
        cut = facts.ShiftedFactor(out, start)
    else:
        return None
    return replace(state.with_axis(axis, (cut,), None), fixed=False)


def _carry_shift(site: RuleSite, rule: PaddingRule) -> facts.TensorState | None:
    """Apply a rule to the other axes, if the shifted one stays what it was."""
    op_type = site.node.op_type
    shifted_states = [x for x in site.states if x is not None and x.shifted_axes]
    atoms = {x.factors_of(i) for x in shifted_states for i in x.shifted_axes}
    is_single = len(atoms) == 1 and all(len(x.shifted_axes) == 1 for x in shifted_states)
    if (
        op_type not in _CARRY
        or not is_single
        or (len(shifted_states) > 1 and op_type not in _ALL_ALIKE)
    ):
        return None
    before = list(site.states)
    try:
        result = rule.infer_states(site)
    except RefusedError:
        result = ()
    if isinstance(result, facts.TensorState) and [
        result.factors_of(i) for i in result.shifted_axes
    ] == [*atoms]:
        axis, (atom,) = result.shifted_axes[0], result.factors_of(result.shifted_axes[0])
        states = [x for x in before if x is not None]
        stays_finite = op_type not in UNARY | MANY or keeps_finite(op_type, states)
        if isinstance(atom, facts.ShiftedFactor) and not stays_finite:
            atom = replace(atom, finite=False)
        return replace(result.with_axis(axis, (atom,), None), fixed=False)
    site.states, site.repairs = before, []
    return None


def _settle_moved_rows(site: RuleSite, view: View) -> facts.TensorState | None:
    """Infer what Pads, Reshapes and Slices have put in place."""
    rows = shifted_rows_of(site.node.outputs[0], view)
    state = None if rows is None else site.state_of(rows.source)
    if rows is None or state is None or state.moving or rows.reads_outside:
        return None
    last = state.rank - 1
    if state.shifted_axes != (last,) or facts.sole_time(state.factors_of(last - 1)) is None:
        return None
    return _settle_shift(site, state, last, rows.shift)


def _settle_picked_entries(site: RuleSite) -> facts.TensorState:
    """Infer what a GatherElements puts in place, by an index that says which entry it is."""
    data, index = site.input_state(), _read_index(site, site.node.inputs[1])
    sizes = site.dims_of(site.node.inputs[1])
    axis = attr_int(site.node, "axis", 0) % data.rank
    state = None
    if index is not None and sizes is not None and data.shifted_axes == (axis,) and not data.moving:
        other_axes = [i for i in range(data.rank) if i != axis]
        sizes_match = all(
            facts.same_size(sizes[i], facts.size_of(data.factors_of(i))) for i in other_axes
        )
        counts = {i % data.rank: x for i, x in index.counts.items()}
        low = sum((min(step, 0) * (period - 1) for step, period in counts.values()), index.start)
        periods_match = all(
            facts.same_size(period, sizes[i] if i == axis else _innermost_time(data, i))
            for i, (_, period) in counts.items()
        )
        if sizes_match and periods_match and never_negative(sympy.expand(low)):
            state = _settle_shift(site, data, axis, index.start)
    if state is None:
        raise RefusedError("it reads at positions that move when the clip is padded")
    return state


def _innermost_time(state: facts.TensorState, axis: int) -> sympy.Expr:
    """Return how many frames there are in a row along an axis; 0 where they are none."""
    atom = state.factors_of(axis)[-1] if state.factors_of(axis) else None
    return atom.size if isinstance(atom, facts.TimeFactor) and not atom.turned else sympy.S.Zero


def _settle_shift(
    site: RuleSite, state: facts.TensorState, axis: int, shift: sympy.Expr
) -> facts.TensorState | None:
    """Return a state without shift if entry (i, j) belongs to their distance at any length."""
    (atom,) = state.factors_of(axis)
    if not isinstance(atom, facts.ShiftedFactor) or not facts.never_changes(
        sympy.expand(shift + atom.first)
    ):
        return None
    axes = list(state.axes or ())
    axes[axis] = site.axis_of_size(site.output_dims()[axis])
    return facts.state_with_tail(
        axes, facts.FINITE if state.is_finite and atom.finite else facts.ANY
    )


def _read_index(
    site: RuleSite, value: ir.Value | None, depth: int = _DEEPEST
) -> CountingIndex | None:
    """Return what an integer tensor counts along its axes, if it is nothing but that."""
    node = producer_of(value)
    if value is None or not depth:
        return None
    state, contents = site.state_of(value), site.contents_of(value)
    if contents is not None and len(contents) == 1:
        return CountingIndex(contents[0], {})
    if state is not None and state.steps is not None and len(state.time_axes) == 1:
        (axis,), (start, step) = state.time_axes, state.steps
        return CountingIndex(
            sympy.Integer(start), {axis - state.rank: (step, facts.size_of(state.factors_of(axis)))}
        )
    if is_op(node, "Range"):
        first, _, by = map(site.contents_of, node.inputs)
        sizes = site.dims_of(value)
        if not first or not by or not sizes or not by[0].is_Integer or not by[0]:
            return None
        return CountingIndex(first[0], {-1: (int(by[0]), sizes[0])})
    if is_op(node, "Add", "Sub"):
        lhs, rhs = (_read_index(site, x, depth - 1) for x in node.inputs)
        return _add_indices(lhs, rhs, 1 if node.op_type == "Add" else -1)
    if not is_op(node, "Cast", "Expand", "Identity", "Tile", "Unsqueeze"):
        return None
    inner, axes = _read_index(site, node.inputs[0], depth - 1), axes_of(node)
    if inner is None or not is_op(node, "Unsqueeze"):
        return inner
    rank = site.source.shapes.rank(value)
    return None if axes is None or rank is None else _unsqueeze_index(inner, axes, rank)


def _add_indices(
    a: CountingIndex | None, b: CountingIndex | None, sign: int
) -> CountingIndex | None:
    """Return the sum, or the difference, of two that count along axes of their own."""
    if a is None or b is None or a.counts.keys() & b.counts.keys():
        return None
    turned = {axis: (sign * step, period) for axis, (step, period) in b.counts.items()}
    return CountingIndex(a.start + sign * b.start, {**a.counts, **turned})


def _unsqueeze_index(index: CountingIndex, axes: Sequence[int], rank: int) -> CountingIndex:
    """Return the same index with axes of size 1 at these places."""
    new = {x % rank for x in axes}
    old_axes = [i - rank for i in range(rank) if i not in new]
    return CountingIndex(index.start, {old_axes[i]: x for i, x in index.counts.items()})
