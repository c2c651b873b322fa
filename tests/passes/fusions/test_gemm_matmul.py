"""gemm-matmul: which Gemms are products of three dims, which stay and why."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import opened, ops, refusals

INITS = f"""float[4, 3] w = {{{", ".join(str(i % 5 - 2) for i in range(12))}}},
    float[3] b = {{1, 2, 3}},
    float[3, 4] turned = {{{", ".join(str(i % 5 - 2) for i in range(12))}}}, float one = {{1.0}},
    float[1, 3] row = {{1, 2, 3}}, int64[2] flat = {{-1, 4}}, int64[1] wide = {{3}},
    int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[2] mixed = {{-1, 8}},
    int64[3] heads = {{0, 0, 3}}, int64[3] copies = {{0, 1, 4}}, int64[1] four = {{4}},
    float[4, 4] square = {{{", ".join(str(i % 5 - 2) for i in range(16))}}}"""
BACK = "s = Shape (x) f = Slice (s, zero, two) to = Concat <axis = 0> (f, wide)"
LINEAR = f"rows = Reshape (x, flat) h = Gemm (rows, w, b) {BACK} y = Reshape (h, to)"


def model(body: str = LINEAR, *, x: str = "float[B, T, 4] x", out: str = "float[B, T, 3] y",
          ) -> ir.Model:  # fmt: skip
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17]> m ({x}) => ({out}) <{INITS}> {{ {body} }}'
    )


def run(m: ir.Model, dims: tuple[int, ...] = (2, 5, 4)) -> list[np.ndarray]:
    session = opened(m)
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    return session.run(None, {"x": x})


FORMS = {
    "a bias": (LINEAR, ["MatMul", "Add"]),
    "no bias": (LINEAR.replace("(rows, w, b)", "(rows, w)"), ["MatMul"]),
    "one number as bias": (LINEAR.replace("(rows, w, b)", "(rows, w, one)"), ["MatMul", "Add"]),
    "numbers that are 1": (
        LINEAR.replace("Gemm", "Gemm <alpha = 1.0, beta = 1.0, transA = 0>"), ["MatMul", "Add"]),
    "a factor that is turned": (
        LINEAR.replace("Gemm (rows, w", "Gemm <transB = 1> (rows, turned"),
        ["Transpose", "MatMul", "Add"]),
    "two of one tensor": (
        f"rows = Reshape (x, flat) h = Gemm (rows, w, b) g = Gemm (rows, w) {BACK} "
        "p = Reshape (h, to) q = Reshape (g, to) y = Add (p, q)",
        ["MatMul", "Add", "MatMul", "Add"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_gemm_between_reshapes_is_a_matmul(name: str) -> None:
    body, wanted = FORMS[name]
    before, after = model(body), model(body)
    report = graphfix.run(after, "gemm-matmul")
    assert report.changed, report.passes[0].skips
    assert ops(after) == wanted
    for got, want in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_heads_are_laid_side_by_side_before_the_product() -> None:
    """As torch's MultiheadAttention flattens [T, B * H, D] to [T * B, H * D]."""
    body = """rows = Reshape (x, flat) h = Gemm (rows, square) t = Shape <end = 1> (x)
        to = Concat <axis = 0> (t, wide, four) y = Reshape (h, to)"""
    given = {"x": "float[T, 6, 2] x", "out": "float[T, C, 4] y"}
    before, after = model(body, **given), model(body, **given)
    assert graphfix.run(after, "gemm-matmul").changed
    assert ops(after) == ["Reshape", "MatMul"]  # to a constant
    for time in (5, 1):
        got, want = (run(m, (time, 6, 2)) for m in (after, before))
        np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)


def test_a_shape_that_copies_a_size_is_none_for_another_tensor() -> None:
    """Its 0 would copy the 2 of [2, 6, 2], and not the 6 that the Gemm makes."""
    body = "rows = Reshape (x, flat) h = Gemm (rows, square) y = Reshape (h, copies)"
    given = {"x": "float[2, 6, 2] x", "out": "float[6, 1, 4] y"}
    before, after = model(body, **given), model(body, **given)
    graphfix.run(after, "gemm-matmul")
    assert ops(after) == ["Reshape", "MatMul"]
    got, want = (run(m, (2, 6, 2)) for m in (after, before))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)


def test_a_batch_of_1_is_told_by_an_unsqueeze() -> None:
    """As fold writes the end of a MultiheadAttention of one clip, before a sum of [1, T, 4]."""
    body = """rows = Reshape (x, flat) h = Gemm (rows, square) up = Unsqueeze (h, zero)
        y = Add (up, z)"""
    given = {"x": "float[T, 2, 2] x, float[1, T, 4] z", "out": "float[1, T, 4] y"}
    before, after = model(body, **given), model(body, **given)
    graphfix.run(after, "fold,gemm-matmul")
    assert ops(after) == ["Reshape", "MatMul", "Add"]
    verdict = graphfix.verify(before, after)
    assert verdict.ok, str(verdict)


def test_four_dims() -> None:
    body = """rows = Reshape (x, flat) h = Gemm (rows, w, b) s = Shape <start = 0, end = 3> (x)
        to = Concat <axis = 0> (s, wide) y = Reshape (h, to)"""
    given = {"x": "float[B, S, T, 4] x", "out": "float[B, S, T, 3] y"}
    before, after = model(body, **given), model(body, **given)
    assert graphfix.run(after, "gemm-matmul").changed
    assert ops(after) == ["MatMul", "Add"]
    got, want = (run(m, (2, 3, 5, 4)) for m in (after, before))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)


STAYS = {
    "it multiplies with a number (alpha)": LINEAR.replace("Gemm", "Gemm <alpha = 0.5>"),
    "it multiplies with a number (beta)": LINEAR.replace("Gemm", "Gemm <beta = 2.0>"),
    "its C, 'row', is no bias of the last axis": LINEAR.replace("w, b)", "w, row)"),
}


@pytest.mark.parametrize("reason", STAYS)
def test_what_stays_says_why(reason: str) -> None:
    m = model(STAYS[reason])
    (why,) = refusals(m, "gemm-matmul")
    assert why.startswith(reason)


NONE = {
    "another shape afterwards": (
        LINEAR.replace("to = Concat <axis = 0> (f, wide)", "n = Identity (f)").replace(
            "Reshape (h, to)", "Unsqueeze (h, zero)"), {"out": "float[A, M, 3] y"}),
    "something else reads the product": (f"{LINEAR} z = Relu (h)", {
        "out": "float[B, T, 3] y, float[M, 3] z"}),
    "the product is an output": (LINEAR, {"out": "float[B, T, 3] y, float[M, 3] h"}),
    "a product of five dims, which DirectML has not": (
        """rows = Reshape (x, flat) h = Gemm (rows, w, b) s = Shape <start = 0, end = 4> (x)
        to = Concat <axis = 0> (s, wide) y = Reshape (h, to)""",
        {"x": "float[B, R, S, T, 4] x", "out": "float[B, R, S, T, 3] y"}),
    "an activation between": (
        LINEAR.replace("y = Reshape (h, to)", "r = Relu (h) y = Reshape (r, to)"), {}),
    "no Reshape before": (
        "h = Gemm (x, w, b) y = Unsqueeze (h, zero)",
        {"x": "float[T, 4] x", "out": "float[A, T, 3] y"}),
}  # fmt: skip


@pytest.mark.parametrize("name", NONE)
def test_what_is_none_is_left_alone(name: str) -> None:
    body, given = NONE[name]
    m = model(body, **given)
    assert not refusals(m, "gemm-matmul")


def test_a_gemm_that_turns_its_rows_stays() -> None:
    """Where there are as many rows as columns, every size is as it would be without."""
    m = model(
        LINEAR.replace("Gemm", "Gemm <transA = 1>"), x="float[1, 4, 4] x", out="float[1, 4, 3] y"
    )
    assert [why[:18] for why in refusals(m, "gemm-matmul")] == ["it turns a factor,"]


def test_a_computed_factor_is_not_turned() -> None:
    body = LINEAR.replace("Gemm (rows, w", "Gemm <transB = 1> (rows, k")
    assert [
        why[:18]
        for why in refusals(model(body, x="float[B, T, 4] x, float[3, 4] k"), "gemm-matmul")
    ] == ["it turns a factor,"]


def test_a_bias_of_a_size_that_is_open_stays() -> None:
    m = model(LINEAR.replace("w, b)", "w, k)"), x="float[B, T, 4] x, float[K] k")
    assert "'k', is no bias of the last axis" in refusals(m, "gemm-matmul")[0]
