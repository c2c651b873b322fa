"""What each kernel of DirectML refuses, just beyond what it takes."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.shapes import shapes_of
from graphfix.graph.nodes import attr_ints
from graphfix.providers.directml.kernel_table import kernel_at
from graphfix.providers.directml.support_queries import refusal_reason

RNN_SHAPES = "float[1, 4, 4] w, float[1, 4, 4] r"


def reason_of(body: str, opset: int = 12) -> str | None:
    """Return why DirectML refuses the last node of a body."""
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        m (float[2, 3, 4, 4] x, float16[4] half, float[4] few, float[3, 4, 4] seq, {RNN_SHAPES},
           int64[4] n, int64[2, 3, 4, 4] index, uint8[2, 3] bytes, uint8 zero, float one,
           int32[2] mask, uint8[16, 2, 8] packed, float[32] scales) => (y)
        {{ {body} }}""".replace("'", '"')
    )
    node = list(model.graph)[-1]
    kernel = kernel_at(node.op_type, node.domain, opset)
    assert kernel is not None
    return refusal_reason(node, kernel, shapes_of(model))


ATTENTION = "com.microsoft.Attention <num_heads = 2"
Q_ATTENTION = "com.microsoft.QAttention <num_heads = 2"
N_BITS = "com.microsoft.MatMulNBits <N = 16, K = {k}, bits = {bits}, block_size = {block}>"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = Relu (x)", None),
        ("y = RNN <hidden_size = 4> (seq, w, r)", None),
        ("y = Slice (x, n, n, n, n)", None),
        ("y = Resize <mode = 'linear'> (x, few, few)", None),
        ("y = Resize <mode = 'cubic'> (x, few, few)", "mode=cubic"),
        ("y = Resize <exclude_outside = 1> (x, few, few)", "exclude_outside=1"),
        ("y = Resize <extrapolation_value = 0.0> (x, few, few)", None),
        ("y = Resize <extrapolation_value = 1.0> (x, few, few)", "an extrapolation_value other"),
        ("y = MaxPool <kernel_shape = [2, 2], storage_order = 0> (x)", None),
        ("y = MaxPool <kernel_shape = [2, 2], storage_order = 1> (x)", "storage_order=1"),
        ("y = Einsum <equation = 'abij,abjk->abik'> (x, x)", None),
        ("y = Einsum <equation = 'abij -> abji'> (x)", None),
        ("y = Einsum <equation = 'a...->...a'> (x)", "the equation 'a...->...a'"),
        ("y = Einsum <equation = 'abij,abjk,abkl'> (x, x, x)", "the equation 'abij,abjk,abkl'"),
        (f"y = {ATTENTION}> (seq, w, few, mask)", None),
        (f"y = {ATTENTION}> (seq, w, few, mask, x)", "a past"),
        (f"y = {ATTENTION}> (seq, w, few, mask, , , n)", "a past"),
        (f"y = {ATTENTION}> (seq, w, few, mask, , x)", None),
        (f"y, present = {ATTENTION}> (seq, w, few)", "an output for the present"),
        (f"y = {ATTENTION}, unidirectional = 1> (seq, w, few)", "unidirectional=1"),
        (f"y = {ATTENTION}, do_rotary = 1> (seq, w, few)", "do_rotary=1"),
        (
            f"y = {ATTENTION}, past_present_share_buffer = 1> (seq, w, few)",
            "past_present_share_buffer=1",
        ),
        (f"y = {Q_ATTENTION}, unidirectional = 1> (seq, w, few, one, one)", None),
        (
            f"y = {Q_ATTENTION}, unidirectional = 1> (seq, w, few, one, one, mask)",
            "unidirectional=1 with a mask",
        ),
        (f"y = {Q_ATTENTION}, unidirectional = 0> (seq, w, few, one, one, mask)", None),
        (f"y = {Q_ATTENTION}, do_rotary = 1> (seq, w, few, one, one)", "do_rotary=1"),
        (f"y = {N_BITS.format(k=32, bits=4, block=16)} (seq, packed, scales)", None),
        (f"y = {N_BITS.format(k=32, bits=8, block=16)} (seq, packed, scales)", None),
        (f"y = {N_BITS.format(k=32, bits=2, block=16)} (seq, packed, scales)", "bits=2"),
        (
            f"y = {N_BITS.format(k=24, bits=4, block=16)} (seq, packed, scales)",
            "K=24, no multiple of block_size=16",
        ),
        ("y = com.microsoft.QLinearSigmoid (bytes, one, zero, one, zero)", None),
        (
            "y = com.microsoft.QLinearSigmoid (bytes, one, zero, one)",
            "a zero point that is not given",
        ),
        ("y = com.microsoft.QLinearSigmoid (bytes, one, , one, zero)", "a zero point that"),
        ("y = com.microsoft.SkipLayerNormalization (seq, seq, few)", None),
        ("y, , , h = com.microsoft.SkipLayerNormalization (seq, seq, few)", None),
        ("y, m = com.microsoft.SkipLayerNormalization (seq, seq, few)", "outputs for the mean"),
        ("y, , v = com.microsoft.SkipLayerNormalization (seq, seq, few)", "or the deviation"),
    ],
)
def test_at_opset_12(body: str, reason: str | None) -> None:
    answer = reason_of(body)
    assert answer is None if reason is None else reason in str(answer)


@pytest.mark.parametrize(
    ("opset", "body", "reason"),
    [
        (14, "y = RNN <hidden_size = 4, layout = 0> (seq, w, r)", None),
        (14, "y = RNN <hidden_size = 4, layout = 1> (seq, w, r)", "layout=1 (batch first)"),
        (10, "y = Pad <pads = [0, 0, 0, 1, 0, 0, 0, 0]> (x)", None),
        (10, "y = Pad <pads = [0, 0, 0, -1, 0, 0, 0, 0]> (x)", "negative pads"),
        (16, "y = ScatterElements <reduction = 'none'> (x, index, x)", None),
        (16, "y = ScatterElements <reduction = 'add'> (x, index, x)", "reduction=add"),
        (15, "y = BatchNormalization <training_mode = 0> (x, few, few, few, few)", None),
        (
            15,
            "y = BatchNormalization <training_mode = 1> (x, few, few, few, few)",
            "training_mode=1",
        ),
        (15, "y = BatchNormalization (x, half, half, few, few)", "inputs of different types"),
    ],
)
def test_at_other_opsets(opset: int, body: str, reason: str | None) -> None:
    assert reason_of(body, opset) == reason


def test_a_slice_takes_five_inputs_at_most() -> None:
    answer = reason_of("y = Slice (x, n, n, n, n, n)")
    assert answer == "6 inputs, more than 5"


def test_what_is_a_parameter_of_a_function_counts_as_granted() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 10]> m (float[2, 2] x) => (y) { y = Pad (x) }'
    )
    (node,) = model.graph
    node.attributes["pads"] = ir.RefAttr("pads", "p", ir.AttributeType.INTS)
    kernel = kernel_at("Pad", "", 10)
    assert kernel is not None
    assert attr_ints(node, "pads") is None
    assert refusal_reason(node, kernel, shapes_of(model)) is None
