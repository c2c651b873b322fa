"""The files that a model refers to for its weights, read from its bytes: needs nothing but Python.

A model is a protobuf message (https://protobuf.dev/programming-guides/encoding), and a tensor in it
may say that its data is in another file. A shipped model refers only to files of its folder.
"""

from collections.abc import Iterator
from pathlib import Path

from graphfix.errors import ModelError
from graphfix.shipped.manifest import NAME, Manifest

# onnx.proto: which fields of a message may hold tensors, and what they are.
_HOLDERS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse tensor",
        23: "sparse tensor",
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
_KEY, _VALUE = 1, 2  # of an entry
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5


def require_own_references(folder: Path, file: str, manifest: Manifest) -> None:
    """Raise ModelError where a model of a folder refers to a file that is none of the folder."""
    path = folder / file
    try:
        locations = locations_in(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is no model: {error}; ship the model again") from error
    if strange := sorted(locations - {x.name for x in manifest.files}):
        raise ModelError(
            f"{path}: refers to {strange[0]!r:.200} for weights, which is none of the files that "
            f"{NAME} lists; ship the model again"
        )


def locations_in(content: bytes) -> frozenset[str]:
    """Return the locations of all tensors whose data is in another file.

    Raises:
        ValueError: The bytes are no message.
        RecursionError: It is nested too deeply.
    """
    if b"location" not in content:
        return frozenset()
    return frozenset(_locations(memoryview(content), "model"))


def _locations(message: memoryview, kind: str) -> Iterator[str]:
    holders = _HOLDERS[kind]
    for number, value in _fields(message):
        inner = holders.get(number)
        if inner == "entry":
            yield from _location_of(value)
        elif inner is not None:
            yield from _locations(value, inner)


def _location_of(entry: memoryview) -> Iterator[str]:
    """Yield the value of an entry that is a location; the last of several counts, as for ONNX."""
    fields = {number: bytes(value).decode() for number, value in _fields(entry)}
    if fields.get(_KEY) == "location":
        yield fields.get(_VALUE, "")


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the number and the content of each field that has a length.

    Raises:
        ValueError: The bytes are no message.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            _, at = _varint(message, at)
        elif wire_type == _BYTES:
            size, at = _varint(message, at)
            if size > end - at:
                raise ValueError("a field is longer than the file")
            yield number, message[at : at + size]
            at += size
        elif wire_type in (_EIGHT_BYTES, _FOUR_BYTES):
            at += 8 if wire_type == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"there is a field of type {wire_type}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    number = shift = 0
    while shift < 70 and at < len(message):
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise ValueError("a number does not end")
