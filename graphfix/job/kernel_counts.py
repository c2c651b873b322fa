"""The kernels and findings on a provider before and after, for the report."""

import dataclasses

import onnx_ir as ir

from graphfix.core import calibrated_passes
from graphfix.engine.report import Report
from graphfix.files import io, weights
from graphfix.job.rounding_search import has_rounded
from graphfix.job.task import Task
from graphfix.providers.table import predicted_provider
from graphfix.providers.versions import named_label

# Above this share of their size, weights count as unchanged.
_SMALLER = 0.99


def add_kernel_counts(
    task: Task, report: Report, model: ir.Model, before: ir.Model | None
) -> Report:
    """Return the report with kernels and findings on the provider before and after.

    On DirectML where the task runs on the CPU: that is what models are repaired for.

    Args:
        task: The task.
        report: What the passes did.
        model: The repaired model.
        before: The original, if it was read already.
    """
    if not (task.check if task.kernels is None else task.kernels):
        return report
    before = io.load(task.source) if before is None else before
    # Imported here: a repair that is not verified plans nothing.
    from graphfix.job import planning, remaining_findings

    task.tell("counting kernels")
    after = model if report.changed else before
    ep = predicted_provider(task.ep)
    kernels = planning.count_kernels(before, after, ep, always=bool(task.kernels))
    if kernels is None:
        return report
    hazards = remaining_findings.compare_hazards(before, [after], ep).to_json()
    provider = named_label(ep)
    return dataclasses.replace(report, kernels=kernels, hazards=hazards, ep=ep, provider=provider)


def why_rounding_is_no_gain(task: Task, report: Report, model: ir.Model) -> str:
    """Return why rounding is no gain: more kernels, and no smaller weights; "" if it is one."""
    free = all(x.optional for x in calibrated_passes(task.chosen))
    changed = has_rounded(task.chosen, report)
    before, after = (report.kernels or {}).get("before"), (report.kernels or {}).get("after")
    if not (changed and free and before and after and after["all"] > before["all"]):
        return ""
    if weights.weight_bytes(model) <= _SMALLER * weights.weight_bytes(io.load(task.source)):
        return ""
    return f"the weights keep their size, kernels {before['all']} -> {after['all']}"
