"""Finds the passes of a profile that raise a count of kernels, and leaves them out.

The counts are those of a plan: kernels on the device, on the CPU, copies between them, and kernels
that are recompiled at another length. A pass that only saves kernels is left out where without it
less is raised above the original, and a run takes no more steps in all; one that repairs stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from graphfix.core import Pass, calibrated_passes
from graphfix.editing.builder import PASS_KEY
from graphfix.editing.exclusions import WHOLE_PASS, Exclusions
from graphfix.engine import registry
from graphfix.engine.report import CostlyPass, FailedRepair, PassReport, Report
from graphfix.errors import GraphfixError
from graphfix.files import io
from graphfix.graph.walks import all_nodes
from graphfix.job import planning
from graphfix.job.culprits import Culprits
from graphfix.job.fault_search import Alternative
from graphfix.job.repair import repair_model
from graphfix.job.task import Task
from graphfix.proof.budget import SearchBudget, SpentError
from graphfix.providers.plan import ProviderPlan
from graphfix.providers.table import PROVIDERS, DeviceEp
from graphfix.wording import plural

TRIES = 8
"""How many models are made at most."""

_WHY_KEPT = "it repairs what is wrong or fails there"


@dataclass(frozen=True)
class Counts:
    """What a run takes, as planned for a provider.

    Attributes:
        device: Kernels on the provider.
        cpu: Kernels on the CPU.
        copies: Copies between them.
        recompiled: Kernels on the provider that are recompiled at another length.
    """

    device: int
    cpu: int
    copies: int
    recompiled: int

    @classmethod
    def of_kernels(cls, kernels: Mapping[str, int]) -> Counts:
        """Return the counts as :func:`graphfix.job.planning.kernels_per_run` has them."""
        cpu, copies, recompiled = (kernels[x] for x in ("cpu", "copies", "recompiled"))
        return cls(kernels["all"] - cpu, cpu, copies, recompiled)

    @property
    def steps(self) -> int:
        """Return how many steps a run takes: kernels and copies."""
        return self.device + self.cpu + self.copies

    def excess_over(self, other: Counts) -> int:
        """Return by how much counts are above those of ``other``, together."""
        return sum(max(0, own - others) for own, others in zip(self, other, strict=True))

    def compare_with(self, other: Counts, provider: str) -> str:
        """Return ``3 more kernels on DirectML, 1 fewer copy``: of these than of ``other``."""
        nouns = (
            ("kernel", "kernels", f" on {provider}"),
            ("kernel", "kernels", " on the CPU"),
            ("copy", "copies", ""),
            ("kernel", "kernels", " recompiled at another length"),
        )
        parts = []
        for own, others, (singular, many, where) in zip(self, other, nouns, strict=True):
            if own != others:
                more = "more" if own > others else "fewer"
                count = plural(abs(own - others), f"{more} {singular}", f"{more} {many}")
                parts.append(f"{count}{where}")
        return ", ".join(parts)

    def __iter__(self) -> Iterator[int]:
        yield from (self.device, self.cpu, self.copies, self.recompiled)


@dataclass(frozen=True)
class Cheaper:
    """The result of a search.

    Attributes:
        alternative: What to make instead; None if nothing is cheaper.
        kept: The passes that raise a count and stay.
    """

    alternative: Alternative | None = None
    kept: tuple[CostlyPass, ...] = ()


@dataclass(frozen=True)
class _Trial:
    """A model without some passes.

    Attributes:
        left: Why each pass is left out, by its spec.
        counts: What it takes.
        reports: What the passes did.
        plan: Its plan.
        makers: The pass that made each node, by the names of node and outputs.
    """

    left: Mapping[str, str]
    counts: Counts
    reports: tuple[PassReport, ...]
    plan: ProviderPlan
    makers: Mapping[str, str] = field(repr=False)


def find_cheaper(task: Task, leave: Exclusions, report: Report, model: ir.Model) -> Cheaper:
    """Search for what to leave out of a model of which a count is above the original's.

    Args:
        task: The task.
        leave: What is skipped already.
        report: What the passes did, with the kernels before and after.
        model: The repaired model.
    """
    provider = task.counted_on
    if provider is None or not task.profile_passes or task.strict or report.kernels is None:
        return Cheaper()
    before, after = report.kernels["before"], report.kernels["after"]
    if provider != report.ep and report.changed:
        before = planning.kernels_per_run(io.load(task.source), provider)
        after = planning.kernels_per_run(model, provider)
    if not before or not after:
        return Cheaper()
    original = Counts.of_kernels(before)
    if not Counts.of_kernels(after).excess_over(original):
        return Cheaper()
    return _CostSearch(task, leave, original, provider).run()


class _CostSearch:
    def __init__(self, task: Task, leave: Exclusions, original: Counts, provider: DeviceEp) -> None:
        # A pass that rounds is calibrated by running models; kernels do not depend on that.
        rounds = calibrated_passes(task.chosen)
        self._chosen = tuple(x for x in task.chosen if x not in rounds)
        self._task = replace(task, chosen=self._chosen, check=False, tolerance=None)
        self._leave, self._original, self._provider = leave, original, provider
        self._label = PROVIDERS[provider].label
        self._budget: SearchBudget = task.limit_search(TRIES)

    def run(self) -> Cheaper:
        """Try passes, the likeliest first, until no count is above the original's."""
        kept: dict[str, CostlyPass] = {}
        best = self._try({})
        if best is None:
            return Cheaper()
        tried = set[str]()
        try:
            while suspect := next((x for x in self._suspects(best) if x.spec() not in tried), None):
                tried.add(suspect.spec())
                better, reason = self._try_without(suspect, best)
                if better is not None:
                    best = better
                elif reason:
                    kept[suspect.spec()] = CostlyPass(suspect.spec(), reason)
        except SpentError:
            pass
        is_above = best.counts.excess_over(self._original) > 0
        return Cheaper(self._alternative(best), tuple(kept.values()) if is_above else ())

    def _suspects(self, trial: _Trial) -> Iterator[Pass]:
        """Yield the passes that may have raised a count, while one is above the original's.

        Those that may be left out come first.
        """
        if not trial.counts.excess_over(self._original):
            return
        growth, makers = _growth_by_spec(trial), self._makers_of_steps(trial)
        passes = {x.spec(): x for x in self._chosen if isinstance(x, Pass) and x.spec() in growth}
        for suspect in sorted(passes.values(), key=lambda x: (_repairs(x), -growth[x.spec()])):
            spec = suspect.spec()
            may_leave = spec in self._task.profile_passes and spec not in trial.left
            if may_leave and (growth[spec] > 0 or suspect.name in makers):
                yield suspect

    def _makers_of_steps(self, trial: _Trial) -> set[str]:
        """Return the passes that made kernels or copied tensors, where there are more than before.

        How many nodes a pass adds tells little: it may take away shape arithmetic of the CPU.
        """
        own, before = trial.counts, self._original
        kinds = {
            "cpu": own.cpu > before.cpu,
            "copy": own.copies > before.copies,
            self._provider: own.device > before.device or own.recompiled > before.recompiled,
        }
        names = [x.name.split(" ") for x in trial.plan.steps if kinds.get(x.on)]
        return {trial.makers[x] for words in names for x in words if x in trial.makers}

    def _try_without(self, suspect: Pass, best: _Trial) -> tuple[_Trial | None, str]:
        """Return a better model without a pass, or why it stays."""
        spec = suspect.spec()
        trial = self._try({**best.left, spec: "left out"})
        if trial is None:
            return None, ""
        excess = trial.counts.excess_over(self._original)
        if excess >= best.counts.excess_over(self._original):
            return None, ""
        costs = best.counts.compare_with(trial.counts, self._label)
        if _repairs(suspect):
            return None, f"{costs}; {_WHY_KEPT}"
        if trial.counts.steps > best.counts.steps:
            return None, costs
        return replace(trial, left={**trial.left, spec: f"a run takes {costs}"}), ""

    def _try(self, left: Mapping[str, str]) -> _Trial | None:
        """Repair the model once; None if it cannot be repaired so, or loaded then."""
        self._budget.take_try()
        self._task.tell(f"counting kernels: try {self._budget.tries}")
        try:
            model, report = repair_model(self._task, self._leave_with(left))
        except GraphfixError:
            return None
        plan = planning.plan_or_none(model, self._provider)
        if plan is None:
            return None
        counts = Counts.of_kernels(planning.kernels_of_plan(plan))
        return _Trial(left, counts, report.passes, plan, _makers_by_name(model))

    def _leave_with(self, left: Mapping[str, str]) -> Exclusions:
        wholes = {(spec, WHOLE_PASS): f"with it {reason}" for spec, reason in left.items()}
        return replace(self._leave, reasons={**self._leave.reasons, **wholes})

    def _alternative(self, best: _Trial) -> Alternative | None:
        if not best.left:
            return None
        rows = tuple(FailedRepair(x, (), why, costs=True) for x, why in best.left.items())
        return Alternative(self._leave_with(best.left), Culprits({}, (), rows))


def _repairs(suspect: Pass) -> bool:
    """Return whether a pass repairs what is wrong or fails: it stays, whatever it costs."""
    return suspect.name not in registry.SAVINGS


def _added_nodes(report: PassReport) -> int:
    """Return how many nodes more there are behind a pass."""
    return sum(len(x.added) - len(x.removed) for x in report.changes)


def _makers_by_name(model: ir.Model) -> dict[str, str]:
    """Return the pass that made each node, by the names of the node and of its outputs."""
    makers: dict[str, str] = {}
    for node in all_nodes(model):
        maker = node.metadata_props.get(PASS_KEY)
        if maker is not None:
            names = (node.name, *(x.name for x in node.outputs))
            makers |= {name: maker for name in names if name}
    return makers


def _growth_by_spec(trial: _Trial) -> dict[str, int]:
    """Return how many nodes each pass that changed something has added."""
    growth: dict[str, int] = {}
    for report in trial.reports:
        if report.changes:
            growth[report.spec] = growth.get(report.spec, 0) + _added_nodes(report)
    return growth
