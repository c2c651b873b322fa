"""Arithmetic with constants as a polynomial, and which constants count as numbers."""

import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.passes.common.polynomial import PolynomialReader, are_close, number_of
from tests.passes.models import model

HEAD = """m (float[B, 4] x) => (float[B, N] y) <float half = {0.5}, float[1] third = {3},
    float[2] pair = {1, 1}, int64 five = {5}, float two = {2}, float minus = {-1},
    float six = {6}>"""


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("y = Add (x, half)", {(1,): 1, (0,): 0.5}),
        ("a = Mul (x, x) b = Mul (half, a) y = Sub (b, x)", {(2,): 0.5, (1,): -1}),
        ("a = Neg (x) y = Div (a, two)", {(1,): -0.5}),
        ("a = Add (x, half) y = Pow (a, two)", {(2,): 1, (1,): 1, (0,): 0.25}),
        ("y = Div (half, x)", None),
        ("y = Pow (x, half)", None),
        ("y = Pow (x, six)", None),
        ("y = Relu (x)", None),
        ("a = Sub (x, x) y = Add (a, half)", {(0,): 0.5}),
    ],
)
def test_polynomial(steps: str, expected: dict[tuple[int, ...], float] | None) -> None:
    m = model(f"{HEAD} {{ {steps} }}")
    polynomial = PolynomialReader(View(m), m.graph.inputs[0]).read(m.graph.outputs[0])
    assert polynomial == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("a = Mul (x, z) y = Add (a, z)", {(1, 1): 1, (0, 1): 1}),
        ("y = Div (x, z)", None),
        ("a = Mul (x, z) y = Div (x, a)", None),
        ("a = Mul (x, z) y = Pow (x, a)", None),
        ("a = Sub (z, z) b = Add (a, two) y = Div (x, b)", {(1, 0): 0.5}),
    ],
)
def test_a_polynomial_of_two_tensors(
    steps: str, expected: dict[tuple[int, ...], float] | None
) -> None:
    m = model(f"{HEAD} {{ {steps} }}".replace("float[B, 4] x)", "float[B, 4] x, float[B, 4] z)"))
    reader = PolynomialReader(View(m), *m.graph.inputs)
    assert reader.read(m.graph.outputs[0]) == expected


@pytest.mark.parametrize(
    ("steps", "rank", "expected"),
    [
        ("y = Identity (half)", 0, 0.5),
        ("y = Identity (third)", 0, None),  # it may add an axis
        ("y = Identity (third)", 1, 3),
        ("y = Identity (third)", None, None),
        ("y = Identity (pair)", 1, None),
        ("y = Cast <to = 1> (five)", 0, 5),
        ("y = Cast <to = 7> (half)", 0, None),  # it is 0 then
        ("y = Cast <to = 10> (half)", 0, 0.5),
    ],
)
def test_number(steps: str, rank: int | None, expected: float | None) -> None:
    m = model(f"{HEAD} {{ {steps} }}")
    assert number_of(m.graph.outputs[0], rank) == expected
    if rank == 0:
        assert number_of(m.graph.outputs[0]) == expected
    assert number_of(None) is None


def test_factors_are_close_relative_to_themselves() -> None:
    assert are_close({(1,): 100.0005}, {(1,): 100.0}, ir.DataType.FLOAT)
    assert not are_close({(1,): 100.005}, {(1,): 100.0}, ir.DataType.FLOAT)
    assert are_close({(1,): 100.1}, {(1,): 100.0}, ir.DataType.FLOAT16)
    assert not are_close({(1,): 100.5}, {(1,): 100.0}, ir.DataType.FLOAT16)
    assert not are_close({(1,): 1.0}, {(2,): 1.0}, ir.DataType.FLOAT)
    assert not are_close({(1,): 1.03}, {(1,): 1.0}, ir.DataType.FLOAT, slack=0.02)
    assert are_close({(1,): -100.0005}, {(1,): -100.0}, ir.DataType.FLOAT)
    assert are_close({(1,): 1.01}, {(1,): 1.0}, ir.DataType.FLOAT, slack=0.02)
