"""Conversion of models, dims and feeds from the forms in which a caller may give them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from graphfix.errors import ModelError, UsageError
from graphfix.files import io
from graphfix.paths import StrPath
from graphfix.wording import did_you_mean

PathOrModel = StrPath | ir.Model
ModelLike = Any
"""A path, an ``onnx.ModelProto``, its bytes, an ``onnx_ir.Model``, or what has ``model_proto``."""
Dims = Mapping[str, int | Sequence[int]]
"""Sizes by the name of a dim, where one may be given alone."""


def as_path_or_model(model_like: ModelLike) -> PathOrModel:
    """Return a path as it is, anything else as a model of onnx-ir.

    Raises:
        UsageError: It is no model.
        ModelError: Its bytes are none.
    """
    if isinstance(model_like, (str, os.PathLike, ir.Model)):
        return model_like
    if isinstance(model_like, bytes):
        model_like = _parse_bytes(model_like)
    proto = (
        model_like
        if isinstance(model_like, onnx.ModelProto)
        else getattr(model_like, "model_proto", None)
    )
    if not isinstance(proto, onnx.ModelProto):
        raise UsageError(
            f"{type(model_like).__name__} is no model; give a path, an onnx.ModelProto, its bytes "
            "or an onnx_ir.Model"
        )
    return ir.from_proto(proto)


def _parse_bytes(content: bytes) -> onnx.ModelProto:
    """Return the model whose serialized form is given.

    Raises:
        ModelError: It is of no model.
    """
    try:
        return onnx.load_model_from_string(content)
    except DecodeError as error:
        raise ModelError(f"the {len(content):,} bytes given are no ONNX model: {error}") from error


def as_model(model_like: ModelLike) -> ir.Model:
    """Return the model of onnx-ir, loaded from its file if need be; the same object if it is one.

    Raises:
        ModelError: The file cannot be read.
        UsageError: It is no model.
    """
    model = as_path_or_model(model_like)
    return model if isinstance(model, ir.Model) else io.load(model)


def as_model_file(model_like: ModelLike, path: Path) -> StrPath:
    """Return a path as it is; save any other model at ``path`` and return that.

    Raises:
        UsageError: It is no model.
    """
    path_or_model = as_path_or_model(model_like)
    if not isinstance(path_or_model, ir.Model):
        return path_or_model
    io.save(path_or_model, path)
    return path


def sizes_by_dim(dims: Dims | None) -> dict[str, Sequence[int]]:
    """Return the sizes of each dim by its name; a single size becomes a sequence.

    Raises:
        UsageError: They are no sizes.
    """
    sizes_by_name: dict[str, Sequence[int]] = {}
    try:
        for name, x in (dims or {}).items():
            sizes_by_name[name] = tuple(map(index, x if isinstance(x, Iterable) else (x,)))
    except (AttributeError, TypeError) as error:
        example = "such as {'T': [7, 40]}"
        raise UsageError(f"dims={dims!r}: give sizes by the name of a dim, {example}") from error
    return sizes_by_name


def one_size_by_dim(dims: Dims | None) -> dict[str, int]:
    """Return the one size of each dim by its name.

    Raises:
        UsageError: They are no sizes, or a dim is given several.
    """
    sizes_by_name = sizes_by_dim(dims)
    for name, sizes in sizes_by_name.items():
        if len(set(sizes)) != 1:
            raise UsageError(f"{name}: one size is needed here; give one of {list(sizes)}")
    return {name: sizes[0] for name, sizes in sizes_by_name.items()}


def normalize_feeds(feeds: StrPath | Mapping[str, Any] | None) -> StrPath | dict[str, Any] | None:
    """Return a file of feeds as it is; anything else as an array for each input.

    Raises:
        UsageError: They are no feeds.
    """
    if feeds is None or isinstance(feeds, (str, os.PathLike)):
        return feeds
    if not isinstance(feeds, Mapping):
        raise UsageError(f"feeds={feeds!r}: give an .npz file, or an array for each input by name")
    return {name: np.asarray(array) for name, array in feeds.items()}


def require_valid_choices(**options: tuple[object, Sequence[str]]) -> None:
    """Raise UsageError for an option whose value is not among its choices."""
    for name, (value, choices) in options.items():
        if value not in choices:
            raise UsageError(f"{name}={value!r}: give one of {', '.join(map(repr, choices))}")


def refuse_unknown_options(options: Mapping[str, object], accepted: type) -> None:
    """Raise UsageError for an option that the TypedDict ``accepted`` lacks."""
    names = accepted.__annotations__
    for name in options.keys() - names.keys():
        raise UsageError(f"there is no option {name!r}{did_you_mean(name, names)}")
