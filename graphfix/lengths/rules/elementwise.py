"""Rules for element-wise operators: what is valid stays valid; a tail of numbers is computed."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
import sympy

from graphfix import ops
from graphfix.facts.symbolic.signs import never_negative
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, join_axes
from graphfix.lengths.number_effects import (
    ONE_DATA_INPUT,
    apply_to_numbers,
    dtype_limit,
    result_sign,
)
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.rules.result_tail import ResultKind, infer_tail
from graphfix.lengths.rules.shape_ops import infer_sizes


def capped_refusal(site: RuleSite) -> RefusedError:
    """Return the refusal of a node that computes with numbers cut to the padded length."""
    return RefusedError(
        "it computes with numbers that are cut to the padded length, and each row has a length of "
        "its own; only positions below that length may be compared with them: "
        f"{site.batch_advice()}"
    )


def infer_elementwise(site: RuleSite) -> facts.TensorState:
    """Infer any element-wise operator."""
    states = site.present_states()
    axes = _broadcast_axes(site, states)
    flat = None if axes is None else _flat_index(site, axes)
    sizes = _size_arithmetic(site, states) if flat is None else flat
    if sizes is not None:
        return sizes
    if axes is None:
        return facts.state_without_time(None)
    mask = _position_mask(site, axes)
    if mask is not None:
        return mask
    if any(x.capped_at is not None for x in states):
        raise capped_refusal(site)
    capped = _infer_capped(site, axes)
    if capped is not None:
        return capped
    _require_valid_lengths(site, axes)
    return _combine_states(site, site.present_states(), axes)


def _require_valid_lengths(site: RuleSite, axes: tuple[facts.Axis, ...]) -> None:
    """Ask for valid lengths where an input is a size that counts the padding in."""
    for i, state in enumerate(site.states):
        if state is None or not state.counts_padding:
            continue
        if i and site.node in ONE_DATA_INPUT and site.source.batch is not None:
            raise RefusedError(
                f"its bound is a size, and each row has a length of its own: {site.batch_advice()}"
            )
        site.require_valid_length(i, axes)


def _infer_capped(site: RuleSite, axes: tuple[facts.Axis, ...]) -> facts.TensorState | None:
    """Infer integers cut to a padded size where no row has an axis for its own length; or None.

    ``min(chunk_end, T)`` then counts the padding in, which does not matter to what positions below
    T are compared with.
    """
    states = site.present_states()
    is_cut = _operator_of(site) == "Min" and len(states) == 2
    if not is_cut or site.source.batch is None or any(map(facts.holds_rows, axes)):
        return None
    dtype = _result_dtype(site)
    index = next((i for i in (1, 0) if states[i].counts_padding), None)
    bound = None if index is None else site.input_contents(_bound_input(site, index))
    if index is None or dtype is None or not dtype.is_integer() or bound is None or len(bound) > 1:
        return None
    data = states[1 - index]
    if data.counts_padding or data.axes is None or len(data.axes) < len(axes):
        return None
    result = facts.TensorState(axes, data.tails_after_arithmetic(), sign=min(data.sign, 1))
    return dataclasses.replace(result, capped_at=bound[0])


def _bound_input(site: RuleSite, index: int) -> int:
    """Return which input of a node the present state of this index is of."""
    return [i for i, x in enumerate(site.states) if x is not None][index]


def is_integer_cast(site: RuleSite) -> bool:
    """Return whether a node casts integers to integers."""
    types = site.source.shapes.dtype(site.node.inputs[0]), _result_dtype(site)
    is_integer = all(x is not None and x.is_integer() for x in types)
    return site.node in ops.CASTS and is_integer


def _combine_states(
    site: RuleSite, states: Sequence[facts.TensorState], axes: tuple[facts.Axis, ...]
) -> facts.TensorState:
    operator, kind = _operator_of(site), _result_kind(site)
    places = [i - len(axes) if facts.carries_time(axis) else None for i, axis in enumerate(axes)]
    tails = tuple(None if i is None else infer_tail(operator, states, i, kind) for i in places)
    result = facts.TensorState(
        axes, tails, fixed=all(x.fixed for x in states), sign=_sign_at(site, states)
    )
    result = _with_known_numbers(result, operator, states, kind)
    length = _result_length(site, states)
    if length is not None and not result.sign and never_negative(length):
        result = dataclasses.replace(result, sign=1)  # of a row that is not empty
    return dataclasses.replace(result, steps=_result_steps(site.node, states), length=length)


def _sign_at(site: RuleSite, states: Sequence[facts.TensorState]) -> facts.Sign:
    node = site.node
    if is_op(node, "Mul") and node.inputs[0] is node.inputs[1]:
        return 1
    if node in ops.CASTS and not _may_round_to_zero(site):
        return states[0].sign
    return result_sign(_operator_of(site), states)


def _operator_of(site: RuleSite) -> str:
    """Return the operator of a node; a Clip with one bound is a Max or a Min."""
    bounds = [site.has_input(i) for i in (1, 2)]
    if is_op(site.node, "Clip") and any(bounds) and not all(bounds):
        return "Max" if bounds[0] else "Min"
    return ops.qualified_name(site.node)


def _may_round_to_zero(site: RuleSite) -> bool:
    """Return whether a cast may make 0 of a number above it, as an integer of 0.3."""
    before, after = site.source.shapes.dtype(site.node.inputs[0]), _result_dtype(site)
    if before is None or after is None:
        return True
    is_wider = after.is_floating_point() and after.itemsize > before.itemsize
    is_exact = after in (before, ir.DataType.BOOL) or is_wider
    return before.is_floating_point() and not is_exact


def _with_known_numbers(
    result: facts.TensorState, operator: str, states: Sequence[facts.TensorState], kind: ResultKind
) -> facts.TensorState:
    """Add the number that all elements are, or else the number that the valid ones are."""
    fills, levels = [x.fill for x in states], [x.valid_value for x in states]
    if None not in fills:
        return dataclasses.replace(result, fill=_apply(operator, fills, kind))
    if operator == "Where" and fills[0] is not None:
        chosen = states[1 if fills[0] else 2]
        return dataclasses.replace(result, sign=chosen.sign, fill=chosen.fill)
    if None not in levels:
        return dataclasses.replace(result, valid_fill=_apply(operator, levels, kind))
    if operator == "Where" and levels[0] is not None:
        return dataclasses.replace(result, valid_fill=states[1 if levels[0] else 2].valid_value)
    return result


def _apply(operator: str, numbers: Sequence[float | None], kind: ResultKind) -> float | None:
    args = [x for x in numbers if x is not None]
    return apply_to_numbers(operator, args, integral=kind.integral, to_bool=kind.boolean)


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
    return dataclasses.replace(result, sign=max(result.sign, _sign_at(site, states)))


def _broadcast_axes(
    site: RuleSite, states: Sequence[facts.TensorState]
) -> tuple[facts.Axis, ...] | None:
    if any(x.axes is None for x in states):
        if any(x.time_axes for x in states):
            raise RefusedError("the rank of one of its inputs is not known")
        return None
    if site.node in ONE_DATA_INPUT:
        return states[0].axes
    rank = max(x.rank for x in states)
    padded = [((),) * (rank - x.rank) + (x.axes or ()) for x in states]
    return tuple(join_axes(column) for column in zip(*padded, strict=True))


def _flat_index(site: RuleSite, axes: tuple[facts.Axis, ...]) -> facts.TensorState | None:
    """Infer ``row * size`` and ``row * size + position``, TorchScript's index of two axes."""
    if not is_op(site.node, "Mul", "Add") or len(site.states) != 2:
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


@dataclass(frozen=True)
class _PositionComparison:
    """Positions along time on the left of a comparison, and a bound on its right.

    Attributes:
        operator: The comparison, its sides swapped if the node has the positions on its right.
        first: The first position.
        step: From one position to the next, at least 1.
        size: The number of positions, the padding counted in.
        bound: The state of the bound.
        bound_index: Which input of the node it is.
    """

    operator: str
    first: int
    step: int
    size: sympy.Expr
    bound: facts.TensorState
    bound_index: int

    @property
    def holds_below(self) -> bool:
        """Return whether the comparison holds for small positions."""
        return self.operator in ("Less", "LessOrEqual")

    @property
    def last(self) -> sympy.Expr:
        """Return the last position."""
        return self.behind - self.step

    @property
    def behind(self) -> sympy.Expr:
        """Return the position that would follow the last."""
        return self.first + self.size * self.step

    def covers(self, limit: sympy.Expr) -> bool:
        """Return whether all positions up to the last are on the same side of a limit."""
        reach = limit - self.last - (1 if self.operator in ("Less", "GreaterOrEqual") else 0)
        return never_negative(sympy.expand(reach))

    def ends_at(self, limit: sympy.Expr) -> bool:
        """Return whether all positions behind the last are on the other side of a limit."""
        gap = self.behind - limit - (1 if self.operator in ("LessOrEqual", "Greater") else 0)
        return never_negative(sympy.expand(gap))


def _position_mask(site: RuleSite, axes: tuple[facts.Axis, ...]) -> facts.TensorState | None:
    """Infer positions compared with a length: all true, or a mask whose tail is False."""
    comparison = _read_position_comparison(site)
    if comparison is None:
        return None
    below, bound = comparison.holds_below, comparison.bound
    if bound.counts_padding:
        limit = (site.input_contents(comparison.bound_index) or [None])[0]
        if limit is None or not comparison.covers(limit):
            return None
        state = facts.state_with_tail(axes, facts.ONE if below else facts.ZERO)
        return dataclasses.replace(state, fixed=True, fill=float(below), sign=1)
    if bound.capped_at is not None:
        return _compare_with_cap(site, axes, comparison)
    if bound.length is None or not comparison.ends_at(bound.length):
        return None
    valid_fill = float(below) if comparison.covers(bound.length) else None
    state = facts.state_with_tail(axes, facts.ZERO if below else facts.ONE)
    return dataclasses.replace(state, sign=1, valid_fill=valid_fill)


def _compare_with_cap(
    site: RuleSite, axes: tuple[facts.Axis, ...], comparison: _PositionComparison
) -> facts.TensorState:
    """Infer positions compared with numbers that are cut to the padded length.

    Raises:
        RefusedError: Some valid position is not below the valid length.
    """
    if comparison.bound.capped_at is None or not comparison.covers(comparison.bound.capped_at):
        raise capped_refusal(site)
    states = [dataclasses.replace(x, capped_at=None) for x in site.present_states()]
    return _combine_states(site, states, axes)


def _read_position_comparison(site: RuleSite) -> _PositionComparison | None:
    if site.node not in ops.ORDER_COMPARISONS or len(site.states) != 2:
        return None
    positions, bound = (_state_before_expand(site, i) for i in (0, 1))
    operator, bound_index = site.node.op_type, 1
    if positions.steps is None:
        positions, bound, bound_index = bound, positions, 0
        operator = _swap_sides(operator)
    if positions.steps is None or positions.steps[1] < 1 or len(positions.time_axes) != 1:
        return None
    time = positions.factors_of(positions.time_axes[0])[0]
    if not isinstance(time, facts.TimeFactor):
        return None
    return _PositionComparison(operator, *positions.steps, time.size, bound, bound_index)


def _swap_sides(operator: str) -> str:
    """Return the comparison for swapped operands: ``a < b`` is ``b > a``."""
    old, new = ("Less", "Greater") if operator.startswith("Less") else ("Greater", "Less")
    return operator.replace(old, new)


def _state_before_expand(site: RuleSite, index: int) -> facts.TensorState:
    """Return the state of an input before an Expand, which does not change a comparison."""
    value, state = site.node.inputs[index], site.input_state(index)
    node = producer_of(value)
    while node is not None and is_op(node, "Expand") and node.inputs[0] is not None:
        inner = site.state_of(node.inputs[0])
        if inner is None or inner.axes is None:
            break
        state, node = inner, node.inputs[0].producer()
    return state


def _result_dtype(site: RuleSite) -> ir.DataType | None:
    if is_op(site.node, "Cast"):
        return ir.DataType(attr_int(site.node, "to", 1))
    return site.source.shapes.dtype(site.node.outputs[0])


def _result_kind(site: RuleSite) -> ResultKind:
    dtype = _result_dtype(site)
    if dtype is None:
        return ResultKind(integral=False, boolean=False, largest=math.inf)
    is_number = dtype.is_floating_point() or dtype.is_integer()
    return ResultKind(
        integral=dtype.is_integer(),
        boolean=dtype == ir.DataType.BOOL,
        largest=dtype_limit(dtype, high=True) if is_number else math.inf,
    )


def _result_steps(node: ir.Node, states: Sequence[facts.TensorState]) -> tuple[int, int] | None:
    """Infer 0, 1, 2, ... with a number added or multiplied."""
    if is_op(node, "Cast", "Identity"):
        return states[0].steps
    if not is_op(node, "Add", "Sub", "Mul") or len(states) != 2:
        return None
    for lhs, rhs in ((states[0], states[1]), (states[1], states[0])):
        number = rhs.fill
        if lhs.steps is None or number is None or not float(number).is_integer():
            continue
        start, step = lhs.steps
        if node.op_type == "Add":
            return start + int(number), step
        if node.op_type == "Mul":
            return start * int(number), step * int(number)
        return (start - int(number), step) if lhs is states[0] else None
    return None


def _result_length(site: RuleSite, states: Sequence[facts.TensorState]) -> sympy.Expr | None:
    """Infer a valid length with a number added, multiplied, divided."""
    node = site.node
    if is_op(node, "Cast", "Identity") and states[0].length is not None:
        return states[0].length
    if len(states) != 2 or any(x.time_axes for x in states):
        return None
    if is_op(node, "Max"):
        return _length_above(*states)
    if all(x.length is None for x in states):
        return None
    a, b = map(_length_or_number, states)
    return _length_arithmetic(node.op_type, a, b, _result_kind(site))


def _length_arithmetic(
    operator: str, a: sympy.Expr | None, b: sympy.Expr | None, kind: ResultKind
) -> sympy.Expr | None:
    """Return a sum, difference, product, or quotient rounded down, of lengths and numbers."""
    if a is None or b is None:
        return None
    match operator:
        case "Add":
            return a + b
        case "Sub":
            return a - b
        case "Mul":
            return a * b
        case "Div" if kind.integral and b.is_Integer and b > 0:
            return sympy.floor(a / b)
    return None


def _length_above(a: facts.TensorState, b: facts.TensorState) -> sympy.Expr | None:
    """Return the length if the other is a number that is not above 0; else None."""
    orders = ((a, b), (b, a))
    lengths = (x.length for x, y in orders if y.fill is not None and y.fill <= 0)
    return next((x for x in lengths if x is not None), None)


def _length_or_number(state: facts.TensorState) -> sympy.Expr | None:
    if state.length is not None:
        return state.length
    is_integral = state.fill is not None and float(state.fill).is_integer()
    return sympy.Integer(int(state.fill or 0)) if is_integral else None


_RULE = PaddingRule(infer_elementwise, AcceptedInputs.SIZES)
RULES = {
    **dict.fromkeys(ops.ELEMENTWISE, _RULE),
    "Identity": PaddingRule(infer_elementwise, AcceptedInputs.SIZES | AcceptedInputs.SHRINKING),
}
