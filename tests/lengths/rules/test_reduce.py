"""Rules for reductions."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

import graphfix
from graphfix.lengths.analysis import analyse
from graphfix.lengths.length_source import find_length_source
from graphfix.lengths.repairs.fill_tail import RaiseTail
from graphfix.lengths.tail_state import FINITE
from tests.lengths.analysed import analysis_of, leaks, reasons, state_of

CONSTANTS = "int64[1] one = {1}, int64[1] two = {2}, int64 at = {1}, int64 across = {0}"


@pytest.mark.parametrize(
    ("node", "leak"),
    [
        ("ReduceSum (f, one)", "sum pollution"),
        ("ReduceL2 <axes = [1]> (f)", "sum pollution"),
        ("ReduceMax <axes = [1]> (f)", "maximum pollution"),
        ("ReduceLogSumExp <axes = [1]> (f)", "maximum pollution"),
        ("ReduceMean <axes = [1]> (f)", "mean pollution"),
        ("ArgMax <axis = 1> (f)", "maximum pollution"),
        ("ReduceMin <axes = [1]> (f)", "minimum pollution"),
        ("ArgMin <axis = 1> (f)", "minimum pollution"),
        ("CumSum <reverse = 1> (f, at)", "sum pollution"),
    ],
)
def test_the_tail_must_be_neutral_along_time(node: str, leak: str) -> None:
    analysis = analysis_of(f"f = Cos (x) y = {node}", constants=CONSTANTS)
    assert not analysis.refusals
    assert leak in leaks(analysis)


@pytest.mark.parametrize(
    "node",
    ["ReduceSum (f, two)", "ReduceMin <axes = [2]> (f)", "ArgMin <axis = -1> (f)"],
)
def test_other_axes_need_nothing(node: str) -> None:
    analysis = analysis_of(f"f = Cos (x) y = {node}", constants=CONSTANTS)
    assert not analysis.refusals
    assert not analysis.repairs


@pytest.mark.parametrize(
    ("body", "leak"),
    [
        # Whether all keys are hidden: those of the padding are.
        ("h = Not (v) n = Cast <to = 7> (h) y = ReduceMin <axes = [1]> (n)", []),
        ("n = Cast <to = 7> (v) y = ReduceMin <axes = [1]> (n)", ["minimum pollution"]),
        # As numbers they may be more than 1.
        ("n = Add (k, k) y = ReduceMin <axes = [1]> (n)", ["minimum pollution"]),
    ],
)
def test_whether_all_are_true(body: str, leak: list[str]) -> None:
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    model = ir.from_onnx_text(
        f"{head} g (float[B, T, 4] x, bool[B, T] v, int64[B, T] k) => (y, x1) "
        f"{{ {body} x1 = Identity (x) }}"
    )
    source = find_length_source(model, "x.1", "v")
    analysis = analyse(model, source)
    assert [x for x in leaks(analysis) if x != "poisoned input"] == leak
    numbers = [x.number for x in analysis.repairs if isinstance(x, RaiseTail)]
    assert numbers == ([] if not leak else [2**63 - 1] if "Add" in body else [1])


def test_the_least_of_what_is_valid() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[B, T, 4] x) => (low, at)
        { low = ReduceMin <axes = [1]> (x)  at = ArgMin <axis = 1> (x) }"""
    )
    before = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    graphfix.run(model, "ilens-mask")
    after = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    x = np.arange(40, 0, -1, dtype=np.float32).reshape(1, 10, 4)
    padded = np.full((1, 10, 4), -9e9, np.float32)
    padded[:, :7] = x[:, :7]
    expected = before.run(None, {"x": x[:, :7]})
    for y, z in zip(after.run(None, {"x": padded, "ilens": np.array([7])}), expected, strict=True):
        np.testing.assert_array_equal(y, z)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("ReduceProd <axes = [1]> (f)", "there is no repair for it over time"),
        ("ArgMin <axis = 1, select_last_index = 1> (f)", "there is no repair for it over time"),
        ("ArgMax <axis = 1, select_last_index = 1> (f)", "there is no repair for it over time"),
        ("ReduceMax <axes = [0]> (f)", "it sums over the batch"),
        ("ReduceSum (f, axes)", "the axes that it is over are not constant"),
        ("CumSum (f, across)", "it mixes rows of the batch"),
    ],
)
def test_refusals(node: str, reason: str) -> None:
    inputs = "float[B, T, 4] x, int64[1] axes"
    analysis = analysis_of(f"f = Cos (x) y = {node}", inputs=inputs, constants=CONSTANTS)
    assert reasons(analysis)[0].startswith(reason)


@pytest.mark.parametrize(
    ("node", "sign"),
    [
        ("ReduceSum (p, two)", 2),
        ("ReduceMean <axes = [2]> (p)", 2),
        ("ReduceMin <axes = [2]> (p)", 2),
        ("ReduceL1 <axes = [2]> (x)", 1),
        ("ReduceSumSquare <axes = [2]> (x)", 1),
        ("ReduceProd <axes = [2]> (p)", 1),
        ("ReduceProd <axes = [2]> (x)", 0),
        ("ReduceMax <axes = [2]> (x)", 0),
        ("ReduceLogSum <axes = [2]> (p)", 0),
    ],
)
def test_signs(node: str, sign: int) -> None:
    state = state_of(analysis_of(f"p = Cosh (x) y = {node}", constants=CONSTANTS), "y")
    assert state is not None
    assert state.sign == sign


@pytest.mark.parametrize(
    ("node", "is_length"),
    [
        ("ReduceSum (n, one)", True),
        ("ReduceMax <axes = [1]> (n)", False),
        ("ReduceSum (d, two)", False),
        ("ReduceSum (d, both)", False),
    ],
)
def test_a_sum_of_a_mask_over_time_alone_is_a_length(node: str, is_length: bool) -> None:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[B, T, 4] x, bool[B, T] v) => (y, z)
        <int64[1] one = {{1}}, int64[1] two = {{2}},
         int64[2] both = {{1, 2}}> {{
            n = Cast <to = 7> (v)  d = Unsqueeze (n, two)  s = {node}  y = Cos (s)
            z = Identity (x) }}"""
    )
    analysis = analyse(model, find_length_source(model, "x.1", "v"))
    state = state_of(analysis, "s")
    assert state is not None
    assert (state.length is not None) is is_length


def test_the_largest_of_each_frame_need_nothing() -> None:
    analysis = analysis_of("f = Cos (x) y, i = TopK <axis = 2> (f, two)", constants=CONSTANTS)
    assert not analysis.refusals
    assert not analysis.repairs
    frames, values, places = (state_of(analysis, name) for name in "fyi")
    assert frames is not None
    assert values is not None
    assert places is not None
    assert values.tails == frames.tails
    assert places.tails == (None, FINITE, None)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y, i = TopK <axis = 1> (x, one)", "it ranks along the axis that carries time"),
        ("y, i = TopK <axis = 0> (x, one)", "it mixes rows of the batch"),
    ],
)
def test_frames_and_rows_are_not_ranked(body: str, reason: str) -> None:
    assert any(reason in x for x in reasons(analysis_of(body, constants=CONSTANTS)))
