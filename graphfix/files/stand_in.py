"""Stand-ins for models, on which ONNX Runtime's optimizer can be watched on the CPU.

The CPU has no kernels for float16, and puts Casts around every node of such a model before it
fuses anything; weights of gigabytes would only be read and written. The stand-in has wider types
and, instead of large weights, nodes that nothing can fold; what the optimizer makes of it is what
it would make of the model.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from graphfix.graph.nodes import tensor_attributes
from graphfix.graph.walks import all_nodes, graphs_of

# A Cast between the two stays one.
WIDER_FLOATS = {ir.DataType.FLOAT16: ir.DataType.FLOAT, ir.DataType.FLOAT: ir.DataType.DOUBLE}
# Where double is not taken, such as for the scales of a Resize.
WIDER_HALF = {ir.DataType.FLOAT16: ir.DataType.FLOAT}

_LARGE_ELEMENTS = 16_384
_HEAVY_BYTES = 256_000_000
_PLACEHOLDER = "graphfix.weight."


def uses_float16(model: ir.Model) -> bool:
    """Return whether a model computes in float16."""
    return any(x.dtype == ir.DataType.FLOAT16 for x in _all_values(model)) or any(
        attribute.value == ir.DataType.FLOAT16 for _, attribute in _dtype_attributes(model)
    )


def has_heavy_weights(model: ir.Model) -> bool:
    """Return whether the weights are too much to read and write for a look at the graph."""
    tensors = (x.const_value for x in _all_initializers(model))
    return sum(x.nbytes for x in tensors if x is not None) > _HEAVY_BYTES


def widened_copy(model: ir.Model, types: Mapping[ir.DataType, ir.DataType]) -> ir.Model:
    """Return a copy of a model with other element types."""
    copy = model.clone()
    for value in _all_values(copy):
        if isinstance(value.type, ir.TensorType) and value.type.dtype in types:
            value.type = ir.TensorType(types[value.type.dtype])
        if value.const_value is not None and value.const_value.dtype in types:
            value.const_value = _cast_tensor(value.const_value, types[value.const_value.dtype])
    for node, attribute in list(_dtype_attributes(copy)):
        wide = types.get(ir.DataType(attribute.value))
        if wide is not None:
            node.attributes[attribute.name] = ir.AttrInt64(attribute.name, int(wide))
    for node in list(all_nodes(copy)):
        for name, tensor in tensor_attributes(node):
            if tensor.dtype in types:
                node.attributes[name] = ir.AttrTensor(
                    name, _cast_tensor(tensor, types[tensor.dtype])
                )
    return copy


def narrow_types(model: ir.Model, types: Mapping[ir.DataType, ir.DataType]) -> None:
    """Give the values of what was made of a widened copy the types of the original."""
    back = {wide: narrow for narrow, wide in types.items()}
    for value in _all_values(model):
        if isinstance(value.type, ir.TensorType) and value.type.dtype in back:
            value.type = ir.TensorType(back[value.type.dtype])


def copy_without_weights(model: ir.Model) -> ir.Model:
    """Return a copy with a random node, never folded, instead of each large float weight."""
    copy = model.clone()
    graph, nodes = copy.graph, []
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        is_interface = value.is_graph_input() or value.is_graph_output()
        if tensor is None or tensor.size < _LARGE_ELEMENTS or is_interface:
            continue
        dims = ir.AttrInt64s("shape", list(tensor.shape.numpy()))
        nodes.append(ir.Node("", "RandomUniform", [], [dims], name=f"{_PLACEHOLDER}{name}"))
        if tensor.dtype != ir.DataType.FLOAT:
            dtype_attr = ir.AttrInt64("to", int(tensor.dtype))
            cast = f"{_PLACEHOLDER}cast.{name}"
            nodes.append(ir.Node("", "Cast", nodes[-1].outputs, [dtype_attr], name=cast))
        placeholder = nodes[-1].outputs[0]
        value.replace_all_uses_with(placeholder)
        del graph.initializers[name]
        placeholder.name, placeholder.type, placeholder.shape = (
            name,
            ir.TensorType(tensor.dtype),
            value.shape,
        )
    if nodes:
        graph.insert_before(graph[0], nodes) if len(graph) else graph.extend(nodes)
    return copy


def restore_weights(model: ir.Model) -> None:
    """Turn the nodes of :func:`copy_without_weights`, and what follows, into initializers."""
    graph = model.graph
    for node in list(graph):
        if not (node.name or "").startswith(_PLACEHOLDER) and not _is_of_placeholders(node):
            continue
        for value in node.outputs:
            if value.name and not value.is_graph_output():
                _make_initializer(graph, value)
        if not any(x.is_graph_output() for x in node.outputs):
            graph.remove(node)


def _is_of_placeholders(node: ir.Node) -> bool:
    inputs = [x for x in node.inputs if x is not None]
    return (
        bool(inputs)
        and all(x.is_initializer() for x in inputs)
        and any(
            (x.const_value.name or "").startswith(_PLACEHOLDER) for x in inputs if x.const_value
        )
    )


def _make_initializer(graph: ir.Graph, value: ir.Value) -> None:
    dims = [x if isinstance(x, int) else 0 for x in value.shape or ()]
    dtype = value.dtype or ir.DataType.FLOAT
    # Nothing reads it; only its size is asked for.
    lazy_tensor = ir.LazyTensor(
        lambda: ir.tensor(np.zeros(dims, dtype.numpy())),
        dtype=dtype,
        shape=ir.Shape(dims),
        name=f"{_PLACEHOLDER}{value.name}",
    )
    new = ir.Value(name=value.name, type=value.type, shape=value.shape, const_value=lazy_tensor)
    value.replace_all_uses_with(new)
    value.name = f"{value.name}.gone"
    graph.initializers[new.name or ""] = new


def _cast_tensor(tensor: ir.TensorProtocol, dtype: ir.DataType) -> ir.TensorProtocol:
    return ir.tensor(tensor.numpy().astype(dtype.numpy()), dtype=dtype, name=tensor.name)


def _all_initializers(model: ir.Model) -> Iterator[ir.Value]:
    for graph in graphs_of(model.graph):
        yield from graph.initializers.values()


def _all_values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in graphs_of(model.graph):
        yield from graph.inputs
    for node in all_nodes(model):
        yield from node.outputs
    yield from _all_initializers(model)


def _dtype_attributes(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Attr]]:
    for node in all_nodes(model):
        for name in ("to", "dtype"):
            attribute = node.attributes.get(name)
            if attribute is not None and attribute.type == ir.AttributeType.INT:
                yield node, attribute
