"""matmul-vector: which products get a matrix of one column, what is left alone, equal numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import data, execute, model, ops

SIZES = {"A": 2, "B": 3, "C": 4, "D": 2, "E": 3, "K": 5}


def product(a: str, b: str = "K", *, opset: int = 17, kind: str = "float") -> ir.Model:
    made = ", ".join("PQRSTU"[: max(a.count(","), b.count(","))])
    return model(
        f"m ({kind}[{a}] x, {kind}[{b}] w) => ({kind}[{made}] y) {{ y = MatMul (x, w) }}",
        opset,
        ', "com.microsoft" : 1',
    )


def feeds(m: ir.Model) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    dims = {x.name: [SIZES.get(str(d), d) for d in x.shape] for x in m.graph.inputs}
    return {
        x.name: random.standard_normal(dims[x.name]).astype(x.dtype.numpy()) for x in m.graph.inputs
    }


@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("dims", ["K", "B, K", "A, B, K", "A, B, C, K", "A, B, C, D, K", "2, 3, 5"])
def test_a_column(dims: str, opset: int) -> None:
    vector = "5" if "5" in dims else "K"
    before, after = (product(dims, vector, opset=opset) for _ in range(2))
    found = {x.rule for x in graphfix.check(before) if x.severity == "error"}
    assert found == {"matmul-vector"} | ({"kernel-rank"} if dims.count(",") > 3 else set())
    assert len(graphfix.run(after, "matmul-vector").passes[0].changes) == 1
    assert ops(after) == ["Unsqueeze", "MatMul", "Squeeze"]
    assert not graphfix.run(after, "matmul-vector").changed
    check_same(before, after)
    graphfix.run(after, "directml")
    assert not graphfix.check(after, "matmul-vector,kernel-rank")
    check_same(before, after)


INTEGERS = {
    "MatMulInteger": "int32[P, Q] y) { y = MatMulInteger (x, w)",
    "MatMulInteger with zero points": "int32[P, Q] y) { y = MatMulInteger (x, w, z, z)",
    "QLinearMatMul": "uint8[P, Q] y) { y = QLinearMatMul (x, s, z, w, s, z, s, z)",
}


@pytest.mark.parametrize("case", INTEGERS)
def test_integers(case: str) -> None:
    head = "m (uint8[A, B, 4] x, uint8[4] w) => (%s }"
    body = INTEGERS[case].replace("y) {", "y) <float s = {0.5}, uint8 z = {3}> {")
    before, after = (model(head % body, 17) for _ in range(2))
    found = {x.rule for x in graphfix.check(before) if x.severity == "error"}
    assert found == {"matmul-vector"}
    graphfix.run(after, "matmul-vector")
    assert ops(after) == ["Unsqueeze", case.split()[0], "Squeeze"]
    assert not graphfix.run(after, "matmul-vector").changed
    random = np.random.default_rng(0)
    given = {"x": random.integers(0, 9, (2, 3, 4), np.uint8), "w": np.arange(4, dtype=np.uint8)}
    np.testing.assert_array_equal(execute(before, given)[0], execute(after, given)[0])


def test_a_vector_of_two_products_becomes_one_column() -> None:
    text = """m (float[B, 4] x, float[B, 4] z, float[4] w, bool c) => (float[B] y, float[P] r)
        { y = MatMul (x, w)  r = If (c) <
            then_branch = t () => (float[B] a) { a = MatMul (z, w) },
            else_branch = e () => (float[B] b) { n = Neg (w) b = MatMul (z, n) }> }"""
    before, after = model(text, 17), model(text, 17)
    assert len(graphfix.run(after, "matmul-vector").passes[0].changes) == 3
    assert ops(after).count("Unsqueeze") == 2
    random = np.random.default_rng(0)
    given = {x: random.random((3, 4)[x == "w" :], np.float32) for x in "xzw"}
    for taken in (True, False):
        fed = {**given, "c": np.array(taken)}
        for old, new in zip(execute(before, fed), execute(after, fed), strict=True):
            np.testing.assert_allclose(old, new, rtol=1e-6)


def check_same(before: ir.Model, after: ir.Model) -> None:
    given = feeds(before)
    (old,), (new,) = execute(before, given), execute(after, given)
    assert (old.dtype, old.shape) == (new.dtype, new.shape)
    np.testing.assert_allclose(old, new, rtol=1e-5, atol=1e-5)


def test_a_weight_stays_a_constant() -> None:
    text = """m (float[B, T, 3] h) => (float[B, T] y) <float[3] u = {1, 2, 3}>
        { y = MatMul (h, u) }"""
    before, after = model(text), model(text)
    graphfix.run(after, "directml")
    assert ops(after) == ["MatMul", "Squeeze"]
    h = np.random.default_rng(0).random((2, 4, 3), np.float32)
    np.testing.assert_allclose(execute(before, {"h": h})[0], execute(after, {"h": h})[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        ("B, K", "K, 1", "float"),
        ("K", "K, C", "float"),  # it is right there
        ("B, 1", "1", "float"),
        ("B, K", "K", "int32"),  # on the CPU
    ],
)
def test_what_is_right_is_left_alone(a: str, b: str, kind: str) -> None:
    m = product(a, b, kind=kind)
    before = data(m)
    assert not graphfix.check(m, "matmul-vector")
    assert not graphfix.run(m, "matmul-vector").changed
    assert data(m) == before
