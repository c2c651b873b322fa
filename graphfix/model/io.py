"""Files: load once without reading weights, save once and all at once or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from graphfix.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SOURCE = "graphfix.source"
_VALUE_INFO = "graphfix.value_info"
_PROTOBUF_LIMIT = 2**31 - 1


def load(path: str | os.PathLike[str]) -> ir.Model:
    """Load an ONNX file. External weights are referred to, never read.

    Raises:
        ModelError: The file is missing, unreadable, not ONNX, truncated, or its external data is
            missing, too short or outside the model's folder.
    """
    path = Path(path)
    proto = _read(path)
    try:
        model = ir.from_proto(proto)
    except Exception as error:  # onnx-ir wraps whatever it met; the cause names the field
        raise ModelError(f"{path}: not a well-formed ONNX graph: {_first_line(error)}") from error
    ir.external_data.set_base_dir(model.graph, path.parent)
    for tensor in external_tensors(model):
        _check_external(path, tensor)
    model.meta[_SOURCE] = path
    model.meta[_VALUE_INFO] = {x.name for x in proto.graph.value_info}
    return model


def _read(path: Path) -> onnx.ModelProto:
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    if path.is_dir():
        raise ModelError(f"{path}: is a folder; name the .onnx file in it")
    try:
        if path.stat().st_size == 0:
            raise ModelError(f"{path}: the file is empty; export or download it again")
        proto = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ModelError:
        raise
    except Exception as error:  # protobuf, JSON and text parsers each have their own error
        raise ModelError(
            f"{path}: not an ONNX file, or a truncated one ({_first_line(error)}); "
            "export or download it again"
        ) from error
    if not proto.HasField("graph") or not proto.opset_import:
        raise ModelError(
            f"{path}: not an ONNX model: it has no graph or no opset; export or download it again"
        )
    return proto


def _first_line(error: BaseException) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = str(cause).strip().splitlines()
    return lines[0][:200] if lines else type(cause).__name__


def external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Every tensor of the model whose bytes lie in another file."""
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield value.const_value
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    tensor = attribute.as_tensor()
                    if isinstance(tensor, ir.ExternalTensor):
                        yield tensor


def _check_external(model_path: Path, tensor: ir.ExternalTensor) -> None:
    location = Path(tensor.location)
    folder = model_path.parent.resolve()
    what = f"{model_path}: the weights of {tensor.name!r} are said to be in {str(location)!r}"
    if location.is_absolute() or not (folder / location).resolve().is_relative_to(folder):
        raise ModelError(
            f"{what}, which is outside the model's folder; ONNX Runtime refuses that too: "
            "move the file beside the model and save the model again"
        )
    file = folder / location
    if not file.is_file():
        raise ModelError(f"{what}, but there is no such file in {model_path.parent}; put it there")
    end = (tensor.offset or 0) + (tensor.length or 0)
    if file.stat().st_size < end:
        raise ModelError(
            f"{what} up to byte {end:,}, but that file has {file.stat().st_size:,}; "
            "it is truncated: copy it again"
        )


def save(model: ir.Model, path: str | os.PathLike[str]) -> None:
    """Save a model, all at once or not at all.

    External weights stay where they are if ``path`` is in their folder; otherwise their files are
    copied beside it. An existing file at ``path`` is replaced, but never the file that the model
    was loaded from.

    Raises:
        UsageError: ``path`` is the file that the model came from.
        ModelError: It cannot be written, or is over 2 GB without external data.
    """
    with drafting(model, path) as draft:
        draft.keep()


@dataclass
class Draft:
    """A model file that does not have its final name yet.

    Attributes:
        path: Where it is for now: in the folder of its final name, so that its weights are found.
        kept: Whether it is to get that name when the block ends.
    """

    path: Path
    kept: bool = False

    def keep(self) -> None:
        """Let the draft become the file."""
        self.kept = True


@contextmanager
def drafting(
    model: ir.Model, path: str | os.PathLike[str], *, changed: bool = True
) -> Iterator[Draft]:
    """Write ``model`` as a draft of ``path``; without :meth:`Draft.keep` nothing stays.

    If the model was not ``changed`` since it was loaded, the file is copied byte for byte.

    Raises:
        UsageError: ``path`` is the file that the model came from.
        ModelError: It cannot be written, or is over 2 GB without external data.
    """
    path, source = Path(path), source_of(model)
    refuse_overwrite(source, path)
    with _weights_beside(model, path) as weights, replacing(path) as file:
        if changed or source is None:
            file.path.write_bytes(_serialize(model, path))
        else:
            shutil.copyfile(source, file.path)
        yield file
        weights.kept = file.kept


def source_of(model: ir.Model) -> Path | None:
    """The file that ``model`` was loaded from by :func:`load`."""
    return model.meta.get(_SOURCE)


def refuse_overwrite(source: Path | None, target: Path) -> None:
    """Raise UsageError if ``target`` is the very file that is being repaired."""
    if source is not None and target.exists() and target.samefile(source):
        raise UsageError(f"{target} is the input itself; name another file with -o")


def _serialize(model: ir.Model, path: Path) -> bytes:
    try:
        proto = ir.to_proto(model)
    except OSError:
        raise
    except Exception as error:  # onnx-ir wraps whatever it met
        raise ModelError(f"{path}: cannot be written: {_first_line(error)}") from error
    # onnx-ir writes value_info for every initializer; the file had none, so neither has ours.
    known = model.meta.get(_VALUE_INFO)
    if known is not None:
        kept = [x for x in proto.graph.value_info if x.name in known]
        del proto.graph.value_info[:]
        proto.graph.value_info.extend(kept)
    if proto.ByteSize() > _PROTOBUF_LIMIT:
        raise ModelError(
            f"{path}: the model is over 2 GB, the limit of one ONNX file; "
            "load one with external data"
        )
    data: bytes = proto.SerializeToString()
    return data


@contextmanager
def replacing(path: Path) -> Iterator[Draft]:
    """A scratch file that becomes ``path`` if the block keeps it, and vanishes otherwise.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    if not path.parent.is_dir():
        raise ModelError(f"{path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise ModelError(f"{path}: is a folder; name a file in it")
    draft: Draft | None = None
    try:
        mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=".part")
        os.close(handle)
        draft = Draft(Path(name))
        yield draft
        if draft.kept:
            with draft.path.open("rb+") as file:
                os.fsync(file.fileno())
            draft.path.chmod(mode)
            draft.path.replace(path)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "; free some space or name another folder with -o" if full else ""
        raise ModelError(f"{path}: cannot be written: {error.strerror or error}{advice}") from error
    finally:
        if draft is not None:
            draft.path.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@dataclass
class _Weights:
    kept: bool = False


@contextmanager
def _weights_beside(model: ir.Model, path: Path) -> Iterator[_Weights]:
    """Copy the files of external weights beside ``path``; take them back unless they are kept."""
    copied: list[Path] = []
    weights = _Weights()
    try:
        for source, target in _weight_files(model, path).items():
            if target.exists():
                if target.samefile(source):
                    continue
                raise ModelError(
                    f"{target} exists and is not the weight file of this model ({source}); "
                    "move it away or name another folder with -o"
                )
            if path.parent.is_dir():
                target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as scratch:
                shutil.copyfile(source, scratch.path)
                scratch.keep()
            copied.append(target)
        yield weights
    finally:
        if not weights.kept:
            for target in copied:
                target.unlink(missing_ok=True)


def _weight_files(model: ir.Model, path: Path) -> dict[Path, Path]:
    """Which weight file must lie where, for a model file at ``path``."""
    return {
        Path(tensor.base_dir) / tensor.location: path.parent / tensor.location
        for tensor in external_tensors(model)
    }
