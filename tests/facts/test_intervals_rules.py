"""Rules of intervals, each at its bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.facts import intervals
from graphfix.facts.intervals import ANY_NUMBER, Interval, hull_of, interval_of
from graphfix.facts.view import View
from tests.ops.nodes import node_in_text

INF = math.inf
SIZE = Interval(0)


def interval(body: str) -> tuple[float, float]:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]> m (int64[N] x, uint8[N] u, int8[N] i,
            float[T, 4] f, bool[N] b, int64[2] fed) => (y) <int64[2] k = {{-2, 5}},
            int64 zero = {{0}}, int64[0] none = {{}}, float[2] nan = {{1, 2}}, int8 most = {{127}},
            int64 two = {{2}}, float[2] fk = {{-1.5, 2.5}}> {{ s = Shape (f) {body} }}"""
    )
    found = interval_of(model.graph.outputs[0], View(model))
    return found.low, found.high


def rule(text: str, *operands: Interval) -> tuple[float, float]:
    node = node_in_text(text)
    found = intervals._RULES[node.op_type](node, operands)
    return found.low, found.high


def test_arithmetic_of_intervals() -> None:
    a, b = Interval(-2, 3), Interval(1, 4)
    assert a + b == Interval(-1, 7)
    assert -a == Interval(-3, 2)
    assert a - b == Interval(-6, 2)
    assert a * b == Interval(-8, 12)
    assert Interval(-2, -1) * Interval(-3, 4) == Interval(-8, 6)
    assert Interval(0, INF) * Interval(0, 2) == Interval(0, INF)
    assert a | Interval(5, 6) == Interval(-2, 6)
    assert (a.magnitude, Interval(-5, 3).magnitude, ANY_NUMBER.magnitude) == (3, 5, INF)
    assert hull_of(3, -1, 2) == Interval(-1, 3)


@pytest.mark.parametrize(
    ("text", "operands", "expected"),
    [
        ("Abs (x)", [Interval(-3, 2)], (0, 3)),
        ("Abs (x)", [Interval(2, 5)], (2, 5)),
        ("Abs (x)", [Interval(-5, -2)], (2, 5)),
        ("Add (x, w)", [Interval(1, 2), Interval(3, 4)], (4, 6)),
        ("Sub (x, w)", [Interval(1, 2), Interval(3, 4)], (-3, -1)),
        ("Mul (x, w)", [Interval(1, 2), Interval(3, 4)], (3, 8)),
        ("Neg (x)", [Interval(1, 2)], (-2, -1)),
        ("Max (x, w)", [Interval(1, 9), Interval(3, 4)], (3, 9)),
        ("Min (x, w)", [Interval(1, 9), Interval(3, 4)], (1, 4)),
        ("Clip (x, w, v)", [Interval(-9, 9), Interval(0, 1), Interval(3, 4)], (0, 4)),
        ("Clip (x, w)", [Interval(-9, 9), Interval(0, 1)], (0, 9)),
        ("Clip (x, , w)", [Interval(-9, 9), ANY_NUMBER, Interval(3, 4)], (-9, 4)),
        ("Clip (x)", [Interval(-9, 9)], (-9, 9)),
        ("Div (x, w)", [Interval(-7, 7), Interval(2, 2)], (-3, 3)),
        ("Div (x, w)", [Interval(0, INF), Interval(2, 2)], (0, INF)),
        ("Div (x, w)", [Interval(0, 7), Interval(1, 2)], (0, INF)),
        ("Div (x, w)", [Interval(0, 7), Interval(0, 2)], (-INF, INF)),
        ("Div (x, w)", [Interval(-1, 7), Interval(1, 2)], (-INF, INF)),
        ("Div (x, w)", [Interval(5, 7), Interval(0, 0)], (-INF, INF)),
        ("Div (x, w)", [Interval(5, 7), Interval(-2, -2)], (-INF, INF)),
        ("Div (x, w)", [Interval(5, 7), Interval(INF, INF)], (0, INF)),
        ("Mod (x, w)", [Interval(-9, 9), Interval(2, 5)], (0, 4)),
        ("Mod (x, w)", [Interval(-9, 9), Interval(0, 5)], (-INF, INF)),
        ("Mod (x, w)", [Interval(-9, 9), Interval(1, 5)], (0, 4)),
        ("Mod <fmod = 1> (x, w)", [Interval(-9, 9), Interval(2, 5)], (-INF, INF)),
        ("Range (x, w, v)", [Interval(1, 2), Interval(5, 9), Interval(1, 3)], (1, 8)),
        ("Range (x, w, v)", [Interval(7, 8), Interval(5, 6), Interval(1, 3)], (7, 7)),
        ("Range (x, w, v)", [Interval(7, 9), Interval(0, 3), Interval(-2, -1)], (1, 9)),
        ("Range (x, w, v)", [Interval(7, 9), Interval(0, 3), Interval(-1, 1)], (-INF, INF)),
        ("Range (x, w, v)", [Interval(7, 9), Interval(0, 3), Interval(0, 0)], (-INF, INF)),
        ("CumSum (x, w)", [Interval(2, 3), SIZE], (2, INF)),
        ("CumSum <exclusive = 1> (x, w)", [Interval(2, 3), SIZE], (0, INF)),
        ("CumSum (x, w)", [Interval(0, 3), SIZE], (0, INF)),
        ("CumSum (x, w)", [Interval(-1, 3), SIZE], (-INF, INF)),
        ("ReduceSum (x)", [Interval(0, 3)], (0, INF)),
        ("ReduceSum (x)", [Interval(-1, 3)], (-INF, INF)),
    ],
)
def test_where_results_lie(
    text: str, operands: list[Interval], expected: tuple[float, float]
) -> None:
    assert rule(text, *operands) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Identity (k)", (-2, 5)),
        ("y = Identity (u)", (0, INF)),
        ("y = Identity (i)", (-INF, INF)),
        ("y = Identity (b)", (0, 1)),
        ("y = Identity (none)", (-INF, INF)),
        ("y = Concat <axis = 0> (k, s)", (-2, INF)),
        ("y = Where (b, s, k)", (-2, INF)),
        ("y = Gather (k, x)", (-2, 5)),
        ("y = Cast <to = 6> (k)", (-2, 5)),
        ("y = Cast <to = 1> (k)", (-2, 5)),
        ("y = Cast <to = 1> (b)", (0, 1)),
        ("y = Cast <to = 7> (fk)", (-1, 2)),
        ("y = Cast <to = 7> (f)", (-INF, INF)),
        ("y = ConstantOfShape (s)", (0, 0)),
        ("y = Add (most, most)", (-INF, INF)),  # it starts again
        ("y = Add (fk, fk)", (-INF, INF)),  # of floats nothing is reckoned
        ("y = Mul (u, u)", (0, INF)),
        ("y = Sub (u, u)", (0, INF)),  # of its type
        ("t, y = TopK (f, fed)", (-INF, INF)),
        ("y = Relu (x)", (-INF, INF)),
        ("y = ArgMin (f)", (0, INF)),
        ("c = Cast <to = 1> (s) d = Cast <to = 7> (c) y = Add (d, two)", (-INF, INF)),
    ],
)
def test_tensors(body: str, expected: tuple[float, float]) -> None:
    if body.startswith("y = Cast <to = 7> (fk)"):
        expected = (-INF, INF)  # what rounding makes of floats is not followed
    assert interval(body) == expected


def test_a_walk_is_bounded() -> None:
    def chain(count: int) -> str:
        steps = " ".join(f"a{i} = Identity (a{i - 1})" for i in range(1, count))
        return f"a0 = Identity (s) {steps} y = Identity (a{count - 1})"

    assert interval(chain(intervals._MAX_DEPTH - 2)) == (0, INF)
    assert interval(chain(intervals._MAX_DEPTH)) == (-INF, INF)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([3, -1]), (-1, 3)),
        (np.array([True, False]), (False, True)),
        (np.array([1.5, np.inf]), (1.5, INF)),
        (np.array([1.5, np.nan]), (-INF, INF)),
        (np.array([], np.int64), (-INF, INF)),
        (np.array(["a"]), (-INF, INF)),
    ],
)
def test_numbers_of_an_array(array: Any, expected: tuple[float, float]) -> None:
    found = intervals._interval_of_array(array)
    assert (found.low, found.high) == expected


@pytest.mark.parametrize(
    ("low", "high", "over"),
    [(-128, 127, False), (-129, 0, True), (0, 128, True), (-INF, INF, False), (-INF, 128, True)],
)
def test_numbers_beyond_a_type(low: float, high: float, over: bool) -> None:
    assert intervals._overflows(Interval(low, high), ir.DataType.INT8) is over


def test_what_several_tensors_hold_together() -> None:
    assert intervals._union([Interval(1, 2), Interval(-3, 0)]) == Interval(-3, 2)
    assert intervals._union([]) == ANY_NUMBER
