"""Element-wise operators: what is valid stays valid; the tail is computed where it is a number."""

import dataclasses
import math
from collections.abc import Sequence

import onnx_ir as ir
import sympy

from graphfix.facts.symbolic.signs import never_negative
from graphfix.graph.nodes import attr_int, is_op, maker_of
from graphfix.lengths import number_effects
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, join
from graphfix.lengths.rule_site import Rule, Site, Takes
from graphfix.lengths.rules.result_tail import tail_of
from graphfix.lengths.rules.shape_ops import of_sizes

_ASKS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_PARAMETERS = {"Clip": 1, "Dropout": 1, "CastLike": 1}


def elementwise(site: Site) -> facts.State:
    """The rule of all of them."""
    op_type = site.node.op_type
    states = [x for x in site.states if x is not None]
    axes = _broadcast(site, states)
    flat = None if axes is None else _flat(site, axes)
    known = _sizes(site, states) if flat is None else flat
    if known is not None:
        return known
    if axes is None:
        return facts.plain(None)
    compared = _compared(site, axes)
    if compared is not None:
        return compared
    for i, state in enumerate(site.states):
        if state is not None and state.physical:
            if i and op_type in _PARAMETERS and site.source.batch is not None:
                raise RefusedError("its bound is a size, and each row has a length of its own")
            site.need_length(i, axes)
    states = [x for x in site.states if x is not None]
    return _combined(site, op_type, states, axes)


def _combined(
    site: Site, op_type: str, states: Sequence[facts.State], axes: tuple[facts.Axis, ...]
) -> facts.State:
    whole, to_bool = _kind(site)
    how = (whole, to_bool, _largest(site))
    places = [i - len(axes) if facts.carries_time(axis) else None for i, axis in enumerate(axes)]
    tails = [None if i is None else tail_of(op_type, states, i, *how) for i in places]
    fills = [x.fill for x in states]
    square = op_type == "Mul" and site.node.inputs[0] is site.node.inputs[1]
    sign = 1 if square else number_effects.sign_of(op_type, states)
    result = facts.State(axes, tuple(tails), fixed=all(x.fixed for x in states), sign=sign)
    filled = [x for x in fills if x is not None]
    levels = [x.level for x in states]
    level = [x for x in levels if x is not None]
    if len(filled) == len(fills):
        fill = number_effects.apply(op_type, filled, whole=whole, to_bool=to_bool)
        result = dataclasses.replace(result, fill=fill)
    elif op_type == "Where" and fills[0] is not None:
        chosen = states[1 if fills[0] else 2]
        result = dataclasses.replace(result, sign=chosen.sign, fill=chosen.fill)
    elif len(level) == len(levels):
        inside = number_effects.apply(op_type, level, whole=whole, to_bool=to_bool)
        result = dataclasses.replace(result, inside=inside)
    elif op_type == "Where" and levels[0] is not None:
        result = dataclasses.replace(result, inside=states[1 if levels[0] else 2].level)
    length = _length(site, op_type, states)
    if length is not None and not result.sign and never_negative(length):
        result = dataclasses.replace(result, sign=1)  # of a row that has anything
    return dataclasses.replace(result, steps=_steps(op_type, states), length=length)


def _largest(site: Site) -> float:
    """The largest number that a result can hold; more is an infinity."""
    dtype = site.source.shapes.dtype(site.node.outputs[0])
    if dtype is None or not (dtype.is_floating_point() or dtype.is_integer()):
        return math.inf
    return number_effects.extreme(dtype, high=True)


def _sizes(site: Site, states: Sequence[facts.State]) -> facts.State | None:
    """Arithmetic on sizes alone: still a size."""
    if not any(x.physical for x in states):
        return None
    if any(not x.fixed and not x.physical for x in states) or any(x.timed for x in states):
        return None
    found = of_sizes(site)
    sign = max(found.sign, number_effects.sign_of(site.node.op_type, states))
    return dataclasses.replace(found, sign=sign)


def _broadcast(site: Site, states: Sequence[facts.State]) -> tuple[facts.Axis, ...] | None:
    if any(x.axes is None for x in states):
        if any(x.timed for x in states):
            raise RefusedError("the rank of one of its inputs is not known")
        return None
    if site.node.op_type in _PARAMETERS:
        return states[0].axes
    rank = max(x.rank for x in states)
    padded = [((),) * (rank - x.rank) + (x.axes or ()) for x in states]
    return tuple(join(column) for column in zip(*padded, strict=True))


def _flat(site: Site, axes: tuple[facts.Axis, ...]) -> facts.State | None:
    """``row * size``, and a position added to it: how TorchScript indexes two axes at once."""
    if site.node.op_type not in ("Mul", "Add") or len(site.states) != 2:
        return None
    flat = dataclasses.replace(facts.with_tails(axes, facts.FINITE), fixed=True, sign=1)
    for i in (0, 1):
        one, other = site.state(i), site.state(1 - i)
        rows = one.steps == (0, 1) and not one.timed
        size = site.contents(1 - i) if other.physical else None
        if site.node.op_type == "Mul" and rows and size is not None and len(size) == 1:
            return dataclasses.replace(flat, stride=size[0])
        if site.node.op_type == "Add" and one.stride is not None and other.steps == (0, 1):
            return dataclasses.replace(flat, stride=one.stride, steps=(0, 1))
    return None


def _compared(site: Site, axes: tuple[facts.Axis, ...]) -> facts.State | None:
    """Positions compared with a length: all true, or a mask whose tail is False."""
    op_type = site.node.op_type
    if op_type not in _ASKS or len(site.states) != 2:
        return None
    (left, i), (right, j) = ((_unexpanded(site, i), i) for i in (0, 1))
    turned = {"Less": "Greater", "Greater": "Less", "LessOrEqual": "GreaterOrEqual"}
    ask = op_type
    if left.steps is None:
        left, right, j = right, left, i
        ask = turned.get(op_type, "LessOrEqual")
    if left.steps is None or left.steps[1] < 1 or len(left.timed) != 1:
        return None
    time = left.at(left.timed[0])[0]
    if not isinstance(time, facts.Time):
        return None
    start, step = left.steps
    behind = start + time.size * step
    last, below = behind - step, ask in ("Less", "LessOrEqual")
    if right.physical:
        limit = (site.contents(j) or [None])[0]
        if limit is None:
            return None
        gap = sympy.expand(limit - last - (1 if ask in ("Less", "GreaterOrEqual") else 0))
        if not never_negative(gap):
            return None
        state = facts.with_tails(axes, facts.ONE if below else facts.ZERO)
        return dataclasses.replace(state, fixed=True, fill=float(below), sign=1)
    if right.length is None:
        return None
    # Behind the valid length every position is at least this.
    gap = sympy.expand(behind - right.length - (1 if ask in ("LessOrEqual", "Greater") else 0))
    if not never_negative(gap):
        return None
    # And every valid one is less, where that is so.
    spare = right.length - last - (1 if ask in ("Less", "GreaterOrEqual") else 0)
    inside = float(below) if never_negative(sympy.expand(spare)) else None
    state = facts.with_tails(axes, facts.ZERO if below else facts.ONE)
    return dataclasses.replace(state, sign=1, inside=inside)


def _unexpanded(site: Site, index: int) -> facts.State:
    """The state of an input before it was expanded: compared, it is the same as often."""
    value, state = site.node.inputs[index], site.state(index)
    node = maker_of(value)
    while node is not None and is_op(node, "Expand") and node.inputs[0] is not None:
        known = site.known(node.inputs[0])
        if known is None or known.axes is None:
            break
        state, node = known, node.inputs[0].producer()
    return state


def _kind(site: Site) -> tuple[bool, bool]:
    dtype = site.source.shapes.dtype(site.node.outputs[0])
    if site.node.op_type == "Cast":
        dtype = ir.DataType(attr_int(site.node, "to", 1))
    return dtype is not None and dtype.is_integer(), dtype == ir.DataType.BOOL


def _steps(op_type: str, states: Sequence[facts.State]) -> tuple[int, int] | None:
    """0, 1, 2, ... with a number added or multiplied."""
    if op_type in ("Cast", "Identity"):
        return states[0].steps
    if op_type not in ("Add", "Sub", "Mul") or len(states) != 2:
        return None
    for one, other in ((states[0], states[1]), (states[1], states[0])):
        number = other.fill
        if one.steps is None or number is None or not float(number).is_integer():
            continue
        start, step = one.steps
        if op_type == "Add":
            return start + int(number), step
        if op_type == "Mul":
            return start * int(number), step * int(number)
        return (start - int(number), step) if one is states[0] else None
    return None


def _length(site: Site, op_type: str, states: Sequence[facts.State]) -> sympy.Expr | None:
    """A valid length with a number added, multiplied, divided."""
    first = states[0].length
    whole, _ = _kind(site)
    if op_type in ("Cast", "Identity") and first is not None:
        return first
    if any(x.timed for x in states):
        return None
    if op_type == "Max" and len(states) == 2:
        both = (states, states[::-1])  # a length is not below 0
        low = (x.length for x, y in both if y.fill is not None and y.fill <= 0)
        return next((x for x in low if x is not None), None)
    if op_type not in ("Add", "Sub", "Mul", "Div") or len(states) != 2:
        return None
    a, b = (_number(x) for x in states)
    if a is None or b is None or (first is None and states[1].length is None):
        return None
    if op_type == "Div":
        return sympy.floor(a / b) if whole and b.is_Integer and b > 0 else None
    return {"Add": a + b, "Sub": a - b, "Mul": a * b}[op_type]


def _number(state: facts.State) -> sympy.Expr | None:
    if state.length is not None:
        return state.length
    whole = state.fill is not None and float(state.fill).is_integer()
    return sympy.Integer(int(state.fill or 0)) if whole else None


RULES = {
    **dict.fromkeys((*number_effects.UNARY, *number_effects.MANY), Rule(elementwise, Takes.SIZES)),
    **dict.fromkeys((*_ASKS, "Cast"), Rule(elementwise, Takes.SIZES)),
    "Identity": Rule(elementwise, Takes.SIZES | Takes.SHRINKING),
}
