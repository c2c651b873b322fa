"""What must stay in float32 for a model to pass its gate: tried, not guessed.

The pass says what stays by the graph alone. Here the model that it makes is run beside the one in
float32: what overflows stays, and what a device would overflow inside a kernel. While the gate is
missed, so do the fewest tensors whose rounding costs most. Where that does not help, the nodes are
bisected. Weights of what stays are float16 in the file all the same, if the gate allows.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.core import Match
from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.feeds.full_lengths import full_lengths
from graphfix.feeds.search import groups_of, make_cases
from graphfix.feeds.signature import Signature
from graphfix.feeds.work import Work
from graphfix.half.costs import WHY, Costs, cost
from graphfix.half.emulate import rounded
from graphfix.half.layers import course
from graphfix.half.overflow import loading, overflowing
from graphfix.half.trials import Kept, Trials, extremes, name_of
from graphfix.model.narrow import KEPT
from graphfix.model.values import is_op, nodes_of
from graphfix.proof.compare import OutputDiff
from graphfix.proof.verify import Held, Original, Tolerance, Verdict, verify
from graphfix.runtime.errors import RunError
from graphfix.runtime.randomness import draws, seeded
from graphfix.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from graphfix.core import Feeds, Pass, Safety
    from graphfix.half.trials import Progress

    Diffs = tuple[OutputDiff, ...]

# How often what costs most is looked for in what was made without.
_ROUNDS = 4
# With less of the gate than this the usual inputs were not enough.
_USUAL = 0.5
# Weights of more elements than this are stored in float16 even if what takes them stays.
_WEIGHT = 1024
# How many of them are tried one by one.
_STORED = 6
# Multiplications of the cases that candidates are tried on: a second or so on two cores.
_WORK = 20_000_000_000
# What the user, or the model itself, wants in float32.
_WANTED = ("keep=", "it is not among only=", "the model itself has it")


@dataclass
class Found:
    """What was found.

    Attributes:
        reasons: Why a node stays, by the name of its first tensor.
        stored: Weights of what stays that are float16 in the file nonetheless.
        verdict: How far the model that results is from float32, or None if it could not be run.
        trials: How many candidates were made.
        course: How far inner tensors are in the worst case, see
            :func:`graphfix.half.layers.course`, and ``met``: whether all cases were within the
            share of the gate that was aimed at; None if nothing could be run.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    stored: tuple[str, ...] = ()
    verdict: Verdict | None = None
    trials: int = 0
    course: dict[str, object] | None = None


def settle(
    model: ir.Model,
    chosen: Pass,
    *,
    tolerance: Tolerance,
    margin: float = 0.5,
    dims: Mapping[str, Sequence[int]] | None = None,
    feeds: Feeds | None = None,
    safety: Safety = "conditional",
    progress: Progress | None = None,
) -> tuple[Pass, Found]:
    """The pass with what must stay in float32 among its ``keep``, and why.

    Args:
        model: The model as it is before the pass; it is not changed.
        chosen: The pass: it has options ``keep`` and ``store``, names joined by ``+``.
        tolerance: The gate.
        margin: Which share of it may be used: other inputs than those that are tried do worse.
        dims: Sizes to try, by the name of the symbolic dim; names that it lacks are ignored.
        feeds: Inputs of the user's, for ``model``; by default they are made.
        safety: What the passes before it keep, see :func:`graphfix.proof.verify.verify`.
        progress: Called with a short text at each step.
    """
    if not any(isinstance(x, Match) for x in chosen.sites(model)):
        return chosen, Found()
    strict = dataclasses.replace(tolerance, max_abs=margin * tolerance.max_abs)
    search = _Search(Trials(model, chosen, progress or (lambda _: None)), strict, safety)
    search.find_cases(dims or {}, feeds, all_of_them=margin < _USUAL)
    kept = search.run()
    if feeds is None and margin >= _USUAL and search.finds_harder(kept, tolerance):
        kept = search.run()
    course = search.course(kept, tolerance.max_abs)
    found = Found(kept.reasons, kept.stored, search.verdict, search.trials.count, course)
    return search.trials.made(kept), found


class _Search:
    def __init__(self, trials: Trials, tolerance: Tolerance, safety: Safety) -> None:
        self.trials, self._tolerance, self._safety = trials, tolerance, safety
        self._cases: list[Case] = []
        self._harder: list[Case] = []
        self._tried: list[Case] | None = None
        self._unrounded: set[str] = set()
        self._held = Held()
        self._last: tuple[ir.Model, dict[int, Diffs]] | None = None
        self.verdict: Verdict | None = None

    def find_cases(
        self, dims: Mapping[str, Sequence[int]], feeds: Feeds | None, *, all_of_them: bool
    ) -> None:
        """The inputs to try."""
        before = self.trials.before
        if feeds is not None:
            self._cases = [Case("feeds", {}, dict(full_lengths(before, feeds)))]
            self._tried = self._cases
            return
        names = {str(d) for x in before.graph.inputs for d in x.shape or ()}
        known = {name: sizes for name, sizes in dims.items() if name in names}
        self._cases = _affordable(before, list(make_cases(before, dims=known or None)))
        # Verification makes more, garbage in the padding among them, and takes longer.
        self._tried = None if all_of_them else self._cases

    def finds_harder(self, kept: Kept, gate: Tolerance) -> bool:
        """Whether a device would lose numbers in a case of verification's, which is then looked at.

        The CPU keeps float32 between operators: what overflows between two of them, where inputs
        reach 1e4, it does not show.
        """
        if self.verdict is None or not self.verdict.ok:
            return False
        self.trials.tell("float16: all cases as a device rounds")
        original = Original(self.trials.before, tolerance=gate, safety=self._safety)
        found: list[Case] = []
        with contextlib.suppress(RunError):
            for i, diffs in self._run(rounded(self.trials.candidate(kept)), original):
                if any(_loses(x) for x in diffs):
                    found.append(original.cases[i])
        self._harder = found
        return bool(found)

    @cached_property
    def _original(self) -> Original:
        return Original(
            self.trials.before, cases=self._tried, tolerance=self._tolerance, safety=self._safety
        )

    def run(self) -> Kept:
        """What must be kept."""
        kept = loading(self.trials)
        if kept is None:
            return Kept()
        cases = [*extremes(self._cases), *self._harder]
        kept = kept.more(overflowing(self.trials, kept, cases))
        for _ in range(_ROUNDS):
            missed = self._missed(kept)
            if not missed:
                break
            costs = Costs(
                *(self.trials, self.trials.candidate(kept), self._original),
                *(self._tolerance, missed),
            )
            new, weights = costs.smallest()
            self._unrounded |= weights
            if set(new) <= set(kept.reasons):
                break
            kept = kept.more(new)
        if not self._passes(kept):
            kept = self._bisected(kept)
        return self._stored(kept)

    def course(self, kept: Kept, allowed: float) -> dict[str, object] | None:
        """How far inner tensors are in the case that is worst; ``met``: what was aimed at is."""
        worst = None if self.verdict is None else self.verdict.worst
        if worst is None:
            return None
        cases = [x for x in self._original.cases if x.name == worst.case]
        if not cases:
            return None
        self.trials.tell("float16: the course of the error")
        found = course(self.trials, kept, cases[0], allowed)
        return {**found, "met": self.verdict is not None and self.verdict.ok}

    # Candidates

    def _passes(self, kept: Kept) -> bool:
        self.trials.tell(f"float16: trying with {len(kept)} kept")
        candidate = self.trials.candidate(kept)
        self.verdict = self._known(candidate) or self._verdict(rounded(candidate))
        if self.verdict.ok:
            self.verdict = self._verdict(candidate, as_is=True)
        return self.verdict.ok

    def _missed(self, kept: Kept) -> list[int]:
        """The cases in which a candidate misses the gate as a device rounds, the worst first."""
        self.trials.tell(f"float16: trying with {len(kept)} kept")
        candidate = self.trials.candidate(kept)
        found: dict[int, Diffs] = {}
        with contextlib.suppress(RunError):
            for i, diffs in self._run(rounded(candidate), self._original):
                found[i] = diffs
            self._last = candidate, found
        costs = {
            i: cost(diffs, self._tolerance)
            for i, diffs in found.items()
            if not all(x.ok for x in diffs)
        }
        return sorted(costs, key=lambda i: -costs[i])

    def _known(self, candidate: ir.Model) -> Verdict | None:
        """The verdict on a candidate, as a device rounds, of which all cases were just run."""
        if self._last is None or self._last[0] is not candidate or _has_branches(candidate):
            return None
        return self._told(self._last[1].items())

    def _run(
        self, model: ir.Model, original: Original, feeds: bool = False
    ) -> Iterator[tuple[int, Diffs]]:
        """Each case with how far a model is from the original; the first that fails ends it."""
        if draws(model) is not None:
            model = seeded(model)
        with Session(model, optimize=False) as session:
            for i, case in enumerate(original.cases):
                more = self.trials.chosen.feeds(case.feeds) if feeds else None
                yield i, original.diffs(session, i, more)

    def _verdict(self, model: ir.Model, *, as_is: bool = False) -> Verdict:
        if _has_branches(model):
            # Branches that no case takes are forced there.
            return verify(
                self.trials.before,
                model,
                cases=self._tried,
                tolerance=self._tolerance,
                safety=self._safety,
                held=self._held,
                brief=True,
                map_feeds=self.trials.chosen.feeds if as_is else None,
                may_change=("inputs", "outputs"),
                locate=False,
            )
        return self._told(self._run(model, self._original, as_is))

    def _told(self, runs: Iterable[tuple[int, Diffs]]) -> Verdict:
        """The verdict on a candidate that was run on one case after the other."""
        found: dict[str, Diffs] = {}
        try:
            for i, diffs in runs:
                found[self._original.cases[i].name] = diffs
                if not all(x.ok for x in diffs):
                    break
        except (ModelError, RunError) as error:
            return Verdict(False, found, reason=str(error))
        return Verdict(all(x.ok for diffs in found.values() for x in diffs), found)

    # What helps for certain

    def _bisected(self, kept: Kept) -> Kept:
        """With the shortest beginning or end of the graph that must stay."""
        names = [name_of(x) for x in self.trials.nodes]
        sure = {x: why for x, why in kept.reasons.items() if not why.startswith(WHY)}
        kept = dataclasses.replace(kept, reasons=sure)
        best: list[str] | None = None
        for ordered, where in ((names, "before"), (names[::-1], "behind")):
            low, high = 0, len(ordered)
            if best is not None:
                high = len(best) - 1
                if not self._passes(kept.more(dict.fromkeys(ordered[:high], ""))):
                    continue
            while low < high:
                middle = (low + high) // 2
                if self._passes(kept.more(dict.fromkeys(ordered[:middle], ""))):
                    high = middle
                else:
                    low = middle + 1
            best, side = ordered[:high], where
        if best is None:
            return kept
        why = f"the gate is missed otherwise: all {side} {best[-1] if best else ''!r} stays"
        kept = kept.more(dict.fromkeys(best, why))
        self._passes(kept)
        return kept

    # Weights

    def _stored(self, kept: Kept) -> Kept:
        """With weights of what stays rounded, as long as that passes."""
        if self.verdict is None or not self.verdict.ok or not hasattr(self.trials.chosen, "store"):
            return kept
        names = self._heavy(kept)
        passed = self.verdict
        for group in [names, *([x] for x in names[:_STORED] if len(names) > 1)]:
            more = dataclasses.replace(kept, stored=(*kept.stored, *group))
            if group and self._passes(more):
                kept, passed = more, self.verdict
                if group is names:
                    break
        self.verdict = passed
        return kept

    def _heavy(self, kept: Kept) -> list[str]:
        """Weights in float32 that nobody asked for to stay so, the largest first."""
        sizes = {}
        for value, tensor in _held(self.trials.candidate(kept).graph):
            name = value.name or ""
            if tensor.dtype != ir.DataType.FLOAT or tensor.size <= _WEIGHT:
                continue
            if value.is_graph_input() or name in self._unrounded:
                continue
            asked = (
                use.node.metadata_props.get(KEPT, "").startswith(_WANTED)
                and name_of(use.node) not in kept.reasons
                for use in value.uses()
            )
            if not any(asked):
                sizes[name] = tensor.size
        return sorted(sizes, key=lambda x: -sizes[x])


def _affordable(model: ir.Model, cases: list[Case]) -> list[Case]:
    """Cases that are run dozens of times, as many as cost little; the one that costs least stays.

    Verification has them all.
    """
    signature = Signature(model)
    work = Work(signature)
    costs = {case.name: work.at(groups_of(signature, case)) for case in cases}
    kept: set[str] = set()
    left = _WORK
    for name in sorted(costs, key=lambda x: costs[x]):
        left -= costs[name]
        if left >= 0 or not kept:
            kept.add(name)
    return [x for x in cases if x.name in kept]


def _has_branches(model: ir.Model) -> bool:
    return any(is_op(x, "If") for x in model.graph.all_nodes())


def _loses(diff: OutputDiff) -> bool:
    return diff.nan_after > diff.nan_before or diff.inf_after > diff.inf_before


def _held(graph: ir.Graph) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    """The tensors that a graph holds: initializers, and those of its Constant nodes."""
    for value in graph.initializers.values():
        if value.const_value is not None:
            yield value, value.const_value
    for node in graph:
        attribute = node.attributes.get("value") if is_op(node, "Constant") else None
        if attribute is not None and not attribute.is_ref():
            yield node.outputs[0], attribute.as_tensor()


def mark(model: ir.Model, reasons: Mapping[str, str]) -> None:
    """Write into the nodes why they stay."""
    for node in nodes_of(model.graph):
        if (why := reasons.get(name_of(node))) is not None:
            node.metadata_props[KEPT] = why
