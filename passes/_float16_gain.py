"""Whether a model gains anything by float16: its weights, what it computes, or neither."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.core import Skip
from graphfix.model.values import is_op

from ._float16_constants import constants_of, is_constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._float16_wide import Wide

# Without a weight these are no gain.
_ELEMENTWISE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Identity", "Clip"}
    | {"Min", "Max", "Where", "Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"}
    | {"Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Slice", "Concat"}
    | {"Floor", "Ceil", "Round", "Gather", "Tile", "Split", "Pad", "IsNaN", "IsInf"}
)
# With less than this of the nodes, and of the weights, the Casts are dearer than what is gained.
_LEAST = 0.1
# They take weights and what was computed as whole numbers.
_IN_INT8 = frozenset(
    {"MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv", "QGemm", "QAttention"}
    | {"MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"}
)
_QUANTIZED = frozenset(
    {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4}
    | {ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2}
)
IN_INT8 = "it computes in int8, and what is rounded lands on another step"
"""Why a quantized model stays."""

# So many reasons are told.
_NAMED = 5


def is_done(wide: Wide) -> bool:
    """Whether there is nothing to gain: what computes is float16 already, or is to stay.

    Steps element by element without a weight are no gain: the Casts would be dearer.
    """
    for node in wide.nodes:
        if node in wide.reasons or not wide.touches(node) or is_op(node, "Shape", "Size", "Cast"):
            continue
        if is_op(node, "Constant", *_ELEMENTWISE) and not _has_weight(node):
            continue
        return False
    return not any(
        tensor.dtype == ir.DataType.FLOAT and tensor.size > 1 and not wide.all_wide(value)
        for value, tensor in constants_of(wide.view.model.graph)
    )


def is_little(wide: Wide) -> bool:
    """Whether nearly all of a model in float32 stays."""
    floats = [x for x in wide.nodes if wide.touches(x) and not is_op(x, "Constant")]
    change = sum(x not in wide.reasons for x in floats)
    held = [
        (tensor.size, not wide.all_wide(value) or wide.stored(value))
        for value, tensor in constants_of(wide.view.model.graph)
        if wide.types.is_float(value)
    ]
    total = sum(size for size, _ in held)
    weights = sum(size for size, changes in held if changes)
    return change < _LEAST * len(floats) and weights < _LEAST * max(total, 1)


def is_quantized(wide: Wide) -> bool:
    """Whether most weights of a model meet what is quantized as they are, and int8 computes.

    A quantized tensor goes in steps: rounded before it is quantized, a number may land on another
    step, and the error of float16 becomes one of int8. Quantized weights of what computes in floats
    are no hindrance.
    """
    sizes = {True: 0, False: 0}
    for value, tensor in constants_of(wide.view.model.graph):
        if tensor.dtype in _QUANTIZED:
            sizes[True] += tensor.size if _meets_quantized(value) else 0
        elif tensor.dtype == ir.DataType.FLOAT and value.uses():
            sizes[False] += tensor.size
    return sizes[True] > sizes[False]


def _meets_quantized(weight: ir.Value) -> bool:
    """Whether a weight is multiplied by whole numbers: as it is, or through a pair around it."""
    for use in weight.uses():
        node = use.node
        if node.op_type in _IN_INT8:
            return True
        if not is_op(node, "DequantizeLinear", "Transpose", "Reshape"):
            continue
        made = node.outputs[0]
        if _meets_quantized(made) or any(
            _was_quantized(x) for after in made.uses() for x in after.node.inputs if x is not made
        ):
            return True
    return False


def _was_quantized(value: ir.Value | None) -> bool:
    maker = value.producer() if value is not None else None
    if maker is None or not is_op(maker, "DequantizeLinear"):
        return False
    return not is_constant(maker.inputs[0])


def gains_nothing(wide: Wide) -> Iterator[Skip]:
    """Why a model in float32 is left as it is."""
    stay = [x for x in wide.nodes if x in wide.reasons]
    halves = any(
        wide.types.of(x) == ir.DataType.FLOAT16 for node in wide.nodes for x in node.outputs
    )
    if stay and not halves:
        reasons = dict.fromkeys(wide.reasons[x] for x in stay)
        first = [IN_INT8] if IN_INT8 in reasons else []
        told = "; ".join([*dict.fromkeys([*first, *reasons])][:_NAMED])
        yield Skip(stay[0], f"float16 gains nothing here, left as it is: {told}")


def _has_weight(node: ir.Node) -> bool:
    return any(
        x is not None and x.const_value is not None and x.const_value.size > 1 for x in node.inputs
    )
