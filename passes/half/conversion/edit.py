"""Making a model float16, except the nodes that stay: types, constants, Casts at the borders."""

from typing import Literal

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import PASS_KEY
from graphfix.files.half_weights import KEPT, narrow, narrowed
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import graphs_of, values_of

from .constant_range import FLOOR
from .constants import constants_of, is_given_weight
from .float32_nodes import Wide

_NAME = "float16"
_FLOAT, _HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
_LOW = "mask_filter_value"
_SUFFIX = {_FLOAT: "float32", _HALF: "float16"}


class Edit:
    """One conversion.

    Args:
        wide: What stays.
        io: Whether inputs and outputs keep their type.
    """

    def __init__(self, wide: Wide, io: Literal["keep", "half"]) -> None:
        self._wide, self._io = wide, io
        self._types = wide.types
        self._graph = wide.view.model.graph
        self._will: dict[ir.Value, ir.DataType] = {}
        self._made: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._constants = dict(constants_of(self._graph))
        self._names = {x.name for x in wide.nodes}
        self._names |= {x.name for x in values_of(graphs_of(self._graph))}
        self.casts: list[ir.Node] = []

    @property
    def changed(self) -> bool:
        """Whether anything became float16."""
        return bool(self.casts) or _HALF in self._will.values()

    def apply(self) -> None:
        """Edit the model."""
        graphs = list(graphs_of(self._graph))
        ends = [(graph, i, x) for graph in graphs for i, x in enumerate(graph.outputs)]
        uses = [(node, i, x) for node in self._wide.nodes for i, x in enumerate(node.inputs)]
        for value in (x for graph in graphs for x in graph.inputs if self._types.is_float(x)):
            given = is_given_weight(value)
            self._will[value] = _HALF if given else self._border(value.graph, value)
        for node in self._wide.nodes:
            for i, value in enumerate(node.outputs):
                if self._types.is_float(value):
                    self._will[value] = self._wide.makes(node, i)
        for value, tensor in self._constants.items():
            # What ConstantOfShape fills is known from the node.
            if self._types.is_float(value) and not is_op(value.producer(), "ConstantOfShape"):
                self._will[value] = _HALF if self._wide.narrows(value, tensor.size) else _FLOAT
        for node, i, taken in uses:
            wanted = self._wide.takes(node, i)
            if taken is None or wanted is None or not self._types.is_float(taken):
                continue
            if (wanted == _HALF and taken in self._wide.floors) or self._state(taken) != wanted:
                node.replace_input_with(i, self._as(taken, wanted))
        for node in self._wide.nodes:
            self._attributes(node)
        for graph, i, value in ends:
            if self._types.is_float(value) and self._state(value) != self._border(graph, value):
                self._output(graph, i, value)
        for value in [x for x, dtype in self._will.items() if dtype == _HALF]:
            value.type = ir.TensorType(_HALF)
            if value in self._constants:
                self._set_constant(value)
        self._drop_needless()
        for node, reason in self._wide.reasons.items():
            if not is_op(node, "Cast"):
                node.metadata_props.setdefault(KEPT, reason)

    # What a value will be

    def _border(self, graph: ir.Graph | ir.Function | None, value: ir.Value) -> ir.DataType:
        """What an input or output of a graph has to be."""
        owner = self._wide.view.owner(graph)
        if owner is not None:
            return _FLOAT if owner in self._wide.reasons else _HALF
        if self._io == "keep" or value.is_initializer() or is_op(value.producer(), "Constant"):
            return _FLOAT
        return _HALF if value.shape is None or len(value.shape) > 1 else _FLOAT

    def _state(self, value: ir.Value) -> ir.DataType:
        return self._will.get(value, _FLOAT)

    def _set_constant(self, value: ir.Value) -> None:
        tensor, node = self._constants[value], value.producer()
        floor = self._wide.masks.get(value)
        if floor is not None:
            array = tensor.numpy()
            half = np.where(np.isfinite(array), np.clip(array, -floor, floor), array)
            new: ir.TensorProtocol = ir.tensor(narrow(half), name=tensor.name)
        else:
            new = narrowed(tensor)
        if node is None:
            value.const_value = new
            return
        node.attributes.clear()
        node.attributes["value"] = ir.AttrTensor("value", new)

    # Casts

    def _as(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """``value`` as one type: made once, where it is made."""
        if (value, dtype) not in self._made:
            made = value
            if self._state(value) != dtype:
                made = self._insert("Cast", [value], self._name(value, dtype), dtype)
            if dtype == _HALF and value in self._wide.floors:
                made = self._floored(value, made)
            self._made[value, dtype] = made
        return self._made[value, dtype]

    def _insert(self, op: str, inputs: list[ir.Value], name: str, dtype: ir.DataType) -> ir.Value:
        """A node of our own behind what makes its first input."""
        value = inputs[0]
        node = ir.node(op, inputs, attributes={"to": int(dtype)} if op == "Cast" else {})
        made = node.outputs[0]
        node.name = made.name = name
        node.metadata_props[PASS_KEY] = _NAME
        made.shape, made.type = value.shape, ir.TensorType(dtype)
        maker = value.producer()
        graph = value.graph if maker is None else maker.graph
        assert isinstance(graph, ir.Graph)
        if maker is not None:
            graph.insert_after(maker, node)
        elif len(graph):
            graph.insert_before(graph[0], node)
        else:
            graph.append(node)
        if op == "Cast":
            self.casts.append(node)
        return made

    def _floored(self, value: ir.Value, half: ir.Value) -> ir.Value:
        """An input that hides scores in float16, where its lowest number would be infinite."""
        name = self._name(value, _HALF, "_floor")
        floor = ir.Value(name=name, shape=ir.Shape([]), type=ir.TensorType(_HALF))
        floor.const_value = ir.tensor(np.array(-FLOOR, np.float16), name=name)
        self._graph.register_initializer(floor)
        return self._insert("Max", [half, floor], self._name(value, _HALF, "_floored"), _HALF)

    def _output(self, graph: ir.Graph, index: int, value: ir.Value) -> None:
        """An output of a graph as what it has to be, under its name."""
        wanted = self._border(graph, value)
        if graph is not self._graph:
            graph.outputs[index] = self._as(value, wanted)
            return
        # The output keeps its name; what is inside gets another.
        name = value.name or ""
        value.name = self._name(value, self._state(value))
        made = self._as(value, wanted)
        if (maker := value.producer()) is not None:
            maker.metadata_props[PASS_KEY] = _NAME
        if (cast := made.producer()) is not None:
            cast.name = name
        made.name = name
        made.doc_string = value.doc_string
        made.metadata_props.update(value.metadata_props)
        for i, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[i] = made

    def _name(self, value: ir.Value, dtype: ir.DataType, more: str = "") -> str:
        base = f"{value.name or 'value'}_{_SUFFIX[dtype]}{more}"
        name, count = base, 1
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name

    def _drop_needless(self) -> None:
        """A Cast of the model's own that no longer changes the type."""
        for node in self._wide.nodes:
            source, made = node.inputs[0] if node.inputs else None, node.outputs[0]
            if not is_op(node, "Cast") or source is None or self._state(made) != _HALF:
                continue
            dtype = _HALF if self._state(source) == _HALF else self._types.of(source)
            if dtype == _HALF and not made.is_graph_output() and node.graph is not None:
                made.replace_all_uses_with(source)
                node.graph.remove(node, safe=True)

    # What is written in a node

    def _attributes(self, node: ir.Node) -> None:
        """A type that is an attribute, and a number that hides scores."""
        if self._state(node.outputs[0]) != _HALF:
            return
        low = node.attributes.get(_LOW)
        if low is not None and low.as_float() < -FLOOR:
            node.attributes[_LOW] = ir.AttrFloat32(_LOW, -FLOOR)
        if is_op(node, "ConstantOfShape") and "value" not in node.attributes:
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(np.zeros(1, np.float16)))
        if is_op(node, "Cast"):
            node.attributes["to"] = ir.AttrInt64("to", int(_HALF))
