"""The element type of every value of a model, inferred or by operator signatures."""

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.view import View
from graphfix.graph.walks import bodies_of, opset_of
from graphfix.ops.signatures import OpSignature, op_signature

_MAKES_SEQUENCE = ops.SEQUENCES - ops.named(
    "SequenceAt ConcatFromSequence SequenceLength OptionalHasElement OptionalGetElement"
)


class ElementTypes:
    """Element types of the values of a model; sequences, maps and unknown values have none.

    Args:
        view: A model without local functions, whose values depend on the caller.
    """

    def __init__(self, view: View) -> None:
        self._model = view.model
        self._shapes = view.shapes
        self._dtypes: dict[ir.Value, ir.DataType | None] = {}

    def dtype_of(self, value: ir.Value | None) -> ir.DataType | None:
        """Return the element type of a tensor, or None if it is no tensor or not known."""
        if value is None or (value.type is not None and not isinstance(value.type, ir.TensorType)):
            return None
        if value not in self._dtypes:
            self._dtypes[value] = None  # should a model go in a circle
            self._dtypes[value] = self._infer_dtype(value)
        return self._dtypes[value]

    def _infer_dtype(self, value: ir.Value) -> ir.DataType | None:
        node = value.producer()
        if _MAKES_SEQUENCE.has(node):
            return None
        if (inferred := self._shapes.dtype(value)) is not None:
            return inferred
        if value.const_value is not None:
            return value.const_value.dtype
        return None if node is None or bodies_of(node) else self._dtype_by_signature(value, node)

    def _dtype_by_signature(self, output: ir.Value, node: ir.Node) -> ir.DataType | None:
        """Return the type that an operator gives an output: of an input, or the only one."""
        formals = self.signature_of(node)
        variable = formals and formals.output_variable(node.outputs.index(output))
        if formals is None or variable is None:
            return None
        for i, operand in enumerate(node.inputs):
            dtype = self.dtype_of(operand) if formals.input_variable(i) == variable else None
            if dtype is not None:
                return dtype
        if variable not in formals.tensor_only:
            return None
        allowed = formals.types.get(variable, frozenset())
        if all(x.is_floating_point() for x in allowed) and ir.DataType.FLOAT in allowed:
            return ir.DataType.FLOAT
        return next(iter(allowed)) if len(allowed) == 1 else None

    def is_float(self, value: ir.Value | None) -> bool:
        """Return whether ``value`` is a float32 tensor."""
        return self.dtype_of(value) == ir.DataType.FLOAT

    def signature_of(self, node: ir.Node) -> OpSignature | None:
        """Return the signature of a node's operator, or None."""
        return op_signature(node.op_type, node.domain, self.opset_for(node))

    def opset_for(self, node: ir.Node) -> int:
        """Return the opset of a node's domain."""
        if node.domain in ("", "ai.onnx"):
            return opset_of(self._model)
        return self._model.opset_imports.get(node.domain, 1)
