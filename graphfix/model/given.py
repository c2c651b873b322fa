"""A model as a caller has it: a file, a ModelProto, an ONNXProgram of torch, a model of onnx-ir."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from graphfix.errors import UsageError
from graphfix.model import io

StrPath = str | os.PathLike[str]
Given = Any
"""A path, an ``onnx.ModelProto``, an ``onnx_ir.Model``, or what has ``model_proto``."""


def in_memory(given: Given) -> StrPath | ir.Model:
    """A path as it is, anything else as a model of onnx-ir.

    Raises:
        UsageError: It is no model.
    """
    if isinstance(given, (str, os.PathLike, ir.Model)):
        return given
    proto = given if isinstance(given, onnx.ModelProto) else getattr(given, "model_proto", None)
    if not isinstance(proto, onnx.ModelProto):
        raise UsageError(
            f"{type(given).__name__} is no model; give a path, an onnx.ModelProto or an "
            "onnx_ir.Model"
        )
    return ir.from_proto(proto)


def loaded(given: Given) -> ir.Model:
    """The model of onnx-ir; the very one that is given, if it is one.

    Raises:
        ModelError: The file cannot be read.
        UsageError: It is no model.
    """
    model = in_memory(given)
    return model if isinstance(model, ir.Model) else io.load(model)


def sizes_of(dims: Mapping[str, int | Sequence[int]] | None) -> dict[str, Sequence[int]]:
    """Sizes by the name of a dim, where one may be given alone."""
    return {k: (x,) if isinstance(x, int) else tuple(x) for k, x in (dims or {}).items()}
