"""Do two models compute the same? They are run on many inputs, and every output is compared."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypedDict, Unpack, get_args

import onnx_ir as ir

from graphfix.caches.cache_input import CacheInput
from graphfix.core import Interface, Safety
from graphfix.errors import ModelError, UsageError
from graphfix.feeds.case import Case
from graphfix.feeds.full_lengths import full_lengths
from graphfix.feeds.graph_uses import say
from graphfix.feeds.states import carried
from graphfix.files import given, io
from graphfix.paths import StrPath
from graphfix.proof import output_record as known
from graphfix.proof.baseline import Baseline, Held, Outputs, Ran
from graphfix.proof.between_roundings import BetweenRoundings
from graphfix.proof.budget import SECONDS, Budget
from graphfix.proof.compare import Array, Mask, OutputDiff, Tolerance, computes_in_half
from graphfix.proof.default_session import DefaultSession
from graphfix.proof.first_difference import Divergence, first_divergence
from graphfix.proof.forced_branches import Forcing
from graphfix.proof.inner_tensors import Run
from graphfix.proof.interface import interface_changes
from graphfix.proof.judge import Judge
from graphfix.proof.verdict import Verdict
from graphfix.runtime.compared_session import Opened, open_session
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Feeds
from graphfix.runtime.provider import LABELS, Ep
from graphfix.runtime.python import require
from graphfix.runtime.random_nodes import draws, seeded
from graphfix.runtime.run_errors import RunError

Progress = Callable[[str], None]
Diffs = tuple[OutputDiff, ...]

__all__ = ["Divergence", "Held", "Original", "OutputDiff", "Tolerance", "Verdict", "verify"]


# So many cases are usual, for the progress.
_USUAL = 18


class Options(TypedDict, total=False):
    """What :func:`verify` may be told.

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
            :func:`graphfix.proof.interface.interface_changes`; by default nothing, or the inputs if
            there is ``map_feeds``.
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
    held: Held | None
    brief: bool
    budget: float | None
    progress: Progress | None


def verify(before: given.Given, after: given.Given, **options: Unpack[Options]) -> Verdict:
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
    given.refuse_unknown(options, Options)
    ep, safety = options.get("ep", "cpu"), options.get("safety", "exact")
    given.require_known(ep=(ep, get_args(Ep)), safety=(safety, get_args(Safety)))
    if not isinstance(options.get("tolerance"), Tolerance | None):
        raise UsageError(f"tolerance={options['tolerance']!r}: give a graphfix.Tolerance")
    require(ep)
    job = _Job(given.in_memory(before), given.in_memory(after), options)
    held = options.get("held")
    if held is None or not job.take(held):
        job.run_before()
        if held is not None:
            job.give(held)
    verdict = job.run_after()
    if held is not None:
        held.failed += [x for x in verdict.failed if x not in held.failed]
    if not verdict.ok and not verdict.reason and job.locates:
        verdict = replace(verdict, first_divergence=job.locate(verdict))
    return verdict


class Original:
    """A model that is run once on its inputs, and to whose outputs many others are held.

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
        self._job = _Job(model, model, {"cases": cases, "tolerance": tolerance, "safety": safety})
        self._job.run_before()
        self.cases = [run.case for run in self._job.runs]

    def diffs(self, session: Session, index: int, more: Feeds | None = None) -> Diffs:
        """How far a model, loaded, is from the original in one of :attr:`cases`.

        Args:
            session: The model; one that draws random numbers is no use.
            index: Which case.
            more: Arrays for inputs that the original has not.

        Raises:
            RunError: An operator failed.
        """
        return self._job.held(session, index, more or {})


class _Job:
    """One verification."""

    def __init__(
        self, before: given.PathOrModel, after: given.PathOrModel, options: Options
    ) -> None:
        self._options = options
        self._ep = options.get("ep", "cpu")
        self.locates = options.get("locate", True)
        self._before, self._after = before, after
        self._graph = before if isinstance(before, ir.Model) else io.load(before)
        if draws(self._graph) is not None:
            self._before = self._graph = seeded(self._graph)
            self._after = seeded(after if isinstance(after, ir.Model) else io.load(after))
        tolerance = options.get("tolerance") or Tolerance()
        self._tolerance = tolerance.for_half() if computes_in_half(self._graph) else tolerance
        self._safety = options.get("safety", "exact")
        self._map_feeds = options.get("map_feeds")
        self._progress = options.get("progress") or (lambda _: None)
        self._done = 0
        self._forced: Sequence[Ran] = ()
        self._untaken: Sequence[str] = ()
        self._original = Baseline(
            self._before,
            self._graph,
            lambda: self._repaired,
            self._tolerance,
            self._tell,
            Budget(options.get("budget") or SECONDS),
        )

    def take(self, held: Held) -> bool:
        """Whether ``held`` has what the original computes, which is then not run."""
        if held.original is None or draws(self._graph) is not None:
            return False
        self._original = held.original
        return True

    def give(self, held: Held) -> None:
        """Leave in ``held`` what the original computes."""
        self._original.forget_repaired()
        held.original = self._original

    def run_before(self) -> None:
        """Find the cases and run the original on them."""
        asked = self._options
        self._original.find(
            asked.get("cases"),
            given.sizes_of(asked.get("dims")),
            given.arrays_of(asked.get("feeds")),
            asked.get("seed", 0),
        )

    @cached_property
    def _judge(self) -> Judge:
        cut = {name: axis for x in self._caches for _, name, axis in x.states}
        return Judge(self._original.content, self._tolerance, self._safety, cut)

    @property
    def runs(self) -> Sequence[Ran]:
        """What the original made of each case that a gate is about."""
        return [x for x in self._original.runs if not (self._tolerance.whole and x.case.beyond)]

    def held(self, session: Session, index: int, more: Feeds) -> Diffs:
        """Run what is loaded on one case, and compare."""
        run = self.runs[index]
        self._judge.may_narrow = True
        return tuple(self._judge.diffs(run, session.run({**self._new_feeds(run.case), **more})))

    def run_after(self) -> Verdict:
        """Run the repaired model on the same inputs and compare."""
        usual: tuple[Interface, ...] = () if self._map_feeds is None else ("inputs",)
        asked = self._options.get("may_change")
        may_change = usual if asked is None else asked
        brief, held = self._options.get("brief", False), self._options.get("held")
        suspects = held.failed if brief and held is not None else ()
        self._judge.may_narrow = "outputs" in may_change
        found: dict[str, Diffs] = {}
        try:
            session = open_session(self._after, self._ep)
        except ModelError as error:
            where = "in ONNX Runtime" if self._ep == "cpu" else f"on {LABELS[self._ep]}"
            reason = f"the repaired model does not load {where}: {error}"
            reason += self._killed(error, self._original.runs[0].case)
            return self._verdict(False, found, reason)
        with session:
            self._done = len(self._original.runs)
            for run in sorted(self.runs, key=lambda x: x.case.name not in suspects):
                outputs = self._step(session, run.case, self._new_feeds(run.case))
                if isinstance(outputs, str):
                    return self._verdict(False, found, outputs)
                found[run.case.name] = self._diffs(run, outputs)
                if brief and not all(x.ok for x in found[run.case.name]):
                    return self._verdict(False, found)
            for chain in self._original.chains:
                own: Feeds = {}
                for case, before in zip(chain.cases, chain.outputs, strict=True):
                    if any(x.length(case.feeds) > x.size for x in self._caches):
                        break  # the first entries have fallen out of the caches
                    outputs = self._step(session, case, {**self._new_feeds(case), **own})
                    if isinstance(outputs, str):
                        return self._verdict(False, found, outputs)
                    found[case.name] = tuple(self._judge.diffs(Ran(case, dict(before)), outputs))
                    own = carried(chain.states, self._repaired, outputs) or {}
        if len(self.runs) < len(self._original.runs):
            self._judge.notes["float16 is not held to caches larger than the model's own"] = None
        forcing = Forcing(self._original, self._graph, self._repaired, self._ep, self._tell)
        self._forced, self._untaken = forcing.runs, forcing.untaken
        try:
            for run, made in forcing.outputs(self._new_feeds):
                found[run.case.name] = tuple(self._judge.diffs(run, made))
        except ModelError as error:
            return self._verdict(False, found, str(error))
        ok = all(diff.ok for diffs in found.values() for diff in diffs)
        if self._ep != "cpu":
            where = LABELS[self._ep]
            self._judge.notes[f"the repaired model ran on {where}, the original on the CPU"] = None
        if not ok and (node := draws(self._graph)) is not None:
            self._judge.notes[
                f"the original draws random numbers ({say(node)}), "
                "so its outputs differ from run to run"
            ] = None
        reasons: list[str] = []
        if ok:
            reasons += known.faults(found)
            ran = self._original.runs[0].outputs
            ranks = {name: x.ndim for name, x in ran.items() if hasattr(x, "ndim")}
            changes = interface_changes(self._graph, self._repaired, may_change, ranks)
            if changes:
                reasons.append(f"it {'; it '.join(changes)}")
            self._judge.notes.update(dict.fromkeys(known.notes(found)))
        if ok and not reasons:
            opened = DefaultSession(
                self._after, self._original, self._judge, self._new_feeds, self.runs
            )
            random = draws(self._graph) is not None
            reasons += filter(None, [opened.fault(random=random, locate=self.locates)])
        return self._verdict(ok and not reasons, found, "; ".join(reasons))

    def _diffs(self, run: Ran, outputs: Outputs) -> Diffs:
        """How far outputs are from the original's; of a quantized model, between its roundings."""
        diffs = tuple(self._judge.diffs(run, outputs))
        worst = max((x for x in diffs if not x.ok), key=lambda x: x.badness, default=None)
        if worst is None or worst.reason.startswith("has shape"):
            return diffs
        made = self._between.outputs(run.case.feeds, self._new_feeds(run.case))
        held = diffs if made is None else tuple(self._judge.diffs(run, made))
        if all(x.ok for x in held):
            self._judge.notes[
                f"output {worst.output!r} {worst.reason}, since what is quantized is rounded the "
                f"other way in places, in case {worst.case!r}; given the same whole numbers, both "
                "models make the same of them"
            ] = None
            return held
        return diffs

    @cached_property
    def _between(self) -> BetweenRoundings:
        return BetweenRoundings(self._graph, self._repaired, self._tolerance, self._ep)

    def _step(self, session: Opened, case: Case, feeds: Feeds) -> Outputs | str:
        """What the repaired model makes of a case; or why it does not run."""
        self._tell(f"after, {case.name}")
        try:
            return session.run(feeds)
        except RunError as error:
            where = "" if self._ep == "cpu" else f" on {LABELS[self._ep]}"
            reason = f"the repaired model does not run{where}, in case {case.name!r}: {error}"
            return reason + self._killed(error, case)

    def _killed(self, error: Exception, case: Case) -> str:
        """At which node, if the process died of it and that is to be found."""
        if not self.locates:
            return ""
        from graphfix.runtime import killing_node

        def run(model: ir.Model) -> None:
            with Session(model, ep=self._ep, optimize=self._ep != "cpu") as session:
                session.run(self._new_feeds(case))

        return killing_node.words(error, self._repaired, run)

    def _verdict(self, ok: bool, found: dict[str, Diffs], reason: str = "") -> Verdict:
        original = self._original
        steps = [case for chain in original.chains for case in chain.cases]
        cases = [*(run.case for run in (*self.runs, *self._forced)), *steps]
        dims = {case.name: case.dims for case in cases if case.name in found}
        notes = (*original.notes, *self._judge.notes, *original.leaks(self._judge.held))
        compared = {name for name, diffs in found.items() if any(d.finite for d in diffs)}
        tried = original.coverage(compared)
        over = (str(original.budget),) if original.budget.over else ()
        dear = tuple(f"{name} (too large)" for name in dict.fromkeys(original.left_out))
        return Verdict(
            ok,
            found,
            tuple(original.dropped),
            reason,
            notes,
            dims=dims,
            covered=(*tried.covered, *dict.fromkeys(map(str, original.chains))),
            not_tried=(*tried.missing, *self._untaken, *dear, *over),
        )

    def _new_feeds(self, case: Case) -> Feeds:
        feeds = self._map_feeds(case.feeds) if self._map_feeds is not None else case.feeds
        for cache in self._caches:
            feeds = cache.feeds(feeds)
        return full_lengths(self._repaired, feeds)

    @cached_property
    def _caches(self) -> list[CacheInput]:
        """The caches that have one size in the repaired model, and not yet in the original."""
        known = CacheInput.all_of(self._graph)
        return [x for x in CacheInput.all_of(self._repaired) if x not in known]

    @cached_property
    def _repaired(self) -> ir.Model:
        return self._after if isinstance(self._after, ir.Model) else io.load(self._after)

    def _tell(self, what: str) -> None:
        # How many cases there are is known only when the original has run them.
        total = 2 * max(len(self._original.runs), _USUAL)
        self._progress(f"{min(self._done, total)}/{total}: {what}")
        self._done += 1

    # Where they part

    def locate(self, verdict: Verdict) -> Divergence | None:
        """The first tensor that both graphs have and whose values part."""
        failed = set(verdict.failed)
        runs = [run for run in self.runs if run.case.name in failed]
        runs = runs or [run for run in self._forced if run.case.name in failed]
        chains = self._original.chains
        steps = (step for x in chains for step in zip(x.cases, x.outputs, strict=True))
        runs = runs or [Ran(case, dict(made)) for case, made in steps if case.name in failed]
        # Garbage on its way through the padding is no divergence: better a case without.
        run = min(runs, key=lambda r: (bool(r.case.poison), r.case.volume), default=None)
        if run is None:
            return None
        case, content = run.case, None
        if case.ragged and (case.poison or self._safety == "valid-rows"):
            known = self._original.signature.value_dims()

            def content(name: str, shape: tuple[int, ...]) -> Mask | None:
                return self._original.content.within(known.get(name), shape, case)

        self._tell(f"where they part, {case.name}")
        return first_divergence(
            Run(self._before, self._graph, case.feeds),
            Run(self._after, self._repaired, self._new_feeds(case), self._ep),
            case.name,
            self._tolerance,
            content,
        )
