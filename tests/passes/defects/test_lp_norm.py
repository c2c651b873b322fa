"""lp-norm: equal numbers for tiny, large and zero vectors, what is left and why."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops, refusals


def norm(attributes: str = "axis = 1", kind: str = "float", opset: int = 17) -> ir.Model:
    return model(
        f"m ({kind}[A, B, 4] x) => ({kind}[A, B, 4] y) "
        f"{{ y = LpNormalization <{attributes}> (x) }}",
        opset,
    )


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 21])
@pytest.mark.parametrize("attributes", ["axis = 1", "axis = -1", "p = 1", "axis = 0, p = 2"])
@pytest.mark.parametrize("size", [1, 1e-4, 1e-12, 1e12, 0])
def test_the_same_numbers(attributes: str, size: float, opset: int) -> None:
    before, after = norm(attributes, opset=opset), norm(attributes, opset=opset)
    assert graphfix.run(after, "lp-norm").changed
    assert "LpNormalization" not in ops(after)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32) * np.float32(size)
    (old,), (new,) = execute(before, {"x": x}), execute(after, {"x": x})
    np.testing.assert_allclose(old, new, rtol=1e-5, atol=1e-6)


def test_half_stays_half() -> None:
    after = norm(kind="float16")
    graphfix.run(after, "directml")
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float16) * np.float16(1000)
    (got,) = execute(after, {"x": x})
    wide = x.astype(np.float64)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, wide / np.linalg.norm(wide, axis=1, keepdims=True), atol=2e-3)


def test_what_is_left_alone() -> None:
    assert not refusals(norm(kind="double"), "lp-norm")
    assert "opset 11" in refusals(norm(opset=9), "lp-norm")[0]
    text = (
        "m (float[N] x, int64[M] s) => (float[N] y) { r = Reshape (x, s) y = LpNormalization (r) }"
    )
    assert refusals(model(text, 17), "lp-norm") == ["its axis is not known"]
