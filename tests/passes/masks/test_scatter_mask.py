"""scatter-mask: masks that are summed up from a one at the last frame, and what only looks so."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.job import planning
from tests.passes.models import opened, ops

ROWS = "rows = Range (zero, b, one) row = Unsqueeze (rows, column)"
PARTS = {
    "rows": ROWS,
    "at": "at = Concat <axis = 1> (row, last)",
    "zeros": "zeros = ConstantOfShape <value = int64[1] {0}> (shape)",
    "ones": "ones = Expand (one, many)",
    "mask": "y = CumSum <reverse = 1> (marked, axis)",
}


def model(opset: int = 17, **parts: str) -> ir.Model:
    return ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (int64[B, 1] last, float[B, T] x) => (int64[B, T] y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64[1] column = {{1}}, int64 axis = {{1}},
         int64 back = {{-1}}, int64 two = {{2}}, int64[1] first = {{0}}> {{
            shape = Shape (x) b = Gather (shape, zero) many = Slice (shape, first, column)
            {" ".join((PARTS | parts)[k] for k in ("rows", "at", "zeros", "ones"))}
            marked = ScatterND (zeros, at, ones) {(PARTS | parts)["mask"]} }}""")


def run(m: ir.Model, last: list[int], length: int) -> np.ndarray:
    feeds = {"last": np.array(last)[:, None], "x": np.zeros((len(last), length), np.float32)}
    return opened(m).run(None, feeds)[0]


@pytest.mark.parametrize("opset", [13, 17, 18])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"zeros": "zeros = Expand (zero, shape)"},
        {"mask": "y = CumSum <reverse = 1> (marked, back)"},
        {"ones": "ones = ConstantOfShape <value = int64[1] {1}> (many)"},
    ],
)
def test_a_mask_is_a_comparison(parts: dict[str, str], opset: int) -> None:
    """A place below 0 counts from the end: a clip of no frames at all has a row of ones."""
    before, after = model(opset, **parts), model(opset, **parts)
    assert graphfix.run(after, "scatter-mask").changed
    assert "ScatterND" not in ops(after)
    for last, length in (([0], 1), ([4, 0, 2, -1, -5], 5), ([6, 3], 7)):
        np.testing.assert_array_equal(run(after, last, length), run(before, last, length))
    assert not graphfix.run(after, "scatter-mask").changed


def test_the_mask_has_the_type_of_the_zeros() -> None:
    parts = {
        "zeros": "zeros = ConstantOfShape <value = int32[1] {0}> (shape)",
        "ones": "ones = ConstantOfShape <value = int32[1] {1}> (many)",
    }
    before, after = model(**parts), model(**parts)
    for m in (before, after):
        m.graph.outputs[0].dtype = ir.DataType.INT32
    assert graphfix.run(after, "scatter-mask").changed
    mask = run(after, [0, 3], 5)
    assert mask.dtype == np.int32
    np.testing.assert_array_equal(mask, run(before, [0, 3], 5))


@pytest.mark.parametrize(
    "parts",
    [
        {"mask": "y = CumSum <reverse = 1, exclusive = 1> (marked, axis)"},
        {"mask": "y = CumSum <reverse = 1> (marked, zero)"},
        {"zeros": "zeros = ConstantOfShape <value = int64[1] {2}> (shape)"},
        {"rows": "n = Sub (b, one) rows = Range (back, n, one) row = Unsqueeze (rows, column)"},
        {"rows": f"{ROWS.replace('row =', 'r =')} row = Mul (r, back)"},
        {"at": "at = Concat <axis = 1> (last, row)"},
    ],
)  # fmt: skip
def test_what_only_looks_so_stays(parts: dict[str, str]) -> None:
    assert not graphfix.run(model(**parts), "scatter-mask").changed


def test_nothing_goes_to_the_cpu_and_back() -> None:
    """ScatterND of opset 18 has no kernel on DirectML."""
    before, after = model(18), model(18)
    graphfix.run(after, "scatter-mask,fold")
    runs = [planning.plan(x).to_json()["run"] for x in (before, after)]
    assert [x["copies"] for x in runs] == [4, 2]
