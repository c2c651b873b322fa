"""Sizes that are computed through floats."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import sympy

from graphfix.facts.symbolic.floats import exact_factor, is_whole_size, reads_floats
from tests.facts.symbolic.bodies import contents_of, keys

LENGTHS = """b = Shape <end = 1> (x) t = Shape <start = 1, end = 2> (x)
    f = Cast <to = 1> (t) g = Cast <to = 1> (b)"""


def number(name: str, value: float) -> str:
    return f"{name} = Constant <value = float {{{value}}}> ()"


@pytest.mark.parametrize(
    ("value", "body", "size"),
    [
        (160.0, "d = Div (f, h) e = Ceil (d) y = Cast <to = 7> (e)", "floor(T/160 + 159/160)"),
        (160.0, "d = Div (f, h) e = Floor (d) y = Cast <to = 7> (e)", "floor(T/160)"),
        (160.0, "d = Div (f, h) y = Cast <to = 7> (d)", "floor(T/160)"),
        (0.5, "d = Mul (h, f) y = Cast <to = 7> (d)", "floor(T/2)"),
        (0.5, "d = Mul (f, h) y = Cast <to = 7> (d)", "floor(T/2)"),
        (0.5, "d = Div (f, h) y = Cast <to = 7> (d)", "2*T"),
        (1.5, "d = Mul (f, h) y = Cast <to = 7> (d)", "floor(3*T/2)"),
        (0.1, "d = Mul (f, h) y = Cast <to = 7> (d)", "floor(T/10)"),
        (0.5, "d = Mul (f, h) y = Cast <to = 6> (d)", "floor(T/2)"),
        (3.0, "d = Add (f, h) y = Cast <to = 7> (d)", "T + 3"),
        (3.0, "d = Sub (f, h) y = Cast <to = 7> (d)", "T - 3"),
        (2.0, "d = Mul (f, h) e = Ceil (d) y = Cast <to = 7> (e)", "2*T"),
        (-2.0, "d = Mul (f, h) y = Cast <to = 7> (d)", "-2*T"),
        (1000.0, "d = Add (f, h) y = Cast <to = 7> (d)", "T + 1000"),
        (1.0, "e = Identity (f) y = Cast <to = 7> (e)", "T"),
        (0.5, "d = Mul (f, h) e = Add (d, two) y = Cast <to = 7> (e)", "floor(T/2) + 2"),
        # Of its second input a CastLike takes the type alone.
        (0.5, "d = Mul (f, h) y = CastLike (d, b)", "floor(T/2)"),
        (0.5, "e = CastLike (t, x) d = Mul (e, h) y = CastLike (d, unknown)", "floor(T/2)"),
        (3.0, "y = CastLike (h, t)", 3),
    ],
)
def test_what_rounding_does_not_change(value: float, body: str, size: int | str) -> None:
    start = f"{LENGTHS} {number('h', value)} {number('two', 2.0)} unknown = NonZero (x)"
    assert contents_of(f"{start} {body}", usual=True) == keys(size)


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (0.3, "d = Mul (f, h) y = Cast <to = 7> (d)"),
        (0.0, "d = Mul (f, h) y = Cast <to = 7> (d)"),
        (0.0, "d = Div (f, h) y = Cast <to = 7> (d)"),
        (160.0, "d = Div (h, f) y = Cast <to = 7> (d)"),
        (0.0009, "d = Mul (f, h) y = Cast <to = 7> (d)"),
        (0.5, "d = Mul (f, h) e = Mul (d, h) y = Cast <to = 7> (e)"),
        (0.5, "d = Mul (f, h) e = Add (d, h) y = Cast <to = 7> (e)"),
        (0.5, "d = Mul (f, h) e = Add (d, f) y = Cast <to = 7> (e)"),
        (1.5, "d = Sub (f, h) y = Cast <to = 7> (d)"),
        (-0.5, "d = Mul (f, h) y = Cast <to = 7> (d)"),
        (1.0, "d = Add (f, g) y = Cast <to = 7> (d)"),
        (1.0, "d = Mul (f, g) y = Cast <to = 7> (d)"),
        (1.0, "d = Mul (f, f) y = Cast <to = 7> (d)"),
        (1.0, "d = Sqrt (f) y = Cast <to = 7> (d)"),
        (1.0, "p = Mul (b, t) d = Cast <to = 1> (p) y = Cast <to = 7> (d)"),
        (1.0, "p = Mul (t, t) d = Cast <to = 1> (p) y = Cast <to = 7> (d)"),
    ],
)
def test_what_rounding_may_change(value: float, body: str) -> None:
    found = contents_of(f"{LENGTHS} {number('h', value)} {body}", usual=True)
    assert found in (None, [None])


def test_nothing_is_known_of_lengths_over_a_million() -> None:
    body = f"{LENGTHS} {number('h', 0.5)} d = Mul (f, h) y = Cast <to = 7> (d)"
    assert contents_of(body) in (None, [None])


@pytest.mark.parametrize(
    ("value", "divides", "ratio"),
    [
        (0.5, False, "1/2"),
        (0.5, True, "2"),
        (3.0, False, "3"),
        (3.0, True, "1/3"),
        (160.0, True, "1/160"),
        (0.1, False, "1/10"),
        (0.3, False, None),
        (1 / 3, False, "1/3"),
        (0.333, False, None),
        (0.0, False, None),
        (0.12345, False, None),
        (1e-9, False, None),
    ],
)
def test_factors(value: float, *, divides: bool, ratio: str | None) -> None:
    expected = None if ratio is None else sympy.Rational(ratio)
    assert exact_factor(value, divides=divides) == expected


def test_quotients_that_are_sizes() -> None:
    t = sympy.Symbol("T")
    assert is_whole_size(2 * t + 1)
    assert not is_whole_size(t / 2)


def test_one_float_is_enough_to_read_floats() -> None:
    number, real = (ir.Value(type=ir.TensorType(x)) for x in (ir.DataType.INT64, ir.DataType.FLOAT))
    assert reads_floats(ir.node("Pow", [number, real]))
    assert not reads_floats(ir.node("Pow", [number, number]))
    assert not reads_floats(ir.node("Clip", [number, None]))


@pytest.mark.parametrize(
    ("number", "divides", "factor"),
    [
        (0.5, False, "1/2"),
        (2.0, True, "1/2"),
        (160.0, True, "1/160"),
        (3.0, False, "3"),
        (0.1, False, "1/10"),
        (0.1, True, "10"),
        (1.3, False, None),
        (1.3, True, None),
        (1.7, False, None),
        (2.3, False, None),
        (0.0, False, None),
        (1e-9, False, None),
        (0.3333, False, None),
        (-0.5, False, "-1/2"),
    ],
)
def test_factors_that_float32_does_not_change(
    number: float, divides: bool, factor: str | None
) -> None:
    found = exact_factor(number, divides=divides)
    assert (None if found is None else str(found)) == factor
