"""What ONNX Runtime takes out of a graph before it asks any provider: its basic optimizations.

Only those that decide where the rest runs: constants and what follows from them, Shape of what is
static, Identity and other nodes that do nothing, and the second of two equal computations. Its
pattern fusions (MatMul and Add to Gemm, LayerNormalization from its parts) are not foreseen: a
fused node stands where its parts would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model.values import Numbering, attr_int, const_of, is_op

if TYPE_CHECKING:
    from graphfix.model.shapes import Shapes

_NEVER = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
    | {"Bernoulli", "DequantizeLinear", "If", "Loop", "Scan", "SequenceMap"}
)
# What constant folding makes is kept in the model; it is not asked to write out a large fill.
_GROWS = frozenset({"ConstantOfShape", "Expand", "Tile", "EyeLike"})
_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}


class Folding:
    """The nodes of a model that are gone before anything runs, and why.

    Args:
        model: The model.
        shapes: Its shapes, with sizes where the sizes are fixed.
    """

    def __init__(self, model: ir.Model, shapes: Shapes) -> None:
        self._shapes = shapes
        self._outputs = frozenset(model.graph.outputs)
        self._constants: set[ir.Value] = set()
        self._same: dict[ir.Value, ir.Value] = {}
        self.gone: dict[ir.Node, str] = {}
        self._seen: dict[int, ir.Node] = {}
        self._numbers = Numbering(lambda _: None)
        for graph in (model.graph, *model.graph.subgraphs()):
            self._constants.update(x for x in graph.initializers.values() if not x.is_graph_input())
        for node in model.graph.all_nodes():
            why = self._why(node)
            if why is not None:
                self.gone[node] = why

    def is_constant(self, value: ir.Value | None) -> bool:
        """Whether a value is known when the session is made; so is one that is not given."""
        return value is None or self.source(value) in self._constants

    def source(self, value: ir.Value) -> ir.Value:
        """What a value is once the nodes that do nothing are gone."""
        while value in self._same:
            value = self._same[value]
        return value

    def _why(self, node: ir.Node) -> str | None:
        if is_op(node, "Constant"):
            self._constants.update(node.outputs)
            return "a constant"
        if node.op_type not in _NEVER and self._is_constant(node):
            self._constants.update(node.outputs)
            return "computed from constants when the session is made"
        if self._does_nothing(node) and node.inputs[0] is not None:
            if node.outputs[0] in self._outputs and node.inputs[0].producer() is None:
                return None  # an output needs something that makes it
            self._same[node.outputs[0]] = node.inputs[0]
            return "does nothing"
        return self._second(node)

    def _is_constant(self, node: ir.Node) -> bool:
        if is_op(node, "Shape"):
            return self._is_static(node)
        return bool(node.inputs) and all(self.is_constant(x) for x in node.inputs)

    def _is_static(self, node: ir.Node) -> bool:
        dims = self._shapes.dims(node.inputs[0])
        if dims is None:
            return False
        start, end = attr_int(node, "start", 0), attr_int(node, "end", len(dims))
        return all(isinstance(x, int) for x in dims[start:end])

    def _does_nothing(self, node: ir.Node) -> bool:
        if is_op(node, "Identity"):
            return True
        if is_op(node, "Dropout"):
            return len(node.inputs) < 3 and not (len(node.outputs) > 1 and node.outputs[1].uses())
        if is_op(node, "Cast"):
            return self._shapes.dtype(node.inputs[0]) == ir.DataType(attr_int(node, "to", 0))
        if is_op(node, *_NEUTRAL):
            return self._is_neutral(node)
        return is_op(node, "Expand") and self._keeps_shape(node)

    def _is_neutral(self, node: ir.Node) -> bool:
        array = const_of(node.inputs[1])
        if array is None or array.size != 1 or array.ndim > 0:
            return False
        return bool(array.reshape(-1)[0] == _NEUTRAL[node.op_type])

    def _keeps_shape(self, node: ir.Node) -> bool:
        given, made = self._shapes.dims(node.inputs[0]), self._shapes.dims(node.outputs[0])
        static = given is not None and all(isinstance(x, int) for x in given)
        return static and given == made and self.is_constant(node.inputs[1])

    def _second(self, node: ir.Node) -> str | None:
        if self._outputs & set(node.outputs) or not node.outputs or node.op_type in _NEVER:
            return None
        number = self._numbers.of(node.outputs[0])
        first = self._seen.setdefault(number, node)
        if first is node or first.graph is not node.graph:
            return None
        self._same.update(zip(node.outputs, first.outputs, strict=False))
        return "the same as an earlier node"
