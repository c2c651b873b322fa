"""pad-amounts: what is the same at each length becomes numbers, what follows the length stays."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.model.values import const_of
from graphfix.runtime.session import Session

CONSTANTS = """int64[1] none = {0}, int64[1] flat = {-1}, float value = {7}, int64[1] two = {2},
    int64 one = {1}, float unit = {1}"""


def model(kernel: int, stride: int, mode: str = "constant", opset: int = 18) -> ir.Model:
    """A causal Pad as EnCodec, Mimi and Qwen3-TTS write it."""
    padding = kernel - stride
    return ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[B, 2, T] x) => (float[B, 2, U] y)
        <{CONSTANTS}, int64 kernel = {{{kernel}}}, int64 padding = {{{padding}}},
         float stride = {{{stride}}}, int64 whole = {{{stride}}}, int64[1] left = {{{padding}}},
         int64 rest = {{{kernel - padding}}}>
        {{ shape = Shape <start = 2, end = 3> (x) t = Squeeze (shape)
          a = Sub (t, kernel) b = Add (a, padding) c = Cast <to = 1> (b) d = Div (c, stride)
          frames = Add (d, unit) up = Ceil (frames) whole_frames = Cast <to = 7> (up)
          e = Sub (whole_frames, one) f = Mul (e, whole) ideal = Add (f, rest)
          extra = Sub (ideal, t) behind = Reshape (extra, flat)
          amounts = Concat <axis = 0> (none, none, left, none, none, behind)
          y = Pad <mode = "{mode}"> (x, amounts, value) }}"""
    )


def outputs(m: ir.Model, length: int) -> np.ndarray:
    x = np.random.default_rng(length).standard_normal((2, 2, length)).astype(np.float32)
    with Session(m) as session:
        return session.run({"x": x})["y"]


def ops(m: ir.Model) -> list[str]:
    return [node.op_type for node in m.graph]


@pytest.mark.parametrize("kernel", [1, 3, 7])
@pytest.mark.parametrize("mode", ["constant", "edge"])
def test_a_stride_of_one_adds_nothing_behind(kernel: int, mode: str) -> None:
    before, after = model(kernel, 1, mode), model(kernel, 1, mode)
    assert len(graphfix.run(after, "pad-amounts").passes[0].changes) == 1
    pads = [node for node in after.graph if node.op_type == "Pad"]
    if kernel == 1:
        assert not pads
    else:
        found = const_of(pads[0].inputs[1])
        assert found is not None
        assert found.tolist() == [0, 0, kernel - 1, 0, 0, 0]
    assert not {"Shape", "Ceil", "Concat", "Cast"} & set(ops(after))
    for length in (1, 2, 9, 30):
        assert np.array_equal(outputs(before, length), outputs(after, length))
    assert not graphfix.run(after, "pad-amounts").changed


@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (2, 2), (7, 3), (16, 8)])
def test_what_fills_up_to_a_stride_stays_and_says_so(kernel: int, stride: int) -> None:
    after = model(kernel, stride)
    report = graphfix.run(after, "pad-amounts")
    assert not report.changed
    ((_, reason),) = report.passes[0].skips
    assert "fix the length" in reason or "only in a run" in reason


def test_a_fixed_length_makes_them_numbers() -> None:
    before, after = model(4, 2), model(4, 2)
    graphfix.run(after, "fix-dims:T=9,pad-amounts,fold")
    assert "Ceil" not in ops(after)
    assert np.array_equal(outputs(before, 9), outputs(after, 9))


def test_the_users_amounts_are_not_mine() -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> m '
    text += "(float[B, T] x, int64[4] p) => (float[B, U] y) { y = Pad (x, p) }"
    m = ir.from_onnx_text(text)
    report = graphfix.run(m, "pad-amounts")
    assert not report.changed
    assert not report.passes[0].skips


def test_other_uses_of_the_amounts_keep_their_nodes() -> None:
    m = model(3, 1)
    extra = next(x for node in m.graph for x in node.outputs if x.name == "behind")
    m.graph.outputs.append(extra)
    extra.shape, extra.type = ir.Shape([1]), ir.TensorType(ir.DataType.INT64)
    graphfix.run(m, "pad-amounts")
    assert "Ceil" in ops(m)
    assert "Concat" not in ops(m)


def test_an_output_that_was_padded_by_nothing_keeps_its_name() -> None:
    m = model(1, 1)
    graphfix.run(m, "pad-amounts")
    assert [x.name for x in m.graph.outputs] == ["y"]
    assert ops(m) == ["Identity"]


def test_check_names_it() -> None:
    (finding,) = graphfix.check(model(7, 1), "pad-amounts")
    assert finding.fix == "pad-amounts"
    assert finding.severity == "warning"
    assert "80070057" in finding.message
