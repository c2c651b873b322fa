"""The element type of every value of a model: as inferred, or by the signatures of operators."""

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import bodies_of, opset_of
from graphfix.ops.signatures import Formals, formals_of

_NO_TENSOR = ("SequenceConstruct", "SplitToSequence", "SequenceInsert", "SequenceErase", "Optional")


class Types:
    """Element types; a sequence, a map and what is not known have none.

    Args:
        view: A model without local functions: what is in those has the type of its caller's.
    """

    def __init__(self, view: View) -> None:
        self._model = view.model
        self._shapes = view.shapes
        self._known: dict[ir.Value, ir.DataType | None] = {}

    def of(self, value: ir.Value | None) -> ir.DataType | None:
        """The element type of a tensor; None if it is no tensor, or not known."""
        if value is None or (value.type is not None and not isinstance(value.type, ir.TensorType)):
            return None
        if value not in self._known:
            self._known[value] = None  # should a model go in a circle
            self._known[value] = self._of(value)
        return self._known[value]

    def _of(self, value: ir.Value) -> ir.DataType | None:
        node = value.producer()
        if is_op(node, *_NO_TENSOR):
            return None
        if (inferred := self._shapes.dtype(value)) is not None:
            return inferred
        if value.const_value is not None:
            return value.const_value.dtype
        formals = None if node is None else self.formals(node)
        if node is None or formals is None or bodies_of(node):
            return None
        variable = formals.output(node.outputs.index(value))
        for i, given in enumerate(node.inputs):
            if variable is not None and formals.input(i) == variable and self.of(given):
                return self.of(given)
        allowed = formals.types.get(variable or "", frozenset())
        if variable not in formals.plain:
            return None
        if all(x.is_floating_point() for x in allowed) and ir.DataType.FLOAT in allowed:
            return ir.DataType.FLOAT
        return next(iter(allowed)) if len(allowed) == 1 else None

    def is_float(self, value: ir.Value | None) -> bool:
        """Whether ``value`` is a tensor of float32."""
        return self.of(value) == ir.DataType.FLOAT

    def formals(self, node: ir.Node) -> Formals | None:
        """The signature of a node's operator."""
        return formals_of(node.op_type, node.domain, self.opset(node))

    def opset(self, node: ir.Node) -> int:
        """The opset of a node's domain."""
        if node.domain in ("", "ai.onnx"):
            return opset_of(self._model)
        return self._model.opset_imports.get(node.domain, 1)
