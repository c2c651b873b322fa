"""Where the weights of a model lie, and where they shall lie when it is saved."""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import onnx
import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.files import external_files
from graphfix.files.external_files import tensors_of
from graphfix.files.half_weights import MARK, Narrowed, file_of
from graphfix.files.wire import BIG, Chunk, Narrow, Span
from graphfix.graph.nodes import tensor_in
from graphfix.graph.walks import all_graphs, tops_of

Placement = Literal["auto", "keep", "inline", "separate"]
"""Where weights go: as they were, but not over 2 GB in one file (auto); as they were (keep);
all into the model file (inline); all into one file beside it (separate)."""

_EXTERNAL = onnx.TensorProto.EXTERNAL

# Memory mapping wants whole pages; Windows maps at 64 KiB.
_ALIGN_FROM, _ALIGN = 1 << 20, 1 << 16
_TENSOR, _TENSORS = ir.AttributeType.TENSOR, ir.AttributeType.TENSORS
_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Every tensor of the model whose bytes are only referred to."""
    for tensor in tensors_in(model):
        if _is_external(type(tensor)):
            yield cast("ir.ExternalTensor", tensor)


@functools.cache
def _is_external(kind: type) -> bool:
    """Asked of the types, of which there are few: of each tensor it takes onnx-ir far longer."""
    return issubclass(kind, ir.ExternalTensor)


def size_of(model: ir.Model) -> int:
    """The bytes of all weights: the initializers, and the big constants in nodes."""
    values = (x for graph in all_graphs(model) for x in graph.initializers.values())
    tensors = (x.const_value for x in values if x.const_value is not None)
    held = (x for x in tensors if not isinstance(x, ir.ExternalTensor))
    return sum(x.nbytes for x in (*external_tensors(model), *held))


def files_of(model: ir.Model) -> dict[str, Path]:
    """The file that each location in a model stands for.

    Raises:
        ModelError: One location stands for two files: the model was put together from several.
    """
    found: dict[tuple[str, str], Path] = {}
    for tensor in external_tensors(model):
        # Asked of the file system once each: thousands of weights are in the same few files.
        key = str(tensor.base_dir), str(tensor.location)
        if key not in found:
            found[key] = file_of(tensor.wide if isinstance(tensor, Narrowed) else tensor)
    files: dict[str, Path] = {}
    for (_, location), file in found.items():
        if files.setdefault(location, file) != file:
            raise ModelError(f"weights from several files of one name: {files[location]}, {file}")
    return files


def tensors_in(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Every constant of the model: initializers, and those in attributes, at any depth."""
    for graph in tops_of(model):
        yield from _tensors_in(graph)


def _tensors_in(graph: ir.Graph) -> Iterator[ir.TensorProtocol]:
    for value in graph.initializers.values():
        if value.const_value is not None:
            yield value.const_value
    for node in graph:
        for attribute in node.attributes.data.values():
            kind = attribute.type
            if attribute.is_ref():
                continue
            if kind is _TENSOR:
                yield tensor_in(attribute)
            elif kind is _TENSORS:
                yield from attribute.value
            elif kind in (_GRAPH, _GRAPHS):
                for body in [attribute.as_graph()] if kind is _GRAPH else attribute.as_graphs():
                    yield from _tensors_in(body)


@dataclass
class Store:
    """A file of separate weights in the making, which several models may share.

    Attributes:
        name: The file's name; it lies in the folder of the models.
        data: What it is made of, in order.
        size: Its bytes so far.
    """

    name: str
    data: list[Chunk] = field(default_factory=list)
    size: int = 0
    _known: dict[Span, int] = field(default_factory=dict)

    def put(self, weight: Span | bytes, length: int) -> int:
        """Add a weight and return its offset; what another model has put there is there once."""
        if isinstance(weight, Span) and weight in self._known:
            return self._known[weight]
        gap = -self.size % (_ALIGN if length >= _ALIGN_FROM else 64)
        at = self.size + gap
        self.data += [bytes(gap), weight]
        self.size = at + length
        if isinstance(weight, Span):
            self._known[weight] = at
        return at


@dataclass
class Plan:
    """What saving does with each weight.

    Attributes:
        inline: What becomes part of the model file, by location, offset and length, as text, and
            the range that it is.
        size: The bytes that go into the model file besides the graph.
    """

    inline: dict[tuple[str, str, str], Span] = field(default_factory=dict)
    size: int = 0


def plan(
    proto: onnx.ModelProto,
    files: Mapping[str, Path],
    source: Path | None,
    target: Path,
    placement: Placement,
    room: int,
    store: Store,
) -> Plan:
    """Decide for each weight in ``proto``, and make its reference say so.

    Args:
        proto: The model as it is to be written; references in it are changed.
        files: What each location in it stands for.
        source: The file that it was loaded from: weights in that very file were inline.
        target: The file that it is going to.
        placement: What the user wants.
        room: How many bytes of weights fit into the model file.
        store: Where separate weights go.
    """
    here = target.parent.resolve()
    inside = None if source is None else source.resolve()
    stay = {x for x, file in files.items() if external_files.leads_to(here, x, file)}
    if any(x.endswith(MARK) for x in files):
        # What is converted goes into a new file, and what is not with it: one file, not two.
        stay = set()
    lie = {location: (str(file), file == inside) for location, file in files.items()}
    found = []
    for tensor in tensors_of(proto):
        span, goes = None, "inline"
        if tensor.data_location == _EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            location = entries["location"]
            file, is_inside = lie[location]
            made_of = Narrow if location.endswith(MARK) else Span
            span = made_of(file, int(entries.get("offset", 0)), _size_of(tensor))
            if not is_inside:
                goes = "stay" if location in stay else "separate"
        goes = placement if placement in ("inline", "separate") else goes
        found.append((tensor, span, goes))
    if placement == "auto":
        inline = sum(x.length for _, x, goes in found if x is not None and goes == "inline")
        if inline > room:
            found = [(tensor, span, "separate") for tensor, span, _ in found]
    made = Plan()
    for tensor, span, goes in found:
        if goes == "separate":
            length = len(tensor.raw_data) if span is None else span.length
            if span is not None or length >= BIG:
                at = store.put(bytes(tensor.raw_data) if span is None else span, length)
                _refer(tensor, store.name, at, length)
        elif goes == "inline" and span is not None:
            made.inline[_complete(tensor, span)] = span
            made.size += span.length
    return made


def _size_of(tensor: onnx.TensorProto) -> int:
    return cast("int", -(-(math.prod(tensor.dims) * ir.DataType(tensor.data_type).bitwidth) // 8))


def _complete(tensor: onnx.TensorProto, span: Span) -> tuple[str, str, str]:
    """Make a reference say all it may, so that it is the key of what it refers to."""
    entries = {entry.key: entry for entry in tensor.external_data}
    for key, number in (("offset", span.offset), ("length", span.length)):
        if key not in entries:
            tensor.external_data.add(key=key, value=str(number))
        else:
            entries[key].value = str(number)
    return entries["location"].value, str(span.offset), str(span.length)


def _refer(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = _EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
