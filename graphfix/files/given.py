"""A model as a caller has it: a file, a ModelProto, an ONNXProgram of torch, a model of onnx-ir."""

import os
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from graphfix.errors import UsageError
from graphfix.files import io
from graphfix.paths import StrPath
from graphfix.wording import did_you_mean

PathOrModel = StrPath | ir.Model
Given = Any
"""A path, an ``onnx.ModelProto``, an ``onnx_ir.Model``, or what has ``model_proto``."""
Dims = Mapping[str, int | Sequence[int]]
"""Sizes by the name of a dim, where one may be given alone."""


def in_memory(given: Given) -> PathOrModel:
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


def on_disk(given: Given, path: Path) -> StrPath:
    """A path as it is; of anything else ``path``, where the model is saved.

    Raises:
        UsageError: It is no model.
    """
    held = in_memory(given)
    if not isinstance(held, ir.Model):
        return held
    io.save(held, path)
    return path


def sizes_of(dims: Dims | None) -> dict[str, Sequence[int]]:
    """Sizes by the name of a dim, where one may be given alone.

    Raises:
        UsageError: They are no sizes.
    """
    found: dict[str, Sequence[int]] = {}
    try:
        for name, x in (dims or {}).items():
            found[name] = tuple(map(index, x if isinstance(x, Iterable) else (x,)))
    except (AttributeError, TypeError) as error:
        example = "such as {'T': [7, 40]}"
        raise UsageError(f"dims={dims!r}: give sizes by the name of a dim, {example}") from error
    return found


def one_size(dims: Dims | None) -> dict[str, int]:
    """The same where a dim has one size.

    Raises:
        UsageError: They are no sizes, or a dim is given several.
    """
    found = sizes_of(dims)
    for name, sizes in found.items():
        if len(set(sizes)) != 1:
            raise UsageError(f"{name}: one size is needed here; give one of {list(sizes)}")
    return {name: sizes[0] for name, sizes in found.items()}


def arrays_of(feeds: StrPath | Mapping[str, Any] | None) -> StrPath | dict[str, Any] | None:
    """A file of feeds as it is; of anything else an array for each input.

    Raises:
        UsageError: They are no feeds.
    """
    if feeds is None or isinstance(feeds, (str, os.PathLike)):
        return feeds
    if not isinstance(feeds, Mapping):
        raise UsageError(f"feeds={feeds!r}: give an .npz file, or an array for each input by name")
    return {name: np.asarray(array) for name, array in feeds.items()}


def require_known(**given: tuple[object, Sequence[str]]) -> None:
    """Raise UsageError for an option that is none of those that it can be."""
    for name, (value, known) in given.items():
        if value not in known:
            raise UsageError(f"{name}={value!r}: give one of {', '.join(map(repr, known))}")


def refuse_unknown(options: Mapping[str, object], known: type) -> None:
    """Raise UsageError for an option that the TypedDict ``known`` has not."""
    names = known.__annotations__
    for name in options.keys() - names.keys():
        raise UsageError(f"there is no option {name!r}{did_you_mean(name, names)}")
