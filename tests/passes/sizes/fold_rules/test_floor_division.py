"""Divisions of integers that round down: what is read as one, and what is built."""

from __future__ import annotations

import numpy as np
import pytest

import graphfix
from graphfix.facts.view import View
from graphfix.passes.common.fold_view import FoldView
from graphfix.passes.sizes.fold_rules.floor_division import read_floor_division
from tests.passes.models import execute, model, ops

# The quotient goes into another division: both are one where both round down.
TEXT = """m (int64[T] x) => (int64[T] y) <int64 low = {{{low}}}, int64 high = {{{high}}},
    int64 sign = {{{sign}}}, int64 k = {{4}}, int64 three = {{3}}, int64 zero = {{0}}>
    {{ below = Less (x, sign)  move = Where (below, low, high)  total = Add (x, move)
       q = Div (total, k)  r = Mod (q, three)  w = Sub (q, r)  y = Div (w, three) }}"""


@pytest.mark.parametrize(
    ("low", "high", "sign", "merges"),
    [
        pytest.param(-3, 0, 0, True, id="x // 4"),
        pytest.param(-2, 1, -1, True, id="(x + 1) // 4"),
        pytest.param(-8, -5, 5, True, id="(x - 5) // 4"),
        pytest.param(-2, 0, 0, False, id="moved by another number"),
        pytest.param(-3, 0, 1, False, id="from another number on"),
        pytest.param(-3, 0, -1, False, id="a sign that is none"),
    ],
)
def test_a_move_below_0_rounds_down(low: int, high: int, sign: int, merges: bool) -> None:
    before = model(TEXT.format(low=low, high=high, sign=sign))
    after = before.clone()
    graphfix.run(after, "fold")
    assert not graphfix.run(after, "fold").changed
    assert ops(after).count("Div") == (1 if merges else 2)
    x = {"x": np.arange(-60, 61)}
    np.testing.assert_array_equal(execute(after, x)[0], execute(before, x)[0])


@pytest.mark.parametrize(("k", "is_read"), [(4, True), (1, True), (0, False), (-4, False)])
def test_a_division_of_what_is_never_negative_rounds_down(k: int, *, is_read: bool) -> None:
    m = model(f"""m (float[T] x) => (int64[1] y) <int64 k = {{{k}}}>
        {{ s = Shape (x) y = Div (s, k) }}""")
    division = read_floor_division(m.graph[-1], FoldView(View(m)))
    assert (division is not None) == is_read
    assert division is None or (division.divisor, division.addend) == (k, 0)
