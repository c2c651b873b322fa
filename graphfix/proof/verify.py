"""Verification: run two models on many inputs and compare every output."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypedDict, Unpack, get_args

import onnx_ir as ir

from graphfix.caches.cache_input import CacheInput
from graphfix.core import Interface, Safety
from graphfix.errors import ModelError, UsageError
from graphfix.feeds.case import Case
from graphfix.feeds.full_lengths import add_full_lengths
from graphfix.feeds.graph_uses import describe_node
from graphfix.feeds.states import carry_states
from graphfix.files import given, io
from graphfix.paths import StrPath
from graphfix.proof import output_record as known
from graphfix.proof.baseline import Baseline, BaselineCache, OriginalRun, Outputs
from graphfix.proof.between_roundings import RoundingSegments
from graphfix.proof.budget import SECONDS, Budget
from graphfix.proof.compare import Array, Mask, OutputDiff, Tolerance, computes_in_half
from graphfix.proof.default_session import DefaultSessionCheck
from graphfix.proof.first_difference import Divergence, find_divergence
from graphfix.proof.forced_branches import ForcedBranches
from graphfix.proof.inner_tensors import ModelRun
from graphfix.proof.interface import list_interface_changes
from graphfix.proof.judge import OutputJudge
from graphfix.proof.verdict import Verdict
from graphfix.runtime.compared_session import Opened, open_session
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Feeds
from graphfix.runtime.provider import LABELS, Ep
from graphfix.runtime.python import require_provider
from graphfix.runtime.random_nodes import first_random_node, seed_model
from graphfix.runtime.run_errors import RunError

Progress = Callable[[str], None]
Diffs = tuple[OutputDiff, ...]

__all__ = [
    "BaselineCache",
    "Divergence",
    "LoadedOriginal",
    "OutputDiff",
    "Tolerance",
    "Verdict",
    "verify",
]


# So many cases are usual, for the progress.
_USUAL = 18


class Options(TypedDict, total=False):
    """Options of :func:`verify`.

    Attributes:
        cases: The inputs; by default :func:`graphfix.feeds.case_search.make_cases` makes them.
        dims: Sizes to use, by the name of the symbolic dim.
        feeds: The user's own inputs, an ``.npz`` or arrays by name; no others are used.
        tolerance: What may differ, :class:`Tolerance` by default. A model that computes in float16
            may differ a hundred times more (``Tolerance.half``).
        safety: With ``"valid-rows"`` only content is compared, not what padding was made into,
            and elements that are NaN in the original are left out. Otherwise everything is.
        map_feeds: Makes inputs for ``after`` from those for ``before``, where a repair changed
            the signature. A length input that a repair has added is filled in by itself: all valid.
        may_change: What of the interface need not stay, see
            :func:`graphfix.proof.interface.list_interface_changes`; by default nothing, or the
            inputs if there is ``map_feeds``.
        ep: Where ``after`` runs. With ``"dml"`` or ``"cuda"`` it runs there with all
            optimizations, as it will be used, and is held to what ``before`` computes on the CPU;
            ``before`` need not run there.
        locate: Whether to search for the first tensor that differs, if the verdict is bad; and for
            the node that kills the process, if one does. It is by default.
        seed: The same seed makes the same inputs.
        held: Takes what the original computed, so that the next call need not run it again.
        brief: Whether the first case that differs is enough, and no others are run.
        budget: How many seconds it may take, about: of a slow model fewer and smaller cases are
            tried, and what is left is said. A minute by default.
        progress: Called with a short text at each step.
    """

    cases: Sequence[Case] | None
    dims: Mapping[str, int | Sequence[int]] | None
    feeds: StrPath | Mapping[str, Array] | None
    tolerance: Tolerance | None
    safety: Safety
    map_feeds: Callable[[Feeds], Feeds] | None
    may_change: Collection[Interface] | None
    ep: Ep
    locate: bool
    seed: int
    held: BaselineCache | None
    brief: bool
    budget: float | None
    progress: Progress | None


def verify(before: given.ModelLike, after: given.ModelLike, **options: Unpack[Options]) -> Verdict:
    """Run both models on the same inputs and compare every output.

    Both run on the CPU without ONNX Runtime's own graph optimizations, one after the other, so
    that only one set of weights is in memory; then on two cases with all of them, as users open a
    session. If a mask or length input says what is padding,
    cases are repeated with garbage there: rows that the original keeps clean must stay clean.

    Args:
        before: The original: a path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
        after: The repaired model.
        options: See :class:`graphfix.proof.verify.Options`.

    Raises:
        ModelError: The original cannot be read, or ONNX Runtime rejects it.
        FeedError: There are no inputs that the original runs.
        UsageError: The provider that is asked for is unavailable.
    """
    given.refuse_unknown_options(options, Options)
    ep, safety = options.get("ep", "cpu"), options.get("safety", "exact")
    given.require_valid_choices(ep=(ep, get_args(Ep)), safety=(safety, get_args(Safety)))
    if not isinstance(options.get("tolerance"), Tolerance | None):
        raise UsageError(f"tolerance={options['tolerance']!r}: give a graphfix.Tolerance")
    require_provider(ep)
    job = _Verification(given.as_path_or_model(before), given.as_path_or_model(after), options)
    cache = options.get("held")
    if cache is None or not job.load_from(cache):
        job.run_before()
        if cache is not None:
            job.store_in(cache)
    verdict = job.run_after()
    if cache is not None:
        cache.failed += [x for x in verdict.failed if x not in cache.failed]
    if not verdict.ok and not verdict.reason and job.locates:
        verdict = replace(verdict, first_divergence=job.find_divergence(verdict))
    return verdict


class LoadedOriginal:
    """A model that is run once, and with whose outputs many others are compared.

    Args:
        model: The original; it is not changed.
        cases: The inputs; by default they are made as :func:`verify` makes them.
        tolerance: What may differ.
        safety: As for :func:`verify`.

    Raises:
        FeedError: There are no inputs that it runs.
        ModelError: ONNX Runtime rejects it.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        cases: Sequence[Case] | None = None,
        tolerance: Tolerance,
        safety: Safety,
    ) -> None:
        self._job = _Verification(
            model, model, {"cases": cases, "tolerance": tolerance, "safety": safety}
        )
        self._job.run_before()
        self.cases = [run.case for run in self._job.runs]

    def compare_case(self, session: Session, index: int, more: Feeds | None = None) -> Diffs:
        """Return the differences of a loaded model from the original in one of :attr:`cases`.

        Args:
            session: The model; one that draws random numbers is no use.
            index: Which case.
            more: Arrays for inputs that the original has not.

        Raises:
            RunError: An operator failed.
        """
        return self._job.compare_case(session, index, more or {})


class _Verification:
    """One verification."""

    def __init__(
        self, before: given.PathOrModel, after: given.PathOrModel, options: Options
    ) -> None:
        self._options = options
        self._ep = options.get("ep", "cpu")
        self.locates = options.get("locate", True)
        self._before, self._after = before, after
        self._graph = before if isinstance(before, ir.Model) else io.load(before)
        if first_random_node(self._graph) is not None:
            self._before = self._graph = seed_model(self._graph)
            self._after = seed_model(after if isinstance(after, ir.Model) else io.load(after))
        tolerance = options.get("tolerance") or Tolerance()
        self._tolerance = tolerance.for_half() if computes_in_half(self._graph) else tolerance
        self._safety = options.get("safety", "exact")
        self._map_feeds = options.get("map_feeds")
        self._progress = options.get("progress") or (lambda _: None)
        self._steps_done = 0
        self._forced: Sequence[OriginalRun] = ()
        self._untaken: Sequence[str] = ()
        self._original = Baseline(
            self._before,
            self._graph,
            lambda: self._repaired_model,
            self._tolerance,
            self._report_progress,
            Budget(options.get("budget") or SECONDS),
        )

    def load_from(self, cache: BaselineCache) -> bool:
        """Take over the original's runs from ``cache`` if it has them; return whether it had."""
        if cache.original is None or first_random_node(self._graph) is not None:
            return False
        self._original = cache.original
        return True

    def store_in(self, cache: BaselineCache) -> None:
        """Store the original's runs in ``cache``."""
        self._original.forget_repaired()
        cache.original = self._original

    def run_before(self) -> None:
        """Find the cases and run the original on them."""
        options = self._options
        self._original.run_cases(
            options.get("cases"),
            given.sizes_by_dim(options.get("dims")),
            given.normalize_feeds(options.get("feeds")),
            options.get("seed", 0),
        )

    @cached_property
    def _judge(self) -> OutputJudge:
        cut = {name: axis for x in self._fixed_caches for _, name, axis in x.states}
        return OutputJudge(self._original.content, self._tolerance, self._safety, cut)

    @property
    def runs(self) -> Sequence[OriginalRun]:
        """Return the original's run of each case that a gate is about."""
        return [
            x for x in self._original.runs if not (self._tolerance.whole and x.case.large_caches)
        ]

    def compare_case(self, session: Session, index: int, more: Feeds) -> Diffs:
        """Run a loaded model on one case and compare its outputs."""
        run = self.runs[index]
        self._judge.may_narrow = True
        return tuple(
            self._judge.compare_case(run, session.run({**self._repaired_feeds(run.case), **more}))
        )

    def run_after(self) -> Verdict:
        """Run the repaired model on the same inputs and compare."""
        usual: tuple[Interface, ...] = () if self._map_feeds is None else ("inputs",)
        allowed_changes = self._options.get("may_change")
        may_change = usual if allowed_changes is None else allowed_changes
        brief, cache = self._options.get("brief", False), self._options.get("held")
        suspects = cache.failed if brief and cache is not None else ()
        self._judge.may_narrow = "outputs" in may_change
        diffs_by_case: dict[str, Diffs] = {}
        try:
            session = open_session(self._after, self._ep)
        except ModelError as error:
            where = "in ONNX Runtime" if self._ep == "cpu" else f"on {LABELS[self._ep]}"
            reason = f"the repaired model does not load {where}: {error}"
            reason += self._killing_node_text(error, self._original.runs[0].case)
            return self._make_verdict(False, diffs_by_case, reason)
        with session:
            self._steps_done = len(self._original.runs)
            for run in sorted(self.runs, key=lambda x: x.case.name not in suspects):
                outputs = self._run_step(session, run.case, self._repaired_feeds(run.case))
                if isinstance(outputs, str):
                    return self._make_verdict(False, diffs_by_case, outputs)
                diffs_by_case[run.case.name] = self._compare_run(run, outputs)
                if brief and not all(x.ok for x in diffs_by_case[run.case.name]):
                    return self._make_verdict(False, diffs_by_case)
            for chain in self._original.chains:
                own: Feeds = {}
                for case, before in zip(chain.cases, chain.outputs, strict=True):
                    if any(x.cache_length(case.feeds) > x.size for x in self._fixed_caches):
                        break  # the first entries have fallen out of the caches
                    outputs = self._run_step(session, case, {**self._repaired_feeds(case), **own})
                    if isinstance(outputs, str):
                        return self._make_verdict(False, diffs_by_case, outputs)
                    diffs_by_case[case.name] = tuple(
                        self._judge.compare_case(OriginalRun(case, dict(before)), outputs)
                    )
                    own = carry_states(chain.states, self._repaired_model, outputs) or {}
        if len(self.runs) < len(self._original.runs):
            self._judge.notes["float16 is not held to caches larger than the model's own"] = None
        forcing = ForcedBranches(
            self._original, self._graph, self._repaired_model, self._ep, self._report_progress
        )
        self._forced, self._untaken = forcing.runs, forcing.untaken
        try:
            for run, forced_outputs in forcing.run_both(self._repaired_feeds):
                diffs_by_case[run.case.name] = tuple(self._judge.compare_case(run, forced_outputs))
        except ModelError as error:
            return self._make_verdict(False, diffs_by_case, str(error))
        ok = all(diff.ok for diffs in diffs_by_case.values() for diff in diffs)
        if self._ep != "cpu":
            where = LABELS[self._ep]
            self._judge.notes[f"the repaired model ran on {where}, the original on the CPU"] = None
        if not ok and (node := first_random_node(self._graph)) is not None:
            self._judge.notes[
                f"the original draws random numbers ({describe_node(node)}), "
                "so its outputs differ from run to run"
            ] = None
        reasons: list[str] = []
        if ok:
            reasons += known.find_faults(diffs_by_case)
            ran = self._original.runs[0].outputs
            ranks = {name: x.ndim for name, x in ran.items() if hasattr(x, "ndim")}
            changes = list_interface_changes(self._graph, self._repaired_model, may_change, ranks)
            if changes:
                reasons.append(f"it {'; it '.join(changes)}")
            self._judge.notes.update(dict.fromkeys(known.find_notes(diffs_by_case)))
        if ok and not reasons:
            opened = DefaultSessionCheck(
                self._after, self._original, self._judge, self._repaired_feeds, self.runs
            )
            random = first_random_node(self._graph) is not None
            reasons += filter(None, [opened.find_fault(random=random, locate=self.locates)])
        return self._make_verdict(ok and not reasons, diffs_by_case, "; ".join(reasons))

    def _compare_run(self, run: OriginalRun, outputs: Outputs) -> Diffs:
        """Compare outputs with the original's; in a quantized model also between its roundings."""
        diffs = tuple(self._judge.compare_case(run, outputs))
        worst = max((x for x in diffs if not x.ok), key=lambda x: x.excess_ratio, default=None)
        if worst is None or worst.reason.startswith("has shape"):
            return diffs
        segment_outputs = self._rounding_segments.compare_segments(
            run.case.feeds, self._repaired_feeds(run.case)
        )
        segment_diffs = (
            diffs
            if segment_outputs is None
            else tuple(self._judge.compare_case(run, segment_outputs))
        )
        if all(x.ok for x in segment_diffs):
            self._judge.notes[
                f"output {worst.output!r} {worst.reason}, since what is quantized is rounded the "
                f"other way in places, in case {worst.case!r}; given the same whole numbers, both "
                "models make the same of them"
            ] = None
            return segment_diffs
        return diffs

    @cached_property
    def _rounding_segments(self) -> RoundingSegments:
        return RoundingSegments(self._graph, self._repaired_model, self._tolerance, self._ep)

    def _run_step(self, session: Opened, case: Case, feeds: Feeds) -> Outputs | str:
        """Run the repaired model on a case; return its outputs, or why it does not run."""
        self._report_progress(f"after, {case.name}")
        try:
            return session.run(feeds)
        except RunError as error:
            where = "" if self._ep == "cpu" else f" on {LABELS[self._ep]}"
            reason = f"the repaired model does not run{where}, in case {case.name!r}: {error}"
            return reason + self._killing_node_text(error, case)

    def _killing_node_text(self, error: Exception, case: Case) -> str:
        """Return at which node the process died, if it did and that is to be found."""
        if not self.locates:
            return ""
        from graphfix.runtime import killing_node

        def run_model(model: ir.Model) -> None:
            with Session(model, ep=self._ep, optimize=self._ep != "cpu") as session:
                session.run(self._repaired_feeds(case))

        return killing_node.killing_node_text(error, self._repaired_model, run_model)

    def _make_verdict(self, ok: bool, diffs_by_case: dict[str, Diffs], reason: str = "") -> Verdict:
        original = self._original
        steps = [case for chain in original.chains for case in chain.cases]
        cases = [*(run.case for run in (*self.runs, *self._forced)), *steps]
        dims = {case.name: case.dims for case in cases if case.name in diffs_by_case}
        notes = (
            *original.notes,
            *self._judge.notes,
            *original.leak_notes(self._judge.harmless_poisons),
        )
        compared = {name for name, diffs in diffs_by_case.items() if any(d.finite for d in diffs)}
        tried = original.coverage_of(compared)
        over = (str(original.budget),) if original.budget.over else ()
        dear = tuple(f"{name} (too large)" for name in dict.fromkeys(original.left_out))
        return Verdict(
            ok,
            diffs_by_case,
            tuple(original.dropped),
            reason,
            notes,
            dims=dims,
            covered=(*tried.covered, *dict.fromkeys(map(str, original.chains))),
            not_tried=(*tried.missing, *self._untaken, *dear, *over),
        )

    def _repaired_feeds(self, case: Case) -> Feeds:
        feeds = self._map_feeds(case.feeds) if self._map_feeds is not None else case.feeds
        for cache in self._fixed_caches:
            feeds = cache.pad_feeds(feeds)
        return add_full_lengths(self._repaired_model, feeds)

    @cached_property
    def _fixed_caches(self) -> list[CacheInput]:
        """Return the caches whose size the repair fixed."""
        original_caches = CacheInput.all_from_metadata(self._graph)
        return [
            x
            for x in CacheInput.all_from_metadata(self._repaired_model)
            if x not in original_caches
        ]

    @cached_property
    def _repaired_model(self) -> ir.Model:
        return self._after if isinstance(self._after, ir.Model) else io.load(self._after)

    def _report_progress(self, text: str) -> None:
        # How many cases there are is known only when the original has run them.
        total = 2 * max(len(self._original.runs), _USUAL)
        self._progress(f"{min(self._steps_done, total)}/{total}: {text}")
        self._steps_done += 1

    # Where they part

    def find_divergence(self, verdict: Verdict) -> Divergence | None:
        """Return the first tensor that both graphs have and whose values differ."""
        failed = set(verdict.failed)
        runs = [run for run in self.runs if run.case.name in failed]
        runs = runs or [run for run in self._forced if run.case.name in failed]
        chains = self._original.chains
        steps = (step for x in chains for step in zip(x.cases, x.outputs, strict=True))
        runs = runs or [
            OriginalRun(case, dict(outputs)) for case, outputs in steps if case.name in failed
        ]
        # Garbage on its way through the padding is no divergence: better a case without.
        run = min(runs, key=lambda r: (bool(r.case.poison), r.case.element_count), default=None)
        if run is None:
            return None
        case, content = run.case, None
        if case.is_ragged and (case.poison or self._safety == "valid-rows"):
            value_dims = self._original.signature.value_dims()

            def content(name: str, shape: tuple[int, ...]) -> Mask | None:
                return self._original.content.mask_for_dims(value_dims.get(name), shape, case)

        self._report_progress(f"where they part, {case.name}")
        return find_divergence(
            ModelRun(self._before, self._graph, case.feeds),
            ModelRun(self._after, self._repaired_model, self._repaired_feeds(case), self._ep),
            case.name,
            self._tolerance,
            content,
        )
