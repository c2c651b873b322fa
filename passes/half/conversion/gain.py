"""Whether a model gains anything by float16: its weights, what it computes, or neither."""

from collections.abc import Iterator

import onnx_ir as ir

from graphfix.core import Skip
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import bodies_of

from .constants import constants_of, is_constant
from .float32_nodes import Wide
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
_NAMED = 5


def gains(wide: Wide, *, least: float = _LEAST) -> bool:
    """Whether more than a share of the nodes, or of the weights, would become float16.

    What is float16 already counts as what does not change: of a model that was converted, or was
    exported so, nearly nothing is left to gain.
    """
    nodes = [x for x in wide.nodes if not is_op(x, "Constant", "Cast", "Shape", "Size")]
    floats = [x for x in nodes if wide.touches(x)]
    halves = [x for x in nodes if any(wide.types.of(v) in _HALVES for v in x.outputs)]
    total = len({*floats, *halves})
    change = [x for x in floats if x not in wide.reasons and not bodies_of(x)]
    weights = held = 0
    for value, tensor in constants_of(wide.view.model.graph):
        if tensor.dtype == ir.DataType.FLOAT and tensor.size > 1:
            held += tensor.size
            weights += tensor.size * wide.narrows(value, tensor.size)
        elif tensor.dtype in _HALVES:
            held += tensor.size
    if not weights and all(is_op(x, *ELEMENTWISE) for x in change):
        return False
    return len(change) > least * total or weights > least * held


def is_quantized(wide: Wide) -> bool:
    """Whether a model computes in int8, and has most of its weights so.

    A quantized tensor goes in steps: rounded before it is quantized, a number may land on another
    step, and the error of float16 becomes one of int8. Quantized weights of what computes in floats
    are no hindrance.
    """
    if not any(x.op_type in _IN_INT8 or _takes_quantized(x) for x in wide.nodes):
        return False
    quantized = floats = 0
    for value, tensor in constants_of(wide.view.model.graph):
        quantized += tensor.size * (tensor.dtype in _QUANTIZED)
        floats += tensor.size * (tensor.dtype == ir.DataType.FLOAT and bool(value.uses()))
    return quantized > floats


def _takes_quantized(node: ir.Node) -> bool:
    """Whether a node stands for one that computes with quantized numbers."""
    made = is_op(node, "DequantizeLinear") and not is_constant(node.inputs[0])
    return made and bool(node.outputs[0].uses())


def gains_nothing(wide: Wide) -> Iterator[Skip]:
    """Why a model in float32 is left as it is."""
    stay = [x for x in wide.nodes if x in wide.reasons]
    if stay and not any(wide.types.of(x) in _HALVES for n in wide.nodes for x in n.outputs):
        reasons = dict.fromkeys(wide.reasons[x] for x in stay)
        first = [IN_INT8] if IN_INT8 in reasons else []
        told = "; ".join([*dict.fromkeys([*first, *reasons])][:_NAMED])
        yield Skip(stay[0], f"float16 gains nothing here, left as it is: {told}")
