"""What users get: clips through a session of the shipped folder, against the original alone."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphfix.proof.compare import OutputDiff, Tolerance, compare
from graphfix.runtime.errors import reason_of
from graphfix.ship.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from graphfix.ship.outputs import Clip


@dataclass(frozen=True)
class Whole:
    """What came of it.

    Attributes:
        ok: Whether every output of every clip is within the tolerance.
        diffs: How far each output of each clip is from the original's.
        reason: Why nothing could be compared; empty if it could.
    """

    ok: bool
    diffs: tuple[OutputDiff, ...]
    reason: str = ""

    @property
    def worst(self) -> OutputDiff | None:
        """What is furthest from the original, failed ones first."""
        return max(self.diffs, key=lambda d: (not d.ok, d.badness, d.max_abs), default=None)

    def to_json(self) -> dict[str, object]:
        """As plain data."""
        worst = self.worst
        return {
            "ok": self.ok,
            "summary": str(self),
            "clips": len({d.case for d in self.diffs}),
            "max_abs": None if worst is None else worst.max_abs,
        }

    def __str__(self) -> str:
        worst = self.worst
        if self.reason or worst is None:
            return self.reason or "nothing was compared"
        if not worst.ok:
            return f"output {worst.output!r} {worst.reason}, for a {worst.case}"
        count = len({d.case for d in self.diffs})
        return (
            f"the same for {count} clips: the largest difference is {worst.max_abs:.3g} in output "
            f"{worst.output!r} (allowed {worst.allowed:.3g})"
        )


def end_to_end(folder: Path, clips: Sequence[Clip], tolerance: Tolerance) -> Whole:
    """Run clips through a session on the CPU, and compare what comes out, shapes and all."""
    diffs: list[OutputDiff] = []
    # Closed in any case: Windows neither renames nor deletes a folder with a file that is in use.
    with closing(Session(folder, providers=["CPUExecutionProvider"])) as session:
        names = [x.name for x in session.get_outputs()]
        for clip in clips:
            try:
                found = session.run(names, clip.feeds)
            except Exception as error:  # onnxruntime raises a dozen unrelated types
                told = f"a clip of {clip.length} does not run: {reason_of(error)}"
                return Whole(False, tuple(diffs), told)
            for name, array in zip(names, found, strict=True):
                case = f"clip of {clip.length}"
                diffs.append(compare(name, case, clip.outputs[name], array, tolerance))
    return Whole(bool(diffs) and all(d.ok for d in diffs), tuple(diffs))
