"""Numeric laws of operators."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphfix.feeds.laws import BINARY, TESTS, UNARY, apply_law


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [(2, 3, 6), (0, math.inf, 0), (math.inf, 0, 0), (0, math.nan, 0), (math.nan, 0, 0), (1, 5, 5)],
)
def test_what_is_not_known_times_0_is_0(a: float, b: float, expected: float) -> None:
    assert apply_law(BINARY["Mul"], a, b) == expected


def test_what_is_not_known_stays_so() -> None:
    assert math.isnan(apply_law(BINARY["Mul"], 1, math.nan))
    assert math.isnan(apply_law(BINARY["Mul"], math.nan, 1))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Add", 9), ("Sub", 5), ("Div", 3.5), ("Min", 2), ("Max", 7), ("Mod", 1), ("Greater", 1)],
)
def test_binary_laws(name: str, expected: float) -> None:
    assert apply_law(BINARY[name], 7, 2) == expected


def test_a_division_by_0_makes_no_noise() -> None:
    with np.errstate(all="raise"):
        assert apply_law(BINARY["Div"], 1, 0) == math.inf


def test_tests_and_laws_of_one_number() -> None:
    assert {"Equal", "Less", "And", "Or"} <= set(TESTS)
    assert "Not" in UNARY
    assert "Relu" not in UNARY
    assert apply_law(UNARY["Neg"], np.array([1.0, -2.0])).tolist() == [-1.0, 2.0]
    assert apply_law(UNARY["Floor"], 1.5).dtype == np.float64
