"""A node as it stands: its operator, its inputs, its attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

import onnx_ir as ir


def is_op(node: ir.Node | None, *op_types: str) -> TypeGuard[ir.Node]:
    """Return whether ``node`` is one of ``op_types`` of the standard ONNX domain."""
    if node is None or node.op_type not in op_types:
        return False
    domain = node.domain
    return not domain or domain == "ai.onnx"


def producer_of(value: ir.Value | None, *through: str) -> ir.Node | None:
    """Return the node that makes ``value``, behind nodes of the types ``through``, or None."""
    source = value_before(value, *through) if through else value
    return None if source is None else source.producer()


def value_before(value: ir.Value | None, *op_types: str) -> ir.Value | None:
    """Return the value before all nodes of these types, following each first input."""
    while value is not None and is_op(node := value.producer(), *op_types):
        value = node.inputs[0]
    return value


def use_count(value: ir.Value) -> int:
    """Return how many node inputs read ``value``.

    ``value.uses()`` copies them all: 20,000 of a mask, for each of 20,000 nodes that read it.
    """
    return len(value._uses)


def tensor_of_attr(attribute: ir.Attr) -> ir.TensorProtocol:
    """Return the tensor of an attribute of type TENSOR.

    ``Attr.as_tensor`` checks a runtime protocol, which takes 0.1 ms each time on Python 3.11: in a
    model of 9,000 nodes that was a third of all the work.
    """
    tensor: ir.TensorProtocol = attribute.value
    return tensor


def tensor_attributes(node: ir.Node) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """Yield the name and tensor of each TENSOR attribute; they may be replaced meanwhile."""
    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
            yield name, tensor_of_attr(attribute)


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """Return an input of ``node``; None if it is absent."""
    return node.inputs[index] if index < len(node.inputs) else None


def attr_int(node: ir.Node, name: str, default: int) -> int:
    """Return an integer attribute, or ``default`` where it is absent or a function's parameter."""
    attribute = node.attributes.get(name)
    return default if attribute is None or attribute.is_ref() else attribute.as_int()


def attr_float(node: ir.Node, name: str, default: float) -> float:
    """Return a float attribute, or ``default`` where it is absent or a function's parameter."""
    attribute = node.attributes.get(name)
    return default if attribute is None or attribute.is_ref() else attribute.as_float()


def attr_text(node: ir.Node, name: str, default: str) -> str:
    """Return a text attribute, or ``default`` where it is absent or a function's parameter."""
    attribute = node.attributes.get(name)
    return default if attribute is None or attribute.is_ref() else attribute.as_string()


def attr_ints(node: ir.Node, name: str) -> tuple[int, ...] | None:
    """Return an attribute that is a list of integers, or None where it is absent."""
    attribute = node.attributes.get(name)
    return None if attribute is None or attribute.is_ref() else tuple(attribute.as_ints())
