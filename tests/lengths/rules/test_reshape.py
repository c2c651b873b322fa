"""Rules for Reshape and Flatten."""

from __future__ import annotations

from typing import Any

import pytest
import sympy

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rules.reshape import distribute_factors, infer_reshape, merge_factors
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    LAST,
    ONE,
    Axis,
    BatchFactor,
    OtherFactor,
    Tail,
    TensorState,
    TimeFactor,
    size_expr,
)
from tests.lengths.sites import site_of

T, B, W = size_expr("T"), size_expr("B"), size_expr("W")
TIME, ROWS, BACK = TimeFactor(T), BatchFactor(B), TimeFactor(T, reversed=True)


def other(size: sympy.Expr | int) -> OtherFactor:
    return OtherFactor(sympy.sympify(size))


def infer(shape: str, *, node: str = "", **facts: Tail | dict[str, Any]) -> TensorState:
    """Return the state of ``x``, [B, T, 4], after a Reshape to a constant shape."""
    count = shape.count(",") + 1
    constants = f"int64[{count}] shape = {{{shape}}}"
    return infer_reshape(site_of(node or "y = Reshape (x, shape)", constants=constants, **facts))


@pytest.mark.parametrize(
    ("shape", "axes", "tails"),
    [
        ("0, 0, 4", ((ROWS,), (TIME,), (other(4),)), (None, ONE, None)),
        ("0, 0, 2, 2", ((ROWS,), (TIME,), (other(2),), (other(2),)), (None, ONE, None, None)),
        ("0, -1", ((ROWS,), (TimeFactor(4 * T),)), (None, ONE)),
        ("0, 1, -1, 4", ((ROWS,), (), (TIME,), (other(4),)), (None, None, ONE, None)),
        ("-1, 4", ((ROWS, TIME), (other(4),)), (ONE, None)),
        ("-1", ((ROWS, TimeFactor(4 * T)),), (ONE,)),
    ],
)
def test_axes(shape: str, axes: tuple[Axis, ...], tails: tuple[Tail | None, ...]) -> None:
    state = infer(shape, x=ONE)
    assert (state.axes, state.tails) == (axes, tails)


@pytest.mark.parametrize(
    ("axis", "axes"),
    [(1, ((ROWS,), (TimeFactor(4 * T),))), (2, ((ROWS, TIME), (other(4),)))],
)
def test_flatten(axis: int, axes: tuple[Axis, ...]) -> None:
    assert infer("1", node=f"y = Flatten <axis = {axis}> (x)", x=ONE).axes == axes


@pytest.mark.parametrize(
    ("shape", "tail", "expected"),
    [
        ("0, -1", LAST, FINITE),
        ("0, 0, 2, 2", LAST, LAST),
        ("0, -1", ANY, ANY),
        ("0, -1", FINITE, FINITE),
    ],
)
def test_what_repeats_the_last_frame_is_one_frame(shape: str, tail: Tail, expected: Tail) -> None:
    assert infer(shape, x=tail).tails[1] == expected


def test_steps_are_kept_where_only_axes_of_size_1_come_and_go() -> None:
    facts = {"steps": (0, 1), "fill": 2.0, "sign": 2}
    kept = infer("0, 1, -1, 4", x=facts)
    assert (kept.steps, kept.fill, kept.sign) == ((0, 1), 2.0, 2)
    assert infer("0, -1", x=facts).steps is None


def test_two_times_in_one_axis_keep_no_numbers() -> None:
    for tail, expected in ((ONE, FINITE), (ANY, ANY)):
        site = site_of(
            "y = Reshape (x, shape)",
            inputs="float[T, T] x",
            axis="x.0+x.1",
            constants="int64[1] shape = {-1}",
            x=tail,
        )
        assert infer_reshape(site).tails == (expected,)


def test_padded_sizes_stay_so() -> None:
    state = infer("0, -1", x={"counts_padding": True, "sign": 1})
    assert (state.counts_padding, state.sign) == (True, 1)
    assert not state.time_axes


def test_a_rank_that_is_not_known_must_not_grow() -> None:
    with pytest.raises(RefusedError, match="its result grows"):
        infer("0, -1", x={"axes": None, "tails": ()})


@pytest.mark.parametrize(
    ("factors", "out", "places"),
    [
        ([ROWS, TIME], [B, T], [[(ROWS, 0)], [(TIME, 1)]]),
        ([ROWS, TIME], [B * T], [[(ROWS, 0), (TIME, 1)]]),
        ([other(6)], [2, 3], [[(other(2), 0)], [(other(3), 0)]]),
        ([other(6)], [6, 1], [[(other(6), 0)], []]),
        ([other(2), other(3)], [1, 6], [[], [(other(2), 0), (other(3), 1)]]),
        ([other(2), other(6)], [4, 3], [[(other(2), 0), (other(2), 1)], [(other(3), 1)]]),
        ([TimeFactor(4 * T)], [T, 4], [[(TIME, 0)], [(other(4), 0)]]),
        ([TimeFactor(4 * T)], [2 * T, 2], [[(TimeFactor(2 * T), 0)], [(other(2), 0)]]),
        (
            [TIME],
            [sympy.floor(T / 3), 3],
            [[(TimeFactor(sympy.floor(T / 3)), 0)], [(other(3), 0)]],
        ),
        ([TIME], [T / 3, 1, 3], [[(TimeFactor(T / 3), 0)], [], [(other(3), 0)]]),
        ([ROWS, other(1)], [B], [[(ROWS, 0)]]),
    ],
)
def test_factors_are_dealt_out_in_order(factors: Any, out: Any, places: Any) -> None:
    pieces = [(x, i) for i, x in enumerate(factors)]
    assert distribute_factors(pieces, [sympy.sympify(x) for x in out]) == places


@pytest.mark.parametrize(
    ("factors", "out", "reason"),
    [
        ([ROWS], [B, 2], "how it deals out the axes cannot be inferred"),
        ([ROWS, other(2)], [B], "how it deals out the axes cannot be inferred"),
        ([TIME], [5, 2], "it splits an axis of size T into 5 and the rest"),
        ([BACK], [sympy.floor(T / 3), 3], "it splits an axis of size T into"),
        ([TimeFactor(4 * T, reversed=True)], [T, 4], "it splits an axis of size"),
        ([TIME], [3, sympy.floor(T / 3)], r"-p fix-dims:T=3\)"),
        ([TIME], [sympy.floor(T / 3), 4], "it splits an axis of size T into"),
        ([TIME], [sympy.floor(T / 3), W], "it splits an axis of size T into"),
        ([ROWS], [2, 3], "it splits an axis of size B into 2 and the rest$"),
        ([other(6)], [4, 2], "it splits an axis of size 6 into 4"),
        ([other(40)], [2 * T, T], "it splits an axis of size 40 into 2\\*T .*-p thaw frees it"),
    ],
)
def test_what_cannot_be_dealt_out(factors: Any, out: Any, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        distribute_factors([(x, i) for i, x in enumerate(factors)], [sympy.sympify(x) for x in out])


@pytest.mark.parametrize(
    ("axis", "merged"),
    [
        ((), ()),
        ((other(2), other(3)), (other(6),)),
        ((TIME, other(2)), (TimeFactor(2 * T),)),
        ((TIME, other(2), other(3)), (TimeFactor(6 * T),)),
        ((BACK, other(2)), (BACK, other(2))),
        ((other(2), TIME), (other(2), TIME)),
        ((ROWS, other(2), TIME), (ROWS, other(2), TIME)),
        ((TimeFactor(T + 1), other(2)), (TimeFactor(2 * T + 2),)),
    ],
)
def test_neighbours_are_merged(axis: Axis, merged: Axis) -> None:
    assert merge_factors(axis) == merged
