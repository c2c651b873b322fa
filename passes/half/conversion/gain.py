"""Whether float16 saves anything: in the weights, in the computation, or in neither."""

from collections.abc import Iterator

import onnx_ir as ir

from graphfix.core import Skip
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import bodies_of

from .constants import constants_of, is_constant
from .float32_nodes import Float32Nodes
from .number_kinds import ELEMENTWISE

# With less than this of the nodes, and of the weights, the Casts are dearer than what is gained.
_LEAST = 0.1
_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
# They compute with what is quantized.
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
_MAX_REASONS = 5


def is_worth_converting(wide: Float32Nodes, *, least: float = _LEAST) -> bool:
    """Return whether more than a share of the nodes, or of the weights, would become float16.

    What is float16 already counts as unchanged: an export that was converted before has nearly
    nothing left to save.
    """
    nodes = [x for x in wide.nodes if not is_op(x, "Constant", "Cast", "Shape", "Size")]
    floats = [x for x in nodes if wide.uses_float32(x)]
    halves = [x for x in nodes if any(wide.types.dtype_of(v) in _HALVES for v in x.outputs)]
    total = len({*floats, *halves})
    converted = [x for x in floats if x not in wide.reasons and not bodies_of(x)]
    weights = stored = 0
    for value, tensor in constants_of(wide.view.model.graph):
        if tensor.dtype == ir.DataType.FLOAT and tensor.size > 1:
            stored += tensor.size
            weights += tensor.size * wide.becomes_half(value, tensor.size)
        elif tensor.dtype in _HALVES:
            stored += tensor.size
    if not weights and all(is_op(x, *ELEMENTWISE) for x in converted):
        return False
    return len(converted) > least * total or weights > least * stored


def is_quantized(wide: Float32Nodes) -> bool:
    """Return whether a model computes in int8 and has most of its weights in int8.

    A number rounded to float16 before it is quantized may land on another step, which turns the
    error of float16 into one of int8. Quantized weights of float operators are no obstacle.
    """
    if not any(x.op_type in _IN_INT8 or _computes_quantized(x) for x in wide.nodes):
        return False
    quantized = floats = 0
    for value, tensor in constants_of(wide.view.model.graph):
        quantized += tensor.size * (tensor.dtype in _QUANTIZED)
        floats += tensor.size * (tensor.dtype == ir.DataType.FLOAT and bool(value.uses()))
    return quantized > floats


def _computes_quantized(node: ir.Node) -> bool:
    """Return whether a node stands for one that computes with quantized numbers."""
    is_computed = is_op(node, "DequantizeLinear") and not is_constant(node.inputs[0])
    return is_computed and bool(node.outputs[0].uses())


def explain_no_gain(wide: Float32Nodes) -> Iterator[Skip]:
    """Yield why a model in float32 is not converted."""
    float32_nodes = [x for x in wide.nodes if x in wide.reasons]
    if float32_nodes and not any(
        wide.types.dtype_of(x) in _HALVES for n in wide.nodes for x in n.outputs
    ):
        reasons = dict.fromkeys(wide.reasons[x] for x in float32_nodes)
        first = [IN_INT8] if IN_INT8 in reasons else []
        shown_reasons = "; ".join([*dict.fromkeys([*first, *reasons])][:_MAX_REASONS])
        yield Skip(float32_nodes[0], f"float16 gains nothing here, left as it is: {shown_reasons}")
