"""Tails of element-wise results."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphfix import ops
from graphfix.facts.hidden_scores import hides_score
from graphfix.lengths.number_effects import apply_to_numbers, keeps_finite
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    HIDDEN,
    LAST,
    ONE,
    PARTLY_HIDDEN,
    WILD,
    ZERO,
    Tail,
    TensorState,
)


def tail_from_end(state: TensorState, from_end: int) -> Tail:
    """Return the tail of a tensor along an axis that is counted from the end."""
    index = state.rank + from_end
    if index >= 0 and state.tails[index] is not None:
        return state.tail_along(index)
    # It is constant along that axis, but its tails on other axes may be anything.
    return state.tail_of_copies(LAST if state.is_finite else WILD if state.is_bounded else ANY)


def _repeats_last(state: TensorState, from_end: int) -> bool:
    """Return whether the tail along an axis repeats the last valid slice, or there is no tail."""
    index = state.rank + from_end
    has_tail = index >= 0 and state.tails[index] is not None
    return not has_tail or state.fill is not None or state.tail_along(index).kind == "last"


@dataclass(frozen=True)
class ResultKind:
    """Numbers that the result of an operator can hold.

    Attributes:
        integral: Whether they are integers.
        boolean: Whether they are booleans.
        largest: The largest of its type; more is an infinity.
    """

    integral: bool
    boolean: bool
    largest: float


def infer_tail(operator: str, states: Sequence[TensorState], at: int, kind: ResultKind) -> Tail:
    """Infer the tail of a result on one axis, counted from the end.

    Args:
        operator: The qualified name of the operator.
        states: What is known of its inputs.
        at: The axis: -1 is the last.
        kind: What the result can hold.
    """
    args = [tail_from_end(x, at) for x in states]
    tail = _combine_tails(operator, args, [x.valid_value for x in states], kind)
    if tail is not None:
        return tail
    finite = all(x.is_finite for x in args)
    stays_finite = finite and (kind.boolean or keeps_finite(operator, states))
    if finite and all(_repeats_last(x, at) for x in states):
        return LAST if stays_finite else ANY
    if kind.boolean or stays_finite:
        return FINITE
    if _keeps_bounded(operator, args):
        return WILD
    return PARTLY_HIDDEN if operator == "Where" and _hides_beside(states, args, at) else ANY


def _hides_beside(states: Sequence[TensorState], args: Sequence[Tail], at: int) -> bool:
    """Return whether a Where puts -inf only where a mask over other axes says padding.

    A mask of keys that all queries share leaves a padded query the scores of the valid keys.
    """
    mask = states[0]
    index = mask.rank + at
    if mask.valid_value is None or (index >= 0 and mask.tails[index] is not None):
        return False
    valid, padded = args[1:] if mask.valid_value else (args[2], args[1])
    return valid.is_bounded and padded.is_below(-math.inf)


def _combine_tails(
    operator: str, args: list[Tail], levels: list[float | None], kind: ResultKind
) -> Tail | None:
    """Return the tail that follows from numbers and masks; None if neither decides it."""
    combine = _COMBINATIONS.get(operator)
    floor = -min(_HUGE, 0.9 * kind.largest)
    # A mask that is added to scores hides them, whatever number comes of it.
    may_hide = operator in ("Add", "Sum", "Sub", "Where") and None in levels
    tail = combine(args, levels, floor) if combine is not None and may_hide else None
    if tail is None:
        tail = _number_tail(operator, args, kind)
    if tail is None and combine is not None:
        tail = combine(args, levels, floor)
    return tail


def _number_tail(operator: str, args: list[Tail], kind: ResultKind) -> Tail | None:
    """Return the tail that is computed of one number in each input."""
    values = [x.value for x in args if x.kind == "number"]
    if len(values) < len(args):
        return None
    number = apply_to_numbers(operator, values, integral=kind.integral, to_bool=kind.boolean)
    if number is None or math.isnan(number):
        return None if number is None else ANY
    return Tail("number", math.copysign(math.inf, number) if abs(number) > kind.largest else number)


def _keeps_bounded(operator: str, args: list[Tail]) -> bool:
    """Return whether the result is no lower than the lowest input, so that it is finite.

    A sum of two that are as low as numbers get is lower.
    """
    if operator not in _PASSES_LOW:
        return False
    wild = sum(not x.is_finite for x in args)
    data = args[1:] if operator == "Where" else args
    return all(x.is_bounded for x in data) and (wild < 2 or operator != "Add")


_PASSES_LOW = ops.IDLE | ops.CASTS | ops.named("Add Where Min Max")
"""Their result is no lower than the lowest of their inputs, except a sum of two low ones."""
_HUGE = 1e30
"""No score is as large as that."""


def masked_number_tail(number: float, behind: bool, valid: float | None) -> Tail:
    """Return the tail of a number that a mask puts behind the valid length.

    Args:
        number: The number.
        behind: The mask behind the valid length.
        valid: The mask before it; None if that is not one value. A mask that is the same on both
            sides puts the number everywhere.
    """
    scores = (
        hides_score(number) and number > -math.inf and valid is not None and bool(valid) != behind
    )
    return HIDDEN if scores else Tail("number", number)


def _is_hiding_addend(tail: Tail, level: float | None, floor: float, sign: int = 1) -> bool:
    """Return whether a tail is of an addend that hides scores, and is 0 where they are valid.

    An addend below ``floor`` hides the scores whatever it is where they are valid.
    """
    number = sign * tail.value
    low = (level == 0 and hides_score(number)) or number <= floor
    return tail.kind == "number" and low and number > -math.inf


def _add_tail(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    if any(x.is_below(-math.inf) for x in args):
        others_finite = all(x.is_finite or x.is_below(-math.inf) for x in args)
        return Tail("number", -math.inf) if others_finite else None
    low = [x for x, level in zip(args, levels, strict=True) if _is_low(x, level, floor)]
    if not low or not all(x in low or x.is_finite for x in args):
        return None
    if len(low) > 1 or not low[0].is_bounded:
        return Tail("low", -math.inf)
    return HIDDEN if low[0].is_finite else Tail("low", WILD.value)


def _is_low(tail: Tail, level: float | None, floor: float) -> bool:
    """Return whether a tail is of hidden scores, or of an addend that hides them."""
    return tail.kind == "low" or _is_hiding_addend(tail, level, floor)


def _sub_tail(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    lowered = _is_hiding_addend(args[1], levels[1], floor, -1)
    low = _is_low(args[0], levels[0], floor) or lowered
    once = args[0].is_finite and not (args[0].kind == "low" and lowered)
    if not low or any(x.kind == "any" for x in args):
        return None
    return HIDDEN if once and args[1].is_finite else Tail("low", -math.inf)


def _mul_tail(args: list[Tail], _levels: list[float | None], _floor: float) -> Tail | None:
    return ZERO if any(x.is_zero for x in args) and all(x.is_finite for x in args) else None


def _div_tail(args: list[Tail], _levels: list[float | None], _floor: float) -> Tail | None:
    # 0 divided by 0 is NaN.
    return ZERO if args[0].is_zero and args[1].kind == "number" and args[1].value else None


def _where_tail(args: list[Tail], levels: list[float | None], _floor: float) -> Tail | None:
    if args[0].kind == "number":
        chosen = args[1 if args[0].value else 2]
        if chosen.kind != "number":
            return chosen
        return masked_number_tail(chosen.value, bool(args[0].value), levels[0])
    if args[1].kind == "low" and args[2].kind == "low":
        return HIDDEN
    return args[1] if args[1] == args[2] else None


def _min_tail(args: list[Tail], _levels: list[float | None], _floor: float) -> Tail | None:
    return HIDDEN if any(x.kind == "low" for x in args) and all(x.is_finite for x in args) else None


_COMBINATIONS: dict[str, Callable[[list[Tail], list[float | None], float], Tail | None]] = {
    **dict.fromkeys(
        ops.CASTS, lambda args, *_: args[0] if args[0].kind in ("low", "last") else None
    ),
    **dict.fromkeys(ops.IDLE, lambda args, *_: args[0]),
    **dict.fromkeys(("Add", "Sum"), _add_tail),
    "And": lambda args, *_: ZERO if any(x.is_zero for x in args) else None,
    "Div": _div_tail,
    "Min": _min_tail,
    "Mul": _mul_tail,
    "Or": lambda args, *_: ONE if any(x.kind == "number" and x.value for x in args) else None,
    "Sub": _sub_tail,
    "Where": _where_tail,
}
"""How operators combine tails of numbers and of hidden scores.

Each takes the tails of the inputs, the numbers that they are where they are valid, and the number
from which on a score is hidden whatever it is.
"""
