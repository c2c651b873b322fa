"""Proves a repaired model: does it compute the same, and is it as safe to pad as promised?"""

import dataclasses
from pathlib import Path

import onnx_ir as ir

from graphfix.core import Pass, feeds_after, interface_changes_of
from graphfix.engine.report import Report
from graphfix.facts.view import View
from graphfix.feeds.graph_uses import node_title
from graphfix.files import io
from graphfix.job.output_changes import output_options, with_new_outputs
from graphfix.job.rounding_search import has_rounded
from graphfix.job.task import Task
from graphfix.lengths.length_input import LengthInput
from graphfix.probing.padded import PaddedVerdict, padded
from graphfix.proof.budget import Budget
from graphfix.proof.verify import BaselineCache, Tolerance, verify
from graphfix.providers.directml.operator_facts import ADDS_IN_FLOAT16


def prove(
    task: Task,
    candidate: Path | ir.Model,
    model: ir.Model,
    report: Report,
    *,
    locate: bool = True,
    original_outputs: BaselineCache | None = None,
    brief: bool = False,
) -> Report:
    """Verify a repaired model; return the report with the verdict, and the padded one if due.

    Args:
        task: The task.
        candidate: What is run: the draft, or ``model`` itself.
        model: The repaired model.
        report: What the passes did.
        locate: Whether to search for the first tensor that differs, if one does.
        original_outputs: Caches what the original computes, for several proofs of one original.
        brief: Whether the first difference is enough.
    """
    verdict = verify(
        task.source,
        candidate,
        dims=task.dims,
        feeds=task.feeds,
        tolerance=_allowed_tolerance(task, report),
        safety=report.safety,
        map_feeds=lambda old: feeds_after(task.chosen, old),
        may_change=interface_changes_of(task.chosen),
        **output_options(task.chosen),
        ep=task.ep,
        locate=locate,
        held=original_outputs,
        brief=brief,
        budget=Budget(task.proof_seconds, task.total_seconds),
        progress=lambda step: task.tell(f"verifying {step}"),
    )
    if verdict.ok and task.ep == "cpu" and (note := _float16_note(model)):
        verdict = dataclasses.replace(verdict, notes=(*verdict.notes, note))
    report = dataclasses.replace(report, verdict=verdict)
    if verdict.ok and _must_pad(task, model):
        report = dataclasses.replace(report, padded=_check_padding(task, candidate, model, report))
    return report


def failure_reason(report: Report) -> str:
    """Return what a report's proof found against the model; "" if nothing."""
    failed = (x for x in (report.verdict, report.padded) if x is not None and not x)
    return next((str(x).rstrip(".") for x in failed), "")


def _float16_note(model: ir.Model) -> str:
    """Return a note on what DirectML adds up in float16, and the CPU does not; "" if nothing."""
    view = View(model)
    sums = (
        node
        for node in view.nodes(*ADDS_IN_FLOAT16)
        if view.shapes.dtype(node.inputs[0]) == ir.DataType.FLOAT16
    )
    node = next(sums, None)
    if node is None:
        return ""
    return (
        f"float16 was verified on the CPU, which computes {node_title(node)} in float32: DirectML "
        "adds up in float16 there; verify with --ep dml"
    )


def _allowed_tolerance(task: Task, report: Report) -> Tolerance | None:
    """Return the tolerance; None for the usual one, which holds where nothing was rounded."""
    tolerance = task.tolerance
    exact = task.has_calibrated_passes and not has_rounded(task.chosen, report)
    return None if tolerance is not None and tolerance.whole and exact else tolerance


def _must_pad(task: Task, model: ir.Model) -> bool:
    """Return whether padding must be checked: a pass promises it, or added a lengths input."""
    length_input = LengthInput.from_metadata(model)
    promised = any(isinstance(x, Pass) and x.safe_to_pad for x in task.chosen)
    return promised or (
        length_input is not None and LengthInput.from_metadata(io.load(task.source)) != length_input
    )


def _check_padding(
    task: Task, candidate: Path | ir.Model, model: ir.Model, report: Report
) -> PaddedVerdict:
    # Where no leak was found, the model does not say along which axis.
    looked = (x.pads(model) for x in task.chosen if isinstance(x, Pass) and x.safe_to_pad)

    return padded(
        candidate,
        original=with_new_outputs(task.source, task.chosen),
        dims=task.dims,
        axis=next(looked, "") if LengthInput.from_metadata(model) is None else "",
        tolerance=_allowed_tolerance(task, report),
        ep=task.ep,
        progress=lambda step: task.tell(f"padding {step}"),
    )
