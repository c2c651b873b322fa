"""What several repairs build with: frames by row, and tails of zeros."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

import graphfix

LENGTHS = np.array([4, 6])


def outputs(model: ir.Model, **feeds: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    return session.run(None, feeds)[0]


def repaired_and_compared(text: str, opset: int, batch: str = "B") -> ir.Model:
    """Repair a model, and compare clips in a container with each clip alone; return the model."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}]>\n'
    before, after = (
        ir.from_onnx_text(f"{head} m (float[{batch}, T, 4] x) => (y) {text}") for _ in range(2)
    )
    graphfix.run(after, "ilens-mask")
    lengths = LENGTHS if batch == "B" else LENGTHS[:1]
    x = np.random.default_rng(0).standard_normal((len(lengths), 6, 4)).astype(np.float32)
    got = outputs(after, x=x, ilens=lengths)
    rows = (x[i : i + 1, :n] for i, n in enumerate(lengths))
    axis = next((a for a, n in enumerate(got.shape) if n == len(lengths)), 0)
    alone = np.concatenate([outputs(before, x=row) for row in rows], axis=axis)
    np.testing.assert_allclose(got, alone, rtol=1e-5)
    return after


@pytest.mark.parametrize("batch", ["B", "1"])
@pytest.mark.parametrize("opset", [11, 12, 17])
@pytest.mark.parametrize(
    ("perm", "axis"),
    [
        ([0, 1, 2], 1),
        ([0, 2, 1], 2),
        ([1, 0, 2], 0),
        ([1, 2, 0], 0),
        ([2, 0, 1], 2),
        ([2, 1, 0], 1),
    ],
)
def test_each_row_has_a_last_frame_of_its_own(
    perm: list[int], axis: int, opset: int, batch: str
) -> None:
    text = f"""<int64[1] last = {{-1}}, int64[1] end = {{9223372036854775807}},
        int64[1] axis = {{{axis}}}> {{
        t = Transpose <perm = {perm}> (x)  y = Slice (t, last, end, axis) }}"""
    after = repaired_and_compared(text, opset, batch)
    by_row = {node.op_type for node in after.graph} & {"GatherND", "GatherElements"}
    usual = "GatherND" if perm == [0, 1, 2] and opset >= 12 else "GatherElements"
    assert by_row == ({usual} if batch == "B" else set())


@pytest.mark.parametrize(
    ("body", "operator"),
    [
        # What padding may hold is not multiplied, which keeps NaN.
        ("s = ReduceSum (x, time)", "Where"),
        ("c = Cos (x) d = Sigmoid (x) e = Clip (d, zero, one) s = ReduceSum (e, time)", "Where"),
        ("i = Cast <to = 7> (x) j = ReduceSum (i, time) s = Cast <to = 1> (j)", "Where"),
    ],
)
def test_a_sum_is_of_what_is_valid(body: str, operator: str) -> None:
    text = f"""<int64[1] time = {{1}}, float zero = {{0}}, float one = {{1}}> {{
        {body}  y = Relu (s) }}"""
    after = repaired_and_compared(text, 17)
    assert operator in {node.op_type for node in after.graph}
