"""The protobuf of a model on the wire: weights left where they lie, the rest read or written.

A model with its weights inside is one protobuf message of up to 2 GB, nearly all of it in the
``raw_data`` fields of its tensors. Here those fields are found by walking the message's own
structure (a tag and a length each, https://protobuf.dev/programming-guides/encoding), so that a
weight is neither read nor copied: :func:`strip_weights` gives the message with each big
``raw_data`` replaced by a reference to where it lies, and :func:`fill_weights` turns such
references back into ``raw_data``, as ranges of files to be streamed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onnx import StringStringEntryProto

# Anything smaller is parsed as usual; passes may look at constants of some thousand bytes.
BIG = 1 << 16

# Wire types that are written here.
_VARINT, _BYTES = 0, 2

# onnx.proto: ModelProto, GraphProto, FunctionProto, NodeProto, AttributeProto
_GRAPH, _TRAINING, _FUNCTION = 7, 20, 25
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_FUNCTION_NODE, _FUNCTION_ATTRIBUTE = 7, 11
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSOR, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 5, 10, 6, 11
# onnx.proto: TensorProto
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
_DEFAULT, _EXTERNAL = 0, 1
_MOST_FIELDS = 100_000


class NotUnderstoodError(ValueError):
    """The bytes are not laid out as a model usually is; the ordinary reader must see to them."""


class BrokenMessageError(NotUnderstoodError):
    """The bytes are no message at all: no reader will understand them."""


@dataclass(frozen=True)
class Span:
    """``length`` bytes of the file ``path`` from ``offset`` on."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True)
class Float16Span(Span):
    """``length`` bytes of float16, made of twice as many of float32 in the file from ``offset``."""


Chunk = bytes | memoryview | Span
"""A piece of a message that is to be written: bytes, or a range of a file."""


class _Field(NamedTuple):
    """One field of a message; positions are those in the whole buffer."""

    number: int
    wire_type: int
    start: int  # of the tag
    value: int  # of the contents
    end: int


# What a message becomes, or None if it stays as it is.
_Edit = Callable[[memoryview, int, int], "list[Chunk] | None"]


def strip_weights(
    buffer: memoryview, location: str, after_weight: Callable[[], object] = lambda: None
) -> bytes:
    """Return the model in ``buffer`` with every big ``raw_data`` replaced by a reference.

    Args:
        buffer: The whole file.
        location: The name of that file, for the references (ONNX external data).
        after_weight: Called after each weight, so that a mapping can release the pages it has read.

    Raises:
        NotUnderstoodError: The file is not laid out as expected.
    """

    def replace_weight(buffer: memoryview, start: int, end: int) -> list[Chunk] | None:
        fields = list(_iterate_fields(buffer, start, end))
        raw = [f for f in fields if f.number == _RAW_DATA]
        if not raw or raw[0].end - raw[0].value < BIG:
            return None
        if len(raw) > 1 or any(f.number == _EXTERNAL_DATA for f in fields):
            raise NotUnderstoodError("a tensor with its data in two places")
        has_location = any(f.number == _DATA_LOCATION for f in fields)
        remaining = [bytes(x) for x in _fields_without(buffer, fields, _RAW_DATA, _DATA_LOCATION)]
        after_weight()
        return [
            *remaining,
            _encode_entry("location", location),
            _encode_entry("offset", str(raw[0].value)),
            _encode_entry("length", str(raw[0].end - raw[0].value)),
            # Said twice where the file says that the data is in its default place: see
            # `fill_weights`.
            *([_encode_entry("location", location)] if has_location else []),
            _encode_tag(_DATA_LOCATION, _VARINT) + _encode_varint(_EXTERNAL),
        ]

    return b"".join(
        x for x in _edit_model(buffer, replace_weight, least=BIG) if not isinstance(x, Span)
    )


def fill_weights(message: bytes, resolve: Callable[[dict[str, str]], Span | None]) -> list[Chunk]:
    """Return the model in ``message`` with references turned back into ``raw_data``.

    Args:
        message: A serialized model.
        resolve: Given the external data entries of a tensor (location, offset, length), the range
            that is to become its ``raw_data``, or None if the reference is to stay.
    """

    def inline_weight(buffer: memoryview, start: int, end: int) -> list[Chunk] | None:
        fields = list(_iterate_fields(buffer, start, end))
        entries = [bytes(buffer[f.value : f.end]) for f in fields if f.number == _EXTERNAL_DATA]
        pairs = [(x.key, x.value) for x in map(StringStringEntryProto.FromString, entries)]
        span = resolve(dict(pairs)) if pairs else None
        if span is None:
            return None
        chunks: list[Chunk] = [*_fields_without(buffer, fields, _EXTERNAL_DATA, _DATA_LOCATION)]
        if len(dict(pairs)) < len(pairs):
            chunks.append(_encode_tag(_DATA_LOCATION, _VARINT) + _encode_varint(_DEFAULT))
        return [*chunks, _encode_tag(_RAW_DATA, _BYTES) + _encode_varint(span.length), span]

    return _edit_model(memoryview(message), inline_weight, least=0, training=True)


def total_size(chunks: Sequence[Chunk]) -> int:
    """Return the number of bytes of ``chunks`` together."""
    return sum(x.length if isinstance(x, Span) else len(x) for x in chunks)


def _edit_model(
    buffer: memoryview, edit: _Edit, least: int, *, training: bool = False
) -> list[Chunk]:
    """Return the model with ``edit`` applied to its tensors of at least ``least`` bytes.

    Tensors that are only for training count if ``training``.
    """
    graphs = 0
    for count, field in enumerate(_iterate_fields(buffer, 0, len(buffer))):
        graphs += field.number == _GRAPH
        if count > _MOST_FIELDS:  # a model has some hundred; letters can be read as fields, too
            raise NotUnderstoodError("too many fields")
    if graphs != 1:
        raise NotUnderstoodError("not exactly one graph")
    attribute_edits = {_ATTRIBUTE_TENSOR: edit, _ATTRIBUTE_TENSORS: edit}
    attribute = _edit_of_fields(attribute_edits, least)
    node = _edit_of_fields({_NODE_ATTRIBUTE: attribute}, least)
    graph = _edit_of_fields({_GRAPH_NODE: node, _GRAPH_INITIALIZER: edit}, least)
    attribute_edits |= {
        _ATTRIBUTE_GRAPH: graph,
        _ATTRIBUTE_GRAPHS: graph,
    }  # a graph in a node in a graph
    function = _edit_of_fields({_FUNCTION_NODE: node, _FUNCTION_ATTRIBUTE: attribute}, least)
    model_edits = {_GRAPH: graph, _FUNCTION: function}
    if training:
        initialization, algorithm = 1, 2
        training_edits = {initialization: graph, algorithm: graph}
        model_edits[_TRAINING] = _edit_of_fields(training_edits, least)
    return _edit_of_fields(model_edits, least)(buffer, 0, len(buffer)) or [buffer]


def _edit_of_fields(edits: dict[int, _Edit], least: int) -> _Edit:
    """Return an edit of a message that edits some of its fields, and their lengths with them."""

    def edit(buffer: memoryview, start: int, end: int) -> list[Chunk] | None:
        chunks: list[Chunk] = []
        copied = start
        for number, wire_type, tag, value, after in _iterate_fields(buffer, start, end):
            if after - value < least or number not in edits or wire_type != _BYTES:
                continue
            new = edits[number](buffer, value, after)
            if new is not None:
                head = _encode_tag(number, _BYTES) + _encode_varint(total_size(new))
                chunks += [_copy_if_small(buffer[copied:tag]), head, *new]
                copied = after
        return [*chunks, _copy_if_small(buffer[copied:end])] if chunks else None

    return edit


def _copy_if_small(view: memoryview) -> Chunk:
    """Return a small piece as bytes: looking at it again would map its page again."""
    return bytes(view) if len(view) < BIG else view


def _iterate_fields(buffer: memoryview, start: int, end: int) -> Iterator[_Field]:
    at = start
    while at < end:
        begin = at
        # Nearly every tag is one byte; a graph has as many fields as nodes.
        tag, at = buffer[at], at + 1
        if tag >= 0x80:
            tag, at = _read_varint(buffer, begin, end)
        value = at
        match tag & 7:
            case 2:
                length, value = _read_varint(buffer, at, end)
                at = value + length
            case 0:
                _, at = _read_varint(buffer, at, end)
            case 1:
                at += 8
            case 5:
                at += 4
            case other:
                raise NotUnderstoodError(f"wire type {other}")
        if at > end or tag < 8:
            raise BrokenMessageError("a field that ends behind its message")
        yield _Field(tag >> 3, tag & 7, begin, value, at)


def _fields_without(
    buffer: memoryview, fields: Sequence[_Field], *numbers: int
) -> list[memoryview]:
    return [buffer[f.start : f.end] for f in fields if f.number not in numbers]


def _read_varint(buffer: memoryview, at: int, end: int) -> tuple[int, int]:
    result = shift = 0
    while at < end and shift < 70:
        byte = buffer[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
    raise BrokenMessageError("a number that does not end")


def _encode_varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _encode_tag(number: int, wire_type: int) -> bytes:
    return _encode_varint(number << 3 | wire_type)


def _encode_entry(key: str, value: str) -> bytes:
    """Encode a key and a value as one field of ``external_data``."""
    pair: bytes = StringStringEntryProto(key=key, value=value).SerializeToString()
    return _encode_tag(_EXTERNAL_DATA, _BYTES) + _encode_varint(len(pair)) + pair
