"""Dims that are sums, or are cut to a number."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.symbolic import sums
from graphfix.facts.symbolic.expressions import Dim


def dim(text: str | int) -> Dim:
    return text if isinstance(text, int) else ir.SymbolicDim(text)


def test_differences() -> None:
    assert sums.subtract_dims(5, 3) == 2
    assert sums.subtract_dims(dim("a + b"), dim("b + 1")) == dim("a - 1")
    assert sums.subtract_dims(dim("a"), dim("a")) == 0


@pytest.mark.parametrize(
    ("text", "coefficient"),
    [
        (4, 0),
        ("b", 0),
        ("a", 1),
        ("3*a + b", 3),
        ("b - a", -1),
        ("a*b", None),
        ("a + floor(a/2)", None),
        ("a + a**2", None),
        ("floor(a/2)", None),
    ],
)
def test_coefficients(text: str | int, coefficient: int | None) -> None:
    if text == "floor(a/2)":
        assert sums.coefficient_in(dim(text), "a") is None
    assert sums.coefficient_in(dim(text), "a") == coefficient


@pytest.mark.parametrize(
    ("most", "rest"), [(4, "past + 1"), (5, "past + 1"), (6, "past + Max(0, past - 5) + 1")]
)
def test_a_max_of_0_is_dropped(most: int, rest: str) -> None:
    text = dim("past + Max(0, past - 5) + 1")
    assert sums.drop_zero_max(text, "past", most) == dim(rest)


def test_other_maxima_stay() -> None:
    for text in ("Max(1, past - 5)", "Max(0, other - 5)", "Min(0, past - 5)"):
        kept = sums.drop_zero_max(dim(text), "past", 5)
        assert str(kept).startswith(("Max", "past"))


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("Min(past + seq, 6)", ("past + seq", 6)),
        ("Max(0, Min(past + seq, 6))", ("past + seq", 6)),
        ("past + seq - Max(0, past + seq - 6)", ("past + seq", 6)),
        ("Min(seq, 6)", None),
        ("Min(past, seq)", None),
        ("Min(past, seq, 6)", None),
        ("past + seq - Max(0, past - 6)", None),
        ("past + seq", None),
        ("past - Max(1, past - 6)", None),
        ("past + Max(0, past - 6)", None),
        (6, None),
    ],
)
def test_limits_of_a_window(text: str | int, limit: tuple[str, int] | None) -> None:
    window = sums.window_limit(dim(text), "past")
    assert (None if window is None else (str(window[0]), window[1])) == limit
