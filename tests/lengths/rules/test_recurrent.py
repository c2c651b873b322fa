"""Rules for LSTM, GRU and RNN."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

import graphfix
from graphfix.lengths.tail_state import ZERO, BatchFactor
from tests.lengths.analysed import analysis_of, leaks, reasons, state_of

WEIGHTS = ", ".join(["0.1"] * 16)
CONSTANTS = f"float[1, 4, 4] w = {{{WEIGHTS}}}, int64[1] one = {{1}}, int64[1] zero = {{0}}"
SWAP = "c = Transpose <perm = [1, 0, 2]> (x)"
LENGTHS = "float[B, T, 4] x, int32[B] n"


def test_each_row_gets_its_length() -> None:
    analysis = analysis_of(f"{SWAP} y, h = RNN <hidden_size = 4> (c, w, w)", constants=CONSTANTS)
    assert not analysis.refusals
    assert "recurrence" in leaks(analysis)
    steps, last = state_of(analysis, "y"), state_of(analysis, "h")
    assert steps is not None
    assert last is not None
    assert steps.tails == (ZERO, None, None, None)
    assert isinstance(steps.factors_of(2)[0], BatchFactor)
    assert last.tails == (None, None, None)


def test_the_batch_may_come_first() -> None:
    body = "y = RNN <hidden_size = 4, layout = 1> (x, w, w)"
    state = state_of(analysis_of(body, constants=CONSTANTS), "y")
    assert state is not None
    assert state.tails == (None, ZERO, None, None)
    assert isinstance(state.factors_of(0)[0], BatchFactor)


def test_the_padded_size_for_all_rows_is_replaced() -> None:
    body = f"""{SWAP} s = Shape (x) t = Gather (s, one) b = Gather (s, zero) e = Expand (t, b)
        l = Cast <to = 6> (e) y = RNN <hidden_size = 4> (c, w, w, , l)"""
    analysis = analysis_of(body, constants=CONSTANTS)
    assert not analysis.refusals
    assert "recurrence" in leaks(analysis)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"{SWAP} y = RNN <hidden_size = 4> (c, w, w, , n)", "the lengths that it is given are"),
        ("y = RNN <hidden_size = 4> (x, w, w)", "it mixes rows of the batch"),
        (f"{SWAP} f = Slice (c, m1, far, zero, m1) y = RNN <hidden_size = 4> (f, w, w)", "it runs"),
        (f"{SWAP} p = ReduceSum (c, zero) y = RNN <hidden_size = 4> (c, w, c)", "a parameter"),
    ],
)
def test_refusals(body: str, reason: str) -> None:
    constants = f"{CONSTANTS}, int64[1] m1 = {{-1}}, int64[1] far = {{-9223372036854775807}}"
    assert reasons(analysis_of(body, inputs=LENGTHS, constants=constants))[0].startswith(reason)


QUANTIZED = "k = Cos (x) c = Transpose <perm = [1, 0, 2]> (k) "
QUANTIZED += "y, h = com.microsoft.DynamicQuantizeLSTM <hidden_size = 2> "
QUANTIZED += "(c, w, r, , , , , , scale, point, scale, point)"
_W, _R = (", ".join(str((7 * i) % 23 - 11) for i in range(n)) for n in (32, 16))
INTEGERS = f"int8[1, 4, 8] w = {{{_W}}}, int8[1, 2, 8] r = {{{_R}}}, float[1] scale = {{0.1}}, "
INTEGERS += "int8[1] point = {0}"


def test_a_quantized_one_takes_its_range_over_zeros() -> None:
    analysis = analysis_of(QUANTIZED, constants=INTEGERS)
    assert not analysis.refusals
    assert sorted(leaks(analysis)) == ["maximum pollution", "poisoned input", "recurrence"]
    steps = state_of(analysis, "y")
    assert steps is not None
    assert steps.tails == (ZERO, None, None, None)
    assert str(steps.size_along(3)) == "2"


def test_what_is_behind_a_shorter_row_moves_no_range() -> None:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[B, T, 4] x) => (float[T, D, B, H] y) <{INTEGERS}> {{ {QUANTIZED} }}"""
    )
    graphfix.run(model, "ilens-mask:axis=x.1")
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    x = np.random.default_rng(0).normal(size=(2, 9, 4)).astype(np.float32)
    outputs = []
    for garbage in (0.0, 50.0):
        x[1, 5:] = garbage
        feeds = {"x": x, "ilens": np.array([9, 5], np.int64)}
        outputs.append(session.run(["y"], feeds)[0])
    assert np.array_equal(outputs[0], outputs[1])
    assert not outputs[0][5:, :, 1].any()
