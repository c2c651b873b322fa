"""A mixture of experts: each frame writes the weights of a few of them into its own row."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.runtime.session import Session

EXPERTS = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x) => (float[B, T, 4] y, float[B, 4] z)
    <int64[2] rows = {-1, 4}, int64[1] few = {2}, float far = {0.5}>
    {
        flat = Reshape (x, rows)  p = Softmax <axis = -1> (flat)
        v, i = TopK (p, few)  size = Shape (p)  none = ConstantOfShape (size)
        w = ScatterElements <axis = 1> (none, i, v)
        s = Shape (x)  r = Reshape (w, s)  y = Mul (r, x)
        moved = Add (y, far)  z = ReduceMean <axes = [1], keepdims = 0> (moved)
    }"""


@pytest.mark.parametrize(
    "data", ["ConstantOfShape (size)", "Mul (p, far)"], ids=["into zeros", "into numbers"]
)
def test_a_clip_in_a_container_is_what_it_is_alone(data: str) -> None:
    model = ir.from_onnx_text(EXPERTS.replace("ConstantOfShape (size)", data))
    made = model.clone()
    graphfix.run(made, "ilens-mask")
    x = np.random.default_rng(4).standard_normal((3, 9, 4)).astype(np.float32)
    lengths = (9, 1, 4)
    with Session(model, optimize=False) as alone, Session(made, optimize=False) as padded:
        after = padded.run({"x": x, "ilens": np.array(lengths, np.int64)})
        for row, n in enumerate(lengths):
            wanted = alone.run({"x": x[row : row + 1, :n]})
            np.testing.assert_allclose(after["y"][row : row + 1, :n], wanted["y"], atol=1e-6)
            np.testing.assert_allclose(after["z"][row : row + 1], wanted["z"], atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ScatterElements <axis = 1>", "ScatterElements <axis = 0>"),
        ("none = ConstantOfShape (size)", "two = Concat <axis = 0> (p, p)  none = Identity (two)"),
    ],
    ids=["into other frames", "into the first frames"],
)
def test_what_writes_into_other_frames_is_refused(old: str, new: str) -> None:
    assert old in EXPERTS
    text = EXPERTS.replace(old, new).replace("moved = Add (y, far)", "moved = Add (y, most)")
    own = "most = ReduceMax <keepdims = 0> (w)  y = Mul (x, x)"
    model = ir.from_onnx_text(text.replace("r = Reshape (w, s)  y = Mul (r, x)", own))
    with pytest.raises(graphfix.GraphfixError, match="cannot see what padding"):
        graphfix.run(model, "ilens-mask")
