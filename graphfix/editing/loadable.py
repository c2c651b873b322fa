"""What keeps ONNX Runtime from loading a model and means nothing to what it computes."""

import contextlib
from collections.abc import Iterator

import onnx_ir as ir

from graphfix import ops
from graphfix.graph.walks import all_graphs, all_nodes, opset_of


def nodes_of_taken_names(model: ir.Model) -> Iterator[ir.Node]:
    """Yield each node whose name an earlier node of the same graph has.

    ONNX Runtime asks for names that differ within a graph; a body may repeat those around it.
    """
    for graph in all_graphs(model):
        names: set[str] = set()
        for node in graph:
            if node.name and node.name in names:
                yield node
            names.add(node.name or "")


def external_sizes(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Yield each constant of sizes or axes that lies in another file, with its first reader.

    Shape inference in ONNX Runtime does not read other files: "Cannot parse data from external
    tensors".
    """
    opset = opset_of(model)
    seen: set[ir.Value] = set()
    for node in all_nodes(model):
        for position in ops.size_inputs(node, opset):
            value = node.inputs[position] if position < len(node.inputs) else None
            if value is None or value in seen:
                continue
            seen.add(value)
            if value.is_initializer() and isinstance(value.const_value, ir.ExternalTensor):
                yield node, value


def rename_apart(nodes: list[ir.Node]) -> None:
    """Give nodes names that no node of their graph has: ``name_1``, ``name_2``."""
    taken_by_graph: dict[ir.Graph | ir.Function | None, set[str]] = {}
    for node in nodes:
        owner = node.graph
        if owner not in taken_by_graph:
            taken_by_graph[owner] = {x.name or "" for x in owner or ()}
        taken, number = taken_by_graph[owner], 1
        while f"{node.name}_{number}" in taken:
            number += 1
        node.name = f"{node.name}_{number}"
        taken.add(node.name)


def move_inside(value: ir.Value) -> None:
    """Make a constant that lies in another file part of the model."""
    tensor = value.const_value
    assert tensor is not None
    value.const_value = ir.tensor(tensor.numpy().copy(), tensor.dtype, name=value.name)


def loadable_copy(model: ir.Model) -> ir.Model | None:
    """Return a copy without these obstacles; None if there are none."""
    if not [*nodes_of_taken_names(model), *external_sizes(model)]:
        return None
    copy = model.clone()
    rename_apart(list(nodes_of_taken_names(copy)))
    for _, value in list(external_sizes(copy)):
        move_inside(value)
    return copy


@contextlib.contextmanager
def without_inner_shapes(model: ir.Model) -> Iterator[None]:
    """Declare no shapes but those of inputs and outputs within the block.

    ONNX Runtime infers the others; one that contradicts the graph may keep it from loading.
    """
    values = [x for node in all_nodes(model) for x in node.outputs if not x.is_graph_output()]
    declared = [(x, x.shape) for x in values if x.shape is not None]
    try:
        for value, _ in declared:
            value.shape = None
        yield
    finally:
        for value, shape in declared:
            value.shape = shape
