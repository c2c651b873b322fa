"""A model is loaded and repaired; what is not proved yet is written nowhere."""

import dataclasses

import onnx_ir as ir

from graphfix.editing.exclusions import NOTHING, WHOLE, Leaving, write_passes
from graphfix.engine import pipeline
from graphfix.engine.report import Left, Report
from graphfix.errors import PassError
from graphfix.files import io
from graphfix.job.rounding_search import MARGINS, Settling
from graphfix.job.task import Task


def make(
    task: Task, leave: Leaving = NOTHING, margin: float = MARGINS[0], loaded: ir.Model | None = None
) -> tuple[ir.Model, Report]:
    """What the passes make of the model, and what they did.

    A pass that raises is left out, and the model is loaded and repaired again without it.

    Args:
        task: What is asked.
        leave: What is to be skipped.
        margin: Which share of the gate a pass that rounds may use.
        loaded: The model, if it was loaded already: it is what is repaired.

    Raises:
        PassError: A pass raises that the result cannot do without, or any if ``task.strict``.
        GraphfixError: A pass refuses the model, or what was asked of it.
    """
    faults: dict[str, str] = {}
    while True:
        model = io.load(task.source) if loaded is None else loaded
        loaded = None
        wholes = {(spec, WHOLE): why for spec, why in faults.items()}
        now = dataclasses.replace(leave, left={**leave.left, **wholes}, nodes=task.exclude)
        settle = None
        if task.check:
            settle = Settling(task.chosen, task.dims, task.feeds, task.tolerance, task.tell, margin)
        try:
            done = pipeline.apply(model, task.chosen, leave=now, progress=task.tell, settle=settle)
        except PassError as error:
            if task.strict or not pipeline.may_go(task.chosen, error.spec):
                raise
            faults[error.spec] = str(error)
        else:
            write_passes(model, leave)
            told = tuple(Left(spec, (), why, raised=True) for spec, why in faults.items())
            met = None if settle is None else settle.met
            return model, dataclasses.replace(done, left=told, met=met)
