"""A container as ONNX Runtime has it, compared with what the manifest says of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphfix.errors import ModelError
from graphfix.shipped.manifest import NAME, Container, Manifest

Described = Mapping[str, tuple[str, Sequence[int] | None]]


def require_described(manifest: Manifest, container: Container, path: Path, session: Any) -> None:  # noqa: ANN401
    """Raise ModelError where a container is not what the manifest says.

    Args:
        manifest: The manifest.
        container: Which of its models.
        path: Its file.
        session: Its session: one of onnxruntime, or what has its inputs and outputs as that has.
    """
    described = _described_inputs(manifest, container)
    inputs = {x.name: x for x in session.get_inputs()}
    outputs = {x.name: x for x in session.get_outputs()}
    opening, wanted = manifest.opening, {x.name for x in manifest.outputs}
    if opening is not None and opening.container == container:
        wanted = {*opening.gives.values()}
    missing = (inputs.keys() - described.keys()) | (wanted - outputs.keys())
    if manifest.stream is None:  # a clip is fed as a whole, a step what the container takes
        missing |= described.keys() - inputs.keys()
    if missing:
        raise ModelError(
            f"{path}: {min(missing)!r:.80} is in one of it and {NAME}, and not in the other; "
            "ship the model again"
        )
    _require_ranks(manifest, path, outputs)
    for name, actual in inputs.items():
        _require_same(path, name, actual, *described[name])
    states = () if manifest.stream is None else manifest.stream.states
    for state in states if wanted >= {x.output for x in states} else ():
        if state.input in inputs:
            _require_same(path, state.output, outputs[state.output], *described[state.input])


def _require_ranks(manifest: Manifest, path: Path, outputs: Mapping[str, Any]) -> None:
    """Raise ModelError where an output has more dims than the manifest says, or fewer."""
    for port in manifest.outputs:
        shape = outputs[port.name].shape if port.name in outputs else []
        if shape and port.dims and len(shape) != len(port.dims):
            raise ModelError(
                f"{path}: the output {port.name!r:.80} has {len(shape)} dims, and "
                f"{len(port.dims)} by {NAME}; ship the model again"
            )


def _described_inputs(manifest: Manifest, container: Container) -> Described:
    """Return the type and the shape of each input that a host feeds; None for a shape unknown."""
    sizes = manifest.with_derived({**manifest.containers[0].sizes, **container.sizes})
    inputs: dict[str, tuple[str, Sequence[int] | None]] = {
        x.name: (x.type, x.shape_at(sizes)) for x in manifest.inputs
    }
    lengths = "tensor(int64)"
    if manifest.lengths is not None:
        inputs[manifest.lengths] = lengths, None
    if manifest.stream is not None:
        inputs |= {x.told: (lengths, (1,)) for x in manifest.stream.caches if x.told}
    return inputs


def _require_same(path: Path, name: str, port: Any, kind: str, shape: Sequence[int] | None) -> None:  # noqa: ANN401
    """Raise ModelError where a port has another type, or a shape of other numbers."""
    same = port.type == kind and (shape is None or _is_shape(port.shape, shape))
    if not same:
        actual, described = f"{port.type}{[*port.shape]}", f"{kind:.40}{[*(shape or ())]}"
        raise ModelError(
            f"{path}: {name!r:.80} is {actual}, and {described} by {NAME}; ship the model again"
        )


def _is_shape(shape: Sequence[object], sizes: Sequence[int]) -> bool:
    """Return whether a shape has these sizes, where it has numbers."""
    return len(shape) == len(sizes) and all(
        x == n for x, n in zip(shape, sizes, strict=True) if isinstance(x, int)
    )
