"""Which expressions in sizes are seen to be nowhere below 0."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import sympy

from graphfix.facts.symbolic.expressions import expr_of
from graphfix.facts.symbolic.signs import lower_bound, never_negative


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a - 1",
        "a*b - 1",
        "a + b - 2",
        "floor(a/2)",
        "floor((a - 1)/2)",
        "2*floor(a/2)",
        "a - floor(a/2)",
        "a - 2*floor(a/2)",
        "a - 2*floor((a - 3)/2) - 3",
        "4*floor((a + 3)/4) - a",
        "Max(a, 5) - 5",
        "Max(a, b) - a",
        "Max(0, a - 5) - a + 5",
        "a - Max(256, a) + Max(0, 256 - a)",
        "a**2 - 2*a + 1",
        "a*b - a",
        "Min(a, 5) - 1",
        "floor(a/2) - floor(a/4)",
    ],
)
def test_nowhere_below_0(text: str) -> None:
    assert never_negative(expr_of(ir.SymbolicDim(text)))


@pytest.mark.parametrize(
    "text",
    [
        "a - 2",
        "-a",
        "a - b",
        "a*b - 2",
        "a + b - 3",
        "floor(a/2) - 1",
        "floor((a - 2)/2)",
        "a - 2*floor(a/2) - 1",
        "4*floor((a + 2)/4) - a",
        "Max(a, 5) - 6",
        "Max(a, b) - c",
        "Min(a, 5) - 2",
        "Min(a, b) - a",
        "a**2 - 3*a",
        "a*b - a - 1",
        "b - Max(a, 5)",
        "a - Max(256, a) + Max(0, 255 - a)",
        "-Max(a, 5) + a + 3",
    ],
)
def test_below_0_somewhere(text: str) -> None:
    assert not never_negative(expr_of(ir.SymbolicDim(text)))


def test_not_every_size_up_to_a_large_number_is_tried() -> None:
    a = sympy.Symbol("a", integer=True, positive=True)
    assert not never_negative(a - sympy.Max(1025, a) + sympy.Max(0, 1025 - a))


def test_bounds_of_floors() -> None:
    def text(of: str, *, subtracted_only: bool = False) -> str:
        return str(lower_bound(expr_of(ir.SymbolicDim(of)), subtracted_only=subtracted_only))

    assert text("floor(a/2)") == "a/2 - 1/2"
    assert text("floor(a/2)", subtracted_only=True) == "floor(a/2)"
    assert text("b - 3*floor(a/2)") == "-3*a/2 + b"
    assert text("b - 3*floor(a/2)", subtracted_only=True) == "-3*a/2 + b"
    assert text("b - floor(a/2)", subtracted_only=True) == "-a/2 + b"
    assert text("a + 3") == "a + 3"
