"""``graphfix.reduce``: the smallest model found that fails as a model does."""

import io as streams
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from graphfix.core import Check
from graphfix.engine.pipeline import resolve_passes
from graphfix.errors import FeedError, UsageError
from graphfix.feeds.case_search import search_cases
from graphfix.feeds.user_feeds import read_feeds
from graphfix.files import atomic_file, byte_ranges, io
from graphfix.files.model_input import (
    Dims,
    ModelLike,
    as_model,
    require_valid_choices,
    sizes_by_dim,
)
from graphfix.paths import StrPath
from graphfix.proof.allowance import USUAL
from graphfix.proof.budget import SECONDS, SearchBudget
from graphfix.proof.compare import Tolerance
from graphfix.providers.table import EVERYWHERE, Ep
from graphfix.reducing.bug_report import original_part, render_report, repairing_passes
from graphfix.reducing.candidate import Candidate, drop_notes, with_types
from graphfix.reducing.failure import Failure, Trial, contradicts_declaration
from graphfix.reducing.search import ReductionSearch
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.runtime.port import Array
from graphfix.runtime.run_errors import RunError
from graphfix.wording import Displayable, Row, Tell, plural

_MOST_TRIES = 2000
# The rest of the time is for what comes after the search.
_SEARCHED = 0.8


@dataclass(frozen=True, repr=False)
class Reduction(Displayable):
    """The smallest model found that fails as a model does.

    Attributes:
        model: It.
        feeds: An array for each of its inputs.
        failure: How it fails.
        nodes_before: How many nodes the model had.
        tries: How many models were tried.
        spent: What ended the search, or empty if nothing smaller was left to try.
        passes: The passes of graphfix that repair it; empty if none do.
        report: A text for a bug report, as Markdown.
        read_files: What was read for it, and is not overwritten.
        original: What the original computes its outputs by, if it was compared with one.
        of_repair: Whether a repair is at fault, and not a provider.
    """

    model: ir.Model
    feeds: Mapping[str, Array]
    failure: Failure
    nodes_before: int
    tries: int
    spent: str
    passes: tuple[str, ...]
    report: str
    read_files: tuple[Path, ...] = ()
    original: ir.Model | None = None
    of_repair: bool = False

    @property
    def line(self) -> str:
        """Return what fails, in one line."""
        return f"{', '.join(x.op_type for x in self.model.graph)}: {self.failure.text}"

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """Return how it fails, how small it is, and whether graphfix repairs it."""
        nodes = ", ".join(dict.fromkeys(x.op_type for x in self.model.graph))
        after = len(self.model.graph)
        ended = f"; the search ended after {self.spent}" if self.spent else ""
        rows = [
            Row(self.failure.kind, self.failure.text, "red"),
            Row("nodes", f"{self.nodes_before} -> {after}, {nodes}"),
            Row("search", f"{plural(self.tries, 'model')} tried{ended}"),
        ]
        if self.of_repair:
            return rows
        repairs = f"-p {','.join(self.passes)}" if self.passes else "no pass of graphfix does"
        return [*rows, Row("repairs", repairs, "green" if self.passes else "")]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, without the model and the arrays."""
        failure = {x: getattr(self.failure, x) for x in ("kind", "code", "text")}
        nodes = {"before": self.nodes_before, "after": len(self.model.graph)}
        data = {"schema": 1, "failure": failure, "nodes": nodes, "tries": self.tries}
        return {**data, "spent": self.spent, "passes": list(self.passes), "report": self.report}

    def save(self, path: StrPath) -> list[Path]:
        """Write the model, its feeds beside it as ``.npz``, and the report as ``.md``.

        What the original computes its outputs by is written beside them as ``.original.onnx``.

        Raises:
            UsageError: One of these was read for this work.
            ModelError: The folder or the disk does not allow it.
        """
        files = output_files(path, with_original=self.original is not None)
        model_path, feeds_path, report_path = files[:3]
        for target in files:
            byte_ranges.refuse_overwrite((), target, self.read_files)
        arrays = streams.BytesIO()
        np.savez(arrays, **dict(self.feeds))  # type: ignore[arg-type]
        io.save(self.model, model_path)
        with atomic_file.draft_file(feeds_path) as draft:
            draft.path.write_bytes(arrays.getvalue())
            draft.keep()
        atomic_file.write_text(report_path, self.report)
        if self.original is not None:
            io.save(self.original, files[3])
        return files


def output_files(path: StrPath, *, with_original: bool = False) -> list[Path]:
    """Return where a reduced model, its feeds and its report go, checked before any work is done.

    Raises:
        UsageError: The name of the model is that of one of the others.
        ModelError: The folder or the disk does not allow it.
    """
    model_path = Path(path)
    suffixes = (".npz", ".md", ".original.onnx")[: 3 if with_original else 2]
    files = [model_path, *(model_path.with_suffix(x) for x in suffixes)]
    if model_path in files[1:]:
        raise UsageError(f"{model_path}: the feeds and the report end so; name a file.onnx")
    for file in files:
        atomic_file.require_writable(file)
    return files


@raises_own_errors
def reduce(
    model: ModelLike,
    *,
    ep: Ep = "dml",
    against: Ep = "cpu",
    original: ModelLike | None = None,
    feeds: StrPath | Mapping[str, Array] | None = None,
    dims: Dims | None = None,
    passes: str | Check | Sequence[str | Check] = (),
    tolerance: Tolerance | None = None,
    slower_than: float | None = None,
    budget: float = SECONDS,
    progress: Tell | None = None,
) -> Reduction:
    """Find the smallest model that still fails as a model does.

    Args:
        model: The model, or its file; it is not changed.
        ep: Where it fails.
        against: The provider of the reference.
        original: The model that it was before a repair; then it fails where it computes something
            else, and the reference is the original.
        feeds: The inputs with which it fails, an ``.npz`` file or arrays; by default they are made.
        dims: Sizes to try, by the name of the symbolic dim, where inputs are made.
        passes: Passes that spoil the model: then a model fails that they change so that it computes
            something else.
        tolerance: The largest allowed difference.
        slower_than: Seconds; then a model fails whose second run takes longer.
        budget: After about how many seconds the search ends with the smallest model found by then.
        progress: Called with a short text at each step.

    Raises:
        UsageError: The model does not fail, or there is no such provider.
        FeedError: No inputs could be made for it.
        ModelError: It cannot be read.
    """
    require_valid_choices(ep=(ep, EVERYWHERE), against=(against, EVERYWHERE))
    tell = progress or (lambda _: None)
    given = as_model(model)
    right = None if original is None else with_types(as_model(original))
    read_files = [x for part in (given, right) if part is not None for x in io.input_files(part)]
    read_files += [Path(feeds)] if isinstance(feeds, (str, os.PathLike)) else []
    whole = with_types(given)
    trial = Trial(
        ep, against, resolve_passes(passes, ep), tolerance or USUAL, slower_than, original=right
    )
    tries = SearchBudget(_MOST_TRIES, _SEARCHED * budget, total=budget)
    tell("looking for inputs with which it fails")
    candidate, failure, trial = _first_failure(whole, trial, feeds, dims)
    search = ReductionSearch(trial, candidate, failure, tries, tell)
    try:
        search.run()
    except KeyboardInterrupt:  # what was found by then is the result
        search.budget.spent = "Ctrl-C"
    drop_notes(search.best.model)
    tell("asking whether graphfix repairs it")
    names = () if trial.of_repair else repairing_passes(search.best, trial)
    before = original_part(search.best, trial)
    report = render_report(search.best, search.failure, trial, names, before)
    return Reduction(
        search.best.model,
        search.best.feeds,
        search.failure,
        candidate.node_count,
        search.budget.tries,
        search.budget.spent,
        names,
        report,
        tuple(read_files),
        before,
        trial.of_repair,
    )


class _FoundError(Exception):
    """A case in which the model fails; no other is looked for."""

    def __init__(self, candidate: Candidate, failure: Failure, trial: Trial) -> None:
        super().__init__(failure.text)
        self.candidate, self.failure, self.trial = candidate, failure, trial


def _first_failure(
    model: ir.Model, trial: Trial, feeds: StrPath | Mapping[str, Array] | None, dims: Dims | None
) -> tuple[Candidate, Failure, Trial]:
    """Return the first inputs with which a model fails, how, and how smaller models are tried.

    Raises:
        UsageError: It does not fail.
        FeedError: It runs at no size that was tried.
    """
    on_reference = trial.ep == trial.against and not trial.of_repair
    try:
        try:
            _run_cases(model, trial, feeds, dims)
        except (FeedError, RunError):
            if not on_reference:
                raise
            # It fails wherever it is run: how others run it says nothing.
            lone_trial = replace(trial, needs_reference=False)
            _run_cases(model, lone_trial, feeds, dims)
    except _FoundError as found:
        return found.candidate, found.failure, found.trial
    given = "these feeds" if feeds is not None else "inputs that were made; --feeds takes yours"
    if trial.original is not None:
        raise UsageError(f"the model computes what its original computes with {given}")
    raise UsageError(f"the model does not fail {trial.where} with {given}")


def _run_cases(
    model: ir.Model, trial: Trial, feeds: StrPath | Mapping[str, Array] | None, dims: Dims | None
) -> None:
    """Run a model with the user's inputs, or with made ones.

    Raises:
        _FoundError: It fails.
        FeedError: No inputs could be made.
        RunError: The reference does not run the user's inputs.
    """

    def run(arrays: Mapping[str, Array]) -> None:
        candidate = Candidate(model, arrays)
        expected = trial.reference_outputs(candidate) if trial.needs_reference else {}
        if (failure := trial.observe_against(candidate, expected)) is not None:
            contradicts = contradicts_declaration(model, expected)
            case_trial = replace(trial, takes_contradictions=contradicts)
            raise _FoundError(candidate, failure, case_trial)

    if feeds is not None:
        run(read_feeds(feeds))
    else:
        search_cases(model, lambda case: run(case.feeds), dims=sizes_by_dim(dims))
