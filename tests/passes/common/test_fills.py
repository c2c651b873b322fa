"""A number that fills a tensor, through what only moves elements."""

from __future__ import annotations

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
