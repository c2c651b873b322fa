"""Placement of a model's weights: where they lie, and where saving puts them."""

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
from graphfix.files.external_files import proto_tensors
from graphfix.files.half_weights import FLOAT16_MARK, NarrowedTensor, file_of_tensor
from graphfix.files.wire import BIG, Chunk, Float16Span, Span
from graphfix.graph.nodes import tensor_of_attr
from graphfix.graph.walks import all_graphs, top_graphs

Placement = Literal["auto", "keep", "inline", "separate"]
"""Where weights go: as they were, but not over 2 GB in one file (auto); as they were (keep);
all into the model file (inline); all into one file beside it (separate)."""

_EXTERNAL = onnx.TensorProto.EXTERNAL

# Memory mapping wants whole pages; Windows maps at 64 KiB.
_ALIGN_FROM, _ALIGN = 1 << 20, 1 << 16
_TENSOR, _TENSORS = ir.AttributeType.TENSOR, ir.AttributeType.TENSORS
_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Yield every tensor of the model whose bytes are only referred to."""
    for tensor in model_tensors(model):
        if _is_external(type(tensor)):
            yield cast("ir.ExternalTensor", tensor)


@functools.cache
def _is_external(kind: type) -> bool:
    """Return whether a type is of external tensors; asked of each tensor, onnx-ir takes longer."""
    return issubclass(kind, ir.ExternalTensor)


def weight_bytes(model: ir.Model) -> int:
    """Return the bytes of all weights: the initializers, and the big constants in nodes."""
    values = (x for graph in all_graphs(model) for x in graph.initializers.values())
    tensors = (x.const_value for x in values if x.const_value is not None)
    internal = (x for x in tensors if not isinstance(x, ir.ExternalTensor))
    return sum(x.nbytes for x in (*external_tensors(model), *internal))


def files_by_location(model: ir.Model) -> dict[str, Path]:
    """Return the file that each location in a model stands for.

    Raises:
        ModelError: One location stands for two files: the model was put together from several.
    """
    file_by_reference: dict[tuple[str, str], Path] = {}
    for tensor in external_tensors(model):
        # Asked of the file system once each: thousands of weights are in the same few files.
        key = str(tensor.base_dir), str(tensor.location)
        if key not in file_by_reference:
            file_by_reference[key] = file_of_tensor(
                tensor.wide if isinstance(tensor, NarrowedTensor) else tensor
            )
    files: dict[str, Path] = {}
    for (_, location), file in file_by_reference.items():
        if files.setdefault(location, file) != file:
            raise ModelError(f"weights from several files of one name: {files[location]}, {file}")
    return files


def model_tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Yield every constant of the model: initializers and attributes, at any depth."""
    for graph in top_graphs(model):
        yield from _graph_tensors(graph)


def _graph_tensors(graph: ir.Graph) -> Iterator[ir.TensorProtocol]:
    for value in graph.initializers.values():
        if value.const_value is not None:
            yield value.const_value
    for node in graph:
        for attribute in node.attributes.data.values():
            kind = attribute.type
            if attribute.is_ref():
                continue
            if kind is _TENSOR:
                yield tensor_of_attr(attribute)
            elif kind is _TENSORS:
                yield from attribute.value
            elif kind in (_GRAPH, _GRAPHS):
                for body in [attribute.as_graph()] if kind is _GRAPH else attribute.as_graphs():
                    yield from _graph_tensors(body)


@dataclass
class WeightStore:
    """A file of separate weights in the making, which several models may share.

    Attributes:
        name: The file's name; it lies in the folder of the models.
        data: What it is made of, in order.
        size: Its bytes so far.
    """

    name: str
    data: list[Chunk] = field(default_factory=list)
    size: int = 0
    _offset_by_span: dict[Span, int] = field(default_factory=dict)

    def add_weight(self, weight: Span | bytes, length: int) -> int:
        """Add a weight and return its offset; a span that is there already is shared."""
        if isinstance(weight, Span) and weight in self._offset_by_span:
            return self._offset_by_span[weight]
        gap = -self.size % (_ALIGN if length >= _ALIGN_FROM else 64)
        offset = self.size + gap
        self.data += [bytes(gap), weight]
        self.size = offset + length
        if isinstance(weight, Span):
            self._offset_by_span[weight] = offset
        return offset


@dataclass
class WeightPlan:
    """The place of each weight in a model that is saved.

    Attributes:
        inline: What becomes part of the model file, by location, offset and length, as text, and
            the range that it is.
        size: The bytes that go into the model file besides the graph.
    """

    inline: dict[tuple[str, str, str], Span] = field(default_factory=dict)
    size: int = 0


def plan_weights(
    proto: onnx.ModelProto,
    files: Mapping[str, Path],
    source: Path | None,
    target: Path,
    placement: Placement,
    room: int,
    store: WeightStore,
) -> WeightPlan:
    """Decide where each weight in ``proto`` goes, and make its reference say so.

    Args:
        proto: The model as it is to be written; references in it are changed.
        files: What each location in it stands for.
        source: The file that it was loaded from: weights in that very file were inline.
        target: The file that it is going to.
        placement: What the user wants.
        room: How many bytes of weights fit into the model file.
        store: Where separate weights go.
    """
    target_folder = target.parent.resolve()
    source_file = None if source is None else source.resolve()
    staying_locations = {
        x for x, file in files.items() if external_files.resolves_to(target_folder, x, file)
    }
    if any(x.endswith(FLOAT16_MARK) for x in files):
        # What is converted goes into a new file, and what is not with it: one file, not two.
        staying_locations = set()
    file_by_location = {
        location: (str(file), file == source_file) for location, file in files.items()
    }
    decisions = []
    for tensor in proto_tensors(proto):
        span, destination = None, "inline"
        if tensor.data_location == _EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            location = entries["location"]
            file, is_inside = file_by_location[location]
            span_type = Float16Span if location.endswith(FLOAT16_MARK) else Span
            span = span_type(file, int(entries.get("offset", 0)), _tensor_bytes(tensor))
            if not is_inside:
                destination = "stay" if location in staying_locations else "separate"
        destination = placement if placement in ("inline", "separate") else destination
        decisions.append((tensor, span, destination))
    if placement == "auto":
        inline = sum(
            x.length for _, x, destination in decisions if x is not None and destination == "inline"
        )
        if inline > room:
            decisions = [(tensor, span, "separate") for tensor, span, _ in decisions]
    weight_plan = WeightPlan()
    for tensor, span, destination in decisions:
        if destination == "separate":
            length = len(tensor.raw_data) if span is None else span.length
            if span is not None or length >= BIG:
                offset = store.add_weight(bytes(tensor.raw_data) if span is None else span, length)
                _set_reference(tensor, store.name, offset, length)
        elif destination == "inline" and span is not None:
            weight_plan.inline[_complete_reference(tensor, span)] = span
            weight_plan.size += span.length
    return weight_plan


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    return cast("int", -(-(math.prod(tensor.dims) * ir.DataType(tensor.data_type).bitwidth) // 8))


def _complete_reference(tensor: onnx.TensorProto, span: Span) -> tuple[str, str, str]:
    """Make a reference say offset and length, and return it as the key of its span."""
    entries = {entry.key: entry for entry in tensor.external_data}
    for key, number in (("offset", span.offset), ("length", span.length)):
        if key not in entries:
            tensor.external_data.add(key=key, value=str(number))
        else:
            entries[key].value = str(number)
    return entries["location"].value, str(span.offset), str(span.length)


def _set_reference(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = _EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
