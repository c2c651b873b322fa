"""The proof of a container: clips alone on the original, against the same clips in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphfix.probing.padded import PaddedVerdict, padded
from graphfix.runtime.provider import LABELS, Ep

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx_ir as ir

    from graphfix.pipeline import Progress
    from graphfix.proof.compare import Tolerance
    from graphfix.ship.reading import Reading


@dataclass(frozen=True)
class Padding:
    """The proof of one container on one provider.

    Attributes:
        file: The container.
        ep: Where it ran.
        verdict: Clips alone against the same clips in it, with garbage behind them.
    """

    file: str
    ep: Ep
    verdict: PaddedVerdict

    def __str__(self) -> str:
        return f"on {LABELS[self.ep]} {self.verdict}"


def prove(
    source: Path,
    made: Path | ir.Model,
    name: str,
    reading: Reading,
    sizes: Mapping[str, int],
    tolerance: Tolerance,
    ep: Ep,
    tell: Progress,
) -> Padding:
    """Run clips of several lengths alone on the original and in a container, and compare.

    Args:
        source: The original.
        made: The container.
        name: What it is called.
        reading: What was read off the original.
        sizes: The sizes of the container.
        tolerance: What may differ.
        ep: Where it runs.
        tell: Called with a short text at each step.
    """
    size = sizes[reading.axis.dim]
    dims = {names[0]: [sizes[g]] for g, names in reading.names.items()}
    dims[reading.names[reading.axis.dim][0]] = _fitting(reading, size)
    found = padded(
        made,
        original=source,
        dims=dims,
        container=size,
        axis=f"{reading.axis.input}.{reading.axis.axis}",
        tolerance=tolerance,
        ep=ep,
        progress=lambda done, total, what: tell(f"{name} {done}/{total}: {what}"),
    )
    return Padding(name, ep, found)


def _fitting(reading: Reading, size: int) -> list[int]:
    """Lengths for a container: itself, if the original runs at it, down to a twelfth of it."""
    return [x.length for x in reading.clips if size / 13 <= x.length <= size]
