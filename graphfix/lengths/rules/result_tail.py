"""What lies behind the valid length of an element-wise result."""

import math
from collections.abc import Callable, Sequence

from graphfix.lengths import number_effects
from graphfix.lengths.tail_state import ANY, FINITE, HIDDEN, LAST, LOW, ONE, WILD, ZERO, State, Tail


def content(state: State, from_end: int) -> Tail:
    """What a tensor holds where an axis, counted from the end, is beyond its valid length."""
    index = state.rank + from_end
    if index >= 0 and state.tails[index] is not None:
        return state.tail(index)
    # It does not change along that axis; its own tails, on other axes, may be anything.
    return state.repeated(LAST if state.is_finite else WILD if state.is_bounded else ANY)


def _repeats(state: State, from_end: int) -> bool:
    """Whether behind its valid length, if it has one there, an axis repeats what came last."""
    index = state.rank + from_end
    has_tail = index >= 0 and state.tails[index] is not None
    return not has_tail or state.fill is not None or state.tail(index).kind == "last"


_PASSES = ("Add", "Where", "Min", "Max", "Identity", "Cast")
"""What makes nothing lower than the lowest of what it takes, except a sum of two such."""
_HUGE = 1e30
"""No score is as large as that."""


def tail_of(
    op_type: str, states: Sequence[State], at: int, whole: bool, to_bool: bool, largest: float
) -> Tail:
    """The tail of a result on one axis, counted from the end.

    Args:
        op_type: The operator.
        states: What is known of its inputs.
        at: The axis: -1 is the last.
        whole: Whether the result is of integers.
        to_bool: Whether the result is a boolean.
        largest: The largest number that it can hold.
    """
    args = [content(x, at) for x in states]
    levels = [x.level for x in states]
    floor = -min(_HUGE, 0.9 * largest)
    special = _SPECIAL.get(op_type)
    # A mask that is added to scores hides them, whatever number comes of it.
    masked = op_type in ("Add", "Sum", "Sub", "Where") and None in levels
    found = special(args, levels, floor) if special is not None and masked else None
    values = [x.value for x in args if x.kind == "number"]
    if found is None and len(values) == len(args):
        number = number_effects.apply(op_type, values, whole=whole, to_bool=to_bool)
        if number is not None:
            if abs(number) > largest:
                number = math.copysign(math.inf, number)
            return ANY if math.isnan(number) else Tail("number", number)
    if found is None and special is not None:
        found = special(args, levels, floor)
    if found is not None:
        return found
    finite = all(x.is_finite for x in args)
    if finite and all(_repeats(x, at) for x in states):
        return LAST if to_bool or number_effects.keeps_finite(op_type, states) else ANY
    if to_bool or (finite and number_effects.keeps_finite(op_type, states)):
        return FINITE
    wild = sum(not x.is_finite for x in args)
    low = args[1:] if op_type == "Where" else args
    if op_type in _PASSES and all(x.is_bounded for x in low) and (wild < 2 or op_type != "Add"):
        return WILD
    return ANY


def hidden(number: float, behind: bool, inside: float | None) -> Tail:
    """What a number is that a mask has put behind the valid length.

    Args:
        number: It.
        behind: What the mask is behind it.
        inside: What the mask is where it is valid; None if it is no mask of lengths. One that is
            the same there puts the number everywhere.
    """
    scores = LOW >= number > -math.inf and inside is not None and bool(inside) != behind
    return HIDDEN if scores else Tail("number", number)


def _hides(tail: Tail, level: float | None, floor: float, sign: int = 1) -> bool:
    """Whether it is an addend that leaves alone what is valid, and hides the rest.

    What is as low as numbers get hides the rest, whatever is valid.
    """
    number = sign * tail.value
    low = (level == 0 and number <= LOW) or number <= floor
    return tail.kind == "number" and low and number > -math.inf


def _add(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    if any(x.is_below(-math.inf) for x in args):
        known = all(x.is_finite or x.is_below(-math.inf) for x in args)
        return Tail("number", -math.inf) if known else None
    low = [x for x, n in zip(args, levels, strict=True) if x.kind == "low" or _hides(x, n, floor)]
    if not low or not all(x in low or x.is_finite for x in args):
        return None
    if len(low) > 1 or not low[0].is_bounded:
        return Tail("low", -math.inf)
    return HIDDEN if low[0].is_finite else Tail("low", WILD.value)


def _sub(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    lowered = _hides(args[1], levels[1], floor, -1)
    low = args[0].kind == "low" or _hides(args[0], levels[0], floor) or lowered
    once = args[0].is_finite and not (args[0].kind == "low" and lowered)
    if not low or any(x.kind == "any" for x in args):
        return None
    return HIDDEN if once and args[1].is_finite else Tail("low", -math.inf)


def _mul(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    return ZERO if any(x.is_zero for x in args) and all(x.is_finite for x in args) else None


def _div(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    # Divided by 0 it would be NaN; the caller of tail_of knows of numbers only.
    return ZERO if args[0].is_zero and args[1].kind == "number" and args[1].value else None


def _where(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    if args[0].kind == "number":
        chosen = args[1 if args[0].value else 2]
        if chosen.kind != "number":
            return chosen
        return hidden(chosen.value, bool(args[0].value), levels[0])
    if args[1].kind == "low" and args[2].kind == "low":
        return HIDDEN
    return args[1] if args[1] == args[2] else None


def _min(args: list[Tail], levels: list[float | None], floor: float) -> Tail | None:
    return HIDDEN if any(x.kind == "low" for x in args) and all(x.is_finite for x in args) else None


_SPECIAL: dict[str, Callable[[list[Tail], list[float | None], float], Tail | None]] = {
    **dict.fromkeys(("Add", "Sum"), _add),
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Where": _where,
    "Min": _min,
    "And": lambda args, *_: ZERO if any(x.is_zero for x in args) else None,
    "Or": lambda args, *_: ONE if any(x.kind == "number" and x.value for x in args) else None,
    "Cast": lambda args, *_: args[0] if args[0].kind in ("low", "last") else None,
    "Identity": lambda args, *_: args[0],
    "Dropout": lambda args, *_: args[0],
}
