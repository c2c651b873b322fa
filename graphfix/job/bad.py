"""The search for bad places, with the proof that a repaired file has to pass."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from graphfix.core import Pass
from graphfix.errors import GraphfixError
from graphfix.job.making import make
from graphfix.job.proving import prove, why_not
from graphfix.job.search import Found, search
from graphfix.model import io
from graphfix.model.values import nodes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from graphfix.core import Check
    from graphfix.job.task import Task
    from graphfix.leaving import Leaving
    from graphfix.report import Report


def bad_places(task: Task, report: Report) -> Found:
    """What to leave out of a model whose proof failed, or to do in another way.

    Args:
        task: What was asked.
        report: What the passes did, and what the proof found.
    """
    # What must stay in float32 is searched for by itself; here, what goes before it is held.
    chosen = tuple(x for x in task.chosen if not (isinstance(x, Pass) and x.measured))
    before = dataclasses.replace(task, chosen=chosen, tolerance=None) if task.measured else task
    alone = task.ep == "cpu" and all(x.dispensable for x in chosen if isinstance(x, Pass))

    from graphfix.proof.verify import Held  # what only repairs need not load ONNX Runtime

    held = Held()

    def proves(passes: Sequence[Check], leave: Leaving) -> str:
        trial = dataclasses.replace(before, chosen=tuple(passes))
        try:
            model, made = make(trial, leave)
            return why_not(prove(trial, model, model, made, locate=False, held=held))
        except GraphfixError as error:
            return str(error)

    done = [x for x in report.passes if x.name in {one.name for one in chosen}]
    why = "" if task.measured else why_not(report)
    tensors = tensors_of(io.load(task.source))
    return search(chosen, done, tensors, proves, task.tell, why=why, alone=alone)


def tensors_of(model: ir.Model) -> frozenset[str]:
    """The names of what the nodes of a model make."""
    tops = (model.graph, *(function.graph for function in model.functions.values()))
    return frozenset(
        x.name for top in tops for node in nodes_of(top) for x in node.outputs if x.name
    )
