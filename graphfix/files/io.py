"""Loading and saving of models: weights are never read, and nothing is ever half written."""

import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import onnx
import onnx_ir as ir

from graphfix.errors import ModelError, UsageError
from graphfix.files import atomic_file, byte_ranges, external_files, gate, weights, wire
from graphfix.files.byte_ranges import FileStamp
from graphfix.files.endless_loops import find_endless_loop
from graphfix.files.extra_fields import OriginalFile
from graphfix.files.prepare import prepare_model
from graphfix.files.weights import Placement
from graphfix.graph.model_state import state_of
from graphfix.graph.walks import top_graphs
from graphfix.paths import StrPath, require_path

# The size of a protobuf message is a signed 32-bit number.
_LIMIT = 2**31 - 1
# How often a file is read that is replaced while it is read.
_TRIES = 5

# What onnx.load reads of files with these names, and ONNX Runtime does not.
_TEXT = {".json", ".onnxjson", ".onnxtext", ".onnxtxt"}
_TEXT |= {".pbtxt", ".prototxt", ".textproto", ".txtpb"}
_AS_BINARY = "make a binary of it first: onnx.save(onnx.load(TEXT), 'model.onnx')"


def load(path: StrPath) -> ir.Model:
    """Load an ONNX file. Weights, in the file or beside it, are referred to and never read.

    Raises:
        ModelError: The file is missing, unreadable, not ONNX, truncated, or its external data is
            missing, too short or outside the model's folder; or it says what no operator allows.
    """
    path = require_path(path)
    for _ in range(_TRIES - 1):
        stamp = FileStamp.of_file(path)
        try:
            return _load_once(path)
        except ModelError:
            if FileStamp.of_file(path) == stamp:
                raise  # else it was just replaced, and its old weights are gone
    return _load_once(path)


def _load_once(path: Path) -> ir.Model:
    stamp = FileStamp.of_file(path)
    try:
        proto = _read_proto(path)
        external = external_files.find_external_files(
            path, external_files.proto_tensors(proto), stamp
        )
        build = partial(_build_model, found=external)
        model = _build_checked(proto, build, str(path))
    except UnicodeDecodeError as error:
        raise ModelError(
            f"{path}: not a well-formed ONNX graph: a name or text in it is not in UTF-8"
        ) from error
    if (endless_loop := find_endless_loop(model)) is not None:
        raise ModelError(f"{path}: {endless_loop}")
    state = state_of(model)
    state.source_path, state.external_files = path, external
    state.original_file = OriginalFile(proto, build)
    return model


def from_proto(proto: onnx.ModelProto) -> ir.Model:
    """Return a model in memory as one of onnx-ir.

    Raises:
        ModelError: It is no well-formed graph.
    """
    return _build_checked(proto, ir.from_proto, "the model")


def _build_checked(
    proto: onnx.ModelProto, build: Callable[[onnx.ModelProto], ir.Model], name: str
) -> ir.Model:
    """Return the model that ``build`` makes of a proto, its nodes in an order that runs.

    Raises:
        ModelError: It is no well-formed graph; ``name`` begins the sentence.
    """
    try:
        in_order = gate.check_model_proto(proto)
        model = build(proto)
        if not in_order:
            for graph in top_graphs(model):
                graph.sort()
    except Exception as error:  # onnx-ir wraps whatever it met; the cause names the field
        reason = _first_line(error)
        raise ModelError(f"{name}: not a well-formed ONNX graph: {reason}") from error
    return model


def _build_model(proto: onnx.ModelProto, found: external_files.ExternalFiles) -> ir.Model:
    model = ir.from_proto(proto)
    prepare_model(model, found)
    return model


def source_path(model: ir.Model) -> Path | None:
    """Return the file that ``model`` was loaded from by :func:`load`, or None."""
    return state_of(model).source_path


def input_files(model: ir.Model) -> list[Path]:
    """Return every file that ``model`` was loaded from: its own, then those of its weights."""
    external = _external_references(model)
    return [] if external is None else external.input_files


def _external_references(model: ir.Model) -> external_files.ExternalFiles | None:
    external = state_of(model).external_files
    return external if isinstance(external, external_files.ExternalFiles) else None


def save(model: ir.Model, path: StrPath, *, external_data: Placement = "auto") -> None:
    """Save a model, all at once or not at all.

    Weights are streamed from where they lie. External weights stay where they are if ``path`` is
    in their folder; otherwise they are copied into ``PATH.data`` beside it. An existing file at
    ``path`` is replaced, but never the file that the model was loaded from.

    Args:
        model: The model.
        path: The file.
        external_data: Where the weights go, see :data:`graphfix.files.weights.Placement`.

    Raises:
        UsageError: ``path`` is the file that the model came from.
        ModelError: It cannot be written, or is over 2 GB with its weights inside.
    """
    with draft_model(model, path, external_data=external_data) as draft:
        draft.keep()


@contextmanager
def draft_model(
    model: ir.Model,
    path: StrPath,
    *,
    changed: bool = True,
    external_data: Placement = "auto",
    about: Sequence[Path] = (),
) -> Iterator[atomic_file.Draft]:
    """Write ``model`` as a draft of ``path``; without :meth:`Draft.keep` nothing stays.

    Files that are ``about`` the model that is replaced are removed with it.

    If the model was not ``changed`` since it was loaded, the file is copied byte for byte where
    its weights may stay as they are.

    Raises:
        UsageError: ``path`` is the file that the model came from.
        ModelError: It cannot be written, or is over 2 GB with its weights inside.
    """
    path, source = require_path(path), source_path(model)
    if path.suffix in _TEXT:
        raise UsageError(f"{path}: a model is written as .onnx, not as text; name such a file")
    byte_ranges.refuse_overwrite(input_files(model), path)
    with atomic_file.draft_files([path], about) as writing:
        (path,), (draft,) = writing.targets, writing.drafts
        if not changed and source is not None and _can_weights_stay(model, path, external_data):
            byte_ranges.write_chunks(draft.path, [_whole_file(source)])
        else:
            store = weights.WeightStore(writing.data_name(path.name))
            _write_drafts(writing, store, [_serialize_model(model, path, external_data, store)])
        yield draft
        _require_unchanged(model, draft)


@contextmanager
def draft_models(
    models: Sequence[tuple[ir.Model, Path]], name: str, *, external_data: Placement = "auto"
) -> Iterator[list[atomic_file.Draft]]:
    """Write models of one origin as drafts that refer to one file of weights.

    Weights that lie beside the models already stay there; otherwise they go, once, into a new
    file beside them. Drafts become files together, if all of them are kept, or not at all.

    Args:
        models: Each model and its path, all in one folder.
        name: The name of the new file of weights.
        external_data: Where weights go that lie nowhere yet: not ``inline``, which shares nothing.

    Raises:
        UsageError: A path is the file that its model came from.
        ModelError: Something cannot be written.
    """
    for model, path in models:
        byte_ranges.refuse_overwrite(input_files(model), path)
    with atomic_file.draft_files([path for _, path in models]) as writing:
        store = weights.WeightStore(writing.data_name(name))
        pieces = []
        for (model, _), path in zip(models, writing.targets, strict=True):
            source = source_path(model)
            inside = source is not None and source.resolve() in _files_by_location(model).values()
            placement: Placement = "separate" if inside else external_data
            pieces.append(_serialize_model(model, path, placement, store))
        _write_drafts(writing, store, pieces)
        yield writing.drafts
        for (model, _), draft in zip(models, writing.drafts, strict=True):
            _require_unchanged(model, draft)


def _write_drafts(
    writing: atomic_file.WriteJob, store: weights.WeightStore, models: Sequence[list[wire.Chunk]]
) -> None:
    if store.data:
        writing.write_data(store.name, store.data)
    for draft, chunks in zip(writing.drafts, models, strict=True):
        byte_ranges.write_chunks(draft.path, chunks)


def _files_by_location(model: ir.Model) -> dict[str, Path]:
    """Return the file of each location, in ``model`` and in what its file says beside it."""
    external = _external_references(model)
    return ({} if external is None else external.files) | weights.files_by_location(model)


def _require_unchanged(model: ir.Model, draft: atomic_file.Draft) -> None:
    external = _external_references(model)
    if draft.kept and external is not None:
        external.require_unchanged()


def _whole_file(source: Path) -> wire.Span:
    return wire.Span(str(source), 0, source.stat().st_size)


def _can_weights_stay(model: ir.Model, path: Path, placement: Placement) -> bool:
    """Return whether a model at ``path`` still finds its weights where they lie."""
    external = _external_references(model)
    if placement in ("inline", "separate") or external is None:
        return False
    target_folder, model_file = path.parent.resolve(), external.model.resolve()
    return all(
        file == model_file or external_files.resolves_to(target_folder, location, file)
        for location, file in external.files.items()
    )


def _read_proto(path: Path) -> onnx.ModelProto:
    try:
        if not path.exists():
            raise ModelError(f"{path}: no such file")
        if path.is_dir():
            raise ModelError(f"{path}: is a folder; name the .onnx file in it")
        if not path.is_file():  # reading it might never end
            raise ModelError(f"{path}: is a device or a pipe; name a file")
        if path.stat().st_size == 0:
            raise ModelError(f"{path}: the file is empty; export or download it again")
        if path.suffix in _TEXT:
            raise ModelError(f"{path}: a model as text; {_AS_BINARY}")
        proto = _read_without_weights(path) or onnx.load(path, load_external_data=False)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ModelError, UnicodeDecodeError):
        raise
    except Exception as error:  # protobuf has its own
        raise ModelError(
            f"{path}: not an ONNX file, or a truncated one ({_first_line(error)}); "
            "export or download it again"
        ) from error
    if not proto.HasField("graph") or not proto.opset_import:
        raise ModelError(
            f"{path}: not an ONNX model: it has no graph or no opset; export or download it again"
        )
    return proto


def _read_without_weights(path: Path) -> onnx.ModelProto | None:
    """Read the model without its big weights; None if only the ordinary reader can."""
    if path.stat().st_size < wire.BIG or path.suffix not in (".onnx", ".pb", ".part"):
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        try:
            # A page that is looked at brings its neighbours, up to 2 MB; they count as memory.
            def release_pages() -> None:
                if hasattr(mmap, "MADV_DONTNEED"):
                    mapped.madvise(mmap.MADV_DONTNEED)

            with memoryview(mapped) as view:
                slim = wire.strip_weights(view, path.name, release_pages)
        except wire.BrokenMessageError:
            raise
        except (wire.NotUnderstoodError, RecursionError):
            if len(mapped) > _LIMIT:
                raise
            return None
    return onnx.load_model_from_string(slim)


def _serialize_model(
    model: ir.Model, path: Path, placement: Placement, store: weights.WeightStore
) -> list[wire.Chunk]:
    """Return the chunks of the model file; put separate weights into ``store``."""
    try:
        proto = ir.to_proto(model)
    except OSError:
        raise
    except Exception as error:  # onnx-ir wraps whatever it met
        raise ModelError(f"{path}: cannot be written: {_first_line(error)}") from error
    source, original = source_path(model), state_of(model).original_file
    as_it_was = isinstance(original, OriginalFile) and original.restore(proto)
    if as_it_was and source is not None and _can_weights_stay(model, path, placement):
        return [_whole_file(source)]
    room = _LIMIT - proto.ByteSize()
    plan = weights.plan_weights(
        proto, _files_by_location(model), source, path, placement, room, store
    )
    if plan.size + proto.ByteSize() > _LIMIT:
        raise ModelError(
            f"{path}: the model is over 2 GB, the limit of one ONNX file; "
            "let the weights lie beside it with --external-data separate"
        )
    message = proto.SerializeToString()

    def resolve(entries: dict[str, str]) -> wire.Span | None:
        key = entries["location"], entries.get("offset", ""), entries.get("length", "")
        return plan.inline.get(key)

    return wire.fill_weights(message, resolve) if plan.inline else [message]


def _first_line(error: BaseException) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = str(cause).strip().splitlines()
    return lines[0][:200] if lines else type(cause).__name__
