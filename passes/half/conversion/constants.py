"""The constants of a model: initializers, weights among its inputs, Constant nodes."""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from graphfix.graph.nodes import is_op, tensor_of_attr
from graphfix.graph.walks import bodies_of

# Constants with more elements than this are weights.
WEIGHT = 1024


def constants_of(graph: ir.Graph) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    """Yield every constant of a graph and of its subgraphs, in graph order.

    An initializer that is also an input counts if it is a weight, which callers do not feed.
    """
    for value in graph.initializers.values():
        if value.const_value is not None and is_constant(value):
            yield value, value.const_value
    for node in graph:
        if is_op(node, "Constant"):
            tensor = tensor_of_constant(node)
            if tensor is not None:
                yield node.outputs[0], tensor
        elif is_op(node, "ConstantOfShape"):
            attribute = node.attributes.get("value")
            if attribute is not None and not attribute.is_ref():
                yield node.outputs[0], tensor_of_attr(attribute)
        for body in bodies_of(node):
            yield from constants_of(body)


def tensor_of_constant(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the tensor of a Constant node, whichever attribute holds it, or None."""
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            return None
        if name == "value_float":
            return ir.tensor(np.array(attribute.as_float(), np.float32))
        if name == "value_floats":
            return ir.tensor(np.array(attribute.as_floats(), np.float32))
        if attribute.type == ir.AttributeType.TENSOR:
            return tensor_of_attr(attribute)
    return None


def is_constant(value: ir.Value | None) -> bool:
    """Return whether a value is known without feeds."""
    if value is None:
        return False
    if is_op(value.producer(), "Constant"):
        return True
    if value.const_value is None or not value.is_initializer():
        return False
    return not value.is_graph_input() or is_weight_input(value)


def is_weight_input(value: ir.Value) -> bool:
    """Return whether an input with a default is a weight rather than a setting."""
    return value.is_graph_input() and _is_weight(value.const_value)


def has_weights(node: ir.Node) -> bool:
    """Return whether an input of a node is a constant weight."""
    return any(x is not None and _is_weight(x.const_value) for x in node.inputs)


def _is_weight(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and len(tensor.shape) > 1 and tensor.size > WEIGHT
