"""The constants of a model: initializers, weights among its inputs, Constant nodes."""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from graphfix.graph.nodes import is_op, tensor_in
from graphfix.graph.walks import bodies_of

# Constants with more elements than this are weights.
WEIGHT = 1024


def constants_of(graph: ir.Graph) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    """Every constant of a graph and of those inside it, in the order of the graph.

    An initializer that is an input too is one where it is a weight: nobody gives those.
    """
    for value in graph.initializers.values():
        if value.const_value is not None and is_constant(value):
            yield value, value.const_value
    for node in graph:
        if is_op(node, "Constant"):
            tensor = constant_in(node)
            if tensor is not None:
                yield node.outputs[0], tensor
        elif is_op(node, "ConstantOfShape"):
            attribute = node.attributes.get("value")
            if attribute is not None and not attribute.is_ref():
                yield node.outputs[0], tensor_in(attribute)
        for body in bodies_of(node):
            yield from constants_of(body)


def constant_in(node: ir.Node) -> ir.TensorProtocol | None:
    """The float32 of a Constant node, however it says it."""
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            return None
        if name == "value_float":
            return ir.tensor(np.array(attribute.as_float(), np.float32))
        if name == "value_floats":
            return ir.tensor(np.array(attribute.as_floats(), np.float32))
        if attribute.type == ir.AttributeType.TENSOR:
            return tensor_in(attribute)
    return None


def is_constant(value: ir.Value | None) -> bool:
    """Whether a value is known without an input."""
    if value is None:
        return False
    if is_op(value.producer(), "Constant"):
        return True
    if value.const_value is None or not value.is_initializer():
        return False
    return not value.is_graph_input() or is_given_weight(value)


def is_given_weight(value: ir.Value) -> bool:
    """Whether an input that has a value of its own is a weight, and no setting of a caller's."""
    return value.is_graph_input() and _is_weight(value.const_value)


def has_weights(node: ir.Node) -> bool:
    """Whether a node takes a constant that is a weight."""
    return any(x is not None and _is_weight(x.const_value) for x in node.inputs)


def _is_weight(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and len(tensor.shape) > 1 and tensor.size > WEIGHT
