"""Small parameters that ONNX Runtime computes when it loads a model, as numbers."""

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from graphfix import ops
from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of

# More channels than any model has; a larger tensor is a weight, which no pass reads.
_LIMIT = 16_384
_DEPTH = 8
_COMPUTES = ops.ELEMENTWISE | ops.MOVES_ELEMENTS


def parameter_of(value: ir.Value | None, view: View, depth: int = _DEPTH) -> Array | None:
    """Return the array of a parameter: stored, or computed of stored ones element by element.

    TorchScript leaves the exponential and the reciprocal of a frequency to the runtime.

    Args:
        value: The parameter, of at most 16,384 elements.
        view: The model.
        depth: How many nodes in a row may compute it.
    """
    array = const_of(value, _LIMIT)
    if array is not None or value is None:
        return array
    node = value.producer()
    if node is None or not depth or node not in _COMPUTES or value not in view.constant_values:
        return None
    operands = {x.name or "": parameter_of(x, view, depth - 1) for x in node.inputs if x}
    feeds = {name: operand for name, operand in operands.items() if operand is not None}
    if len(feeds) < len(operands) or len(node.outputs) > 1:
        return None
    try:
        evaluator = ReferenceEvaluator(ir.to_proto(node), opsets={"": view.opset_of_node(node)})
        with np.errstate(all="ignore"):
            (result,) = evaluator.run(None, feeds)
    except Exception:  # it fails where the model is loaded, too
        return None
    return result if isinstance(result, np.ndarray) and result.size <= _LIMIT else None
