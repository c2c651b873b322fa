"""Sums that float16 spoils: squares, their means, and sums along time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.half.test_float16 import HALF, add, agree, f, halved, parse, same_numbers
from tests.passes.models import execute

__all__ = ["same_numbers"]  # a fixture


def test_what_keeps_a_norm_from_0_stays_to_where_it_divides() -> None:
    """torch's F.normalize: the norm, clipped, is expanded before it divides."""
    before = add(
        parse(
            "(float[B, T, 8] x, float[8, 8] w) => (float[B, T, 8] y)",
            """h = MatMul (x, w) n = ReduceL2 <axes = [-1]> (h)
            least = Constant <value = float {1e-12}> () c = Clip (n, least) s = Shape (h)
            e = Expand (c, s) y = Div (h, e)""",
        ),
        w=f(8, 8),
    )
    after = halved(before)
    agree(before, after, {"x": f(2, 3, 8)})
    agree(before, after, {"x": np.zeros((2, 3, 8), np.float32)})
    assert next(x for x in after.graph if x.op_type == "MatMul").outputs[0].dtype == HALF


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        pytest.param("n = LpNormalization (h)", {"n"}, id="DirectML sums in float16"),
        pytest.param("n = LpNormalization <p = 1> (h)", {"n"}, id="magnitudes too"),
        pytest.param(
            "q = Mul (h, h) r = Transpose <perm = [1, 0, 2]> (q) n = ReduceMean <axes = [-1]> (r)",
            {"q", "r", "n"},
            id="moved before they are added",
        ),
        pytest.param("n = ReduceMean <axes = [-1]> (h)", set(), id="no squares"),
        pytest.param("n = Mul (h, h)", set(), id="no sum"),
    ],
)
def test_what_adds_squares_up_stays(body: str, kept: set[str]) -> None:
    before = parse(
        "(float[B, T, 64] x, float[64, 64] w) => (float[C, D, E] y)",
        f"h = MatMul (x, w) {body} y = MatMul (n, w)"
        if "Mean" not in body
        else f"h = MatMul (x, w) {body} y = Relu (n)",
    )
    after = halved(add(before, w=f(64, 64)))
    makers = {x.outputs[0].name: x.outputs[0].dtype for x in after.graph}
    assert {x for x in ("q", "r", "n") if x in makers and makers[x] != HALF} == kept


def test_a_phase_that_is_summed_along_time_stays_with_all_it_comes_from() -> None:
    """A step that is off by 2e-5 of a turn is off by a twelfth of one after 4,000 of them."""
    before = add(
        parse(
            "(float[B, T, 8] x, float[8, 32] w, float[32, 1] v, float[8, 64] u, float[64, 1] o)"
            " => (float[B, T, 1] y)",
            """h = MatMul (x, w) r = Relu (h) f = MatMul (r, v) s = Sigmoid (f)
            rate = Constant <value = float {0.02}> () turns = Mul (s, rate)
            one = Constant <value = int64 {1}> () phase = CumSum (turns, one)
            pi = Constant <value = float {6.2831855}> () angle = Mul (phase, pi) tone = Sin (angle)
            a = MatMul (x, u) b = Tanh (a) loud = MatMul (b, o) y = Mul (tone, loud)""",
        ),
        w=f(8, 32),
        v=f(32, 1),
        u=f(8, 64),
        o=f(64, 1),
    )
    after = halved(before)
    makers = {x.outputs[0].name: x for x in after.graph}
    assert all(makers[x].outputs[0].dtype != HALF for x in ("h", "f", "turns", "angle"))
    assert makers["a"].outputs[0].dtype == HALF
    x = {"x": f(1, 4000, 8)}
    (want,), (got,) = execute(before, x), execute(after, x)
    assert abs(got - want).max() < 1e-2 * abs(want).max()


def test_weights_that_are_compared_after_they_are_summed_stay_alone() -> None:
    """An encoder in front of such a predictor becomes float16 all the same."""
    before = add(
        parse(
            "(float[B, T, 64] x, float[64, 64] w, float[64, 1] v)"
            " => (float[B, T, 64] y, int64[B] n)",
            """h = MatMul (x, w) g = Tanh (h) r = MatMul (g, w) f = MatMul (r, v) s = Sigmoid (f)
            one = Constant <value = int64 {1}> () total = CumSum (s, one) t = Floor (total)
            k = Cast <to = 7> (t) ax = Constant <value_ints = [1, 2]> ()
            n = ReduceMax <keepdims = 0, axes = [1, 2]> (k) y = Tanh (r)""",
        ),
        w=f(64, 64),
        v=f(64, 1),
    )
    after = halved(before)
    makers = {x.outputs[0].name: x for x in after.graph}
    assert all(makers[x].outputs[0].dtype != HALF for x in ("f", "s", "total", "t"))
    assert makers["h"].outputs[0].dtype == HALF
