"""Which tensors are filled with one float, and of what rank that number is."""

import numpy as np
import pytest

from graphfix.passes.common.fills import fill_of
from tests.passes.models import model


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("y = Identity (low)", (-1e4, "float32", 0)),
        ("y = Cast <to = 10> (low)", (-1e4, "float16", 0)),
        ("y = Expand (low, shape)", (-1e4, "float32", None)),
        ("wide = Expand (low, shape) y = Flatten (wide)", (-1e4, "float32", None)),
        ("wide = Expand (low, shape) y = Slice (wide, zero, one)", (-1e4, "float32", None)),
        ("wide = Expand (low, shape) y = Transpose (wide)", (-1e4, "float32", None)),
        ("y = ConstantOfShape <value = float[1] {-2.0}> (shape)", (-2.0, "float32", None)),
        ("y = ConstantOfShape <value = int64[1] {1}> (shape)", None),
        ("y = Cast <to = 7> (low)", None),
        ("y = Neg (low)", None),
        ("y = Expand (two, shape)", None),
    ],
)
def test_fill(steps: str, expected: tuple[float, str, int | None] | None) -> None:
    m = model(
        f"""m (int64[2] shape) => (float[A, B] y) <float low = {{-10000.0}},
        float[2] two = {{1, 2}}, int64[1] zero = {{0}}, int64[1] one = {{1}}> {{ {steps} }}"""
    )
    fill = fill_of(m.graph.outputs[0])
    found = None if fill is None else (fill.number, np.dtype(fill.dtype).name, fill.rank)
    assert found == expected
