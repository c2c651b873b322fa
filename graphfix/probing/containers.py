"""Runs clips alone and in containers: the steps that the padded check and the probe share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.errors import FeedError, ModelError
from graphfix.feeds.case import Dropped
from graphfix.feeds.clips import Clips, Fill, time_of
from graphfix.feeds.input import symbols
from graphfix.feeds.search import wanted_sizes
from graphfix.feeds.signature import Signature
from graphfix.feeds.trying import signatures, told
from graphfix.lengths.given import LengthInput
from graphfix.model import io
from graphfix.model.fixed_inputs import arrays_since
from graphfix.probing.contained import PaddedDiff, cropped
from graphfix.probing.fixed import clips_for, fixed_sizes
from graphfix.proof.compare import Array, OutputDiff, Tolerance, compare, computes_in_half
from graphfix.proof.outputs import faults, silent_outputs
from graphfix.runtime.errors import RunError
from graphfix.runtime.opening import open_given, open_session
from graphfix.runtime.provider import Ep
from graphfix.runtime.randomness import Repeatable, draws, seeded
from graphfix.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Progress = Callable[[int, int, str], None]
    Outputs = dict[str, Array]

StrPath = str | os.PathLike[str]

# Lengths that are tried if nobody gives any, until three run; a waveform needs some hundred.
_LENGTHS = (7, 23, 40, 80, 161, 400, 720, 1600, 3200, 6400, 12800, 25600)
_ENOUGH = 3
# As many times as long as the clip, if nobody gives containers: nearly full, and 5 s in 60 s. The
# second is one longer: begins and ends of a stride depend on what is odd.
_LONGER = (1.5, 12.0)
# So many contents are tried if some outputs are whole numbers, or all.
_SOME_SEEDS, _MANY_SEEDS = 2, 5
# Rows beyond the given lengths are such shares of the longest.
_SHARES = (0.62, 0.81, 0.47)


@dataclass(frozen=True)
class Clip:
    """A clip, and what the model makes of it alone."""

    length: int
    seed: int
    feeds: dict[str, Array]
    outputs: Outputs


class Job:
    """One padded check, in steps that the probe shares.

    Attributes:
        graph: The model that runs the containers.
        source: What to load for it.
        native: The model that runs the clips alone.
        native_source: What to load for that.
        signature: The inputs of ``native``; known when the clips have run.
        clips: Makes the inputs; known when the clips have run.
        time: The group of dims that is padded; known when the clips have run.
        tolerance: The gates.
        fed: How the model is told the lengths, if its metadata says so.
        checks: What was compared.
        dropped: Lengths and containers that the model cannot run without padding.
        reason: Why a container gave nothing to compare; empty if all did.
    """

    def __init__(
        self,
        model: StrPath | ir.Model,
        original: StrPath | ir.Model | None,
        dims: Mapping[str, Sequence[int]],
        containers: Sequence[int],
        axis: str,
        fills: tuple[Fill, ...],
        tolerance: Tolerance | None,
        seeds: int | None,
        ep: Ep,
    ) -> None:
        self.graph, self.source = _read(model)
        self.native, self.native_source = (
            (self.graph, self.source) if original is None else _read(original)
        )
        self._own = original is None
        self._given, self._wanted = dims, containers
        self._dims, self._containers = dims, containers
        self._fills, self._ep = fills, ep
        self._seeds = range(_seeds(self.graph) if seeds is None else seeds)
        half = computes_in_half(self.graph) or computes_in_half(self.native)
        self.tolerance = tolerance or (Tolerance().for_half() if half else Tolerance())
        self._notes: list[str] = []
        if half and tolerance is None:
            self._notes.append("the model computes in float16, so it may differ 100 times more")
        self.dropped: list[Dropped] = []
        self._refused: list[Dropped] = []
        self.checks: list[PaddedDiff] = []
        self.reason = ""
        self.fed = LengthInput.of(self.graph)
        self._axis = axis
        self.signature: Signature
        self.clips: Clips
        self._done = self._total = 0
        self._filler = 0  # full rows that a container needs besides the clips
        self._progress: Progress = lambda done, total, what: None

    def run(self, progress: Progress) -> None:
        """Run everything and compare.

        Raises:
            FeedError: No clip runs alone, or none in a container.
        """
        self._progress = progress
        with open_given(self.native_source) as native:
            alone = self.alone(native)
            self._total = self._done + sum(1 for _ in self.plan(alone)) * len(self._fills)
            if self._own and self._ep == "cpu":
                self._contain(native, alone)
                self._judge()
                return
        try:  # only now, so that only one set of weights is in memory
            with open_session(self.source, self._ep) as session:
                self._contain(session, alone)
                self._judge()
        except ModelError as error:
            where = "on DirectML" if self._ep == "dml" else "in ONNX Runtime"
            self.reason = f"the model does not load {where}: {error}"

    def _judge(self) -> None:
        """What all comparisons together say: an output that was never a number is not known."""
        found: dict[str, list[OutputDiff]] = {}
        for check in self.checks:
            found.setdefault(str(check), []).append(check.diff)
        if not self.reason and all(check.ok for check in self.checks):
            self.reason = "; ".join(faults(found))

    def _contain(
        self, session: Session | Repeatable, alone: Mapping[tuple[int, int], list[Clip]]
    ) -> None:
        for rows, container in self.plan(alone):
            self._check(session, rows, container)
        if not (self.checks or self.reason):
            reasons = "; ".join(f"{x.name}: {x.reason}" for x in self.dropped[-3:])
            raise FeedError(f"the model runs in none of the containers ({reasons})")

    # Clips alone

    def alone(self, session: Session | Repeatable) -> dict[tuple[int, int], list[Clip]]:
        """Clips by length and seed, one for each row of the batch, that run alone.

        Raises:
            FeedError: None does, or it is not clear which dim is padded.
        """
        constants = {} if self._own else arrays_since(self.native, self.graph)

        def time(signature: Signature) -> str:
            return time_of(signature, self._axis, self._given, self.fed)

        for signature in signatures(self.native, session.run, constants, fits=time):
            self.signature = signature
            self.time = time(signature)
            self._fit()
            extra = None
            if not self._own:
                extra = Signature(self.graph, signature.tie, joined=signature.joined)
            self.clips = Clips(self.signature, self.time, self._dims, fed=self.fed, extra=extra)
            found = self._run_alone(session)
            if found:
                self._notes += told(signature)
                return self._finite(session, found, extra)
        tried = "; ".join(f"{x.name}: {x.reason}" for x in self.dropped[:3])
        raise FeedError(f"the model runs at none of the lengths without padding ({tried})")

    def _fit(self) -> None:
        """Where a repair has fixed sizes: that container and no other, and clips that it holds."""
        fixed = {} if self._own else fixed_sizes(self.signature, self.graph)
        self._dims, self._containers = self._given, self._wanted
        if not fixed:
            return
        wanted = wanted_sizes(self.signature, self._given)
        sizes = {g: wanted.get(g, ()) for g in wanted} | {g: (n,) for g, n in fixed.items()}
        size = fixed.get(self.time)
        if size is not None:
            shorter = [n for n in wanted.get(self.time, ()) if n < size]
            sizes[self.time] = tuple(shorter or clips_for(size))
            if not self._wanted or size in self._wanted:
                self._containers = (size,)
                self._refused = [
                    Dropped(f"{self.name}={other}", f"the model is fixed at {size}")
                    for other in self._wanted
                    if other != size
                ]
        self._dims = {self.signature.user_name(group): n for group, n in sizes.items()}

    def _finite(
        self,
        session: Session | Repeatable,
        found: dict[tuple[int, int], list[Clip]],
        extra: Signature | None,
    ) -> dict[tuple[int, int], list[Clip]]:
        """The clips; others with values above 0, if an output of these is never a number."""
        silent = _silent(found)
        if not silent:
            return found
        usual = self.clips
        self.clips = Clips(
            self.signature, self.time, self._dims, fed=self.fed, extra=extra, positive=True
        )
        again = self._run_alone(session)
        if again and len(_silent(again)) < len(silent):
            note = f"inputs are above 0: with others {silent[0]!r} is not a finite number"
            self._notes.append(note)
            return again
        self.clips = usual
        return found

    def _run_alone(self, session: Session | Repeatable) -> dict[tuple[int, int], list[Clip]]:
        sizes = wanted_sizes(self.signature, self._dims)
        given = list(dict.fromkeys(sizes.get(self.time, ())))
        batch = sizes.get(self.signature.batch or "", (1,)) if self.clips.batched else (1,)
        self._batches = tuple(n for n in dict.fromkeys(batch) if n > 0) or (1,)
        most = max(self._batches)
        if self._containers and given and max(self._containers) < max(given):
            raise FeedError(
                f"a container of {max(self._containers)} does not hold a clip of {max(given)}"
            )
        tried = given or [n for n in _LENGTHS if n <= max(self._containers, default=n)]
        more = [max(1, round(max(tried, default=1) * share)) for share in _SHARES]
        found: dict[tuple[int, int], list[Clip]] = {}
        self.dropped = list(self._refused)
        self._first: list[int] = []
        for length in (*tried, *(more[: max(0, most - len(given))] if given else ())):
            if not given and len(self._first) >= _ENOUGH:
                break
            clips = {seed: self._clips_of(session, length, seed, most) for seed in self._seeds}
            if all(clips.values()):
                found |= {(length, seed): made for seed, made in clips.items()}
                self._first += [length] if length in tried else []
        return found if self._first else {}

    def _clips_of(
        self, session: Session | Repeatable, length: int, seed: int, rows: int
    ) -> list[Clip]:
        made = []
        name = f"{self.name}={length} alone"
        for row in range(rows):
            self._tell(name)
            try:
                feeds = self.clips.alone(length, row, seed)
                made.append(Clip(length, seed, feeds, session.run(feeds)))
            except (FeedError, RunError) as error:
                self._drop(name, str(error))
                return []
        return made

    def _drop(self, name: str, reason: str) -> None:
        if all(x.name != name for x in self.dropped):
            self.dropped.append(Dropped(name, reason))

    @property
    def name(self) -> str:
        """What the model calls the dim that is padded."""
        return self.signature.user_name(self.time)

    # Containers

    @property
    def told(self) -> tuple[str, ...]:
        """The inputs that say where content ends; the one of the metadata first."""
        kinds = ("mask", "lengths", "relative-lengths", "cu-lengths")
        known = [x.name for x in self.signature.inputs if x.role.kind in kinds]
        if self.fed is not None:
            known = [self.fed.input, *(x for x in known if x != self.fed.input)]
        return tuple(known)

    @cached_property
    def _row_axes(self) -> dict[str, int | None]:
        """Which axis of each output is that of the rows, where shapes tell."""
        batch = self.signature.batch
        members = set(self.signature.members(batch)) if batch else set()
        found: dict[str, int | None] = {}
        for name, dims in self.signature.output_dims().items():
            axes = (a for a, d in enumerate(dims or ()) if symbols(d) & members)
            found[name] = next(axes, None)
        return found

    def plan(self, alone: Mapping[tuple[int, int], list[Clip]]) -> Iterator[tuple[list[Clip], int]]:
        """The clips that go into one container together, and how long it is."""
        lengths = list(dict.fromkeys(n for n, _ in alone))
        for seed in self._seeds:
            for first in self._first:
                for batch in self._batches:
                    start = lengths.index(first)
                    step = 0 if self.clips.one_length else 1
                    turn = [lengths[(start + i * step) % len(lengths)] for i in range(batch)]
                    rows = [alone[n, seed][i] for i, n in enumerate(turn)]
                    longest = max(turn)
                    own = [round(longest * times) + i for i, times in enumerate(_LONGER)]
                    for container in self._containers or own:
                        if container >= longest:
                            yield rows, container
                        else:
                            self._drop(
                                f"{longest} in {self.name}={container}",
                                "a container does not hold a clip that is longer",
                            )

    def _check(
        self,
        session: Session | Repeatable,
        rows: Sequence[Clip],
        container: int,
    ) -> None:
        seed = rows[0].seed
        clips = [clip.feeds for clip in rows]
        lengths = tuple(clip.length for clip in rows)
        for fill in self._fills:
            what = f"{','.join(map(str, lengths))} in {self.name}={container}"
            self._tell(f"{what}, padding {fill}")
            try:
                outputs = self._contained(session, clips, container, fill, seed)
            except (FeedError, RunError) as error:
                if reason := self._unpadded(container, seed):
                    self._drop(f"{self.name}={container} without padding", reason)
                else:
                    where = " on DirectML" if self._ep == "dml" else ""
                    told = f"the model does not run{where}, with {what}, padding {fill}: {error}"
                    self.reason = self.reason or told
                return
            for row, clip in enumerate(rows):
                for name, array in clip.outputs.items():
                    count = len(rows) + self._filler
                    diff = self._diff(name, array, outputs, row, count, f"{what}, {fill}")
                    self.checks.append(PaddedDiff(clip.length, container, fill, lengths, row, diff))

    def _contained(
        self,
        session: Session | Repeatable,
        clips: Sequence[Mapping[str, Array]],
        container: int,
        fill: Fill,
        seed: int,
    ) -> Outputs:
        """Run a container, with one full row more if the model takes the longest for its size."""
        try:
            if not self._filler:
                return session.run(self.clips.together(clips, container, fill, seed))
        except RunError:
            if not self.clips.batched:
                raise
        full = self.clips.alone(container, len(clips), seed)
        outputs = session.run(self.clips.together([*clips, full], container, fill, seed))
        self._filler = 1
        return outputs

    def _unpadded(self, container: int, seed: int) -> str:
        """Why the container's size does not run even without padding; empty if it does."""
        try:
            with open_given(self.native_source) as native:
                native.run(self.clips.alone(container, 0, seed))
        except (FeedError, RunError) as error:
            return str(error)
        return ""

    def _diff(
        self, name: str, alone: Array, outputs: Outputs, row: int, rows: int, case: str
    ) -> OutputDiff:
        if name not in outputs:
            return OutputDiff(name, case, ok=False, reason="is missing", total=alone.size)
        found = cropped(outputs[name], alone, row, rows, self._row_axes.get(name))
        if isinstance(found, str):
            return OutputDiff(name, case, ok=False, reason=found, total=alone.size)
        part = found.size * rows < outputs[name].size
        note = (
            f"{found.size:,} of {outputs[name].size // rows:,} elements are valid" if part else ""
        )
        return compare(name, case, alone, found, self.tolerance, note=note)

    def notes(self, ok: bool) -> list[str]:
        """What a reader should know of how it was run."""
        notes = list(self._notes)
        if not self.told:
            notes.append("no input tells the model where content ends: it was run as it is")
            notes += self.signature.unheard() if self._own else []
        if self._filler:
            notes.append(
                "the model runs only with a row as long as the container, so one was added to each"
            )
        if not ok and (node := draws(self.native)) is not None:
            name = node.name or node.outputs[0].name
            notes.append(
                f"the model draws random numbers ({node.op_type} {name!r}), and draws others "
                "for another size"
            )
        if self._ep == "dml":
            notes.append("containers ran on DirectML, clips alone on the CPU")
        return notes

    def _tell(self, what: str) -> None:
        self._progress(self._done, max(self._total, self._done + 1), what)
        self._done += 1


def _seeds(model: ir.Model) -> int:
    """How many contents to try: the largest of a row, say, stays the same in most of them."""
    floats = sum(v.dtype is None or v.dtype.is_floating_point() for v in model.graph.outputs)
    if floats == len(model.graph.outputs):
        return 1
    return _SOME_SEEDS if floats else _MANY_SEEDS


def _silent(found: Mapping[tuple[int, int], list[Clip]]) -> list[str]:
    return silent_outputs(clip.outputs for clips in found.values() for clip in clips)


def _read(model: StrPath | ir.Model) -> tuple[ir.Model, StrPath | ir.Model]:
    """A model's graph, and what to run: a copy with seeds if it draws random numbers."""
    graph = model if isinstance(model, ir.Model) else io.load(model)
    if draws(graph) is not None:
        graph = model = seeded(graph)
    return graph, model
