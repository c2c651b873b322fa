"""scale-weights: which constants go into a weight, which stay, and that the numbers do."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.job import planning
from tests.passes.models import opened, ops

HEAD = """(float[B, T, 2] x, float[3] given_) => (float[B, T, 3] y)
    <float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[3] b = {1, 2, 3}, float[3] s = {0.3, 0.7, 2},
     float half = {0.3}, float[1] one = {0.3}, float[1, 1, 3] deep = {1, 2, 3}>"""


def model(body: str, head: str = HEAD) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 17]> m {head} {{ {body} }}')


def run(m: ir.Model) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((2, 5, 2)).astype(np.float32)
    feeds = {"x": x, "given_": np.ones(3, np.float32)}
    session = opened(m)
    return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})[0]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("p = MatMul (x, w) y = Mul (p, s)", 1),
        ("p = MatMul (x, w) y = Mul (s, p)", 1),
        ("p = MatMul (x, w) r = Add (p, b) y = Mul (r, s)", 2),
        ("p = MatMul (x, w) r = Add (b, p) y = Mul (half, r)", 2),
        ("p = MatMul (x, w) r = Add (p, b) y = Mul (r, one)", 2),
        ("t = Neg (s) p = MatMul (x, w) r = Add (p, b) y = Mul (r, t)", 2),
    ],
)
def test_a_weight_takes_what_its_product_is_multiplied_with(body: str, count: int) -> None:
    before, after = model(body), model(body)
    assert graphfix.run(after, "scale-weights").changed
    np.testing.assert_allclose(run(after), run(before), rtol=1e-5, atol=1e-5)
    kernels = planning.kernels_of(after)
    assert kernels is not None
    assert kernels["all"] == count  # the weights are multiplied once, when the model is loaded
    assert not graphfix.run(after, "scale-weights").changed


@pytest.mark.parametrize(
    "body",
    [
        "p = MatMul (x, w) y = Mul (p, half)",  # fuse-matmul's
        "p = MatMul (x, w) y = Mul (p, given_)",
        "p = MatMul (x, w) r = Add (p, given_) y = Mul (r, s)",
        "p = MatMul (x, w) y = Mul (p, deep)",
        "p = MatMul (x, w) r = Mul (p, s) y = Add (r, p)",
        "p = MatMul (x, w) q = MatMul (x, w) r = Mul (p, s) y = Add (r, q)",
        "p = MatMul (x, w) r = Relu (p) y = Mul (r, s)",
    ],
)
def test_what_stays(body: str) -> None:
    assert not graphfix.run(model(body), "scale-weights").changed


def test_a_weight_of_float16_stays() -> None:
    head = """(float16[B, T, 2] x) => (float16[B, T, 2] y)
        <float16[2, 2] w = {1, 2, 3, 4}, float16[2] s = {13107, 14746}>"""
    assert not graphfix.run(
        model("p = MatMul (x, w) y = Mul (p, s)", head), "scale-weights"
    ).changed


def test_a_scaled_layer_goes_into_its_norm_with_its_bias() -> None:
    body = """p = MatMul (x, v) r = Add (p, b) s = Mul (r, scale) a = Add (s, x)
        y = LayerNormalization (a, scale, b)"""
    head = """(float[B, T, 2] x) => (float[B, T, 2] y) <float[2, 2] v = {1, 2, 3, 4},
        float[2] b = {1, 2}, float[2] scale = {0.3, 0.7}>"""
    after = model(body, head)
    graphfix.run(after, "fast")
    assert [x for x in ops(after) if x != "Mul"] == ["MatMul", "SkipLayerNormalization"]
