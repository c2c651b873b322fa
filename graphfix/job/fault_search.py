"""The search for bad places, with the proof that a repaired file has to pass."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix.core import Check, Pass, rounding
from graphfix.editing.exclusions import NOTHING, WHOLE, Leaving
from graphfix.engine.report import Left, Report
from graphfix.errors import GraphfixError
from graphfix.files import io
from graphfix.graph.walks import all_nodes
from graphfix.job.culprits import BadPlaces, Search
from graphfix.job.prove import prove, why_not
from graphfix.job.repair import make
from graphfix.job.task import Task
from graphfix.proof.verify import Held


@dataclass(frozen=True)
class Way:
    """What may be made instead of a model whose proof failed.

    Attributes:
        leave: What is skipped.
        found: What the report then says, and what runs instead of passes.
        rounds: Whether the passes that round still run, if there are any; else what is left is held
            as closely as where nothing is rounded.
    """

    leave: Leaving
    found: BadPlaces
    rounds: bool = True

    def of(self, task: Task) -> Task:
        """What is asked then."""
        tolerance = task.tolerance if self.rounds else None
        return replace(task, chosen=self.found.passes(task.chosen), tolerance=tolerance)


def ways(chosen: Iterable[Check], why: str, found: BadPlaces) -> Iterator[Way]:
    """What may be made instead of a model whose proof failed, the best first.

    First the places that are to blame are left out or repaired in another way. If a pass that
    rounds is to blame, and its aim is not worth a refusal, the model is left as it would be
    without.

    Args:
        chosen: The passes that were asked for.
        why: What the proof found against the model.
        found: What came of the search for bad places.
    """
    rounds = rounding(chosen)
    if found.left or not rounds:
        yield from (Way(leave, found) for leave in found.ways)
    if not rounds or not all(x.may_gain_nothing for x in rounds):
        return
    told = f"{why}: it gains nothing here, left as it is"
    gone = {(x.spec(), WHOLE): told for x in rounds}
    without = replace(found, left=(*found.left, *(Left(x.spec(), (), told) for x in rounds)))
    for leave in found.ways or (NOTHING,):
        yield Way(replace(leave, left={**leave.left, **gone}), without, rounds=False)


def bad_places(task: Task, report: Report, held: Held | None = None) -> BadPlaces:
    """What to leave out of a model whose proof failed, or to do in another way.

    Args:
        task: What was asked.
        report: What the passes did, and what the proof found.
        held: What the original computes, if that is known; not used if a pass rounds, since it is
            the model without that pass which is searched.
    """
    # What must stay in float32 is searched for by itself; here, what goes before it is held.
    rounds = rounding(task.chosen)
    chosen = tuple(x for x in task.chosen if x not in rounds)
    before = replace(task, chosen=chosen, tolerance=None) if rounds else task
    bare = task.ep == "cpu" and all(x.dispensable for x in chosen if isinstance(x, Pass))

    from graphfix.proof.verify import Held  # what only repairs need not load ONNX Runtime

    known = Held() if held is None or rounds else held

    def proves(passes: Sequence[Check], leave: Leaving, single: bool) -> str:
        trial = replace(before, chosen=tuple(passes))
        try:
            model, made = make(trial, leave)
            told = prove(trial, model, model, made, locate=False, held=known, brief=True)
            why = why_not(told)
            if why and single:
                told = prove(trial, model, model, made, held=known, brief=True)
                why = why_not(told) if _is_rounding(told) else why
            return why
        except GraphfixError as error:
            return str(error)

    done = [x for x in report.passes if x.name in {one.name for one in chosen}]
    why = "" if rounds else why_not(report)
    tensors = tensors_of(io.load(task.source))
    return Search(chosen, done, tensors, proves, task.tell).run(why, alone=bare)


def _is_rounding(report: Report) -> bool:
    """Whether two models part where rounding decides: then no place computes what is wrong."""
    first = None if report.verdict is None else report.verdict.first_divergence
    return first is not None and first.given is not None


def tensors_of(model: ir.Model) -> frozenset[str]:
    """The names of what the nodes of a model make."""
    return frozenset(x.name for node in all_nodes(model) for x in node.outputs if x.name)
