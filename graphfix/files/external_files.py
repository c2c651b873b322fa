"""References of a model to other files: one gate for them all, and the weights behind it.

ONNX Runtime is followed in what it reads (1.31.1, tried): a location is relative, and leads to a
file in the model's folder, or in the folder of the file that the model's own link leads to, which
is how the cache of Hugging Face has both. Hard links are files like others. ``length`` may be left
out; where it is given it is the tensor's size.
"""

import math
import os
import stat
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.files.byte_ranges import FileStamp, read_blocks

Array = npt.NDArray[Any]

_MAX_CACHED_BYTES = 1 << 20  # a weight of more bytes is read again rather than kept
_EXTERNAL = onnx.TensorProto.EXTERNAL


class Weight(ir.ExternalTensor):
    """A tensor in an external file that lies where a model may have it.

    It is read, not mapped: a mapping ends the process if the file becomes shorter, and on Windows
    holds the file as long as it lives.

    Args:
        tensor: What the model says.
        file: The file itself, links followed.
        folder: The model's folder.
    """

    __slots__ = ("_array_ref", "_small_array", "file")

    def __init__(self, tensor: ir.ExternalTensor, file: Path, folder: Path) -> None:
        super().__init__(
            tensor.location,
            tensor.offset,
            tensor.length or None,
            tensor.dtype,
            shape=tensor.shape,
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=tensor._metadata_props,
            base_dir=folder,
        )
        self.file = file
        self._small_array: Array | None = None
        self._array_ref: weakref.ref[Array] | None = None

    def numpy(self) -> Array:
        """Return the values; those of a big weight are read again once nobody holds them."""
        array = self._small_array if self._array_ref is None else self._array_ref()
        if array is None:
            array = self._read_values()
            array.flags.writeable = False
            self._array_ref = weakref.ref(array)
            if array.nbytes <= _MAX_CACHED_BYTES:
                self._small_array = array
        return array

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Return the values for numpy."""
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def tobytes(self) -> bytes:
        """Return the bytes as they lie in the file."""
        return self._read_bytes().tobytes()

    def tofile(self, file: BinaryIO) -> None:
        """Write the bytes to ``file``, a piece at a time."""
        with self._open_at_offset() as source:
            for data in read_blocks(source, self.nbytes, self._truncation_error()):
                file.write(data)

    def release(self) -> None:
        """Drop the cached values."""
        self._small_array = self._array_ref = None

    def _read_values(self) -> Array:
        data = self._read_bytes()
        if self.dtype.bitwidth >= 8:
            dtype = np.dtype(self.dtype.numpy())
            flat = data.view(dtype.newbyteorder("<")).astype(dtype, copy=False)
            return flat.reshape(self.shape.numpy())
        packed = onnx.TensorProto(
            data_type=int(self.dtype), dims=self.shape.numpy(), raw_data=data.tobytes()
        )
        return ir.TensorProtoTensor(packed).numpy().copy()

    def _read_bytes(self) -> Array:
        data = np.empty(self.nbytes, np.uint8)
        with self._open_at_offset() as source:
            if source.readinto(data.data) < len(data):
                raise self._truncation_error()
        return data

    def _open_at_offset(self) -> BufferedReader:
        try:
            source = self.file.open("rb")
        except OSError as error:
            raise ModelError(f"{self.file}: cannot be read: {error.strerror or error}") from error
        source.seek(self.offset or 0)
        return source

    def _truncation_error(self) -> ModelError:
        return ModelError(f"{self.file}: has become shorter while it was read; copy it again")


@dataclass(frozen=True)
class ExternalFiles:
    """The files that a model refers to.

    Attributes:
        model: The model's file, as it was named.
        files: What each location in the model stands for.
        stamps: How the files were when the model was loaded, the model's own among them.
    """

    model: Path
    files: dict[str, Path]
    stamps: dict[Path, FileStamp | None]

    @property
    def input_files(self) -> list[Path]:
        """Every file that is read: the model's, then those that it refers to."""
        return [self.model, *dict.fromkeys(self.files.values())]

    def require_unchanged(self) -> None:
        """Raise ModelError if a file is no longer what was loaded."""
        for path, stamp in self.stamps.items():
            if FileStamp.of_file(path) != stamp:
                raise ModelError(
                    f"{path}: has changed since it was read, so nothing was written; run it again"
                )

    def as_weight(self, tensor: ir.ExternalTensor) -> Weight:
        """Return an external tensor of the model as a :class:`Weight` in its checked file."""
        return Weight(tensor, self.files[str(tensor.location)], self.model.parent)


def find_external_files(
    path: Path, tensors: Iterable[onnx.TensorProto], stamp: FileStamp | None
) -> ExternalFiles:
    """Find the files that the tensors of a model refer to.

    Args:
        path: The model's file.
        tensors: Its tensors, all of them.
        stamp: How that file was before it was read.

    Raises:
        ModelError: A file is missing, too short, no file at all, or outside the model's folder.
    """
    external = ExternalFiles(path, {}, {path: stamp})
    folders = list(dict.fromkeys((path.parent.resolve(), path.resolve().parent)))
    sizes: dict[str, int] = {}
    for tensor in tensors:
        if tensor.data_location != _EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        claim = f"{path}: the weights of {tensor.name!r} are said to be in {location!r}"
        if location not in sizes:
            file = _find_file(folders, location, claim)
            external.files[location] = file
            external.stamps[file] = FileStamp.of_file(file)
            sizes[location] = file.stat().st_size
        offset, length = _byte_range(entries, claim)
        size = _byte_size(tensor, claim)
        if length not in (None, 0, size):
            raise ModelError(f"{claim}, {length:,} bytes, but such a tensor has {size:,}")
        if sizes[location] < offset + size:
            raise ModelError(
                f"{claim} up to byte {offset + size:,}, but that file has {sizes[location]:,}; "
                "it is truncated: copy it again"
            )
    return external


def proto_tensors(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return every tensor of a model, wherever it may stand."""
    tensors: list[onnx.TensorProto] = []
    _collect_from_graph(proto.graph, tensors)
    for training in proto.training_info:
        _collect_from_graph(training.initialization, tensors)
        _collect_from_graph(training.algorithm, tensors)
    for function in proto.functions:
        _collect_from_attributes(function.attribute_proto, tensors)
        for node in function.node:
            _collect_from_attributes(node.attribute, tensors)
    return tensors


def _collect_from_graph(graph: onnx.GraphProto, tensors: list[onnx.TensorProto]) -> None:
    tensors += graph.initializer
    for node in graph.node:
        if attributes := node.attribute:
            _collect_from_attributes(attributes, tensors)


def _collect_from_attributes(
    attributes: Iterable[onnx.AttributeProto], tensors: list[onnx.TensorProto]
) -> None:
    for attribute in attributes:
        # Whatever its type is said to be: another reader may look at the field.
        if attribute.HasField("t"):
            tensors.append(attribute.t)
        if attribute.HasField("g"):
            _collect_from_graph(attribute.g, tensors)
        tensors += attribute.tensors
        for graph in attribute.graphs:
            _collect_from_graph(graph, tensors)


def rebase_references(proto: onnx.ModelProto, files: dict[str, Path]) -> Path | None:
    """Make all references in ``proto`` start from one folder, and return it.

    So they are found by who is told that folder and has never seen the model's file, nor links.

    Args:
        proto: A model, which is changed.
        files: What each location in it stands for.

    Raises:
        ModelError: There is no such folder: they lie on several drives.
    """
    if not files:
        return None
    try:
        folder = Path(os.path.commonpath([file.parent for file in files.values()]))
    except ValueError as error:
        raise ModelError("the weights of the model lie on several drives") from error
    for tensor in proto_tensors(proto):
        for entry in tensor.external_data:
            if entry.key == "location" and entry.value in files:
                entry.value = files[entry.value].relative_to(folder).as_posix()
    return folder


def resolves_to(folder: Path, location: str, file: Path) -> bool:
    """Return whether a model written into ``folder`` finds ``file`` at ``location``.

    Not by a link that leads elsewhere: that is allowed only where the model itself is one, too.
    """
    return file.is_relative_to(folder) and (folder / location).resolve() == file


def _find_file(folders: list[Path], location: str, claim: str) -> Path:
    """Return the file that ``location`` stands for."""
    if not location:
        raise ModelError(f"{claim}, which names no file; export the model again")
    outside = ModelError(
        f"{claim}, which is outside the model's folder; ONNX Runtime refuses that too: "
        "move the file beside the model and save the model again"
    )
    # Also what is absolute on another system only: C:\x, \\host\x.
    if PurePosixPath(location).is_absolute() or PureWindowsPath(location).anchor:
        raise outside
    try:
        file = (folders[0] / location).resolve()
        if not any(file.is_relative_to(folder) for folder in folders):
            raise outside
        mode = file.stat().st_mode
    except FileNotFoundError:
        raise ModelError(
            f"{claim}, but there is no such file in {folders[0]}; put it there"
        ) from None
    except (OSError, ValueError, RuntimeError) as error:  # a name with a zero, links in a circle
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"{claim}, which cannot be read: {reason}") from error
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise ModelError(f"{claim}, which is {kind}, not a file")
    return file


def _byte_range(entries: dict[str, str], claim: str) -> tuple[int, int | None]:
    numbers: list[int | None] = []
    for key in ("offset", "length"):
        text = entries.get(key)
        # What int() takes is more: signs, blanks, underscores, digits of other scripts.
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise ModelError(f"{claim} with {key} {text!r}, which is no number of bytes")
        numbers.append(None if text is None else int(text))
    return numbers[0] or 0, numbers[1]


def _byte_size(tensor: onnx.TensorProto, claim: str) -> int:
    try:
        bits = ir.DataType(tensor.data_type).bitwidth
    except (ValueError, TypeError):
        raise ModelError(f"{claim}, but tensors of type {tensor.data_type} cannot be") from None
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"{claim}, but its shape {list(tensor.dims)} is none")
    return cast("int", -(-math.prod(tensor.dims) * bits // 8))
