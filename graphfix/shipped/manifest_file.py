"""Reads ``graphfix.json``, which anybody may have written: each field that is used is checked."""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PureWindowsPath
from typing import Any, cast, get_args

import numpy as np

from graphfix.errors import ModelError
from graphfix.shipped.container_fit import DTYPES
from graphfix.shipped.derived_size import LARGEST_SIZE, DerivedSize
from graphfix.shipped.json_field import JsonField
from graphfix.shipped.manifest import (
    NAME,
    SCHEMA,
    Axis,
    Cache,
    Container,
    Dim,
    FileRecord,
    InputPort,
    Kind,
    Manifest,
    Opening,
    Port,
    StateLink,
    Streaming,
)

_LARGEST = LARGEST_SIZE - 1
_MOST_BYTES = 1 << 26  # of a manifest; one of 500 states has some 200 kB
_SHA256 = re.compile("[0-9a-f]{64}")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a shipped folder.

    Raises:
        ModelError: There is none, or it is not one that this version understands.
    """
    path, field = folder / NAME, _read_document(folder)
    try:
        return _manifest(field)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is malformed: {error}; ship the model again") from error


def listed_files(folder: Path) -> frozenset[str]:
    """Return the files that the manifest of a folder names, whatever its schema.

    Raises:
        ModelError: There is none, or it is none that ``graphfix ship`` wrote.
    """
    data = _read_json(folder)
    try:
        models = [*data["containers"].items()]
        entries = data.entries()
        if not data["stream"].is_null and not data["stream"]["opening"].is_null:
            models.append(data["stream"]["opening"]["container"])
        names = [x["file"].text() for x in models]
        if "weights" in entries:  # before schema 2
            names += [x.text() for x in entries["weights"].items()]
        if "files" in entries:
            names += [x["name"].text() for x in entries["files"].items()]
    except ValueError as error:
        raise ModelError(f"{folder / NAME}: is malformed: {error}") from error
    return frozenset(names)


def _read_document(folder: Path) -> JsonField:
    """Read the manifest as JSON, and check its schema.

    Raises:
        ModelError: There is none, it is no JSON, or it has another schema.
    """
    data = _read_json(folder)
    schema = data.value.get("schema") if isinstance(data.value, dict) else None
    if schema != SCHEMA or isinstance(schema, bool):
        raise ModelError(
            f"{folder / NAME}: has schema {schema!r:.80}, and this graphfix reads {SCHEMA}; "
            "ship the model again"
        )
    return data


def _read_json(folder: Path) -> JsonField:
    path = folder / NAME
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read: {error.strerror or error}; "
            "name a folder that 'graphfix ship' made"
        ) from error
    if len(data) > _MOST_BYTES:
        raise ModelError(f"{path}: has more than {_MOST_BYTES:,} bytes; ship the model again")
    try:
        return JsonField.parse(data.decode())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is no JSON ({error}); ship the model again") from error


def _manifest(data: JsonField) -> Manifest:
    containers = tuple(_container(x) for x in data["containers"].items())
    sizes = _common_sizes(containers)
    derived = _derived(data["derived"], sizes.keys())
    batch = None if data["batch"].is_null else data["batch"].name_of(sizes, "no dim with a size")
    manifest = Manifest(
        axis=_axis(data["axis"], sizes),
        batch=batch,
        lengths=None if data["lengths"].is_null else data["lengths"].text(),
        inputs=tuple(_input(x) for x in data["inputs"].items()),
        outputs=tuple(_port(x) for x in data["outputs"].items()),
        containers=containers,
        derived=derived,
        files=_files(data["files"]),
        provenance=_provenance(data["provenance"]),
        verdict={k: x.value for k, x in data["verdict"].entries().items()},
        stream=None if data["stream"].is_null else _streaming(data["stream"], sizes),
    )
    _require_ports(manifest)
    _require_files(manifest)
    _require_axis(manifest)
    if manifest.stream is None:
        _require_clips(manifest)
    else:
        _require_stream(manifest, manifest.stream)
    return manifest


# Records


def _container(data: JsonField) -> Container:
    return Container(
        _file_name(data["file"]),
        {name: x.whole(0, _LARGEST) for name, x in data["sizes"].entries().items()},
        {name: _kernels(x) for name, x in data["kernels"].entries().items()},
    )


def _kernels(data: JsonField) -> object:
    """Return how many kernels there are of each kind; None if that is unknown."""
    if isinstance(data.value, dict):
        return {name: x.whole(0, _LARGEST) for name, x in data.entries().items()}
    return data.value


def _common_sizes(containers: Sequence[Container]) -> Mapping[str, int]:
    """Return the sizes of the first container; all have sizes of the same dims."""
    _require(bool(containers), "there are no containers")
    for container in containers:
        same_dims = container.sizes.keys() == containers[0].sizes.keys()
        _require(same_dims, "containers have sizes of different dims")
    return containers[0].sizes


def _axis(data: JsonField, sizes: Mapping[str, int]) -> Axis:
    dim = data["dim"].name_of(sizes, "no dim with a size")
    rate = None if data["rate"].is_null else data["rate"].number()
    _require(rate is None or rate > 0, f"axis.rate is {rate}, which is not above 0")
    return Axis(
        dim,
        data["input"].text(),
        data["axis"].whole(0, _LARGEST),
        rate,
        data["shortest"].whole(1, max(1, sizes[dim])),
    )


def _port(data: JsonField) -> Port:
    dims = tuple(map(_dim, data["dims"].items()))
    rows = None if data["rows"].is_null else data["rows"].whole(0, len(dims) - 1)
    return Port(data["name"].text(), data["type"].text(), dims, rows)


def _dim(data: JsonField) -> Dim:
    return data.text() if isinstance(data.value, str) else data.whole(0, _LARGEST)


def _input(data: JsonField) -> InputPort:
    port = _port(data)
    kind = data["kind"].name_of(get_args(Kind), f"none of {', '.join(get_args(Kind))}")
    item = InputPort(
        port.name,
        port.type,
        port.dims,
        port.rows,
        cast("Kind", kind),
        _element(data["pad"], port.type),
        None if data["valid"].is_null else _element(data["valid"], port.type),
        data["counted"].flag(),
    )
    if item.kind == "mask" and item.valid is None:
        data["valid"].refuse("no value of a mask where there is content")
    if item.counted and item.kind not in ("mask", "lengths"):
        data["counted"].refuse("true of an input that is no mask and no lengths")
    return item


def _element(data: JsonField, type_text: str) -> float:
    """Return a number that an array of this type can have."""
    number = data.number()
    dtype: np.dtype[Any] = np.dtype(DTYPES.get(type_text, np.float64))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        fits = number.is_integer() and int(limits.min) <= number <= int(limits.max)
    elif dtype.kind == "b":
        fits = number in (0, 1)
    else:
        fits = abs(number) <= float(np.finfo(dtype).max)
    if not fits:
        data.refuse(f"no number of {type_text:.80}")
    return number


def _derived(data: JsonField, dims: Collection[str]) -> tuple[DerivedSize, ...]:
    known, entries = {*dims}, []
    for item in data.items():
        name = item["name"].text()
        if name in known:
            item["name"].refuse("the name of another size")
        of = item["of"].entries()
        for other, factor in of.items():
            if other not in known:
                factor.refuse("a multiple of no dim, and of no size that is derived before")
        least, most = (None if item[x].is_null else _any_whole(item[x]) for x in ("least", "most"))
        entry = DerivedSize(
            name,
            {other: _any_whole(x) for other, x in of.items()},
            _any_whole(item["add"]),
            item["divide"].whole(1, _LARGEST),
            least,
            most,
            item["exact"].flag(),
        )
        entries.append(entry)
        known.add(name)
    return tuple(entries)


def _any_whole(data: JsonField) -> int:
    return data.whole(-_LARGEST, _LARGEST)


def _files(data: JsonField) -> tuple[FileRecord, ...]:
    files = []
    for item in data.items():
        digest = item["sha256"].text()
        if not _SHA256.fullmatch(digest):
            item["sha256"].refuse("no hash of 64 hexadecimal digits")
        files.append(FileRecord(_file_name(item["name"]), item["bytes"].whole(0, _LARGEST), digest))
    return tuple(files)


def _provenance(data: JsonField) -> dict[str, object]:
    """Return where the folder comes from; what a proof and a benchmark use of it is checked."""
    entries = data.entries()
    if "names" in entries:
        for names in entries["names"].entries().values():
            _require(bool([x.text() for x in names.items()]), f"{names.where} is empty")
    for key in ("source", "passes", "sha256"):
        if key in entries:
            entries[key].text()
    return {key: x.value for key, x in entries.items()}


def _streaming(data: JsonField, sizes: Mapping[str, int]) -> Streaming:
    caches = tuple(
        Cache(x["dim"].name_of(sizes, "no dim with a size"), x["told"].text(), x["grows"].flag())
        for x in data["caches"].items()
    )
    states = tuple(
        StateLink(
            x["input"].text(),
            x["output"].text(),
            None if x["axis"].is_null else x["axis"].whole(0, _LARGEST),
        )
        for x in data["states"].items()
    )
    opening = None if data["opening"].is_null else _opening(data["opening"], sizes)
    rolls, partial, joins = (data[x].flag() for x in ("rolls", "partial", "joins"))
    return Streaming(caches, states, rolls, partial, joins, opening)


def _opening(data: JsonField, sizes: Mapping[str, int]) -> Opening:
    container = _container(data["container"])
    for name in container.sizes:
        _require(name in sizes, f"{data.where}.container has a size of {name!r:.80}, and no other")
    inputs = tuple(x.text() for x in data["inputs"].items())
    return Opening(container, inputs, {k: x.text() for k, x in data["gives"].entries().items()})


def _file_name(data: JsonField) -> str:
    name = data.text()
    if not is_file_name(name):
        data.refuse("no name of a file beside it")
    return name


def is_file_name(name: str, *, windows: bool = os.name == "nt") -> bool:
    """Return whether it names a file in the manifest's folder, and nothing else.

    On Windows ``C:x`` is on another drive, ``x:y`` a stream of a file, ``NUL`` a device, and
    ``x.`` is ``x``.
    """
    if name in ("", ".", "..") or not {*name}.isdisjoint("/\\\0"):
        return False
    if not windows:
        return True
    plain = ":" not in name and not name.endswith((".", " "))
    return plain and not PureWindowsPath(name).is_reserved()


# What they say of each other


def _require_ports(manifest: Manifest) -> None:
    first_sizes = manifest.containers[0].sizes
    known = {*first_sizes, *(x.name for x in manifest.derived)}
    groups: tuple[tuple[str, Sequence[Port]], ...] = (
        ("inputs", manifest.inputs),
        ("outputs", manifest.outputs),
    )
    for group, ports in groups:
        _require(bool(ports), f"there are no {group}")
        _require_unique(f"{group} with the name", (x.name for x in ports))
        for port in ports:
            missing = [x for x in port.dims if isinstance(x, str) and x not in known]
            _require(not missing, f"the dim {missing[:1]!r:.80} of {port.name!r:.80} has no size")
    own = {x.name for x in manifest.inputs}
    _require(manifest.lengths not in own, f"lengths is {manifest.lengths!r:.80}, an input")
    for container in manifest.containers:
        sizes = manifest.with_derived(container.sizes)
        for port in (*manifest.inputs, *manifest.outputs):
            _require(max(port.shape_at(sizes), default=0) <= _LARGEST, "a size is too large")


def _require_files(manifest: Manifest) -> None:
    _require_unique("files with the name", (x.name for x in manifest.files))
    _require_unique("containers with the file", (x.file for x in manifest.models))
    recorded = {x.name for x in manifest.files}
    for model in manifest.models:
        _require(model.file in recorded, f"{model.file!r:.80} is none of its files")


def _require_axis(manifest: Manifest) -> None:
    axis = manifest.axis
    port = next((x for x in manifest.inputs if x.name == axis.input), None)
    _require(port is not None, f"axis.input is {axis.input!r:.80}, which is no input")
    assert port is not None
    count = len(port.dims)
    _require(axis.axis < max(1, count), f"axis.axis is {axis.axis}, and there are {count} dims")


def _require_clips(manifest: Manifest) -> None:
    axis, batch = manifest.axis, manifest.batch
    _require(batch != axis.dim, f"batch is {batch!r:.80}, which is padded")
    port = next(x for x in manifest.inputs if x.name == axis.input)
    _require(
        port.dims[axis.axis : axis.axis + 1] == (axis.dim,),
        f"axis is not where {axis.input!r:.80} has {axis.dim!r:.80}",
    )
    for smaller, larger in pairwise(manifest.containers):
        ordered = smaller.sizes[axis.dim] < larger.sizes[axis.dim]
        _require(ordered, f"{larger.file!r:.80} is not larger than {smaller.file!r:.80}")
    rows = [x.sizes[batch] for x in manifest.containers if batch is not None]
    _require(0 not in rows, "a container has no row")


def _require_stream(manifest: Manifest, stream: Streaming) -> None:
    inputs = {x.name: x for x in manifest.inputs}
    outputs = {x.name: x for x in manifest.outputs}
    _require_unique("states with the input", (x.input for x in stream.states))
    _require_unique("states with the output", (x.output for x in stream.states))
    for state in stream.states:
        exists = state.input in inputs and state.output in outputs
        _require(exists, f"the state {state.input!r:.80} is no input, or has no output")
        port, result = inputs[state.input], outputs[state.output]
        count = min(len(port.dims), len(result.dims))
        _require(
            state.axis is None or state.axis < count,
            f"axis of the state {state.input!r:.80} is {state.axis}, and there are {count} dims",
        )
        _require(
            port.type == result.type and port.type in DTYPES,
            f"the state {state.input!r:.80} is {port.type:.40}, and its output {result.type:.40}",
        )
    _require_caches(manifest, stream)
    opening = stream.opening
    if opening is not None:
        states = {x.input for x in stream.states}
        names = {*opening.inputs, *opening.gives}
        _require(
            names <= inputs.keys() and not names & states and bool(opening.gives),
            f"{opening.container.file!r:.80} takes or gives what is no input, or a state",
        )
        typed = all(inputs[x].type in DTYPES for x in opening.gives)
        _require(typed, f"{opening.container.file!r:.80} gives what is of no known type")


def _require_caches(manifest: Manifest, stream: Streaming) -> None:
    _require_unique("caches with the dim", (x.dim for x in stream.caches))
    told = [x.told for x in stream.caches if x.told]
    _require_unique("caches with the input", told)
    taken = {*told} & {x.name for x in manifest.inputs}
    _require(not taken, f"a cache has the input {min(taken, default='')!r:.80} of the original")
    new = manifest.axis.dim
    dims = [x.dim for x in stream.caches if x.grows]
    _require(new not in {x.dim for x in stream.caches}, f"{new!r:.80} is new and a cache")
    levels = [[x.sizes[d] for d in dims] for x in manifest.containers]
    for smaller, larger in pairwise(levels):
        ordered = all(a <= b for a, b in zip(smaller, larger, strict=True))
        _require(ordered, "the caches of a later container are smaller")
    steps = [(*level, x.sizes[new]) for level, x in zip(levels, manifest.containers, strict=True)]
    _require(len({*steps}) == len(steps), "two containers have the same sizes")
    _require(all(x[-1] > 0 for x in steps), "a container takes nothing new")


def _require_unique(label: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        _require(name not in seen, f"there are two {label} {name!r:.80}")
        seen.add(name)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)
