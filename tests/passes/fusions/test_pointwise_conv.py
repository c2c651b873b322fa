"""pointwise-conv: which Convs are products, with equal numbers, and which are not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

TURN = "y = Transpose <perm = [0, 2, 1]> (c)"
SUM = "t = Transpose <perm = [0, 2, 1]> (c) y = Add (r, t)"


def rows(conv: str, end: str = TURN) -> ir.Model:
    return model(f"""m (float[B, 3, T] x, float[B, T, 2] r) => (float[B, N, 2] y)
        <float[2, 3, 1] w = {{1, 2, 3, 4, 5, -6}}, float[2] v = {{1, -2}},
         float[2, 3, 2] k = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}}> {{ {conv} {end} }}""")


@pytest.mark.parametrize(
    ("conv", "end", "kinds"),
    [
        ("c = Conv (x, w)", TURN, ["FusedMatMul"]),
        ("c = Conv <pads = [0, 0], strides = [1]> (x, w)", TURN, ["FusedMatMul"]),
        ("n = Neg (w) c = Conv (x, n)", TURN, ["Neg", "FusedMatMul"]),
        ("c = Conv (x, w, v)", SUM, ["FusedMatMul", "Add", "Add"]),
    ],
)
def test_a_conv_of_frames_is_a_product(conv: str, end: str, kinds: list[str]) -> None:
    before, after = (rows(conv, end) for _ in range(2))
    assert graphfix.run(after, "pointwise-conv").changed
    assert [x for x in ops(after) if x != "Squeeze"] == kinds
    for batch, time in ((2, 5), (1, 1), (0, 3)):
        rng = np.random.default_rng(0)
        x = rng.standard_normal((batch, 3, time), np.float32)
        r = rng.standard_normal((batch, time, 2), np.float32)
        (a,), (b,) = (execute(m, {"x": x, "r": r}) for m in (before, after))
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("conv", "end"),
    [
        ("c = Conv (x, w, v)", TURN),  # as many kernels
        ("c = Conv (x, k)", TURN),
        ("c = Conv <strides = [2]> (x, w)", TURN),
        ("c = Conv <pads = [1, 0]> (x, w)", TURN),
        ("c = Conv (x, w)", "y = Transpose <perm = [2, 0, 1]> (c)"),
    ],
)
def test_what_is_no_product_stays(conv: str, end: str) -> None:
    assert not graphfix.run(rows(conv, end), "pointwise-conv").changed
