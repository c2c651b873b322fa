"""The search for culprits, with the proof that a repaired file has to pass."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix.core import Check, Pass, calibrated_passes
from graphfix.editing.exclusions import NO_EXCLUSIONS, WHOLE_PASS, Exclusions
from graphfix.engine.report import FailedRepair, Report
from graphfix.errors import GraphfixError
from graphfix.files import io
from graphfix.graph.walks import all_nodes
from graphfix.job.culprits import TRIES, Culprits, CulpritSearch
from graphfix.job.prove import failure_reason, prove
from graphfix.job.repair import repair_model
from graphfix.job.task import Task
from graphfix.proof.verify import BaselineCache


@dataclass(frozen=True)
class Alternative:
    """A fallback after a failed proof: fewer repairs, or other ones.

    Attributes:
        leave: The places to skip.
        culprits: The culprits for the report, and the stand-ins of their passes.
        rounds: Whether the passes that round still run; without them the usual tolerance holds.
    """

    leave: Exclusions
    culprits: Culprits
    rounds: bool = True

    def apply_to(self, task: Task) -> Task:
        """Return the task of this alternative."""
        tolerance = task.tolerance if self.rounds else None
        return replace(task, chosen=self.culprits.replace_passes(task.chosen), tolerance=tolerance)


def iter_alternatives(
    chosen: Iterable[Check], reason: str, culprits: Culprits
) -> Iterator[Alternative]:
    """Yield the fallbacks after a failed proof, the best first.

    First the culprits are skipped or repaired in another way. If a pass that rounds is to blame and
    optional, the model is made without it.

    Args:
        chosen: The requested passes.
        reason: What the proof found against the model.
        culprits: The result of the search.
    """
    rounds = calibrated_passes(chosen)
    if culprits.left or not rounds:
        yield from (Alternative(leave, culprits) for leave in culprits.exclusions)
    if not rounds or not all(x.optional for x in rounds):
        return
    explanation = f"{reason}: it gains nothing here, left as it is"
    excluded = {(x.spec(), WHOLE_PASS): explanation for x in rounds}
    without = replace(
        culprits, left=(*culprits.left, *(FailedRepair(x.spec(), (), explanation) for x in rounds))
    )
    for leave in culprits.exclusions or (NO_EXCLUSIONS,):
        yield Alternative(
            replace(leave, reasons={**leave.reasons, **excluded}), without, rounds=False
        )


def find_culprits(
    task: Task, report: Report, original_outputs: BaselineCache | None = None
) -> Culprits:
    """Search for what to skip in a model whose proof failed, or to repair in another way.

    Args:
        task: The task.
        report: What the passes did, and what the proof found.
        original_outputs: What the original computes, if known; not used if a pass rounds, since
            then the search is about the model without that pass.
    """
    # Which nodes must stay in float32 is another search; this one is about the passes before that.
    rounds = calibrated_passes(task.chosen)
    chosen = tuple(x for x in task.chosen if x not in rounds)
    unrounded_task = replace(task, chosen=chosen, tolerance=None) if rounds else task
    proves_unrepaired = task.ep == "cpu" and all(
        x.is_removable for x in chosen if isinstance(x, Pass)
    )
    shared_outputs = BaselineCache() if original_outputs is None or rounds else original_outputs

    def failure_with(passes: Sequence[Check], leave: Exclusions, single: bool) -> str:
        trial = replace(unrounded_task, chosen=tuple(passes))
        return _failure_of_trial(trial, leave, shared_outputs, locate=single)

    pass_reports = [x for x in report.passes if x.name in {check.name for check in chosen}]
    reason = "" if rounds else failure_reason(report)
    tensors = tensors_of(io.load(task.source))
    budget = task.limit_search(TRIES)
    search = CulpritSearch(chosen, pass_reports, tensors, failure_with, task.tell, budget)
    return search.run(reason, proves_unrepaired=proves_unrepaired)


def _failure_of_trial(
    trial: Task, leave: Exclusions, original_outputs: BaselineCache, *, locate: bool
) -> str:
    """Repair and prove a model; return why the result fails, or "" if it is proved.

    With ``locate``, a failed proof is run again to find where the two models part: if rounding
    decides there, the second proof counts.
    """
    try:
        model, report = repair_model(trial, leave)
        proved = prove(
            trial,
            model,
            model,
            report,
            locate=False,
            original_outputs=original_outputs,
            brief=True,
        )
        reason = failure_reason(proved)
        if reason and locate:
            proved = prove(
                trial, model, model, report, original_outputs=original_outputs, brief=True
            )
            reason = failure_reason(proved) if _is_rounding(proved) else reason
        return reason
    except GraphfixError as error:
        return str(error)


def _is_rounding(report: Report) -> bool:
    """Return whether two models differ first where rounding decides: then no place is wrong."""
    first = None if report.verdict is None else report.verdict.first_divergence
    return first is not None and first.given is not None


def tensors_of(model: ir.Model) -> frozenset[str]:
    """Return the names of the outputs of all nodes of a model."""
    return frozenset(x.name for node in all_nodes(model) for x in node.outputs if x.name)
