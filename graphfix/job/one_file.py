"""One model in, one model out."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Unpack

import onnx_ir as ir

from graphfix.core import Check
from graphfix.editing.exclusions import NOTHING, Leaving
from graphfix.engine import pipeline
from graphfix.engine.report import Report
from graphfix.facts import shapes
from graphfix.files import byte_ranges, io
from graphfix.files.atomic_file import Draft
from graphfix.job.culprits import BadPlaces
from graphfix.job.fault_search import bad_places, ways
from graphfix.job.kernel_counts import counted, rounds_for_nothing
from graphfix.job.prove import prove, why_not
from graphfix.job.repair import make
from graphfix.job.rounding_search import MARGINS, is_hopeless
from graphfix.job.task import Options, Task
from graphfix.paths import StrPath, file_of
from graphfix.proof.verify import Held
from graphfix.runtime.memory_need import Need


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
    asked = Task.asked(source, options)
    source = asked.source
    target = file_of(target) if target is not None else default_target(source)
    chosen = pipeline.resolve(passes)
    byte_ranges.refuse_overwrite([source], target, [asked.feeds])
    asked.tell("loading")
    model = io.load(source)
    page = options.get("page")
    about = [] if page is None else [Path(page)]
    for path in (target, *about):
        byte_ranges.refuse_overwrite(io.inputs_of(model), path, [asked.feeds])
    task = asked.of(chosen, model)
    need = task.expect(model)
    first = [model]  # which nobody else holds: a search for bad places has models of its own
    del model
    if options.get("dry_run"):
        return task.about(make(task, loaded=first.pop())[1], need)
    placement = options.get("external_data", "auto")
    drafting = partial(io.drafting, path=target, external_data=placement, about=about)
    held = _held(task)
    report = _written(task, target, drafting, NOTHING, need, first, held)
    if report.ok or task.strict:
        return report
    found = bad_places(task, report, held)
    for way in ways(task.chosen, why_not(report), found):
        same = held if not task.measured else None  # the passes that round may be left out
        told = _written(way.of(task), target, drafting, way.leave, need, held=same)
        if told.ok:
            return way.found.told(told)
    return dataclasses.replace(report, searched=found.searched)


def _written(
    task: Task,
    target: Path,
    drafting: Callable[..., AbstractContextManager[Draft]],
    leave: Leaving,
    need: Need | None,
    loaded: list[ir.Model] | None = None,
    held: Held | None = None,
) -> Report:
    """Repair, prove and write; what was found on a few inputs may miss the gate on more.

    A model in ``loaded`` is taken out of it, and is the first that is repaired. What the original
    computes is the same for each of them, and it is run once.
    """
    held = held or _held(task)
    for margin in MARGINS if task.check and task.measured else MARGINS[:1]:
        model, report = make(task, leave, margin, loaded.pop() if loaded else None)
        shapes.forget(model)  # saving needs none, and it is when most memory is held
        report = task.about(report, need)
        with drafting(model, changed=report.changed) as draft:
            if task.check:
                report = prove(task, draft.path, model, report, held=held)
            if report.ok:
                if not task.measured:
                    draft.keep()
                report = counted(task, report, model, None if held is None else held.graph)
                why = rounds_for_nothing(task, report, model)
                if not why:
                    if task.measured:
                        draft.keep()
                    return dataclasses.replace(report, output=str(target))
        if report.ok:
            way = next(ways(task.chosen, why, BadPlaces()))
            return way.found.told(_written(way.of(task), target, drafting, way.leave, need))
        if is_hopeless(report):
            break
    return report


def _held(task: Task) -> Held | None:
    if not task.check:
        return None
    from graphfix.proof.verify import Held  # what only repairs need not load ONNX Runtime

    return Held()


def default_target(source: Path) -> Path:
    """``model.fixed.onnx`` beside ``model.onnx``."""
    # A folder such as "." has no name.
    return source.parent / f"{source.stem}.fixed{source.suffix or '.onnx'}"
