"""centre-variance: which variances it finds, what only looks so, and what is won."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

MEAN = "m = ReduceMean <axes = [-1]> (x) q = Mul (x, x) s = ReduceMean <axes = [-1]> (q)"
NUMBERS = "<int64[1] last = {-1}, float two = {2.0}, float five = {5.0}, float part = {0.2}>"
FORMS = {
    "mean": f"{MEAN} t = Mul (m, m) y = Sub (s, t)",
    "power": "m = ReduceMean <axes = [-1]> (x) q = Pow (x, two) s = ReduceMean <axes = [-1]> (q) "
    "t = Pow (m, two) y = Sub (s, t)",
    "keepdims=0": f"{MEAN} t = Mul (m, m) y = Sub (s, t)".replace("[-1]>", "[1], keepdims = 0>"),
    "times": "a = ReduceSum (x, last) m = Mul (part, a) q = Mul (x, x) b = ReduceSum (q, last) "
    "s = Mul (b, part) t = Mul (m, m) y = Sub (s, t)",
}


def variance(body: str, opset: int = 17) -> ir.Model:
    for of in "xq":  # axes are an input from opset 18 on, of a ReduceSum from 13 on
        attribute, given = f" <axes = [-1]> ({of})", f" ({of}, last)"
        if opset >= 18:
            body = body.replace(attribute, given)
        elif opset < 13:
            body = body.replace(given, attribute)
    made = "float[N]" if "keepdims = 0" in body else "float[N, K]"
    return model(f"m (float[N, 5] x) => ({made} y) {NUMBERS} {{ {body} }}", opset)


@pytest.mark.parametrize(
    ("form", "opset"), [(x, n) for x in FORMS for n in (11, 13, 17, 18) if n < 18 or "=0" not in x]
)
def test_a_variance_is_of_what_differs_from_the_mean(form: str, opset: int) -> None:
    before, after = (variance(FORMS[form], opset) for _ in range(2))
    assert graphfix.run(after, "centre-variance").changed
    assert not graphfix.run(after, "centre-variance").changed
    kernels = [x for x in ops(after) if x != "Unsqueeze"]
    assert len(kernels) < len(ops(before))
    x = np.random.default_rng(0).standard_normal((3, 5), np.float32)
    (a,), (b,) = (execute(m, {"x": x}) for m in (before, after))
    np.testing.assert_allclose(a, b, atol=1e-6)
    (near,) = execute(after, {"x": x + 4000})
    np.testing.assert_allclose(near.ravel(), (x + 4000).astype(float).var(1), rtol=1e-3)
    (lost,) = execute(before, {"x": x + 4000})  # mostly rounding: what the pass is for
    assert np.abs(lost.ravel() - x.var(1)).max() > 0.1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("t = Mul (m, m)", "t = Mul (m, five)"),  # not a square
        ("q = Mul (x, x)", "z = Abs (x) q = Mul (z, x)"),  # of something else
        ("s = ReduceMean <axes = [-1]> (q)", "s = ReduceMax <axes = [-1]> (q)"),
        ("y = Sub (s, t)", "y = Sub (t, s)"),
        ("m = ReduceMean <axes = [-1]> (x)", "a = ReduceSum (x, last) m = Mul (a, two)"),
        ("m = ReduceMean <axes = [-1]> (x)", "a = ReduceSum (x, last) m = Div (a, two)"),
    ],
)
def test_what_only_looks_so_stays(old: str, new: str) -> None:
    before = FORMS["mean"]
    assert old in before
    assert not graphfix.run(variance(before.replace(old, new)), "centre-variance").changed


def test_an_attribute_that_is_left_out_is_the_default() -> None:
    m = variance(FORMS["mean"].replace("[-1]> (x)", "[-1], keepdims = 1> (x)"))
    assert graphfix.run(m, "centre-variance").changed
    m = variance(FORMS["mean"].replace("[-1]> (x)", "[-1], keepdims = 0> (x)"))
    assert not graphfix.run(m, "centre-variance").changed


def test_a_sum_of_an_unknown_size_is_no_mean() -> None:
    m = model(f"m (float[N, K] x) => (float[N, M] y) {NUMBERS} {{ {FORMS['times']} }}", 17)
    assert not graphfix.run(m, "centre-variance").changed


def test_a_norm_of_keras_is_one_kernel() -> None:
    norm = "v = Sub (s, t) e = Add (v, part) r = Sqrt (e) d = Sub (x, m) y = Div (d, r)"
    m = model(
        f"m (float[N, 5] x) => (float[N, 5] y) {NUMBERS} {{ {MEAN} t = Mul (m, m) {norm} }}", 17
    )
    graphfix.run(m, "fast")
    assert ops(m) == ["LayerNormalization"]
