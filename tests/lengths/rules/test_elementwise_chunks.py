"""Attention in chunks: ends of chunks, cut to the padded length, compared with positions."""

from __future__ import annotations

import onnx
import pytest

from tests.lengths.padding import hold

HEAD = """s = Shape (x)  t = Slice (s, i1, i2, i0)  n = Squeeze (t)
    p = Range (zero, n, one)  c = Div (p, four)  c1 = Add (c, one)  e = Mul (c1, four)
    last = Sub (n, one)  tt = Concat <axis = 0> (t, t)
    row = Unsqueeze (p, i0)"""
TAIL = """xt = Transpose <perm = [0, 2, 1]> (x)  sc = MatMul (x, xt)
    kept = Where (hidden, floor, sc)  pr = Softmax <axis = 2> (kept)  y = MatMul (pr, x)"""
WIDE = "at = Expand (row, tt)  col = Unsqueeze (end, i1)  until = Expand (col, tt)"
PLAIN = "at = Identity (row)  until = Unsqueeze (end, i1)"
HIDES = {
    "at or past": "hidden = GreaterOrEqual (at, until)",
    "not before": "before = Less (at, until)  hidden = Not (before)",
    "turned": "hidden = LessOrEqual (until, at)",
    "past": "hidden = Greater (at, until)",
}


def model(body: str) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 4] x) => (float[] y)
        <int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64 zero = {{0}},
         int64 one = {{1}}, int64 four = {{4}}, float floor = {{-1e9}}>
        {{ {body} }}"""
    made = onnx.parser.parse_model(text)
    made.graph.output[0].ClearField("type")
    return made


@pytest.mark.parametrize("hide", HIDES.values(), ids=HIDES)
@pytest.mark.parametrize("form", [WIDE, PLAIN], ids=["wide", "plain"])
@pytest.mark.parametrize("short", ["last", "c"])
def test_ends_cut_to_less_are_not_taken_for_that(form: str, hide: str, short: str) -> None:
    """The last frame of a clip is hidden from itself; of a container, another one is."""
    body = f"{HEAD} end = Min (e, {short}) {form} {hide} {TAIL}"
    for seed in range(3):
        found = hold(model(body), seed, "B")
        assert found.kind != "leaks", found.what
