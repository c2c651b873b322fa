"""The shapes of what operators of com.microsoft make: onnx_shape_inference has none of them.

Outputs are as ONNX Runtime's schemas say (docs/ContribOperators.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_shape_inference import registry

from graphfix.model.symbolic.exprs import dim_of, expr_of
from graphfix.model.values import attr_int, attr_ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx_shape_inference import ShapeInferenceContext as Context

    from graphfix.model.symbolic.exprs import Dim

DOMAIN = "com.microsoft"

# What comes out is as large as the first input.
_LIKE_FIRST = (
    *("Gelu", "BiasGelu", "FastGelu", "QuickGelu", "BiasAdd", "RotaryEmbedding"),
    *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
)


def register() -> None:
    """Add the rules to the registry; :func:`graphfix.model.symbolic.rules.register` calls this."""
    for op_type in _LIKE_FIRST:
        registry.register(DOMAIN, op_type, 1)(_like_first)
    registry.register(DOMAIN, "MultiHeadAttention", 1)(_multi_head_attention)
    registry.register(DOMAIN, "Attention", 1)(_attention)
    registry.register(DOMAIN, "QuantizeLinear", 1)(_quantize)
    registry.register(DOMAIN, "DequantizeLinear", 1)(_quantize)


def _like_first(ctx: Context, node: ir.Node) -> None:
    source = node.inputs[0]
    if source is None or source.dtype is None:
        return
    ctx.set_shape_and_dtype(node.outputs[0], source.shape, source.dtype)
    # The fourth is the sum before the normalisation; the two before it are not used.
    if node.op_type.startswith("Skip") and len(node.outputs) == 4:
        ctx.set_shape_and_dtype(node.outputs[3], source.shape, source.dtype)


def _quantize(ctx: Context, node: ir.Node) -> None:
    """Integers are of the type of their zero points, uint8 without; floats of that of the scale."""
    source, floats = node.inputs[0], node.op_type == "DequantizeLinear"
    like = next(iter(node.inputs[1 if floats else 2 :]), None)
    unsaid = None if floats else ir.DataType.UINT8
    dtype = unsaid if like is None else like.dtype
    if source is not None and dtype is not None:
        ctx.set_shape_and_dtype(node.outputs[0], source.shape, dtype)


def _multi_head_attention(ctx: Context, node: ir.Node) -> None:
    query, key, value, past = (_dims(node, i) for i in (0, 1, 2, 6))
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    heads = attr_int(node, "num_heads", 0)
    if query is None or dtype is None or heads < 1:
        return
    if len(query) == 3 and key is not None and value is not None:
        if len(key) == 4:
            width, keys = _product(value[1], value[3]), key[2]
        elif len(value) == 3:
            width, keys = value[2], key[1]
        else:
            return
        ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([query[0], query[1], width]), dtype)
        if past is not None and len(past) == 4:
            keys = dim_of(expr_of(past[2]) + expr_of(keys))
        for present, size in zip(node.outputs[1:3], (query[2], width), strict=False):
            each = dim_of(expr_of(size) / heads)
            ctx.set_shape_and_dtype(present, ir.Shape([query[0], heads, keys, each]), dtype)


def _attention(ctx: Context, node: ir.Node) -> None:
    data, weights = _dims(node, 0), _dims(node, 1)
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    if data is None or weights is None or dtype is None or len(data) != 3 or len(weights) != 2:
        return
    widths = attr_ints(node, "qkv_hidden_sizes")
    width = dim_of(expr_of(weights[1]) / 3) if widths is None else widths[-1]
    ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([data[0], data[1], width]), dtype)


def _dims(node: ir.Node, index: int) -> Sequence[Dim] | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or value.shape is None:
        return None
    dims = list(value.shape)
    return dims if all(isinstance(x, int) or x.value is not None for x in dims) else None


def _product(a: Dim, b: Dim) -> Dim:
    return dim_of(expr_of(a) * expr_of(b))
