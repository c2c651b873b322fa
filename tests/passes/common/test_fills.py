"""A number that fills a tensor, through what only moves elements."""

from __future__ import annotations

import numpy as np
import pytest

from graphfix.passes.common.fills import fill_of
from tests.passes.models import model


@pytest.mark.parametrize(
    ("step", "number"),
    [
        ("Expand (full, size)", -1e9),
        ("Slice (full, zero, size)", -1e9),
        ("Flatten (full)", -1e9),
        ("Transpose (full)", -1e9),
        ("Gather (full, zero)", -1e9),
        ("Cast <to = 10> (full)", -1e9),
        ("Neg (full)", None),
        ("Pad (full, size)", None),
    ],
)
def test_it_is_the_number_of_all_elements(step: str, number: float | None) -> None:
    text = f"""m (int64[2] size) => (float[A, B] y)
        <int64[1] zero = {{0}}>
        {{ full = ConstantOfShape <value = float[1] {{-1e9}}> (size) y = {step} }}"""
    fill = fill_of(model(text).graph.outputs[0])
    assert (None if fill is None else fill.number) == number
    assert fill is None or fill.rank is None


def test_a_split_has_several_outputs() -> None:
    """Whoever clamps the fill rebuilds the node for one of them."""
    text = """m (int64[2] size) => (float[A, B] y, float[A, B] z)
        { full = ConstantOfShape <value = float[1] {-1e9}> (size) y, z = Split (full) }"""
    assert fill_of(model(text, opset=13).graph.outputs[0]) is None


@pytest.mark.parametrize(
    ("step", "number", "rank", "dtype"),
    [
        ("Identity (zero)", -2, 0, "float32"),
        ("Transpose (two)", -2, None, "float32"),  # what moves it may give it another rank
        ("Cast <to = 1> (zero)", -2, 0, "float32"),
        ("Cast <to = 11> (zero)", -2, 0, "float64"),
        ("Cast <to = 1> (two)", -2, 2, "float32"),
        ("Cast <to = 1> (twice)", -2, None, "float32"),
        ("Cast <to = 1> (whole)", 5, 0, "float32"),
        ("Cast <to = 7> (zero)", None, None, ""),
        ("Cast <to = 9> (zero)", None, None, ""),
        ("Cast <to = 1> (differ)", None, None, ""),
        ("Cast <to = 1> (size)", None, None, ""),
        ("ConstantOfShape (size)", 0, None, "float32"),
    ],
)
def test_number_rank_and_type(
    step: str, number: float | None, rank: int | None, dtype: str
) -> None:
    text = f"""m (int64[2] size) => (float[A, B] y)
        <float zero = {{-2}}, float[1, 1] two = {{-2}}, float[2] twice = {{-2, -2}},
        float[2] differ = {{-2, 2}}, int64 whole = {{5}}> {{ y = {step} }}"""
    fill = fill_of(model(text).graph.outputs[0])
    assert (None if fill is None else (fill.number, fill.rank, fill.dtype)) == (
        None if number is None else (number, rank, np.dtype(dtype))
    )


def test_of_two_casts_the_last_gives_the_type() -> None:
    text = """m (float x) => (float y) <float a = {-2}> { h = Cast <to = 11> (a)
        y = Cast <to = 1> (h) }"""
    fill = fill_of(model(text).graph.outputs[0])
    assert fill is not None
    assert fill.dtype == np.float32
