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
     float half = {0.3}, float[1] one = {0.3}, float[1, 1, 3] deep = {1, 2, 3},
     float[1, 1, 1, 3] deeper = {1, 2, 3},
     int64[4] heads = {0, 0, 3, 1}, float[3, 1] each = {1, 2, 3}, int64[3] back = {0, 0, 3},
     int64[2, 5, 1] at = {0, 1, 2, 1, 0, 0, 1, 2, 1, 0}, int64[1] axis = {1},
     int64[1] zero = {0}, int64[1] three = {3}, int64[1] last = {2},
     int64[3] fives = {-1, 5, 3}, int64[3] order = {2, 0, 1}>"""


def model(body: str, head: str = HEAD) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 17]> m {head} {{ {body} }}')


def run(m: ir.Model, size: tuple[int, ...] = (2, 5, 2)) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
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
        ("p = MatMul (x, w) y = Div (p, s)", 1),
        ("p = MatMul (x, w) y = Mul (p, deep)", 1),
        ("p = MatMul (x, w) r = Add (p, b) y = Div (r, half)", 2),
        # Laid out as heads, with a bias for each, and looked up: one number goes through.
        (
            "p = MatMul (x, w) h = Reshape (p, heads) a = Add (h, each) "
            "t = Transpose <perm = [0, 1, 3, 2]> (a) m = Mul (t, half) y = Reshape (m, back)",
            5,
        ),
        ("p = MatMul (x, w) g = GatherElements <axis = 2> (p, at) y = Mul (g, half)", 2),
        (
            'p = MatMul (x, w) e = Einsum <equation = "btw,btw->bw"> (p, deep) m = Mul (e, half) '
            "y = Unsqueeze (m, axis)",
            3,
        ),
        # What only moves elements keeps their factor.
        ("p = MatMul (x, w) g = Slice (p, zero, three, last) y = Mul (g, half)", 2),
        (
            "p = MatMul (x, w) g = Flatten <axis = 2> (p) m = Mul (g, half) y = Reshape (m, fives)",
            3,
        ),
        ("p = MatMul (x, w) g = Gather <axis = 2> (p, order) y = Mul (g, half)", 2),
        # A weight that something else is made of when the model is loaded, too.
        (
            "both = Concat <axis = 1> (w, w) p = MatMul (x, w) y0 = Mul (p, s) "
            "q = MatMul (x, both) r = Slice (q, zero, three, last) y = Add (y0, r)",
            4,
        ),
    ],
)
def test_a_weight_takes_what_its_product_is_multiplied_with(body: str, count: int) -> None:
    before, after = model(body), model(body)
    assert graphfix.run(after, "scale-weights").changed
    np.testing.assert_allclose(run(after), run(before), rtol=1e-5, atol=1e-5)
    kernels = planning.kernels_per_run(after)
    assert kernels is not None
    assert kernels["all"] == count  # the weights are multiplied once, when the model is loaded
    assert not graphfix.run(after, "scale-weights").changed


@pytest.mark.parametrize(
    "body",
    [
        "p = MatMul (x, w) y = Mul (p, half)",  # fuse-matmul's
        "p = MatMul (x, w) y = Mul (p, given_)",
        "p = MatMul (x, w) r = Add (p, given_) y = Mul (r, s)",
        "p = MatMul (x, w) y = Mul (p, each)",
        "p = MatMul (x, w) d = Mul (p, deeper) y = Squeeze (d, zero)",
        "p = MatMul (x, w) r = Mul (p, s) y = Add (r, p)",
        "p = MatMul (x, w) q = MatMul (x, w) r = Mul (p, s) y = Add (r, q)",
        "p = MatMul (x, w) r = Relu (p) y = Mul (r, s)",
        "p = MatMul (x, w) y = Div (half, p)",
        'p = MatMul (x, w) e = Einsum <equation = "btw,bsw->bts"> (p, p) y = Mul (e, half)',
        "p = MatMul (x, w) t = Transpose <perm = [1, 0, 2]> (p) y = Mul (t, s)",
        "p = MatMul (x, w) q = Add (p, p) y = Mul (q, half)",
        "p = MatMul (x, w) r = Add (p, deep) y = Mul (r, s)",
        "p = MatMul (x, w) r = Add (p, b) m = Mul (r, half) y = Add (m, r)",
    ],
)
def test_what_stays(body: str) -> None:
    assert not graphfix.run(model(body), "scale-weights").changed


CONV = """(float[B, 2, T] x) => (float[B, M, N] y)
    <float[3, 2, 2] w = {1, -2, 3, 4, 5, 6, 6, 5, -4, 3, 2, 1},
     float[2, 3, 2] v = {1, -2, 3, 4, 5, 6, 6, 5, -4, 3, 2, 1},
     float[3] b = {1, 2, 3}, float three = {3}, float less = {-3}, float[2, 1] two = {3, 2}>"""


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ("d = Div (x, three) y = Conv (d, w, b)", ["Conv", "Div"]),
        ("d = Mul (three, x) l = LeakyRelu (d) y = ConvTranspose (l, v, b)",
         ["ConvTranspose", "LeakyRelu", "Mul"]),
        ("d = Div (x, less) y = ConvTranspose (d, v)", ["ConvTranspose", "Div"]),
        ("d = Div (x, three) l = Relu (d) y = Conv <pads = [1, 1]> (l, w)",
         ["Conv", "Div", "Relu"]),
    ],
)  # fmt: skip
def test_a_convolution_takes_what_divides_its_data(body: str, kinds: list[str]) -> None:
    before, after = model(body, CONV), model(body, CONV)
    assert graphfix.run(after, "scale-weights").changed
    found = (run(x, (2, 2, 5)) for x in (after, before))
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)
    assert sorted(ops(after)) == kinds
    kernels = planning.kernels_per_run(after)
    assert kernels is not None
    assert kernels["all"] == len(kinds) - 1  # the weight is divided when the model is loaded


@pytest.mark.parametrize(
    "body",
    [
        "d = Div (x, less) l = LeakyRelu (d) y = Conv (l, w)",  # it bends the other side
        "d = Div (x, three) l = Tanh (d) y = Conv (l, w)",
        "d = Div (x, two) y = Conv (d, w)",
        "d = Div (three, x) y = Conv (d, w)",
        "d = Div (x, three) c = Conv (d, w) s = Conv (d, w) y = Add (c, s)",
        "d = Div (x, three) c = Conv (d, w) s = Conv (x, w) y = Add (c, s)",
        "d = Div (x, three) y = Conv (d, late)",
        "d = Div (bias, three) y = Conv (x, w, d)",
    ],
)
def test_what_a_convolution_does_not_take(body: str) -> None:
    head = CONV.replace("x)", "x, float[3, 2, 2] late, float[3] bias)", 1)
    assert not graphfix.run(model(body, head), "scale-weights").changed


NORM = """(float[B, 3, 2] x) => (float[N, M, K] y)
    <float[3, 2] table = {1, 2, 3, 4, 5, 6}, float[2] s = {2, 3}, float[2] b = {1, -1},
     float[1, 2] m = {0.5, 4}, float half = {0.5}, float[3, 1] each = {1, 2, 3},
     float[3] t = {1, 2, 3}, float[2, 3, 1] v = {1, 2, 3, 4, 5, 6}>"""


@pytest.mark.parametrize(
    "body",
    [
        "n = LayerNormalization (x, s, b) y = Mul (n, m)",
        "n = LayerNormalization (x, s) y = Div (n, half)",
        "n = SimplifiedLayerNormalization (x, s) y = Mul (m, n)",
        "n = InstanceNormalization (x, t, t) y = Mul (n, each)",
        "c = Conv (x, v, b) n = Transpose <perm = [0, 2, 1]> (c) y = Mul (n, half)",
        "c = Conv (x, v) n = Transpose <perm = [0, 2, 1]> (c) y = Div (n, half)",
    ],
)
def test_a_norm_and_a_convolution_take_it(body: str) -> None:
    before, after = model(body, NORM), model(body, NORM)
    assert graphfix.run(after, "scale-weights").changed
    found = (run(x, (2, 3, 2)) for x in (after, before))
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)
    first, last = (planning.kernels_per_run(x) for x in (before, after))
    assert first is not None
    assert last is not None
    assert last["all"] == first["all"] - 1


@pytest.mark.parametrize(
    "body",
    [
        "n = LayerNormalization (x, s, b) y = Mul (n, each)",  # a number for each row
        "n = LayerNormalization <axis = 1> (x, table) y = Mul (n, m)",
        "n, mean = LayerNormalization (x, s) o = Mul (n, m) y = Sub (o, mean)",
        "n = InstanceNormalization (x, t, t) y = Mul (n, m)",
        "c = Conv (x, v) y = Mul (c, half)",  # ONNX Runtime's
        "c = Conv (x, v) n = Transpose <perm = [0, 2, 1]> (c) y = Mul (n, m)",
    ],
)
def test_what_a_norm_and_a_convolution_do_not_take(body: str) -> None:
    assert not graphfix.run(model(body, NORM), "scale-weights").changed


def test_a_scaled_layer_goes_into_its_norm_with_its_bias() -> None:
    body = """p = MatMul (x, v) r = Add (p, b) s = Mul (r, scale) a = Add (s, x)
        y = LayerNormalization (a, scale, b)"""
    head = """(float[B, T, 2] x) => (float[B, T, 2] y) <float[2, 2] v = {1, 2, 3, 4},
        float[2] b = {1, 2}, float[2] scale = {0.3, 0.7}>"""
    after = model(body, head)
    graphfix.run(after, "fast")
    assert [x for x in ops(after) if x != "Mul"] == ["MatMul", "SkipLayerNormalization"]


def test_the_half_of_a_gelu_stays_with_it() -> None:
    body = """a = Div (x, root) e = Erf (a) p = Add (e, one) g = Mul (x, p) h = Mul (g, half)
        y = Conv (h, w)"""
    head = CONV.replace(
        "float three = {3}",
        "float three = {3}, float root = {1.4142135}, float one = {1}, float half = {0.5}",
    )
    after = model(body, head)
    graphfix.run(after, "fast")
    assert ops(after) == ["Gelu", "Conv"]
