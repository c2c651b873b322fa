"""What must stay in float32 for a model to pass its gate: tried, not guessed.

The pass says what stays by the graph alone. Here the model that it makes is run beside the one in
float32, each result rounded as a device rounds it. What overflows stays. If the gate is missed
nevertheless, the shortest stretch of the graph is bisected that must stay, and what of it need not
is given back. Weights of what stays are float16 in the file all the same, if the gate allows.
"""

import bisect
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import onnx_ir as ir

from graphfix.core import Feeds, Match, Pass, Safety
from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.feeds.case_search import make_cases
from graphfix.feeds.full_lengths import full_lengths
from graphfix.feeds.run_cost import Work
from graphfix.feeds.signature import Signature
from graphfix.files.half_weights import KEPT
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import nodes_of, reached
from graphfix.half.emulate import rounded
from graphfix.half.overflow import overflowing
from graphfix.half.trials import Kept, Progress, Trials, extremes, name_of
from graphfix.proof.compare import OutputDiff
from graphfix.proof.verify import Original, Tolerance, Verdict
from graphfix.runtime.local_session import Session
from graphfix.runtime.random_nodes import draws, seeded
from graphfix.runtime.run_errors import RunError

# With less of the gate than this the usual inputs were not enough.
_USUAL = 0.5
# Into how many parts a stretch that must stay is cut at most, to give back what need not.
_PARTS = 16
# How many cases in which numbers are lost are looked at.
_LOUD = 4
# Weights of more elements than this are stored in float16 even if what takes them stays.
_WEIGHT = 1024
# Multiplications of the cases that candidates are tried on: a second or so on two cores.
_WORK = 20_000_000_000
# What the user wants in float32.
_WANTED = ("keep=", "it is not among only=")
_MADE_UP = "on made-up inputs; --feeds uses yours"


@dataclass
class Found:
    """What was found.

    Attributes:
        reasons: Why a node stays, by the name of its first tensor.
        stored: Weights of what stays that are float16 in the file nonetheless.
        verdict: How far the model that results is from float32, or None if it could not be run.
        met: Whether all cases were within what was aimed at; None if that was not tried.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    stored: tuple[str, ...] = ()
    verdict: Verdict | None = None
    met: bool | None = None


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
    trials = Trials(model, chosen, progress or (lambda _: None))
    strict = replace(tolerance, max_abs=margin * tolerance.max_abs)
    search = _Search(trials, strict, safety, _cases(trials.before, dims or {}, feeds))
    search.all_of_them = feeds is None and margin < _USUAL
    kept = search.run(loud=feeds is None)
    if feeds is None:
        reasons = {name: f"{why} ({_MADE_UP})" for name, why in kept.reasons.items()}
        kept = replace(kept, reasons=reasons)
    told = search.verdict
    met = None if told is None or told.worst is None else told.ok
    return trials.made(kept), Found(kept.reasons, kept.stored, search.verdict, met)


@dataclass
class _Search:
    """The search on one model.

    Attributes:
        trials: The model, and candidates.
        tolerance: What may differ.
        safety: What the passes before keep.
        cases: Inputs to try.
        all_of_them: Whether candidates are run on all cases of verification instead, which has
            more, garbage in the padding among them.
        verdict: On the last candidate.
    """

    trials: Trials
    tolerance: Tolerance
    safety: Safety
    cases: list[Case]
    all_of_them: bool = False
    verdict: Verdict | None = None

    @cached_property
    def _original(self) -> Original:
        return self._run_on(None if self.all_of_them else self.cases)

    def _run_on(self, cases: list[Case] | None) -> Original:
        before = self.trials.before
        return Original(before, cases=cases, tolerance=self.tolerance, safety=self.safety)

    def run(self, *, loud: bool) -> Kept:
        """What must be kept.

        Args:
            loud: Whether to look at the cases of verification in which a device loses numbers: the
                CPU keeps float32 between operators, and does not show what overflows there.
        """
        try:
            Session(self.trials.candidate(Kept()), optimize=False).close()
        except ModelError:
            return Kept()  # verification says why, and the model is left as it is
        kept = Kept(overflowing(self.trials, Kept(), extremes(self.cases)))
        if loud and (losing := self._losing(kept)):
            kept = kept.more(overflowing(self.trials, kept, losing))
        if not self._passes(kept):
            kept = self._bisected(kept)
        return self._stored(kept)

    # Candidates

    def _losing(self, kept: Kept) -> list[Case]:
        """Cases of verification in which a candidate has no number where float32 has one."""
        self.trials.tell("converting to float16: all cases as a device rounds")
        original = self._run_on(None)
        model = rounded(self.trials.candidate(kept))
        found: list[Case] = []
        with contextlib.suppress(RunError):
            for case, diffs in self._run(model, original):
                if any(x.nan_after > x.nan_before or x.inf_after > x.inf_before for x in diffs):
                    found.append(case)
        return found[:_LOUD]

    def _passes(self, kept: Kept) -> bool:
        """Whether a candidate meets the gate, as a device rounds and as the CPU does."""
        self.trials.tell(f"converting to float16: trying with {len(kept)} kept")
        candidate = self.trials.candidate(kept)
        self.verdict = self._verdict(rounded(candidate))
        if self.verdict.ok:
            self.verdict = self._verdict(candidate, as_is=True)
        return self.verdict.ok

    def _verdict(self, model: ir.Model, *, as_is: bool = False) -> Verdict:
        """The verdict on a candidate, up to the first case that fails."""
        found: dict[str, tuple[OutputDiff, ...]] = {}
        try:
            for case, diffs in self._run(model, self._original, as_is=as_is):
                found[case.name] = diffs
                if not all(x.ok for x in diffs):
                    return Verdict(False, found)
        except (ModelError, RunError) as error:
            return Verdict(False, found, reason=str(error))
        return Verdict(True, found)

    def _run(
        self, model: ir.Model, original: Original, *, as_is: bool = False
    ) -> Iterator[tuple[Case, tuple[OutputDiff, ...]]]:
        """Each case with how far a model is from the original."""
        model = seeded(model) if draws(model) is not None else model
        with Session(model, optimize=False) as session:
            for i, case in enumerate(original.cases):
                more = self.trials.chosen.feeds(case.feeds) if as_is else None
                yield case, original.diffs(session, i, more)

    # The gate is missed

    def _bisected(self, kept: Kept) -> Kept:
        """With the shortest stretch of the graph that must stay, less what of it need not."""
        names = [name_of(x) for x in self.trials.nodes]

        def with_these(stretch: list[str]) -> Kept:
            return kept.more(dict.fromkeys(stretch, "the gate is missed otherwise"))

        def passes(stretch: list[str]) -> bool:
            return self._passes(with_these(stretch))

        scores = _before_softmax(self.trials.nodes)
        if scores and passes(scores):
            names = scores
        else:
            names = names[: _least(len(names), lambda n: passes(names[:n]))]
            names = names[len(names) - _least(len(names), lambda n: passes(names[-n:])) :]
        size, least = len(names) // 2, len(names) // _PARTS
        while size > least:
            for start in reversed(range(0, len(names), size)):
                fewer = names[:start] + names[start + size :]
                if fewer and passes(fewer):
                    names = fewer
            size //= 2
        self._passes(with_these(names))
        return with_these(names)

    # Weights

    def _stored(self, kept: Kept) -> Kept:
        """With weights of what stays rounded, as long as that passes."""
        if self.verdict is None or not self.verdict.ok or not hasattr(self.trials.chosen, "store"):
            return kept
        passed, names = self.verdict, self._heavy(kept)
        if names and self._passes(more := replace(kept, stored=names)):
            return more
        self.verdict = passed
        return kept

    def _heavy(self, kept: Kept) -> tuple[str, ...]:
        """Weights in float32 that nobody asked for to stay so."""

        def is_asked(node: ir.Node) -> bool:
            why = node.metadata_props.get(KEPT, "")
            return why.startswith(_WANTED) and name_of(node) not in kept.reasons

        return tuple(
            value.name or ""
            for value, tensor in _held(self.trials.candidate(kept).graph)
            if tensor.dtype == ir.DataType.FLOAT
            and tensor.size > _WEIGHT
            and not value.is_graph_input()
            and not any(is_asked(use.node) for use in value.uses())
        )


def _cases(model: ir.Model, dims: Mapping[str, Sequence[int]], feeds: Feeds | None) -> list[Case]:
    """The inputs to try, dozens of times: as many as cost little; the one that costs least stays.

    Verification has them all.
    """
    if feeds is not None:
        return [Case("feeds", {}, dict(full_lengths(model, feeds)))]
    names = {str(d) for x in model.graph.inputs for d in x.shape or ()}
    known = {name: sizes for name, sizes in dims.items() if name in names}
    cases = list(make_cases(model, dims=known or None))
    signature = Signature(model)
    work = Work(signature)
    costs = [work.at(signature.groups_in(case.dims)) for case in cases]
    kept: set[int] = set()
    left = _WORK
    for i in sorted(range(len(cases)), key=costs.__getitem__):
        left -= costs[i]
        if left >= 0 or not kept:
            kept.add(i)
    return [x for i, x in enumerate(cases) if i in kept]


def _before_softmax(nodes: Sequence[ir.Node]) -> list[str]:
    """What makes scores, up to their Softmax, from the products with weights on: exp magnifies it.

    There are few weights in that, and fewer than in any stretch of the graph that has it all.
    """
    known = set(nodes)

    def more(node: ir.Node) -> Collection[ir.Node]:
        held = (x.const_value for x in node.inputs if x is not None)
        weighs = any(x is not None and x.size > _WEIGHT for x in held)
        return () if weighs else known.intersection(node.predecessors())

    found = set(reached((x for x in nodes if is_op(x, "Softmax")), more))
    return [name_of(x) for x in nodes if x in found]


def _least(most: int, passes: Callable[[int], bool]) -> int:
    """The least number that passes, where all above it do; ``most`` is taken to."""
    return 1 + bisect.bisect_left(range(1, most), True, key=passes)


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
