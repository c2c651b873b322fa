"""Whether float16 saves anything: in the weights, in the computation, or in neither."""

from collections.abc import Iterator

import onnx_ir as ir

from graphfix import ops
from graphfix.core import Skip
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import bodies_of

from .constants import constants_of, is_constant
from .float32_nodes import Float32Nodes
from .number_kinds import COMPUTES_LITTLE

# With less than this of the nodes, and of the weights, the Casts are dearer than what is gained.
_MIN_SHARE = 0.1
_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_QUANTIZED = frozenset(
    {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4}
    | {ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2}
)
IN_INT8 = "it computes in int8, and what is rounded lands on another step"
"""Why a quantized model stays."""

# How many reasons a message names.
_MAX_REASONS = 5


def is_worth_converting(kept_nodes: Float32Nodes, *, min_share: float = _MIN_SHARE) -> bool:
    """Return whether more than a share of the nodes, or of the weights, would become float16.

    What is float16 already counts as unchanged: an export that was converted before has nearly
    nothing left to save.
    """
    nodes = [
        x for x in kept_nodes.nodes if not is_op(x, "Constant", "Cast") and x not in ops.MEASURES
    ]
    floats = [x for x in nodes if kept_nodes.uses_float32(x)]
    halves = [x for x in nodes if _makes_half(kept_nodes, x)]
    converted = [x for x in floats if x not in kept_nodes.reasons and not bodies_of(x)]
    converted_weights, weights = _count_weights(kept_nodes)
    if not converted_weights and all(x in COMPUTES_LITTLE for x in converted):
        return False
    is_most_nodes = len(converted) > min_share * len({*floats, *halves})
    return is_most_nodes or converted_weights > min_share * weights


def _count_weights(kept_nodes: Float32Nodes) -> tuple[int, int]:
    """Return how many elements of weights would become float16, and how many there are."""
    converted = total = 0
    for value, tensor in constants_of(kept_nodes.view.model.graph):
        if tensor.dtype == ir.DataType.FLOAT and tensor.size > 1:
            total += tensor.size
            converted += tensor.size * kept_nodes.becomes_half(value, tensor.size)
        elif tensor.dtype in _HALVES:
            total += tensor.size
    return converted, total


def is_quantized(kept_nodes: Float32Nodes) -> bool:
    """Return whether a model computes in int8 and has most of its weights in int8.

    A number rounded to float16 before it is quantized may land on another step, which turns the
    error of float16 into one of int8. Quantized weights of float operators are no obstacle.
    """
    if not any(x in ops.COMPUTES_QUANTIZED or _computes_quantized(x) for x in kept_nodes.nodes):
        return False
    quantized = floats = 0
    for value, tensor in constants_of(kept_nodes.view.model.graph):
        quantized += tensor.size * (tensor.dtype in _QUANTIZED)
        floats += tensor.size * (tensor.dtype == ir.DataType.FLOAT and bool(value.uses()))
    return quantized > floats


def _computes_quantized(node: ir.Node) -> bool:
    """Return whether a node stands for one that computes with quantized numbers."""
    is_computed = is_op(node, "DequantizeLinear") and not is_constant(node.inputs[0])
    return is_computed and bool(node.outputs[0].uses())


def explain_no_gain(kept_nodes: Float32Nodes) -> Iterator[Skip]:
    """Yield why a model in float32 is not converted."""
    float32_nodes = [x for x in kept_nodes.nodes if x in kept_nodes.reasons]
    if float32_nodes and not any(_makes_half(kept_nodes, x) for x in kept_nodes.nodes):
        reasons = dict.fromkeys(kept_nodes.reasons[x] for x in float32_nodes)
        first = [IN_INT8] if IN_INT8 in reasons else []
        shown_reasons = "; ".join([*dict.fromkeys([*first, *reasons])][:_MAX_REASONS])
        yield Skip(float32_nodes[0], f"float16 gains nothing here, left as it is: {shown_reasons}")


def _makes_half(kept_nodes: Float32Nodes, node: ir.Node) -> bool:
    """Return whether a node makes float16 or bfloat16 in the export."""
    return any(kept_nodes.types.dtype_of(x) in _HALVES for x in node.outputs)
