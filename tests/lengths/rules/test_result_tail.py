"""Tails of element-wise results, from what each input holds."""

from __future__ import annotations

import math
from typing import Any

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
    PARTLY_HIDDEN,
    WILD,
    ZERO,
    Tail,
    TensorState,
    TimeFactor,
    size_expr,
    state_with_tail,
)

FLOATS = ResultKind(False, False, 3.4e38)
BOOLEANS = ResultKind(True, True, 1.0)
TRUTHS = ResultKind(False, True, 1.0)
TIME = (TimeFactor(size_expr("T")),)
LOWEST, INF = Tail("low", -math.inf), math.inf


def number(value: float) -> Tail:
    return Tail("number", value)


def state(tail: Tail | None, **facts: Any) -> TensorState:
    """Return the state of a vector along time; of a scalar if it has no tail."""
    if tail is None:
        return TensorState((), (), **facts)
    base = state_with_tail((TIME,), tail)
    return TensorState(base.axes, base.tails, **facts)


def tail_of(
    operator: str, *tails: Tail | None, levels: Any = (), kind: ResultKind = FLOATS
) -> Tail:
    levels = (*levels, *[None] * (len(tails) - len(levels)))
    states = [state(x, valid_fill=y) for x, y in zip(tails, levels, strict=True)]
    return infer_tail(operator, states, -1, kind)


@pytest.mark.parametrize(
    ("operator", "tails", "levels", "expected"),
    [
        ("Add", (ONE, number(2)), (), number(3)),
        ("Add", (FINITE, ONE), (), FINITE),
        ("Add", (ANY, ZERO), (), ANY),
        ("Add", (LAST, LAST), (), LAST),
        ("Add", (FINITE, number(-1e4)), (None, 0.0), HIDDEN),
        ("Add", (FINITE, number(-1e4)), (None, 1.0), FINITE),
        ("Add", (FINITE, number(-999)), (None, 0.0), FINITE),
        ("Add", (FINITE, number(-1e3)), (None, 0.0), HIDDEN),
        ("Add", (ONE, number(-1e4)), (None, 0.0), HIDDEN),
        ("Add", (ANY, number(-1e4)), (None, 0.0), ANY),
        ("Add", (FINITE, HIDDEN), (), HIDDEN),
        ("Add", (HIDDEN, HIDDEN), (), LOWEST),
        ("Add", (FINITE, number(-INF)), (), number(-INF)),
        ("Add", (ANY, number(-INF)), (), ANY),
        ("Add", (number(-INF), number(-INF)), (), number(-INF)),
        ("Add", (FINITE, number(-1e31)), (), Tail("low", WILD.value)),
        ("Add", (FINITE, number(-9e29)), (), WILD),
        ("Sum", (FINITE, HIDDEN, ONE), (), HIDDEN),
        ("Sub", (FINITE, number(1e4)), (None, 0.0), HIDDEN),
        ("Sub", (FINITE, number(1e4)), (None, 2.0), FINITE),
        ("Sub", (HIDDEN, FINITE), (), HIDDEN),
        ("Sub", (number(-1e4), FINITE), (0.0, None), HIDDEN),
        ("Sub", (HIDDEN, number(1e4)), (None, 0.0), LOWEST),
        ("Sub", (HIDDEN, ANY), (), ANY),
        ("Sub", (number(5), number(2)), (), number(3)),
        ("Mul", (ZERO, FINITE), (), ZERO),
        ("Mul", (FINITE, ZERO), (), ZERO),
        ("Mul", (ZERO, ANY), (), ANY),
        ("Mul", (number(2), number(3)), (), number(6)),
        ("Div", (ZERO, number(2)), (), ZERO),
        ("Div", (ZERO, FINITE), (), ANY),
        ("Div", (ZERO, WILD), (), ANY),
        ("Div", (ZERO, LOWEST), (), ANY),
        ("Div", (ZERO, ZERO), (), ANY),
        ("Div", (FINITE, number(2)), (), ANY),
        ("Min", (HIDDEN, FINITE), (), HIDDEN),
        ("Min", (HIDDEN, ANY), (), ANY),
        ("Min", (WILD, WILD), (), WILD),
        ("Max", (WILD, FINITE), (), WILD),
        ("Max", (WILD, WILD), (), WILD),
        ("Add", (WILD, FINITE), (), WILD),
        ("Add", (WILD, WILD), (), ANY),
        ("Mul", (WILD, FINITE), (), ANY),
        ("Identity", (WILD,), (), WILD),
        ("Cast", (HIDDEN,), (), HIDDEN),
        ("Cast", (LAST,), (), LAST),
        ("Cast", (number(2.0),), (), number(2.0)),
        ("Where", (ONE, LAST, FINITE), (), LAST),
        ("Where", (ZERO, LAST, FINITE), (), FINITE),
        ("Where", (ZERO, HIDDEN, LAST), (), LAST),
        ("Where", (ONE, number(-1e4), FINITE), (0.0,), HIDDEN),
        ("Where", (ONE, number(-1e4), FINITE), (1.0,), number(-1e4)),
        ("Where", (ZERO, FINITE, number(-1e4)), (1.0,), HIDDEN),
        ("Where", (ONE, number(-INF), FINITE), (0.0,), number(-INF)),
        ("Where", (FINITE, HIDDEN, LOWEST), (), HIDDEN),
        ("Where", (FINITE, number(3), number(3)), (), number(3)),
        ("Where", (FINITE, HIDDEN, FINITE), (), FINITE),
        ("Where", (FINITE, WILD, LAST), (), WILD),
        ("Exp", (number(0),), (), number(1)),
        ("Log", (number(-1),), (), ANY),
        ("Cos", (LAST,), (), LAST),
        ("Cos", (FINITE,), (), FINITE),
        ("Exp", (LAST,), (), ANY),
        ("Mul", (number(1e30), number(1e30)), (), number(INF)),
        ("Mul", (number(-1e30), number(1e30)), (), number(-INF)),
        ("Relu", (ZERO,), (), ZERO),
        ("Exp", (ZERO,), (), ONE),
        ("Exp", (FINITE,), (), ANY),
        ("Tanh", (ANY,), (), ANY),
        ("Add", (ZERO, ONE), (), ONE),
        ("Add", (ZERO, FINITE), (), FINITE),
        ("Add", (HIDDEN, FINITE), (), HIDDEN),
        ("Add", (HIDDEN, ANY), (), ANY),
        ("Add", (number(-INF), FINITE), (), number(-INF)),
        ("Add", (number(-INF), ANY), (), ANY),
        ("Sub", (FINITE, HIDDEN), (), FINITE),
        ("Div", (ZERO, ONE), (), ZERO),
        ("Div", (ONE, ZERO), (), number(INF)),
        ("Where", (ONE, HIDDEN, FINITE), (), HIDDEN),
        ("Where", (ZERO, HIDDEN, FINITE), (), FINITE),
        ("Where", (FINITE, HIDDEN, HIDDEN), (), HIDDEN),
        ("Where", (FINITE, ZERO, ZERO), (), ZERO),
        ("Cast", (WILD,), (), WILD),
        ("Dropout", (ANY,), (), ANY),
        ("Abs", (WILD,), (), ANY),
        ("Sub", (FINITE, number(-1e4)), (None, 0.0), FINITE),
    ],
)
def test_floats(operator: str, tails: tuple[Tail, ...], levels: Any, expected: Tail) -> None:
    assert tail_of(operator, *tails, levels=levels) == expected


@pytest.mark.parametrize(
    ("operator", "tails", "expected"),
    [
        ("And", (ZERO, ANY), ZERO),
        ("And", (ANY, ZERO), ZERO),
        ("And", (ONE, FINITE), FINITE),
        ("Or", (ONE, ANY), ONE),
        ("Or", (ONE, FINITE), ONE),
        ("Or", (ZERO, FINITE), FINITE),
        ("And", (ZERO, FINITE), ZERO),
        ("IsNaN", (ANY,), FINITE),
        ("Less", (LAST, LAST), LAST),
        ("Less", (number(1), number(2)), ONE),
        ("Less", (ANY, number(2)), FINITE),
        ("Equal", (LAST, LAST), LAST),
    ],
)
@pytest.mark.parametrize("kind", [BOOLEANS, TRUTHS])
def test_booleans(operator: str, tails: tuple[Tail, ...], expected: Tail, kind: ResultKind) -> None:
    assert tail_of(operator, *tails, kind=kind) == expected


def test_the_least_of_a_small_type_hides_scores() -> None:
    half = ResultKind(False, False, 65504.0)
    assert tail_of("Add", FINITE, number(-6e4), kind=half) == HIDDEN
    assert tail_of("Add", FINITE, number(-5.8e4), kind=half) == FINITE
    assert tail_of("Mul", number(6e4), number(2), kind=half) == number(INF)
    assert tail_of("Add", number(65504), ZERO, kind=half) == number(65504)
    scaled = [state(number(-1e3)), state(None, fill=1e3)]
    assert infer_tail("Mul", scaled, -1, half) == number(-INF)


@pytest.mark.parametrize(
    ("number_of_mask", "behind", "valid", "expected"),
    [
        (-1e3, True, 0.0, HIDDEN),
        (-999.0, True, 0.0, number(-999.0)),
        (-1e4, True, 1.0, number(-1e4)),
        (-1e4, False, 1.0, HIDDEN),
        (-1e4, False, 0.0, number(-1e4)),
        (-1e4, True, None, number(-1e4)),
        (-INF, True, 0.0, number(-INF)),
        (-1e4, True, 0.0, HIDDEN),
        (-1.0, True, 0.0, number(-1.0)),
    ],
)
def test_masks_put_numbers(
    number_of_mask: float, behind: bool, valid: float | None, expected: Tail
) -> None:
    assert masked_number_tail(number_of_mask, behind, valid) == expected


def test_axes_count_from_the_end() -> None:
    both = TensorState((TIME, ()), (ONE, None))
    assert tail_from_end(both, -2) == ONE
    assert tail_from_end(both, -1) == LAST
    assert tail_from_end(both, -3) == LAST
    assert tail_from_end(TensorState((TIME, ()), (WILD, None)), -1) == WILD
    assert tail_from_end(TensorState((TIME, ()), (ANY, None)), -1) == ANY
    assert tail_from_end(TensorState((TIME, ()), (ANY, None)), -2) == ANY
    assert tail_from_end(TensorState((), (), fill=2.0), -1) == number(2.0)
    assert tail_from_end(TensorState((TIME,), (None,)), -1) == LAST


def test_what_has_no_time_repeats_the_last_frame() -> None:
    assert tail_of("Add", LAST, None) == LAST
    assert tail_of("Add", FINITE, None) == FINITE
    assert infer_tail("Add", [state(LAST), state(None, fill=1.0)], -1, FLOATS) == LAST
    assert infer_tail("Add", [state(ONE), state(None, fill=1.0)], -1, FLOATS) == number(2)
    assert infer_tail("Add", [state(FINITE, fill=1.0), state(LAST)], -1, FLOATS) == LAST


@pytest.mark.parametrize(
    ("mask", "branches", "expected"),
    [
        ({"valid_fill": 0.0}, (number(-INF), FINITE), PARTLY_HIDDEN),
        ({"valid_fill": 1.0}, (FINITE, number(-INF)), PARTLY_HIDDEN),
        ({"valid_fill": 1.0}, (number(-INF), FINITE), ANY),  # all that is valid is hidden
        ({}, (number(-INF), FINITE), ANY),  # what is valid may be hidden, too
        ({"valid_fill": 0.0}, (number(-INF), ANY), ANY),
        ({"valid_fill": 0.0}, (number(INF), FINITE), ANY),
    ],
)
def test_a_mask_of_keys_hides_keys_of_padded_queries(
    mask: dict[str, float], branches: tuple[Tail, Tail], expected: Tail
) -> None:
    keys = TensorState(((), TIME), (None, FINITE), **mask)  # type: ignore[arg-type]
    scores = [TensorState((TIME, TIME), (x, x)) for x in branches]
    assert infer_tail("Where", [keys, *scores], -2, FLOATS) == expected
    each = TensorState((TIME, TIME), (FINITE, FINITE), **mask)  # type: ignore[arg-type]
    assert infer_tail("Where", [each, *scores], -2, FLOATS) == ANY  # each query has its own
