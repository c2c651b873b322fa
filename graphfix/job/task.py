"""The task: which model to repair, with which passes, and how to prove it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import onnx_ir as ir

from graphfix.core import Check, Pass, calibrated_passes
from graphfix.engine.pipeline import Progress
from graphfix.engine.report import Report
from graphfix.feeds.case_search import check_sizes
from graphfix.feeds.user_feeds import check_feeds, read_feeds
from graphfix.files.model_input import (
    Dims,
    refuse_unknown_options,
    require_valid_choices,
    sizes_by_dim,
)
from graphfix.files.weights import Placement
from graphfix.job.rounding_search import rounding_tolerance
from graphfix.paths import StrPath, require_path
from graphfix.proof.budget import SECONDS, SearchBudget
from graphfix.proof.verify import Tolerance
from graphfix.providers.table import EVERYWHERE, DeviceEp, Ep
from graphfix.runtime import memory_need
from graphfix.runtime.port import Feeds
from graphfix.runtime.python import require_provider

_UNVERIFIED = "write the result without running it (--no-verify)"


class Options(TypedDict, total=False):
    """How a file is repaired.

    Attributes:
        check: Whether to verify; without it, nothing is run. It is by default.
        exclude: Nodes to repair nothing at, as the report names them; a pattern such as
            ``*/decoder/*`` matches several. Passes that cannot exclude single sites ignore it.
        dry_run: Say what would be done and write nothing.
        dims: Sizes to verify at, by the name of the symbolic dim.
        feeds: An ``.npz`` with an array for each input, to verify with.
        tolerance: What may differ; :class:`graphfix.proof.compare.Tolerance` has the default.
        external_data: Where the weights go, see :data:`graphfix.files.weights.Placement`.
        ep: Where the repaired model is verified; the original always runs on the CPU.
        kernels: Whether to count the kernels per run before and after, see
            :func:`graphfix.job.planning.count_kernels`; by default if it is verified and not huge.
        strict: Whether a failed verdict is the end, as is a pass that raises: no bad place is
            searched for, and nothing is written.
        page: Where a page about the result is going to be; one that is there is about the model
            that is replaced, and is removed with it.
        budget: How many seconds searches and proofs may take together, about; see
            :func:`graphfix.proof.verify.verify`.
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
    """One model, its passes, and how the result is proved.

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
        budget: How many seconds searches and proofs may take together, about.
        exclude: Nodes to repair nothing at.
        profile_passes: The passes that only a profile names, as ``-p`` takes them: one that makes a
            model worse is left out.
        counted_on: The provider whose kernels they must not add to, or None.
        tell: Called with a short text at each step.
        start: When the work began, on the clock of :func:`time.monotonic`.
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
    profile_passes: frozenset[str] = frozenset()
    counted_on: DeviceEp | None = None
    tell: Progress = lambda _: None
    start: float = field(default_factory=lambda: time.monotonic())

    @classmethod
    def from_options(cls, source: StrPath, options: Options) -> Task:
        """Return the task of these options, which names no passes yet.

        Raises:
            UsageError: There is no such option, or no such provider.
        """
        refuse_unknown_options(options, Options)
        require_valid_choices(ep=(options.get("ep", "cpu"), EVERYWHERE))
        exclude = options.get("exclude", ())
        unchanged = ("feeds", "tolerance", "ep", "kernels", "strict", "budget")
        values: dict[str, Any] = {name: x for name, x in options.items() if name in unchanged}
        return cls(
            require_path(source),
            check=options.get("check", True) and not options.get("dry_run", False),
            dims=sizes_by_dim(options.get("dims")),
            exclude=(exclude,) if isinstance(exclude, str) else tuple(exclude),
            tell=options.get("progress") or (lambda _: None),
            **values,
        )

    @property
    def has_calibrated_passes(self) -> bool:
        """Return whether a pass rounds, and so is calibrated by running the model."""
        return bool(calibrated_passes(self.chosen))

    @property
    def total_seconds(self) -> float:
        """Return how many seconds all searches and proofs may take."""
        return self.budget or SECONDS

    @property
    def proof_seconds(self) -> float:
        """Return how many seconds the next proof may take: what is left, a third at least."""
        spent = time.monotonic() - self.start
        return max(self.total_seconds - spent, self.total_seconds / 3)

    @property
    def is_late(self) -> bool:
        """Return whether no more than the least is left for a proof."""
        return self.proof_seconds <= self.total_seconds / 3

    def limit_search(self, most: int) -> SearchBudget:
        """Return what a search may spend: tries, and half of the time; a proof follows it."""
        return SearchBudget(most, self.proof_seconds / 2, self.total_seconds)

    def with_passes(self, chosen: Sequence[Check], model: ir.Model) -> Task:
        """Return the task with these passes, at the sizes that ``model`` and the result run at."""
        dims = dict(self.dims)
        for chosen_pass in chosen if self.check else ():
            dims |= chosen_pass.runs_at(model) if isinstance(chosen_pass, Pass) else {}
        tolerance = self.tolerance or rounding_tolerance(chosen)
        return replace(self, chosen=tuple(chosen), dims=dims, tolerance=tolerance)

    def check_before_loading(self) -> Feeds:
        """Check what needs no model, and return the user's arrays.

        Raises:
            UsageError: The provider is unavailable.
            FeedError: The file of the feeds cannot be read.
        """
        if not self.check:
            return {}
        require_provider(self.ep)
        return {} if self.feeds is None else read_feeds(self.feeds)

    def check_inputs(self, model: ir.Model, feeds: Feeds) -> None:
        """Check the user's arrays and sizes against the inputs of the model as given.

        Raises:
            FeedError: A name, a dtype, a rank or a size does not fit.
        """
        if self.check:
            check_feeds(feeds, model)
            check_sizes(model, self.dims)

    def complete_report(self, report: Report, need: memory_need.MemoryNeed | None) -> Report:
        """Return the report with the source of the model and the memory of its proof."""
        memory = None if need is None else need.to_json()
        return replace(report, source=str(self.source), memory=memory)

    def estimate_memory(self, model: ir.Model) -> memory_need.MemoryNeed | None:
        """Return the memory that a proof will need; None without a proof.

        Raises:
            UsageError: That is more memory than there is.
        """
        return memory_need.check_memory(model, instead=_UNVERIFIED) if self.check else None
