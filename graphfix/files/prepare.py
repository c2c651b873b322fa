"""Preparation of a model that onnx-ir just made of a file, in one walk over it."""

import contextlib
from collections.abc import Iterator

import onnx_ir as ir

from graphfix.files.external_files import ExternalFiles
from graphfix.graph.dims import drop_placeholder_names
from graphfix.graph.small_constants import cache_if_small
from graphfix.graph.walks import top_graphs

_TENSOR, _TENSORS = ir.AttributeType.TENSOR, ir.AttributeType.TENSORS
_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def prepare_model(model: ir.Model, external: ExternalFiles) -> None:
    """Replace tensors and dim names of a model just made of a file by what passes expect.

    Tensors whose bytes lie elsewhere become :class:`graphfix.model.external_files.Weight`, small
    ones :class:`graphfix.model.small_constants.CachedTensor`; what is no name of a dim is none.

    Args:
        model: The model; its nodes and tensors are as onnx-ir made them.
        external: The files that it refers to.
    """
    normalize_domain(model)  # the file's is written back
    for graph in top_graphs(model):
        _prepare_graph(graph, external)


def normalize_domain(model: ir.Model) -> list[dict[str, int]]:
    """Rename the domain ai.onnx to the empty name; return the imports that were changed."""
    spelt = [
        x for top in top_graphs(model) if "ai.onnx" in (x := top.opset_imports) and "" not in x
    ]
    for imports in spelt:
        _rename_key(imports, "ai.onnx", "")
    return spelt


@contextlib.contextmanager
def normalized_domain(model: ir.Model) -> Iterator[None]:
    """Rename the domain ai.onnx to the empty name within the block."""
    spelt = normalize_domain(model)
    try:
        yield
    finally:
        for imports in spelt:
            _rename_key(imports, "", "ai.onnx")


def _rename_key(imports: dict[str, int], old: str, new: str) -> None:
    """Rename a key of ``imports`` in its place."""
    entries = [(new if name == old else name, version) for name, version in imports.items()]
    imports.clear()
    imports.update(entries)


def _prepare_graph(graph: ir.Graph, external: ExternalFiles) -> None:
    for value in graph.initializers.values():
        if value.const_value is not None:
            value.const_value = _prepare_tensor(value.const_value, external)
    drop_placeholder_names(graph.inputs)
    for node in graph:
        drop_placeholder_names(node.outputs)
        if node.attributes.data:
            _prepare_attributes(node, external)


def _prepare_attributes(node: ir.Node, external: ExternalFiles) -> None:
    for name, attribute in node.attributes.data.items():
        if attribute.is_ref():
            continue
        kind, value = attribute.type, attribute.value
        if kind is _TENSOR:
            if (tensor := _prepare_tensor(value, external)) is not value:
                node.attributes[name] = ir.AttrTensor(name, tensor, doc_string=attribute.doc_string)
        elif kind in (_GRAPH, _GRAPHS):
            for graph in [value] if kind is _GRAPH else value:
                _prepare_graph(graph, external)
        elif kind is _TENSORS:
            several = [_prepare_tensor(x, external) for x in value]
            node.attributes[name] = ir.AttrTensors(name, several, doc_string=attribute.doc_string)


def _prepare_tensor(tensor: ir.TensorProtocol, external: ExternalFiles) -> ir.TensorProtocol:
    # Of just these types: whether it is an instance of one takes longer to say than all the rest.
    if type(tensor) is ir.TensorProtoTensor:
        return cache_if_small(tensor)
    return external.as_weight(tensor) if type(tensor) is ir.ExternalTensor else tensor
