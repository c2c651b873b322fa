"""Sources that ONNX Runtime loads: a path, or bytes, for a model in a file or in memory.

Weights are never copied to get a model run. A model in memory whose weights lie in files is given
to ONNX Runtime as a graph without them, together with the folder that they lie in; so it does not
matter whether that folder is writable, or how many gigabytes are in it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.files import external_files, io, weights
from graphfix.files.half_weights import NarrowedTensor
from graphfix.paths import StrPath

Source = StrPath | bytes | ir.Model
Loaded = tuple[str | bytes, Path | None]
"""What to load, and the folder of its external weights where a path does not say it."""

# Protobuf stops at 2 GB; the graph itself, and what ONNX Runtime copies, need room below that.
_IN_MEMORY_LIMIT = 1_500_000_000


def prepare_source(model: Source, extra: Sequence[str], folder: Callable[[], Path]) -> Loaded:
    """Return what to load, and the folder of its external weights if a path does not say it.

    Args:
        model: A path, the bytes of a self-contained ``.onnx`` file, or a model in memory.
        extra: Names of inner tensors of the main graph to make outputs.
        folder: Makes a folder for a model that fits no bytes; it must outlive what is loaded.

    Raises:
        ModelError: There is no such file, or the model cannot be serialized.
    """
    if isinstance(model, ir.Model):
        return _source_in_memory(model, extra, folder)
    if isinstance(model, bytes):
        return add_outputs(onnx.ModelProto.FromString(model), extra) if extra else model, None
    path = Path(model)
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    if not extra:
        return str(path), None
    proto = onnx.load(path, load_external_data=False)
    weight_files = external_files.find_external_files(
        path, external_files.proto_tensors(proto), None
    )
    anchor_folder = external_files.rebase_references(proto, weight_files.files)
    return add_outputs(proto, extra), anchor_folder or path.parent.resolve()


def _source_in_memory(model: ir.Model, extra: Sequence[str], folder: Callable[[], Path]) -> Loaded:
    if any(isinstance(x, NarrowedTensor) for x in weights.external_tensors(model)):
        path = folder() / "model.onnx"  # converted once, on the way into a file
        io.save(model, path, external_data="separate")
        return prepare_source(path, extra, folder)
    inline_bytes = sum(
        x.nbytes for x in weights.model_tensors(model) if not isinstance(x, ir.ExternalTensor)
    )
    if inline_bytes > _IN_MEMORY_LIMIT:
        return _source_on_disk(model, extra, folder())
    proto = _to_proto(model)
    try:
        anchor_folder = external_files.rebase_references(proto, weights.files_by_location(model))
    except ModelError:  # of one name, or on several drives
        return _source_on_disk(model, extra, folder())
    return add_outputs(proto, extra), anchor_folder


def _source_on_disk(model: ir.Model, extra: Sequence[str], folder: Path) -> Loaded:
    """Save a model over 2 GB, or with two weight files of one name, and return its path."""
    path = folder / "model.onnx"
    ir.save(model.clone(), path, external_data="model.data")
    return prepare_source(path, extra, lambda: folder)


def add_outputs(proto: onnx.ModelProto, extra: Sequence[str]) -> bytes:
    """Add inner tensors of the main graph as outputs of ``proto``; return it as bytes."""
    output_names = {x.name for x in proto.graph.output}
    # Without a type: ONNX Runtime infers it, and a stale value_info is not repeated.
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in extra if name not in output_names
    )
    data: bytes = proto.SerializeToString()
    return data


def _to_proto(model: ir.Model) -> onnx.ModelProto:
    try:
        return ir.to_proto(model)
    except Exception as error:  # onnx-ir wraps whatever it met
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"the model cannot be serialized: {reason}") from error
