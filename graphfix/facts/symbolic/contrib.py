"""Shape rules for operators of com.microsoft that onnx_shape_inference lacks.

Outputs are as ONNX Runtime's schemas say (docs/ContribOperators.md).
"""

from collections.abc import Sequence

import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext as Context
from onnx_shape_inference import registry

from graphfix.facts.symbolic.expressions import Dim, dim_of, expr_of
from graphfix.facts.symbolic.inferred import Facts
from graphfix.facts.symbolic.layout import set_shape
from graphfix.graph.nodes import attr_int, input_at

DOMAIN = "com.microsoft"
_PAST_LENGTH = 8


def register_contrib_rules() -> None:
    """Register the rules; :func:`graphfix.facts.symbolic.overrides.register_rules` calls this."""
    registry.register(DOMAIN, "MultiHeadAttention", 1)(_infer_multi_head_attention)
    for op_type in ("QuantizeLinear", "DequantizeLinear"):  # the same, for other types
        rule = registry.get("", op_type, 10)
        if rule is not None:
            registry.register(DOMAIN, op_type, 1)(rule)
    lstm = registry.get("", "LSTM", 14)
    if lstm is not None:  # its weights are stored otherwise, which no shape is taken from
        registry.register(DOMAIN, "DynamicQuantizeLSTM", 1)(lstm)


def infer_group_query_attention(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer the length of the caches that a GroupQueryAttention gives back.

    It is the total length that an input says, or that of the past where this is longer: a buffer
    with room, which present and past share. The library adds the new tokens to the past.
    """
    if attr_int(node, "sliding_window_cache", 0):
        return
    total, past_dims = _single_element(facts, ctx, input_at(node, 6)), _known_dims(node, 3)
    past = None if past_dims is None or len(past_dims) != 4 else expr_of(past_dims[2])
    length = facts.new_unknown(ctx)
    if total is not None and input_at(node, 3) is None:
        length = total
    elif total is not None and past is not None:
        is_shorter = facts.is_at_least(ctx, total - past, 0)
        length = total if is_shorter else sympy.Max(past, total)
    for present in node.outputs[1:3]:
        if present.shape is not None and len(present.shape) == 4:
            set_shape(present, [*present.shape[:2], dim_of(length), present.shape[3]])


def _single_element(facts: Facts, ctx: Context, value: ir.Value | None) -> sympy.Expr | None:
    """Return the one integer that a value holds, in sizes of the inputs; None if unknown."""
    contents = facts.read_contents(ctx, value)
    return contents.item() if contents is not None and contents.size == 1 else None


def _infer_multi_head_attention(ctx: Context, node: ir.Node) -> None:
    """Infer the output and present keys and values, which may come with heads and a past."""
    query, key, value, past = (_known_dims(node, i) for i in (0, 1, 2, 6))
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    heads = attr_int(node, "num_heads", 0)
    if query is None or dtype is None or heads < 1:
        return
    if len(query) == 3 and key is not None and value is not None:
        if len(key) == 4:
            width, keys = dim_of(expr_of(value[1]) * expr_of(value[3])), key[2]
        elif len(value) == 3:
            width, keys = value[2], key[1]
        else:
            return
        ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([query[0], query[1], width]), dtype)
        if input_at(node, _PAST_LENGTH) is not None:
            keys = ctx.new_symbolic_dim()  # the past is a buffer with room, which present shares
        elif past is not None and len(past) == 4:
            keys = dim_of(expr_of(past[2]) + expr_of(keys))
        for present, size in zip(node.outputs[1:3], (query[2], width), strict=False):
            head_size = dim_of(expr_of(size) / heads)
            ctx.set_shape_and_dtype(present, ir.Shape([query[0], heads, keys, head_size]), dtype)


def _known_dims(node: ir.Node, index: int) -> Sequence[Dim] | None:
    value = input_at(node, index)
    if value is None or value.shape is None:
        return None
    dims = list(value.shape)
    return dims if all(isinstance(x, int) or x.value is not None for x in dims) else None
