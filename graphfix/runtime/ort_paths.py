"""Paths that ONNX Runtime can open; needs nothing but Python."""

import sys
from pathlib import Path

WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""The session option that says where the external weights of a model given as bytes lie."""


def openable_source(source: str | bytes) -> tuple[str | bytes, Path | None]:
    """Return a model that ONNX Runtime can open, and its weights' folder if that is needed.

    On Windows 1.24.4 opens no file whose name is outside the ANSI code page ("No Unicode
    translation"), while its bytes are like any other's.
    """
    if sys.platform != "win32" or isinstance(source, bytes):
        return source, None
    try:
        source.encode("mbcs", "strict")
    except UnicodeEncodeError:
        path = Path(source)
        return path.read_bytes(), path.parent.resolve()
    return source, None
