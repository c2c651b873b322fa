"""How many kernels a run takes, before and after."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from graphfix.model import io

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.job.task import Task
    from graphfix.report import Report


def counted(task: Task, report: Report, model: ir.Model) -> Report:
    """The report with the kernels of a run before and after, if they are to be counted."""
    if not (task.check if task.kernels is None else task.kernels):
        return report
    # Not above: what only repairs need not load ONNX Runtime.
    from graphfix import planning

    task.tell("counting kernels")
    found = planning.kernels(io.load(task.source), model, always=bool(task.kernels))
    return dataclasses.replace(report, kernels=found)
