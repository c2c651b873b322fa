"""Loads and repairs a model; nothing is written before the proof."""

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from graphfix.editing.exclusions import (
    NO_EXCLUSIONS,
    WHOLE_PASS,
    Exclusions,
    record_pass_exclusions,
)
from graphfix.engine import pipeline
from graphfix.engine.report import FailedRepair, Report
from graphfix.errors import PassError
from graphfix.files import io
from graphfix.job.rounding_search import MARGINS, TRIES, Calibration
from graphfix.job.task import Task


def repair_model(
    task: Task,
    leave: Exclusions = NO_EXCLUSIONS,
    margin: float = MARGINS[0],
    loaded: ir.Model | None = None,
    known: dict[str, Mapping[str, str]] | None = None,
) -> tuple[ir.Model, Report]:
    """Repair the task's model; return it with the report of the passes.

    A pass that raises is left out, and the model is loaded and repaired again without it.

    Args:
        task: The task.
        leave: What is to be skipped.
        margin: Which share of the gate a pass that rounds may use.
        loaded: The model, if it was loaded already; it is repaired in place.
        known: What passes that round left in float32 with larger margins, by the pass.

    Raises:
        PassError: A pass raises that the result cannot do without, or any if ``task.strict``.
        GraphfixError: A pass refuses the model or its options.
    """
    faults: dict[str, str] = {}
    while True:
        model = io.load(task.source) if loaded is None else loaded
        loaded = None
        wholes = {(spec, WHOLE_PASS): reason for spec, reason in faults.items()}
        now = dataclasses.replace(
            leave, reasons={**leave.reasons, **wholes}, node_patterns=task.exclude
        )
        settle = None
        if task.check:
            settle = Calibration(
                task.chosen,
                task.dims,
                task.feeds,
                task.tolerance,
                task.tell,
                margin,
                task.limit_search(TRIES),
                {} if known is None else known,
            )
        try:
            report = pipeline.apply_passes(
                model, task.chosen, leave=now, progress=task.tell, settle=settle
            )
        except PassError as error:
            if task.strict or not pipeline.can_drop_pass(task.chosen, error.spec):
                raise
            faults[error.spec] = str(error)
        else:
            record_pass_exclusions(model, leave)
            raised = tuple(
                FailedRepair(spec, (), reason, raised=True) for spec, reason in faults.items()
            )
            met = None if settle is None else settle.met
            return model, dataclasses.replace(report, left=raised, met=met)
