"""Repairs one model file into another."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Unpack

import onnx_ir as ir

from graphfix.core import Check, calibrated_passes
from graphfix.editing.exclusions import NO_EXCLUSIONS, Exclusions
from graphfix.engine import pipeline
from graphfix.engine.report import Report
from graphfix.facts import shapes
from graphfix.files import byte_ranges, io
from graphfix.files.atomic_file import Draft, require_writable
from graphfix.job.cost_search import Cheaper, find_cheaper
from graphfix.job.culprits import Culprits
from graphfix.job.fault_search import find_culprits, iter_alternatives
from graphfix.job.kernel_counts import add_kernel_counts, why_rounding_is_no_gain
from graphfix.job.prove import failure_reason, prove
from graphfix.job.repair import repair_model
from graphfix.job.rounding_search import MARGINS, is_hopeless
from graphfix.job.task import Options, Task
from graphfix.paths import StrPath, require_path
from graphfix.proof.verify import BaselineCache
from graphfix.runtime.memory_need import MemoryNeed
from graphfix.runtime.own_errors import raises_own_errors


@raises_own_errors
def repair_file(
    source: StrPath,
    target: StrPath | None = None,
    passes: str | Check | Sequence[str | Check] = pipeline.DEFAULT,
    **options: Unpack[Options],
) -> Report:
    """Repair a model file, prove that it still computes the same, and write the result.

    If it does not, the places that are to blame are found by trying, and left out or repaired in
    another way; the rest is proved again and written.

    Args:
        source: The model, ``.onnx``.
        target: Where the repaired model goes; ``model.fixed.onnx`` beside the source by default.
        passes: Text as ``-p`` takes it, a pass, or several.
        options: See :class:`graphfix.job.task.Options`.

    Returns:
        The report. If its verdict is not ok, nothing was written and ``output`` is None.

    Raises:
        ModelError: The model cannot be read or written, or ONNX Runtime rejects it as given.
        UsageError: A pass, an option or the target does not fit; or verification would need more
            memory than there is.
        FeedError: Verification has no inputs that the model accepts.
        PassError: A pass raises, and the result would be another one than was asked for.
    """
    request = Task.from_options(source, options)
    source = request.source
    target = require_path(target) if target is not None else default_target(source)
    chosen = pipeline.resolve_passes(passes, request.ep)
    byte_ranges.refuse_overwrite([source], target, [request.feeds])
    if not options.get("dry_run"):
        require_writable(target)
    feeds = request.check_before_loading()
    request.tell("loading")
    model = io.load(source)
    request.check_inputs(model, feeds)
    del feeds
    page = options.get("page")
    about = [] if page is None else [Path(page)]
    for path in (target, *about):
        byte_ranges.refuse_overwrite(io.input_files(model), path, [request.feeds])
    specs, provider = pipeline.passes_of_profiles(passes, request.ep)
    request = dataclasses.replace(request, profile_passes=specs, counted_on=provider)
    task = request.with_passes(chosen, model)
    need = task.estimate_memory(model)
    first = [model]  # the only reference: a search for culprits loads models of its own
    del model
    if options.get("dry_run"):
        return task.complete_report(repair_model(task, loaded=first.pop())[1], need)
    placement = options.get("external_data", "auto")
    drafting = partial(io.draft_model, path=target, external_data=placement, about=about)
    original_outputs = _original_outputs(task)
    report = _repair_and_write(task, target, drafting, NO_EXCLUSIONS, need, first, original_outputs)
    if report.ok or task.strict:
        return report
    culprits = find_culprits(task, report, original_outputs)
    for alternative in iter_alternatives(task.chosen, failure_reason(report), culprits):
        # The passes that round may be left out now.
        reusable_outputs = None if task.has_calibrated_passes else original_outputs
        retry = _repair_and_write(
            alternative.apply_to(task),
            target,
            drafting,
            alternative.leave,
            need,
            original_outputs=reusable_outputs,
        )
        if retry.ok:
            return alternative.culprits.add_to_report(retry)
    return dataclasses.replace(report, searched=culprits.searched)


def _repair_and_write(
    task: Task,
    target: Path,
    drafting: Callable[..., AbstractContextManager[Draft]],
    leave: Exclusions,
    need: MemoryNeed | None,
    loaded: list[ir.Model] | None = None,
    original_outputs: BaselineCache | None = None,
) -> Report:
    """Repair, prove and write, with decreasing margins for passes that round.

    A model in ``loaded`` is taken out of it, and is the first that is repaired. What the original
    computes is the same for each of them, and it is run once.
    """
    original_outputs = original_outputs or _original_outputs(task)
    known: dict[str, Mapping[str, str]] = {}
    rounds = calibrated_passes(task.chosen)
    for margin in MARGINS if task.check and task.has_calibrated_passes else MARGINS[:1]:
        model, report = repair_model(task, leave, margin, loaded.pop() if loaded else None, known)
        shapes.drop_shapes(model)  # saving needs none, and it is when most memory is held
        report = task.complete_report(report, need)
        with drafting(model, changed=report.changed) as draft:
            if task.check:
                report = prove(
                    task,
                    draft.path,
                    model,
                    report,
                    # Where a rounding is too coarse, less is rounded: no tensor is to blame.
                    locate=not rounds or not all(x.optional for x in rounds),
                    original_outputs=original_outputs,
                )
            if report.ok:
                report = add_kernel_counts(
                    task,
                    report,
                    model,
                    None if original_outputs is None else original_outputs.graph,
                )
                reason = why_rounding_is_no_gain(task, report, model)
                cheaper = Cheaper() if reason else find_cheaper(task, leave, report, model)
                report = dataclasses.replace(report, kept=cheaper.kept)
                if not reason and cheaper.alternative is None:
                    draft.keep()
                    return dataclasses.replace(report, output=str(target))
        if report.ok and cheaper.alternative is not None:
            write = partial(
                _repair_and_write,
                target=target,
                drafting=drafting,
                need=need,
                original_outputs=original_outputs,
            )
            return _write_cheaper(task, leave, cheaper, write)
        if report.ok:
            alternative = next(iter_alternatives(task.chosen, reason, Culprits()))
            return alternative.culprits.add_to_report(
                _repair_and_write(
                    alternative.apply_to(task), target, drafting, alternative.leave, need
                )
            )
        if is_hopeless(report) or task.is_late:
            break
    return report


def _write_cheaper(
    task: Task, leave: Exclusions, cheaper: Cheaper, write: Callable[..., Report]
) -> Report:
    """Write the model that takes fewer kernels; if it is not proved, the one that was."""
    alternative = cheaper.alternative
    assert alternative is not None
    settled = dataclasses.replace(task, profile_passes=frozenset())  # no further search
    report = write(alternative.apply_to(settled), leave=alternative.leave)
    if not report.ok:
        return write(settled, leave=leave)
    report = dataclasses.replace(report, kept=cheaper.kept)
    return alternative.culprits.add_to_report(report)


def _original_outputs(task: Task) -> BaselineCache | None:
    return BaselineCache() if task.check else None


def default_target(source: Path) -> Path:
    """Return ``model.fixed.onnx`` beside ``model.onnx``."""
    # A folder such as "." has no name.
    return source.parent / f"{source.stem}.fixed{source.suffix or '.onnx'}"
