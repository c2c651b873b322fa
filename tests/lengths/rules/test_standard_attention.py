"""ilens-mask behind current exporters: Attention, RotaryEmbedding, RMSNormalization of ONNX."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import PaddingError
from tests.lengths.rules.test_attention import held, numbers

APART = """a = Reshape (x, apart) q = Transpose <perm = [0, 2, 1, 3]> (a)
    b = MatMul (x, w) c = Reshape (b, apart) k = Transpose <perm = [0, 2, 1, 3]> (c)"""
BACK = "z = Transpose <perm = [0, 2, 1, 3]> (h) y = Reshape (z, whole)"
SIZES = """s = Shape (x) rows = Slice (s, i0, i1) t = Slice (s, i1, i2)
    btt = Concat <axis = 0> (rows, i1, t, t)"""
EARLIER = f"""{SIZES} tt = Concat <axis = 0> (t, t)
    all = ConstantOfShape <value = float[1] {{1}}> (tt) lower = Trilu <upper = 0> (all)
    low = Cast <to = 9> (lower) four = Unsqueeze (low, i01) seen = Expand (four, btt)"""
ADDED = """turned = Not (seen) far = Cast <to = 1> (turned) bias = Mul (far, floor)"""
BODIES = {
    "no mask": f"{APART} h = Attention (q, k, k) {BACK}",
    "of three dims": """k = MatMul (x, w)
        y = Attention <q_num_heads = 2, kv_num_heads = 2> (x, k, k)""",
    "causal": f"{APART} h = Attention <is_causal = 1> (q, k, k) {BACK}",
    "a mask of truths": f"{APART} {EARLIER} h = Attention (q, k, k, seen) {BACK}",
    "a mask that is added": f"{APART} {EARLIER} {ADDED} h = Attention (q, k, k, bias) {BACK}",
    "a norm": f"n = RMSNormalization (x, ones) {APART.replace('(x,', '(n,')} "
    f"h = Attention (q, k, k) {BACK}",
    "turned by places": f"""{APART} {SIZES} at = Slice (cosines, i0, t, i0)
        bt = Concat <axis = 0> (rows, t, i1) cos = Expand (at, bt)
        r = RotaryEmbedding (q, cos, cos) h = Attention (r, k, k) {BACK}""",
}
REFUSED = {
    "earlier keys": (
        f"{APART} h, more, again = Attention (q, k, k, , past, past) {BACK}",
        "joined to those of earlier runs",
    ),
    "one mask for all": (
        f"{APART} {EARLIER} h = Attention (q, k, k, low) {BACK}",
        r"its mask is not \[batch, heads, queries, keys\]",
    ),
}


def model(body: str, opset: int = 23) -> onnx.ModelProto:
    made = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {opset}]>
        g (float[B, T, 4] x) => (float[] y)
        <float[4, 4] w = {{{numbers(16)}}}, float[4] ones = {{1, 1, 1, 1}},
         float[1, 2, 3, 2] past = {{{numbers(12)}}}, float[40, 1] cosines = {{{numbers(40)}}},
         int64[4] apart = {{0, 0, 2, 2}}, int64[3] whole = {{0, 0, 4}}, int64[1] i0 = {{0}},
         int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64[2] i01 = {{0, 1}},
         float floor = {{-10000}}> {{ {body} }}"""
    )
    made.graph.output[0].ClearField("type")
    return made


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("name", BODIES)
def test_padding_reaches_no_valid_row(name: str, opset: int) -> None:
    held(model(BODIES[name], opset))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_seen_through_is_refused(name: str) -> None:
    body, why = REFUSED[name]
    with pytest.raises(PaddingError, match=why):
        graphfix.run(ir.from_proto(model(body)), "ilens-mask:axis=x.1")
