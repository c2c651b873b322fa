"""Tails of element-wise results."""

from __future__ import annotations

import math

import pytest

from graphfix.lengths.rules.result_tail import (
    ResultKind,
    infer_tail,
    masked_number_tail,
    tail_from_end,
)
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    HIDDEN,
    LAST,
    ONE,
    WILD,
    ZERO,
    Tail,
    TensorState,
    TimeFactor,
    size_expr,
)

TIME = (TimeFactor(size_expr("T")),)
FLOATS = ResultKind(integral=False, boolean=False, largest=3.4e38)
TRUTHS = ResultKind(integral=False, boolean=True, largest=1)
MINUS_INFINITY = Tail("number", -math.inf)
MASK = Tail("number", -1e4)


def timed(tail: Tail, valid: float | None = None) -> TensorState:
    return TensorState((TIME,), (tail,), valid_fill=valid)


def number(value: float) -> TensorState:
    return TensorState((), (), fill=value)


VECTOR = TensorState((TIME,), (None,))


def tail_of(operator: str, *states: TensorState, kind: ResultKind = FLOATS) -> Tail:
    return infer_tail(operator, states, -1, kind)


@pytest.mark.parametrize(
    ("operator", "tails", "result"),
    [
        ("Relu", [ZERO], ZERO),
        ("Exp", [ZERO], ONE),
        ("Cos", [LAST], LAST),
        ("Exp", [LAST], ANY),
        ("Exp", [FINITE], ANY),
        ("Tanh", [ANY], ANY),
        ("Add", [ZERO, ONE], ONE),
        ("Add", [ZERO, FINITE], FINITE),
        ("Add", [LAST, LAST], LAST),
        ("Mul", [ZERO, FINITE], ZERO),
        ("Mul", [ZERO, ANY], ANY),
        ("Div", [ZERO, ONE], ZERO),
        ("Div", [ZERO, ZERO], ANY),
        ("Div", [ONE, ZERO], Tail("number", math.inf)),
        ("Add", [HIDDEN, FINITE], HIDDEN),
        ("Add", [HIDDEN, HIDDEN], Tail("low", -math.inf)),
        ("Add", [HIDDEN, ANY], ANY),
        ("Add", [MINUS_INFINITY, FINITE], MINUS_INFINITY),
        ("Add", [MINUS_INFINITY, ANY], ANY),
        ("Add", [WILD, FINITE], WILD),
        ("Add", [WILD, WILD], ANY),
        ("Max", [WILD, WILD], WILD),
        ("Sub", [HIDDEN, FINITE], HIDDEN),
        ("Sub", [FINITE, HIDDEN], FINITE),
        ("Min", [HIDDEN, FINITE], HIDDEN),
        ("Where", [ONE, HIDDEN, FINITE], HIDDEN),
        ("Where", [ZERO, HIDDEN, FINITE], FINITE),
        ("Where", [FINITE, HIDDEN, HIDDEN], HIDDEN),
        ("Where", [FINITE, ZERO, ZERO], ZERO),
        ("Cast", [HIDDEN], HIDDEN),
        ("Cast", [WILD], WILD),
        ("Identity", [WILD], WILD),
        ("Dropout", [ANY], ANY),
        ("Abs", [WILD], ANY),
    ],
)
def test_tails(operator: str, tails: list[Tail], result: Tail) -> None:
    assert tail_of(operator, *map(timed, tails)) == result


@pytest.mark.parametrize(
    ("operator", "tails", "result"),
    [
        ("And", [ZERO, FINITE], ZERO),
        ("And", [ONE, FINITE], FINITE),
        ("Or", [ONE, FINITE], ONE),
        ("Or", [ZERO, FINITE], FINITE),
        ("IsNaN", [ANY], FINITE),
        ("Less", [LAST, LAST], LAST),
    ],
)
def test_tails_of_truths(operator: str, tails: list[Tail], result: Tail) -> None:
    assert tail_of(operator, *map(timed, tails), kind=TRUTHS) == result


def test_an_addend_hides_what_it_is_added_to() -> None:
    """It is 0 where the scores are valid, or so low that no score counts."""
    assert tail_of("Add", timed(FINITE), timed(MASK, valid=0)) == HIDDEN
    assert tail_of("Add", timed(FINITE), timed(MASK, valid=1)) == FINITE
    lowest = Tail("low", WILD.value)
    assert tail_of("Add", timed(FINITE), timed(Tail("number", -1e31))) == lowest
    assert tail_of("Sub", timed(FINITE), timed(Tail("number", 1e4), valid=0)) == HIDDEN
    assert tail_of("Sub", timed(FINITE), timed(Tail("number", -1e4), valid=0)) == FINITE


def test_a_number_beyond_the_type_is_an_infinity() -> None:
    half = ResultKind(integral=False, boolean=False, largest=65504)
    assert tail_of("Mul", timed(Tail("number", -1e3)), number(1e3), kind=half) == MINUS_INFINITY


@pytest.mark.parametrize(
    ("value", "behind", "valid", "tail"),
    [
        (-1e4, True, 0, HIDDEN),
        (-1e4, False, 1, HIDDEN),
        (-1e4, True, 1, Tail("number", -1e4)),
        (-1e4, True, None, Tail("number", -1e4)),
        (-1.0, True, 0, Tail("number", -1.0)),
        (-math.inf, True, 0, MINUS_INFINITY),
    ],
)
def test_numbers_behind_a_mask(value: float, behind: bool, valid: float | None, tail: Tail) -> None:
    assert masked_number_tail(value, behind, valid) == tail


def test_what_does_not_change_along_an_axis_repeats_its_last() -> None:
    other = TensorState((TIME, ()), (ANY, None))
    assert tail_from_end(VECTOR, -1) == LAST
    assert tail_from_end(number(3), -1) == Tail("number", 3)
    assert tail_from_end(other, -1) == ANY
    assert tail_from_end(TensorState((TIME, ()), (WILD, None)), -1) == WILD
    assert tail_from_end(other, -2) == ANY
