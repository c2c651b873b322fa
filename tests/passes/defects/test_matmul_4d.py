"""matmul-4d: which products become one of four dims, what is left and why, equal numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.core import Skip
from tests.passes.models import data, execute, model, ops


def product(a: str, b: str, *, opset: int = 17, kind: str = "float", domain: str = "") -> ir.Model:
    made = ", ".join("PQRSTUV"[: max(a.count(","), b.count(",")) + 1])
    text = f"m ({kind}[{a}] x, {kind}[{b}] w) => ({kind}[{made}] y) {{ y = {domain}MatMul (x, w) }}"
    return model(text, opset, ', "com.microsoft" : 1')


def feeds(a: str, b: str, kind: str = "float32", **others: int) -> dict[str, np.ndarray]:
    sizes = {"A": 2, "B": 3, "W": 5, "C": 4, "D": 2, "M": 6, "K": 7, "N": 8, **others}
    random = np.random.default_rng(0)

    def size(x: str) -> int:
        return int(x) if x.isdigit() else sizes[x]

    dims = [[size(x.strip()) for x in text.split(",")] for text in (a, b)]
    return {n: random.standard_normal(d).astype(kind) for n, d in zip("xw", dims, strict=True)}


def check_same(before: ir.Model, after: ir.Model, given_: dict[str, np.ndarray]) -> None:
    (old,), (new,) = execute(before, given_), execute(after, given_)
    assert (old.dtype, old.shape) == (new.dtype, new.shape)
    np.testing.assert_allclose(old, new, rtol=1e-6, atol=1e-6)


def ranks(m: ir.Model) -> list[int]:
    view = graphfix.facts.view.View(m)
    return [view.shapes.rank(x) for node in view.nodes("MatMul") for x in node.inputs]


REPAIRED = {
    "windows": ("B, W, 4, 8, 2", "B, W, 4, 2, 8"),
    "windows of known number": ("B, 3, 4, 8, 2", "B, 3, 4, 2, 8"),
    "all known": ("2, 3, 4, 8, 2", "2, 3, 4, 2, 8"),
    "none known": ("A, B, C, M, K", "A, B, C, K, N"),
    "a weight": ("A, B, C, M, K", "K, N"),
    "a weight of each head": ("A, B, 4, M, K", "4, K, N"),
    "a weight of each head, of four dims": ("A, B, 4, M, K", "1, 4, K, N"),
    "from the left": ("4, 8, 8", "A, B, 4, 8, N"),
    "six": ("1, A, B, C, 8, 2", "1, A, B, C, 2, 8"),
    "ones among them": ("1, 3, 4, 8, 2", "1, 1, 4, 2, 8"),
    "of one matrix each": ("1, 1, 1, M, K", "1, 1, 1, K, N"),
    "two open products": ("A, B, C, 8, 2", "C, 2, 8"),
    "ones in front of the second alone": ("4, 8, 8", "1, 1, 4, 8, N"),
    "two open products, one missing in front": ("C, 8, 2", "A, B, C, 2, N"),
}


@pytest.mark.parametrize("opset", [7, 11, 13, 17])
@pytest.mark.parametrize("case", REPAIRED)
def test_four_dims(case: str, opset: int) -> None:
    before, after = (product(*REPAIRED[case], opset=opset) for _ in range(2))
    found = [(x.rule, x.severity, x.fix) for x in graphfix.check(before) if x.severity == "error"]
    assert found == [("kernel-rank", "error", "matmul-4d")]
    report = graphfix.run(after, "matmul-4d").passes[0]
    assert len(report.changes) == 1
    assert not graphfix.check(after, "kernel-rank,matmul-4d")
    assert not graphfix.run(after, "matmul-4d").changed
    assert max(ranks(after)) <= 4
    check_same(before, after, feeds(*REPAIRED[case]))
    graphfix.run(after, "directml")
    assert max(ranks(after)) <= 4
    check_same(before, after, feeds(*REPAIRED[case]))


@pytest.mark.parametrize(("opset", "more"), [(14, ""), (17, ",reshape-allowzero")])
@pytest.mark.parametrize("case", REPAIRED)
def test_nothing_in_it(case: str, opset: int, more: str) -> None:
    """An empty cache, no window, no row: what is 0 in a run."""
    before, after = (product(*REPAIRED[case], opset=opset) for _ in range(2))
    assert graphfix.run(after, f"matmul-4d{more}").changed
    for name in sorted({x for x in "".join(REPAIRED[case]) if x.isalpha()}):
        given = feeds(*REPAIRED[case], **{name: 0})
        try:
            execute(before, given)
        except Exception:  # ONNX Runtime 1.24 broadcasts nothing to no matrices
            assert onnxruntime.__version__.startswith("1.24.")
        else:
            check_same(before, after, given)


def test_shapes_are_constants_where_one_size_is_open() -> None:
    after = product(*REPAIRED["windows of known number"])
    graphfix.run(after, "matmul-4d")
    assert ops(after) == ["Reshape", "Reshape", "MatMul", "Reshape"]


def test_a_factor_that_fits_stays() -> None:
    after = product(*REPAIRED["a weight of each head"])
    graphfix.run(after, "matmul-4d")
    assert ops(after).count("Reshape") == 2


LEFT = {
    "a vector": (("A, B, C, M, 4", "4"), "a vector"),
    "sizes that may differ": (("A, B, C, 8, 2", "A, D, C, 2, 8"), "may differ"),
    "repeated alternately": (("2, 1, 4, 8, 2", "1, 3, 4, 2, 8"), "repeated"),
    "a size of 0": (("B, 3, 4, 8, 0", "B, 3, 4, 0, 8"), "sizes is 0"),
}


@pytest.mark.parametrize("case", LEFT)
def test_refused_with_the_reason(case: str) -> None:
    dims, why = LEFT[case]
    m = product(*dims)
    (found,) = graphfix.get_pass("matmul-4d").sites(m)
    assert isinstance(found, Skip)
    assert why in found.reason
    assert not graphfix.run(m, "matmul-4d").changed
    told = [(x.severity, x.fix) for x in graphfix.check(m) if x.rule == "kernel-rank"]
    assert told == [("error", None)]


@pytest.mark.parametrize(
    ("dims", "kind"),
    [
        (("A, B, M, K", "A, B, K, N"), "float"),
        (("A, B, C, M, K", "A, B, C, K, N"), "int32"),  # it runs on the CPU
    ],
)
def test_what_runs_is_left_alone(dims: tuple[str, str], kind: str) -> None:
    m = product(*dims, kind=kind)
    before = data(m)
    assert not graphfix.check(m, "kernel-rank,matmul-4d")
    assert not graphfix.run(m, "matmul-4d").changed
    assert data(m) == before


def test_a_product_of_constants_is_none_of_a_run() -> None:
    text = """m (float[N] x) => (float[1, 1, 1, 2, 2] y, float[N] z)
        <float[1, 1, 1, 2, 2] a = {1, 2, 3, 4}, float[1, 1, 1, 2, 2] b = {5, 6, 7, 8}>
        { y = MatMul (a, b) z = Neg (x) }"""
    assert not graphfix.check(model(text, 17), "kernel-rank")


def test_what_only_microsoft_has_is_told() -> None:
    m = product(*REPAIRED["windows"], domain="com.microsoft.Fused")
    found = [(x.rule, x.fix) for x in graphfix.check(m) if x.severity == "error"]
    assert found == [("kernel-rank", None)]


@settings(max_examples=60, deadline=None)
@given(drawn=st.data())
def test_any_dims(drawn: st.DataObject) -> None:
    """Each dim open or known, of both factors, of one, or missing at the front of one."""
    count = drawn.draw(st.integers(3, 4))
    leads: list[list[str]] = [[], []]
    for name in "ABCD"[:count]:
        dim = drawn.draw(st.sampled_from((name, "2", "3", "1")))
        has = drawn.draw(st.sampled_from(("both", "both", "first", "second")))
        leads[0].append(dim if has != "second" else "1")
        leads[1].append(dim if has != "first" else "1")
    cut = drawn.draw(st.integers(0, 1))
    while leads[cut] and leads[cut][0] == "1" and drawn.draw(st.booleans()):
        del leads[cut][0]
    m, k, n = (drawn.draw(st.sampled_from(pair)) for pair in (("M", "4"), ("K", "5"), ("N", "1")))
    a, b = ", ".join([*leads[0], m, k]), ", ".join([*leads[1], k, n])
    before, after = product(a, b), product(a, b)
    changed = graphfix.run(after, "matmul-4d").changed
    assert changed == (max(ranks(before)) > 4 >= max(ranks(after)))
    check_same(before, after, feeds(a, b))
