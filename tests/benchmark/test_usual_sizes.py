"""What people feed a model: seconds of audio and sentences, in elements of its dims."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.benchmark.usual_sizes import FRAMES, SAMPLES, TOKENS, usual_sizes
from graphfix.feeds.signature import Signature

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
WAVE = "float[B, T] x) => (float[B, T] y) { y = Relu (x) }"
LOOKUP = """float[B, T, 2] y) <float[2, 2] table = {1, 2, 3, 4}> { y = Gather (table, ids) }"""


@pytest.mark.parametrize(
    ("graph", "sizes"),
    [
        (WAVE, {"T": SAMPLES}),
        ("float[B, 1, T] x) => (float[B, 1, T] y) { y = Relu (x) }", {"T": SAMPLES}),
        ("float[B, T, 80] x) => (float[B, T, 80] y) { y = Relu (x) }", {"T": FRAMES}),
        ("float[B, 80, T] x) => (float[B, 80, T] y) { y = Relu (x) }", {"T": FRAMES}),
        (f"int64[B, T] ids) => ({LOOKUP}", {"T": TOKENS}),
        # A picture, and a dim that stands twice: what they count is not known.
        ("float[B, 3, H, W] x) => (float[B, 3, H, W] y) { y = Relu (x) }", {}),
        ("float[B, 3, T, T] x) => (float[B, 3, T, T] y) { y = Relu (x) }", {}),
        ("float[B, 4] x) => (float[B, 4] y) { y = Relu (x) }", {}),
        # Two names of one size.
        (
            "float[B, T, 8] x, float[B, U, 8] z) => (float[B, T, 8] y) { y = Add (x, z) }",
            {"T": FRAMES, "U": FRAMES},
        ),
    ],
)
def test_what_a_dim_counts(graph: str, sizes: dict[str, int]) -> None:
    assert usual_sizes(Signature(ir.from_onnx_text(f"{HEAD} m ({graph}"))) == sizes
