"""Shipping a model whose outputs passes change: they run first, and are proved by themselves.

What follows then compares outputs with outputs of the same names.
"""

from dataclasses import dataclass
from pathlib import Path

from graphfix.core import changes_outputs
from graphfix.engine import pipeline, registry
from graphfix.errors import VerificationError
from graphfix.job import repair_file
from graphfix.proof.compare import Tolerance


@dataclass(frozen=True)
class ShipSource:
    """The model to ship.

    Attributes:
        path: Its file, with the outputs that it is shipped with.
        origin: The file that the user gave.
        passes: The passes that were run on that already, as text.
    """

    path: Path
    origin: Path
    passes: str = ""

    def with_passes(self, spec: str) -> str:
        """Return all passes, given those that run on :attr:`path`."""
        return ",".join(filter(None, (self.passes, spec)))


def split_passes(spec: str) -> tuple[str, str]:
    """Return the passes of a spec that change outputs, and the others."""
    items = [":".join(item) for item in pipeline.split_spec(spec)] if spec else []
    parts: tuple[list[str], list[str]] = ([], [])
    for item in items:
        parts[not _changes_outputs(item)].append(item)
    changing, others = map(",".join, parts)
    return changing, others


def change_outputs(
    source: Path,
    spec: str,
    folder: Path,
    tell: pipeline.Progress,
    tolerance: Tolerance | None = None,
) -> ShipSource:
    """Return the model with the outputs that a spec asks for, proved.

    Args:
        source: The model.
        spec: All passes, as text.
        folder: Where a changed model goes.
        tell: Called with a short text at each step.
        tolerance: What may differ.

    Raises:
        VerificationError: The outputs do not tell what those of the model do.
    """
    changing, _ = split_passes(spec)
    if not changing:
        return ShipSource(source, source)
    path = folder / "outputs" / (source.name if source.suffix else f"{source.name}.onnx")
    path.parent.mkdir(exist_ok=True)
    report = repair_file(source, path, changing, kernels=False, tolerance=tolerance, progress=tell)
    if not report.ok:
        raise VerificationError(report)
    return ShipSource(path, source, changing)


def _changes_outputs(item: str) -> bool:
    name = item.partition(":")[0]
    if name in registry.PROFILES or name not in registry.pass_names():
        return False
    return any(map(changes_outputs, pipeline.parse_passes(name)))
