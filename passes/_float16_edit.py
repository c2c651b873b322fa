"""Making a model float16, but for the nodes that stay: types, constants, Casts at the borders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx_ir as ir

from graphfix.build import PASS_KEY
from graphfix.model.narrow import KEPT, narrow, narrowed
from graphfix.model.values import bodies_of, is_op

from ._float16_constants import constants_of, is_given_weight
from ._float16_types import MADE_BY
from ._float16_unfit import FLOOR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._float16_types import Types
    from ._float16_wide import Wide

_NAME = "float16"
_FLOAT, _HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
_SMALL = 1024
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
        self._types: Types = wide.types
        self._graph = wide.view.model.graph
        self._will: dict[ir.Value, ir.DataType] = {}
        self._made: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._above: dict[ir.Value, ir.Value] = {}
        self._constants = dict(constants_of(self._graph))
        self._owners: dict[ir.Graph, ir.Node] = {
            body: node for node in wide.nodes for body in bodies_of(node)
        }
        self._names = {x.name for x in self._values()} | {x.name for x in wide.nodes}
        self.casts: list[ir.Node] = []
        self.changed = False

    def apply(self) -> None:
        """Edit the model."""
        for graph in self._graphs():
            for value in graph.inputs:
                if self._types.is_float(value):
                    self._will[value] = self._of_input(graph, value)
        for node in self._wide.nodes:
            for i, value in enumerate(node.outputs):
                if self._types.is_float(value):
                    self._will[value] = self._wide.makes(node, i)
        uses = [(node, i, x) for node in self._wide.nodes for i, x in enumerate(node.inputs)]
        ends = [(graph, i, x) for graph in self._graphs() for i, x in enumerate(graph.outputs)]
        for value in self._constants:
            if self._types.is_float(value):
                self._constant(value)
        for node, i, taken in uses:
            if taken is not None and self._types.is_float(taken):
                wanted = self._wide.takes(node, i)
                if wanted == _HALF and taken in self._wide.floors:
                    node.replace_input_with(i, self._floored(taken))
                elif wanted is not None and self._state(taken) != wanted:
                    node.replace_input_with(i, self._as(taken, wanted))
        for node in self._wide.nodes:
            self._attributes(node)
        for graph, i, value in ends:
            if self._types.is_float(value):
                self._output(graph, i, value)
        for value, dtype in self._will.items():
            if dtype == _HALF:
                self._set_type(value, dtype)
        self._drop_needless()
        for node, reason in self._wide.reasons.items():
            if node.graph is not None and not is_op(node, "Cast"):
                node.metadata_props.setdefault(KEPT, reason)

    def _graphs(self) -> Iterator[ir.Graph]:
        yield self._graph
        yield from self._owners

    def _values(self) -> Iterator[ir.Value]:
        for graph in self._graphs():
            yield from graph.inputs
            yield from graph.initializers.values()
            for node in graph:
                yield from node.outputs

    # What a value will be

    def _of_input(self, graph: ir.Graph, value: ir.Value) -> ir.DataType:
        owner = self._owners.get(graph)
        if owner is not None:
            return _FLOAT if owner in self._wide.reasons else _HALF
        if is_given_weight(value):
            return _HALF
        batched = value.shape is None or len(value.shape) > 1
        return _HALF if self._io == "half" and batched else _FLOAT

    def _state(self, value: ir.Value) -> ir.DataType:
        return self._will.get(value, _FLOAT)

    def _constant(self, value: ir.Value) -> None:
        """Decide what a constant becomes by who takes it."""
        node = value.producer()
        if is_op(node, "ConstantOfShape"):
            if self._state(value) == _HALF:
                self._set_constant(value)
            return
        wanted = {self._wide.takes(use.node, use.idx) for use in value.uses()} - {None}
        if value.is_graph_output():
            wanted.add(self._of_output(value))
        if value.is_graph_input() and not is_given_weight(value):
            return
        stored = self._wide.stored(value)
        if _HALF not in wanted and not stored:
            self._will[value] = _FLOAT
            return
        self._will[value] = _HALF
        if _FLOAT in wanted and self._constants[value].size <= _SMALL and not stored:
            self._made[value, _FLOAT] = self._copy(value)
        self._set_constant(value)

    def _of_output(self, value: ir.Value) -> ir.DataType:
        for graph in self._graphs():
            if value in graph.outputs:
                return self._wanted_output(graph, value)
        return _FLOAT

    def _wanted_output(self, graph: ir.Graph, value: ir.Value) -> ir.DataType:
        owner = self._owners.get(graph)
        if owner is not None:
            return _FLOAT if owner in self._wide.reasons else _HALF
        batched = value.shape is None or len(value.shape) > 1
        return _HALF if self._io == "half" and batched else _FLOAT

    # Constants

    def _set_constant(self, value: ir.Value) -> None:
        self.changed = True
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

    def _copy(self, value: ir.Value) -> ir.Value:
        """The same constant as it is now, for those that stay."""
        graph = self._home(value)
        name = self._name(value, _FLOAT)
        array = np.array(self._constants[value].numpy(), np.float32)
        copy = ir.Value(name=name, shape=value.shape, type=ir.TensorType(_FLOAT))
        copy.const_value = ir.tensor(array, name=name)
        if graph is self._graph or self._owners.get(graph) is not None:
            graph.register_initializer(copy)
        return copy

    # Casts

    def _as(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """``value`` as the other type: made once, where it is made."""
        if (value, dtype) not in self._made:
            self._made[value, dtype] = self._cast(value, dtype)
        return self._made[value, dtype]

    def _cast(self, value: ir.Value, dtype: ir.DataType, name: str = "") -> ir.Value:
        name = name or self._name(value, dtype)
        node = ir.node("Cast", [value], attributes={"to": int(dtype)})
        node.name = node.outputs[0].name = name
        node.metadata_props[PASS_KEY] = _NAME
        made = node.outputs[0]
        made.shape, made.type = value.shape, ir.TensorType(dtype)
        maker = value.producer()
        if maker is not None and maker.graph is not None:
            maker.graph.insert_after(maker, node)
        else:
            graph = self._home(value)
            if len(graph):
                graph.insert_before(graph[0], node)
            else:
                graph.append(node)
        self.casts.append(node)
        self.changed = True
        return made

    def _floored(self, value: ir.Value) -> ir.Value:
        """An input that hides scores in float16, where its lowest number would be infinite."""
        if value not in self._above:
            half = value if self._state(value) == _HALF else self._as(value, _HALF)
            name = self._name(value, _HALF, "_floor")
            floor = ir.Value(name=name, shape=ir.Shape([]), type=ir.TensorType(_HALF))
            floor.const_value = ir.tensor(np.array(-FLOOR, np.float16), name=name)
            self._graph.register_initializer(floor)
            node = ir.node("Max", [half, floor])
            node.name = node.outputs[0].name = self._name(value, _HALF, "_floored")
            node.metadata_props[PASS_KEY] = _NAME
            self._above[value] = node.outputs[0]
            node.outputs[0].shape, node.outputs[0].type = value.shape, ir.TensorType(_HALF)
            if (cast := half.producer()) is not None:
                self._graph.insert_after(cast, node)
            else:
                self._graph.insert_before(self._graph[0], node)
        return self._above[value]

    def _home(self, value: ir.Value) -> ir.Graph:
        maker = value.producer()
        graph = value.graph if maker is None else maker.graph
        return graph if isinstance(graph, ir.Graph) else self._graph

    def _output(self, graph: ir.Graph, index: int, value: ir.Value) -> None:
        """An output of a graph as what it has to be, under its name."""
        wanted = self._wanted_output(graph, value)
        if self._state(value) == wanted:
            return
        if graph is not self._graph:
            graph.outputs[index] = self._as(value, wanted)
            return
        if value.is_graph_input() or value.is_initializer():
            graph.outputs[index] = self._cast(value, wanted)
            return
        # The output keeps its name; what is inside gets another.
        name = value.name or ""
        value.name = self._name(value, self._state(value))
        known = self._made.get((value, wanted))
        made = known if known is not None else self._cast(value, wanted, name)
        if (maker := value.producer()) is not None:
            maker.metadata_props[PASS_KEY] = _NAME
        made.name = name
        made.doc_string = value.doc_string
        made.metadata_props.update(value.metadata_props)
        self._made[value, wanted] = made
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

    # What is written in a node

    def _attributes(self, node: ir.Node) -> None:
        """A type that is an attribute, and a number that hides scores."""
        low = node.attributes.get(_LOW)
        if low is not None and low.as_float() < -FLOOR and self._state(node.outputs[0]) == _HALF:
            node.attributes[_LOW] = ir.AttrFloat32(_LOW, -FLOOR)
        if not is_op(node, *MADE_BY) or not self._types.is_float(node.outputs[0]):
            fills = is_op(node, "ConstantOfShape") and "value" not in node.attributes
            if fills and self._state(node.outputs[0]) == _HALF:
                zero = ir.tensor(np.zeros(1, np.float16))
                node.attributes["value"] = ir.AttrTensor("value", zero)
            return
        name, default = MADE_BY[node.op_type]
        if self._state(node.outputs[0]) == _HALF and (name in node.attributes or default):
            node.attributes[name] = ir.AttrInt64(name, int(_HALF))

    def _set_type(self, value: ir.Value, dtype: ir.DataType) -> None:
        self.changed = True
        value.type = ir.TensorType(dtype)

    def _drop_needless(self) -> None:
        """A Cast of the model's own that no longer changes the type."""
        for node in self._wide.nodes:
            if not is_op(node, "Cast") or node.graph is None or PASS_KEY in node.metadata_props:
                continue
            source, made = node.inputs[0], node.outputs[0]
            if source is None or made.is_graph_output():
                continue
            before = self._types.of(source)
            before = self._state(source) if before == _FLOAT else before
            after = self._types.of(made)
            after = self._state(made) if after == _FLOAT else after
            if before == after == _HALF:
                made.replace_all_uses_with(source)
                node.graph.remove(node, safe=True)
                self.changed = True
