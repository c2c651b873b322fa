"""Sparse constants as dense ones, which is what ONNX Runtime makes of them when it loads a model.

onnx-ir has no place for them. So passes see dense constants. What no pass has changed is written
as the file has it, sparse, see :mod:`graphfix.model.original`; :func:`drop_replaced` takes those
out of which a dense one is written.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

from graphfix.model.sizes import sparse_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 1 << 30  # bytes; a message of protobuf takes two of them
_CONSTANT, _DENSE = "sparse_value", "value"


def densified(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy with a dense constant in the place of each sparse one.

    Those stay that are too large, or lie in another file.

    Returns:
        None if there is none.
    """
    if not any(graph.sparse_initializer for graph in _graphs(proto)) and not any(
        True for node in _nodes(proto) for _ in _sparse_in(node)
    ):
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for graph in _graphs(copy):
        for i, sparse in reversed([*enumerate(graph.sparse_initializer)]):
            if (dense := _dense(sparse)) is not None:
                dense.name = sparse.values.name
                graph.initializer.append(dense)
                del graph.sparse_initializer[i]
    for node in _nodes(copy):
        for attribute in _sparse_in(node):
            if (dense := _dense(attribute.sparse_tensor)) is not None:
                attribute.Clear()
                attribute.name, attribute.type = _DENSE, onnx.AttributeProto.TENSOR
                attribute.t.CopyFrom(dense)
    return copy


def drop_replaced(proto: onnx.ModelProto) -> None:
    """Take out of a model what is there as a dense constant, too."""
    for graph in _graphs(proto):
        dense = {x.name for x in graph.initializer} if graph.sparse_initializer else ()
        for i, sparse in reversed([*enumerate(graph.sparse_initializer)]):
            if sparse.values.name in dense:
                del graph.sparse_initializer[i]
    for node in _nodes(proto):
        names = [x.name for x in node.attribute]
        if node.op_type == "Constant" and _DENSE in names and _CONSTANT in names:
            del node.attribute[names.index(_CONSTANT)]


def _graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield proto.graph
    for node in _nodes(proto):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    pending = [*proto.graph.node, *(node for f in proto.functions for node in f.node)]
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                pending.extend(graph.node)


def _sparse_in(node: onnx.NodeProto) -> Iterator[onnx.AttributeProto]:
    """The attribute of a Constant that holds a sparse tensor."""
    if node.op_type == "Constant" and len(node.attribute) == 1:
        (attribute,) = node.attribute
        if attribute.name == _CONSTANT and attribute.HasField("sparse_tensor"):
            yield attribute


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto | None:
    parts = (sparse.values, sparse.indices)
    if sparse_refusal(sparse) or any(x.data_location == onnx.TensorProto.EXTERNAL for x in parts):
        return None
    values, indices = map(numpy_helper.to_array, parts)
    if math.prod(sparse.dims) * values.itemsize > _MOST or values.dtype.kind == "O":
        return None
    made = np.zeros(tuple(sparse.dims), values.dtype)
    where = (
        np.unravel_index(indices, made.shape)
        if indices.ndim == 1
        else tuple(indices[:, axis] for axis in range(made.ndim))
    )
    made[where] = values
    # Not from_array: it has its own idea of types that numpy has not.
    return onnx.TensorProto(
        dims=made.shape, data_type=sparse.values.data_type, raw_data=made.tobytes()
    )
