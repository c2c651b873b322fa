"""Products of matrices, against what ONNX Runtime computes."""

import numpy as np
import pytest

from graphfix.ops.products import (
    read_fused_matmul,
    read_gemm,
    read_matmul_nbits,
    rounds_data,
    summed_axes,
)
from tests.ops.nodes import node_in_text, node_of, nodes_in
from tests.ops.samples import Sample, floats, samples_of


@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_gemm_is_this_formula(trans_a: int, trans_b: int) -> None:
    a, b = floats(*(3, 2) if trans_a else (2, 3)), floats(*(4, 3) if trans_b else (3, 4))
    attributes: dict[str, object] = {
        "transA": trans_a,
        "transB": trans_b,
        "alpha": 2.0,
        "beta": 0.5,
    }
    sample = Sample("Gemm", 13, (a, b, floats(4, seed=3)), attributes)
    gemm = read_gemm(node_of(sample))
    left, right = (a.T if gemm.trans_a else a), (b.T if gemm.trans_b else b)
    assert gemm.bias is not None
    expected = gemm.alpha * left @ right + gemm.beta * sample.inputs[2]
    np.testing.assert_allclose(sample.first(), expected, 1e-5)
    plain = read_gemm(node_of(Sample("Gemm", 13, (a, b))))
    assert (plain.alpha, plain.beta, plain.trans_a, plain.bias) == (1, 1, False, None)


@pytest.mark.parametrize("trans", [0, 1])
def test_a_fused_product_is_this_formula(trans: int) -> None:
    a, b = floats(2, 3), floats(*(4, 3) if trans else (3, 4), seed=2)
    attributes: dict[str, object] = {"transB": trans, "alpha": 2.0}
    sample = Sample("com.microsoft.FusedMatMul", 17, (a, b), attributes, (0, 1))
    fused = read_fused_matmul(node_of(sample))
    expected = fused.alpha * a @ (b.T if fused.trans_b else b)
    np.testing.assert_allclose(sample.first(), expected, 1e-5)
    assert not any((fused.trans_a, fused.trans_batch_a, fused.trans_batch_b))


def test_a_product_with_few_bits_is_this_formula() -> None:
    (sample,) = samples_of("com.microsoft.MatMulNBits")
    spec = read_matmul_nbits(node_of(sample))
    assert (spec.k, spec.n, spec.bits, spec.block_size) == (16, 2, 4, 16)
    assert spec.zero_points is spec.group_index is spec.bias is None
    packed, scales = sample.inputs[1], sample.inputs[2]
    halves = np.stack([packed & 15, packed >> 4], -1).reshape(spec.n, spec.k).astype(np.float32)
    weight = (halves - 8) * scales[:, None]
    np.testing.assert_allclose(sample.first(), sample.inputs[0] @ weight.T, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("level", "rounds"), [("", False), ("0", False), ("1", False), ("4", True)]
)
def test_a_product_of_few_bits_may_round_its_data(level: str, rounds: bool) -> None:
    accuracy = f", accuracy_level = {level}" if level else ""
    (node,) = nodes_in(
        f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[B, 32] x) =>
        (float[B, 2] y) {{ y = com.microsoft.MatMulNBits <K = 32, N = 2, bits = 4, block_size = 32
        {accuracy}> (x, w, s) }}"""
    )
    assert rounds_data(node) is rounds


def test_what_rounds_its_data_is_told_by_the_operator() -> None:
    one, other = nodes_in(
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[B, 4] x) =>
        (float[B, 4] y) { c = com.microsoft.DynamicQuantizeMatMul (x, w, s) y = MatMul (c, v) }"""
    )
    assert rounds_data(one)
    assert not rounds_data(other)


@pytest.mark.parametrize(
    ("text", "ranks", "axes"),
    [
        ("MatMul (x, w)", (3, 2), (2, 0)),
        ("MatMul (x, w)", (1, 4), (0, 2)),
        ("MatMul (x, w)", (2, 1), (1, 0)),
        ("Gemm <transA = 1, transB = 1> (x, w)", (2, 2), (0, 1)),
        ("com.microsoft.FusedMatMul <transB = 1> (x, w)", (3, 3), (2, 2)),
        ("com.microsoft.FusedMatMul <transA = 1, transBatchA = 1> (x, w)", (3, 3), (0, 1)),
        ('Einsum <equation = "ab,bc->ac"> (x, w)', (2, 2), None),
        ("Add (x, w)", (2, 2), None),
        ("MatMul (x, w)", (0, 2), None),
    ],
)
def test_the_axes_that_a_product_sums_over(
    text: str, ranks: tuple[int, int], axes: tuple[int, int] | None
) -> None:
    assert summed_axes(node_in_text(text), *ranks) == axes
