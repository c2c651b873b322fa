"""Do two models compute the same? They are run on many inputs, and every output is compared."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import onnx_ir as ir

from graphfix.errors import FeedError, ModelError
from graphfix.lengths.given import LengthInput
from graphfix.measure.case import Case, Dropped
from graphfix.measure.compare import (
    Array,
    LeaveOut,
    Mask,
    OutputDiff,
    Tolerance,
    compare,
    computes_in_half,
)
from graphfix.measure.content import Content
from graphfix.measure.feeds import search
from graphfix.measure.filled import full_lengths
from graphfix.measure.locate import Divergence, Side, first_divergence
from graphfix.measure.own import given_case
from graphfix.measure.places import LABELS, require
from graphfix.measure.poison import poisoned
from graphfix.measure.randomness import Repeatable, draws, seeded
from graphfix.measure.runtime import Ep, RunError, Session
from graphfix.measure.sessions import open_given, open_session
from graphfix.measure.signature import Signature, dim_name
from graphfix.measure.verdict import Verdict
from graphfix.model import io

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from graphfix.model.symbolic import Dim

    Feeds = Mapping[str, Array]
    MapFeeds = Callable[[Feeds], Feeds]
    Progress = Callable[[int, int, str], None]
    Outputs = dict[str, Array]

__all__ = ["Divergence", "OutputDiff", "Safety", "Tolerance", "Verdict", "verify"]

StrPath = str | os.PathLike[str]
Safety = Literal["exact", "valid-rows", "conditional"]


# Garbage is put into the padding of so many cases, the longest ones.
_POISONED = 2
# So many cases are usual, for the progress.
_USUAL = 9


def verify(
    before: StrPath | ir.Model,
    after: StrPath | ir.Model,
    *,
    cases: Sequence[Case] | None = None,
    dims: Mapping[str, Sequence[int]] | None = None,
    feeds: StrPath | Feeds | None = None,
    tolerance: Tolerance | None = None,
    safety: Safety = "exact",
    map_feeds: MapFeeds | None = None,
    ep: Ep = "cpu",
    locate: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Verdict:
    """Run both models on the same inputs and compare every output.

    Both run on the CPU without ONNX Runtime's own graph optimizations, one after the other, so
    that only one set of weights is in memory. If a mask or length input says what is padding,
    cases are repeated with garbage there: rows that the original keeps clean must stay clean.

    Args:
        before: The original.
        after: The repaired model.
        cases: The inputs; by default :func:`graphfix.measure.make_cases` makes them.
        dims: Sizes to use, by the name of the symbolic dim.
        feeds: The user's own inputs, an ``.npz`` or arrays by name; no others are used.
        tolerance: What may differ, :class:`Tolerance` by default. A model that computes in float16
            may differ a hundred times more (``Tolerance.half``).
        safety: With ``"valid-rows"`` only content is compared, not what padding was made into,
            and elements that are NaN in the original are left out. Otherwise everything is.
        map_feeds: Makes inputs for ``after`` from those for ``before``, where a repair changed
            the signature. A length input that a repair has added is filled in by itself: all valid.
        ep: Where ``after`` runs. With ``"dml"`` or ``"cuda"`` it runs there with all
            optimizations, as it will be used, and is held to what ``before`` computes on the CPU;
            ``before`` need not run there.
        locate: Whether to search for the first tensor that differs, if the verdict is bad; and for
            the node that kills the process, if one does.
        seed: The same seed makes the same inputs.
        progress: Called with the number of runs done, of runs in all, and what is run.

    Raises:
        ModelError: The original cannot be read, or ONNX Runtime rejects it.
        FeedError: There are no inputs that the original runs.
        UsageError: The provider that is asked for is not to be had.
    """
    require(ep)
    job = _Job(before, after, tolerance or Tolerance(), safety, map_feeds, progress, ep)
    job.run_before(cases, dims, feeds, seed)
    verdict = job.run_after(locate)
    if not verdict.ok and not verdict.reason and locate:
        verdict = replace(verdict, first_divergence=job.locate(verdict))
    return verdict


@dataclass
class _Run:
    """A case and what the original made of it."""

    case: Case
    outputs: Outputs
    kept: dict[str, Mask] = field(default_factory=dict)
    """Of a poisoned case: where the original keeps each output clean."""


class _Job:
    """One verification."""

    def __init__(
        self,
        before: StrPath | ir.Model,
        after: StrPath | ir.Model,
        tolerance: Tolerance,
        safety: Safety,
        map_feeds: MapFeeds | None,
        progress: Progress | None,
        ep: Ep,
    ) -> None:
        self._ep = ep
        self._before, self._after = before, after
        self._graph = before if isinstance(before, ir.Model) else io.load(before)
        if draws(self._graph) is not None:
            self._before = self._graph = seeded(self._graph)
            self._after = seeded(after if isinstance(after, ir.Model) else io.load(after))
        self._tolerance = tolerance.for_half() if computes_in_half(self._graph) else tolerance
        self._safety = safety
        self._map_feeds = map_feeds
        self._progress = progress or (lambda done, total, what: None)
        self._runs: list[_Run] = []
        self._dropped: list[Dropped] = []
        self._notes: dict[str, None] = {}  # in order, each once
        self._leaks: dict[tuple[str, str], str] = {}  # the first of each output and poison
        self._signature: Signature
        self._content: Content
        self._done = 0

    # The original

    def run_before(
        self,
        cases: Sequence[Case] | None,
        dims: Mapping[str, Sequence[int]] | None,
        feeds: StrPath | Feeds | None,
        seed: int,
    ) -> None:
        """Find the cases and run the original on them."""
        with open_given(self._before) as session:
            if feeds is None and cases is None:
                self._search(session, dims, seed)
            else:
                self._signature = Signature(self._graph)
                given = [] if feeds is None else [given_case(feeds, self._signature)]
                self._run_cases(session, given or cases or ())
            self._content = Content(self._signature)
            if self._pads_otherwise():
                self._runs = [run for run in self._runs if not run.case.ragged]
                self._notes["padding is left to graphfix padded: there the repair differs"] = None
            if any(run.case.ragged for run in self._runs):
                self._content.learn([(run.case, run.outputs) for run in self._runs])
                self._poison(session, seed)

    def _pads_otherwise(self) -> bool:
        """Whether a repair takes valid lengths from an input that the original has as well.

        The original lets padding through, or it would not have been repaired.
        """
        told = LengthInput.of(self._repaired)
        names = {value.name for value in self._graph.graph.inputs}
        return told is not None and told.input in names and LengthInput.of(self._graph) != told

    def _run_cases(self, session: Session | Repeatable, cases: Sequence[Case]) -> None:
        for case in cases:
            self._tell(f"before, {case.name}")
            try:
                self._runs.append(_Run(case, session.run(case.feeds)))
            except RunError as error:
                raise FeedError(
                    f"the model as given does not run on the case {case.name!r}: {error}"
                ) from error

    def _search(
        self, session: Session | Repeatable, dims: Mapping[str, Sequence[int]] | None, seed: int
    ) -> None:
        outputs: dict[str, Outputs] = {}

        def run(case: Case) -> None:
            self._tell(f"before, {case.name}")
            outputs[case.name] = session.run(case.feeds)

        wanted = {**self._fixed_sizes(), **(dims or {})}
        found = search(self._graph, run, dims=wanted, seed=seed)
        self._signature = found.signature
        self._runs = [_Run(case, outputs[case.name]) for case in found]
        self._dropped = found.dropped

    def _fixed_sizes(self) -> dict[str, list[int]]:
        """Sizes of dims that are symbols in the original and numbers in the repaired model."""
        try:
            after = self._after if isinstance(self._after, ir.Model) else io.load(self._after)
        except ModelError:
            return {}  # the verdict will say so
        shapes = {v.name: v.shape for v in after.graph.inputs}
        fixed: dict[str, list[int]] = {}
        for value in self._graph.graph.inputs:
            sizes = zip(value.shape or (), shapes.get(value.name) or (), strict=False)
            for axis, (dim, size) in enumerate(sizes):
                # An expression such as past + 1 follows from its symbols.
                plain = isinstance(dim, ir.SymbolicDim) and (dim.value or "_").isidentifier()
                if plain and isinstance(size, int):
                    fixed[dim_name(value, axis)] = [size]
        return fixed

    def _poison(self, session: Session | Repeatable, seed: int) -> None:
        clean = [run for run in self._runs if run.case.ragged]
        for run in clean[-_POISONED:]:
            for case in poisoned(run.case, self._signature, seed):
                self._tell(f"before, {case.name}")
                try:
                    outputs = session.run(case.feeds)
                except RunError as error:
                    self._dropped.append(Dropped(case.name, str(error)))
                    continue
                self._runs.append(_Run(case, outputs, self._kept(run, outputs, case)))

    def _kept(self, clean: _Run, outputs: Outputs, case: Case) -> dict[str, Mask]:
        kept: dict[str, Mask] = {}
        for name, array in outputs.items():
            kept[name] = self._content.kept(name, case, clean.outputs[name], array, self._tolerance)
            where = self._content.where(name, array.shape, case)
            content = array.size if where is None else int(where.sum())
            if leaked := content - int(kept[name].sum()):
                self._leaks.setdefault(
                    (name, case.poison),
                    f"the original leaks {case.poison} from the padding into {name!r} too: "
                    f"{leaked:,} of {content:,} elements are not held against the repair, "
                    f"in case {case.name!r}",
                )
        return kept

    # The repaired model

    def run_after(self, locate: bool) -> Verdict:
        """Run the repaired model on the same inputs and compare."""
        found: dict[str, tuple[OutputDiff, ...]] = {}
        try:
            session = open_session(self._after, self._ep)
        except ModelError as error:
            where = "in ONNX Runtime" if self._ep == "cpu" else f"on {LABELS[self._ep]}"
            reason = f"the repaired model does not load {where}: {error}"
            if locate:
                reason += self._killed(error, self._runs[0].case)
            return self._failed(found, reason)
        with session:
            self._done = len(self._runs)
            for run in self._runs:
                self._tell(f"after, {run.case.name}")
                try:
                    outputs = session.run(self._new_feeds(run.case))
                except RunError as error:
                    where = "" if self._ep == "cpu" else f" on {LABELS[self._ep]}"
                    reason = f"the repaired model does not run{where}"
                    reason += f", in case {run.case.name!r}: {error}"
                    if locate:
                        reason += self._killed(error, run.case)
                    return self._failed(found, reason)
                found[run.case.name] = tuple(self._diffs(run, outputs))
        ok = all(diff.ok for diffs in found.values() for diff in diffs)
        if self._ep != "cpu":
            where = LABELS[self._ep]
            self._notes[f"the repaired model ran on {where}, the original on the CPU"] = None
        if not ok and (node := draws(self._graph)) is not None:
            name = node.name or node.outputs[0].name
            self._notes[
                f"the original draws random numbers ({node.op_type} {name!r}), "
                "so its outputs differ from run to run"
            ] = None
        return self._verdict(ok, found)

    def _killed(self, error: Exception, case: Case) -> str:
        """At which node, if another process died of it."""
        if self._ep == "cpu":
            return ""
        from graphfix.measure import killer

        def run(model: ir.Model) -> None:
            with Session(model, ep=self._ep) as session:
                session.run(self._new_feeds(case))

        after = self._after if isinstance(self._after, ir.Model) else io.load(self._after)
        return killer.words(error, after, run)

    def _failed(self, found: dict[str, tuple[OutputDiff, ...]], reason: str) -> Verdict:
        return self._verdict(False, found, reason)

    def _verdict(
        self, ok: bool, found: dict[str, tuple[OutputDiff, ...]], reason: str = ""
    ) -> Verdict:
        dims = {run.case.name: run.case.dims for run in self._runs if run.case.name in found}
        dropped, notes = tuple(self._dropped), self._all_notes()
        return Verdict(ok, found, dropped, reason, notes, dims=dims)

    def _all_notes(self) -> tuple[str, ...]:
        return (*self._notes, *self._leaks.values())

    def _new_feeds(self, case: Case) -> Feeds:
        feeds = self._map_feeds(case.feeds) if self._map_feeds is not None else case.feeds
        return full_lengths(self._repaired, feeds)

    @cached_property
    def _repaired(self) -> ir.Model:
        return self._after if isinstance(self._after, ir.Model) else io.load(self._after)

    def _diffs(self, run: _Run, outputs: Outputs) -> Iterator[OutputDiff]:
        for name, array in run.outputs.items():
            if name not in outputs:
                yield OutputDiff(name, run.case.name, ok=False, reason="is missing")
                continue
            yield self._diff(name, run, array, outputs[name], self._content.dims.get(name))

    def _diff(
        self, name: str, run: _Run, before: Array, after: Array, dims: tuple[Dim, ...] | None
    ) -> OutputDiff:
        case = run.case
        leave_out: LeaveOut = "NaN" if self._safety == "valid-rows" else ""
        where, note = run.kept.get(name), ""
        if where is None and self._safety == "valid-rows" and case.ragged:
            where = self._content.where(name, before.shape, case)
            if where is None:
                leave_out = "not finite"
                note = f"the dims of {name!r} do not say which rows are content"
                note += ", so all its elements were compared"
                self._notes[note] = None
        if where is not None and where.size:
            note = note or f"{int(where.sum()):,} of {where.size:,} elements were compared"
        return compare(
            name,
            case.name,
            before,
            after,
            self._tolerance,
            where=where,
            leave_out=leave_out,
            note=note,
        )

    def _tell(self, what: str) -> None:
        # How many cases there are is known only when the original has run them.
        total = 2 * max(len(self._runs), _USUAL)
        self._progress(min(self._done, total), total, what)
        self._done += 1

    # Where they part

    def locate(self, verdict: Verdict) -> Divergence | None:
        """The first tensor that both graphs have and whose values part."""
        failed = {name for name, diffs in verdict.cases.items() if not all(d.ok for d in diffs)}
        runs = [run for run in self._runs if run.case.name in failed]
        # Garbage on its way through the padding is no divergence: better a case without.
        run = min(runs, key=lambda r: (bool(r.case.poison), _volume(r.case)), default=None)
        if run is None:
            return None
        after = self._after if isinstance(self._after, ir.Model) else io.load(self._after)
        case, content = run.case, None
        if case.ragged and (case.poison or self._safety == "valid-rows"):
            known = self._signature.value_dims()

            def content(name: str, shape: tuple[int, ...]) -> Mask | None:
                return self._content.within(known.get(name), shape, case)

        self._tell(f"where they part, {case.name}")
        return first_divergence(
            Side(self._before, self._graph, case.feeds),
            Side(self._after, after, self._new_feeds(case), self._ep),
            case.name,
            self._tolerance,
            content,
        )


def _volume(case: Case) -> int:
    return sum(array.size for array in case.feeds.values())
