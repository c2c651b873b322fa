"""turn-back: which Transposes cancel around products of rows, with equal numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

THERE, BACK = "t = Transpose <perm = [1, 0, 2]> (x)", "y = Transpose <perm = [1, 0, 2]> (h)"


def rows(body: str, out: str = "float[B, T, N] y") -> ir.Model:
    return model(f"""m (float[B, T, 3] x, float[3, 2] given) => ({out})
        <float[3, 2] w = {{1, 2, 3, 4, 5, -6}}, float[2] b = {{1, -2}}, float s = {{0.5}},
         float[2, 1, 2] wide = {{1, 2, 3, 4}}> {{ {body} }}""")


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        (f"{THERE} h = MatMul (t, w) {BACK}", ["MatMul"]),
        (f"{THERE} p = MatMul (t, w) h = Add (p, b) {BACK}", ["MatMul", "Add"]),
        (f"{THERE} p = MatMul (t, w) h = Add (b, p) {BACK}", ["MatMul", "Add"]),
        (f"{THERE} q = Add (t, s) h = MatMul (q, w) {BACK}", ["Add", "MatMul"]),
        (f"{THERE} h = MatMul (t, w) {BACK} z = Relu (t)", ["Transpose", "MatMul", "Relu"]),
        (f"n = Neg (w) {THERE} h = MatMul (t, n) {BACK}", ["Neg", "MatMul"]),
    ],
)
def test_what_cancels_goes(body: str, kinds: list[str]) -> None:
    out = "float[B, T, N] y" + ", float[T, B, 3] z" * ("z =" in body)
    before, after = (rows(body, out) for _ in range(2))
    assert graphfix.run(after, "turn-back").changed
    assert sorted(ops(after)) == sorted(kinds)
    for batch, time in ((2, 5), (1, 1), (0, 3)):
        feeds = {
            "x": np.random.default_rng(0).standard_normal((batch, time, 3), np.float32),
            "given": np.ones((3, 2), np.float32),
        }
        for a, b in zip(execute(after, feeds), execute(before, feeds), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        f"{THERE} h = MatMul (t, given) {BACK}",  # not known when the model is loaded
        f"{THERE} p = MatMul (t, w) h = Add (p, wide) {BACK}",  # another number for each time
        f"{THERE} h = MatMul (t, w) z = Relu (h) {BACK}",
        f"{THERE} p = MatMul (t, w) h = Softmax <axis = 1> (p) {BACK}",
        f"h = MatMul (x, w) {BACK}",
        f"t = Transpose <perm = [0, 2, 1]> (x) u = Transpose <perm = [0, 2, 1]> (t) {BACK}".replace(
            "(h)", "(u)"
        ),
    ],
)
def test_what_does_not_cancel_stays(body: str) -> None:
    out = "float[P, Q, N] y" + ", float[T, B, 2] z" * ("z =" in body)
    assert not graphfix.run(rows(body, out), "turn-back").changed


def test_three_axes_that_go_round_are_undone_by_those_that_go_on() -> None:
    text = """m (float[A, B, C, 2] x) => (float[A, B, C, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {
        t = Transpose <perm = [1, 2, 0, 3]> (x) h = MatMul (t, w)
        y = Transpose <perm = [2, 0, 1, 3]> (h) }"""
    after = model(text)
    assert graphfix.run(after, "turn-back").changed
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 2), np.float32)
    np.testing.assert_allclose(*(execute(m, {"x": x})[0] for m in (after, model(text))), rtol=1e-5)
    assert not graphfix.run(
        model(text.replace("[2, 0, 1, 3]", "[1, 2, 0, 3]")), "turn-back"
    ).changed
