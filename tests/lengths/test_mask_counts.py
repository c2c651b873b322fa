"""Counts of masks that say how many frames there are."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.shapes import shapes_of
from graphfix.lengths.mask_counts import pairs_from_mask_counts

# The count of a mask [B, P], strided by two, compared with frames [F], where F is known to be as
# many as floor of half of T.
COUNT = "c = ReduceSum <keepdims = 0> (mask, a1)"
HALF = "h = Div (c, two)"
COMPARE = "fu = Unsqueeze (positions, a0) hu = Unsqueeze (h, a1) y = Less (fu, hu)"
FRAMES = """ts = Shape <start = 1, end = 2> (audio) tn = Squeeze (ts) nf = Div (tn, two)
    positions = Range (zero, nf, one)"""


def pairs(body: str, mask: str = "int64[B, P] mask") -> list[tuple[str, str]]:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T] audio, {mask}, float[B, T, 4] data) => (bool[A, C] y)
        <int64[1] a0 = {{0}}, int64[1] a1 = {{1}}, int64[1] am = {{-1}}, int64[1] both = {{0, 1}},
         int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64 three = {{3}},
         int64 minus = {{-1}}, float halfway = {{0.5}}, float twof = {{2.0}}>
        {{ {FRAMES} {body} }}""".replace("int64[1] both = {0, 1}", "int64[2] both = {0, 1}")
    )
    return list(dict.fromkeys(pairs_from_mask_counts(model, shapes_of(model))))


SAME = [("P", "T")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{COUNT} {HALF} {COMPARE}", SAME),
        (f"c = ReduceSum <keepdims = 0> (mask, am) {HALF} {COMPARE}", SAME),
        (f"m2 = Cast <to = 7> (mask) c = ReduceSum <keepdims = 0> (m2, a1) {HALF} {COMPARE}", SAME),
        # The last of a running count.
        (f"r = CumSum (mask, one) c = Gather <axis = 1> (r, minus) {HALF} {COMPARE}", SAME),
        (f"r = CumSum (mask, minus) c = Gather <axis = -1> (r, minus) {HALF} {COMPARE}", SAME),
        (f"r = CumSum (mask, one) c = Gather <axis = 1> (r, zero) {HALF} {COMPARE}", []),
        (f"r = CumSum (mask, zero) c = Gather <axis = 1> (r, minus) {HALF} {COMPARE}", []),
        (f"r = CumSum (mask, one) c = Gather <axis = 0> (r, minus) {HALF} {COMPARE}", []),
        # Of rows, or of everything.
        (f"c = ReduceSum <keepdims = 0> (mask, a0) {HALF} {COMPARE}", []),
        (f"c = ReduceMax <axes = [1], keepdims = 0> (mask) {HALF} {COMPARE}", []),
        # Another number of frames.
        (f"{COUNT} h = Div (c, three) {COMPARE}", []),
        (f"{COUNT} p = Add (c, one) h = Div (p, two) {COMPARE}", []),
        (f"{COUNT} p = Add (c, two) q = Div (p, two) h = Sub (q, one) {COMPARE}", SAME),
        (f"{COUNT} t = Mul (c, three) q = Div (t, two) h = Sub (q, c) {COMPARE}", []),
        (f"{COUNT} h = Div (two, c) {COMPARE}", []),
        # In floats, rounded down and up.
        (
            f"{COUNT} f = Cast <to = 1> (c) q = Div (f, twof) d = Floor (q) "
            f"h = Cast <to = 7> (d) {COMPARE}",
            SAME,
        ),
        (
            f"{COUNT} f = Cast <to = 1> (c) q = Div (f, twof) d = Ceil (q) "
            f"h = Cast <to = 7> (d) {COMPARE}",
            [],
        ),
        (f"{COUNT} f = Cast <to = 1> (c) q = Mul (f, halfway) h = Cast <to = 7> (q) {COMPARE}", []),
        # Compared from either side.
        (
            f"{COUNT} {HALF} fu = Unsqueeze (positions, a0) hu = Unsqueeze (h, a1) "
            "y = Greater (hu, fu)",
            SAME,
        ),
        # A count is no number of frames by itself: that of durations is the frames.
        (f"{COUNT} h = Identity (c) {COMPARE}", []),
    ],
)
def test_a_count_that_went_the_way_of_the_frames(
    body: str, expected: list[tuple[str, str]]
) -> None:
    assert pairs(body) == expected


@pytest.mark.parametrize("mask", ["int64[B, P, 1] mask", "int64[B, 8] mask"])
def test_only_a_matrix_with_a_name_is_a_mask(mask: str) -> None:
    assert pairs(f"{COUNT} {HALF} {COMPARE}", mask) == []


def test_the_frames_of_a_clip_are_its_own() -> None:
    """Counted and compared by one name: there is nothing to say."""
    assert pairs(f"{COUNT} {HALF} {COMPARE}", "int64[B, T] mask") == []


def test_the_place_of_the_last_frame() -> None:
    last = """rb = Shape <start = 0, end = 1> (mask) rn = Squeeze (rb) rows = Range (zero, rn, one)
        k = Sub (h, one) ru = Unsqueeze (rows, am) ku = Unsqueeze (k, am)
        i = Concat <axis = -1> (ru, ku)
        fs = Shape <start = 0, end = 1> (positions) both_sizes = Concat <axis = 0> (rb, fs)
        blank = ConstantOfShape (both_sizes) ones = Expand (zf, rb)
        s = ScatterND (blank, i, ones) y = Cast <to = 9> (s)"""
    body = f"{COUNT} {HALF} zf = Constant <value_float = 0.0> () {last}"
    assert pairs(body) == SAME
    assert pairs(body.replace("k = Sub (h, one)", "k = Sub (h, two)")) == []
