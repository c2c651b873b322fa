"""fuse-spectrum: which halves are a spectrum's, with equal numbers, and what only looks so."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

HEAD = """<int64[1] none = {0}, int64[1] one = {1}, int64[1] three = {3}, int64[1] end = {6},
    int64[1] far = {9223372036854775807}, int64[1] back = {-3}, int64[1] two = {2},
    float square = {2.0}, int64[2] front = {0, 1}, int64[2] middle = {3, 5},
    int64[2] behind = {6, 5}, int64[2] again = {3, 1}, int64[2] axes = {1, 2},
    float[3, 1] other = {1, 2, 3}>"""
CUT = "r = Slice (x, none, three, one) i = Slice (x, three, far, one)"
POWER = "a = Mul (r, r) b = Mul (i, i) y = Add (a, b)"
ROOT = "a = Pow (r, square) b = Pow (i, square) s = Add (a, b) y = Sqrt (s)"


def spectrum(body: str, dims: str = "B, 6, T", opset: int = 17, more: str = "") -> ir.Model:
    made = "B, 3, N" if "B" in dims else "2, 3, 7"
    return model(f"m (float[{dims}] x) => (float[{made}] y{more}) {HEAD} {{ {body} }}", opset)


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("dims", ["B, 6, T", "2, 6, 7"])
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (f"{CUT} {POWER}", "ReduceSumSquare"),
        (f"{CUT} {ROOT}", "ReduceL2"),
        (f"{CUT.replace('three, far', 'back, end')} {ROOT}", "ReduceL2"),
        (f"{CUT} {POWER.replace('(a, b)', '(b, a)')}", "ReduceSumSquare"),
    ],
)
def test_halves_are_one_norm(body: str, kind: str, dims: str, opset: int) -> None:
    before, after = (spectrum(body, dims, opset) for _ in range(2))
    assert graphfix.run(after, "fuse-spectrum").changed
    assert not graphfix.run(after, "fuse-spectrum").changed
    view = ["Reshape"] if dims[0] == "2" else ["Unsqueeze", "Reshape"]
    assert ops(after) == [*view, kind]
    for shape in ((2, 6, 7), *([(1, 6, 1), (0, 6, 3), (2, 6, 0)] if "B" in dims else [])):
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        (a,), (b,) = (execute(m, {"x": x}) for m in (before, after))
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_frames_that_are_cut_as_well_are_cut_behind_the_norm() -> None:
    """As silero's VADs do with the first frame."""
    body = f"r = Slice (x, front, middle, axes) i = Slice (x, again, behind, axes) {ROOT}"
    before, after = (spectrum(body) for _ in range(2))
    graphfix.run(after, "fuse-spectrum")
    assert ops(after) == ["Unsqueeze", "Reshape", "ReduceL2", "Slice"]
    x = np.random.default_rng(0).standard_normal((2, 6, 7), np.float32)
    (a,), (b,) = (execute(m, {"x": x}) for m in (before, after))
    np.testing.assert_allclose(a, b, rtol=1e-5)
    assert a.shape == (2, 3, 4)


@pytest.mark.parametrize(
    "body",
    [
        f"{CUT} {POWER.replace('(i, i)', '(r, r)')}",  # the same half twice
        f"{CUT} {POWER.replace('(i, i)', '(i, r)')}",
        f"{CUT} {POWER.replace('(a, b)', '(a, other)')}",
        f"{CUT} {ROOT.replace('square) s', 'other) s')}",
        f"r = Slice (x, none, three, one) i = Slice (x, two, one, one) {POWER}",
        f"n = Neg (x) r = Slice (x, none, three, one) i = Slice (n, three, far, one) {POWER}",
        f"r = Slice (x, front, middle, axes) i = Slice (x, three, far, one) {POWER}",
    ],
)
def test_what_only_looks_so_stays(body: str) -> None:
    assert not graphfix.run(spectrum(body), "fuse-spectrum").changed


def test_a_square_or_a_sum_that_is_read_elsewhere_stays() -> None:
    more = ", float[B, 3, T] a"
    assert not graphfix.run(spectrum(f"{CUT} {POWER}", more=more), "fuse-spectrum").changed
    both = spectrum(f"{CUT} {ROOT}", more=", float[B, 3, T] s")
    graphfix.run(both, "fuse-spectrum")
    assert ops(both)[-2:] == ["ReduceSumSquare", "Sqrt"]
