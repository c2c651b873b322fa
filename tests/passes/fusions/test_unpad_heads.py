"""unpad-heads: zeros that no product needs, and what is left."""

from __future__ import annotations

import onnx_ir as ir
import pytest

import graphfix
from graphfix.proof.verify import verify
from tests.passes.models import ops

HEADS = "float[B, 2, S, 6] q, float[B, 2, T, 6] k, float[B, 2, T, 6] v"
PADS = """wq = Pad (q, pads, zero) wk = Pad (k, pads, zero) wv = Pad (v, pads, zero)
    sq = Mul (wq, half) t = Transpose <perm = [0, 1, 3, 2]> (wk) st = Mul (half, t)"""
PRODUCTS = """s = MatMul (sq, st) w = Softmax <axis = -1> (s) c = MatMul (w, wv)
    ct = Transpose <perm = [0, 2, 1, 3]> (c)"""
CUT = "y = Slice (ct, nought, six, last)"


def model(body: str, opset: int = 17, out: str = "float[B, S, 2, 6] y") -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : {opset}]> m ({HEADS}) => ({out}) '
        "<int64[8] pads = {0, 0, 0, 0, 0, 0, 0, 2}, int64[8] front = {0, 0, 0, 2, 0, 0, 0, 0}, "
        "int64[8] more = {0, 0, 0, 0, 0, 0, 0, 3}, float zero = {0}, float one = {1}, "
        "float half = {0.5}, int64[1] nought = {0}, int64[1] five = {5}, int64[1] six = {6}, "
        f"int64[1] seven = {{7}}, int64[1] last = {{3}}> {{ {body} }}"
    )


@pytest.mark.parametrize("opset", [11, 17])
def test_no_product_needs_the_zeros(opset: int) -> None:
    before, after = (model(f"{PADS} {PRODUCTS} {CUT}", opset) for _ in range(2))
    assert len(graphfix.run(after, "unpad-heads").passes[0].changes) == 2
    left = ["Mul", "Transpose", "Mul", "MatMul", "Softmax", "MatMul", "Transpose"]
    assert sorted(ops(after)) == sorted(left)
    verdict = verify(before, after)
    assert verdict.ok, verdict.reason
    assert not graphfix.run(after, "unpad-heads").changed


SCORES, WIDE = "float[B, 2, S, N] y", "float[B, S, 2, 8] y"
LEFT = {
    "ones": PADS.replace("zero", "one"),
    "in front": PADS.replace("pads", "front"),
    "after the axes are exchanged": """k2 = Transpose <perm = [0, 1, 3, 2]> (k)
        sq = Identity (q) st = Pad (k2, pads, zero) wv = Identity (v)""",
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left(case: str) -> None:
    left = model(f"{LEFT[case]} s = MatMul (sq, st) y = Softmax <axis = -1> (s)", out=SCORES)
    assert not graphfix.run(left, "unpad-heads").changed


def test_what_is_padded_by_another_number_is_left() -> None:
    """As wide in the end, but not before."""
    body = """k5 = Slice (k, nought, five, last) sq = Pad (q, pads, zero) wk = Pad (k5, more, zero)
        st = Transpose <perm = [0, 1, 3, 2]> (wk) y = MatMul (sq, st)"""
    assert not graphfix.run(model(body, out=SCORES), "unpad-heads").changed


@pytest.mark.parametrize(
    ("cut", "out"),
    [
        ("y = Identity (ct)", WIDE),
        ("y = Slice (ct, nought, five, last)", "float[B, S, 2, 5] y"),
        ("y = Slice (ct, nought, seven, last)", "float[B, S, 2, 7] y"),
        (f"{CUT} n = Neg (c)", "float[B, S, 2, 6] y, float[B, 2, S, 8] n"),
        (f"{CUT} n = Neg (wv)", "float[B, S, 2, 6] y, float[B, 2, T, 8] n"),
    ],
    ids=["not cut", "cut further", "cut less", "the result is read", "the values are read"],
)
def test_values_are_left_padded(cut: str, out: str) -> None:
    before, after = (model(f"{PADS} {PRODUCTS} {cut}", out=out) for _ in range(2))
    graphfix.run(after, "unpad-heads")
    assert ops(after).count("Pad") == 1
    assert verify(before, after).ok


def test_queries_that_somebody_reads_are_left_padded() -> None:
    body = f"{PADS} {PRODUCTS} {CUT} n = Neg (wq)"
    left = model(body, out="float[B, S, 2, 6] y, float[B, 2, S, 8] n")
    assert len(graphfix.run(left, "unpad-heads").passes[0].changes) == 1
    assert ops(left).count("Pad") == 2
