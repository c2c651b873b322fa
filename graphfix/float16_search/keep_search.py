"""Search, by running, for the nodes that must stay in float32 for a model to pass its gate.

The pass chooses nodes from the graph alone. Here the converted model is run beside the float32 one,
each result rounded as a device rounds it. Nodes that overflow stay in float32. If the gate is still
missed, the search bisects for the shortest stretch of the graph that must stay, and then drops
parts of it that need not. Weights of these nodes are stored in float16 if the gate allows.
"""

import bisect
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import onnx_ir as ir

from graphfix.core import Feeds, Match, Pass, Safety
from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.feeds.case_search import make_cases
from graphfix.feeds.full_lengths import add_full_lengths
from graphfix.feeds.run_cost import RunCost
from graphfix.feeds.signature import Signature
from graphfix.files.half_weights import KEPT_IN_FLOAT32_KEY
from graphfix.float16_search.emulate import emulate_float16
from graphfix.float16_search.overflow import find_overflows
from graphfix.float16_search.trials import (
    KeepSet,
    Progress,
    Trials,
    extreme_cases,
    first_tensor_name,
)
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import nodes_of, reachable_from
from graphfix.proof.budget import SearchBudget, SpentError
from graphfix.proof.compare import OutputDiff
from graphfix.proof.verify import LoadedOriginal, Tolerance, Verdict
from graphfix.runtime.local_session import Session
from graphfix.runtime.random_nodes import first_random_node, seed_model
from graphfix.runtime.run_errors import RunError

# The usual share of the gate. With less, the cases of verification are run as well.
_USUAL_MARGIN = 0.5
# Into how many parts a stretch that must stay is cut at most, to find those that need not.
_MOST_PARTS = 16
# How many candidates are tried at most, unless a budget says so.
_TRIES = 60
# The shares of the time after which no other case is searched for overflows: of the usual cases, of
# all. The rest is for candidates.
_RANGES_SHARE, _DEMANDING_SHARE = 0.3, 0.5
# How many cases in which numbers are lost are searched for overflows.
_MOST_LOSING_CASES = 4
# Weights of more elements than this may be stored in float16 even if their node stays in float32.
_LARGE_WEIGHT = 1024
# Multiplications of the cases that candidates are tried on: about a second on two cores.
_WORK = 20_000_000_000
# Reasons of nodes that the user keeps in float32.
_USER_REASONS = ("keep=", "it is not among only=")
_MISSED = "the gate is missed otherwise"
_MADE_UP = "on made-up inputs; --feeds uses yours"


@dataclass
class KeepSearchResult:
    """Result of the search.

    Attributes:
        reasons: Why a node stays in float32, by the name of its first tensor.
        stored: Weights of such nodes that are stored in float16 nonetheless.
        verdict: The difference of the resulting model from float32, or None if it did not run.
        met: Whether all cases were within the target; None if that was not tried.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    stored: tuple[str, ...] = ()
    verdict: Verdict | None = None
    met: bool | None = None


def search_kept_nodes(
    model: ir.Model,
    chosen: Pass,
    *,
    tolerance: Tolerance,
    margin: float = 0.5,
    dims: Mapping[str, Sequence[int]] | None = None,
    feeds: Feeds | None = None,
    safety: Safety = "conditional",
    budget: SearchBudget | None = None,
    known: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> tuple[Pass, KeepSearchResult]:
    """Return the pass with the nodes that must stay in float32 in its ``keep``, and why.

    Args:
        model: The model before the pass; it is not changed.
        chosen: The pass: it has options ``keep`` and ``store``, names joined by ``+``.
        tolerance: The gate.
        margin: The share of the gate that may be used: inputs that were not tried may do worse.
        dims: Sizes to try, by the name of the symbolic dim; unknown names are ignored.
        feeds: The user's inputs for ``model``; by default they are made.
        safety: The promise of the passes before, see :func:`graphfix.proof.verify.verify`.
        budget: What may be spent. When it is, as much is kept as is known to be enough.
        known: The reasons that a search with a larger margin found: what it keeps is not enough,
            and the search goes on from there.
        progress: Called with a short text at each step.
    """
    if not any(isinstance(x, Match) for x in chosen.sites(model)):
        return chosen, KeepSearchResult()
    trials = Trials(model, chosen, progress or (lambda _: None))
    strict = replace(tolerance, max_abs=margin * tolerance.max_abs)
    known_dims = _known_dims(trials.before, dims or {})
    cases = _trial_cases(trials.before, known_dims, feeds)
    budget = budget or SearchBudget(_TRIES)
    search = _KeepSearch(trials, strict, safety, cases, budget, known_dims)
    search.use_all_cases = feeds is None and margin < _USUAL_MARGIN
    keep_set = search.run(KeepSet(dict(known or {})), loud=feeds is None)
    if feeds is None:
        reasons = {
            name: reason if name in (known or {}) else f"{reason} ({_MADE_UP})"
            for name, reason in keep_set.reasons.items()
        }
        keep_set = replace(keep_set, reasons=reasons)
    verdict = search.verdict
    met = None if verdict is None or verdict.worst is None else verdict.ok
    return trials.pass_keeping(keep_set), KeepSearchResult(
        keep_set.reasons, keep_set.stored, search.verdict, met
    )


@dataclass
class _KeepSearch:
    """The search on one model.

    Attributes:
        trials: The model and its candidates.
        tolerance: The largest allowed difference.
        safety: The promise of the passes before.
        cases: Inputs to try.
        budget: What may be spent.
        dims: Sizes of all cases, by the name of the symbolic dim.
        use_all_cases: Whether candidates are run on all cases of verification instead, which has
            more, garbage in the padding among them.
        verdict: On the last candidate.
    """

    trials: Trials
    tolerance: Tolerance
    safety: Safety
    cases: list[Case]
    budget: SearchBudget
    dims: Mapping[str, Sequence[int]] = field(default_factory=dict)
    use_all_cases: bool = False
    verdict: Verdict | None = None

    @cached_property
    def _original(self) -> LoadedOriginal:
        return self._original_on(None if self.use_all_cases else self.cases)

    def _original_on(self, cases: list[Case] | None) -> LoadedOriginal:
        before = self.trials.before
        return LoadedOriginal(
            before,
            cases=cases,
            dims=self.dims or None,
            tolerance=self.tolerance,
            safety=self.safety,
            budget=self.budget.seconds,
        )

    def run(self, known: KeepSet, *, loud: bool) -> KeepSet:
        """Return the nodes that must stay in float32.

        Args:
            known: Those that a search before this one found; empty if there was none.
            loud: Whether to search the cases of verification, too, for overflows on a device, which
                the CPU does not show: it keeps float32 between operators.
        """
        try:
            Session(self.trials.build_candidate(known), optimize=False).close()
        except ModelError:
            return KeepSet()  # verification says why, and the model is not converted
        keep_set = known if known.reasons else self._find_all_overflows(loud=loud)
        if not self._passes_gate(keep_set):
            missed = {x for x, reason in keep_set.reasons.items() if reason.startswith(_MISSED)}
            overflows = {x: y for x, y in keep_set.reasons.items() if x not in missed}
            keep_set = self._bisect_stretch(KeepSet(overflows), missed)
        with contextlib.suppress(SpentError):
            keep_set = self._store_weights(keep_set)
        return keep_set

    def _find_all_overflows(self, *, loud: bool) -> KeepSet:
        """Return what overflows in the cases of the search, and if ``loud`` in all."""
        keep_set = self._add_overflows(KeepSet(), extreme_cases(self.cases), _RANGES_SHARE)
        if loud and (demanding := self._demanding_cases(keep_set)):
            keep_set = self._add_overflows(keep_set, demanding, _DEMANDING_SHARE)
        return keep_set

    def _add_overflows(self, keep_set: KeepSet, cases: Sequence[Case], share: float) -> KeepSet:
        """Add what overflows in some cases, as far as a share of the time is enough."""
        has_time = partial(self.budget.has_time, share)
        return keep_set.with_reasons(find_overflows(self.trials, keep_set, cases, has_time))

    # Candidates

    def _demanding_cases(self, keep_set: KeepSet) -> list[Case]:
        """Return the cases in which a candidate may overflow where float32 has a number.

        Those in which it has NaN or infinity, and the largest with a loud wave or a white picture.
        """
        self.trials.tell("converting to float16: all cases as a device rounds")
        original = self._original_on(None)
        model = emulate_float16(self.trials.build_candidate(keep_set))
        losing_cases: list[Case] = []
        with contextlib.suppress(RunError):
            for case, diffs in self._diff_cases(model, original):
                if not self.budget.has_time(_DEMANDING_SHARE):
                    break
                if any(x.nan_after > x.nan_before or x.inf_after > x.inf_before for x in diffs):
                    losing_cases.append(case)
        full_scale = [x for x in original.cases if x.full_scale and not x.poison]
        largest = max(full_scale, key=lambda case: case.element_count, default=None)
        more = [] if largest is None or largest in losing_cases else [largest]
        return [*losing_cases[:_MOST_LOSING_CASES], *more]

    def _passes_gate(self, keep_set: KeepSet) -> bool:
        """Return whether a candidate meets the gate, as a device rounds and as the CPU does.

        Raises:
            SpentError: No other candidate may be tried.
        """
        self.budget.take_try()
        self.trials.tell(f"converting to float16: trying with {len(keep_set)} kept")
        candidate = self.trials.build_candidate(keep_set)
        self.verdict = self._judge_model(emulate_float16(candidate))
        if self.verdict.ok:
            self.verdict = self._judge_model(candidate, as_is=True)
        return self.verdict.ok

    def _judge_model(self, model: ir.Model, *, as_is: bool = False) -> Verdict:
        """Return the verdict on a candidate, up to the first case that fails."""
        diffs_by_case: dict[str, tuple[OutputDiff, ...]] = {}
        try:
            for case, diffs in self._diff_cases(model, self._original, as_is=as_is):
                diffs_by_case[case.name] = diffs
                if not all(x.ok for x in diffs):
                    return Verdict(False, diffs_by_case)
        except (ModelError, RunError) as error:
            return Verdict(False, diffs_by_case, reason=str(error))
        return Verdict(True, diffs_by_case)

    def _diff_cases(
        self, model: ir.Model, original: LoadedOriginal, *, as_is: bool = False
    ) -> Iterator[tuple[Case, tuple[OutputDiff, ...]]]:
        """Yield each case with how far a model is from the original."""
        model = seed_model(model) if first_random_node(model) is not None else model
        with Session(model, optimize=False) as session:
            for i, case in enumerate(original.cases):
                more = self.trials.chosen.feeds(case.feeds) if as_is else None
                yield case, original.compare_case(session, i, more)

    # The gate is missed

    def _bisect_stretch(self, keep_set: KeepSet, too_few: Collection[str] = ()) -> KeepSet:
        """Add the shortest stretch of the graph that must stay, without the parts that need not.

        If no more may be tried, it is the shortest that was found to be enough.

        Args:
            keep_set: What stays in any case.
            too_few: What a search before this one has added.
        """
        names = [first_tensor_name(x) for x in self.trials.float_nodes]
        shortest, verdict, reason = names, None, _MISSED

        def passes_with(stretch: list[str]) -> bool:
            nonlocal shortest, verdict
            passes = self._passes_gate(keep_set.with_reasons(dict.fromkeys(stretch, _MISSED)))
            if passes:
                shortest, verdict = stretch, self.verdict
            return passes

        try:
            self._drop_parts(self._find_stretch(names, too_few, passes_with), passes_with)
            if verdict is None:
                passes_with(names)  # even that may miss it: inputs are rounded as well
        except SpentError:
            reason = f"{_MISSED}, as far as was tried: the search ended after {self.budget.spent}"
        self.verdict = verdict or self.verdict
        return keep_set.with_reasons(dict.fromkeys(shortest, reason))

    def _find_stretch(
        self,
        names: list[str],
        too_few: Collection[str],
        passes_with: Callable[[list[str]], bool],
    ) -> list[str]:
        """Return the shortest stretch that is enough, with what was too few by itself."""

        def with_known(stretch: Collection[str]) -> list[str]:
            return [x for x in names if x in stretch or x in too_few]

        scores = with_known(set(_score_node_names(self.trials.float_nodes)))
        if len(scores) > len(too_few) and passes_with(scores):
            return scores
        end = _least_passing(len(names), lambda n: passes_with(with_known(set(names[:n]))))
        size = _least_passing(end, lambda n: passes_with(with_known(set(names[end - n : end]))))
        return with_known(set(names[end - size : end]))

    def _drop_parts(self, names: list[str], passes_with: Callable[[list[str]], bool]) -> None:
        """Try ever smaller parts of a stretch that is enough: it may be so without them."""
        size, least = len(names) // 2, len(names) // _MOST_PARTS
        while size > least:
            for start in reversed(range(0, len(names), size)):
                fewer = names[:start] + names[start + size :]
                if fewer and passes_with(fewer):
                    names = fewer
            size //= 2

    # Weights

    def _store_weights(self, keep_set: KeepSet) -> KeepSet:
        """Store large weights of the kept nodes in float16, if the gate is still met."""
        if self.verdict is None or not self.verdict.ok or not hasattr(self.trials.chosen, "store"):
            return keep_set
        passed, names = self.verdict, self._heavy_weights(keep_set)
        if names and self._passes_gate(more := replace(keep_set, stored=names)):
            return more
        self.verdict = passed
        return keep_set

    def _heavy_weights(self, keep_set: KeepSet) -> tuple[str, ...]:
        """Return large float32 weights, except those that the user wants in float32."""

        def is_user_choice(node: ir.Node) -> bool:
            reason = node.metadata_props.get(KEPT_IN_FLOAT32_KEY, "")
            return (
                reason.startswith(_USER_REASONS) and first_tensor_name(node) not in keep_set.reasons
            )

        return tuple(
            value.name or ""
            for value, tensor in _constant_tensors(self.trials.build_candidate(keep_set).graph)
            if tensor.dtype == ir.DataType.FLOAT
            and tensor.size > _LARGE_WEIGHT
            and not value.is_graph_input()
            and not any(is_user_choice(use.node) for use in value.uses())
        )


def _known_dims(model: ir.Model, dims: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Return the sizes of dims that the model still has."""
    names = {str(d) for x in model.graph.inputs for d in x.shape or ()}
    return {name: sizes for name, sizes in dims.items() if name in names}


def _trial_cases(
    model: ir.Model, dims: Mapping[str, Sequence[int]], feeds: Feeds | None
) -> list[Case]:
    """Return the cases that candidates are tried on: as many as cost little, at least the cheapest.

    Each is run dozens of times; verification runs them all.
    """
    if feeds is not None:
        return [Case("feeds", {}, dict(add_full_lengths(model, feeds)))]
    cases = list(make_cases(model, dims=dims or None))
    signature = Signature(model)
    work = RunCost(signature)
    costs = [work.multiplications_at(signature.group_sizes(case.dims)) for case in cases]
    chosen: set[int] = set()
    budget = _WORK
    for i in sorted(range(len(cases)), key=costs.__getitem__):
        budget -= costs[i]
        if budget >= 0 or not chosen:
            chosen.add(i)
    return [x for i, x in enumerate(cases) if i in chosen]


def _score_node_names(nodes: Sequence[ir.Node]) -> list[str]:
    """Return the nodes from products with weights up to a Softmax, by their first tensors.

    They hold fewer weights than any stretch of the graph that includes them all.
    """
    candidates = set(nodes)

    def score_predecessors(node: ir.Node) -> Collection[ir.Node]:
        weights = (x.const_value for x in node.inputs if x is not None)
        weighs = any(x is not None and x.size > _LARGE_WEIGHT for x in weights)
        return () if weighs else candidates.intersection(node.predecessors())

    producers = set(reachable_from((x for x in nodes if is_op(x, "Softmax")), score_predecessors))
    return [first_tensor_name(x) for x in nodes if x in producers]


def _least_passing(most: int, passes: Callable[[int], bool]) -> int:
    """Return the least number that passes, if all above it do; ``most`` is assumed to pass."""
    return 1 + bisect.bisect_left(range(1, most), True, key=passes)


def _constant_tensors(graph: ir.Graph) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    """Yield the tensors that a graph holds: initializers, and those of its Constant nodes."""
    for value in graph.initializers.values():
        if value.const_value is not None:
            yield value, value.const_value
    for node in graph:
        attribute = node.attributes.get("value") if is_op(node, "Constant") else None
        if attribute is not None and not attribute.is_ref():
            yield node.outputs[0], attribute.as_tensor()


def mark_reasons(model: ir.Model, reasons: Mapping[str, str]) -> None:
    """Write into the metadata of nodes why they stay in float32."""
    for node in nodes_of(model.graph):
        if (reason := reasons.get(first_tensor_name(node))) is not None:
            node.metadata_props[KEPT_IN_FLOAT32_KEY] = reason
