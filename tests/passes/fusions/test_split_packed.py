"""split-packed: which parts of a tensor are split, with equal numbers, and which stay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

INITS = """int64[4] apart = {0, 0, 3, 8}, int64[5] heads = {0, 0, 3, 2, 4},
    int64 zero = {0}, int64 one = {1}, int64 two = {2},
    int64[1] z = {0}, int64[1] o = {1}, int64[1] w = {2}, int64[1] h = {3},
    int64[3] each = {1, 1, 1}, int64[3] uneven = {2, 1, 0}, int64[2] both = {0, 1}"""
TAKEN = (
    "q = Gather <axis = 0> (f, zero) k = Gather <axis = 0> (f, one) v = Gather <axis = 0> (f, two)"
)
MHA = f"a = Reshape (x, apart) f = Transpose <perm = [2, 0, 1, 3]> (a) {TAKEN}"
VIT = f"a = Reshape (x, heads) f = Transpose <perm = [2, 0, 3, 1, 4]> (a) {TAKEN}"
UNBIND = f"""{VIT.replace(TAKEN, "")} s, t, u = Split <axis = 0> (f, each)
    q = Squeeze (s, z) k = Squeeze (t, z) v = Squeeze (u, z)"""
SLICES = f"""{VIT.replace(TAKEN, "")} q = Slice (f, z, o, z) k = Slice (f, o, w, z)
    v = Slice (f, w, h, z)"""
TORCH = f"""a = Reshape (x, apart) b = Unsqueeze (a, z)
    c = Transpose <perm = [3, 1, 2, 0, 4]> (b) y = Constant <value_ints = [-2]> ()
    f = Squeeze (c, y) {TAKEN}"""


def packed(body: str, rank: int, x: str = "float[B, T, 24] x") -> ir.Model:
    out = ", ".join(f"float[{', '.join(f'{n}{i}' for i in range(rank))}] {n}" for n in "qkv")
    return model(f"m ({x}) => ({out}) <{INITS}> {{ {body} }}")


@pytest.mark.parametrize(
    ("body", "rank", "kinds"),
    [
        (MHA, 3, ["Split"]),
        (TORCH, 3, ["Split"]),
        (VIT, 4, ["Split", *["Reshape", "Transpose"] * 3]),
        (UNBIND, 4, ["Split", *["Reshape", "Transpose", "Unsqueeze", "Squeeze"] * 3]),
        (SLICES, 5, ["Split", *["Reshape", "Transpose", "Unsqueeze"] * 3]),
        (MHA.replace("<axis = 0> (f, two)", "<axis = -4> (f, two)"), 3, ["Split"]),
    ],
)
def test_parts_of_the_last_axis_are_split(body: str, rank: int, kinds: list[str]) -> None:
    before, after = (packed(body, rank) for _ in range(2))
    assert graphfix.run(after, "split-packed").changed
    assert sorted(x for x in ops(after) if x != "Constant") == sorted(kinds)
    for batch, time in ((2, 5), (1, 1)):
        x = np.random.default_rng(0).standard_normal((batch, time, 24), np.float32)
        for a, b in zip(execute(after, {"x": x}), execute(before, {"x": x}), strict=True):
            np.testing.assert_array_equal(a, b)
    assert not graphfix.run(after, "split-packed").changed


def test_axes_of_one_size_that_change_places_do_so() -> None:
    body = MHA.replace("[2, 0, 1, 3]", "[2, 1, 0, 3]")
    before, after = (packed(body, 3, "float[T, T, 24] x") for _ in range(2))
    assert graphfix.run(after, "split-packed").changed
    x = np.random.default_rng(0).standard_normal((4, 4, 24), np.float32)
    for a, b in zip(execute(after, {"x": x}), execute(before, {"x": x}), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("body", "rank"),
    [
        # what is packed lies in no axis with others
        (f"f = Transpose <perm = [1, 0, 2]> (x) {TAKEN}", 2),
        (UNBIND.replace("(f, each)", "(f, uneven)").replace("Squeeze (s, z)", "Identity (s)"), 5),
        (MHA.replace("(f, two)", "(f, both)"), 3),
        (SLICES.replace("q = Slice (f, z, o, z)", "q = Gather <axis = 0> (f, zero)"), 5),
        (MHA.replace("v = Gather <axis = 0>", "v = Gather <axis = 1>"), 3),
    ],
)
def test_other_parts_stay(body: str, rank: int) -> None:
    x = "float[B, 3, 8] x" if body.startswith("f =") else "float[B, T, 24] x"
    assert not graphfix.run(packed(body, rank, x), "split-packed").changed


def numbers(count: int) -> str:
    return ", ".join(f"{i * 7 % 11 - 5}.0" for i in range(count))


TORCH_ATTENTION = f"""m (float[B, T, 8] x) => (float[B, T, 8] y)
    <float[8, 24] wi = {{{numbers(192)}}}, float[24] bi = {{{numbers(24)}}},
     float[8, 8] wo = {{{numbers(64)}}}, float[8] bo = {{{numbers(8)}}}, {INITS},
     int64[1] four = {{4}}, int64[2] flat = {{-1, 8}}, float scale = {{0.001}}> {{
    there = Transpose <perm = [1, 0, 2]> (x) p = MatMul (there, wi) h1 = Add (p, bi)
    a = Reshape (h1, apart) f = Transpose <perm = [2, 0, 1, 3]> (a) {TAKEN}
    n = Shape (q) t = Gather (n, zero) b = Gather (n, one) t1 = Unsqueeze (t, z)
    bh = Mul (b, two) bh1 = Unsqueeze (bh, z) to = Concat <axis = 0> (t1, bh1, four)
    qm = Reshape (q, to) km = Reshape (k, to) vm = Reshape (v, to)
    qh = Transpose <perm = [1, 0, 2]> (qm) kh = Transpose <perm = [1, 2, 0]> (km)
    vh = Transpose <perm = [1, 0, 2]> (vm) s = MatMul (qh, kh) m = Mul (s, scale)
    e = Softmax <axis = -1> (m) c = MatMul (e, vh) ct = Transpose <perm = [1, 0, 2]> (c)
    rows = Reshape (ct, flat) g = Gemm <transB = 1> (rows, wo, bo) r = Reshape (g, n)
    y = Transpose <perm = [1, 0, 2]> (r) }}"""


def test_the_attention_of_torch_is_one_kernel_with_its_products() -> None:
    """[T, B, D] inside, [B, T, D] outside: nn.MultiheadAttention with batch_first."""
    before, after = model(TORCH_ATTENTION), model(TORCH_ATTENTION)
    graphfix.run(after, "fast")
    assert ops(after) == ["Attention", "MatMul", "Add"]
    x = np.random.default_rng(0).standard_normal((2, 5, 8), np.float32)
    np.testing.assert_allclose(
        execute(after, {"x": x})[0], execute(before, {"x": x})[0], rtol=1e-4, atol=1e-3
    )
