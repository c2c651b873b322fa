"""The protobuf of a model on the wire: weights left where they lie, the rest read or written.

A model with its weights inside is one protobuf message of up to 2 GB, nearly all of it in the
``raw_data`` fields of its tensors. Here those fields are found by walking the message's own
structure (a tag and a length each, https://protobuf.dev/programming-guides/encoding), so that a
weight is neither read nor copied: :func:`slim` gives the message with each big ``raw_data``
replaced by a reference to where it lies, and :func:`fill` turns such references back into
``raw_data``, as ranges of files to be streamed.
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


class MalformedError(NotUnderstoodError):
    """The bytes are no message at all: no reader will understand them."""


@dataclass(frozen=True)
class Span:
    """``length`` bytes of the file ``path`` from ``offset`` on."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True)
class Narrow(Span):
    """``length`` bytes of float16, made of twice as many of float32 in the file from ``offset``."""


Chunk = bytes | memoryview | Span
"""A piece of a message that is to be written: bytes at hand, or a range of a file."""


class _Field(NamedTuple):
    """One field of a message; positions are those in the whole buffer."""

    number: int
    wire_type: int
    start: int  # of the tag
    value: int  # of the contents
    end: int


# What a message becomes, or None if it stays as it is.
_Edit = Callable[[memoryview, int, int], "list[Chunk] | None"]


def slim(buffer: memoryview, location: str, passed: Callable[[], object] = lambda: None) -> bytes:
    """The model in ``buffer`` with every big ``raw_data`` replaced by a reference.

    Args:
        buffer: The whole file.
        location: The name of that file, for the references (ONNX external data).
        passed: Called after each weight, so that a mapping can let go of what was looked at.

    Raises:
        NotUnderstoodError: The file is not laid out as expected.
    """

    def refer(buffer: memoryview, start: int, end: int) -> list[Chunk] | None:
        fields = list(_fields(buffer, start, end))
        raw = [f for f in fields if f.number == _RAW_DATA]
        if not raw or raw[0].end - raw[0].value < BIG:
            return None
        if len(raw) > 1 or any(f.number == _EXTERNAL_DATA for f in fields):
            raise NotUnderstoodError("a tensor with its data in two places")
        said = any(f.number == _DATA_LOCATION for f in fields)
        kept = [bytes(x) for x in _without(buffer, fields, _RAW_DATA, _DATA_LOCATION)]
        passed()
        return [
            *kept,
            _entry("location", location),
            _entry("offset", str(raw[0].value)),
            _entry("length", str(raw[0].end - raw[0].value)),
            # Said twice where the file says that the data is in its default place: see `fill`.
            *([_entry("location", location)] if said else []),
            _tag(_DATA_LOCATION, _VARINT) + _varint(_EXTERNAL),
        ]

    return b"".join(x for x in _model(buffer, refer, least=BIG) if not isinstance(x, Span))


def fill(message: bytes, resolve: Callable[[dict[str, str]], Span | None]) -> list[Chunk]:
    """The model in ``message`` with references turned back into ``raw_data``.

    Args:
        message: A serialized model.
        resolve: Given the external data entries of a tensor (location, offset, length), the range
            that is to become its ``raw_data``, or None if the reference is to stay.
    """

    def inline(buffer: memoryview, start: int, end: int) -> list[Chunk] | None:
        fields = list(_fields(buffer, start, end))
        given = [bytes(buffer[f.value : f.end]) for f in fields if f.number == _EXTERNAL_DATA]
        pairs = [(x.key, x.value) for x in map(StringStringEntryProto.FromString, given)]
        span = resolve(dict(pairs)) if pairs else None
        if span is None:
            return None
        kept: list[Chunk] = [*_without(buffer, fields, _EXTERNAL_DATA, _DATA_LOCATION)]
        if len(dict(pairs)) < len(pairs):
            kept.append(_tag(_DATA_LOCATION, _VARINT) + _varint(_DEFAULT))
        return [*kept, _tag(_RAW_DATA, _BYTES) + _varint(span.length), span]

    return _model(memoryview(message), inline, least=0, training=True)


def size_of(chunks: Sequence[Chunk]) -> int:
    """The number of bytes that ``chunks`` come to."""
    return sum(x.length if isinstance(x, Span) else len(x) for x in chunks)


def _model(buffer: memoryview, edit: _Edit, least: int, *, training: bool = False) -> list[Chunk]:
    """The model with ``edit`` applied to its tensors of at least ``least`` bytes.

    Those of what is only for training are tensors if ``training``.
    """
    graphs = 0
    for count, field in enumerate(_fields(buffer, 0, len(buffer))):
        graphs += field.number == _GRAPH
        if count > _MOST_FIELDS:  # a model has some hundred; letters can be read as fields, too
            raise NotUnderstoodError("too many fields")
    if graphs != 1:
        raise NotUnderstoodError("not exactly one graph")
    inner = {_ATTRIBUTE_TENSOR: edit, _ATTRIBUTE_TENSORS: edit}
    attribute = _inside(inner, least)
    node = _inside({_NODE_ATTRIBUTE: attribute}, least)
    graph = _inside({_GRAPH_NODE: node, _GRAPH_INITIALIZER: edit}, least)
    inner |= {_ATTRIBUTE_GRAPH: graph, _ATTRIBUTE_GRAPHS: graph}  # a graph in a node in a graph
    function = _inside({_FUNCTION_NODE: node, _FUNCTION_ATTRIBUTE: attribute}, least)
    whole = {_GRAPH: graph, _FUNCTION: function}
    if training:
        whole[_TRAINING] = _inside({1: graph, 2: graph}, least)  # .initialization, .algorithm
    return _inside(whole, least)(buffer, 0, len(buffer)) or [buffer]


def _inside(edits: dict[int, _Edit], least: int) -> _Edit:
    """An edit of a message that edits some of its fields, and their lengths with them."""

    def edit(buffer: memoryview, start: int, end: int) -> list[Chunk] | None:
        chunks: list[Chunk] = []
        copied = start
        for number, wire_type, tag, value, after in _fields(buffer, start, end):
            if after - value < least or number not in edits or wire_type != _BYTES:
                continue
            new = edits[number](buffer, value, after)
            if new is not None:
                head = _tag(number, _BYTES) + _varint(size_of(new))
                chunks += [_piece(buffer[copied:tag]), head, *new]
                copied = after
        return [*chunks, _piece(buffer[copied:end])] if chunks else None

    return edit


def _piece(view: memoryview) -> Chunk:
    """What lies between two weights, taken now: to look at it again is to map its page again."""
    return bytes(view) if len(view) < BIG else view


def _fields(buffer: memoryview, start: int, end: int) -> Iterator[_Field]:
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
            raise MalformedError("a field that ends behind its message")
        yield _Field(tag >> 3, tag & 7, begin, value, at)


def _without(buffer: memoryview, fields: Sequence[_Field], *numbers: int) -> list[memoryview]:
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
    raise MalformedError("a number that does not end")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _entry(key: str, value: str) -> bytes:
    """A key and a value as one field of ``external_data``."""
    pair: bytes = StringStringEntryProto(key=key, value=value).SerializeToString()
    return _tag(_EXTERNAL_DATA, _BYTES) + _varint(len(pair)) + pair
