"""Stand-ins for operators that DirectML runs and the CPU does not, so that a proof can run them.

ONNX Runtime's CPU provider has no EyeLike of bool, which torch.eye becomes, no Trilu of int8 and no
DepthToSpace of integers. The stand-in computes in a wider type that holds every value of the
narrower one, and casts the result back.
"""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from graphfix.facts.shapes import Shapes, shapes_of
from graphfix.graph.walks import all_nodes, opset_of
from graphfix.ops.schemas import schema_of
from graphfix.providers import kernels
from graphfix.providers.directml import cpu_kernels

# Integers first: a Cast back from them wraps around as arithmetic in the narrower type does.
_WIDER = (
    *(ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT8, ir.DataType.FLOAT),
    ir.DataType.DOUBLE,
)
_NOTE = (
    "the CPU has no kernel for {0} of {1}, so it was run as {0} of {2} and a Cast; --ep dml runs "
    "the repaired model on DirectML"
)


def stand_in_copy(model: ir.Model) -> tuple[ir.Model, tuple[str, ...]] | None:
    """Return a copy that the CPU runs, and a sentence for each kind of stand-in; None if none fits.

    Args:
        model: A model for which the CPU lacks a kernel; it is not changed.
    """
    copy = model.clone()
    shapes, opset, notes = shapes_of(copy), opset_of(copy), dict[str, None]()
    for node in list(all_nodes(copy)):
        if cpu_kernels.runs_on_cpu(node, opset, shapes.dtype) is not False:
            continue
        for narrow, wide in _type_pairs(node, opset, shapes):
            if cpu_kernels.runs_on_cpu(node, opset, _read_as(shapes, narrow, wide)):
                _compute_in(node, shapes, narrow, wide)
                types = narrow.name.lower(), wide.name.lower()
                notes[_NOTE.format(node.op_type, *types)] = None
                break
        else:
            return None
    return (copy, tuple(notes)) if notes else None


def _type_pairs(
    node: ir.Node, opset: int, shapes: Shapes
) -> Iterator[tuple[ir.DataType, ir.DataType]]:
    """Yield each type of a node with the types that hold all of its values."""
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is None:
        return
    typed = kernels.typed_values(node, schema, shapes.dtype)
    for narrow in dict.fromkeys(dtype for _, _, dtype in typed):
        yield from ((narrow, wide) for wide in _WIDER if _holds_all(wide, narrow))


def _holds_all(wide: ir.DataType, narrow: ir.DataType) -> bool:
    """Return whether a type holds every value of another exactly."""
    if narrow.bitwidth < 8 or (narrow.bitwidth >= wide.bitwidth and narrow != ir.DataType.BOOL):
        return False
    return bool(np.can_cast(narrow.numpy(), wide.numpy(), "safe"))


def _read_as(shapes: Shapes, narrow: ir.DataType, wide: ir.DataType) -> cpu_kernels.TypeReader:
    """Return a reader of types for which one type is another."""

    def dtype_of(value: ir.Value) -> ir.DataType | None:
        dtype = shapes.dtype(value)
        return wide if dtype == narrow else dtype

    return dtype_of


def _compute_in(node: ir.Node, shapes: Shapes, narrow: ir.DataType, wide: ir.DataType) -> None:
    """Let a node compute in a wider type, between Casts; its outputs keep their names."""
    graph = node.graph
    assert graph is not None
    for i, value in enumerate(node.inputs):
        if value is not None and shapes.dtype(value) == narrow:
            widened = _cast(value, wide)
            graph.insert_before(node, widened)
            node.replace_input_with(i, widened.outputs[0])
    for name, attribute in list(node.attributes.items()):
        # EyeLike and the random operators name the type of what they make.
        if name == "dtype" and attribute.value == narrow:
            node.attributes[name] = ir.AttrInt64(name, int(wide))
    for value in node.outputs:
        if shapes.dtype(value) == narrow:
            _cast_back(graph, node, value, narrow, wide)


def _cast_back(
    graph: ir.Graph | ir.Function,
    node: ir.Node,
    value: ir.Value,
    narrow: ir.DataType,
    wide: ir.DataType,
) -> None:
    """Put a Cast behind an output, whose name and readers it takes over."""
    cast = _cast(value, narrow)
    result = cast.outputs[0]
    result.type, result.shape = ir.TensorType(narrow), value.shape
    value.replace_all_uses_with(result, replace_graph_outputs=True)
    cast.replace_input_with(0, value)
    result.name, value.name = value.name, f"{value.name}.wide"
    value.type = ir.TensorType(wide)
    graph.insert_after(node, cast)


def _cast(value: ir.Value, dtype: ir.DataType) -> ir.Node:
    return ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))])
