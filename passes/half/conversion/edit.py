"""Conversion of a model to float16: types, constants, and Casts around float32 nodes."""

from typing import Literal

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import PASS_KEY
from graphfix.files.half_weights import KEPT_IN_FLOAT32_KEY, array_to_float16, tensor_to_float16
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import graphs_of, values_of

from .constant_range import FLOOR
from .constants import constants_of, is_weight_input
from .float32_nodes import Float32Nodes

_NAME = "float16"
_FLOAT, _HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
_MASK_VALUE = "mask_filter_value"
_SUFFIX = {_FLOAT: "float32", _HALF: "float16"}


class Float16Conversion:
    """One conversion of a model to float16.

    Args:
        kept_nodes: The nodes that stay in float32.
        io: Whether inputs and outputs keep their type.
    """

    def __init__(self, kept_nodes: Float32Nodes, io: Literal["keep", "half"]) -> None:
        self._kept_nodes, self._io = kept_nodes, io
        self._types = kept_nodes.types
        self._graph = kept_nodes.view.model.graph
        self._dtypes: dict[ir.Value, ir.DataType] = {}
        self._converted: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._constants = dict(constants_of(self._graph))
        self._names = {x.name for x in kept_nodes.nodes}
        self._names |= {x.name for x in values_of(graphs_of(self._graph))}
        self.casts: list[ir.Node] = []

    @property
    def has_changes(self) -> bool:
        """Return whether anything became float16."""
        return bool(self.casts) or _HALF in self._dtypes.values()

    def apply(self) -> None:
        """Edit the model."""
        graphs = list(graphs_of(self._graph))
        self._choose_dtypes(graphs)
        self._cast_inputs()
        for node in self._kept_nodes.nodes:
            self._convert_attributes(node)
        for graph in graphs:
            self._convert_outputs(graph)
        for value in [x for x, dtype in self._dtypes.items() if dtype == _HALF]:
            value.type = ir.TensorType(_HALF)
            if value in self._constants:
                self._set_constant(value)
        self._drop_needless_casts()
        for node, reason in self._kept_nodes.reasons.items():
            if not is_op(node, "Cast"):
                node.metadata_props.setdefault(KEPT_IN_FLOAT32_KEY, reason)

    # What a value will be

    def _choose_dtypes(self, graphs: list[ir.Graph]) -> None:
        """Choose the type of each value that is float32: graph inputs, outputs, constants."""
        for value in (x for graph in graphs for x in graph.inputs if self._types.is_float(x)):
            is_weight = is_weight_input(value)
            self._dtypes[value] = _HALF if is_weight else self._border_dtype(value.graph, value)
        for node in self._kept_nodes.nodes:
            for i, value in enumerate(node.outputs):
                if self._types.is_float(value):
                    self._dtypes[value] = self._kept_nodes.output_dtype(node, i)
        for value, tensor in self._constants.items():
            # What ConstantOfShape fills is known from the node.
            if self._types.is_float(value) and not is_op(value.producer(), "ConstantOfShape"):
                becomes_half = self._kept_nodes.becomes_half(value, tensor.size)
                self._dtypes[value] = _HALF if becomes_half else _FLOAT

    def _border_dtype(self, graph: ir.Graph | ir.Function | None, value: ir.Value) -> ir.DataType:
        """Return the type that an input or output of a graph must have."""
        owner = self._kept_nodes.view.owner_of_body(graph)
        if owner is not None:
            return _FLOAT if owner in self._kept_nodes.reasons else _HALF
        if self._io == "keep" or value.is_initializer() or is_op(value.producer(), "Constant"):
            return _FLOAT
        return _HALF if value.shape is None or len(value.shape) > 1 else _FLOAT

    def _dtype_of(self, value: ir.Value) -> ir.DataType:
        return self._dtypes.get(value, _FLOAT)

    def _set_constant(self, value: ir.Value) -> None:
        tensor, node = self._constants[value], value.producer()
        floor = self._kept_nodes.masks.get(value)
        if floor is not None:
            array = tensor.numpy()
            clipped = np.where(np.isfinite(array), np.clip(array, -floor, floor), array)
            new: ir.TensorProtocol = ir.tensor(array_to_float16(clipped), name=tensor.name)
        else:
            new = tensor_to_float16(tensor)
        if node is None:
            value.const_value = new
            return
        node.attributes.clear()
        node.attributes["value"] = ir.AttrTensor("value", new)

    # Casts

    def _cast_to(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return ``value`` in one type, with a Cast that is inserted once."""
        if (value, dtype) not in self._converted:
            converted = value
            if self._dtype_of(value) != dtype:
                converted = self._insert_node(
                    "Cast", [value], self._fresh_name(value, dtype), dtype
                )
            if dtype == _HALF and value in self._kept_nodes.floors:
                converted = self._clamp_input(value, converted)
            self._converted[value, dtype] = converted
        return self._converted[value, dtype]

    def _insert_node(
        self, op: str, inputs: list[ir.Value], name: str, dtype: ir.DataType
    ) -> ir.Value:
        """Insert a node right after the producer of its first input; return its output."""
        value = inputs[0]
        node = ir.node(op, inputs, attributes={"to": int(dtype)} if op == "Cast" else {})
        output = node.outputs[0]
        node.name = output.name = name
        node.metadata_props[PASS_KEY] = _NAME
        output.shape, output.type = value.shape, ir.TensorType(dtype)
        producer = value.producer()
        graph = value.graph if producer is None else producer.graph
        assert isinstance(graph, ir.Graph)
        if producer is not None:
            graph.insert_after(producer, node)
        elif len(graph):
            graph.insert_before(graph[0], node)
        else:
            graph.append(node)
        if op == "Cast":
            self.casts.append(node)
        return output

    def _clamp_input(self, value: ir.Value, half: ir.Value) -> ir.Value:
        """Clamp an input that hides scores at a floor that float16 can hold."""
        name = self._fresh_name(value, _HALF, "_floor")
        floor = ir.Value(name=name, shape=ir.Shape([]), type=ir.TensorType(_HALF))
        floor.const_value = ir.tensor(np.array(-FLOOR, np.float16), name=name)
        self._graph.register_initializer(floor)
        return self._insert_node(
            "Max", [half, floor], self._fresh_name(value, _HALF, "_floored"), _HALF
        )

    def _cast_inputs(self) -> None:
        """Give each node its inputs in the type that it takes."""
        for node in self._kept_nodes.nodes:
            for i, operand in enumerate(tuple(node.inputs)):
                target = self._kept_nodes.input_dtype(node, i)
                if operand is None or target is None or not self._types.is_float(operand):
                    continue
                needs_floor = target == _HALF and operand in self._kept_nodes.floors
                if needs_floor or self._dtype_of(operand) != target:
                    node.replace_input_with(i, self._cast_to(operand, target))

    def _convert_outputs(self, graph: ir.Graph) -> None:
        """Give the outputs of a graph the types they must have."""
        for i in range(len(graph.outputs)):
            value = graph.outputs[i]
            is_float = self._types.is_float(value)
            if is_float and self._dtype_of(value) != self._border_dtype(graph, value):
                self._convert_output(graph, i, value)

    def _convert_output(self, graph: ir.Graph, index: int, value: ir.Value) -> None:
        """Give an output of a graph the type it must have, under its name."""
        target = self._border_dtype(graph, value)
        if graph is not self._graph:
            graph.outputs[index] = self._cast_to(value, target)
            return
        # The output keeps its name; what is inside gets another.
        name = value.name or ""
        value.name = self._fresh_name(value, self._dtype_of(value))
        converted = self._cast_to(value, target)
        if (producer := value.producer()) is not None:
            producer.metadata_props[PASS_KEY] = _NAME
        if (cast := converted.producer()) is not None:
            cast.name = name
        converted.name = name
        converted.doc_string = value.doc_string
        converted.metadata_props.update(value.metadata_props)
        for i, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[i] = converted

    def _fresh_name(self, value: ir.Value, dtype: ir.DataType, suffix: str = "") -> str:
        base = f"{value.name or 'value'}_{_SUFFIX[dtype]}{suffix}"
        name, count = base, 1
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name

    def _drop_needless_casts(self) -> None:
        """Remove Casts of the model that no longer change the type."""
        for node in self._kept_nodes.nodes:
            source, output = node.inputs[0] if node.inputs else None, node.outputs[0]
            if not is_op(node, "Cast") or source is None or self._dtype_of(output) != _HALF:
                continue
            dtype = _HALF if self._dtype_of(source) == _HALF else self._types.dtype_of(source)
            if dtype == _HALF and not output.is_graph_output() and node.graph is not None:
                output.replace_all_uses_with(source)
                node.graph.remove(node, safe=True)

    # What is written in a node

    def _convert_attributes(self, node: ir.Node) -> None:
        """Convert attributes that hold a type or a number that hides scores."""
        if self._dtype_of(node.outputs[0]) != _HALF:
            return
        low = node.attributes.get(_MASK_VALUE)
        if low is not None and low.as_float() < -FLOOR:
            node.attributes[_MASK_VALUE] = ir.AttrFloat32(_MASK_VALUE, -FLOOR)
        if is_op(node, "ConstantOfShape") and "value" not in node.attributes:
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(np.zeros(1, np.float16)))
        if is_op(node, "Cast"):
            node.attributes["to"] = ir.AttrInt64("to", int(_HALF))
