"""Relative positions: entries that stand for distances, and the shift that puts them in place.

A table of relative positions is cut around its middle, ``table[c - T + 1 : c + T]``, or counted,
``T - 1 - k``, so none of its entries stays where it was when T grows. Such an axis is
:class:`~graphfix.lengths.tail_state.Shifted`. Operators on other axes carry it along, until Pads,
Reshapes and Slices, or a GatherElements, read entry ``j - i + shift`` for each i and j: where
``shift + first`` is the same at any length, each entry is in its place. All else is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir
import sympy

from graphfix.facts.shifted_rows import moved_rows
from graphfix.facts.symbolic.signs import never_negative
from graphfix.facts.view import View
from graphfix.graph.constants import axes_of
from graphfix.graph.nodes import attr_int, is_op, maker_of
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.number_effects import MANY, UNARY, keeps_finite
from graphfix.lengths.rule_site import Rule, Site

_ALL_ALIKE = frozenset({*UNARY, *MANY, "Concat"})
"""Operators whose inputs may all be shifted, each in the same way."""
_CARRY = _ALL_ALIKE | {"Einsum", "Expand", "Gather", "Gemm", "MatMul", "Reshape", "Squeeze"}
_CARRY |= {"Transpose", "Unsqueeze"}
_MOVE = ("Concat", "Identity", "Pad", "Reshape", "Slice", "Squeeze", "Unsqueeze")
_DEEPEST = 12


@dataclass(frozen=True)
class Index:
    """``start + sum(step * (i % period))`` over axes, with i the place along the axis.

    Attributes:
        start: A number, or an expression in the symbol of the padded dim.
        counts: The step and the period of each axis that counts; -1 is the last axis.
    """

    start: sympy.Expr
    counts: dict[int, tuple[int, sympy.Expr]]


def begin(site: Site) -> facts.State | None:
    """The state of a node's output where relative positions begin: a table that is cut, a count."""
    node = site.node
    if node.op_type == "Slice":
        return _cut(site)
    begins = node.op_type in ("Add", "Range", "Sub", "Tile")
    index = _index(site, node.outputs[0]) if begins else None
    if index is None or not (node.op_type == "Tile" or site.grows(index.start)):
        return None
    if len(index.counts) != 1 or node.op_type == "Tile":
        return _moving(site)
    ((place, (step, _)),) = index.counts.items()
    sizes = site.out_dims()
    axes = [site.axis_of(x) for x in sizes]
    axes[place] = (facts.Shifted(sizes[place], index.start / step),)
    return facts.State(tuple(axes), (None,) * len(axes))


def is_both_ways(state: facts.State, site: Site) -> bool:
    """Whether what begins there is as long as distances to both sides, or an index of these."""
    if state.moving:
        return True
    times = {facts.size_of(x.at(i)) for x in site.states if x is not None for i in x.timed}
    sizes = [x[0] for i in range(len(site.states)) if (x := site.contents(i)) and len(x) == 1]
    return any((sympy.expand(time - 2 * size)).is_Integer for time in times for size in sizes)


def follow(site: Site, rule: Rule | None, view: View) -> facts.State:
    """The state of the output of a node that reads relative positions.

    Raises:
        RefusedError: It does something else with them than to carry or to shift them.
    """
    node = site.node
    if not any(x is not None and x.moving for x in site.states):
        carried = None if rule is None else _carried(site, rule)
        found = carried or (_cut(site) if node.op_type == "Slice" else None)
        if found is not None:
            return found
    if node.op_type == "GatherElements":
        return _picked(site)
    if node.op_type == "Slice" and (found := _moved(site, view)) is not None:
        return found
    if node.op_type in _MOVE or _index(site, node.outputs[0]) is not None:
        return _moving(site)
    raise RefusedError("it computes with positions that move when the clip is padded")


def _moving(site: Site) -> facts.State:
    axes = site.axes_of()
    return facts.State(axes, (None,) * len(axes), moving=True)


def _cut(site: Site) -> facts.State | None:
    """A table, or what is shifted already, from a place on that depends on the length."""
    state, starts = site.state(), site.contents(1)
    axes = site.contents(3) if site.has(3) else [sympy.Integer(0)]
    steps = site.contents(4) if site.has(4) else [sympy.Integer(1)]
    if state.axes is None or starts is None or axes is None or steps != [1] or len(starts) != 1:
        return None
    axis, start = int(axes[0]) % state.rank, starts[0]
    factors = state.at(axis)
    if len(factors) != 1 or len(axes) != 1 or not facts.begins_in_front(start):
        return None
    atom, out = factors[0], site.out_dims()[axis]
    if isinstance(atom, facts.Shifted):
        cut = replace(atom, size=out, first=atom.first + start)
    elif isinstance(atom, facts.Other) and atom.size.is_Integer and site.grows(start):
        cut = facts.Shifted(out, start)
    else:
        return None
    return replace(state.with_axis(axis, (cut,), None), fixed=False)


def _carried(site: Site, rule: Rule) -> facts.State | None:
    """What a rule makes of the other axes, if the shifted one is what it was."""
    op_type = site.node.op_type
    given = [x for x in site.states if x is not None and x.shifted]
    atoms = {x.at(i) for x in given for i in x.shifted}
    alone = len(atoms) == 1 and all(len(x.shifted) == 1 for x in given)
    if op_type not in _CARRY or not alone or (len(given) > 1 and op_type not in _ALL_ALIKE):
        return None
    before = list(site.states)
    try:
        result = rule.apply(site)
    except RefusedError:
        result = ()
    if isinstance(result, facts.State) and [result.at(i) for i in result.shifted] == [*atoms]:
        axis, (atom,) = result.shifted[0], result.at(result.shifted[0])
        states = [x for x in before if x is not None]
        kept = op_type not in UNARY | MANY or keeps_finite(op_type, states)
        if isinstance(atom, facts.Shifted) and not kept:
            atom = replace(atom, finite=False)
        return replace(result.with_axis(axis, (atom,), None), fixed=False)
    site.states, site.repairs = before, []
    return None


def _moved(site: Site, view: View) -> facts.State | None:
    """What Pads, Reshapes and Slices have put in place."""
    moved = moved_rows(site.node.outputs[0], view)
    state = None if moved is None else site.known(moved.source)
    if moved is None or state is None or state.moving or moved.beyond:
        return None
    last = state.rank - 1
    if state.shifted != (last,) or facts.time_of(state.at(last - 1)) is None:
        return None
    return _settled(site, state, last, moved.shift)


def _picked(site: Site) -> facts.State:
    """What a GatherElements puts in place, by an index that says which entry it is."""
    data, index = site.state(), _index(site, site.node.inputs[1])
    sizes = site.dims(site.node.inputs[1])
    axis = attr_int(site.node, "axis", 0) % data.rank
    found = None
    if index is not None and sizes is not None and data.shifted == (axis,) and not data.moving:
        others = [i for i in range(data.rank) if i != axis]
        whole = all(facts.same_size(sizes[i], facts.size_of(data.at(i))) for i in others)
        counts = {i % data.rank: x for i, x in index.counts.items()}
        low = sum((min(step, 0) * (period - 1) for step, period in counts.values()), index.start)
        alone = all(
            facts.same_size(period, sizes[i] if i == axis else _innermost(data, i))
            for i, (_, period) in counts.items()
        )
        if whole and alone and never_negative(sympy.expand(low)):
            found = _settled(site, data, axis, index.start)
    if found is None:
        raise RefusedError("it reads at positions that move when the clip is padded")
    return found


def _innermost(state: facts.State, axis: int) -> sympy.Expr:
    """How many frames there are in a row along an axis; 0 where they are none."""
    atom = state.at(axis)[-1] if state.at(axis) else None
    return atom.size if isinstance(atom, facts.Time) and not atom.turned else sympy.S.Zero


def _settled(site: Site, state: facts.State, axis: int, shift: sympy.Expr) -> facts.State | None:
    """Entry (i, j) is what belongs to their distance, if that is so at any length."""
    (atom,) = state.at(axis)
    if not isinstance(atom, facts.Shifted) or not facts.never_changes(
        sympy.expand(shift + atom.first)
    ):
        return None
    axes = list(state.axes or ())
    axes[axis] = site.axis_of(site.out_dims()[axis])
    return facts.with_tails(axes, facts.FINITE if state.is_finite and atom.finite else facts.ANY)


def _index(site: Site, value: ir.Value | None, depth: int = _DEEPEST) -> Index | None:
    """What an integer tensor counts along its axes, if it is nothing but that."""
    node = maker_of(value)
    if value is None or not depth:
        return None
    state, held = site.known(value), site.held(value)
    if held is not None and len(held) == 1:
        return Index(held[0], {})
    if state is not None and state.steps is not None and len(state.timed) == 1:
        (axis,), (start, step) = state.timed, state.steps
        return Index(
            sympy.Integer(start), {axis - state.rank: (step, facts.size_of(state.at(axis)))}
        )
    if is_op(node, "Range"):
        first, _, by = map(site.held, node.inputs)
        sizes = site.dims(value)
        if not first or not by or not sizes or not by[0].is_Integer or not by[0]:
            return None
        return Index(first[0], {-1: (int(by[0]), sizes[0])})
    if is_op(node, "Add", "Sub"):
        left, right = (_index(site, x, depth - 1) for x in node.inputs)
        return _sum(left, right, 1 if node.op_type == "Add" else -1)
    if not is_op(node, "Cast", "Expand", "Identity", "Tile", "Unsqueeze"):
        return None
    inner, axes = _index(site, node.inputs[0], depth - 1), axes_of(node)
    if inner is None or not is_op(node, "Unsqueeze"):
        return inner
    rank = site.source.shapes.rank(value)
    return None if axes is None or rank is None else _unsqueezed(inner, axes, rank)


def _sum(a: Index | None, b: Index | None, sign: int) -> Index | None:
    """The sum, or the difference, of two that count along axes of their own."""
    if a is None or b is None or a.counts.keys() & b.counts.keys():
        return None
    turned = {axis: (sign * step, period) for axis, (step, period) in b.counts.items()}
    return Index(a.start + sign * b.start, {**a.counts, **turned})


def _unsqueezed(index: Index, axes: Sequence[int], rank: int) -> Index:
    """The same with axes of size 1 at these places."""
    new = {x % rank for x in axes}
    kept = [i - rank for i in range(rank) if i not in new]
    return Index(index.start, {kept[i]: x for i, x in index.counts.items()})
