"""Where the weights of a model lie, and where they shall lie when it is saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import onnx
import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.model.values import graphs_of, tensor_in
from graphfix.model.wire import BIG, Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.model.wire import Chunk

Placement = Literal["auto", "keep", "inline", "separate"]
"""Where weights go: as they were, but not over 2 GB in one file (auto); as they were (keep);
all into the model file (inline); all into one file beside it (separate)."""

# Memory mapping wants whole pages; Windows maps at 64 KiB.
_ALIGN_FROM, _ALIGN = 1 << 20, 1 << 16


def external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Every tensor of the model whose bytes are only referred to."""
    for graph in graphs_of(model.graph):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield value.const_value
        for node in graph:
            for attribute in node.attributes.data.values():
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    tensor = tensor_in(attribute)
                    if isinstance(tensor, ir.ExternalTensor):
                        yield tensor


def size_of(model: ir.Model) -> int:
    """The bytes of all weights: the initializers, and the big constants in nodes."""
    small = (
        tensor
        for graph in graphs_of(model.graph)
        for value in graph.initializers.values()
        if (tensor := value.const_value) is not None and not isinstance(tensor, ir.ExternalTensor)
    )
    return sum(x.nbytes for x in external_tensors(model)) + sum(x.nbytes for x in small)


def check(model_path: Path, model: ir.Model) -> None:
    """Raise ModelError if weights are missing, cut short, or outside the model's folder."""
    folder, sizes = model_path.parent.resolve(), dict[str, int]()
    for tensor in external_tensors(model):
        location = str(tensor.location)
        what = f"{model_path}: the weights of {tensor.name!r} are said to be in {location!r}"
        if location not in sizes:
            file = folder / location
            if Path(location).is_absolute() or not file.resolve().is_relative_to(folder):
                raise ModelError(
                    f"{what}, which is outside the model's folder; ONNX Runtime refuses that too: "
                    "move the file beside the model and save the model again"
                )
            if not file.is_file():
                raise ModelError(
                    f"{what}, but there is no such file in {model_path.parent}; put it there"
                )
            sizes[location] = file.stat().st_size
        end = (tensor.offset or 0) + (tensor.length or 0)
        if sizes[location] < end:
            raise ModelError(
                f"{what} up to byte {end:,}, but that file has {sizes[location]:,}; "
                "it is truncated: copy it again"
            )


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
        inline: The (location, offset) pairs that become part of the model file, and their ranges.
        size: The bytes that go into the model file besides the graph.
    """

    inline: dict[tuple[str, str], Span] = field(default_factory=dict)
    size: int = 0


def plan(
    proto: onnx.ModelProto,
    model: ir.Model,
    source: Path | None,
    target: Path,
    placement: Placement,
    room: int,
    store: Store,
) -> Plan:
    """Decide for each weight in ``proto``, and make its reference say so.

    Args:
        proto: The model as it is to be written; references in it are changed.
        model: The same model, for the folder that its references start from.
        source: The file that it was loaded from: weights in that very file were inline.
        target: The file that it is going to.
        placement: What the user wants.
        room: How many bytes of weights fit into the model file.
        store: Where separate weights go.
    """
    # Asked of the file system once each: thousands of weights are in the same few files.
    bases = {tensor.base_dir for tensor in external_tensors(model)}
    folders = {Path(base).resolve() for base in bases}
    if len(folders) > 1:
        raise ModelError(f"{target}: weights from several folders: {', '.join(map(str, folders))}")
    here = target.parent.resolve()
    folder = folders.pop() if folders else here
    inside = None if source is None else str(source.resolve())
    files = _Files(folder)
    found = []
    for tensor in _tensors(proto.graph):
        span = files.span(tensor)
        was_inline = span is None or span.path == inside
        goes = "inline" if was_inline else "stay" if folder == here else "separate"
        goes = placement if placement in ("inline", "separate") else goes
        found.append((tensor, span, goes))
    if placement == "auto":
        inline = sum(x.length for _, x, goes in found if x is not None and goes == "inline")
        if inline > room:
            found = [(tensor, span, "separate") for tensor, span, _ in found]
    made = Plan()
    for tensor, span, goes in found:
        length = len(tensor.raw_data) if span is None else span.length
        if goes == "separate" and (span is not None or length >= BIG):
            at = store.put(bytes(tensor.raw_data) if span is None else span, length)
            _refer(tensor, store.name, at, length)
        elif goes == "inline" and span is not None:
            key = {entry.key: entry.value for entry in tensor.external_data}
            made.inline[key["location"], key.get("offset", "0")] = span
            made.size += length
    return made


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)


@dataclass
class _Files:
    """The files of weights in a folder, each looked up once."""

    folder: Path
    _found: dict[str, Path] = field(default_factory=dict)

    def span(self, tensor: onnx.TensorProto) -> Span | None:
        """Where the bytes of ``tensor`` lie, if outside."""
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return None
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location, length = entries["location"], entries.get("length")
        if location not in self._found:
            self._found[location] = (self.folder / location).resolve()
        path = self._found[location]
        offset = int(entries.get("offset", 0))
        size = path.stat().st_size - offset if length is None else int(length)
        return Span(str(path), offset, size)


def _refer(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
