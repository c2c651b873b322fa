"""Axes that run together, and those that no mask can be put over."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import sympy

from graphfix.lengths.joint_axes import (
    RefusedError,
    check_batch,
    check_maskable,
    check_rows,
    check_rows_unmixed,
    join_axes,
    require_sole_time,
)
from graphfix.lengths.length_source import LengthSource, find_length_source
from graphfix.lengths.tail_state import (
    FINITE,
    Axis,
    BatchFactor,
    OtherFactor,
    ShiftedFactor,
    TimeFactor,
    size_expr,
    state_with_tail,
)

T, B = size_expr("T"), size_expr("B")
TIME, ROWS = TimeFactor(T), BatchFactor(B)
BACK = TimeFactor(T, reversed=True)
FOUR, OPEN = OtherFactor(sympy.Integer(4)), OtherFactor(size_expr("C"))
SHIFTED = ShiftedFactor(T, T)


def source_of(inputs: str, axis: str) -> LengthSource:
    header = '<ir_version: 8, opset_import: ["" : 17]> g'
    model = ir.from_onnx_text(f"{header} ({inputs}) => (y) {{ y = Cos (x) }}")
    return find_length_source(model, axis)


BATCHED, SINGLE = source_of("float[B, T, 4] x", "x.1"), source_of("float[T, 4] x", "x.0")


@pytest.mark.parametrize(
    ("axes", "joint"),
    [
        ([], ()),
        ([()], ()),
        ([(TIME,), ()], (TIME,)),
        ([(), (TIME,)], (TIME,)),
        ([(TIME,), (TIME,)], (TIME,)),
        ([(FOUR,), (OPEN,)], (OPEN,)),
        ([(ROWS,), (OPEN,)], (ROWS,)),
        ([(OPEN,), (ROWS,)], (ROWS,)),
        ([(SHIFTED,), ()], (SHIFTED,)),
        ([(SHIFTED,), (SHIFTED,)], (SHIFTED,)),
        ([(BACK,), (BACK,)], (BACK,)),
        ([(TIME, FOUR), (TIME, OtherFactor(sympy.Integer(4)))], (TIME, FOUR)),
        ([(ROWS, TIME), (OtherFactor(B), TIME)], (ROWS, TIME)),
        ([(OtherFactor(B), TIME), (ROWS, TIME)], (ROWS, TIME)),
        (
            [(TimeFactor(sympy.floor(sympy.floor(T / 2) / 2)),), (TimeFactor(sympy.floor(T / 4)),)],
            (TimeFactor(sympy.floor(T / 4)),),
        ),
        ([(TimeFactor(sympy.Min(T, 90)),), (TIME,)], (TIME,)),
        ([(TIME,), (TimeFactor(sympy.Min(T, 90)),)], (TIME,)),
        ([(TIME,), (OtherFactor(sympy.Max(0, sympy.Min(T, 90))),)], None),
        ([(TIME,), (TimeFactor(2 * sympy.floor(T / 2)),)], (TIME,)),
        ([(TimeFactor(2 * sympy.floor(T / 2)),), (TIME,)], (TIME,)),
        ([(TIME,), (TimeFactor(2 * sympy.floor(T / 2) + 1),)], (TIME,)),
        ([(TIME,), (TimeFactor(sympy.floor(T / 2)),)], None),
    ],
)
def test_axes_that_run_together(axes: list[Axis], joint: Axis | None) -> None:
    if joint is None:
        with pytest.raises(RefusedError, match="it combines axes of size"):
            join_axes(axes)
    else:
        assert join_axes(axes) == joint


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ((TIME,), (BACK,), "it combines a tensor with one that runs backwards"),
        ((TIME,), (OPEN,), "it combines axes of size T and C"),
        ((OPEN,), (TIME,), "it combines axes of size C and T"),
        ((TIME,), (TIME, FOUR), r"it combines axes of size T and T \* 4"),
        ((SHIFTED,), (TIME,), "it combines axes of size T and T"),
        ((TIME,), (TimeFactor(2 * T),), r"it combines axes of size T and 2\*T"),
        ((TIME,), (OtherFactor(sympy.Integer(9)),), r"fix the size \(-p fix-dims:T=9\)"),
        ((FOUR,), (TimeFactor(2 * T),), r"fix the size \(-p fix-dims:T=2\)"),
        ((OtherFactor(sympy.Integer(5)),), (TimeFactor(2 * T),), r"it combines axes of size 5 and"),
        ((BatchFactor(sympy.Integer(9)),), (TIME,), "it combines axes of size 9 and T"),
    ],
)
def test_axes_that_do_not(a: Axis, b: Axis, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        join_axes([a, b])


@pytest.mark.parametrize(
    ("axes", "axis", "reason"),
    [
        (((ROWS,), (TIME,)), 1, ""),
        (((ROWS, FOUR), (TIME, FOUR)), 1, ""),
        (((ROWS,), (OPEN,), (TIME,)), 2, ""),
        (((ROWS, TIME),), 0, ""),
        (((ROWS,), (TIME, TimeFactor(T))), 1, "an axis holds several times at once"),
        (((ROWS,), (FOUR,)), 1, "an axis holds several times at once"),
        (((FOUR,), (TIME,)), 1, "it has no batch axis"),
        (((ROWS,), (ROWS,), (TIME,)), 2, "it has no batch axis"),
        (((ROWS,), (TIME, OPEN)), 1, "an axis holds time together with a size"),
        (((ROWS, OPEN), (TIME,)), 1, "an axis holds time together with a size"),
        (((ROWS,), (OPEN, FOUR), (TIME,)), 2, ""),
    ],
)
def test_masks(axes: tuple[Axis, ...], axis: int, reason: str) -> None:
    if not reason:
        check_maskable(axes, axis, BATCHED)
        return
    with pytest.raises(RefusedError, match=reason):
        check_maskable(axes, axis, BATCHED)


def test_without_a_batch_no_rows_are_needed() -> None:
    check_maskable(((TIME,), (FOUR,)), 0, SINGLE)
    check_batch(state_with_tail(((TIME,),), FINITE), SINGLE)
    check_rows(state_with_tail(((TIME,),), FINITE), SINGLE)


@pytest.mark.parametrize(
    ("axes", "batch", "rows"),
    [
        (((ROWS,), (TIME,)), True, True),
        (((ROWS, FOUR), (TIME,)), True, False),
        (((ROWS,), (ROWS,)), True, False),
        (((FOUR,), (TIME,)), False, False),
        ((), False, False),
    ],
)
def test_rows(axes: tuple[Axis, ...], batch: bool, rows: bool) -> None:
    state = state_with_tail(axes, FINITE)
    for check, passes in ((check_batch, batch), (check_rows, rows)):
        if passes:
            check(state, BATCHED)
            continue
        with pytest.raises(RefusedError, match="batch axis"):
            check(state, BATCHED)


@pytest.mark.parametrize(
    ("axes", "mixed", "refused"),
    [
        (((ROWS,), (TIME,)), (0,), True),
        (((ROWS,), (TIME,)), (1, 0), True),
        (((ROWS,), (TIME,)), (1,), False),
        (((ROWS,), (FOUR,)), (0,), False),
        (((ROWS,), (TIME,)), (), False),
    ],
)
def test_rows_are_not_mixed(axes: tuple[Axis, ...], mixed: tuple[int, ...], refused: bool) -> None:
    state = state_with_tail(axes, FINITE)
    if not refused:
        check_rows_unmixed(state, mixed)
        return
    with pytest.raises(RefusedError, match="it mixes rows of the batch"):
        check_rows_unmixed(state, mixed)


def test_time_alone() -> None:
    assert require_sole_time((TIME,), "it") == TIME
    for axis in ((TIME, FOUR), (BACK,), ()):
        with pytest.raises(RefusedError, match="it holds time beside something else"):
            require_sole_time(axis, "it")
