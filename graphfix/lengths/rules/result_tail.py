"""Tails of element-wise results: what lies behind the valid length."""

import math
from collections.abc import Callable, Sequence

from graphfix.lengths import number_effects
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    HIDDEN,
    LAST,
    LOW,
    ONE,
    WILD,
    ZERO,
    Tail,
    TensorState,
)


def tail_from_end(state: TensorState, from_end: int) -> Tail:
    """Return what a tensor holds behind the valid length of an axis, counted from the end."""
    index = state.rank + from_end
    if index >= 0 and state.tails[index] is not None:
        return state.tail_along(index)
    # It does not change along that axis; its own tails, on other axes, may be anything.
    return state.tail_of_copies(LAST if state.is_finite else WILD if state.is_bounded else ANY)


def _repeats_last(state: TensorState, from_end: int) -> bool:
    """Return whether an axis repeats what came last behind its valid length, if it has one."""
    index = state.rank + from_end
    has_tail = index >= 0 and state.tails[index] is not None
    return not has_tail or state.fill is not None or state.tail_along(index).kind == "last"


_PASSES = ("Add", "Where", "Min", "Max", "Identity", "Cast")
"""What makes nothing lower than the lowest of what it takes, except a sum of two such."""
_HUGE = 1e30
"""No score is as large as that."""


def infer_tail(
    op_type: str,
    states: Sequence[TensorState],
    at: int,
    integral: bool,
    to_bool: bool,
    largest: float,
) -> Tail:
    """Infer the tail of a result on one axis, counted from the end.

    Args:
        op_type: The operator.
        states: What is known of its inputs.
        at: The axis: -1 is the last.
        integral: Whether the result is of integers.
        to_bool: Whether the result is a boolean.
        largest: The largest number that it can hold.
    """
    args = [tail_from_end(x, at) for x in states]
    levels = [x.valid_value for x in states]
    floor = -min(_HUGE, 0.9 * largest)
    special = _SPECIAL.get(op_type)
    # A mask that is added to scores hides them, whatever number comes of it.
    masked = op_type in ("Add", "Sum", "Sub", "Where") and None in levels
    tail = special(args, levels, floor) if special is not None and masked else None
    values = [x.value for x in args if x.kind == "number"]
    if tail is None and len(values) == len(args):
        number = number_effects.apply_to_numbers(
            op_type, values, integral=integral, to_bool=to_bool
        )
        if number is not None:
            if abs(number) > largest:
                number = math.copysign(math.inf, number)
            return ANY if math.isnan(number) else Tail("number", number)
    if tail is None and special is not None:
        tail = special(args, levels, floor)
    if tail is not None:
        return tail
    finite = all(x.is_finite for x in args)
    if finite and all(_repeats_last(x, at) for x in states):
        return LAST if to_bool or number_effects.keeps_finite(op_type, states) else ANY
    if to_bool or (finite and number_effects.keeps_finite(op_type, states)):
        return FINITE
    wild = sum(not x.is_finite for x in args)
    low = args[1:] if op_type == "Where" else args
    if op_type in _PASSES and all(x.is_bounded for x in low) and (wild < 2 or op_type != "Add"):
        return WILD
    return ANY


def masked_number_tail(number: float, behind: bool, inside: float | None) -> Tail:
    """Return the tail of a number that a mask has put behind the valid length.

    Args:
        number: The number.
        behind: The mask behind the valid length.
        inside: The mask before it; None if it is no mask of lengths. One that is the same on both
            sides puts the number everywhere.
    """
    scores = LOW >= number > -math.inf and inside is not None and bool(inside) != behind
    return HIDDEN if scores else Tail("number", number)


def _is_hiding_addend(tail: Tail, level: float | None, floor: float, sign: int = 1) -> bool:
    """Return whether it is an addend that spares what is valid, and hides all else.

    What is as low as numbers get hides the rest, whatever is valid.
    """
    number = sign * tail.value
    low = (level == 0 and number <= LOW) or number <= floor
    return tail.kind == "number" and low and number > -math.inf


def _add_tail(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    if any(x.is_below(-math.inf) for x in args):
        others_finite = all(x.is_finite or x.is_below(-math.inf) for x in args)
        return Tail("number", -math.inf) if others_finite else None
    low = [
        x
        for x, n in zip(args, levels, strict=True)
        if x.kind == "low" or _is_hiding_addend(x, n, floor)
    ]
    if not low or not all(x in low or x.is_finite for x in args):
        return None
    if len(low) > 1 or not low[0].is_bounded:
        return Tail("low", -math.inf)
    return HIDDEN if low[0].is_finite else Tail("low", WILD.value)


def _sub_tail(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    lowered = _is_hiding_addend(args[1], levels[1], floor, -1)
    low = args[0].kind == "low" or _is_hiding_addend(args[0], levels[0], floor) or lowered
    once = args[0].is_finite and not (args[0].kind == "low" and lowered)
    if not low or any(x.kind == "any" for x in args):
        return None
    return HIDDEN if once and args[1].is_finite else Tail("low", -math.inf)


def _mul_tail(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    return ZERO if any(x.is_zero for x in args) and all(x.is_finite for x in args) else None


def _div_tail(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    # Divided by 0 it would be NaN; the caller of tail_of knows of numbers only.
    return ZERO if args[0].is_zero and args[1].kind == "number" and args[1].value else None


def _where_tail(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    if args[0].kind == "number":
        chosen = args[1 if args[0].value else 2]
        if chosen.kind != "number":
            return chosen
        return masked_number_tail(chosen.value, bool(args[0].value), levels[0])
    if args[1].kind == "low" and args[2].kind == "low":
        return HIDDEN
    return args[1] if args[1] == args[2] else None


def _min_tail(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    return HIDDEN if any(x.kind == "low" for x in args) and all(x.is_finite for x in args) else None


_SPECIAL: dict[str, Callable[[list[Tail], list[float | None], float], Tail | None]] = {
    **dict.fromkeys(("Add", "Sum"), _add_tail),
    "Sub": _sub_tail,
    "Mul": _mul_tail,
    "Div": _div_tail,
    "Where": _where_tail,
    "Min": _min_tail,
    "And": lambda args, *_: ZERO if any(x.is_zero for x in args) else None,
    "Or": lambda args, *_: ONE if any(x.kind == "number" and x.value for x in args) else None,
    "Cast": lambda args, *_: args[0] if args[0].kind in ("low", "last") else None,
    "Identity": lambda args, *_: args[0],
    "Dropout": lambda args, *_: args[0],
}
