"""What a report says in numbers: kernels and errors before and after."""

import dataclasses

import onnx_ir as ir

from graphfix.core import rounding
from graphfix.engine.report import Report
from graphfix.files import io, weights
from graphfix.job.rounding_search import has_rounded
from graphfix.job.task import Task

# Weights that are no smaller than that are as large as they were.
_SMALLER = 0.99


def counted(task: Task, report: Report, model: ir.Model, before: ir.Model | None) -> Report:
    """The report with kernels and findings on DirectML before and after.

    Args:
        task: What was asked.
        report: What the passes did.
        model: What they made.
        before: The original, if it was read already.
    """
    if not (task.check if task.kernels is None else task.kernels):
        return report
    before = io.load(task.source) if before is None else before
    # Not above: what only repairs need not load ONNX Runtime.
    from graphfix.job import planning, remaining_findings

    task.tell("counting kernels")
    after = model if report.changed else before
    found = planning.kernels(before, after, always=bool(task.kernels))
    if found is None:
        return report
    hazards = remaining_findings.checked(before, [after]).to_json()
    return dataclasses.replace(report, kernels=found, directml=hazards)


def rounds_for_nothing(task: Task, report: Report, made: ir.Model) -> str:
    """Why what was rounded is no gain: more kernels, and the weights as large; "" if it is one."""
    free = all(x.may_gain_nothing for x in rounding(task.chosen))
    changed = has_rounded(task.chosen, report)
    before, after = (report.kernels or {}).get("before"), (report.kernels or {}).get("after")
    if not (changed and free and before and after and after["all"] > before["all"]):
        return ""
    if weights.size_of(made) <= _SMALLER * weights.size_of(io.load(task.source)):
        return ""
    return f"the weights keep their size, kernels {before['all']} -> {after['all']}"
