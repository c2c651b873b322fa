"""Models that are written as text: ONNX's own syntax, protobuf's, JSON."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

import onnx

from graphfix.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

# What onnx.load reads of files with these names.
_FORMATS = {
    **dict.fromkeys((".textproto", ".prototxt", ".pbtxt", ".txtpb"), "textproto"),
    **dict.fromkeys((".json", ".onnxjson"), "json"),
    **dict.fromkeys((".onnxtxt", ".onnxtext"), "onnxtxt"),
}
# How deeply a model as text may be nested.
_DEEPEST = 500
_POSITION = re.compile(r"\[ParseError at position \(line: (\d+) column: (\d+)\)\]\s*")
_LONGEST = 200


def is_text(path: Path) -> bool:
    """Whether a file of this name holds a model as text, which ONNX Runtime does not read."""
    return path.suffix in _FORMATS


def read(path: Path) -> onnx.ModelProto:
    """Read a model as text. A byte order mark, as editors on Windows write it, is no part of it.

    Raises:
        ModelError: It is no such text.
    """
    text = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    _require_shallow(path, text)
    form = _FORMATS[path.suffix]
    try:
        if form == "onnxtxt":  # by way of onnx.load it comes with a warning
            return onnx.parser.parse_model(text.decode())
        return onnx.load_model_from_string(text, format=form)
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: not a model as text: it is not in UTF-8") from error
    except Exception as error:  # each parser has its own
        raise ModelError(f"{path}: not a model as text: {_reason(error)}") from error


def _require_shallow(path: Path, text: bytes) -> None:
    """Refuse what is nested so deeply that ONNX's parser would take the process with it."""
    text = text.replace(b"=>", b"")
    if max(text.count(x) for x in b"([{<") <= _DEEPEST:
        return
    depth = 0
    for byte in text:
        depth += (byte in b"([{<") - (byte in b")]}>")
        if depth > _DEEPEST:
            raise ModelError(
                f"{path}: not a model as text: brackets within brackets, more than {_DEEPEST} deep"
            )


def _reason(error: Exception) -> str:
    """What a parser found, and where, in one line."""
    said = error.args[0] if error.args else ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(error)
    if text.startswith("sto"):  # "stoll", "stoll: out of range": what C++ says of a number
        return "a number in it is too large"
    text = text.replace("Error context:", "")
    text = " ".join(_POSITION.sub(r"line \1, column \2: ", text).split())
    return text[:_LONGEST].rstrip(".") or type(error).__name__
