"""Verification: run two models on many inputs and compare every output."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypedDict, Unpack, get_args

import onnx_ir as ir

from graphfix.cache_axes.cache_input import CacheInput
from graphfix.core import Interface, Readings, Safety
from graphfix.errors import ModelError, UsageError
from graphfix.feeds.case import Case
from graphfix.feeds.case_search import check_sizes
from graphfix.feeds.full_lengths import add_full_lengths
from graphfix.feeds.graph_uses import node_title
from graphfix.feeds.states import StatePair, carry_states
from graphfix.feeds.user_feeds import check_feeds, read_feeds
from graphfix.files import io
from graphfix.files import model_input as given
from graphfix.paths import StrPath
from graphfix.proof import output_record
from graphfix.proof.allowance import USUAL
from graphfix.proof.baseline import (
    Baseline,
    BaselineCache,
    Channels,
    OriginalRun,
    Outputs,
    runs_of,
)
from graphfix.proof.between_roundings import RoundingSegments
from graphfix.proof.budget import SECONDS, Budget
from graphfix.proof.by_channel import Diffs, compare_by_channel, scales_of
from graphfix.proof.compare import Array, Mask, OutputDiff, Tolerance
from graphfix.proof.declared_shapes import DeclaredShapes, Place
from graphfix.proof.default_session import DefaultSessionCheck
from graphfix.proof.first_difference import Divergence, find_divergence
from graphfix.proof.forced_branches import ForcedBranches
from graphfix.proof.half_outputs import (
    computes_in_half,
    count_half_roundings,
    values_behind_half,
)
from graphfix.proof.inner_tensors import ModelRun
from graphfix.proof.interface import list_interface_changes, list_unfit_feeds
from graphfix.proof.judge import OutputJudge
from graphfix.proof.rankings import rankings_of
from graphfix.proof.state_steps import StepChain
from graphfix.proof.verdict import Verdict
from graphfix.providers.table import EVERYWHERE, PROVIDERS, Ep
from graphfix.runtime.compared_session import Opened, open_session
from graphfix.runtime.local_session import Session
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.runtime.port import Feeds
from graphfix.runtime.python import require_provider
from graphfix.runtime.random_nodes import first_random_node, seed_model
from graphfix.runtime.run_errors import RunError

Progress = Callable[[str], None]
# Returns the scales of channels with how far the original differs from itself.
NoisyScales = Callable[[], Channels]

__all__ = [
    "BaselineCache",
    "Divergence",
    "LoadedOriginal",
    "OutputDiff",
    "Tolerance",
    "Verdict",
    "verify",
]


# The usual number of cases, which progress assumes until the original has run them.
_USUAL_CASES = 18
# So many sizes are named at which a graph decides and that no case has.
_MOST_UNMET = 3


class Options(TypedDict, total=False):
    """Options of :func:`verify`.

    ``graphfix.verify`` takes ``tolerance``, ``safety``, ``map_feeds``, ``read_outputs``,
    ``add_references`` and ``may_change``, where they are not given, from the passes that ``after``
    says it went through.

    Attributes:
        cases: The inputs; by default :func:`graphfix.feeds.case_search.make_cases` makes them.
        dims: Sizes to use, by the name of the symbolic dim.
        feeds: The user's own inputs, an ``.npz`` or arrays by name; no others are used.
        tolerance: What may differ, :class:`Tolerance` by default. A model that computes in float16
            may differ a hundred times more (``Tolerance.half``).
        safety: With ``"valid-rows"`` only content is compared, not the results of padding, and
            elements that are NaN in the original are excluded. Otherwise all elements are compared.
        map_feeds: Returns inputs for ``after`` from those for ``before``, if a repair changed the
            signature. A length input that a repair has added is filled in automatically: all valid.
        read_outputs: Returns the outputs of ``before``, as those of ``after`` tell them, from the
            outputs of both, if a repair changed which outputs there are.
        add_references: Adds outputs to ``before`` that ``after`` has besides.
        may_change: Parts of the interface that need not stay, see
            :func:`graphfix.proof.interface.list_interface_changes`; by default nothing, or the
            inputs if there is ``map_feeds``.
        ep: Where ``after`` runs. With another provider than ``"cpu"`` it runs there with all
            optimizations, as it will be used, and is compared with ``before`` on the CPU;
            ``before`` need not run there.
        locate: Whether to search for the first tensor that differs, if the verdict is bad; and for
            the node that kills the process, if one does. It is by default.
        seed: The same seed makes the same inputs.
        held: Stores what the original computed, so that the next call need not run it again.
        brief: Whether to stop at the first case that differs.
        budget: About how many seconds it may take, a minute by default, or a
            :class:`graphfix.proof.budget.Budget`. Of a slow model fewer and smaller cases are
            tried, and the verdict names those that were not.
        progress: Called with a short text at each step.
    """

    cases: Sequence[Case] | None
    dims: Mapping[str, int | Sequence[int]] | None
    feeds: StrPath | Mapping[str, Array] | None
    tolerance: Tolerance | None
    safety: Safety
    map_feeds: Callable[[Feeds], Feeds] | None
    read_outputs: Callable[[Readings, Readings], Readings] | None
    add_references: Callable[[ir.Model], None] | None
    may_change: Collection[Interface] | None
    ep: Ep
    locate: bool
    seed: int
    held: BaselineCache | None
    brief: bool
    budget: float | Budget | None
    progress: Progress | None


@raises_own_errors
def verify(before: given.ModelLike, after: given.ModelLike, **options: Unpack[Options]) -> Verdict:
    """Compare two models as the options say, whatever the models say of themselves.

    :func:`graphfix.verify`, which has the same arguments and errors, completes the options by the
    passes that ``after`` went through.
    """
    given.refuse_unknown_options(options, Options)
    ep, safety = options.get("ep", "cpu"), options.get("safety", "exact")
    given.require_valid_choices(ep=(ep, EVERYWHERE), safety=(safety, get_args(Safety)))
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
        dims: Sizes to use where cases are made, by the name of the symbolic dim.
        tolerance: The largest allowed difference.
        safety: As for :func:`verify`.
        budget: As for :func:`verify`.

    Raises:
        FeedError: There are no inputs that it runs.
        ModelError: ONNX Runtime rejects it.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        cases: Sequence[Case] | None = None,
        dims: Mapping[str, Sequence[int]] | None = None,
        tolerance: Tolerance,
        safety: Safety,
        budget: float | None = None,
    ) -> None:
        options: Options = {
            "cases": cases,
            "dims": dims,
            "tolerance": tolerance,
            "safety": safety,
            "budget": budget,
        }
        self._job = _Verification(model, model, options)
        self._job.run_before()
        self.cases = [run.case for run in self._job.runs]

    def compare_case(self, session: Session, index: int, more: Feeds | None = None) -> Diffs:
        """Return the differences of a loaded model from the original in one of :attr:`cases`.

        Args:
            session: The model; one that draws random numbers is no use.
            index: Which case.
            more: Arrays for inputs that only the repaired model has.

        Raises:
            RunError: An operator failed.
        """
        return self._job.compare_case(session, index, more or {})


def _with_references(
    model: ir.Model, source: given.PathOrModel, add_references: Callable[[ir.Model], None]
) -> ir.Model:
    """Return the original with more outputs, as a copy if it is not loaded for this alone."""
    extended = model.clone() if model is source else model
    add_references(extended)
    return extended


def _as_budget(budget: float | Budget | None) -> Budget:
    return budget if isinstance(budget, Budget) else Budget(budget or SECONDS)


class _RepairedFailedError(Exception):
    """The repaired model does not load or run; the message says so in a sentence."""


class _Verification:
    """One verification of a repaired model against its original."""

    def __init__(
        self, before: given.PathOrModel, after: given.PathOrModel, options: Options
    ) -> None:
        self._options = options
        self._ep = options.get("ep", "cpu")
        self.locates = options.get("locate", True)
        self._before, self._after = before, after
        self._graph = before if isinstance(before, ir.Model) else io.load(before)
        if (add_references := options.get("add_references")) is not None:
            self._before = self._graph = _with_references(self._graph, self._before, add_references)
        if first_random_node(self._graph) is not None:
            self._before = self._graph = seed_model(self._graph)
            self._after = seed_model(after if isinstance(after, ir.Model) else io.load(after))
        self._gate = options.get("tolerance") or USUAL
        in_half = computes_in_half(self._graph)
        self._tolerance = self._gate.for_half() if in_half else self._gate
        self._safety = options.get("safety", "exact")
        self._map_feeds = options.get("map_feeds")
        self._progress = options.get("progress") or (lambda _: None)
        self._steps_done = 0
        self._diffs_by_case: dict[str, Diffs] = {}
        self._false_dims: dict[Place, str] = {}
        self._allowance = ""
        self._forced: Sequence[OriginalRun] = ()
        self._untaken: Sequence[str] = ()
        self._original = Baseline(
            self._before,
            self._graph,
            lambda: self._repaired_model,
            self._tolerance,
            self._report_progress,
            _as_budget(options.get("budget")),
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
        sizes = given.sizes_by_dim(options.get("dims"))
        feeds = given.normalize_feeds(options.get("feeds"))
        if feeds is not None:
            check_feeds(read_feeds(feeds), self._graph)
        check_sizes(self._graph, sizes)
        self._original.run_cases(options.get("cases"), sizes, feeds, options.get("seed", 0))

    @cached_property
    def _judge(self) -> OutputJudge:
        cut = {name: axis for x in self._fixed_caches for _, name, axis in x.states}
        roundings = count_half_roundings(self._graph)
        return OutputJudge(
            self._original.content,
            self._gate,
            self._safety,
            cut,
            rankings=rankings_of(self._graph),
            read_outputs=self._options.get("read_outputs") or (lambda new, _: new),
            roundings=roundings,
        )

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
        outputs = session.run({**self._repaired_feeds(run.case), **more})
        return self._compare_channels(run, outputs, functools.partial(self._noisy_channels, run))

    def run_after(self) -> Verdict:
        """Run the repaired model on the same inputs and compare."""
        self._judge.may_narrow = "outputs" in self._may_change
        try:
            with self._open_repaired() as session:
                self._steps_done = len(self._original.runs)
                if not self._compare_cases(session):
                    return self._make_verdict(False)
                self._compare_chains(session)
            self._compare_forced_branches()
        except _RepairedFailedError as error:
            return self._make_verdict(False, str(error))
        ok = all(diff.ok for diffs in self._diffs_by_case.values() for diff in diffs)
        self._note_conditions(ok)
        reasons = self._find_faults() if ok else []
        return self._make_verdict(ok and not reasons, "; ".join(reasons))

    @property
    def _may_change(self) -> Collection[Interface]:
        """Return what of the interface need not stay."""
        usual: tuple[Interface, ...] = () if self._map_feeds is None else ("inputs",)
        allowed_changes = self._options.get("may_change")
        return usual if allowed_changes is None else allowed_changes

    def _open_repaired(self) -> Opened:
        """Open a session of the repaired model.

        Raises:
            _RepairedFailedError: It does not load.
        """
        try:
            return open_session(self._after, self._ep)
        except ModelError as error:
            where = "in ONNX Runtime" if self._ep == "cpu" else f"on {PROVIDERS[self._ep].label}"
            reason = f"the repaired model does not load {where}: {error}"
            reason += self._killing_node_text(error, self._original.runs[0].case)
            raise _RepairedFailedError(reason) from error

    def _compare_cases(self, session: Opened) -> bool:
        """Compare all cases; return whether to go on: a brief verdict ends with the first fault.

        Raises:
            _RepairedFailedError: A case does not run.
        """
        brief, cache = self._options.get("brief", False), self._options.get("held")
        suspects = cache.failed if brief and cache is not None else ()
        for run in sorted(self.runs, key=lambda x: x.case.name not in suspects):
            feeds = self._repaired_feeds(run.case)
            outputs = self._run_step(session, run.case, feeds)
            diffs = self._diffs_by_case[run.case.name] = self._compare_run(run, outputs)
            self._compare_declarations(run, feeds, outputs)
            if brief and not all(x.ok for x in diffs):
                return False
        return True

    def _compare_declarations(self, run: OriginalRun, feeds: Feeds, outputs: Outputs) -> None:
        """Note the declared dims of outputs that a run contradicts, and of the original does not.

        DirectML believes a declaration, and ends at a false one.
        """
        own_faults = self._shapes_after.false_dims(feeds, outputs)
        if not own_faults:
            return
        before = self._shapes_before.false_dims(run.case.feeds, run.outputs)
        for place in own_faults.keys() - before.keys():
            self._false_dims.setdefault(place, f"{own_faults[place]} in case {run.case.name!r}")

    def _compare_chains(self, session: Opened) -> None:
        """Compare the steps of a model with states; the repaired model is fed its own.

        Raises:
            _RepairedFailedError: A step does not run.
        """
        for chain in self._original.chains:
            own_states: Feeds = {}
            for number, step in enumerate(runs_of(chain)):
                case = step.case
                if any(x.cache_length(case.feeds) > x.size for x in self._fixed_caches):
                    break  # the first entries have fallen out of the caches
                feeds = {**self._repaired_feeds(case), **own_states}
                outputs = self._run_step(session, case, feeds)
                noisy = functools.partial(self._noisy_step, chain, number)
                self._diffs_by_case[case.name] = self._compare_as_rounded(step, outputs, noisy)
                own_states = self._carry_own_states(chain.states, step, outputs)

    def _carry_own_states(
        self, states: Sequence[StatePair], step: OriginalRun, outputs: Outputs
    ) -> Feeds:
        """Return the states that the repaired model is fed in its next step, under its names."""
        if self._options.get("read_outputs") is None or self._map_feeds is None:
            return carry_states(states, self._repaired_model, outputs) or {}
        readings = self._judge.read_outputs(outputs, step.outputs)
        arrays = {x.input: readings.get(x.output) for x in states}
        return self._map_feeds({name: x for name, x in arrays.items() if x is not None})

    def _compare_forced_branches(self) -> None:
        """Compare both models in branches that no case took.

        Raises:
            _RepairedFailedError: The repaired model does not run with a branch forced.
        """
        if len(self.runs) < len(self._original.runs):
            self._judge.notes["float16 is not held to caches larger than the model's own"] = None
        forcing = ForcedBranches(
            self._original, self._graph, self._repaired_model, self._ep, self._report_progress
        )
        self._forced = forcing.runs
        try:
            for forced, run, outputs in forcing.run_both(self._repaired_feeds):
                # Its outputs may be of another size than what the other branch returns.
                scales = scales_of(run.outputs.items())
                noisy = functools.partial(self._noisy_channels, run, forced, scales)
                diffs = self._compare_as_rounded(run, outputs, noisy, scales=scales)
                self._diffs_by_case[run.case.name] = diffs
        except ModelError as error:
            raise _RepairedFailedError(str(error)) from error
        finally:
            self._untaken = forcing.untaken

    def _note_conditions(self, ok: bool) -> None:
        """Note where the models ran, and that random numbers may be why outputs differ."""
        if self._ep != "cpu":
            where = PROVIDERS[self._ep].label
            self._judge.notes[f"the repaired model ran on {where}, the original on the CPU"] = None
        if not ok and (node := first_random_node(self._graph)) is not None:
            self._judge.notes[
                f"the original draws random numbers ({node_title(node)}), "
                "so its outputs differ from run to run"
            ] = None

    def _find_faults(self) -> list[str]:
        """Return why the repaired model is not the same, although no output differs too much."""
        faults = list(output_record.find_faults(self._diffs_by_case))
        outputs = self._original.runs[0].outputs
        ranks = {name: x.ndim for name, x in outputs.items() if hasattr(x, "ndim")}
        changes = list_interface_changes(self._graph, self._repaired_model, self._may_change, ranks)
        changes += dict.fromkeys(self._false_dims[place] for place in sorted(self._false_dims))
        if changes:
            faults.append(f"it {'; it '.join(changes)}")
        self._judge.notes.update(dict.fromkeys(output_record.find_notes(self._diffs_by_case)))
        if faults:
            return faults
        check = DefaultSessionCheck(
            self._after,
            self._original,
            self._compare_optimized,
            self._repaired_feeds,
            self.runs,
            self._judge.notes,
        )
        random = first_random_node(self._graph) is not None
        return list(filter(None, [check.find_fault(random=random, locate=self.locates)]))

    def _compare_run(self, run: OriginalRun, outputs: Outputs) -> Diffs:
        """Compare outputs with the original's; in a quantized model also between its roundings."""
        noisy = functools.partial(self._noisy_channels, run)
        diffs = self._compare_channels(run, outputs, noisy)
        worst = max((x for x in diffs if not x.ok), key=lambda x: x.excess_ratio, default=None)
        if worst is None or worst.reason.startswith("has shape"):
            return diffs
        segments = self._rounding_segments.compare_segments(
            run.case.feeds, self._repaired_feeds(run.case)
        )
        if segments.outputs is not None:
            segment_diffs = self._compare_channels(run, segments.outputs, noisy)
            if all(x.ok for x in segment_diffs):
                self._judge.notes[
                    f"output {worst.output!r} {worst.reason}, since what is quantized is rounded "
                    f"the other way in places, in case {worst.case!r}; given the same whole "
                    "numbers, both models make the same of them"
                ] = None
                return segment_diffs
            return diffs
        if segments.differing and (self._safety == "exact" or not run.case.is_ragged):
            return diffs  # no rounding is to blame: it differs before one
        return self._widen(run, outputs, noisy, diffs)

    def _compare_channels(
        self,
        run: OriginalRun,
        outputs: Mapping[str, Array],
        noisy: NoisyScales,
        scales: Channels | None = None,
    ) -> Diffs:
        """Compare outputs, each channel with its own scale and with its noise, if that is due."""
        return compare_by_channel(
            functools.partial(self._judge.compare_case, run, outputs),
            scales or self._original.channels,
            noisy,
        )

    def _noisy_channels(
        self,
        run: OriginalRun,
        forced: ir.Model | None = None,
        scales: Channels | None = None,
    ) -> Channels:
        return self._original.noisy_channels(
            run, self._ep, in_half=self._gate.whole, forced=forced, scales=scales
        )

    def _noisy_step(self, chain: StepChain, step: int) -> Channels:
        return self._original.noisy_steps(chain, self._ep, in_half=self._gate.whole)[step]

    def _compare_optimized(self, run: OriginalRun, outputs: Outputs) -> Diffs:
        """Compare outputs of sessions with all optimizations."""
        noisy = functools.partial(self._noisy_channels, run)
        return self._compare_as_rounded(run, outputs, noisy, optimize=True)

    def _compare_as_rounded(
        self,
        run: OriginalRun,
        outputs: Outputs,
        noisy: NoisyScales,
        *,
        optimize: bool = False,
        scales: Channels | None = None,
    ) -> Diffs:
        """Compare outputs; a quantized model may differ as far as the original from itself.

        Args:
            run: The original's run.
            outputs: The repaired model's outputs.
            noisy: Returns the scales of channels with their noise in this run.
            optimize: Whether the sessions have ONNX Runtime's optimizations.
            scales: The scales of the outputs' channels; by default those over all cases.
        """
        diffs = self._compare_channels(run, outputs, noisy, scales)
        return self._widen(run, outputs, noisy, diffs, optimize=optimize)

    def _widen(
        self,
        run: OriginalRun,
        outputs: Outputs,
        noisy: NoisyScales,
        diffs: Diffs,
        *,
        optimize: bool = False,
    ) -> Diffs:
        """Return ``diffs``, or those within what a quantized original differs from itself by."""
        if all(x.ok for x in diffs) or self._options.get("tolerance") is not None:
            return diffs
        own = self._original.own_rounding(self._tolerance, optimize=optimize)
        if own is None:
            return diffs
        judge = replace(self._judge, tolerance=own.widen(self._tolerance))
        wide_diffs = tuple(judge.compare_case(run, outputs, noisy()))
        if all(x.ok for x in wide_diffs):
            self._allowance = str(own)
        return wide_diffs

    @cached_property
    def _rounding_segments(self) -> RoundingSegments:
        return RoundingSegments(self._graph, self._repaired_model, self._tolerance, self._ep)

    def _run_step(self, session: Opened, case: Case, feeds: Feeds) -> Outputs:
        """Run the repaired model on a case and return its outputs.

        Raises:
            _RepairedFailedError: It does not run.
        """
        self._report_progress(f"after, {case.name}")
        try:
            return session.run(feeds)
        except RunError as error:
            if unfit := list_unfit_feeds(self._repaired_model, feeds):
                text = f"the models take other inputs: the repaired one {'; '.join(unfit)}"
                raise _RepairedFailedError(text) from error
            where = "" if self._ep == "cpu" else f" on {PROVIDERS[self._ep].label}"
            reason = f"the repaired model does not run{where}, in case {case.name!r}: {error}"
            raise _RepairedFailedError(reason + self._killing_node_text(error, case)) from error

    def _killing_node_text(self, error: Exception, case: Case) -> str:
        """Return the node at which the process died, as text to append; "" if it did not die."""
        if not self.locates:
            return ""
        from graphfix.runtime import killing_node

        def run_model(model: ir.Model) -> None:
            with Session(model, ep=self._ep, optimize=self._ep != "cpu") as session:
                session.run(self._repaired_feeds(case))

        return killing_node.killing_node_text(error, self._repaired_model, run_model)

    def _make_verdict(self, ok: bool, reason: str = "") -> Verdict:
        original, diffs_by_case = self._original, self._diffs_by_case
        steps = [case for chain in original.chains for case in chain.cases]
        cases = [*(run.case for run in (*self.runs, *self._forced)), *steps]
        dims = {case.name: case.dims for case in cases if case.name in diffs_by_case}
        notes = (
            *original.notes,
            *self._judge.notes,
            *original.leak_notes(self._judge.harmless_poisons),
        )
        compared = {name for name, diffs in diffs_by_case.items() if any(d.finite for d in diffs)}
        coverage = original.coverage_of(compared)
        over_budget = (str(original.budget),) if original.budget.over else ()
        step_counts = {len(chain.cases) for chain in original.chains}
        more_steps = (f"more than {max(step_counts)} steps",) if step_counts else ()
        too_large = tuple(f"{name} (too large)" for name in dict.fromkeys(original.left_out))
        return Verdict(
            ok,
            diffs_by_case,
            tuple(original.dropped),
            reason,
            notes,
            allowance=self._allowance if ok else "",
            dims=dims,
            covered=(*coverage.covered, *dict.fromkeys(map(str, original.chains))),
            forced=original.signature.forced,
            not_tried=(
                *more_steps,
                *coverage.missing,
                *original.unmet[:_MOST_UNMET],
                *self._untaken,
                *too_large,
                *over_budget,
            ),
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
    def _shapes_before(self) -> DeclaredShapes:
        return DeclaredShapes(self._graph)

    @cached_property
    def _shapes_after(self) -> DeclaredShapes:
        return DeclaredShapes(self._repaired_model)

    @cached_property
    def _repaired_model(self) -> ir.Model:
        return self._after if isinstance(self._after, ir.Model) else io.load(self._after)

    def _report_progress(self, text: str) -> None:
        # The number of cases is known only after the original has run them.
        total = 2 * max(len(self._original.runs), _USUAL_CASES)
        self._progress(f"{min(self._steps_done, total)}/{total}: {text}")
        self._steps_done += 1

    # The first difference

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
        # Garbage that passes through the padding is no divergence: a case without is better.
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
            self._gate,
            content,
            values_behind_half(self._graph),
        )
