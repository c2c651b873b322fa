"""fuse-attention: every form it takes computes the same, and what it leaves alone it says why."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from tests.passes.models import opened

SIZES = ({"B": 1, "T": 1, "S": 3}, {"B": 2, "T": 5, "S": 3}, {"B": 3, "T": 4, "S": 4})
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def run(model: ir.Model, sizes: dict[str, int]) -> list[np.ndarray]:
    session = opened(model)
    random = np.random.default_rng(7)
    feeds = {}
    for value in session.get_inputs():
        shape = [sizes.get(d, d) for d in value.shape]
        if value.type == "tensor(bool)":
            feeds[value.name] = np.asarray(random.random(shape) < 0.4)
            feeds[value.name][..., :1] = False  # each row has a key to look at
        elif value.type == "tensor(int64)":
            feeds[value.name] = (random.random(shape) < 0.6).astype(np.int64)
            feeds[value.name][..., 0] = 1
        else:
            kind = np.float16 if value.type == "tensor(float16)" else np.float32
            feeds[value.name] = random.standard_normal(shape).astype(kind)
    return session.run(None, feeds)


def count(model: ir.Model, op_type: str) -> int:
    return sum(node.op_type == op_type for node in model.graph.all_nodes())


def fused(
    text: str, sizes: tuple[dict[str, int], ...] = SIZES, tolerance: float = 2e-5, head: str = HEAD
) -> ir.Model:
    """The model after the pass, which computes the same, all of its attentions fused."""
    before, after = (ir.from_onnx_text(f"{head} m {text}") for _ in range(2))
    result = graphfix.get_pass("fuse-attention")(after)
    assert not result.skips
    assert count(after, "Softmax") == 0
    assert count(after, "MultiHeadAttention") == count(before, "Softmax")
    for case in sizes:
        for a, b in zip(run(before, case), run(after, case), strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert not graphfix.get_pass("fuse-attention")(after).modified
    return after


def skipped(text: str, head: str = HEAD) -> list[str]:
    """The reasons for which a model is left as it is."""
    model = ir.from_onnx_text(f"{head} m {text}")
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    result = graphfix.get_pass("fuse-attention")(model)
    assert not result.modified
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    return [reason for _, reason in result.skips]


def operator(model: ir.Model) -> ir.Node:
    return next(x for x in model.graph.all_nodes() if x.op_type == "MultiHeadAttention")


def inputs_given(model: ir.Model) -> str:
    """Which of bias, key_padding_mask and attention_bias the operator has, as letters."""
    given = list(operator(model).inputs) + [None] * 8
    return "".join(letter for letter, x in zip("bka", given[3:6], strict=True) if x is not None)


# Forms, and how they combine ---------------------------------------------------------------------

CONSTANTS = """<int64[4] split = {0, 0, 2, 8}, int64[3] merge = {0, 0, 16},
    float scale = {0.3}, float inverse = {4.0}, float root = {0.5}, float floor = {-10000.0},
    float one = {1.0}, float[16] bq = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[16] bv =
    {3,1,4,1,5,9,2,6,5,3,5,8,9,7,9,3}, float[16] small = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.1,0.2,
    0.3,0.4,0.5,0.6,0.7,0.8}, int64[2] middle = {1, 2}, int64[1] first = {0}, int64[1] two = {2},
    int64[1] eight = {8}, int64[1] minus = {-1}, float zero = {0.0}>"""

# What leads from [B, T, 16] to what the product takes; {n} is q, k or v, {x} the tensor.
SPLITS = {
    "4-D": """{n}s = Reshape ({x}, split) {n}h = Transpose <perm = [0, 2, 1, 3]> ({n}s)""",
    "computed": """{n}sh = Shape <start = 0, end = 2> ({x})
        {n}hd = Concat <axis = 0> ({n}sh, two, eight)
        {n}s = Reshape <allowzero = 1> ({x}, {n}hd)
        {n}h = Transpose <perm = [0, 2, 1, 3]> ({n}s)""",
    "through 3-D": """{n}s = Reshape ({x}, split) {n}4 = Transpose <perm = [0, 2, 1, 3]> ({n}s)
        {n}sh = Shape ({n}4) {n}len = Shape <start = 2, end = 3> ({n}4)
        {n}to = Concat <axis = 0> (minus, {n}len, eight) {n}3 = Reshape ({n}4, {n}to)
        {n}h = Reshape ({n}3, {n}sh)""",
}
KEYS = {
    "turned": "kt = Transpose <perm = [0, 1, 3, 2]> (kh)",
    "sandwich": """z1 = Shape <start = 2, end = 3> (kh) z2 = Concat <axis = 0> (minus, z1, eight)
        z3 = Reshape (kh, z2) z4 = Transpose <perm = [0, 2, 1]> (z3)
        z5 = Shape <start = 0, end = 2> (kh) z6 = Concat <axis = 0> (z5, eight, z1)
        kt = Reshape (z4, z6)""",
    "twice": """kx = Transpose <perm = [0, 2, 3, 1]> (kh)
        kt = Transpose <perm = [0, 3, 2, 1]> (kx)""",
}
SCALES = {
    "after": "p = MatMul (qh, kt) s = Mul (p, scale)",
    "divided": "p = MatMul (qh, kt) s = Div (p, inverse)",
    "before": "qx = Mul (scale, qh) s = MatMul (qx, kt)",
    "on both": "qx = Mul (qh, root) kx2 = Mul (kt, root) s = MatMul (qx, kx2)",
    "none": "s = MatMul (qh, kt)",
    "behind a cast": "p = MatMul (qh, kt) pc = CastLike (p, one) s = Mul (pc, scale)",
    "computed": """w1 = Shape <start = 3> (qh) w2 = Cast <to = 1> (w1) w3 = Sqrt (w2)
        w4 = Div (one, w3) w5 = Sqrt (w4) qx = Mul (qh, w5) kx2 = Mul (kt, w5)
        s = MatMul (qx, kx2)""",
}
MASKS = {
    "none": ("", "m = Identity (s)", ""),
    "keys": (
        ", bool[B, S] hidden",
        """hf = Cast <to = 1> (hidden) ha = Mul (hf, floor) h4 = Unsqueeze (ha, middle)
        m = Add (s, h4)""",
        "k",
    ),
    "keys, integers": (
        ", int64[B, S] seen",
        """h4 = Unsqueeze (seen, middle) hf = Cast <to = 1> (h4) hx = Sub (one, hf)
        ha = Mul (hx, floor) m = Add (ha, s)""",
        "k",
    ),
    "keys, clipped": (
        ", int64[B, S] seen",
        """h4 = Unsqueeze (seen, middle) hf = Cast <to = 1> (h4) hx = Sub (one, hf)
        hr = Relu (hx) ha = Mul (hr, floor) m = Add (ha, s)""",
        "k",
    ),
    "keys of all": (
        ", bool[1, 1, 1, S] hidden",
        "hf = Cast <to = 1> (hidden) ha = Mul (hf, floor) m = Add (s, ha)",
        "k",
    ),
    "rows": (
        ", bool[B, 1, T, S] hidden",
        "hf = Cast <to = 1> (hidden) ha = Mul (hf, floor) m = Add (s, ha)",
        "a",
    ),
    "heads": (
        ", bool[B, 2, 1, S] hidden",
        "hf = Cast <to = 1> (hidden) ha = Mul (hf, floor) m = Add (s, ha)",
        "a",
    ),
    "position": (", float[1, 2, T, S] bias", "m = Add (s, bias)", "a"),
    "position of rank 2": (", float[T, S] bias", "m = Add (bias, s)", "a"),
    "whole": (", float[B, 2, T, S] bias", "m = Add (s, bias)", "a"),
    "both": (
        ", float[1, 2, T, S] bias, bool[B, S] hidden",
        """hf = Cast <to = 1> (hidden) ha = Mul (hf, floor) h4 = Unsqueeze (ha, middle)
        mb = Add (s, bias) m = Add (mb, h4)""",
        "a",
    ),
    "before the scale": (
        ", float[1, 2, T, S] bias, bool[B, 1, 1, S] hidden",
        """hf = Cast <to = 1> (hidden) ha = Mul (hf, floor) mb = Add (s, bias) mc = Add (mb, ha)
        m = Mul (mc, root)""",
        "a",
    ),
    "kept": (
        ", bool[B, 1, 1, S] hidden",
        "hf = Cast <to = 1> (hidden) ha = Mul (hf, floor) m = Add (s, ha)",
        "k",
    ),
}


@dataclasses.dataclass(frozen=True)
class Form:
    split: str = "4-D"
    keys: str = "turned"
    scale: str = "after"
    mask: str = "none"
    query_bias: bool = False
    value_bias: bool = False
    einsum: bool = False

    @property
    def text(self) -> str:
        given, mask, _ = MASKS[self.mask]
        parts = []
        for n, bias in (("q", self.query_bias), ("k", False), ("v", self.value_bias)):
            name = {"q": "bq", "k": "bq", "v": "bv"}[n]
            parts.append(
                f"{n}w = MatMul ({n}, w) {n}b = Add ({n}w, {name})"
                if bias
                else f"{n}b = Relu ({n})"
            )
            parts.append(SPLITS[self.split].format(n=n, x=f"{n}b"))
        parts += [KEYS[self.keys], SCALES[self.scale], mask, "sm = Softmax <axis = -1> (m)"]
        weights = "sm"
        if self.mask == "kept":
            parts.append("nh = Not (hidden) nk = Cast <to = 1> (nh) sk = Mul (sm, nk)")
            weights = "sk"
        parts.append(
            f'c = Einsum <equation = "bhij,bhjd->bhid"> ({weights}, vh)'
            if self.einsum
            else f"c = MatMul ({weights}, vh)"
        )
        parts.append("ct = Transpose <perm = [0, 2, 1, 3]> (c) y = Reshape (ct, merge)")
        head = f"(float[B, T, 16] q, float[B, S, 16] k, float[B, S, 16] v, float[16, 16] w{given})"
        return f"{head} => (float[B, T, 16] y) {CONSTANTS} {{ {' '.join(parts)} }}"


FORMS = [
    *(Form(split=x) for x in SPLITS),
    *(Form(keys=x) for x in KEYS),
    *(Form(scale=x) for x in SCALES),
    *(Form(mask=x) for x in MASKS),
    Form(query_bias=True),
    Form(query_bias=True, value_bias=True),
    Form(einsum=True, mask="kept"),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_form_of_attention_is_one_operator(form: Form) -> None:
    after = fused(form.text)
    letters = ("b" if form.query_bias or form.value_bias else "") + MASKS[form.mask][2]
    assert inputs_given(after) == letters
    assert count(after, "Transpose") == 0
    assert count(after, "Reshape") == 0


@settings(max_examples=40, deadline=None)
@given(
    st.builds(
        Form,
        split=st.sampled_from(list(SPLITS)),
        keys=st.sampled_from(list(KEYS)),
        scale=st.sampled_from(list(SCALES)),
        mask=st.sampled_from(list(MASKS)),
        query_bias=st.booleans(),
        value_bias=st.booleans(),
        einsum=st.booleans(),
    )
)
def test_forms_combine(form: Form) -> None:
    after = fused(form.text)
    letters = ("b" if form.query_bias or form.value_bias else "") + MASKS[form.mask][2]
    assert inputs_given(after) == letters


# Forms that are no table of choices --------------------------------------------------------------

GIVEN = """<int64[3] m3 = {0,0,16}, int64[4] split = {0,0,2,8}, float sc = {0.3}, float one = {1.0},
    float floor = {-10000.0}, float low = {-3.4e38}, int64[1] a0 = {0}, int64[1] a1 = {1},
    int64[1] a2 = {2}, int64[1] a3 = {3}, int64[2] a12 = {1, 2}, int64[1] four = {4},
    int64[1] two = {2}, int64[1] eight = {8}, int64[1] width = {16},
    int64[1] end = {9223372036854775807}>"""
IN = "float[B,T,16] q, float[B,S,16] k, float[B,S,16] v"
SPLIT = """qs = Reshape (q, split) qh = Transpose <perm = [0,2,1,3]> (qs)
    ks = Reshape (k, split) kh = Transpose <perm = [0,2,1,3]> (ks)
    vs = Reshape (v, split) vh = Transpose <perm = [0,2,1,3]> (vs)"""
QKV = f"{SPLIT} kt = Transpose <perm = [0,1,3,2]> (kh)"
SCORED = f"{QKV} p = MatMul (qh, kt) s = Mul (p, sc)"
WEIGHED = """w = Softmax <axis = -1> (m) c = MatMul (w, vh)
    ct = Transpose <perm = [0,2,1,3]> (c) y = Reshape (ct, m3)"""
PLAIN = f"{SCORED} m = Identity (s) {WEIGHED}"
HIDES = "hf = Cast <to = 1> (hidden) ha = Mul (hf, floor)"
UNSCALED = "kt = Transpose <perm = [0,2,1]> (k) p = MatMul (q, kt)"
ONE_HEAD = f"{UNSCALED} s = Mul (p, sc)"

# [B * H, T, D], as by torch.bmm.
MERGED = f"""{SPLIT} lq = Shape <start = 1, end = 2> (q) lk = Shape <start = 1, end = 2> (k)
    b = Shape <start = 0, end = 1> (q) bh = Mul (b, two) row = Constant <value_ints = [1]> ()
    qto = Concat <axis = 0> (bh, lq, eight) q3 = Reshape (qh, qto)
    kto = Concat <axis = 0> (bh, lk, eight) k3 = Reshape (kh, kto) v3 = Reshape (vh, kto)
    to3 = Concat <axis = 0> (bh, lq, lk) kt = Transpose <perm = [0,2,1]> (k3) p = MatMul (q3, kt)"""
MERGED_END = """w = Softmax <axis = -1> (m) c3 = MatMul (w, v3)
    cto = Concat <axis = 0> (b, two, lq, eight) c = Reshape (c3, cto)
    ct = Transpose <perm = [0,2,1,3]> (c) y = Reshape (ct, m3)"""

OTHERS = {
    "time before batch, batch and heads merged": (
        f"""(float[T,B,16] q, float[S,B,16] k, float[S,B,16] v, bool[B,S] hidden)
        => (float[T,B,16] y) {GIVEN} {{
        lq = Shape <start = 0, end = 1> (q) lk = Shape <start = 0, end = 1> (k)
        b = Shape <start = 1, end = 2> (q) bh = Mul (b, two)
        qto = Concat <axis = 0> (lq, bh, eight) q1 = Reshape (q, qto)
        q2 = Transpose <perm = [1,0,2]> (q1) q3 = Mul (q2, sc)
        kto = Concat <axis = 0> (lk, bh, eight) k1 = Reshape (k, kto) v1 = Reshape (v, kto)
        k3 = Transpose <perm = [1,2,0]> (k1) v2 = Transpose <perm = [1,0,2]> (v1)
        p = MatMul (q3, k3) p4to = Concat <axis = 0> (b, two, lq, lk) p4 = Reshape (p, p4to) {HIDES}
        h4 = Unsqueeze (ha, a12) p5 = Add (p4, h4) sto = Concat <axis = 0> (bh, lq, lk)
        s = Reshape (p5, sto) w = Softmax <axis = -1> (s) c = MatMul (w, v2)
        c1 = Transpose <perm = [1,0,2]> (c) yto = Concat <axis = 0> (lq, b, width)
        y = Reshape (c1, yto) }}""",
        "k",
        4,
    ),
    "one head of rank 3": (
        f"""({IN}, bool[B,1,S] hidden) => (float[B,T,16] y) {GIVEN} {{ {ONE_HEAD} {HIDES}
        m = Add (s, ha) w = Softmax <axis = -1> (m) y = MatMul (w, v) }}""",
        "k",
        0,
    ),
    "one head, a bias of rank 3": (
        f"""({IN}, float[B,T,S] bias) => (float[B,T,16] y) {GIVEN} {{ {ONE_HEAD}
        m = Add (s, bias) w = Softmax <axis = -1> (m) y = MatMul (w, v) }}""",
        "a",
        0,
    ),
    "no batch": (
        f"""(float[T,16] q, float[S,16] k, float[S,16] v) => (float[T,16] y) {GIVEN} {{
        kt = Transpose <perm = [1,0]> (k) p = MatMul (q, kt) s = Mul (p, sc)
        w = Softmax <axis = -1> (s) y = MatMul (w, v) }}""",
        "",
        0,
    ),
    "grouped heads": (
        f"""(float[B,T,32] q, float[B,S,16] k, float[B,S,16] v) => (float[B,T,32] y) {GIVEN} {{
        hd = Constant <value_ints = [0,0,4,8]> () qs = Reshape (q, hd)
        qh = Transpose <perm = [0,2,1,3]> (qs)
        ks = Reshape (k, split) kh = Transpose <perm = [0,2,1,3]> (ks)
        vs = Reshape (v, split) vh = Transpose <perm = [0,2,1,3]> (vs)
        often = Constant <value_ints = [1,1,2,1,1]> () b = Shape <start = 0, end = 1> (kh)
        l = Shape <start = 2, end = 3> (kh) to = Concat <axis = 0> (b, four, l, eight)
        ku = Unsqueeze (kh, a2) ke = Expand (ku, often) kr = Reshape (ke, to)
        vu = Unsqueeze (vh, a2) ve = Expand (vu, often) vr = Reshape (ve, to)
        kt = Transpose <perm = [0,1,3,2]> (kr) p = MatMul (qh, kt) s = Mul (p, sc)
        w = Softmax <axis = -1> (s) c = MatMul (w, vr) ct = Transpose <perm = [0,2,1,3]> (c)
        merge = Constant <value_ints = [0,0,32]> () y = Reshape (ct, merge) }}""",
        "",
        0,
    ),
    "all heads read the same keys": (
        f"""(float[B,T,16] q, float[B,S,8] k, float[B,S,8] v) => (float[B,T,16] y) {GIVEN} {{
        qs = Reshape (q, split) qh = Transpose <perm = [0,2,1,3]> (qs) k4 = Unsqueeze (k, a1)
        vh = Unsqueeze (v, a1) kt = Transpose <perm = [0,1,3,2]> (k4) p = MatMul (qh, kt)
        m = Mul (p, sc) {WEIGHED} }}""",
        "",
        0,
    ),
    "Einsum of [T, B, H, D]": (
        f"""(float[T,B,16] q, float[S,B,16] k, float[S,B,16] v) => (float[T,B,16] y) {GIVEN} {{
        qh = Reshape (q, split) kh = Reshape (k, split) vh = Reshape (v, split)
        p = Einsum <equation = "ibnd,jbnd->bnij"> (qh, kh) s = Mul (p, sc)
        w = Softmax <axis = 3> (s) c = Einsum <equation = "bnij,jbnd->ibnd"> (w, vh)
        y = Reshape (c, m3) }}""",
        "",
        4,
    ),
    "Einsum of [B, T, H, D]": (
        f"""({IN}) => (float[B,T,16] y) {GIVEN} {{
        qh = Reshape (q, split) kh = Reshape (k, split) vh = Reshape (v, split)
        p = Einsum <equation = "bthd, bshd -> bhts"> (qh, kh) s = Mul (p, sc)
        w = Softmax <axis = -1> (s) c = Einsum <equation = "bhts,bshd->bthd"> (w, vh)
        y = Reshape (c, m3) }}""",
        "",
        0,
    ),
    "scores of positions are added to those of content": (
        f"""({IN}, float[B,2,8,S] r) => (float[B,T,16] y) {GIVEN} {{ {QKV} pr = MatMul (qh, r)
        pp = Relu (pr) p = MatMul (qh, kt) ps = Add (pp, p) m = Mul (ps, sc) {WEIGHED} }}""",
        "a",
        1,
    ),
    "a slope for each head": (
        f"""({IN}, float[2,1,S] bias) => (float[B,T,16] y) {GIVEN} {{
        {SCORED} m = Add (s, bias) {WEIGHED} }}""",
        "a",
        0,
    ),
    "a mask of keys that is made of any numbers": (
        f"""({IN}, float[B,1,1,S] bias) => (float[B,T,16] y) {GIVEN} {{
        {SCORED} m = Add (s, bias) {WEIGHED} }}""",
        "a",
        0,
    ),
    "a mask of keys that may be half a one": (
        f"""({IN}, float[B,S] seen) => (float[B,T,16] y) {GIVEN} {{ {SCORED} hx = Sub (one, seen)
        ha = Mul (hx, floor) h4 = Unsqueeze (ha, a12) m = Add (s, h4) {WEIGHED} }}""",
        "a",
        0,
    ),
    "a mask of queries": (
        f"""({IN}, bool[B,1,T,1] hidden) => (float[B,T,16] y) {GIVEN} {{
        {SCORED} {HIDES} m = Add (s, ha) {WEIGHED} }}""",
        "a",
        0,
    ),
    "an addend that hides too little to be a mask": (
        f"""({IN}, bool[B,1,1,S] hidden) => (float[B,T,16] y) {GIVEN} {{ {SCORED}
        hf = Cast <to = 1> (hidden) ha = Mul (hf, sc) m = Add (s, ha) {WEIGHED} }}""",
        "a",
        0,
    ),
    "a mask is subtracted": (
        f"""({IN}, bool[B,1,1,S] hidden) => (float[B,T,16] y) {GIVEN} {{ {SCORED}
        hf = Cast <to = 1> (hidden) far = Constant <value_float = 10000.0> () ha = Mul (hf, far)
        m = Sub (s, ha) {WEIGHED} }}""",
        "k",
        0,
    ),
    "positions are subtracted": (
        f"""({IN}, float[B,2,T,S] positions) => (float[B,T,16] y) {GIVEN} {{ {SCORED}
        m = Sub (s, positions) {WEIGHED} }}""",
        "a",
        0,
    ),
    "clamped from below": (
        f"""({IN}, bool[B,1,1,S] hidden) => (float[B,T,16] y) {GIVEN} {{
        {SCORED} {HIDES} m0 = Add (s, ha) m = Max (m0, low) {WEIGHED} }}""",
        "k",
        0,
    ),
    "values are wider": (
        f"""(float[B,T,16] q, float[B,S,16] k, float[B,S,24] v) => (float[B,T,24] y) {GIVEN} {{
        qs = Reshape (q, split) qh = Transpose <perm = [0,2,1,3]> (qs)
        ks = Reshape (k, split) kt = Transpose <perm = [0,2,3,1]> (ks)
        wide = Constant <value_ints = [0,0,2,12]> () vs = Reshape (v, wide)
        vh = Transpose <perm = [0,2,1,3]> (vs) p = MatMul (qh, kt) s = Mul (p, sc)
        w = Softmax <axis = -1> (s) c = MatMul (w, vh) ct = Transpose <perm = [0,2,1,3]> (c)
        merge = Constant <value_ints = [0,0,24]> () y = Reshape (ct, merge) }}""",
        "",
        0,
    ),
    "slopes of merged heads, then a mask": (
        f"""({IN}, float[B,2,S] slopes, bool[B,1,T,S] hidden) => (float[B,T,16] y) {GIVEN} {{
        {MERGED} bto = Concat <axis = 0> (bh, row, lk) bias = Reshape (slopes, bto)
        pb = Add (bias, p) to4 = Concat <axis = 0> (b, two, lq, lk) s = Reshape (pb, to4)
        {HIDES} m4 = Add (s, ha) m = Reshape (m4, to3) {MERGED_END} }}""",
        "a",
        0,
    ),
    "positions of merged heads": (
        f"""({IN}, float[B,2,T,S] positions) => (float[B,T,16] y) {GIVEN} {{
        {MERGED} bias = Reshape (positions, to3) m = Add (bias, p) {MERGED_END} }}""",
        "a",
        0,
    ),
    "merged heads, each with an addend of its own": (
        f"""({IN}, float[B,T,S] given) => (float[B,T,16] y) {GIVEN} {{
        {MERGED} twice = Concat <axis = 0> (given, given) bias = Reshape (twice, to3)
        m = Add (bias, p) {MERGED_END} }}""",
        "a",
        0,
    ),
    "merged heads, with an addend as large as the scores": (
        f"""({IN}) => (float[B,T,16] y) {GIVEN} {{
        {MERGED} size = Shape (p) lift = Constant <value_float = 0.5> () r = Expand (lift, size)
        m = Add (r, p) {MERGED_END} }}""",
        "a",
        3,  # of what tells the size
    ),
    "a mask of keys of merged heads": (
        f"""({IN}, bool[B,S] hidden) => (float[B,T,16] y) {GIVEN} {{
        {MERGED} {HIDES} h4 = Unsqueeze (ha, a12) often = Constant <value_ints = [1,2,1,1]> ()
        he = Expand (h4, often) bto = Concat <axis = 0> (bh, row, lk) bias = Reshape (he, bto)
        m = Add (bias, p) {MERGED_END} }}""",
        "k",
        0,
    ),
    "scores without the axis of a batch of 1, which their mask has": (
        f"""(float[1,T,16] q, float[1,S,16] k, float[1,S,16] v, float[1,1,1,S] bias)
        => (float[1,T,16] y) {GIVEN} {{ {QKV} front = Constant <value_ints = [0]> ()
        q3 = Squeeze (qh, front) k3 = Squeeze (kt, front) p = MatMul (q3, k3) s = Mul (p, sc)
        m = Add (s, bias) {WEIGHED} }}""",
        "a",
        0,
    ),
    "heads are not merged": (
        f"""({IN}) => (float[B,2,T,8] y) {GIVEN} {{ {SCORED} w = Softmax <axis = -1> (s)
        y = MatMul (w, vh) }}""",
        "",
        1,
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_form_is_one_operator(case: str) -> None:
    text, letters, turned = OTHERS[case]
    after = fused(text)
    assert inputs_given(after) == letters
    assert count(after, "Transpose") == turned


def test_a_graph_of_opset_11_has_its_axes_in_attributes() -> None:
    text = f"""({IN}, bool[B,S] hidden) => (float[B,T,16] y) {GIVEN} {{ {SCORED} {HIDES}
        h4 = Unsqueeze <axes = [1,2]> (ha) m = Add (s, h4) {WEIGHED.replace("-1", "3")} }}"""
    assert inputs_given(fused(text, head='<ir_version: 7, opset_import: ["" : 11]>')) == "k"


def test_a_softmax_in_float_between_products_in_float16_goes_into_the_operator() -> None:
    halves = IN.replace("float", "float16")
    text = f"""({halves}) => (float16[B,T,16] y) {GIVEN} {{ {QKV} p = MatMul (qh, kt)
        half = Cast <to = 10> (sc) s = Mul (p, half) sf = Cast <to = 1> (s)
        wf = Softmax <axis = -1> (sf) w = Cast <to = 10> (wf) c = MatMul (w, vh)
        ct = Transpose <perm = [0,2,1,3]> (c) y = Reshape (ct, m3) }}"""
    assert count(fused(text, tolerance=5e-3), "Cast") == 0


def test_what_the_operator_takes_is_of_one_type() -> None:
    """Queries become float16 behind their heads, as behind a norm or a rotation in float."""
    text = f"""(float[B,T,16] q, float16[B,S,16] k, float16[B,S,16] v) => (float16[B,T,16] y)
        {GIVEN} {{ {QKV} half = Cast <to = 10> (qh) p = MatMul (half, kt)
        w = Softmax <axis = -1> (p)
        c = MatMul (w, vh) ct = Transpose <perm = [0,2,1,3]> (c) y = Reshape (ct, m3) }}"""
    after = fused(text, tolerance=5e-3)
    assert operator(after).inputs[0].producer().op_type != "Cast"  # but what lays it out again
    apart = text.replace("float16[B,S,16] k", "float[B,S,16] k").replace("(half, kt)", "(qh, kt)")
    apart = apart.replace("w = Softmax <axis = -1> (p)", "f = Softmax (p) w = Cast <to = 10> (f)")
    assert skipped(apart) == ["its queries, keys, values and result are not of one type"]


def test_an_attention_in_float_between_float16_is_one_of_float16() -> None:
    """Both products and the Softmax, as a model computes that does not trust float16 with them."""
    halves = IN.replace("float", "float16")
    text = f"""({halves}) => (float16[B,T,16] y) {GIVEN} {{ {QKV} qf = Cast <to = 1> (qh)
        kf = Cast <to = 1> (kt) vf = Cast <to = 1> (vh) p = MatMul (qf, kf) s = Mul (p, sc)
        w = Softmax <axis = -1> (s) cf = MatMul (w, vf) c = Cast <to = 10> (cf)
        ct = Transpose <perm = [0,2,1,3]> (c) y = Reshape (ct, m3) }}"""
    assert count(fused(text, tolerance=5e-3), "Cast") == 0


def test_what_is_added_in_float_is_no_bias_in_float16() -> None:
    halves = IN.replace("float", "float16")
    text = f"""({halves}, float[B,1,T,S] bias) => (float16[B,T,16] y) {GIVEN} {{ {QKV}
        p = MatMul (qh, kt) f = Cast <to = 1> (p) s = Add (f, bias) wf = Softmax <axis = -1> (s)
        w = Cast <to = 10> (wf) c = MatMul (w, vh) ct = Transpose <perm = [0,2,1,3]> (c)
        y = Reshape (ct, m3) }}"""
    assert skipped(text) == ["what is added to its scores is of another type than what it makes"]


def test_a_mask_is_made_once_for_all_layers_and_stands_before_the_first() -> None:
    # The second attention of the graph ends first.
    text = f"""({IN}, bool[B,T,S] hidden) => (float[B,T,16] y, float[B,T,16] y2) {GIVEN} {{ {SCORED}
        {HIDES} h1 = Unsqueeze (ha, a1) m = Add (s, h1) w = Softmax <axis = -1> (m)
        p2 = MatMul (kh, kt) s2 = MatMul (qh, kt) m2 = Add (s2, h1) w2 = Softmax <axis = -1> (m2)
        c2 = MatMul (w2, vh) c = MatMul (w, vh) ct2 = Transpose <perm = [0,2,1,3]> (c2)
        ct = Transpose <perm = [0,2,1,3]> (c) y = Reshape (ct, m3) y2 = Reshape (ct2, m3) }}"""
    after = fused(text)
    assert count(after, "Expand") == 1
    seen: set[ir.Value | None] = {None, *after.graph.inputs, *after.graph.initializers.values()}
    for node in after.graph:
        assert seen.issuperset(node.inputs)
        seen.update(node.outputs)


def test_an_attention_in_a_branch_takes_the_mask_from_outside() -> None:
    branch = f"{{ {SCORED} m = Add (s, ha) {WEIGHED} }}"
    text = f"""({IN}, bool[B,1,1,S] hidden, bool[1] on) => (float[B,T,16] z) {GIVEN} {{ {HIDES}
        z = If (on) <then_branch = t () => (float[B,T,16] y) {branch},
            else_branch = e () => (float[B,T,16] e) {{ e = Identity (q) }}> }}"""
    assert inputs_given(fused(text)) == "k"


# Past and rotary ---------------------------------------------------------------------------------

PASTS = (
    {"B": 2, "T": 1, "P": 4, "N": 5},
    {"B": 1, "T": 3, "P": 0, "N": 3},
    {"B": 2, "T": 3, "P": 2, "N": 5},
)


# Biases on the way -------------------------------------------------------------------------------

BIASES = """float[1,2,1,8] u = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7},
    float[2,8] v2 = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}, float[8] each = {1,2,3,4,5,6,7,8},
    float[2,1] head = {1,2}, float[16] row = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7},
    float[2,1,1,8] batch = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7},
    float[1,1,2,8] times = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}>"""
TURN = "Transpose <perm = [0,2,1,3]>"


def shifted(query: str, sizes: str = IN, more: str = "", end: str = "") -> str:
    """An attention whose queries, ``qh``, are made so of ``x``, [B, T, 16]."""
    split = SPLIT.replace(f"qs = Reshape (q, split) qh = {TURN} (qs)", f"x = Relu (q) {query}")
    given = GIVEN.rstrip(">") + ", " + BIASES
    made = sizes.split(",16]")[0].removeprefix("float[")
    return f"""({sizes}) => (float[{made},16] y{more}) {given} {{ {split}
        kt = Transpose <perm = [0,1,3,2]> (kh) p = MatMul (qh, kt) s = Mul (p, sc)
        m = Identity (s) {WEIGHED} {end} }}"""


@pytest.mark.parametrize(
    "query",
    [
        f"s0 = Reshape (x, split) q0 = {TURN} (s0) qh = Add (q0, u)",
        f"s0 = Reshape (x, split) q0 = Add (v2, s0) qh = {TURN} (q0)",
        f"s0 = Reshape (x, split) q0 = {TURN} (s0) qh = Add (q0, each)",
        f"s0 = Reshape (x, split) q0 = Add (s0, head) qh = {TURN} (q0)",
        f"s0 = Reshape (x, split) q0 = {TURN} (s0) qh = Add (one, q0)",
        f"s0 = Reshape (x, split) q0 = {TURN} (s0) q1 = Add (q0, u) qh = Mul (q1, sc)",
        f"s0 = Reshape (x, split) q0 = {TURN} (s0) q1 = Mul (q0, sc) qh = Add (u, q1)",
        f"r = Add (x, row) s0 = Reshape (r, split) q0 = {TURN} (s0) qh = Add (q0, u)",
    ],
)
def test_what_is_added_to_the_features_of_heads_is_a_bias(query: str) -> None:
    after = fused(shifted(query))
    assert inputs_given(after) == "b"
    assert [x.op_type for x in after.graph] == ["Relu", "MultiHeadAttention"]


@pytest.mark.parametrize(("sizes", "part"), [((16, 24), "a"), ((3, 16, 21), "b"), ((24, 16), "b")])
def test_a_part_of_a_vector_is_a_bias(sizes: tuple[int, ...], part: str) -> None:
    """As torch parts the three biases of its MultiheadAttention, whatever their sizes."""
    parts = ", ".join("abd"[: len(sizes)])
    query = f"""long = Constant <value_floats = [{", ".join(f"{x}.5" for x in range(40))}]> ()
        sizes = Constant <value_ints = [{", ".join(map(str, sizes))}]> ()
        {parts} = Split <axis = 0> (long, sizes)
        r = Add (x, {part}) s0 = Reshape (r, split) qh = {TURN} (s0)"""
    after = fused(shifted(query))
    assert inputs_given(after) == "b"
    assert count(after, "Add") == 0


def test_heads_that_something_else_reads_with_their_bias_are_left_to_it() -> None:
    """As the relative positions of a Conformer read queries with a bias of their own."""
    query = f"""r = Add (x, row) s0 = Reshape (r, split) q0 = {TURN} (s0) qh = Add (q0, u)
        other = Add (q0, each)"""
    after = fused(shifted(query, more=", float[B,2,T,8] z", end="z = Relu (other)"))
    assert operator(after).inputs[0].name == "x"
    assert count(after, "Transpose") == 1


@pytest.mark.parametrize(("bias", "dims"), [("batch", "2,T"), ("times", "B,2")])
def test_what_differs_in_the_batch_or_in_time_is_no_bias(bias: str, dims: str) -> None:
    query = f"s0 = Reshape (x, split) q0 = {TURN} (s0) qh = Add (q0, {bias})"
    sizes = IN.replace("B,T,16] q", f"{dims},16] q")
    if bias == "batch":
        sizes = sizes.replace("B,S", "2,S")
    after = fused(shifted(query, sizes))
    assert inputs_given(after) == ""
    assert count(after, "Add") == 1


def with_past(given: str, mask: str, outputs: str = "", last: str = "") -> str:
    return f"""(float[B,T,16] q, float[B,T,16] k, float[B,T,16] v, float[B,2,P,8] pk,
        float[B,2,P,8] pv{given}) => (float[B,T,16] y, float[B,2,N,8] nk,
        float[B,2,N,8] nv{outputs})
        {GIVEN} {{ {SPLIT}
        nk = Concat <axis = 2> (pk, kh) nv = Concat <axis = -2> (pv, vh)
        kt = Transpose <perm = [0,1,3,2]> (nk) p = MatMul (qh, kt) s = Mul (p, sc) {mask}
        w = Softmax <axis = -1> (m) c = MatMul (w, nv) ct = Transpose <perm = [0,2,1,3]> (c)
        y = Reshape (ct, m3) {last} }}"""


@pytest.mark.parametrize(
    ("given", "mask", "letters"),
    [
        ("", "m = Identity (s)", ""),
        (", float[B,1,T,N] bias", "m = Add (s, bias)", "a"),
        # The CPU takes a mask of keys as [B, P + T] here, DirectML as [B, T].
        (", bool[B,1,1,N] hidden", f"{HIDES} m = Add (s, ha)", "a"),
    ],
)
def test_a_past_goes_into_the_operator(given: str, mask: str, letters: str) -> None:
    after = fused(with_past(given, mask), PASTS)
    assert inputs_given(after) == letters
    assert count(after, "Transpose") == 0
    assert [x.name for x in operator(after).outputs] == ["y", "nk", "nv"]
    joined = [x for x in after.graph if x.op_type == "Concat" and x.outputs[0].name in ("nk", "nv")]
    assert not joined


def test_a_past_of_values_of_another_width_is_joined_in_front() -> None:
    """ONNX Runtime refuses a past_value that is not as wide as past_key."""
    text = with_past("", "m = Identity (s)")
    for wide, narrow in (
        *(("float[B,T,16] v", "float[B,T,4] v"), ("float[B,2,P,8] pv", "float[B,2,P,2] pv")),
        *(
            ("float[B,2,N,8]\n        nv", "float[B,2,N,2] nv"),
            ("float[B,T,16] y", "float[B,T,4] y"),
        ),
        *(
            ("m3 = {0,0,16}", "m3 = {0,0,4}, int64[4] narrow = {0,0,2,2}"),
            ("(v, split)", "(v, narrow)"),
        ),
        ("float[B,2,N,8] nv", "float[B,2,N,2] nv"),
    ):
        text = text.replace(wide, narrow)
    after = fused(text, PASTS)
    assert len(operator(after).outputs) == 1
    assert count(after, "Concat") >= 2


def test_somebody_else_may_read_what_a_past_becomes() -> None:
    """As where the model cuts its caches for the next run; before the product, or behind it."""
    text = with_past("", "m = Identity (s)", ", float[B,2,N,8] z", "z = Relu (ck)")
    text = text.replace("nv = Concat", "ck = Neg (nk) cv = Relu (nk) nv = Concat")
    after = fused(text, PASTS)
    assert [x.name for x in operator(after).outputs] == ["y", "nk", "nv"]
    assert count(after, "Neg") == 1


def test_a_past_stays_where_what_is_added_reads_what_it_becomes() -> None:
    mask = """most = ReduceMax <axes = [1, 3], keepdims = 1> (nk) row = Transpose
        <perm = [0, 1, 3, 2]> (most) m = Add (s, row)"""
    after = fused(with_past("", mask), PASTS)
    assert [x.name for x in operator(after).outputs] == ["y"]


def test_a_past_stays_where_somebody_reads_it_on_the_way() -> None:
    """As the Cast of GPT-Neo's keys, which is what the next step is given."""
    text = with_past("", "m = Identity (s)").replace("nk = Concat", "j = Concat")
    after = fused(text.replace("kt =", "nk = Cast <to = 1> (j) kt ="), PASTS)
    assert [x.name for x in operator(after).outputs] == ["y"]
    assert all(x.name for node in after.graph for x in node.inputs if x is not None)


def with_groups(given: str, mask: str) -> str:
    """Two heads of keys and values with a past, each shared by three of queries."""
    repeat = """{n}u = Unsqueeze ({n}, a2) {n}e = Expand ({n}u, often)
        {n}a = Reshape ({n}e, all)"""
    return f"""(float[B,T,48] q, float[B,T,16] k, float[B,T,16] v, float[B,2,P,8] pk,
        float[B,2,P,8] pv{given}) => (float[B,T,48] y, float[B,2,N,8] nk, float[B,2,N,8] nv)
        <int64[4] six = {{0,0,6,8}}, int64[4] two = {{0,0,2,8}}, int64[1] a2 = {{2}},
         int64[5] often = {{1,1,3,1,1}}, int64[4] all = {{0,6,-1,8}}, int64[3] m3 = {{0,0,48}},
         float sc = {{0.25}}>
        {{ q4 = Reshape (q, six) qh = Transpose <perm = [0,2,1,3]> (q4)
        k4 = Reshape (k, two) kh = Transpose <perm = [0,2,1,3]> (k4)
        v4 = Reshape (v, two) vh = Transpose <perm = [0,2,1,3]> (v4)
        nk = Concat <axis = 2> (pk, kh) nv = Concat <axis = 2> (pv, vh)
        {repeat.format(n="nk")} {repeat.format(n="nv")}
        kt = Transpose <perm = [0,1,3,2]> (nka) p = MatMul (qh, kt) s = Mul (p, sc) {mask}
        w = Softmax <axis = -1> (m) c = MatMul (w, nva) ct = Transpose <perm = [0,2,1,3]> (c)
        y = Reshape (ct, m3) }}"""


@pytest.mark.parametrize(
    ("given", "mask", "letters"),
    [("", "m = Identity (s)", ""), (", float[B,1,T,N] bias", "m = Add (s, bias)", "a")],
)
def test_heads_that_share_a_past_become_more_queries_of_it(
    given: str, mask: str, letters: str
) -> None:
    after = fused(with_groups(given, mask), PASTS)
    assert inputs_given(after) == letters
    assert [x.name for x in operator(after).outputs][1:] == ["nk", "nv"]
    assert count(after, "Expand") == (1 if letters else 0)  # the bias, over the heads


def test_a_batch_that_no_node_demands_is_taken_not_to_be_empty() -> None:
    text = with_groups("", "m = Identity (s)")
    text = text.replace("int64[4] all = {0,6,-1,8}", "int64[1] c6 = {6}, int64[1] c8 = {8}")
    sizes = """b1 = Shape <start = 0, end = 1> (q) p1 = Shape <start = 2, end = 3> (pk)
        t1 = Shape <start = 1, end = 2> (k) n1 = Add (p1, t1)
        all = Concat <axis = 0> (b1, c6, n1, c8) nku = """
    text = text.replace("nku = ", sizes)
    report = graphfix.run(ir.from_onnx_text(f"{HEAD} m {text}"), "fuse-attention")
    (change,) = report.passes[0].changes
    assert change.note == "takes it that B is not 0"


def test_a_bias_of_each_head_leaves_grouped_heads_repeated() -> None:
    after = fused(with_groups(", float[B,6,T,N] bias", "m = Add (s, bias)"), PASTS)
    assert len(operator(after).outputs) == 1
    assert count(after, "Expand") == 3  # keys, values and the bias


TWO = {"B": 2, "T": 5, "S": 3, "R": 3}
TWO_NAMES = IN.replace("[B,S,16] v", "[B,R,16] v")


def test_keys_are_as_many_as_values_since_a_product_runs_only_then() -> None:
    fused(f"({TWO_NAMES}) => (float[B,T,16] y) {GIVEN} {{ {PLAIN} }}", (TWO,))


@pytest.mark.parametrize("size", [3, 1])
def test_a_mask_whose_length_has_another_name_is_expanded_to_the_keys(size: int) -> None:
    body = f"{SCORED} m = Add (r, s) {WEIGHED}"
    text = f"({IN}, float[B,1,T,M] r) => (float[B,T,16] y) {GIVEN} {{ {body} }}"
    fused(text, ({"B": 2, "T": 5, "S": 3, "M": size},))


def test_a_mask_and_values_of_other_names_prove_nothing() -> None:
    body = f"{SCORED} m = Add (r, s) {WEIGHED}"
    text = f"({TWO_NAMES}, float[B,1,T,M] r) => (float[B,T,16] y) {GIVEN} {{ {body} }}"
    assert skipped(text) == ["S keys and R values: not proved to be as many"]


def test_a_past_of_two_names_beside_a_mask_of_a_third_proves_nothing() -> None:
    text = with_past(", float[B,1,T,M] r", "m = Add (s, r)")
    assert "not proved to be as many" in skipped(text.replace("[B,2,P,8] pv", "[B,2,R,8] pv"))[0]


ROTATED = """{n}c = Mul ({n}h, cos) {n}2 = Slice ({n}h, four, end, a3) {n}n = Neg ({n}2)
    {n}1 = Slice ({n}h, a0, four, a3) {n}r = Concat <axis = -1> ({n}n, {n}1)
    {n}s2 = Mul ({n}r, sin) {n}t = Add ({n}c, {n}s2)"""


def rotary(table: str, first: str = "{n}n, {n}1", cosines: str = "[1,T,8]") -> str:
    turn = ROTATED.replace("{n}n, {n}1", first)
    return f"""(float[B,T,16] q, float[B,T,16] k, float[B,T,16] v, float[1,T,4] f)
        => (float[B,T,16] y) {GIVEN} {{ {SPLIT} {table}
        cu = Cos (ff) su = Sin (ff) cos = Unsqueeze (cu, a1) sin = Unsqueeze (su, a1)
        {turn.format(n="q")} {turn.format(n="k")} kt = Transpose <perm = [0,1,3,2]> (kt0)
        p = MatMul (qt, kt) m = Mul (p, sc) {WEIGHED} }}""".replace("kt = Add", "kt0 = Add")


@pytest.mark.parametrize("before", [True, False])
def test_a_bias_is_one_of_the_operator_behind_a_rotation_only(before: bool) -> None:
    text = rotary("ff = Concat <axis = -1> (f, f)")
    turned = "qh = Transpose <perm = [0,2,1,3]> (qs)"
    if before:
        text = text.replace(turned, f"{turned.replace('qh', 'q9')} qh = Add (q9, one)")
    else:
        text = text.replace("MatMul (qt, kt)", "MatMul (q9, kt)")
        text = text.replace("p = MatMul", "q9 = Add (qt, one) p = MatMul")
    after = fused(text)
    assert count(after, "RotaryEmbedding") == 2
    assert inputs_given(after) == ("" if before else "b")


def test_rotary_embeddings_are_operators() -> None:
    after = fused(rotary("ff = Concat <axis = -1> (f, f)"))
    assert count(after, "RotaryEmbedding") == 2
    assert count(after, "Neg") == count(after, "Transpose") == 0
    # One table of cosines and one of sines, of half the features, for queries and keys alike.
    assert count(after, "Cos") == count(after, "Sin") == 1
    assert count(after, "Slice") == count(after, "Concat") == 0


@pytest.mark.parametrize(
    ("table", "first"),
    [
        ("g = Relu (f) ff = Concat <axis = -1> (f, g)", "{n}n, {n}1"),  # halves of other angles
        ("ff = Concat <axis = -1> (f, f)", "{n}1, {n}n"),  # the other half is negated
    ],
)
def test_what_is_not_quite_a_rotation_stays_as_it_is(table: str, first: str) -> None:
    after = fused(rotary(table, first))
    assert count(after, "RotaryEmbedding") == 0
    assert count(after, "Neg") == 2


# What is left alone ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"({IN}) => (float[B,T,16] y, float[B,2,T,S] w) {GIVEN} {{ {SCORED} m = Relu (s) "
            f"{WEIGHED} }}",
            None,  # no scores of a product: nothing like an attention
        ),
        (
            f"({IN}) => (float[B,T,16] y, float[B,2,T,S] z) {GIVEN} "
            f"{{ {SCORED} m = Identity (s) z = Relu (s) {WEIGHED} }}",
            "read more than once, by Identity and Relu",
        ),
        (
            f"({IN}, bool[B,1,1,S] hidden) => (float[B,T,16] y) {GIVEN} "
            f"{{ {SCORED} m = Where (hidden, floor, s) {WEIGHED} }}",
            "the pass additive-mask makes an Add",
        ),
        (
            f"({IN}, int64[4] wide) => (float[B,T,16] y) {GIVEN} "
            f"{{ {SCORED} m = Expand (s, wide) {WEIGHED} }}",
            "Expand 'Expand of m' lies between its scores and their Softmax",
        ),
        (
            f"({IN}, float[1] x) => (float[B,T,16] y) {GIVEN} "
            f"{{ {SCORED} m = Mul (s, x) {WEIGHED} }}",
            "neither a constant scale nor an addend",
        ),
        (
            f"({IN}, bool[B,1,1,S] hidden, bool[B,1,1,S] other) => (float[B,T,16] y) {GIVEN} "
            f"{{ {SCORED} {HIDES} m = Add (s, ha) {WEIGHED} }}".replace(
                "c = MatMul (w, vh)",
                "no = Not (other) keep = Cast <to = 1> (no) wk = Mul (w, keep) c = MatMul (wk, vh)",
            ),
            "not seen to be 0 only where a mask hides a key",
        ),
        (
            f"({IN}, bool[B,1,1,S] hidden) => (float[B,T,16] y) {GIVEN} "
            f"{{ {SCORED} {HIDES} m = Add (s, ha) {WEIGHED} }}".replace(
                "c = MatMul (w, vh)",
                "keep = Cast <to = 1> (hidden) wk = Mul (w, keep) c = MatMul (wk, vh)",
            ),
            "not seen to be 0 only where a mask hides a key",
        ),
        (
            f"({IN}, float[T,S] r) => (float[B,T,16] y) {GIVEN} {{ {UNSCALED} m = Add (p, r) "
            "w = Softmax <axis = -1> (m) y = MatMul (w, v) }",
            "takes more kernels than it saves",
        ),
        (
            f"({IN}) => (double[B,T,16] y) {GIVEN} {{ {PLAIN} }}".replace("float", "double"),
            "no kernel for DOUBLE",
        ),
        (
            f"({IN.replace('[B,S', '[C,S')}) => (float[N,T,16] y) {GIVEN} {{ {PLAIN} }}",
            "not seen to be batches of the same size",
        ),
        (
            f"({IN}) => (float[B,T,16] y) {GIVEN} {{ {PLAIN} }}".replace(
                "c = MatMul (w, vh)",
                "bad = IsNaN (w) wn = Where (bad, sc, w) c = MatMul (wn, vh)",
            ),
            "drop-nan-guard",
        ),
    ],
)
def test_what_is_left_alone_says_why(text: str, reason: str | None) -> None:
    reasons = skipped(text)
    assert len(reasons) == (reason is not None)
    assert reason is None or reason in reasons[0]


def test_a_node_that_a_pass_wrote_is_told_by_what_it_makes() -> None:
    text = f"({IN}) => (float[B,T,16] y) {GIVEN} {{ {SCORED} m = Tanh (s) {WEIGHED} }}"
    m = ir.from_onnx_text(f"{HEAD} m {text}")
    (tanh,) = (x for x in m.graph if x.op_type == "Tanh")
    tanh.name, tanh.metadata_props["graphfix.pass"] = "gf_fold_3", "fold"
    ((_, reason),) = graphfix.run(m, "fuse-attention").passes[0].skips
    assert reason.startswith("the Tanh that makes 'm' (fold wrote it) lies between")


FOUR = "float[B,4,16] q, float[B,4,16] k, float[B,4,16] v"
MIXED = {
    # The queries in another order before they are split into heads.
    "queries": ("q4", "x1 = Reshape (q, pairs) x2 = Transpose <perm = [0,2,1,3]> (x1)"),
    # The features of keys, within each head.
    "features": ("k4", "x1 = Reshape (k, eights) x2 = Transpose <perm = [0,1,2,4,3]> (x1)"),
    "heads": ("v4", "x1 = Reshape (v, split) x2 = Transpose <perm = [0,1,3,2]> (x1)"),
}


@pytest.mark.parametrize("what", MIXED)
def test_what_lies_in_another_order_is_not_taken_for_it(what: str) -> None:
    name, mixed = MIXED[what]
    text = f"""({FOUR}) => (float[B,4,16] y) {GIVEN} {{
        pairs = Constant <value_ints = [0,2,2,16]> () whole = Constant <value_ints = [0,4,16]> ()
        eights = Constant <value_ints = [0,0,2,4,2]> ()
        {mixed} {name} = Reshape (x2, whole) {PLAIN} }}"""
    operand = name[0]
    fused(text.replace(f"{operand}s = Reshape ({operand},", f"{operand}s = Reshape ({name},"))


def test_scores_whose_keys_are_shuffled_are_left_alone() -> None:
    text = f"""({FOUR}) => (float[B,4,16] y) {GIVEN} {{ {SCORED}
        pairs = Constant <value_ints = [0,0,0,2,2]> () whole = Constant <value_ints = [0,0,0,4]> ()
        x1 = Reshape (s, pairs) x2 = Transpose <perm = [0,1,2,4,3]> (x1) m = Reshape (x2, whole)
        {WEIGHED} }}"""
    assert "arranged" in skipped(text)[0]


def test_a_mask_of_integers_rests_on_their_being_0_and_1() -> None:
    model = ir.from_onnx_text(f"{HEAD} m {Form(mask='keys, integers').text}")
    changes = graphfix.get_pass("fuse-attention")(model).changes
    assert [x.note for x in changes] == ["seen holds only 0 and 1"]


def test_a_body_of_a_function_has_no_sizes() -> None:
    text = f"""{HEAD.replace("]", ', "local" : 1]')} m ({IN}) => (float[B,T,16] y)
        {{ y = local.attend (q, k, v) }}
        <domain: "local", opset_import: ["" : 17]> attend (q, k, v) => (y) {{
        kt = Transpose <perm = [0,2,1]> (k) p = MatMul (q, kt) w = Softmax <axis = -1> (p)
        y = MatMul (w, v) }}"""
    result = graphfix.get_pass("fuse-attention")(ir.from_onnx_text(text))
    assert not result.modified
    assert "local function" in result.skips[0][1]
