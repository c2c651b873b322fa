"""split-gate: which gates are a Conv for each half, with equal numbers, and which are not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

SPLIT = "a, b = Split <axis = 1> (c)"
SLICES = "a = Slice (c, none, two, one) b = Slice (c, two, far, one)"
GLU = "g = Sigmoid (b) y = Mul (a, g)"
WAVE = "t = Tanh (a) g = Sigmoid (b) y = Mul (t, g)"


def gate(body: str, conv: str = "c = Conv (x, w, v)", more: str = "") -> ir.Model:
    return model(
        f"""m (float[B, 3, T] x) => (float[B, 2, N] y{more})
        <float[4, 3, 1] w = {{1, 2, 3, 4, 5, 6, -7, 8, 9, 1, -2, 3}}, float[4] v = {{1, 2, 3, 4}},
         float[4, 3, 1] k = {{1, 2, 3, 4, 5, 6, -7, 8, 9, 1, -2, 3}}, int64[1] none = {{0}},
         int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] far = {{9223372036854775807}},
         int64[1] three = {{3}}, int64[1] axis = {{2}}> {{ {conv} {body} }}""",
        opset=17,
    )


@pytest.mark.parametrize("conv", ["c = Conv (x, w, v)", "n = Neg (k) c = Conv (x, n)"])
@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        (f"{SPLIT} {GLU}", ["Sigmoid", "Mul"]),
        (f"{SPLIT} {WAVE}", ["Tanh", "Sigmoid", "Mul"]),
        (f"{SLICES} {WAVE}", ["Tanh", "Sigmoid", "Mul"]),
        (f"{SLICES.replace('two, far', 'two, far')} y = Add (b, a)", ["Add"]),
        (f"{SPLIT.replace('a, b', 'b, a')} {GLU}", ["Sigmoid", "Mul"]),
    ],
)
def test_each_half_is_a_conv(body: str, kinds: list[str], conv: str) -> None:
    before, after = (gate(body, conv) for _ in range(2))
    assert graphfix.run(after, "split-gate").changed
    assert not graphfix.run(after, "split-gate").changed
    assert [x for x in ops(after) if x not in ("Slice", "Neg")] == ["Conv", "Conv", *kinds]
    for shape in ((2, 3, 5), (1, 3, 1), (0, 3, 2)):
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        (a,), (b,) = (execute(m, {"x": x}) for m in (before, after))
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "conv"),
    [
        (f"{SPLIT} y = Mul (a, b)", "c = Conv (x, w, v)"),  # as many kernels
        (f"{SPLIT} {GLU} z = Relu (c)", "c = Conv (x, w, v)"),  # read whole as well
        (f"{SPLIT} {GLU} z = Relu (k)", "c = Conv (x, k)"),  # a weight of two
        (f"{SPLIT.replace('axis = 1', 'axis = 2')} {GLU}", "c = Conv (x, w, v)"),
        (
            "a = Slice (c, none, two, one) b = Slice (c, one, three, one) " + GLU,
            "c = Conv (x, w, v)",
        ),
        (f"{SPLIT} {GLU}", "n = Identity (x) c = Relu (n)"),
    ],
)
def test_what_is_no_gate_of_a_conv_stays(body: str, conv: str) -> None:
    more = ", float[B, 4, T] z" if "z =" in body else ""
    found = gate(body, conv, more)
    assert not graphfix.run(found, "split-gate").changed


def test_a_half_that_nothing_reads_stays() -> None:
    """Unread, it is no part of the graph that two Convs would leave."""
    after = gate(f"{SPLIT} y = Sigmoid (b)")
    report = graphfix.run(after, "split-gate")
    assert not report.changed
    assert not report.passes[0].left


def test_a_half_that_is_an_output_stays() -> None:
    found = gate(f"{SPLIT} {GLU}", more=", float[B, 2, N] b")
    assert not graphfix.run(found, "split-gate").changed
