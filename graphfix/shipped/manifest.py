"""``graphfix.json``: what a host has to know to feed the containers of a shipped model.

The format is documented in ``docs/ship.md``; ``schema`` grows when a field changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from graphfix.shipped.derived_size import DerivedSize, sources_of, with_derived_sizes

SCHEMA = 2
NAME = "graphfix.json"

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
        dims: Its dims: numbers, names of dims, or names of derived sizes.
        rows: The axis of the batch, or None.
    """

    name: str
    type: str
    dims: tuple[Dim, ...]
    rows: int | None

    def shape_at(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape at these sizes, derived ones among them.

        Raises:
            ValueError: A dim has no size, or one below 0.
        """
        shape = tuple(x if isinstance(x, int) else sizes.get(x, -1) for x in self.dims)
        if min(shape, default=0) < 0:
            dim = self.dims[shape.index(min(shape))]
            raise ValueError(f"{self.name!r:.80} has no size {dim!r:.80} at {dict(sizes)!s:.200}")
        return shape


@dataclass(frozen=True)
class InputPort(Port):
    """An input of the original model, and the value of its padding.

    Attributes:
        kind: The role of the input.
        pad: The value where there is no content.
        valid: What a mask has where there is content; None of other inputs.
        counted: Whether containers take from this mask or these lengths how long a clip is. What
            is valid in such a mask has to come first.
    """

    kind: Kind = "data"
    pad: float = 0.0
    valid: float | None = None
    counted: bool = False


@dataclass(frozen=True)
class Axis:
    """The padded axis.

    Attributes:
        dim: The name of the dim that a clip's length is a size of.
        input: The input that tells a clip's length, by its size along ``axis``.
        axis: That axis.
        rate: How many entries a second has; None if unknown.
        shortest: The length of the shortest clip that the original runs and that fills a window of
            every pool. For shorter ones, ONNX Runtime's pools return a frame where the standard
            has none.
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

    The last entries of a cache are valid: a host pads in front, with zeros.

    Attributes:
        dim: The dim.
        told: The input of the containers, int64 [1], that takes the number of valid entries; ""
            if there is none.
        grows: Whether each step adds entries; if not, it is as long as the encoder's input.
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
        rolls: Whether full caches drop their oldest entries; else a step beyond them is an error.
        partial: Whether the first steps may be filled up in front, while the caches are empty: with
            ``-n`` valid entries in them, a container takes ``n`` steps that count for nothing.
        joins: Whether many new entries may be run in parts; if not, as a container has a size.
        opening: The model that computes the encoder's caches; None if the host gives them.
    """

    caches: tuple[Cache, ...]
    states: tuple[StateLink, ...]
    rolls: bool = False
    partial: bool = False
    joins: bool = True
    opening: Opening | None = None


@dataclass(frozen=True)
class FileRecord:
    """A file of the folder besides the manifest.

    Attributes:
        name: Its name.
        bytes: Its size.
        sha256: Its hash, 64 hexadecimal digits in lower case.
    """

    name: str
    bytes: int
    sha256: str


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
        derived: The sizes that ``dims`` name and that follow from others, in an order in which they
            can be computed.
        files: The files of the folder besides the manifest: models, and the weights they share.
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
    derived: tuple[DerivedSize, ...] = ()
    files: tuple[FileRecord, ...] = ()
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

    @property
    def models(self) -> tuple[Container, ...]:
        """Return every model of the folder: the containers, and the one for each encoding."""
        opening = self.opening
        return self.containers if opening is None else (*self.containers, opening.container)

    def with_derived(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of dims, and those that follow from them.

        Raises:
            ValueError: One cannot be computed.
        """
        return with_derived_sizes(self.derived, sizes)

    @cached_property
    def _sources(self) -> dict[str, frozenset[str]]:
        return sources_of(self.derived)

    def dims_behind(self, dim: Dim) -> frozenset[str]:
        """Return the names of the dims that a dim of an input or output follows from."""
        if isinstance(dim, int):
            return frozenset()
        return self._sources.get(dim, frozenset({dim}))
