"""fuse-residual: which tap reads the frame itself, and what is left."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.proof.verify import verify
from tests.passes.models import ops

W = "float[3, 1, 3] w = {0.5, 1.0, -2.0, 0.25, 2.0, 0.5, -1.0, 3.0, 0.125}"


def model(body: str, inputs: str = "float[B, 3, T] x", more: str = "") -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 18]> m ({inputs}) => (float[B, 3, N] y) '
        f"<{W}, float[3] b = {{1, 2, 3}}{more}> {{ {body} }}"
    )


PADS = """, int64[6] pads = {0, 0, 2, 0, 0, 0}, int64[6] late = {0, 0, 1, 0, 0, 0},
    int64[2] two = {2, 0}, int64[1] along = {-1}, float zero = {0}"""
MERGED = {
    "pads of the Conv": ("c = Conv <group = 3, pads = [1, 1]> (x, w) y = Add (c, x)", 1),
    "the other way round, with a bias": (
        "c = Conv <group = 3, pads = [2, 0]> (x, w, b) y = Add (x, c)",
        2,
    ),
    "a Pad before it": ("p = Pad (x, pads) c = Conv <group = 3> (p, w) y = Add (c, x)", 2),
    "both": (
        "p = Pad (x, late) c = Conv <group = 3, pads = [1, 0]> (p, w) y = Add (c, x)",
        2,
    ),
    "a Pad that names its axes": (
        "p = Pad (x, two, zero, along) c = Conv <group = 3> (p, w) y = Add (c, x)",
        2,
    ),
    "dilated": ("c = Conv <group = 3, pads = [2, 2], dilations = [2]> (x, w) y = Add (c, x)", 1),
}


@pytest.mark.parametrize("case", MERGED)
def test_the_tap_that_reads_the_frame_gets_1_more(case: str) -> None:
    body, tap = MERGED[case]
    before, after = model(body, more=PADS), model(body, more=PADS)
    report = graphfix.run(after, "fuse-residual").passes[0]
    assert [x.tensor for x in report.changes] == ["y"]
    assert "Add" not in ops(after)
    conv = next(x for x in after.graph if x.op_type == "Conv")
    old, new = (
        next(x for x in m.graph if x.op_type == "Conv").inputs[1].const_value.numpy()
        for m in (before, after)
    )
    expected = old.copy()
    expected[:, 0, tap] += 1
    np.testing.assert_array_equal(new, expected)
    assert len(conv.inputs) == (3 if "bias" in case else 2)
    verdict = verify(before, after)
    assert verdict.ok, verdict.reason
    assert not graphfix.run(after, "fuse-residual").changed


def test_frames_of_a_cache_stand_before_it() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[1, T, 3] x, float[1, 3, 2] cache) => (float[1, T, 3] y, float[1, 3, 2] kept)
    <float[3, 1, 3] w = {0.5, 1.0, -2.0, 0.25, 2.0, 0.5, -1.0, 3.0, 0.125}, int64[1] two = {-2},
     int64[1] last = {2}, int64[1] far = {9223372036854775807}>
    {
        t = Transpose <perm = [0, 2, 1]> (x) all = Concat <axis = -1> (cache, t)
        kept = Slice (all, two, far, last)
        c = Conv <group = 3> (all, w) back = Transpose <perm = [0, 2, 1]> (c) y = Add (back, x)
    }"""
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert len(graphfix.run(after, "fuse-residual").passes[0].changes) == 1
    assert verify(before, after).ok


LEFT = {
    "another tensor": "n = Neg (x) c = Conv <group = 3, pads = [1, 1]> (x, w) y = Add (c, n)",
    "used elsewhere": """c = Conv <group = 3, pads = [1, 1]> (x, w) s = Add (c, x)
        y = Mul (s, c)""",
    "no tap reads it": """c = Conv <group = 3, pads = [1, 3], dilations = [2]> (x, w)
        y = Add (c, x)""",
    "every other frame": """c = Conv <group = 3, pads = [1, 1], strides = [2]> (x, w)
        s = ReduceMean (c, time) y = Add (s, x)""",
    "one length does for all": """p = ReduceMean (x, time)
        c = Conv <group = 3, pads = [1, 1]> (p, w) y = Add (c, x)""",
    "channels are mixed": "c = Conv <pads = [1, 1]> (x, mixed) y = Add (c, x)",
    "a weight that a caller may give": """c = Conv <group = 3, pads = [1, 1]> (x, given)
        y = Add (c, x)""",
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left(case: str) -> None:
    mixed = f", float[3, 3, 3] mixed = {{{', '.join(['0.5'] * 27)}}}, int64[1] time = {{2}}"
    left = model(LEFT[case], "float[B, 3, T] x, float[3, 1, 3] given", mixed)
    assert not graphfix.run(left, "fuse-residual").changed
