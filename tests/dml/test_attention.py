"""On the real DirectML: MultiHeadAttention as fuse-attention writes it, and as it must not."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import GraphfixError
from graphfix.runtime.local_session import Session

SIZES = {"B": 2, "T": 5, "S": 7, "P": 3, "N": 8}
HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
IN = "float[B,T,16] q, float[B,S,16] k, float[B,S,16] v"
OUT = "float[B,T,16] y"
NUMBERS = """<int64[4] split = {0, 0, 2, 8}, int64[3] merge = {0, 0, 16}, float sc = {0.3},
    float floor = {-10000.0}, int64[1] a1 = {1}, int64[2] a12 = {1, 2}, int64[1] first = {0},
    int64[1] four = {4}, int64[1] last = {3}, int64[1] end = {9223372036854775807},
    int64[1] two = {2}, int64[1] behind = {-1}, int64[4] twice = {1, 1, 1, 2},
    int64[3] flat3 = {0, 0, -1}, int64[4] flat4 = {0, 0, 0, -1},
    float[16] bias = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, int64[1] at = {0}>"""
SPLIT = """qs = Reshape (q, split) qh = Transpose <perm = [0,2,1,3]> (qs)
    ks = Reshape (k, split) kh = Transpose <perm = [0,2,1,3]> (ks)
    vs = Reshape (v, split) vh = Transpose <perm = [0,2,1,3]> (vs)"""
SCORES = f"{SPLIT} kt = Transpose <perm = [0,1,3,2]> (kh) p = MatMul (qh, kt) s = Mul (p, sc)"
END = """w = Softmax <axis = -1> (m) c = MatMul (w, vh) ct = Transpose <perm = [0,2,1,3]> (c)
    y = Reshape (ct, merge)"""
HIDES = "hf = Cast <to = 1> (hidden) ha = Mul (hf, floor)"
TURN = """{n}c = Mul ({n}h, cos) {n}2 = Slice ({n}h, four, end, last) {n}n = Neg ({n}2)
    {n}1 = Slice ({n}h, first, four, last) {n}r = Concat <axis = -1> ({n}n, {n}1)
    {n}d = Mul ({n}r, sin) {n}t = Add ({n}c, {n}d)"""
PAIRS = """{n}x = Slice ({n}h, first, four, last) {n}z = Slice ({n}h, four, end, last)
    {n}c = Mul ({n}x, cos) {n}2 = Slice ({n}x, a1, end, last, two) {n}n = Neg ({n}2)
    {n}1 = Slice ({n}x, first, end, last, two) {n}nu = Unsqueeze ({n}n, behind)
    {n}eu = Unsqueeze ({n}1, behind) {n}st = Concat <axis = -1> ({n}nu, {n}eu)
    {n}r = Reshape ({n}st, flat4) {n}d = Mul ({n}r, sin) {n}y = Add ({n}c, {n}d)
    {n}t = Concat <axis = -1> ({n}y, {n}z)"""
PAST = "float[B,T,16] q, float[B,T,16] k, float[B,T,16] v, float[B,2,P,8] pk, float[B,2,P,8] pv"

FORMS = {
    "plain": (IN, OUT, f"{SCORES} m = Identity (s) {END}"),
    "a mask of keys": (
        f"{IN}, bool[B,S] hidden",
        OUT,
        f"{SCORES} {HIDES} h4 = Unsqueeze (ha, a12) m = Add (s, h4) {END}",
    ),
    "a mask of pairs": (
        f"{IN}, bool[B,1,T,S] hidden",
        OUT,
        f"{SCORES} {HIDES} m = Add (s, ha) {END}",
    ),
    "positions and a mask of keys": (
        f"{IN}, float[1,2,T,S] r, bool[B,1,1,S] hidden",
        OUT,
        f"{SCORES} {HIDES} sr = Add (s, r) m = Add (sr, ha) {END}",
    ),
    "biases": (
        f"{IN}",
        OUT,
        f"""q0 = Relu (q) qb = Add (q0, bias) v0 = Relu (v) vb = Add (v0, bias)
        {SCORES.replace("(q, split)", "(qb, split)").replace("(v, split)", "(vb, split)")}
        m = Identity (s) {END}""",
    ),
    "a past": (
        f"{PAST}, float[B,1,T,N] r",
        f"{OUT}, float[B,2,N,8] nk, float[B,2,N,8] nv",
        f"""{SPLIT} nk = Concat <axis = 2> (pk, kh) nv = Concat <axis = 2> (pv, vh)
        kt = Transpose <perm = [0,1,3,2]> (nk) p = MatMul (qh, kt) s = Mul (p, sc) m = Add (s, r)
        {END.replace("(w, vh)", "(w, nv)")}""",
    ),
    "a rotation": (
        "float[B,T,16] q, float[B,T,16] k, float[B,T,16] v, float[1,T,4] f",
        OUT,
        f"""{SPLIT} ff = Concat <axis = -1> (f, f) cu = Cos (ff) su = Sin (ff)
        cos = Unsqueeze (cu, a1) sin = Unsqueeze (su, a1)
        {TURN.format(n="q")} {TURN.format(n="k").replace("kt = ", "kr0 = ")}
        kt = Transpose <perm = [0,1,3,2]> (kr0) p = MatMul (qt, kt) m = Mul (p, sc) {END}""",
    ),
    "a rotation of pairs, of the first features": (
        "float[B,T,16] q, float[B,T,16] k, float[B,T,16] v, float[1,T,2] f",
        OUT,
        f"""{SPLIT} fu = Unsqueeze (f, behind) fe = Expand (fu, twice) ff = Reshape (fe, flat3)
        cu = Cos (ff) su = Sin (ff) cos = Unsqueeze (cu, a1) sin = Unsqueeze (su, a1)
        {PAIRS.format(n="q")} {PAIRS.format(n="k").replace("kt = ", "kr0 = ")}
        kt = Transpose <perm = [0,1,3,2]> (kr0) p = MatMul (qt, kt) m = Mul (p, sc) {END}""",
    ),
}


def feeds_of(model: ir.Model) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    feeds = {}
    for value in model.graph.inputs:
        array = random.standard_normal([SIZES.get(str(d), d) for d in value.shape])
        feeds[value.name] = array.astype(np.float32)
        if value.dtype == ir.DataType.BOOL:
            feeds[value.name] = array > 0.5
            feeds[value.name][..., 0] = False  # each row has a key to look at
    return feeds


@pytest.mark.parametrize(("case", "fixed"), list(itertools.product(FORMS, (False, True))))
def test_a_fused_attention_computes_what_the_cpu_does(case: str, fixed: bool) -> None:
    given, out, body = FORMS[case]
    before, after = (
        ir.from_onnx_text(f"{HEAD} m ({given}) => ({out}) {NUMBERS} {{ {body} }}") for _ in range(2)
    )
    graphfix.run(after, "fuse-attention")
    assert sum(x.op_type == "MultiHeadAttention" for x in after.graph) == 1
    assert not any(x.op_type == "Neg" for x in after.graph)
    feeds = feeds_of(before)
    sizes = {x: size for x, size in SIZES.items() if f"'{x}'" in str(before.graph.inputs)}
    with Session(before) as cpu:
        want = cpu.run(feeds)
    with Session(after, ep="dml", free_dims=sizes if fixed else None) as dml:
        got = dml.run(feeds)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5)


def test_directml_does_not_add_a_mask_of_keys_beside_a_bias() -> None:
    """So the pass writes no such node; where this fails, it may."""
    model = ir.from_onnx_text(
        f"""{HEAD} m ({IN}, float[B,2,T,S] r, int32[B,S] seen) => ({OUT}) {{
        y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, , seen, r) }}"""
    )
    feeds = feeds_of(model)
    feeds["seen"] = (np.arange(SIZES["S"]) < np.array([[3], [5]])).astype(np.int32)
    with Session(model) as cpu, Session(model, ep="dml") as dml:
        assert np.abs(cpu.run(feeds)["y"] - dml.run(feeds)["y"]).max() > 0.01


@pytest.mark.parametrize(
    ("given", "body"),
    [
        (f"{IN}, float[1,2,T,S] r", "(q, k, v, , , r)"),
        (f"{IN}, float[B,1,T,S] r", "(q, k, v, , , r)"),
        ("float[B,T,16] q, float[B,2,S,8] k, float[B,2,S,8] v", "(q, k, v)"),
    ],
    ids=["a bias for all", "a bias for all heads", "keys of rank 4"],
)
def test_directml_refuses_what_the_cpu_takes(given: str, body: str) -> None:
    text = f"y = com.microsoft.MultiHeadAttention <num_heads = 2> {body}"
    model = ir.from_onnx_text(f"{HEAD} m ({given}) => ({OUT}) {{ {text} }}")
    with Session(model) as cpu:
        cpu.run(feeds_of(model))
    with pytest.raises(GraphfixError, match="80070057"), Session(model, ep="dml") as dml:
        dml.run(feeds_of(model))
