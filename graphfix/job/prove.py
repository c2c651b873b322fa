"""Does what was made compute the same, and is it as safe to pad as was promised?"""

import dataclasses
from pathlib import Path

import onnx_ir as ir

from graphfix.core import Pass, changed_by, new_feeds
from graphfix.engine.report import Report
from graphfix.files import io
from graphfix.job.rounding_search import has_rounded
from graphfix.job.task import Task
from graphfix.lengths.length_input import LengthInput
from graphfix.probing.padded import PaddedVerdict
from graphfix.proof.verify import Held, Tolerance


def prove(
    task: Task,
    made: Path | ir.Model,
    model: ir.Model,
    report: Report,
    *,
    locate: bool = True,
    held: Held | None = None,
    brief: bool = False,
) -> Report:
    """The report with the verdict, and with that of the padded check where one is due.

    Args:
        task: What is asked.
        made: What is run: the draft, or ``model`` itself.
        model: What the passes made.
        report: What they did.
        locate: Whether to search for the first tensor that differs, if one does.
        held: Keeps what the original computes, see :func:`graphfix.proof.verify.verify`.
        brief: Whether the first difference is enough.
    """
    # Not above: what only repairs need not load ONNX Runtime.
    from graphfix.proof.verify import Tolerance, verify

    verdict = verify(
        task.source,
        made,
        dims=task.dims,
        feeds=task.feeds,
        tolerance=_allowed(task, report) or Tolerance(),
        safety=report.safety,
        map_feeds=lambda old: new_feeds(task.chosen, old),
        may_change=changed_by(task.chosen),
        ep=task.ep,
        locate=locate,
        held=held,
        brief=brief,
        budget=task.budget,
        progress=lambda what: task.tell(f"verifying {what}"),
    )
    report = dataclasses.replace(report, verdict=verdict)
    if verdict.ok and _must_pad(task, model):
        report = dataclasses.replace(report, padded=_padded(task, made, model, report))
    return report


def why_not(report: Report) -> str:
    """What a report's proof found against the model; "" if nothing."""
    failed = (x for x in (report.verdict, report.padded) if x is not None and not x)
    return next((str(x).rstrip(".") for x in failed), "")


def _allowed(task: Task, report: Report) -> Tolerance | None:
    """What may differ; None for the usual, which holds as well where nothing came to be rounded."""
    given = task.tolerance
    exact = task.measured and not has_rounded(task.chosen, report)
    return None if given is not None and given.whole and exact else given


def _must_pad(task: Task, model: ir.Model) -> bool:
    """Whether clips are compared with containers: a pass promises that, or has told of lengths."""
    told = LengthInput.of(model)
    promised = any(isinstance(x, Pass) and x.safe_to_pad for x in task.chosen)
    return promised or (told is not None and LengthInput.of(io.load(task.source)) != told)


def _padded(task: Task, made: Path | ir.Model, model: ir.Model, report: Report) -> PaddedVerdict:
    from graphfix.probing.padded import padded

    # Where no leak was found, the model does not say along which axis.
    looked = (x.pads(model) for x in task.chosen if isinstance(x, Pass) and x.safe_to_pad)

    return padded(
        made,
        original=task.source,
        dims=task.dims,
        axis=next(looked, "") if LengthInput.of(model) is None else "",
        tolerance=_allowed(task, report),
        ep=task.ep,
        progress=lambda what: task.tell(f"padding {what}"),
    )
