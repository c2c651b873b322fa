"""Rules for element-wise operators: what is valid stays so; a tail of numbers is computed."""

import dataclasses
import math
from collections.abc import Sequence

import onnx_ir as ir
import sympy

from graphfix.facts.symbolic.signs import never_negative
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.lengths import number_effects
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, join_axes
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.rules.result_tail import infer_tail
from graphfix.lengths.rules.shape_ops import infer_sizes

_ASKS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_PARAMETERS = {"Clip": 1, "Dropout": 1, "CastLike": 1}


def infer_elementwise(site: RuleSite) -> facts.TensorState:
    """Infer any element-wise operator."""
    op_type = site.node.op_type
    states = [x for x in site.states if x is not None]
    axes = _broadcast_axes(site, states)
    flat = None if axes is None else _flat_index(site, axes)
    sizes = _size_arithmetic(site, states) if flat is None else flat
    if sizes is not None:
        return sizes
    if axes is None:
        return facts.state_without_time(None)
    compared = _position_mask(site, axes)
    if compared is not None:
        return compared
    for i, state in enumerate(site.states):
        if state is not None and state.counts_padding:
            if i and op_type in _PARAMETERS and site.source.batch is not None:
                raise RefusedError("its bound is a size, and each row has a length of its own")
            site.require_valid_length(i, axes)
    states = [x for x in site.states if x is not None]
    return _combine_states(site, op_type, states, axes)


def _combine_states(
    site: RuleSite, op_type: str, states: Sequence[facts.TensorState], axes: tuple[facts.Axis, ...]
) -> facts.TensorState:
    integral, to_bool = _result_kind(site)
    result_type = (integral, to_bool, _largest_result(site))
    places = [i - len(axes) if facts.carries_time(axis) else None for i, axis in enumerate(axes)]
    tails = [None if i is None else infer_tail(op_type, states, i, *result_type) for i in places]
    fills = [x.fill for x in states]
    square = op_type == "Mul" and site.node.inputs[0] is site.node.inputs[1]
    sign = 1 if square else number_effects.result_sign(op_type, states)
    result = facts.TensorState(axes, tuple(tails), fixed=all(x.fixed for x in states), sign=sign)
    filled = [x for x in fills if x is not None]
    levels = [x.valid_value for x in states]
    level = [x for x in levels if x is not None]
    if len(filled) == len(fills):
        fill = number_effects.apply_to_numbers(op_type, filled, integral=integral, to_bool=to_bool)
        result = dataclasses.replace(result, fill=fill)
    elif op_type == "Where" and fills[0] is not None:
        chosen = states[1 if fills[0] else 2]
        result = dataclasses.replace(result, sign=chosen.sign, fill=chosen.fill)
    elif len(level) == len(levels):
        inside = number_effects.apply_to_numbers(op_type, level, integral=integral, to_bool=to_bool)
        result = dataclasses.replace(result, inside=inside)
    elif op_type == "Where" and levels[0] is not None:
        result = dataclasses.replace(result, inside=states[1 if levels[0] else 2].valid_value)
    length = _result_length(site, op_type, states)
    if length is not None and not result.sign and never_negative(length):
        result = dataclasses.replace(result, sign=1)  # of a row that has anything
    return dataclasses.replace(result, steps=_result_steps(op_type, states), length=length)


def _largest_result(site: RuleSite) -> float:
    """Return the largest number that a result can hold; more is an infinity."""
    dtype = site.source.shapes.dtype(site.node.outputs[0])
    if dtype is None or not (dtype.is_floating_point() or dtype.is_integer()):
        return math.inf
    return number_effects.dtype_limit(dtype, high=True)


def _size_arithmetic(
    site: RuleSite, states: Sequence[facts.TensorState]
) -> facts.TensorState | None:
    """Infer arithmetic on sizes alone: still a size."""
    if not any(x.counts_padding for x in states):
        return None
    if any(not x.fixed and not x.counts_padding for x in states) or any(
        x.time_axes for x in states
    ):
        return None
    result = infer_sizes(site)
    sign = max(result.sign, number_effects.result_sign(site.node.op_type, states))
    return dataclasses.replace(result, sign=sign)


def _broadcast_axes(
    site: RuleSite, states: Sequence[facts.TensorState]
) -> tuple[facts.Axis, ...] | None:
    if any(x.axes is None for x in states):
        if any(x.time_axes for x in states):
            raise RefusedError("the rank of one of its inputs is not known")
        return None
    if site.node.op_type in _PARAMETERS:
        return states[0].axes
    rank = max(x.rank for x in states)
    padded = [((),) * (rank - x.rank) + (x.axes or ()) for x in states]
    return tuple(join_axes(column) for column in zip(*padded, strict=True))


def _flat_index(site: RuleSite, axes: tuple[facts.Axis, ...]) -> facts.TensorState | None:
    """Infer ``row * size``, and a position added: how TorchScript indexes two axes at once."""
    if site.node.op_type not in ("Mul", "Add") or len(site.states) != 2:
        return None
    flat = dataclasses.replace(facts.state_with_tail(axes, facts.FINITE), fixed=True, sign=1)
    for i in (0, 1):
        lhs, rhs = site.input_state(i), site.input_state(1 - i)
        rows = lhs.steps == (0, 1) and not lhs.time_axes
        size = site.input_contents(1 - i) if rhs.counts_padding else None
        if site.node.op_type == "Mul" and rows and size is not None and len(size) == 1:
            return dataclasses.replace(flat, stride=size[0])
        if site.node.op_type == "Add" and lhs.stride is not None and rhs.steps == (0, 1):
            return dataclasses.replace(flat, stride=lhs.stride, steps=(0, 1))
    return None


def _position_mask(site: RuleSite, axes: tuple[facts.Axis, ...]) -> facts.TensorState | None:
    """Infer positions compared with a length: all true, or a mask whose tail is False."""
    op_type = site.node.op_type
    if op_type not in _ASKS or len(site.states) != 2:
        return None
    (positions, i), (bound, j) = ((_state_before_expand(site, i), i) for i in (0, 1))
    turned = {"Less": "Greater", "Greater": "Less", "LessOrEqual": "GreaterOrEqual"}
    ask = op_type
    if positions.steps is None:
        positions, bound, j = bound, positions, i
        ask = turned.get(op_type, "LessOrEqual")
    if positions.steps is None or positions.steps[1] < 1 or len(positions.time_axes) != 1:
        return None
    time = positions.factors_of(positions.time_axes[0])[0]
    if not isinstance(time, facts.TimeFactor):
        return None
    start, step = positions.steps
    behind = start + time.size * step
    last, below = behind - step, ask in ("Less", "LessOrEqual")
    if bound.counts_padding:
        limit = (site.input_contents(j) or [None])[0]
        if limit is None:
            return None
        gap = sympy.expand(limit - last - (1 if ask in ("Less", "GreaterOrEqual") else 0))
        if not never_negative(gap):
            return None
        state = facts.state_with_tail(axes, facts.ONE if below else facts.ZERO)
        return dataclasses.replace(state, fixed=True, fill=float(below), sign=1)
    if bound.length is None:
        return None
    # Behind the valid length every position is at least this.
    gap = sympy.expand(behind - bound.length - (1 if ask in ("LessOrEqual", "Greater") else 0))
    if not never_negative(gap):
        return None
    # And every valid one is less, where that is so.
    spare = bound.length - last - (1 if ask in ("Less", "GreaterOrEqual") else 0)
    inside = float(below) if never_negative(sympy.expand(spare)) else None
    state = facts.state_with_tail(axes, facts.ZERO if below else facts.ONE)
    return dataclasses.replace(state, sign=1, inside=inside)


def _state_before_expand(site: RuleSite, index: int) -> facts.TensorState:
    """Return the state of an input before it was expanded: compared, it is the same as often."""
    value, state = site.node.inputs[index], site.input_state(index)
    node = producer_of(value)
    while node is not None and is_op(node, "Expand") and node.inputs[0] is not None:
        inner = site.state_of(node.inputs[0])
        if inner is None or inner.axes is None:
            break
        state, node = inner, node.inputs[0].producer()
    return state


def _result_kind(site: RuleSite) -> tuple[bool, bool]:
    dtype = site.source.shapes.dtype(site.node.outputs[0])
    if site.node.op_type == "Cast":
        dtype = ir.DataType(attr_int(site.node, "to", 1))
    return dtype is not None and dtype.is_integer(), dtype == ir.DataType.BOOL


def _result_steps(op_type: str, states: Sequence[facts.TensorState]) -> tuple[int, int] | None:
    """Infer 0, 1, 2, ... with a number added or multiplied."""
    if op_type in ("Cast", "Identity"):
        return states[0].steps
    if op_type not in ("Add", "Sub", "Mul") or len(states) != 2:
        return None
    for lhs, rhs in ((states[0], states[1]), (states[1], states[0])):
        number = rhs.fill
        if lhs.steps is None or number is None or not float(number).is_integer():
            continue
        start, step = lhs.steps
        if op_type == "Add":
            return start + int(number), step
        if op_type == "Mul":
            return start * int(number), step * int(number)
        return (start - int(number), step) if lhs is states[0] else None
    return None


def _result_length(
    site: RuleSite, op_type: str, states: Sequence[facts.TensorState]
) -> sympy.Expr | None:
    """Infer a valid length with a number added, multiplied, divided."""
    first = states[0].length
    integral, _ = _result_kind(site)
    if op_type in ("Cast", "Identity") and first is not None:
        return first
    if any(x.time_axes for x in states):
        return None
    if op_type == "Max" and len(states) == 2:
        orders = (states, states[::-1])  # a length is not below 0
        low = (x.length for x, y in orders if y.fill is not None and y.fill <= 0)
        return next((x for x in low if x is not None), None)
    if op_type not in ("Add", "Sub", "Mul", "Div") or len(states) != 2:
        return None
    a, b = (_length_or_number(x) for x in states)
    if a is None or b is None or (first is None and states[1].length is None):
        return None
    if op_type == "Div":
        return sympy.floor(a / b) if integral and b.is_Integer and b > 0 else None
    return {"Add": a + b, "Sub": a - b, "Mul": a * b}[op_type]


def _length_or_number(state: facts.TensorState) -> sympy.Expr | None:
    if state.length is not None:
        return state.length
    is_integral = state.fill is not None and float(state.fill).is_integer()
    return sympy.Integer(int(state.fill or 0)) if is_integral else None


RULES = {
    **dict.fromkeys(
        (*number_effects.UNARY, *number_effects.MANY),
        PaddingRule(infer_elementwise, AcceptedInputs.SIZES),
    ),
    **dict.fromkeys((*_ASKS, "Cast"), PaddingRule(infer_elementwise, AcceptedInputs.SIZES)),
    "Identity": PaddingRule(infer_elementwise, AcceptedInputs.SIZES | AcceptedInputs.SHRINKING),
}
