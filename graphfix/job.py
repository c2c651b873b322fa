"""The whole job on files: load, repair, verify, and only then write."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from graphfix import buckets, pipeline
from graphfix.core import Pass, changed_by, together
from graphfix.errors import UsageError
from graphfix.lengths.given import LengthInput
from graphfix.model import files, io, shapes
from graphfix.model.dims import dim_names
from graphfix.runtime import memory

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from graphfix.core import Check, Feeds
    from graphfix.model.weights import Placement
    from graphfix.probing.padded import PaddedVerdict
    from graphfix.proof.verify import Tolerance, Verdict
    from graphfix.report import PassReport, Report
    from graphfix.runtime.provider import Ep

    StrPath = str | os.PathLike[str]

# Which share of the gate a pass that rounds may use where it is tried: other inputs do worse.
MARGINS = (0.5, 0.2)
_UNVERIFIED = "write the result without running it (--no-verify)"


def repair_file(
    source: StrPath,
    target: StrPath | None = None,
    passes: str | Check | Sequence[Check] = pipeline.DEFAULT,
    *,
    check: bool = True,
    dry_run: bool = False,
    dims: Mapping[str, Sequence[int]] | None = None,
    feeds: StrPath | None = None,
    tolerance: Tolerance | None = None,
    external_data: Placement = "auto",
    ep: Ep = "cpu",
    kernels: bool | None = None,
    progress: pipeline.Progress | None = None,
) -> Report:
    """Repair a model file, prove that it still computes the same, and write the result.

    Args:
        source: The model, ``.onnx``.
        target: Where the repaired model goes; ``model.fixed.onnx`` beside the source by default.
        passes: Text as ``-p`` takes it, a pass, or several.
        check: Whether to verify; without it, nothing is run.
        dry_run: Say what would be done and write nothing.
        dims: Sizes to verify at, by the name of the symbolic dim.
        feeds: An ``.npz`` with an array for each input, to verify with.
        tolerance: What may differ; :class:`graphfix.proof.compare.Tolerance` has the default.
        external_data: Where the weights go, see :data:`graphfix.model.weights.Placement`.
        ep: Where the repaired model is verified; on DirectML it is held to the original on the CPU.
        kernels: Whether to count the kernels of a run before and after
            (:func:`graphfix.planning.kernels`); by default if it is verified and not huge.
        progress: Called with a short text at each step.

    Returns:
        The report. If its verdict is not ok, nothing was written and ``output`` is None.

    Raises:
        ModelError: The model cannot be read or written, or ONNX Runtime rejects it as given.
        UsageError: A pass, an option or the target does not fit; or verification would need more
            memory than there is.
        FeedError: Verification has no inputs that the model accepts.
    """
    chosen = pipeline.resolve(passes)
    tolerance = tolerance or gate(chosen)
    result: Report | None = None
    # What was found on a few inputs may miss the gate on more: then with more room.
    for margin in MARGINS:
        result = _repair(
            *(source, target, chosen, check, dry_run, dims, feeds),
            *(tolerance, external_data, ep, kernels, progress, margin),
        )
        failed = result.verdict is not None and not result.verdict["ok"]
        if not failed or not any(isinstance(x, Pass) and x.measured for x in chosen):
            break
    assert result is not None
    return result


def _repair(
    source: StrPath,
    target: StrPath | None,
    chosen: Sequence[Check],
    check: bool,
    dry_run: bool,
    dims: Mapping[str, Sequence[int]] | None,
    feeds: StrPath | None,
    tolerance: Tolerance | None,
    external_data: Placement,
    ep: Ep,
    kernels: bool | None,
    progress: pipeline.Progress | None,
    margin: float,
) -> Report:
    source = Path(source)
    target = Path(target) if target is not None else default_target(source)
    files.refuse_overwrite([source], target)
    tell = progress or (lambda _: None)
    tell("loading")
    model = io.load(source)
    files.refuse_overwrite(io.inputs_of(model), target)
    check = check and not dry_run
    need = memory.expect(model, instead=_UNVERIFIED) if check else None
    given = dict(dims or {}) | (_only_sizes(chosen, model) if check else {})
    settle = Settling(chosen, given, feeds, tolerance, tell, margin) if check else None
    report = pipeline.run(model, chosen, progress=progress, settle=settle)
    shapes.forget(model)  # saving needs none, and it is when most memory is held
    report = dataclasses.replace(report, source=str(source), memory=_told(need))
    if dry_run:
        return report
    with io.drafting(model, target, changed=report.changed, external_data=external_data) as draft:
        if check:
            verdict = _verify(source, draft.path, chosen, report, given, feeds, tolerance, ep, tell)
            report = dataclasses.replace(report, verdict=verdict.to_json())
            if not verdict.ok:
                return report
            if _must_pad(chosen, model, source):
                found = _check_padding(source, draft.path, given, tolerance, ep, tell)
                report = dataclasses.replace(report, padded=found.to_json())
                if not found.ok:
                    return report
        draft.keep()
    report = dataclasses.replace(report, output=str(target))
    return _counted(report, source, model, check if kernels is None else kernels, kernels, tell)


def repair_buckets(
    source: StrPath,
    target: StrPath | None = None,
    passes: str = pipeline.DEFAULT,
    *,
    check: bool = True,
    dry_run: bool = False,
    dims: Mapping[str, Sequence[int]] | None = None,
    feeds: StrPath | None = None,
    tolerance: Tolerance | None = None,
    external_data: Placement = "auto",
    ep: Ep = "cpu",
    kernels: bool | None = None,
    progress: pipeline.Progress | None = None,
) -> list[Report]:
    """Repair a model file once for each of several sizes; the models share one file of weights.

    ``fix-dims:T=500,3000`` makes ``model.500.onnx`` and ``model.3000.onnx``. Weights that lie
    beside the model stay there; others go into ``model.buckets.data``, once.

    Args:
        source: The model, ``.onnx``.
        target: What the new names are made from; the source by default.
        passes: Text as ``-p`` takes it, see :func:`graphfix.buckets.expand`.
        check: As for :func:`repair_file`, and so are those that follow.
        dry_run: Say what would be done and write nothing.
        dims: Sizes to verify at.
        feeds: An ``.npz`` to verify with.
        tolerance: What may differ.
        external_data: Where the weights go; ``inline`` is refused.
        ep: Where the repaired models are verified.
        kernels: As for :func:`repair_file`.
        progress: Called with a short text at each step.

    Returns:
        A report for each size, in their order. Unless all verdicts are ok, nothing was written.

    Raises:
        ModelError: The model cannot be read or written, or ONNX Runtime rejects it as given.
        UsageError: The sizes do not fit, or the model cannot run at one of them; or as above.
        FeedError: Verification has no inputs that the model accepts.
    """
    source = Path(source)
    base = Path(target) if target is not None else source
    tell = progress or (lambda _: None)
    tell("loading")
    model = io.load(source)
    check = check and not dry_run
    need = memory.expect(model, instead=_UNVERIFIED) if check else None
    made: list[tuple[ir.Model, Path]] = []
    jobs: list[tuple[list[Check], Report, dict[str, Sequence[int]]]] = []
    for bucket in buckets.expand(passes, _symbols(model)):
        chosen = pipeline.resolve(bucket.spec)
        path = base.with_name(f"{base.stem}.{bucket.label}{base.suffix or '.onnx'}")
        model = io.load(source)
        files.refuse_overwrite(io.inputs_of(model), path)
        given = dict(dims or {}) | _only_sizes(chosen, model)
        tolerance = tolerance or gate(chosen)
        settled = Settling(chosen, given, feeds, tolerance, tell, MARGINS[0])
        report = pipeline.run(
            model,
            chosen,
            progress=functools.partial(_at, tell, bucket.label),
            settle=settled if check else None,
        )
        _require_fixed(report, bucket)
        report = dataclasses.replace(report, source=str(source), memory=_told(need))
        made.append((model, path))
        jobs.append((chosen, report, given))
    reports = [report for _, report, _ in jobs]
    if dry_run:
        return reports
    name = f"{base.stem}.buckets.data"
    with io.drafting_together(made, name, external_data=external_data) as drafts:
        if check:
            for i, (draft, (chosen, report, at)) in enumerate(zip(drafts, jobs, strict=True)):
                verdict = _verify(
                    source, draft.path, chosen, report, at, feeds, tolerance, ep, tell
                )
                reports[i] = dataclasses.replace(report, verdict=verdict.to_json())
                if not verdict.ok:
                    return reports
                if _must_pad(chosen, made[i][0], source):
                    found = _check_padding(source, draft.path, at, tolerance, ep, tell)
                    reports[i] = dataclasses.replace(reports[i], padded=found.to_json())
                    if not found.ok:
                        return reports
        for draft in drafts:
            draft.keep()
    count = check if kernels is None else kernels
    pairs = zip(reports, made, strict=True)
    return [
        _counted(dataclasses.replace(report, output=str(path)), source, one, count, kernels, tell)
        for report, (one, path) in pairs
    ]


@dataclasses.dataclass
class Settling:
    """Before a pass that rounds: what it must leave alone, found by running the model.

    Attributes:
        chosen: All passes.
        dims: Sizes to try.
        feeds: The user's inputs.
        tolerance: The gate.
        tell: Called with a short text at each step.
        margin: Which share of the gate may be used.
    """

    chosen: Sequence[Check]
    dims: Mapping[str, Sequence[int]]
    feeds: StrPath | None
    tolerance: Tolerance | None
    tell: pipeline.Progress
    margin: float

    def __call__(self, check: Check, model: ir.Model, ran: tuple[PassReport, ...]) -> Check:
        """The pass that is to run instead of ``check``."""
        if not isinstance(check, Pass) or not check.measured:
            return check
        from graphfix.feeds.signature import Signature
        from graphfix.feeds.user import given_case
        from graphfix.half.search import mark, settle
        from graphfix.proof.compare import HALF_GATE

        arrays: Feeds | None = None
        if self.feeds is not None:
            before = io.source_of(model)
            original = io.load(before) if before is not None else model
            arrays = given_case(self.feeds, Signature(original)).feeds
            arrays = _new_feeds(self.chosen[: len(ran)], arrays)
        new, found = settle(
            model,
            check,
            tolerance=self.tolerance or HALF_GATE,
            margin=self.margin,
            dims=self.dims,
            feeds=arrays,
            safety=together([check.safety, *(p.safety for p in ran if p.changes)]),
            progress=self.tell,
        )
        mark(model, found.reasons)
        return new


def gate(chosen: Sequence[Check]) -> Tolerance | None:
    """What may differ where a pass rounds to float16; None for the usual."""
    if not any(isinstance(x, Pass) and x.measured for x in chosen):
        return None
    from graphfix.proof.compare import HALF_GATE

    return HALF_GATE


def _verify(
    source: Path,
    draft: Path,
    chosen: Sequence[Check],
    report: Report,
    dims: Mapping[str, Sequence[int]],
    feeds: StrPath | None,
    tolerance: Tolerance | None,
    ep: Ep,
    tell: pipeline.Progress,
) -> Verdict:
    # Not above: what only repairs need not load ONNX Runtime.
    from graphfix.proof.verify import Tolerance, verify

    return verify(
        source,
        draft,
        dims=dims,
        feeds=feeds,
        tolerance=tolerance or Tolerance(),
        safety=report.safety,
        map_feeds=lambda old: _new_feeds(chosen, old),
        may_change=changed_by(chosen),
        ep=ep,
        progress=lambda done, total, what: tell(f"verifying {done}/{total}: {what}"),
    )


def _counted(
    report: Report,
    source: Path,
    model: ir.Model,
    count: bool,
    asked: bool | None,
    tell: pipeline.Progress,
) -> Report:
    """The report with the kernels of a run before and after."""
    if not count:
        return report
    from graphfix import planning

    tell("counting kernels")
    found = planning.kernels(io.load(source), model, always=bool(asked))
    return dataclasses.replace(report, kernels=found)


def _must_pad(chosen: Sequence[Check], model: ir.Model, source: Path) -> bool:
    """Whether clips are held against containers: a pass promises that, or has told of lengths."""
    told = LengthInput.of(model)
    promised = any(isinstance(x, Pass) and x.safe_to_pad for x in chosen)
    return promised or (told is not None and LengthInput.of(io.load(source)) != told)


def _check_padding(
    source: Path,
    draft: Path,
    dims: Mapping[str, Sequence[int]],
    tolerance: Tolerance | None,
    ep: Ep,
    tell: pipeline.Progress,
) -> PaddedVerdict:
    from graphfix.probing.padded import padded

    return padded(
        draft,
        original=source,
        dims=dims,
        tolerance=tolerance,
        ep=ep,
        progress=lambda done, total, what: tell(f"padding {done}/{total}: {what}"),
    )


def _require_fixed(report: Report, bucket: buckets.Bucket) -> None:
    """Raise UsageError if the sizes of ``bucket`` were refused: its name would be a lie."""
    for done in report.passes:
        if done.name == "fix-dims" and done.skips and not done.changes:
            raise UsageError(f"there can be no model for {bucket.label}: {done.skips[0][1]}")


def _symbols(model: ir.Model) -> list[str]:
    """What the plain symbolic dims of the inputs are called, in their order."""
    return [x for x in dict.fromkeys(dim_names(model).values()) if x.isidentifier()]


def default_target(source: Path) -> Path:
    """``model.fixed.onnx`` beside ``model.onnx``."""
    if io.is_text(source):
        return source.with_name(f"{source.stem}.fixed.onnx")
    return source.with_name(f"{source.stem}.fixed{source.suffix or '.onnx'}")


def _told(need: memory.Need | None) -> dict[str, int | None] | None:
    return None if need is None else need.to_json()


def _at(tell: pipeline.Progress, label: str, what: str) -> None:
    tell(f"{label}: {what}")


def _only_sizes(passes: Sequence[Check], model: ir.Model) -> dict[str, Sequence[int]]:
    each = [one.runs_at(model) for one in passes if isinstance(one, Pass)]
    return {name: sizes for found in each for name, sizes in found.items()}


def _new_feeds(passes: Sequence[Check], old: Feeds) -> Feeds:
    for one in passes:
        if isinstance(one, Pass):
            old = one.feeds(old)
    return old
