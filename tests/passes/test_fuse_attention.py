"""fuse-attention: every form it takes computes the same, and what it leaves alone it says why."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix

SIZES = ({"B": 1, "T": 1, "S": 3}, {"B": 2, "T": 5, "S": 3}, {"B": 3, "T": 4, "S": 4})
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def run(model: ir.Model, sizes: dict[str, int]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    random = np.random.default_rng(7)
    feeds = {}
    for value in session.get_inputs():
        shape = [sizes.get(d, d) for d in value.shape]
        if value.type == "tensor(bool)":
            feeds[value.name] = random.random(shape) < 0.4
            feeds[value.name][..., 0] = False  # each row has a key to look at
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
        "ka",
    ),
    "before the scale": (
        ", float[1, 2, T, S] bias, bool[B, 1, 1, S] hidden",
        """hf = Cast <to = 1> (hidden) ha = Mul (hf, floor) mb = Add (s, bias) mc = Add (mb, ha)
        m = Mul (mc, root)""",
        "ka",
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
