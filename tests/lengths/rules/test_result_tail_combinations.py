"""Tails that operators make of numbers, masks and hidden scores, each by itself."""

from __future__ import annotations

import math
from typing import Any

import pytest

from graphfix.lengths.rules import result_tail
from graphfix.lengths.rules.result_tail import ResultKind
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

INF, FLOOR = math.inf, -1e30
LOWEST = Tail("low", -INF)
FLOATS = ResultKind(False, False, 3.4e38)


def number(value: float) -> Tail:
    return Tail("number", value)


MASK = number(-1e4)  # what hides where its valid level is 0


@pytest.mark.parametrize(
    ("operator", "args", "levels", "tail"),
    [
        ("Add", [FINITE, HIDDEN], [None, None], HIDDEN),
        ("Add", [HIDDEN, FINITE], [None, None], HIDDEN),
        ("Add", [HIDDEN, HIDDEN], [None, None], LOWEST),
        ("Add", [FINITE, MASK], [None, 0.0], HIDDEN),
        ("Add", [FINITE, MASK], [None, 1.0], None),
        ("Add", [FINITE, number(-1e30)], [None, 1.0], Tail("low", WILD.value)),
        ("Add", [FINITE, number(-1e29)], [None, 1.0], None),
        ("Add", [ANY, MASK], [None, 0.0], None),
        ("Add", [FINITE, number(-INF)], [None, None], number(-INF)),
        ("Add", [ANY, number(-INF)], [None, None], None),
        ("Add", [number(-INF), number(-INF)], [None, None], number(-INF)),
        ("Add", [FINITE, LOWEST], [None, None], LOWEST),
        ("Add", [FINITE, FINITE], [None, None], None),
        ("Sub", [HIDDEN, FINITE], [None, None], HIDDEN),
        ("Sub", [FINITE, HIDDEN], [None, None], None),
        ("Sub", [FINITE, number(1e4)], [None, 0.0], HIDDEN),
        ("Sub", [FINITE, number(1e4)], [0.0, None], None),
        ("Sub", [MASK, FINITE], [0.0, None], HIDDEN),
        ("Sub", [MASK, FINITE], [None, 0.0], None),
        ("Sub", [HIDDEN, number(1e4)], [None, 0.0], LOWEST),
        ("Sub", [ANY, number(1e4)], [None, 0.0], None),
        ("Mul", [ZERO, FINITE], [None, None], ZERO),
        ("Mul", [ZERO, ANY], [None, None], None),
        ("Mul", [ONE, FINITE], [None, None], None),
        ("Div", [ZERO, ONE], [None, None], ZERO),
        ("Div", [ZERO, ZERO], [None, None], None),
        ("Div", [ZERO, FINITE], [None, None], None),
        ("Div", [ONE, ONE], [None, None], None),
        ("Where", [ONE, HIDDEN, FINITE], [0.0, None, None], HIDDEN),
        ("Where", [ZERO, HIDDEN, FINITE], [1.0, None, None], FINITE),
        ("Where", [ONE, MASK, FINITE], [0.0, None, None], HIDDEN),
        ("Where", [ONE, MASK, FINITE], [1.0, None, None], MASK),
        ("Where", [ONE, number(3.0), FINITE], [0.0, None, None], number(3.0)),
        ("Where", [ZERO, FINITE, MASK], [1.0, None, None], HIDDEN),
        ("Where", [FINITE, HIDDEN, HIDDEN], [None, None, None], HIDDEN),
        ("Where", [FINITE, HIDDEN, FINITE], [None, None, None], None),
        ("Where", [FINITE, LAST, LAST], [None, None, None], LAST),
        ("Min", [HIDDEN, FINITE], [None, None], HIDDEN),
        ("Min", [HIDDEN, ANY], [None, None], None),
        ("Min", [FINITE, FINITE], [None, None], None),
        ("And", [ZERO, FINITE], [None, None], ZERO),
        ("And", [ONE, FINITE], [None, None], None),
        ("Or", [ONE, FINITE], [None, None], ONE),
        ("Or", [ZERO, FINITE], [None, None], None),
        ("Cast", [HIDDEN], [None], HIDDEN),
        ("Cast", [LAST], [None], LAST),
        ("Cast", [FINITE], [None], None),
        ("Identity", [FINITE], [None], FINITE),
    ],
)
def test_a_combination(
    operator: str, args: list[Tail], levels: list[float | None], tail: Tail | None
) -> None:
    combine = result_tail._COMBINATIONS[operator]
    assert combine(args, levels, FLOOR) == tail


@pytest.mark.parametrize(
    ("tail", "level", "sign", "hides"),
    [
        (MASK, 0.0, 1, True),
        (MASK, None, 1, False),
        (number(1e4), 0.0, -1, True),
        (number(1e4), 0.0, 1, False),
        (number(-1e30), None, 1, True),
        (number(-INF), 0.0, 1, False),
        (HIDDEN, 0.0, 1, False),
    ],
)
def test_an_addend_that_hides(tail: Tail, level: float | None, sign: int, hides: bool) -> None:
    assert result_tail._is_hiding_addend(tail, level, FLOOR, sign) is hides


@pytest.mark.parametrize(
    ("operator", "args", "bounded"),
    [
        ("Add", [WILD, FINITE], True),
        ("Add", [WILD, WILD], False),
        ("Add", [ANY, FINITE], False),
        ("Min", [WILD, WILD], True),
        ("Where", [ANY, WILD, FINITE], True),
        ("Where", [FINITE, ANY, FINITE], False),
        ("Mul", [FINITE, FINITE], False),
    ],
)
def test_results_no_lower_than_what_they_are_of(
    operator: str, args: list[Tail], bounded: bool
) -> None:
    assert result_tail._keeps_bounded(operator, args) is bounded


@pytest.mark.parametrize(
    ("args", "kind", "tail"),
    [
        ([number(2.0), number(3.0)], FLOATS, number(5.0)),
        ([number(2.0), FINITE], FLOATS, None),
        ([number(INF), number(-INF)], FLOATS, ANY),
        ([number(3e38), number(3e38)], FLOATS, number(INF)),
        ([number(-3e38), number(-3e38)], FLOATS, number(-INF)),
        ([number(3.4e38), number(0.0)], FLOATS, number(3.4e38)),
    ],
)
def test_tails_of_numbers(args: list[Tail], kind: ResultKind, tail: Tail | None) -> None:
    assert result_tail._number_tail("Add", args, kind) == tail
    assert result_tail._number_tail("Acos", [ZERO], kind) is None


TIME = (TimeFactor(size_expr("T")),)


def state(*tails: Tail | None, **facts: Any) -> TensorState:
    return TensorState(tuple(() if x is None else TIME for x in tails), tails, **facts)


@pytest.mark.parametrize(
    ("mask", "args", "at", "hides"),
    [
        (state(None, valid_fill=1.0), [ONE, FINITE, number(-INF)], -1, True),
        (state(None, valid_fill=0.0), [ONE, number(-INF), FINITE], -1, True),
        (state(None, valid_fill=1.0), [ONE, number(-INF), FINITE], -1, False),
        (state(None, valid_fill=1.0), [ONE, ANY, number(-INF)], -1, False),
        (state(None), [ONE, FINITE, number(-INF)], -1, False),
        (state(ONE, valid_fill=1.0), [ONE, FINITE, number(-INF)], -1, False),
        (state(ONE, valid_fill=1.0), [ONE, FINITE, number(-INF)], -2, True),
        (state(None, valid_fill=1.0), [ONE, FINITE, number(-1e9)], -1, False),
    ],
)
def test_a_mask_over_other_axes(mask: TensorState, args: list[Tail], at: int, hides: bool) -> None:
    assert result_tail._hides_beside([mask], args, at) is hides
