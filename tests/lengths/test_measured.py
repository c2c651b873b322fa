"""Rows of the batch of which only the size is taken, as ``ones_like(x[:1])`` takes it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.runtime.session import Session

CUT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x) => (float[B, 4] y)
    <int64[1] first = {0}, int64[1] one = {1}, int64[1] last = {2}>
    {
        row = Slice (x, first, one, first)  cell = Slice (row, first, one, last)
        s = Shape (cell)  ones = ConstantOfShape <value = float[1] {1.0}> (s)
        made = MADE  moved = Add (x, made)
        y = ReduceMean <axes = [1], keepdims = 0> (moved)
    }"""


def test_a_clip_in_a_container_is_what_it_is_alone() -> None:
    model = ir.from_onnx_text(CUT.replace("MADE", "Identity (ones)"))
    made = model.clone()
    graphfix.run(made, "ilens-mask")
    x = np.random.default_rng(4).standard_normal((3, 9, 4)).astype(np.float32)
    lengths = (9, 1, 4)
    with Session(made, optimize=False) as padded:
        y = padded.run({"x": x, "ilens": np.array(lengths, np.int64)})["y"]
    wanted = [x[row, :n].mean(0) + 1 for row, n in enumerate(lengths)]
    np.testing.assert_allclose(y, wanted, atol=1e-6)


@pytest.mark.parametrize("made", ["Identity (cell)", "Mul (ones, cell)"])
def test_what_is_in_them_is_not_seen_through(made: str) -> None:
    model = ir.from_onnx_text(CUT.replace("MADE", made))
    with pytest.raises(graphfix.GraphfixError, match="it cuts the batch"):
        graphfix.run(model, "ilens-mask")
