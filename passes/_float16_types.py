"""The element type of every value of a model, by the signatures of the operators alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model.formals import Formals, formals_of
from graphfix.model.values import attr_int, bodies_of, is_op

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Where the type of what is made is an attribute, and what it is without that.
MADE_BY = {
    "Cast": ("to", None),
    "EyeLike": ("dtype", None),
    "RandomNormal": ("dtype", ir.DataType.FLOAT),
    "RandomUniform": ("dtype", ir.DataType.FLOAT),
    "RandomNormalLike": ("dtype", None),
    "RandomUniformLike": ("dtype", None),
    "Bernoulli": ("dtype", None),
    "Multinomial": ("dtype", ir.DataType.INT32),
    "BlackmanWindow": ("output_datatype", ir.DataType.FLOAT),
    "HannWindow": ("output_datatype", ir.DataType.FLOAT),
    "HammingWindow": ("output_datatype", ir.DataType.FLOAT),
    "MelWeightMatrix": ("output_datatype", ir.DataType.FLOAT),
}
_SEQUENCES = (
    *("SequenceConstruct", "SplitToSequence", "SequenceInsert", "SequenceAt"),
    "ConcatFromSequence",
)
_CONSTANTS = {
    "value_float": ir.DataType.FLOAT,
    "value_floats": ir.DataType.FLOAT,
    "value_int": ir.DataType.INT64,
    "value_ints": ir.DataType.INT64,
    "value_string": ir.DataType.STRING,
    "value_strings": ir.DataType.STRING,
}


class Types:
    """Element types; a sequence, a map and what is not known have none.

    Args:
        model: A model without local functions: what is in those has the type of its caller's.
    """

    def __init__(self, model: ir.Model) -> None:
        self._imports = model.opset_imports
        self._known: dict[ir.Value, ir.DataType | None] = {}
        self._elements: dict[ir.Value, ir.DataType | None] = {}
        self._walk(model.graph)

    def of(self, value: ir.Value | None) -> ir.DataType | None:
        """The element type of a tensor; None if it is no tensor, or not known."""
        if value is None:
            return None
        if value not in self._known:
            # Made by no node: an input or a weight.
            self._known[value] = _declared(value)
        return self._known[value]

    def is_float(self, value: ir.Value | None) -> bool:
        """Whether ``value`` is a tensor of float32."""
        return self.of(value) == ir.DataType.FLOAT

    def formals(self, node: ir.Node) -> Formals | None:
        """The signature of a node's operator."""
        return formals_of(node.op_type, node.domain, self.opset(node))

    def opset(self, node: ir.Node) -> int:
        """The opset of a node's domain."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain == "":
            return self._imports.get("", self._imports.get("ai.onnx", 1))
        return self._imports.get(domain, 1)

    def _walk(self, graph: ir.Graph) -> None:
        for node in graph:
            for body in bodies_of(node):
                self._enter(node, body)
                self._walk(body)
            for value, dtype in zip(node.outputs, self._made(node), strict=True):
                self._known[value] = dtype

    def _enter(self, node: ir.Node, body: ir.Graph) -> None:
        """A body's inputs are what the node gives it, where the file does not say."""
        for inner, outer in zip(body.inputs, given_to_body(node), strict=False):
            if inner.dtype is None and outer is not None:
                self._known[inner] = self.of(outer)

    def _made(self, node: ir.Node) -> Iterable[ir.DataType | None]:
        bodies = bodies_of(node)
        if bodies:
            inner = body_outputs(node, bodies[0])
            return [
                self.of(inner[i]) if i < len(inner) and not _is_odd(x) else _declared(x)
                for i, x in enumerate(node.outputs)
            ]
        if is_op(node, *_SEQUENCES):
            return self._of_sequence(node)
        formals = self.formals(node)
        bound: dict[str, ir.DataType] = {}
        if formals is not None:
            for i, value in enumerate(node.inputs):
                variable, dtype = formals.input(i), self.of(value)
                if variable is not None and dtype is not None:
                    bound.setdefault(variable, dtype)
        return [self._output(node, i, formals, bound) for i in range(len(node.outputs))]

    def _output(
        self, node: ir.Node, index: int, formals: Formals | None, bound: dict[str, ir.DataType]
    ) -> ir.DataType | None:
        value = node.outputs[index]
        if is_op(node, *MADE_BY):
            name, default = MADE_BY[node.op_type]
            said = ir.DataType(attr_int(node, name, 0))
            if said != ir.DataType.UNDEFINED:
                return said
            return default or (self.of(node.inputs[0]) if node.inputs else None)
        if is_op(node, "Constant"):
            return _constant(node)
        if is_op(node, "ConstantOfShape"):
            attribute = node.attributes.get("value")
            return ir.DataType.FLOAT if attribute is None else _tensor_type(attribute)
        if formals is None or (variable := formals.output(index)) is None:
            return _declared(value)
        if variable in bound:
            return bound[variable] if variable in formals.plain or not _is_odd(value) else None
        if variable not in formals.plain:
            return _declared(value)
        allowed = formals.types[variable]
        if (declared := _declared(value)) is not None:
            return declared
        if node.op_type == "QuantizeLinear":
            return ir.DataType.UINT8
        floats = all(x.is_floating_point() for x in allowed)
        if floats and ir.DataType.FLOAT in allowed:
            return ir.DataType.FLOAT
        return next(iter(allowed)) if len(allowed) == 1 else None

    def _of_sequence(self, node: ir.Node) -> list[ir.DataType | None]:
        first = node.inputs[0] if node.inputs else None
        if is_op(node, "SequenceAt", "ConcatFromSequence"):
            known = self._elements.get(first) if first is not None else None
            return [known or _declared(node.outputs[0])]
        tensor = node.inputs[1] if is_op(node, "SequenceInsert") else first
        self._elements[node.outputs[0]] = self.of(tensor)
        return [None]


def given_to_body(node: ir.Node) -> Sequence[ir.Value | None]:
    """What becomes the inputs of the body of a Loop or Scan, as far as it is carried; else ()."""
    if is_op(node, "Loop"):
        return [None, None, *node.inputs[2:]]
    if is_op(node, "Scan"):
        return list(node.inputs)
    return ()


def body_outputs(node: ir.Node, body: ir.Graph) -> Sequence[ir.Value]:
    """The outputs of a body in the order of the outputs of its node."""
    return list(body.outputs)[is_op(node, "Loop") :]


def _declared(value: ir.Value) -> ir.DataType | None:
    if value.type is not None:
        return value.dtype if isinstance(value.type, ir.TensorType) else None
    if value.const_value is not None:
        return value.const_value.dtype
    return None


def _is_odd(value: ir.Value) -> bool:
    """Whether the file says that it is no tensor."""
    return value.type is not None and not isinstance(value.type, ir.TensorType)


def _constant(node: ir.Node) -> ir.DataType | None:
    for name, attribute in node.attributes.items():
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        return _tensor_type(attribute)
    return None


def _tensor_type(attribute: ir.Attr) -> ir.DataType | None:
    if attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
        return None
    tensor: ir.TensorProtocol = attribute.value
    return tensor.dtype
