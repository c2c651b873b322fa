"""``graphfix.json``: what a host has to know to feed the containers of a shipped model.

The format is documented in ``docs/ship.md``; ``schema`` grows when a field changes its meaning.
Only the standard library is used, so that importing a session costs nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from graphfix.errors import ModelError
from graphfix.ship import fields

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 1
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
        dims: Its dims: numbers, or expressions in the names of dims.
        rows: The axis of the batch, or None.
    """

    name: str
    type: str
    dims: tuple[Dim, ...]
    rows: int | None


@dataclass(frozen=True)
class Input(Port):
    """An input of the original model, and what goes into it behind the clip.

    Attributes:
        kind: What it is for.
        pad: What it holds where there is no content.
    """

    kind: Kind = "data"
    pad: float = 0.0


@dataclass(frozen=True)
class Axis:
    """What is padded.

    Attributes:
        dim: The name of the dim that a clip's length is a size of.
        input: The input that tells a clip's length, by its size along ``axis``.
        axis: That axis.
        rate: How many of them a second has; None if nobody said.
        shortest: The length of the shortest clip of which every window of the model makes
            something. Of less ONNX Runtime's pools make a frame where the standard has none.
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
        kernels: What a run on DirectML launches, as foreseen: ``before`` and ``after``.
    """

    file: str
    sizes: dict[str, int]
    kernels: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """All that a host has to know.

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
        schema: The version of this format.
    """

    axis: Axis
    batch: str | None
    lengths: str | None
    inputs: tuple[Input, ...]
    outputs: tuple[Port, ...]
    containers: tuple[Container, ...]
    weights: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def to_text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a shipped folder.

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
            found = data.get("schema") if isinstance(data, dict) else None
            raise ModelError(
                f"{path}: has schema {found!r:.80}, and this graphfix reads {SCHEMA}; "
                "ship the model again"
            )
        try:
            return _manifest(data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            told = error if type(error) is ValueError else repr(error)
            raise ModelError(f"{path}: is malformed ({told}); ship the model again") from error


def _manifest(data: dict[str, Any]) -> Manifest:
    fields.require(data)
    inputs = tuple(Input(**{**x, "dims": tuple(x["dims"])}) for x in data["inputs"])
    outputs = tuple(Port(**{**x, "dims": tuple(x["dims"])}) for x in data["outputs"])
    containers = tuple(Container(**x) for x in data["containers"])
    return Manifest(
        Axis(**data["axis"]),
        data["batch"],
        data["lengths"],
        inputs,
        outputs,
        containers,
        tuple(data["weights"]),
        data["provenance"],
        data["verdict"],
    )
