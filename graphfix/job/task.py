"""What is asked of the job, in one place: what to repair, and how to prove it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import onnx_ir as ir

from graphfix.core import Check, Pass, rounding
from graphfix.engine.pipeline import Progress
from graphfix.engine.report import Report
from graphfix.files.given import Dims, refuse_unknown, sizes_of
from graphfix.files.weights import Placement
from graphfix.job.rounding_search import gate
from graphfix.paths import StrPath, file_of
from graphfix.proof.verify import Tolerance
from graphfix.runtime import memory_need
from graphfix.runtime.provider import Ep

_UNVERIFIED = "write the result without running it (--no-verify)"


class Options(TypedDict, total=False):
    """How a file is repaired.

    Attributes:
        check: Whether to verify; without it, nothing is run. It is by default.
        exclude: Nodes to repair nothing at, as the report names them; a pattern such as
            ``*/decoder/*`` stands for several. Passes that repair all or nothing pay no heed.
        dry_run: Say what would be done and write nothing.
        dims: Sizes to verify at, by the name of the symbolic dim.
        feeds: An ``.npz`` with an array for each input, to verify with.
        tolerance: What may differ; :class:`graphfix.proof.compare.Tolerance` has the default.
        external_data: Where the weights go, see :data:`graphfix.files.weights.Placement`.
        ep: Where the repaired model is verified; on DirectML it is held to the original on the CPU.
        kernels: Whether to count the kernels per run before and after
            (:func:`graphfix.job.planning.kernels`); by default if it is verified and not huge.
        strict: Whether a failed verdict is the end, as is a pass that raises: no bad place is
            searched for, and nothing is written.
        page: Where a page about the result is going to be; one that is there is about the model
            that is replaced, and is removed with it.
        budget: How many seconds a proof may take, about; see :func:`graphfix.proof.verify.verify`.
        progress: Called with a short text at each step.
    """

    check: bool
    exclude: Sequence[str]
    dry_run: bool
    dims: Dims | None
    feeds: StrPath | None
    tolerance: Tolerance | None
    external_data: Placement
    ep: Ep
    kernels: bool | None
    strict: bool
    page: StrPath | None
    budget: float | None
    progress: Progress | None


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
        budget: How many seconds a proof may take.
        exclude: Nodes to repair nothing at.
        tell: Called with a short text at each step.
    """

    source: Path
    chosen: tuple[Check, ...] = ()
    check: bool = True
    dims: Mapping[str, Sequence[int]] = field(default_factory=dict)
    feeds: StrPath | None = None
    tolerance: Tolerance | None = None
    ep: Ep = "cpu"
    kernels: bool | None = None
    strict: bool = False
    budget: float | None = None
    exclude: Sequence[str] = ()
    tell: Progress = lambda _: None

    @classmethod
    def asked(cls, source: StrPath, options: Options) -> Task:
        """What is asked with these options, which names no passes yet."""
        refuse_unknown(options, Options)
        exclude = options.get("exclude", ())
        as_given = ("feeds", "tolerance", "ep", "kernels", "strict", "budget")
        given: dict[str, Any] = {name: x for name, x in options.items() if name in as_given}
        return cls(
            file_of(source),
            check=options.get("check", True) and not options.get("dry_run", False),
            dims=sizes_of(options.get("dims")),
            exclude=(exclude,) if isinstance(exclude, str) else tuple(exclude),
            tell=options.get("progress") or (lambda _: None),
            **given,
        )

    @property
    def measured(self) -> bool:
        """Whether a pass rounds, so that what it leaves alone is found by running the model."""
        return bool(rounding(self.chosen))

    def of(self, chosen: Sequence[Check], model: ir.Model) -> Task:
        """The same for these passes, at the only sizes at which ``model`` and the result run."""
        dims = dict(self.dims)
        for one in chosen if self.check else ():
            dims |= one.runs_at(model) if isinstance(one, Pass) else {}
        tolerance = self.tolerance or gate(chosen)
        return replace(self, chosen=tuple(chosen), dims=dims, tolerance=tolerance)

    def about(self, report: Report, need: memory_need.Need | None) -> Report:
        """A report that says where the model came from, and what its proof was to take."""
        told = None if need is None else need.to_json()
        return replace(report, source=str(self.source), memory=told)

    def expect(self, model: ir.Model) -> memory_need.Need | None:
        """What a proof will need, if there is to be one.

        Raises:
            UsageError: That is more memory than there is.
        """
        return memory_need.expect(model, instead=_UNVERIFIED) if self.check else None
