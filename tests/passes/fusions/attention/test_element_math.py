"""The number that an operator makes of one element of each operand, as ONNX Runtime computes it."""

import math

import numpy as np
import pytest

from graphfix.facts.view import View
from graphfix.passes.fusions.attention.element_math import compute_element
from tests.passes.models import execute, model


@pytest.mark.parametrize(
    ("dtype", "result", "node"),
    [
        ("float", "float", "Add (a, b)"),
        ("float", "float", "Relu (a)"),
        ("float", "float", "Abs (a)"),
        ("float", "float", "Max (a, b, b)"),
        ("float", "float", "Min (a, b)"),
        ("float", "float", "Div (a, b)"),
        ("int64", "int64", "Div (a, b)"),
        ("int64", "int64", "Mul (a, b)"),
        ("float", "float[2]", "Expand (a, two)"),
        ("float", "float[1, 1]", "Flatten <axis = 0> (a)"),
        ("bool", "bool", "Xor (a, b)"),
        ("bool", "bool", "Not (a)"),
        ("float", "bool", "Cast <to = 9> (a)"),
        ("float", "int64", "Cast <to = 7> (a)"),
    ],
)
@pytest.mark.parametrize(("a", "b"), [(-2.5, 2.0), (7.0, -2.0), (0.0, 1.0)])
def test_numbers_are_those_of_onnx_runtime(
    dtype: str, result: str, node: str, a: float, b: float
) -> None:
    m = model(f"m ({dtype} a, {dtype} b) => ({result} y) <int64[1] two = {{2}}> {{ y = {node} }}")
    kind = m.graph.inputs[0].dtype.numpy()
    feeds = {"a": np.array(a).astype(kind), "b": np.array(b).astype(kind)}
    operands = [float(feeds[x.name]) for x in m.graph[-1].inputs if x.name in feeds]
    (expected,) = execute(m, feeds)
    number = compute_element(m.graph[-1], operands, View(m))
    assert {number} == {float(x) for x in expected.reshape(-1)}


@pytest.mark.parametrize(
    "node", ["Clip (a, a)", "Elu <alpha = 2.0> (a)", "com.microsoft.Gelu (a)", "CastLike (a, i)"]
)
def test_what_has_no_law_is_not_guessed(node: str) -> None:
    more = ', "com.microsoft" : 1'
    m = model(f"m (float a, int64 i) => (float y) {{ y = {node} }}", more=more)
    operands = [0.5] * len(m.graph[-1].inputs)
    with pytest.raises(LookupError):
        compute_element(m.graph[-1], operands, View(m))


def test_a_division_by_zero_and_a_cast_infinity_raise() -> None:
    m = model("m (float a) => (int64 y) { b = Div (a, a) y = Cast <to = 7> (b) }")
    divide, cast = m.graph
    with pytest.raises(ArithmeticError):
        compute_element(divide, [1.0, 0.0], View(m))
    with pytest.raises((ArithmeticError, ValueError)):
        compute_element(cast, [math.inf], View(m))
