"""The proof of a container: clips alone on the original, against the same clips in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphfix.probing.padded import PaddedVerdict, padded
from graphfix.runtime.provider import LABELS, Ep

if TYPE_CHECKING:
    from pathlib import Path

    from graphfix.pipeline import Progress
    from graphfix.proof.compare import Tolerance
    from graphfix.ship.manifest import Container
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
    path: Path,
    reading: Reading,
    container: Container,
    tolerance: Tolerance,
    ep: Ep,
    tell: Progress,
) -> Padding:
    """Run clips of several lengths alone on the original and in a container, and compare."""
    size = container.sizes[reading.axis.dim]
    dims = {names[0]: [container.sizes[g]] for g, names in reading.names.items()}
    dims[reading.names[reading.axis.dim][0]] = _fitting(reading, size)
    found = padded(
        path,
        original=source,
        dims=dims,
        container=size,
        axis=f"{reading.axis.input}.{reading.axis.axis}",
        tolerance=tolerance,
        ep=ep,
        progress=lambda done, total, what: tell(f"{path.name} {done}/{total}: {what}"),
    )
    return Padding(path.name, ep, found)


def _fitting(reading: Reading, size: int) -> list[int]:
    """Lengths for a container: itself, if the original runs at it, down to a twelfth of it."""
    return [x.length for x in reading.clips if size / 13 <= x.length <= size]
