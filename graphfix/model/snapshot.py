"""A model as it was: taken before an edit, put back if the edit fails halfway.

A clone would do, but it makes other objects: whoever holds a node or a value of the model would be
left with the half-edited one. So what is kept is what each object was, and the objects stay.
Weights are referred to, not copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model import shapes
from graphfix.model.values import graphs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class _Value:
    value: ir.Value
    name: str | None
    type: ir.TypeProtocol | None
    shape: ir.Shape | None
    doc_string: str | None
    const_value: ir.TensorProtocol | None
    metadata: Mapping[str, str]

    @classmethod
    def of(cls, x: ir.Value) -> _Value:
        shape = None if x.shape is None else x.shape.copy()
        return cls(x, x.name, x.type, shape, x.doc_string, x.const_value, dict(x.metadata_props))

    def put_back(self) -> None:
        x = self.value
        x.name, x.type, x.shape, x.doc_string = self.name, self.type, self.shape, self.doc_string
        x.const_value = self.const_value
        _refill(x.metadata_props, self.metadata)


@dataclass(frozen=True, slots=True)
class _Node:
    node: ir.Node
    name: str | None
    kind: tuple[str, str, str, int | None]
    doc_string: str | None
    inputs: tuple[ir.Value | None, ...]
    outputs: tuple[_Value, ...]
    attributes: Mapping[str, ir.Attr]
    metadata: Mapping[str, str]

    @classmethod
    def of(cls, x: ir.Node) -> _Node:
        kind = (x.domain, x.op_type, x.overload, x.version)
        outputs = tuple(map(_Value.of, x.outputs))
        attributes, metadata = dict(x.attributes), dict(x.metadata_props)
        return cls(x, x.name, kind, x.doc_string, tuple(x.inputs), outputs, attributes, metadata)

    def put_back(self) -> None:
        x = self.node
        x.name, x.doc_string = self.name, self.doc_string
        x.domain, x.op_type, x.overload, x.version = self.kind
        x.resize_inputs(len(self.inputs))
        for i, value in enumerate(self.inputs):
            x.replace_input_with(i, value)
        x.resize_outputs(len(self.outputs))
        for output in self.outputs:
            output.put_back()
        x.attributes.clear()
        x.attributes.update(self.attributes)
        _refill(x.metadata_props, self.metadata)


@dataclass(frozen=True, slots=True)
class _Graph:
    graph: ir.Graph
    name: str | None
    doc_string: str | None
    inputs: tuple[_Value, ...]
    initializers: tuple[_Value, ...]
    outputs: tuple[ir.Value, ...]
    nodes: tuple[_Node, ...]
    opsets: Mapping[str, int]
    metadata: Mapping[str, str]

    @classmethod
    def of(cls, x: ir.Graph) -> _Graph:
        return cls(
            graph=x,
            name=x.name,
            doc_string=x.doc_string,
            inputs=tuple(map(_Value.of, x.inputs)),
            initializers=tuple(map(_Value.of, x.initializers.values())),
            outputs=tuple(x.outputs),
            nodes=tuple(map(_Node.of, x)),
            opsets=dict(x.opset_imports),
            metadata=dict(x.metadata_props),
        )

    def put_back(self) -> None:
        x = self.graph
        x.name, x.doc_string = self.name, self.doc_string
        for value in (*self.inputs, *self.initializers):
            value.put_back()
        for node in self.nodes:
            node.put_back()
        x.extend(node.node for node in self.nodes)
        x.inputs.extend(value.value for value in self.inputs)
        for value in self.initializers:
            x.initializers.add(value.value)
        x.outputs.extend(self.outputs)
        x.opset_imports.clear()
        x.opset_imports.update(self.opsets)
        _refill(x.metadata_props, self.metadata)


class Snapshot:
    """What a model is now; :meth:`put_back` makes it so again, in the same objects."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._metadata = dict(model.metadata_props)
        self._ir_version = model.ir_version
        self._functions = dict(model.functions)
        self._graphs = tuple(map(_Graph.of, _graphs(model)))

    def put_back(self) -> None:
        """Make the model what it was, whatever was done to it since."""
        model = self._model
        then = [one.graph for one in self._graphs]
        graphs = dict.fromkeys((*_graphs(model), *then))
        for graph in graphs:
            _empty(graph)
        for one in self._graphs:
            one.put_back()
        model.functions.clear()
        model.functions.update(self._functions)
        model.ir_version = self._ir_version
        _refill(model.metadata_props, self._metadata)
        shapes.forget(model)


def _graphs(model: ir.Model) -> Iterator[ir.Graph]:
    for top in (model.graph, *(function.graph for function in model.functions.values())):
        yield from graphs_of(top)


def _empty(graph: ir.Graph) -> None:
    """Take everything out of a graph, and let its nodes use nothing."""
    graph.outputs.clear()
    nodes = list(graph)
    for node in nodes:
        for i in range(len(node.inputs)):
            node.replace_input_with(i, None)
    graph.remove(nodes)
    graph.initializers.clear()
    graph.inputs.clear()


def _refill(found: dict[str, str], before: Mapping[str, str]) -> None:
    if found != before:
        found.clear()
        found.update(before)
