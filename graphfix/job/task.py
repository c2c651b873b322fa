"""What is asked of the job, in one place: what to repair, and how to prove it."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphfix.core import Pass
from graphfix.job.settling import gate
from graphfix.runtime import memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import onnx_ir as ir

    from graphfix.core import Check
    from graphfix.pipeline import Progress
    from graphfix.proof.verify import Tolerance
    from graphfix.report import Report
    from graphfix.runtime.provider import Ep

StrPath = str | os.PathLike[str]

_UNVERIFIED = "write the result without running it (--no-verify)"


@dataclass(frozen=True)
class Task:
    """One model, the passes, and what the result is held to.

    Attributes:
        source: The model, ``.onnx``.
        chosen: The passes, in order.
        check: Whether anything is run to prove the result.
        dims: Sizes to verify at, by the name of the symbolic dim.
        feeds: The user's inputs.
        tolerance: What may differ; None for the usual.
        ep: Where the repaired model is run.
        kernels: Whether to count kernels; None: if it is verified and not huge.
        strict: Whether a failed verdict is the end, and no search for bad places begins.
        tell: Called with a short text at each step.
    """

    source: Path
    chosen: tuple[Check, ...]
    check: bool
    dims: Mapping[str, Sequence[int]]
    feeds: StrPath | None
    tolerance: Tolerance | None
    ep: Ep
    kernels: bool | None
    strict: bool
    tell: Progress

    @property
    def measured(self) -> bool:
        """Whether a pass rounds, so that what it leaves alone is found by running the model."""
        return any(isinstance(x, Pass) and x.measured for x in self.chosen)

    def of(self, chosen: Sequence[Check], model: ir.Model) -> Task:
        """The same for these passes, at the only sizes at which ``model`` and the result run."""
        dims = {**self.dims, **(_only_sizes(chosen, model) if self.check else {})}
        tolerance = self.tolerance or gate(chosen)
        return dataclasses.replace(self, chosen=tuple(chosen), dims=dims, tolerance=tolerance)

    def about(self, report: Report, need: memory.Need | None) -> Report:
        """A report that says where the model came from, and what its proof was to take."""
        told = None if need is None else need.to_json()
        return dataclasses.replace(report, source=str(self.source), memory=told)

    def expect(self, model: ir.Model) -> memory.Need | None:
        """What a proof will need, if there is to be one.

        Raises:
            UsageError: That is more memory than there is.
        """
        return memory.expect(model, instead=_UNVERIFIED) if self.check else None


def _only_sizes(passes: Sequence[Check], model: ir.Model) -> dict[str, Sequence[int]]:
    each = [one.runs_at(model) for one in passes if isinstance(one, Pass)]
    return {name: sizes for found in each for name, sizes in found.items()}
