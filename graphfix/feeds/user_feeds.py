"""The user's own inputs as a case: an ``.npz`` file, or arrays by name."""

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.feeds.case import Array, Case, key_by_user_name
from graphfix.feeds.input import Input, symbols
from graphfix.feeds.signature import Signature
from graphfix.paths import StrPath
from graphfix.wording import did_you_mean


def case_from_feeds(feeds: StrPath | Mapping[str, Array], signature: Signature) -> Case:
    """Return the user's own inputs as a case.

    Args:
        feeds: An ``.npz`` file with an array for each input, or those arrays.
        signature: The inputs of the model.

    Raises:
        FeedError: The file cannot be read, an input is missing or has another rank, or one that
            the repaired model has as a constant has another value.
    """
    arrays = read_feeds(feeds)
    _require_constants(arrays, signature)
    arrays |= signature.constants
    missing = [x.name for x in signature.inputs if x.name not in arrays]
    if missing:
        raise FeedError(
            f"the given feeds lack {', '.join(map(repr, missing))}; "
            f"they have {', '.join(map(repr, arrays)) or 'nothing'}"
        )
    sizes = _symbol_sizes(arrays, signature)
    valid = _valid_lengths(signature, arrays, sizes)
    return Case(
        "given", key_by_user_name(signature, sizes), arrays, key_by_user_name(signature, valid)
    )


def read_feeds(feeds: StrPath | Mapping[str, Array]) -> dict[str, Array]:
    """Return the user's arrays by the name of the input.

    Raises:
        FeedError: The file cannot be read.
    """
    return _read_npz(feeds) if isinstance(feeds, (str, os.PathLike)) else dict(feeds)


def check_feeds(arrays: Mapping[str, Array], model: ir.Model) -> None:
    """Check the user's arrays against the inputs of a model, before anything is run.

    Inputs that are missing are not looked for: a repair may make them constants.

    Raises:
        FeedError: There is no input of a name, or it has another dtype or rank.
    """
    inputs = {x.name or "": x for x in model.graph.inputs}
    for name, array in arrays.items():
        if name not in inputs:
            raise FeedError(
                f"the given feeds have {name!r}, and the model has no input of that name"
                f"{did_you_mean(name, inputs)} Its inputs are {', '.join(map(repr, inputs))}"
            )
        value = inputs[name]
        if value.shape is not None and array.ndim != len(value.shape):
            raise FeedError(
                f"the given {name!r} has shape {list(array.shape)}, but the model wants "
                f"{[x if isinstance(x, int) else str(x) for x in value.shape]}"
            )
        if value.dtype is None or value.dtype == ir.DataType.STRING:
            continue
        dtype = value.dtype.numpy()
        if array.dtype != dtype:
            raise FeedError(
                f"the given {name!r} is {array.dtype}, and the model wants {dtype}: save it with "
                f"np.savez(path, {name}=array.astype({str(dtype)!r}))"
            )


def _require_constants(arrays: Mapping[str, Array], signature: Signature) -> None:
    """Raise FeedError if an input that became a constant is given another value."""
    for name, constant in signature.constants.items():
        if name in arrays and not np.array_equal(arrays[name].reshape(-1), constant.reshape(-1)):
            raise FeedError(
                f"the given {name!r} is {arrays[name].reshape(-1)[:4].tolist()}, and the repaired "
                f"model has the constant {constant.reshape(-1)[:4].tolist()} in its place"
            )


def _symbol_sizes(arrays: Mapping[str, Array], signature: Signature) -> dict[str, int]:
    """Return the size of each symbol in the given arrays.

    Raises:
        FeedError: An array has another rank than its input.
    """
    sizes: dict[str, int] = {}
    for item in signature.inputs:
        array = arrays[item.name]
        if item.problem:
            continue
        if array.ndim != len(item.dims):
            raise FeedError(
                f"the given {item.name!r} has shape {list(array.shape)}, but the model wants "
                f"{[d if isinstance(d, int) else signature.user_name(str(d)) for d in item.dims]}"
            )
        for dim, size in zip(item.dims, array.shape, strict=True):
            if isinstance(dim, ir.SymbolicDim) and dim.value in symbols(dim):
                sizes.setdefault(str(dim.value), size)
    return sizes


def _read_npz(path: StrPath) -> dict[str, Array]:
    path = Path(path)
    try:
        if not path.is_file():
            raise FeedError(f"{path}: {'is no file' if path.exists() else 'no such file'}")
        with path.open("rb") as stream:  # numpy does not close a file that it cannot read
            file = np.load(stream, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise FeedError(f"{path}: holds one array; save them with np.savez(path, name=..)")
            with file:
                return {name: _read_array(file, name, path) for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as error:
        # If a file is no archive, numpy's reason is about pickles and misleads.
        reason = f" ({error})" if path.is_file() and zipfile.is_zipfile(path) else ""
        message = (
            f"{path}: not an .npz file of arrays{reason}; save one with np.savez(path, name=array)"
        )
        raise FeedError(message) from error


def _read_array(file: np.lib.npyio.NpzFile, name: str, path: Path) -> Array:
    """Return one array of a file.

    Raises:
        FeedError: It holds Python objects, which numpy pickles.
    """
    try:
        array: Array = file[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise FeedError(
            f"{path}: {name!r} is an array of Python objects, which are not loaded; save numbers, "
            f"or text as np.savez(path, {name}=np.array(texts, dtype=str))"
        ) from error
    return array


def _valid_lengths(
    signature: Signature, arrays: Mapping[str, Array], sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the content lengths that the given masks and lengths say."""
    valid: dict[str, tuple[int, ...]] = {}
    for item in signature.inputs:
        time = signature.time_of(item)
        if time is None or time not in sizes:
            continue
        array = arrays[item.name]
        if item.role.kind == "lengths":
            rows = tuple(int(n) for n in array.reshape(-1))
        elif item.role.kind == "mask" and item.time is not None and item.role.padded != 1.0:
            rows = _content_lengths(array, item)
        else:
            continue
        if all(0 <= n <= sizes[time] for n in rows):
            valid.update({s: rows for s in signature.symbols_in(time) if s in sizes})
    return valid


def _content_lengths(array: Array, item: Input) -> tuple[int, ...]:
    """Return the content length of each row of a mask."""
    assert item.time is not None
    axes = tuple(a for a in range(array.ndim) if a not in (item.rows, item.time))
    inside = np.any(array >= item.role.valid, axis=axes, keepdims=True)
    rows = np.moveaxis(inside, item.time, -1).reshape(-1, array.shape[item.time])
    return tuple(int(n) for n in rows.sum(axis=-1))
