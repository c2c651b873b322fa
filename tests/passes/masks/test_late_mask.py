"""late-mask: which masks go behind what follows them, that the numbers stay, and what stays."""

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

TWICE = "m = Mul (x, mask) c = Conv (m, one, b) y = Mul (c, mask)"
RELU = "c = Conv <pads = [1, 1]> (x, w, b) m = Mul (mask, c) y = Relu (m)"


def masked(body: str, mask: str = "mask = Cast <to = 1> (valid)", more: str = "") -> ir.Model:
    out = "float[B, 2, T] z, " if " z = " in body else ""
    text = f"""m (float[B, 2, T] x, bool[B, 1, T] valid, bool[B, 2, T] each, float[B, 1, T] soft,
        bool[B, 1, 1] whole) => ({out}float[B, 2, N] y) <float[2, 2, 1] one = {{1, 2, 3, -4}},
        float[2] b = {{1, -2}}, float[2, 2, 3] w = {{1, 2, 3, -4, 5, 6, 7, -8, 9, 1, 2, 3}}{more}>
        {{ {mask} {body} }}"""
    return model(text, 17)


def feeds(batch: int, time: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((batch, 2, time), np.float32),
        "soft": rng.standard_normal((batch, 1, time), np.float32),
        "valid": rng.random((batch, 1, time)) < 0.5,
        "each": rng.random((batch, 2, time)) < 0.5,
        "whole": rng.random((batch, 1, 1)) < 0.5,
    }


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (TWICE, ["Cast", "Conv", "Mul"]),
        (RELU, ["Cast", "Conv", "Relu", "Mul"]),
        (RELU.replace("Relu", "LeakyRelu <alpha = 0.3>"), ["Cast", "Conv", "LeakyRelu", "Mul"]),
        (TWICE.replace("y =", "n =") + " y = Relu (n)", ["Cast", "Conv", "Relu", "Mul"]),
        (
            "m = Mul (x, mask) c = Conv (m, one, b) r = Relu (c) y = Mul (r, mask)",
            ["Cast", "Conv", "Relu", "Mul"],
        ),
    ],
)
def test_a_mask_goes_behind(body: str, left: list[str]) -> None:
    before, after = masked(body), masked(body)
    assert graphfix.run(after, "late-mask").changed
    assert ops(after) == left
    assert not graphfix.run(after, "late-mask").changed
    for batch, time in ((2, 5), (1, 1), (0, 3)):
        (a,), (b,) = (execute(m, feeds(batch, time)) for m in (before, after))
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "mask"),
    [
        # No proof of 0 and 1: -1 would turn a Relu round.
        (RELU, "mask = Identity (soft)"),
        (TWICE, "mask = Identity (soft)"),
        # A mask for each channel, and frames that go into their neighbours.
        (TWICE, "mask = Cast <to = 1> (each)"),
        (TWICE.replace("(m, one", "(m, w"), "mask = Cast <to = 1> (whole)"),
        (TWICE.replace("Conv (", "Conv <pads = [1, 0]> ("), "mask = Cast <to = 1> (whole)"),
        (TWICE.replace("Conv (", "Conv <strides = [2]> ("), "mask = Cast <to = 1> (whole)"),
        # Something else reads what is masked.
        (TWICE + " z = Neg (m)", None),
        (RELU + " z = Neg (m)", None),
        (RELU + " z = Neg (c)", None),
        # Two masks, of which each hides what the other does not.
        (TWICE.replace("(c, mask)", "(c, other)"),
         "mask = Cast <to = 1> (valid) n = Not (valid) other = Cast <to = 1> (n)"),
        ("n = Neg (x) m = Mul (n, mask) y = Relu (m)", None),  # nothing takes the Relu
    ],
)  # fmt: skip
def test_what_stays(body: str, mask: str | None) -> None:
    m = masked(body, mask or "mask = Cast <to = 1> (valid)")
    assert not graphfix.run(m, "late-mask").changed


def test_a_mask_that_makes_it_larger_stays() -> None:
    text = """m (float[1, 2, T] x, bool[B, 1, T] valid) => (float[B, 2, T] y)
        <float[2, 2, 1] one = {1, 2, 3, -4}> { mask = Cast <to = 1> (valid) c = Conv (x, one)
        m = Mul (c, mask) y = Relu (m) }"""
    assert not graphfix.run(model(text, 17), "late-mask").changed
