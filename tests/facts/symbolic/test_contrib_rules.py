"""Shape rules of com.microsoft's attentions, each alone."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx_shape_inference import ShapeInferenceContext, registry

from graphfix.facts.symbolic import contrib
from graphfix.facts.symbolic.inferred import Facts
from tests.facts.symbolic.bodies import apply_rule, keys

INPUTS = """float[B, T, 32] q, float[B, S, 32] k, float[B, S, 48] v, float[B, 4, S, 8] kh,
    float[B, 4, S, 12] vh, float[B, T, 4, 3, 8] packed, float[] any, float[B, 4, P, 8] pk,
    float[B, 4, P, 12] pv, int32[1] n, float[B, P, 8] flat, int64 total, float[B, ?, 32] loose"""
MHA = "com.microsoft.MultiHeadAttention <num_heads = 4>"


def present_dims(
    node: str, *, heads: int = 4
) -> tuple[list[int | str | None] | None, list[list[int | str | None] | None]]:
    """Return the dims of y, and those of what is kept of keys and values."""
    nodes: list[ir.Node] = []

    def rule(_: Facts, ctx: ShapeInferenceContext, node: ir.Node) -> None:
        nodes.append(node)
        contrib._infer_multi_head_attention(ctx, node)

    text = node.replace("num_heads = 4", f"num_heads = {heads}")
    dims, _ = apply_rule(
        rule, text, INPUTS.replace("float[B, ?, 32] loose", "float[B, L, 32] loose")
    )
    kept = [x.shape for x in nodes[0].outputs[1:]]
    return dims, [None if x is None else [*map(str_or_int, x)] for x in kept]


def str_or_int(dim: int | ir.SymbolicDim) -> int | str:
    return dim if isinstance(dim, int) else str(dim)


@pytest.mark.parametrize(
    ("operands", "dims"),
    [
        ("q, k, v", ["B", "T", 48]),
        ("q, kh, vh", ["B", "T", 48]),
        ("q, k, vh", None),
        ("packed", None),
        ("any, k, v", None),
        ("q, any, v", None),
        ("q, k, any", None),
    ],
)
def test_what_an_attention_gives(operands: str, dims: list[int | str] | None) -> None:
    found, _ = present_dims(f"y = {MHA} ({operands})")
    assert found == (None if dims is None else keys(*dims))
    assert present_dims(f"y = {MHA} ({operands})", heads=0)[0] is None


@pytest.mark.parametrize(
    ("operands", "length"),
    [
        ("q, k, v", "S"),
        ("q, kh, vh", "S"),
        ("q, k, v, , , , pk, pv", "P + S"),
        ("q, k, v, , , , flat, flat", "S"),
        ("q, k, v, , , , pk, pv, n", None),
    ],
)
def test_keys_and_values_that_are_kept(operands: str, length: str | None) -> None:
    _, kept = present_dims(f"y, a, b = {MHA} ({operands})")
    heads = [x and (x[0], x[1], x[3]) for x in kept]
    assert heads == [("B", 4, 8), ("B", 4, 12)]
    for dims in kept:
        assert dims is not None
        assert dims[2] == length or (length is None and dims[2] not in ("S", "P", "P + S"))
    assert present_dims(f"y, a = {MHA} ({operands})")[1] == kept[:1] or length is None


GQA = "com.microsoft.GroupQueryAttention"


@pytest.mark.parametrize(
    ("attributes", "past", "total", "length"),
    [
        ("", "pk, pv", "c9", "Max(9, P)"),
        ("", "pk, pv", "total", None),
        ("", "flat, flat", "c9", None),
        ("", ", ", "c9", 9),
        ("", ", ", "total", None),
        (", sliding_window_cache = 1", "pk, pv", "c9", "old"),
    ],
)
def test_how_long_a_cache_is(
    attributes: str, past: str, total: str, length: str | int | None
) -> None:
    nodes: list[ir.Node] = []

    def rule(facts: Facts, ctx: ShapeInferenceContext, node: ir.Node) -> None:
        nodes.append(node)
        for present, axes in zip(node.outputs[1:], (4, 3, 4), strict=True):
            present.shape = ir.Shape(["B", 4, "old", 8][:axes])
        contrib.infer_group_query_attention(facts, ctx, node)

    text = f"""c9 = Constant <value_int = 9> ()
        y, a, b, c = {GQA} <num_heads = 4, kv_num_heads = 4{attributes}>
            (q, k, k, {past}, n, {total})"""
    apply_rule(rule, text, INPUTS.replace("float[B, ?, 32] loose", "float[B, L, 32] loose"))
    first, second, third = ([str_or_int(x) for x in v.shape or ()] for v in nodes[0].outputs[1:])
    assert first[:2] + first[3:] == ["B", 4, 8]
    assert second == ["B", 4, "old"]  # no cache has three axes
    assert third == ["B", 4, "old", 8]  # it is none of the two
    if length is None:
        assert first[2] not in ("old", "P", 9)
    else:
        assert first[2] == length


def test_each_rule_is_registered_where_onnx_runtime_has_the_operator() -> None:
    contrib.register_contrib_rules()
    for name in ("MultiHeadAttention", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLSTM"):
        assert registry.get(contrib.DOMAIN, name, 1) is not None
