"""What a report says in numbers: kernels and errors before and after, who repaired whose places."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

from graphfix.core import Match, Pass
from graphfix.model import io, local_functions, weights
from graphfix.model.view import forget_index, index

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.engine.report import Report
    from graphfix.job.task import Task

# Above so many nodes looking again takes too long for a line of the report.
_MANY = 20_000
# Weights that are no smaller than that are as large as they were.
_SMALLER = 0.99


def counted(task: Task, report: Report, model: ir.Model, before: ir.Model | None) -> Report:
    """The report with kernels and findings on DirectML before and after, and :func:`elsewhere`.

    Args:
        task: What was asked.
        report: What the passes did.
        model: What they made.
        before: The original, if it was read already.
    """
    wanted = task.check if task.kernels is None else task.kernels
    if not (task.check or wanted):
        return report
    before = io.load(task.source) if before is None else before
    if task.check:
        report = dataclasses.replace(report, elsewhere=elsewhere(task, report, before))
    if not wanted:
        return report
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
    rounding = {x.name for x in task.chosen if isinstance(x, Pass) and x.measured}
    free = all(x.may_gain_nothing for x in task.chosen if isinstance(x, Pass) and x.measured)
    changed = any(x.changes for x in report.passes if x.name in rounding)
    before, after = (report.kernels or {}).get("before"), (report.kernels or {}).get("after")
    if not (changed and free and before and after and after["all"] > before["all"]):
        return ""
    if weights.size_of(made) <= _SMALLER * weights.size_of(io.load(task.source)):
        return ""
    return f"the weights keep their size, kernels {before['all']} -> {after['all']}"


def elsewhere(task: Task, report: Report, before: ir.Model) -> dict[str, dict[str, int]]:
    """Of passes that found nothing: how many places they had, by the pass that repaired those.

    ``check`` looks at the model as it is given, so it names them; without this, ``run`` would say
    that there was nothing of the kind.
    """
    changed = any(done.changes for done in report.passes)
    if not changed or local_functions.count(before) > _MANY:
        return {}
    by: dict[str, str] = {}
    for done in report.passes:
        for change in done.changes:
            for tensor in (change.tensor, *_made(change.removed)):
                by.setdefault(tensor, done.name)
    busy = {done.name for done in report.passes if done.changes or done.left}
    found: dict[str, dict[str, int]] = {}
    index(before)  # nothing is edited
    try:
        for one in task.chosen:
            if one.name in busy or not isinstance(one, Pass):
                continue
            sites = (x.node for x in one.sites(before) if isinstance(x, Match))
            places = (node.outputs[0].name or "" for node in sites)
            counts = Counter(by[x] for x in places if x in by)
            if counts:
                found[one.name] = dict(counts.most_common())
    finally:
        forget_index(before)
    return found


def _made(lines: tuple[str, ...]) -> list[str]:
    """The tensors that nodes make, given as ONNX text."""
    return [name.strip() for line in lines for name in line.partition(" = ")[0].split(",")]
