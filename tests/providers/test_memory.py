"""How much memory a run takes where all sizes are known."""

from __future__ import annotations

from math import prod

import onnx_ir as ir
import pytest

import graphfix
from graphfix.graph.dims import static_dims
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


def plan_of(text: str, **dims: int) -> graphfix.ProviderPlan:
    head = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]> m '
    return graphfix.plan(ir.from_onnx_text(head + text), dims=dims or None)


def direct(text: str) -> tuple[int, str, int]:
    """What the graph takes as it is written, without ONNX Runtime's optimizations."""
    graph = ir.from_onnx_text('<ir_version: 8, opset_import: ["" : 17]> m ' + text).graph
    found = peak_memory_of([*graph], graph.inputs)
    assert found is not None
    return found.size, found.largest, found.unknown


def test_another_shape_of_a_tensor_takes_no_memory_of_its_own() -> None:
    body = """(float[1024, 256] x) => (float[262144] y) <int64[1] flat = {-1}, float[262144] a,
        float[1024, 256] s> { s = Sin (x) a = Reshape (s, flat) y = Cos (a) }"""
    assert direct(body)[0] == 3 * MIB  # x, s and y
    body = body.replace("y = Cos (a)", "y = Identity (a)")
    assert direct(body)[0] == 2 * MIB


def test_a_tensor_stays_while_one_of_its_other_shapes_is_read() -> None:
    body = """(float[256] x, float[256] z) => (float[262144] y, float[262144] w)
        <int64[1] flat = {-1}, int64[2] size = {1024, 256}, float[1024, 256] s, float[262144] a,
         float[262144] b> {
        s = Expand (x, size) a = Reshape (s, flat) b = Sin (a) w = Cos (b) y = Add (a, w) }"""
    assert direct(body)[0] == 3 * MIB + 2 * 1024  # s as a, b and w; then a, w and y


def test_what_a_body_reads_and_makes_is_there_while_it_runs() -> None:
    body = """(bool c, float[1024, 256] x) => (float[1024, 256] y) <float[1024, 256] a> {
        a = Sin (x)
        y = If (c) <
            then_branch = t () => (float[1024, 256] p) <float[1024, 256] o>
                { o = Cos (a) p = Tan (o) },
            else_branch = e () => (float[1024, 256] q) { q = Cos (x) }> }"""
    # x, a and y; in the one branch o and p, in the other q.
    assert direct(body)[0] == 6 * MIB + 1


def test_a_size_that_is_not_known_is_told() -> None:
    text = "(float[64] x) => (int64[1, K] y) { n = NonZero (x) y = Identity (n) }"
    found = plan_of(text).memory
    assert found is not None
    assert found.unknown == 1
    assert found.line.endswith("; 1 tensor of unknown size not counted")


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (
            "(float[2, 8, 100, 16] q) => (float[2, 8, 100, 16] y) { y = Attention (q, q, q) }",
            2 * 8 * 100 * 100 * 4,
        ),
        (
            "(float[2, 100, 64] q, float[2, 30, 64] k) => (float[2, 100, 64] y) "
            "{ y = Attention <q_num_heads = 4, kv_num_heads = 4> (q, k, k) }",
            2 * 4 * 100 * 30 * 4,
        ),
        (
            "(float16[1, 100, 4, 3, 16] q) => (float16[1, 100, 64] y) "
            "{ y = com.microsoft.MultiHeadAttention <num_heads = 4> (q) }",
            4 * 100 * 100 * 2,
        ),
        (
            "(float[1, 10, 64] q, float[1, 4, 90, 16] p) => (float[1, 10, 64] y) "
            "{ y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, q, q, , , , p, p) }",
            4 * 10 * 100 * 4,
        ),
    ],
    ids=["four dims", "three dims", "packed", "past"],
)
def test_scores_of_every_layout(text: str, scores: int) -> None:
    head = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]> m '
    graph = ir.from_onnx_text(head + text).graph
    found = peak_memory_of([*graph], graph.inputs)
    assert found is not None
    others = sum(
        prod(static_dims(x.shape) or ()) * x.dtype.itemsize
        for x in (*graph.inputs, *graph.outputs)
        if x.dtype is not None
    )
    assert found.size - others == scores


def test_the_plan_has_a_line_and_a_note_of_gigabytes() -> None:
    small = plan_of("(float[N, 256] x) => (float[N, 256] y) { y = Sin (x) }", N=1024)
    rows = {x.label: x.text for x in small.rows()}
    assert (
        rows["memory"]
        == "an estimated 2.0 MiB of tensors at 'Sin of y', of which 'x' takes 1.0 MiB"
    )
    assert small.to_json()["memory"]["size"] == 2 * MIB
    large = plan_of("(float[N, 256] x) => (float[N, 256] y) { y = Sin (x) }", N=1 << 20)
    assert "memory" not in {x.label for x in large.rows()}
    (note,) = (x.text for x in large.rows() if x.label == "note")
    assert note.startswith(
        "an estimated 2.0 GiB of tensors at 'Sin of y', of which 'x' takes 1.0 GiB:"
    )
    unknown = plan_of("(float[N, 256] x) => (float[N, 256] y) { y = Sin (x) }")
    assert "memory" not in {x.label for x in unknown.rows()}
    assert unknown.to_json()["memory"] is None
