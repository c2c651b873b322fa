"""How much memory a run takes where all sizes are known."""

from __future__ import annotations

import onnx_ir as ir
import pytest

import graphfix
from graphfix.providers.memory import peak_memory_of

MIB = 1 << 20


def peak(body: str) -> tuple[int, str]:
    model = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 17]> m {body}')
    found = graphfix.plan(model).memory
    assert found is not None
    return found.size, found.largest


def test_what_is_needed_at_a_time() -> None:
    # x, a and b at the Add; c takes the place of nothing that is still needed.
    body = """(float[1024, 256] x, float[1024, 1] w) => (float[1, 256] y)
        { a = Sin (x) b = Cos (x) c = Add (a, b) y = ReduceMax <axes = [0]> (c) }"""
    size, _ = peak(body)
    assert size == 4 * MIB + 4 * 1024


def test_what_is_read_no_more_is_gone() -> None:
    body = "(float[1024, 256] x) => (float[1024, 256] y) { a = Sin (x) b = Cos (a) y = Tan (b) }"
    assert peak(body)[0] == 3 * MIB


def test_open_sizes_have_no_memory() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> m (float[N] x) => (float[N] y) { y = Sin (x) }'
    assert graphfix.plan(ir.from_onnx_text(text)).memory is None
    assert graphfix.plan(ir.from_onnx_text(text), dims={"N": 1024}).memory.size == 2 * 4096


@pytest.mark.parametrize(("length", "told"), [(512, False), (20000, True)])
def test_the_scores_of_an_attention(length: int, told: bool) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        m (float[1, {length}, 64] q) => (float[1, {length}, 64] y)
        {{ y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, q, q) }}"""
    plan = graphfix.plan(ir.from_onnx_text(text))
    assert plan.memory is not None
    assert plan.memory.largest == "the scores of MultiHeadAttention"
    assert plan.memory.largest_size == 4 * length * length * 4
    assert any("GiB of tensors" in x for x in plan.notes) == told


def test_an_attention_of_an_unknown_layout_is_counted_without_its_scores() -> None:
    value = ir.Value(name="x", shape=ir.Shape([2, 3]), type=ir.TensorType(ir.DataType.FLOAT))
    node = ir.node("MultiHeadAttention", [value, value, value], domain="com.microsoft",
                   attributes={"num_heads": 2})  # fmt: skip
    node.outputs[0].name = "y"
    node.outputs[0].shape, node.outputs[0].type = ir.Shape([2, 3]), value.type
    found = peak_memory_of([node], [value])
    assert found is not None
    assert found.size == 2 * 24
