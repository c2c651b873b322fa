"""What ONNX Runtime loads: a path, or bytes, of a model that lies in a file or in memory.

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
from graphfix.files.half_weights import Narrowed
from graphfix.paths import StrPath

Source = StrPath | bytes | ir.Model
Loaded = tuple[str | bytes, Path | None]
"""What to load, and the folder of its external weights where a path does not say it."""

# Protobuf stops at 2 GB; the graph itself, and what ONNX Runtime copies, need room below that.
_IN_MEMORY_LIMIT = 1_500_000_000


def sourced(model: Source, extra: Sequence[str], folder: Callable[[], Path]) -> Loaded:
    """What to load, and the folder of its external weights where a path does not say it.

    Args:
        model: A path, the bytes of a self-contained ``.onnx`` file, or a model in memory.
        extra: Names of inner tensors of the main graph to make outputs.
        folder: Makes a folder for a model that fits no bytes; it must outlive what is loaded.

    Raises:
        ModelError: There is no such file, or the model cannot be serialized.
    """
    if isinstance(model, ir.Model):
        return _in_memory(model, extra, folder)
    if isinstance(model, bytes):
        return with_outputs(onnx.ModelProto.FromString(model), extra) if extra else model, None
    path = Path(model)
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    if not extra:
        return str(path), None
    proto = onnx.load(path, load_external_data=False)
    found = external_files.look(path, external_files.tensors_of(proto), None)
    there = external_files.anchored(proto, found.files)
    return with_outputs(proto, extra), there or path.parent.resolve()


def _in_memory(model: ir.Model, extra: Sequence[str], folder: Callable[[], Path]) -> Loaded:
    if any(isinstance(x, Narrowed) for x in weights.external_tensors(model)):
        path = folder() / "model.onnx"  # converted once, on the way into a file
        io.save(model, path, external_data="separate")
        return sourced(path, extra, folder)
    held = sum(x.nbytes for x in weights.tensors_in(model) if not isinstance(x, ir.ExternalTensor))
    if held > _IN_MEMORY_LIMIT:
        return _on_disk(model, extra, folder())
    proto = _to_proto(model)
    try:
        together = external_files.anchored(proto, weights.files_of(model))
    except ModelError:  # of one name, or on several drives
        return _on_disk(model, extra, folder())
    return with_outputs(proto, extra), together


def _on_disk(model: ir.Model, extra: Sequence[str], folder: Path) -> Loaded:
    """Over 2 GB in memory, or two files of one name: only a file set can hold that."""
    path = folder / "model.onnx"
    ir.save(model.clone(), path, external_data="model.data")
    return sourced(path, extra, lambda: folder)


def with_outputs(proto: onnx.ModelProto, extra: Sequence[str]) -> bytes:
    """A file with these inner tensors of the main graph as outputs besides; ``proto`` gets them."""
    known = {x.name for x in proto.graph.output}
    # Without a type: ONNX Runtime infers it, and a stale value_info is not repeated.
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra if name not in known)
    data: bytes = proto.SerializeToString()
    return data


def _to_proto(model: ir.Model) -> onnx.ModelProto:
    try:
        return ir.to_proto(model)
    except Exception as error:  # onnx-ir wraps whatever it met
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"the model cannot be serialized: {reason}") from error
