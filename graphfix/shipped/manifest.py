"""``graphfix.json``: what a host has to know to feed the containers of a shipped model.

The format is documented in ``docs/ship.md``; ``schema`` grows when a field changes its meaning.
Only the standard library is used, so that importing a session costs nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from graphfix.errors import ModelError
from graphfix.shipped.dim_expression import names_in, size_of

SCHEMA = 1
NAME = "graphfix.json"
_MOST = 2**62

Dim = int | str
Kind = Literal[
    "data", "tokens", "positions", "mask", "lengths", "relative-lengths", "choice", "int"
]


@dataclass(frozen=True)
class Port:
    """An input or output of the original model.

    Attributes:
        name: Its name.
        type: Its element type as ONNX Runtime writes it, such as ``tensor(float)``.
        dims: Its dims: numbers, or expressions in the names of dims.
        rows: The axis of the batch, or None.
    """

    name: str
    type: str
    dims: tuple[Dim, ...]
    rows: int | None

    def shape_at(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape at these sizes.

        Raises:
            ValueError: A dim cannot be computed from them.
        """
        return tuple(size_of(dim, sizes) for dim in self.dims)


@dataclass(frozen=True)
class InputPort(Port):
    """An input of the original model, and the value of its padding.

    Attributes:
        kind: The role of the input.
        pad: The value where there is no content.
    """

    kind: Kind = "data"
    pad: float = 0.0


@dataclass(frozen=True)
class Axis:
    """The padded axis.

    Attributes:
        dim: The name of the dim that a clip's length is a size of.
        input: The input that tells a clip's length, by its size along ``axis``.
        axis: That axis.
        rate: How many of them a second has; None if nobody said.
        shortest: The length of the shortest clip that the original runs, and of which every window
            of the model makes something. Of less ONNX Runtime's pools make a frame where the
            standard has none.
    """

    dim: str
    input: str
    axis: int
    rate: float | None = None
    shortest: int = 1


@dataclass(frozen=True)
class Container:
    """One model of fixed sizes.

    Attributes:
        file: Its file, beside the manifest.
        sizes: The size of each dim.
        kernels: What a run on DirectML launches, as predicted: ``before`` and ``after``.
    """

    file: str
    sizes: dict[str, int]
    kernels: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cache:
    """A dim that is the length of caches, and has one size in a container.

    Valid are the last entries of a cache: a host fills up in front, with zeros.

    Attributes:
        dim: The dim.
        told: The input of the containers, int64 [1], that takes the number of valid entries; ""
            if they need not be told.
        grows: Whether each step adds entries; if not, it is as long as what it was made of.
    """

    dim: str
    told: str
    grows: bool


@dataclass(frozen=True)
class StateLink:
    """A state: an output of one step that is an input of the next.

    Attributes:
        input: The input.
        output: The output.
        axis: The axis of its entries; None for a state of one size.
    """

    input: str
    output: str
    axis: int | None


@dataclass(frozen=True)
class Opening:
    """A model that runs once for each encoding; its outputs stay the same in all steps.

    Attributes:
        container: The model.
        inputs: What it takes; the containers do not.
        gives: The inputs of the containers that it makes, each with the output that gives it.
    """

    container: Container
    inputs: tuple[str, ...]
    gives: dict[str, str]


@dataclass(frozen=True)
class Streaming:
    """How a host runs a model that continues its states.

    Attributes:
        caches: The dims that are lengths of caches.
        states: What is fed back.
        rolls: Whether full caches go on: what falls out is seen by nothing any more.
        partial: Whether the first steps may be filled up in front, while the caches are empty: with
            ``-n`` valid entries in them, a container takes ``n`` steps that count for nothing.
        joins: Whether many new entries may be run in parts; if not, as a container has a size.
        opening: What makes the caches of an encoder; None where the host gives them.
    """

    caches: tuple[Cache, ...]
    states: tuple[StateLink, ...]
    rolls: bool = False
    partial: bool = False
    joins: bool = True
    opening: Opening | None = None


@dataclass(frozen=True)
class Manifest:
    """Everything that a host has to know of a shipped model.

    Attributes:
        axis: What is padded.
        batch: The name of the dim of rows; None if the model has none.
        lengths: The input of the containers, int64 [B] or [1], that takes the length of each
            clip; None if masks or lengths that the original has say it.
        inputs: The inputs of the original model.
        outputs: Its outputs; the valid part of each has the shape ``dims`` of the clip alone.
        containers: The models, the smallest first.
        weights: The files of weights that they share, beside the manifest.
        provenance: Where it comes from: source, its hash, passes, versions.
        verdict: What the proof found.
        stream: The states of a model that continues them; None of one that takes clips.
        schema: The version of this format.
    """

    axis: Axis
    batch: str | None
    lengths: str | None
    inputs: tuple[InputPort, ...]
    outputs: tuple[Port, ...]
    containers: tuple[Container, ...]
    weights: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    stream: Streaming | None = None
    schema: int = SCHEMA

    @property
    def opening(self) -> Opening | None:
        """Return the model that runs once for each encoding, or None."""
        return None if self.stream is None else self.stream.opening

    def to_text(self) -> str:
        """Return the manifest as JSON."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a shipped folder.

        Raises:
            ModelError: There is none, or it is not one that this version understands.
        """
        path = folder / NAME
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelError(
                f"{path}: cannot be read: {error.strerror or error}; "
                "name a folder that 'graphfix ship' made"
            ) from error
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path}: is no JSON ({error}); ship the model again") from error
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            schema = data.get("schema") if isinstance(data, dict) else None
            raise ModelError(
                f"{path}: has schema {schema!r:.80}, and this graphfix reads {SCHEMA}; "
                "ship the model again"
            )
        try:
            manifest = _manifest_from_json(data)
            _require_valid(manifest)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            problem = error if type(error) is ValueError else repr(error)
            raise ModelError(f"{path}: is malformed ({problem}); ship the model again") from error
        return manifest


def _manifest_from_json(data: dict[str, Any]) -> Manifest:
    return Manifest(
        axis=Axis(**data["axis"]),
        inputs=tuple(InputPort(**{**x, "dims": tuple(x["dims"])}) for x in data["inputs"]),
        outputs=tuple(Port(**{**x, "dims": tuple(x["dims"])}) for x in data["outputs"]),
        containers=tuple(Container(**x) for x in data["containers"]),
        weights=tuple(data["weights"]),
        stream=_streaming_from_json(data.get("stream")),
        **{key: data[key] for key in ("batch", "lengths", "provenance", "verdict")},
    )


def _streaming_from_json(data: dict[str, Any] | None) -> Streaming | None:
    if data is None:
        return None
    caches = tuple(Cache(**x) for x in data["caches"])
    states = tuple(StateLink(**x) for x in data["states"])
    first = data["opening"]
    opening = first and Opening(
        Container(**first["container"]), tuple(first["inputs"]), dict(first["gives"])
    )
    rolls, partial, joins = (bool(data[x]) for x in ("rolls", "partial", "joins"))
    return Streaming(caches, states, rolls, partial, joins, opening)


def _require_valid(manifest: Manifest) -> None:
    """Raise ValueError where a field has an impossible value, before a session relies on it."""
    axis, inputs = manifest.axis, {x.name: x for x in manifest.inputs}
    for file in (*manifest.weights, *(x.file for x in manifest.containers)):
        _require_that(_is_file_name(file), f"{file!r:.80} is no file beside it")
    _require_that(bool(manifest.containers), "there are no containers")
    sizes = manifest.containers[0].sizes
    for container in manifest.containers:
        _require_that(
            container.sizes.keys() == sizes.keys(), "containers have sizes of different dims"
        )
        for name, size in container.sizes.items():
            problem = f"the size of {name!r:.80} is {size!r:.80}, which is no size"
            _require_that(_is_whole_number(size) and 0 <= size < _MOST, problem)
    for group, ports in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        _require_that(len(ports) > 0, f"there are no {group}")
        _require_that(len({x.name for x in ports}) == len(ports), f"two {group} have the same name")
        for port in ports:
            _require_port(port, sizes)
    if manifest.stream is not None:
        _require_stream(manifest.stream, manifest)
    batch, lengths = manifest.batch, manifest.lengths
    _require_that(batch is None or batch in sizes, f"batch is {batch!r:.80}, which has no size")
    _require_that(isinstance(lengths, str | None), f"lengths is {lengths!r:.80}, which is no name")
    sized = axis.dim in sizes and axis.input in inputs
    _require_that(sized, "axis names a dim without a size, or an input that there is not")
    _require_axis(axis.axis, inputs[axis.input], "axis")
    rated = axis.rate is None or (_is_number(axis.rate) and axis.rate > 0)
    _require_that(rated, f"rate is {axis.rate!r:.80}, which is no number above 0")
    fits = _is_whole_number(axis.shortest) and 1 <= axis.shortest <= sizes[axis.dim]
    _require_that(
        fits, f"shortest is {axis.shortest!r:.80}, which is no length of a clip that fits"
    )


def _require_stream(stream: Streaming, manifest: Manifest) -> None:
    inputs = {x.name: x for x in manifest.inputs}
    outputs = {x.name: x for x in manifest.outputs}
    for state in stream.states:
        exists = state.input in inputs and state.output in outputs
        _require_that(exists, f"the state {state.input!r:.80} is no input, or has no output")
        if state.axis is not None:
            _require_axis(state.axis, inputs[state.input], f"axis of {state.input!r:.80}")
    opening = stream.opening
    if opening is not None:
        file = opening.container.file
        _require_that(_is_file_name(file), f"{file!r:.80} is no file beside it")
        are_inputs = {*opening.inputs, *opening.gives} <= inputs.keys()
        _require_that(are_inputs, f"{file!r:.80} takes or gives what is no input")
    for cache in stream.caches:
        sized = all(cache.dim in x.sizes for x in manifest.containers)
        _require_that(sized, f"the cache {cache.dim!r:.80} has no size")
        _require_that(isinstance(cache.told, str), f"told is {cache.told!r:.80}, which is no name")


def _require_port(port: Port, sizes: dict[str, int]) -> None:
    name = f"{port.name!r:.80}"
    texts: tuple[object, ...] = (port.name, port.type)
    problem = f"{name} has a name or a type that is no text"
    _require_that(all(isinstance(x, str) for x in texts), problem)
    for dim in port.dims:
        _require_that(
            _is_whole_number(dim) or isinstance(dim, str), f"{name} has a dim {dim!r:.80}"
        )
        missing = sorted(names_in(dim) - sizes.keys())
        _require_that(not missing, f"{name} has a dim of {missing!r:.80}, which have no size")
        problem = f"{name} has a dim {dim!r:.80}, which is no size"
        _require_that(0 <= size_of(dim, sizes) < _MOST, problem)
    if port.rows is not None:
        _require_axis(port.rows, port, f"rows of {name}")
    if isinstance(port, InputPort):
        _require_that(
            _is_number(port.pad), f"pad of {name} is {port.pad!r:.80}, which is no number"
        )


def _require_axis(axis: object, port: Port, label: str) -> None:
    count = len(port.dims)
    problem = f"{label} is {axis!r:.80}, and there are {count} dims"
    _require_that(_is_whole_number(axis) and axis in range(count), problem)


def _require_that(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


def _is_file_name(file: object) -> bool:
    """Return whether it names a file in the manifest's folder: on Windows C:x is elsewhere."""
    is_name = isinstance(file, str) and file not in ("", ".", "..")
    return is_name and {*str(file)}.isdisjoint("/\\\0") and not Path(str(file)).drive


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_whole_number(value) or (isinstance(value, float) and math.isfinite(value))
