"""Intervals of tensors, also against what ONNX Runtime computes of random numbers."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfix.facts.intervals import Interval, hull_of, interval_of
from graphfix.facts.view import View

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
SIGNATURE = "(int64[N] x, uint8[N] u, float[T, 4] f, bool[N] b) => (int64[M] y)"
INF = math.inf


def build(body: str) -> ir.Model:
    """A model in which s are sizes, and n0 to n9, m1 and m3 constants."""
    numbers = {**{f"n{i}": i for i in range(10)}, "m1": -1, "m3": -3}
    constants = " ".join(
        f"{name} = Constant <value = int64 {{{x}}}> ()"
        for name, x in numbers.items()
        if name in body
    )
    return ir.from_onnx_text(f"{HEAD} m {SIGNATURE} {{ {constants} s = Shape (f) {body} }}")


def interval(body: str) -> Interval:
    model = build(body)
    return interval_of(model.graph.outputs[0], View(model))


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("y = Identity (x)", -INF, INF),
        ("y = Identity (s)", 0, INF),
        ("y = Size (f)", 0, INF),
        ("y = NonZero (f)", 0, INF),
        ("y = ArgMax (f)", 0, INF),
        ("y = Constant <value = int64[3] {-2, 5, 3}> ()", -2, 5),
        ("y = ConstantOfShape <value = int64[1] {-2}> (s)", -2, -2),
        ("y = Cast <to = 7> (u)", 0, INF),
        ("y = Cast <to = 7> (b)", 0, 1),
        ("y = Cast <to = 7> (f)", -INF, INF),
        ("y = Add (x, s)", -INF, INF),
        ("y = Add (s, n3)", 3, INF),
        ("y = Sub (s, n3)", -3, INF),
        ("y = Sub (n3, s)", -INF, 3),
        ("y = Neg (s)", -INF, 0),
        ("d = Sub (s, n3) y = Abs (d)", 0, INF),
        ("y = Abs (m3)", 3, 3),
        ("y = Mul (s, m3)", -INF, 0),
        ("y = Max (x, n2)", 2, INF),
        ("y = Min (s, n2, n9)", 0, 2),
        ("y = Clip (x, m3, n2)", -3, 2),
        ("y = Clip (s, , n2)", 0, 2),
        ("y = Mod (x, n4)", 0, 3),
        ("y = Mod (x, m3)", -INF, INF),
        ("y = Mod <fmod = 1> (x, n4)", -INF, INF),
        ("a = Sub (s, n9) y = Div (a, n4)", -2, INF),
        ("y = Div (n9, s)", -INF, INF),
        ("a = Max (s, n1) y = Div (s, a)", 0, INF),
        ("y = Where (b, m1, s)", -1, INF),
        ("y = Where (b, s, x)", -INF, INF),
        ("a = Unsqueeze (m1, n0) y = Concat <axis = 0> (a, s)", -1, INF),
        ("a = Unsqueeze (m1, n0) y = Concat <axis = 0> (a, x)", -INF, INF),
        ("y = Range (n2, n9, n2)", 2, 8),
        ("y = Range (n9, n2, m3)", 3, 9),
        ("a = ReduceMax (x) y = Range (n2, n9, a)", -INF, INF),
        ("y = CumSum (s, n0)", 0, INF),
        ("a = Expand (n3, s) y = CumSum (a, n0)", 3, INF),
        ("a = Expand (n3, s) y = CumSum <exclusive = 1> (a, n0)", 0, INF),
        ("y = CumSum (x, n0)", -INF, INF),
        ("y = ReduceSum (s)", 0, INF),
        ("y = ReduceSum (x)", -INF, INF),
        ("a = Gather (s, n1) y = Unsqueeze (a, n0)", 0, INF),
        ("y = GatherElements (s, x)", 0, INF),
    ],
)
def test_an_interval(body: str, low: float, high: float) -> None:
    assert interval(body) == Interval(low, high)


def test_a_number_beyond_its_type_may_be_anything() -> None:
    text = "a = Constant <value = int32 {2000000000}> () y = Add (a, a)"
    model = ir.from_onnx_text(f"{HEAD} m () => (int32 y) {{ {text} }}")
    assert interval_of(model.graph.outputs[0], View(model)) == Interval()


def test_integers_that_become_floats_keep_their_order() -> None:
    text = """s = Shape (f) a = Constant <value = int64 {16777217}> ()
        m = Min (s, a) y = Cast <to = 1> (m)"""
    model = ir.from_onnx_text(f"{HEAD} m (float[T, 4] f) => (float[2] y) {{ {text} }}")
    assert interval_of(model.graph.outputs[0], View(model)) == Interval(0, 16777216)


def test_a_walk_asks_each_tensor_once_and_ends_somewhere() -> None:
    doubled = " ".join(f"a{i + 1} = Add (a{i}, a{i})" for i in range(30))
    assert interval(f"a0 = Identity (s) {doubled} y = Identity (a9)") == Interval(0, INF)
    assert interval(f"a0 = Identity (s) {doubled} y = Identity (a30)") == Interval()


BINARY = ("Add", "Sub", "Mul", "Max", "Min")
UNARY = ("Neg ({})", "Abs ({})", "Clip ({}, m3, n4)", "Mod ({}, n4)", "Div ({}, n2)")
UNARY += ("CumSum ({}, n0)", "Cast <to = 6> ({})")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_computed_lies_in_its_interval(data: st.DataObject) -> None:
    names, lines = ["s", "c"], ["c = Clip (x, m3, n9)"]
    for i in range(data.draw(st.integers(1, 6))):
        a, b = (data.draw(st.sampled_from(names)) for _ in range(2))
        unary = st.sampled_from(UNARY).map(lambda text, a=a: text.format(a))
        binary = st.sampled_from(BINARY).map(lambda op, a=a, b=b: f"{op} ({a}, {b})")
        text = data.draw(st.one_of(unary, binary))
        cast = text.startswith("Cast")
        lines.append(f"t{i} = {text}" + (f" w{i} = Cast <to = 7> (t{i})" if cast else ""))
        names.append(f"w{i}" if cast else f"t{i}")
    model = build(" ".join([*lines, f"y = Identity ({names[-1]})"]))
    x = data.draw(st.lists(st.integers(-20, 20), min_size=2, max_size=2))
    feeds = {
        "x": np.array(x, np.int64),
        "u": np.zeros(2, np.uint8),
        "f": np.zeros((data.draw(st.integers(0, 5)), 4), np.float32),
        "b": np.zeros(2, bool),
    }
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    (y,) = session.run(None, feeds)
    bounds = interval_of(model.graph.outputs[0], View(model))
    assert all(bounds.low <= number <= bounds.high for number in y.tolist())


def test_the_arithmetic_of_intervals() -> None:
    half_line = Interval(0)
    assert half_line * Interval(0, 0) == Interval(0, 0)
    assert half_line - half_line == Interval()
    assert Interval(-2, 3) * Interval(-5, 1) == Interval(-15, 10)
    assert hull_of(3, -4, 1) == Interval(-4, 3)
    assert Interval(-4, 3).magnitude == 4


def test_sizes_in_a_function_are_at_least_0() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
        m (float[T, 4] x) => (int32[N] y) { y = d.f (x) }
        <opset_import: ["" : 17], domain: "d"> f (x) => (y) {
            s = Shape (x) a = Add (s, s) c = Cast <to = 6> (a) y = Identity (c) }"""
    )
    (function,) = model.functions.values()
    assert interval_of(function.outputs[0], View(model)) == Interval(0, INF)
