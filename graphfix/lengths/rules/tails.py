"""What lies behind the valid length of an element-wise result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graphfix.lengths import numbers
from graphfix.lengths.domain import ANY, FINITE, HIDDEN, LAST, LOW, ONE, ZERO, State, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _content(state: State, from_end: int) -> Tail:
    """What a tensor holds where an axis, counted from the end, is beyond its valid length."""
    index = state.rank + from_end
    if index >= 0 and state.tails[index] is not None:
        return state.tail(index)
    if state.fill is not None:
        return Tail("number", state.fill)
    # It does not change along that axis; its own tails, on other axes, may be anything.
    return LAST if state.is_finite else ANY


def _repeats(state: State, from_end: int) -> bool:
    """Whether behind its valid length, if it has one there, an axis repeats what came last."""
    index = state.rank + from_end
    has_tail = index >= 0 and state.tails[index] is not None
    return not has_tail or state.fill is not None or state.tail(index).kind == "last"


def tail_of(op_type: str, states: Sequence[State], at: int, whole: bool, to_bool: bool) -> Tail:
    """The tail of a result on one axis, counted from the end.

    Args:
        op_type: The operator.
        states: What is known of its inputs.
        at: The axis: -1 is the last.
        whole: Whether the result is of integers.
        to_bool: Whether the result is a boolean.
    """
    args = [_content(x, at) for x in states]
    values = [x.value for x in args if x.kind == "number"]
    if len(values) == len(args):
        number = numbers.apply(op_type, values, whole=whole, to_bool=to_bool)
        if number is not None:
            return ANY if math.isnan(number) else Tail("number", number)
    special = _SPECIAL.get(op_type)
    found = None if special is None else special(args)
    if found is not None:
        return found
    finite = all(x.is_finite for x in args)
    signs, fills = [x.sign for x in states], [x.fill for x in states]
    if finite and all(_repeats(x, at) for x in states):
        return LAST if to_bool or numbers.keeps_finite(op_type, signs, fills) else ANY
    if to_bool or (finite and numbers.keeps_finite(op_type, signs, fills)):
        return FINITE
    return ANY


def _add(args: list[Tail]) -> Tail | None:
    low = any(x.is_low for x in args)
    if low and all(x.is_finite or x.value == -math.inf for x in args):
        return HIDDEN
    return None


def _sub(args: list[Tail]) -> Tail | None:
    high = args[1].kind == "number" and args[1].value >= -LOW
    if (args[0].is_low and args[1].is_finite) or (high and args[0].is_finite):
        return HIDDEN
    return None


def _mul(args: list[Tail]) -> Tail | None:
    if any(x.is_zero for x in args) and all(x.is_finite for x in args):
        return ZERO
    return None


def _div(args: list[Tail]) -> Tail | None:
    # Divided by 0 it would be NaN; the caller of tail_of knows of numbers only.
    if args[0].is_zero and args[1].kind in ("number", "low") and args[1].value:
        return ZERO
    return None


def _where(args: list[Tail]) -> Tail | None:
    if args[0].kind == "number":
        return args[1 if args[0].value else 2]
    if args[1].is_low and args[2].is_low:
        return HIDDEN
    if args[1] == args[2]:
        return args[1]
    return None


def _min(args: list[Tail]) -> Tail | None:
    return HIDDEN if any(x.is_low for x in args) and all(x.is_finite for x in args) else None


_SPECIAL: dict[str, Callable[[list[Tail]], Tail | None]] = {
    "Add": _add,
    "Sum": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Where": _where,
    "Min": _min,
    "And": lambda args: ZERO if any(x.is_zero for x in args) else None,
    "Or": lambda args: ONE if any(x.kind == "number" and x.value for x in args) else None,
    "Cast": lambda args: args[0] if args[0].kind in ("low", "last") else None,
    "Identity": lambda args: args[0],
    "Dropout": lambda args: args[0],
}
