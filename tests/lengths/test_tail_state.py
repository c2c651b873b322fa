"""What is known of a tensor in a padded run."""

from __future__ import annotations

import math

import pytest
import sympy

from graphfix.lengths import tail_state as facts
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    HIDDEN,
    LAST,
    ONE,
    WILD,
    ZERO,
    BatchFactor,
    OtherFactor,
    ShiftedFactor,
    Tail,
    TensorState,
    TimeFactor,
    size_expr,
)

T = size_expr("T")
TIME, BATCH, FEATURES = TimeFactor(T), BatchFactor(size_expr("B")), OtherFactor(sympy.Integer(4))
FRAMES = TensorState(((BATCH,), (TIME,), (FEATURES,)), (None, FINITE, None), sign=2, fill=3.0)


@pytest.mark.parametrize(
    ("tail", "finite", "bounded", "zero", "after"),
    [
        (ZERO, True, True, True, FINITE),
        (ONE, True, True, False, FINITE),
        (LAST, True, True, False, FINITE),
        (HIDDEN, True, True, False, FINITE),
        (FINITE, True, True, False, FINITE),
        (WILD, False, True, False, ANY),
        (ANY, False, False, False, ANY),
        (Tail("point"), True, True, False, FINITE),
        (Tail("number", 1e18), False, False, False, ANY),
        (Tail("number", 9e17), True, True, False, FINITE),
        (Tail("number", -1e18), False, True, False, ANY),
        (Tail("low", -math.inf), False, False, False, ANY),
    ],
)
def test_tails(tail: Tail, finite: bool, bounded: bool, zero: bool, after: Tail) -> None:
    assert (tail.is_finite, tail.is_bounded, tail.is_zero) == (finite, bounded, zero)
    assert tail.after_arithmetic == after
    state = facts.state_with_tail(((TIME,), (BATCH,)), tail)
    assert (state.is_finite, state.is_bounded) == (finite, bounded)
    assert state.mixed_tail == after


@pytest.mark.parametrize(
    ("tail", "edge", "below"),
    [
        (ZERO, 0.0, True),
        (ZERO, -1.0, False),
        (Tail("number", -5.0), -3.0, True),
        (HIDDEN, 0.0, False),
        (FINITE, 1.0, False),
    ],
)
def test_a_number_may_be_below(tail: Tail, edge: float, below: bool) -> None:
    assert tail.is_below(edge) == below


def test_axes() -> None:
    assert FRAMES.time_axes == (1,)
    assert FRAMES.rank == 3
    assert FRAMES.size_along(1) == T
    assert FRAMES.tail_along(1) == FINITE
    with pytest.raises(ValueError, match="axis 0 carries no time"):
        FRAMES.tail_along(0)
    unknown = TensorState(None)
    assert (unknown.rank, unknown.factors_of(1), unknown.time_axes) == (0, (), ())
    shifted = ShiftedFactor(T, T)
    assert shifted.finite
    assert TensorState(((BATCH,), (BATCH, shifted), ())).shifted_axes == (1,)
    assert unknown.shifted_axes == ()
    assert not TIME.reversed


@pytest.mark.parametrize(
    ("tail", "fill", "sign"),
    [
        (Tail("number", 3.0), 3.0, 2),
        (ZERO, None, 1),
        (Tail("number", -1.0), None, 0),
        (HIDDEN, 3.0, 0),
        (FINITE, 3.0, 2),
    ],
)
def test_another_tail(tail: Tail, fill: float | None, sign: int) -> None:
    state = FRAMES.with_tail(1, tail)
    assert state.tails == (None, tail, None)
    assert (state.fill, state.sign, state.valid_fill) == (fill, sign, 3.0)
    assert state.valid_value == 3.0


def test_another_axis_forgets_what_was_counted_along_it() -> None:
    state = TensorState(((TIME,), ()), (ONE, None), steps=(0, 1), length=T)
    new = state.with_axis(1, (FEATURES,), None)
    assert (new.axes, new.tails) == (((TIME,), (FEATURES,)), (ONE, None))
    assert (new.steps, new.length) == (None, None)
    assert state.with_axis(0, (), None).axes == ((), ())
    assert state.with_axis(0, (), None).tails == (None, None)


def test_other_numbers_are_not_those_that_were_known() -> None:
    state = TensorState(((TIME,),), (ONE,), True, fill=1.0, valid_fill=1.0, steps=(0, 1), length=T)
    new = state.with_other_numbers((ZERO,), 1)
    assert new == TensorState(((TIME,),), (ZERO,), True, sign=1)


def test_axes_are_put_elsewhere() -> None:
    state = FRAMES.rearrange_axes([1, None, 0])
    assert state.axes == ((TIME,), (), (BATCH,))
    assert state.tails == (FINITE, None, None)


@pytest.mark.parametrize(
    ("zeros", "finite", "expected"),
    [
        (False, True, (None, FINITE, FINITE, ANY)),
        (True, True, (None, ZERO, FINITE, ANY)),
        (False, False, (None, ANY, ANY, ANY)),
        (True, False, (None, ZERO, ANY, ANY)),
    ],
)
def test_arithmetic(zeros: bool, finite: bool, expected: tuple[Tail | None, ...]) -> None:
    state = TensorState(((), (TIME,), (TIME,), (TIME,)), (None, ZERO, LAST, ANY))
    assert state.tails_after_arithmetic(zeros=zeros, finite=finite) == expected
    assert state.tails_after_arithmetic() == (None, FINITE, FINITE, ANY)


def test_copies_are_of_one_number_or_not() -> None:
    assert FRAMES.tail_of_copies(LAST) == Tail("number", 3.0)
    assert TensorState(()).tail_of_copies(LAST) == LAST
    assert TensorState((), valid_fill=2.0).valid_value == 2.0
    assert TensorState((), fill=0.0, valid_fill=2.0).valid_value == 0.0


@pytest.mark.parametrize(("number", "sign"), [(0.5, 2), (0, 1), (-0.0, 1), (-1, 0)])
def test_signs(number: float, sign: int) -> None:
    assert facts.sign_of_number(number) == sign


def test_factors() -> None:
    assert facts.carries_time((FEATURES, TIME))
    assert not facts.carries_time((BATCH, FEATURES))
    assert facts.holds_rows((BATCH, TIME))
    assert not facts.holds_rows((TIME,))
    assert facts.sole_time((TIME,)) == TIME
    for axis in ((), (TIME, FEATURES), (FEATURES,), (TimeFactor(T, reversed=True),)):
        assert facts.sole_time(axis) is None
    assert facts.fixed_axis(sympy.Integer(1)) == ()
    assert facts.fixed_axis(sympy.Integer(4)) == (FEATURES,)
    assert facts.size_of((TIME, FEATURES)) == 4 * T
    assert facts.size_of(()) == 1


def test_a_size_that_cannot_be_read_is_a_symbol_of_its_own() -> None:
    assert size_expr("12") == 12
    assert size_expr("T + 1") == T + 1
    assert str(size_expr("a b")) == "_a b"
    assert size_expr("a b").is_integer
    assert size_expr("a b").is_positive


HALF = sympy.floor(T / 2)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (T, T, True),
        (T, T + 1, False),
        (2 * (T + 1), 2 * T + 2, True),
        (sympy.floor((T + 1) / 2), sympy.floor((T - 1) / 2) + 1, True),
        (HALF, sympy.floor((T + 1) / 2), False),
        (sympy.floor(sympy.floor(T / 2) / 2), sympy.floor(T / 4), True),
        (T, size_expr("B"), False),
        (T, sympy.Integer(4), False),
        (T + size_expr("B"), size_expr("B") + T, True),
        # They are no sizes where they are below 1.
        (sympy.Max(T - 5, 0), T - 5, True),
        (-T, -T + HALF - HALF - 1, False),
        (sympy.Min(T, 4096), T, True),
        (sympy.Min(T, 4095), T, False),
    ],
)
def test_sizes_that_are_the_same(a: sympy.Expr, b: sympy.Expr, same: bool) -> None:
    assert facts.same_size(a, b) == same
    assert facts.same_size(b, a) == same


@pytest.mark.parametrize(
    ("size", "grows", "constant", "from_start"),
    [
        (T, True, False, True),
        (T - 1, True, False, True),
        (T - 2, True, False, False),
        (5 - T, False, False, True),
        (-T, False, False, False),
        (HALF, True, False, True),
        (sympy.Mod(T, 2), False, False, True),
        (sympy.Integer(3), True, True, True),
        (sympy.Integer(0), True, True, True),
        (sympy.Integer(-1), True, True, False),
        (T + size_expr("B"), True, False, False),
        (sympy.floor(T / 5000), True, True, True),
        (sympy.Max(T, 4096), True, True, True),
    ],
)
def test_numbers_over_4096_clips(
    size: sympy.Expr, grows: bool, constant: bool, from_start: bool
) -> None:
    assert facts.never_shrinks(size) == grows
    assert facts.never_changes(size) == constant
    assert facts.counts_from_start(size) == from_start


@pytest.mark.parametrize(
    ("size", "number", "clip"),
    [
        (T, 7, 7),
        (HALF, 3, 7),
        (HALF, 2048, 4096),
        (T, 4096, 4096),
        (T, 4097, None),
        (T, 1, 1),
        (T, 0, None),
        (T + size_expr("B"), 3, None),
        (sympy.Integer(3), 3, None),
    ],
)
def test_the_longest_clip_of_a_size(size: sympy.Expr, number: int, clip: int | None) -> None:
    assert facts.longest_clip_of_size(size, sympy.Integer(number)) == clip
    assert facts.longest_clip_of_size(size, T) is None


def test_states_are_made_of_axes() -> None:
    axes = ((BATCH,), (TIME,), (TIME, FEATURES))
    assert facts.state_with_tail(axes, ONE) == TensorState(axes, (None, ONE, ONE))
    tails = facts.state_with_tails(axes, (ONE, ZERO, ANY), 1)
    assert tails == TensorState(axes, (None, ZERO, ANY), sign=1)
    assert facts.state_with_tails(axes, (ONE, ZERO, ANY)).sign == 0
    assert facts.state_without_time(axes) == TensorState(axes, (None, None, None))
    assert facts.state_without_time(None, fixed=True) == TensorState(None, (), fixed=True)
