"""Calibrates a pass that rounds: finds what must stay in float32 by running the model."""

import dataclasses
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from graphfix.core import Check, Feeds, Pass, calibrated_passes, feeds_after, weakest_promise
from graphfix.engine import pipeline
from graphfix.engine.report import PassReport, Report
from graphfix.errors import ModelError
from graphfix.feeds.signature import Signature
from graphfix.feeds.user_feeds import case_from_feeds
from graphfix.files import io
from graphfix.paths import StrPath
from graphfix.proof.budget import SearchBudget
from graphfix.proof.compare import HALF_GATE, Tolerance
from graphfix.runtime.compared_session import open_original

# The shares of the gate that a pass that rounds may use on the inputs of its search, since other
# inputs may do worse. Below a half, the search tries as many inputs as verification.
MARGINS = (0.5, 0.4, 0.2)
# How many candidates a search tries at most.
TRIES = 60


@dataclasses.dataclass
class Calibration:
    """Chooses what a pass that rounds leaves in float32, by running the model.

    Attributes:
        chosen: All passes.
        dims: Sizes to try.
        feeds: The user's inputs.
        tolerance: The gate.
        tell: Called with a short text at each step.
        margin: Which share of the gate may be used.
        budget: What the search may spend.
        known: What searches with larger margins found, by the pass: why nodes stay. What this one
            finds is added.
        met: Whether the result meets the aim.
    """

    chosen: Sequence[Check]
    dims: Mapping[str, Sequence[int]]
    feeds: StrPath | None
    tolerance: Tolerance | None
    tell: pipeline.Progress
    margin: float
    budget: SearchBudget = dataclasses.field(default_factory=lambda: SearchBudget(TRIES))
    known: dict[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    met: bool | None = None

    def __call__(self, check: Check, model: ir.Model, ran: tuple[PassReport, ...]) -> Check:
        """Return the pass to run instead of ``check``."""
        if not isinstance(check, Pass) or not check.needs_calibration:
            return check
        from graphfix.float16_search.keep_search import mark_reasons, search_kept_nodes

        arrays: Feeds | None = None
        if self.feeds is not None:
            before = io.source_path(model)
            original = io.load(before) if before is not None else model
            arrays = case_from_feeds(self.feeds, Signature(original)).feeds
            arrays = feeds_after(self.chosen[: len(ran)], arrays)
        try:
            new, search_result = search_kept_nodes(
                model,
                check,
                tolerance=self.tolerance or HALF_GATE,
                margin=self.margin,
                dims=self.dims,
                feeds=arrays,
                safety=weakest_promise([check.safety, *(p.safety for p in ran if p.changes)]),
                budget=self.budget,
                known=self.known.get(check.spec()),
                progress=self.tell,
            )
        except ModelError:
            if (source := io.source_path(model)) is not None:
                open_original(source).close()  # raises if the original itself does not load
            raise
        mark_reasons(model, search_result.reasons)
        self.known[check.spec()] = search_result.reasons
        self.met = search_result.met
        return new


def is_hopeless(report: Report) -> bool:
    """Return whether the search missed its aim: then a closer one is missed as well."""
    return report.met is False


def has_rounded(chosen: Sequence[Check], report: Report) -> bool:
    """Return whether a pass that rounds has changed anything."""
    names = {x.name for x in calibrated_passes(chosen)}
    return any(x.changes for x in report.passes if x.name in names)


def rounding_tolerance(chosen: Sequence[Check]) -> Tolerance | None:
    """Return the tolerance where a pass rounds to float16; None for the usual."""
    return HALF_GATE if calibrated_passes(chosen) else None
