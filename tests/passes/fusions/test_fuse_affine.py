"""fuse-affine: which pairs become one operator, and that the numbers stay."""

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import opened, ops

HEAD = """(float[B, 3, T] x, float[3, 1] late) => (float[B, 3, T] y)
    <float[3, 1] s = {2, -3, 0.5}, float[1, 3, 1] b = {1, 2, 3}, float[3] row = {1, 2, 3},
     float[1, 1] one = {2}>"""


def model(body: str, head: str = HEAD, opset: int = 17) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : {opset}]> m {head} {{ {body} }}')


@pytest.mark.parametrize("opset", [9, 14, 17])
@pytest.mark.parametrize("body", ["m = Mul (x, s) y = Add (m, b)", "m = Mul (b, x) y = Add (s, m)"])
def test_a_factor_and_a_bias_are_one(body: str, opset: int) -> None:
    before, after = model(body, opset=opset), model(body, opset=opset)
    assert graphfix.run(after, "fuse-affine").changed
    assert ops(after)[-1] == "BatchNormalization"
    x = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    feeds = {"x": x, "late": np.ones((3, 1), np.float32)}
    found = [opened(m).run(None, feeds)[0] for m in (before, after)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("body", "old", "new"),
    [
        ("m = Mul (x, late) y = Add (m, b)", "", ""),
        ("m = Mul (x, s) y = Add (m, late)", "", ""),
        ("m = Mul (x, s) n = Add (m, b) y = Sub (n, m)", "", ""),
        ("m = Div (x, s) y = Add (m, b)", "", ""),
        ("m = Mul (x, one) y = Add (m, b)", "", ""),
        ("m = Mul (x, row) y = Add (m, b)", "T]", "3]"),
        ("m = Mul (x, s) y = Add (m, b)", "[B, 3, T]", "[B, C, T]"),
        ("m = Mul (x, s) y = Add (m, s)", "[B, 3, T]", "[3, T]"),
    ],
)
def test_what_stays(body: str, old: str, new: str) -> None:
    assert not graphfix.run(model(body, HEAD.replace(old, new)), "fuse-affine").changed


def test_float16_and_old_operators_stay() -> None:
    body = "m = Mul (x, s) y = Add (m, s)"
    half = "(float16[B, 2, T] x) => (float16[B, 2, T] y) <float16[2, 1] s = {15360, 16384}>"
    assert not graphfix.run(model(body, half), "fuse-affine").changed
    assert not graphfix.run(model(body, opset=8), "fuse-affine").changed
