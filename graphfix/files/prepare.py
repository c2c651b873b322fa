"""What onnx-ir makes of a file, made ready to be worked on, in one walk over it."""

import contextlib
from collections.abc import Iterator

import onnx_ir as ir

from graphfix.files.external_files import Outside
from graphfix.graph.dims import forget_no_names
from graphfix.graph.small_constants import held
from graphfix.graph.walks import tops_of

_TENSOR, _TENSORS = ir.AttributeType.TENSOR, ir.AttributeType.TENSORS
_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def make_ready(model: ir.Model, found: Outside) -> None:
    """Let the model that was just made of a file say what its file means.

    Tensors whose bytes lie elsewhere become :class:`graphfix.files.external_files.Weight`, small
    ones :class:`graphfix.graph.small_constants.Held`; what is no name of a dim is none.

    Args:
        model: The model; its nodes and tensors are as onnx-ir made them.
        found: The files that it refers to.
    """
    plain_name(model)  # the file's is written back
    for graph in tops_of(model):
        _in_graph(graph, found)


def plain_name(model: ir.Model) -> list[dict[str, int]]:
    """Call the default domain by the name that shape inference knows; what was called otherwise."""
    spelt = [x for top in tops_of(model) if "ai.onnx" in (x := top.opset_imports) and "" not in x]
    for imports in spelt:
        _rename(imports, "ai.onnx", "")
    return spelt


@contextlib.contextmanager
def one_name(model: ir.Model) -> Iterator[None]:
    """The same until the end."""
    spelt = plain_name(model)
    try:
        yield
    finally:
        for imports in spelt:
            _rename(imports, "", "ai.onnx")


def _rename(imports: dict[str, int], old: str, new: str) -> None:
    """Give an entry another name, in its place."""
    entries = [(new if name == old else name, version) for name, version in imports.items()]
    imports.clear()
    imports.update(entries)


def _in_graph(graph: ir.Graph, found: Outside) -> None:
    for value in graph.initializers.values():
        if value.const_value is not None:
            value.const_value = _ready(value.const_value, found)
    forget_no_names(graph.inputs)
    for node in graph:
        forget_no_names(node.outputs)
        if node.attributes.data:
            _in_attributes(node, found)


def _in_attributes(node: ir.Node, found: Outside) -> None:
    for name, attribute in node.attributes.data.items():
        if attribute.is_ref():
            continue
        kind, value = attribute.type, attribute.value
        if kind is _TENSOR:
            if (tensor := _ready(value, found)) is not value:
                node.attributes[name] = ir.AttrTensor(name, tensor, doc_string=attribute.doc_string)
        elif kind in (_GRAPH, _GRAPHS):
            for graph in [value] if kind is _GRAPH else value:
                _in_graph(graph, found)
        elif kind is _TENSORS:
            several = [_ready(x, found) for x in value]
            node.attributes[name] = ir.AttrTensors(name, several, doc_string=attribute.doc_string)


def _ready(tensor: ir.TensorProtocol, found: Outside) -> ir.TensorProtocol:
    # Of just these types: whether it is an instance of one takes longer to say than all the rest.
    if type(tensor) is ir.TensorProtoTensor:
        return held(tensor)
    return found.weight(tensor) if type(tensor) is ir.ExternalTensor else tensor
