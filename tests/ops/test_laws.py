"""What element-wise operators make of numbers, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from graphfix.ops.laws import BINARY_LAWS, UNARY_LAWS
from tests.ops.samples import Sample

NUMBERS = np.array([-2.5, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.5], np.float32)
POSITIVE = np.abs(NUMBERS) + np.float32(0.25)
TRUTHS = np.array([True, False, True, False])
_LOGIC = ("And", "Or", "Xor", "Not")
_ABOVE_0 = ("Log", "Sqrt", "Reciprocal")


def operands(operator: str) -> tuple[np.ndarray, np.ndarray]:
    if operator in _LOGIC:
        return TRUTHS, np.array([True, True, False, False])
    first = POSITIVE if operator in (*_ABOVE_0, "Pow") else NUMBERS
    return first, np.array([2, 3, -1, 0.5, 0.25, 2, 1, 1.5, -2, 3], np.float32)


@pytest.mark.parametrize("operator", sorted(UNARY_LAWS))
def test_a_law_of_one_number(operator: str) -> None:
    x, _ = operands(operator)
    if operator in ("IsInf", "IsNaN"):
        x = np.array([0, np.inf, -np.inf, np.nan], np.float32)
    result = Sample(operator, 23, (x,)).first()
    np.testing.assert_allclose(UNARY_LAWS[operator](x), result, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", sorted(BINARY_LAWS))
def test_a_law_of_two_numbers(operator: str) -> None:
    x, y = operands(operator)
    y = np.where(x == y, y, y)
    result = Sample(operator, 23, (x, y)).first()
    np.testing.assert_allclose(BINARY_LAWS[operator](x, y), result, rtol=1e-5, atol=1e-6)
