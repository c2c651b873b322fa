"""Bounds of what operators compute, and what may be infinite or NaN."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.intervals import Interval
from graphfix.facts.view import View
from graphfix.passes.masks.sites.finite_range import FiniteBounds
from tests.passes.models import model


@pytest.mark.parametrize(
    ("body", "bounds"),
    [
        ("y = MatMul (x, x)", Interval(-1e30, 1e30)),
        ("y = ConvTranspose (image, image)", Interval(-1e30, 1e30)),
        ("y = InstanceNormalization (image, few, few)", Interval(-1e30, 1e30)),
        ("y = HardSigmoid (x)", Interval(-1e30, 1e30)),
        ("y = ReverseSequence (few, n)", Interval(-3, 2)),
        ("y = Flatten (few)", Interval(-3, 2)),
        ("y = Neg (few)", Interval(-2, 3)),
        ("h = Sub (few, few) y = Mul (h, few)", Interval(-15, 15)),
        # 0 / 0 in a row of zeros.
        ("y = LpNormalization (x)", "may make -inf or NaN"),
        ("y = Log (few)", "may make -inf or NaN"),
        ("y = Identity (x)", "the caller may give -inf"),
        ("y = Add (low, low)", "beyond float"),
    ],
)
def test_bounds_or_a_reason(body: str, bounds: Interval | str) -> None:
    text = f"""m (float[T, T] x, float[B, C, T] image, int64[2] n) => (float[A, C] y)
        <float[2] few = {{-3, 2}}, float low = {{-3e38}}> {{ {body} }}"""
    m = model(text)
    result = FiniteBounds(View(m)).bounds_of(m.graph.outputs[0])
    if isinstance(bounds, Interval):
        assert result == bounds
    else:
        assert isinstance(result, str)
        assert bounds in result


def test_a_weight_too_large_to_be_read() -> None:
    m = model("m (float[T] x) => (float[T] y) <float[2] w = {1, 2}> { y = Add (x, w) }")
    weight = m.graph.initializers["w"]
    weight.const_value = ir.LazyTensor(
        lambda: pytest.fail("it was read"), dtype=ir.DataType.FLOAT, shape=ir.Shape([1 << 23])
    )
    weight.shape = ir.Shape([1 << 23])
    assert "is too large" in str(FiniteBounds(View(m)).bounds_of(weight))
    assert "is an input" in str(FiniteBounds(View(m)).bounds_of(m.graph.inputs[0]))
