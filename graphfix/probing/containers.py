"""Runs clips in containers and holds them to what they are alone."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import onnx_ir as ir

from graphfix.errors import FeedError, ModelError
from graphfix.feeds.clips import Fill
from graphfix.feeds.graph_uses import say
from graphfix.feeds.roles import TELLS
from graphfix.files import io
from graphfix.files.given import PathOrModel
from graphfix.probing.in_container import PaddedDiff, cropped
from graphfix.probing.unpadded import Alone, Clip, ClipTable
from graphfix.proof.compare import Array, OutputDiff, Tolerance, compare, computes_in_half
from graphfix.proof.output_record import faults
from graphfix.runtime.compared_session import Opened, open_given, open_session
from graphfix.runtime.provider import Ep
from graphfix.runtime.random_nodes import draws, seeded
from graphfix.runtime.run_errors import RunError
from graphfix.wording import Tell, grouped

Outputs = dict[str, Array]

# As many times as long as the clip, if nobody gives containers: nearly full, and 5 s in 60 s. The
# second is one longer: begins and ends of a stride depend on what is odd.
_LONGER = (1.5, 12.0)


class Job:
    """One padded check.

    Attributes:
        graph: The model that runs the containers.
        source: What to load for it.
        native: The model that runs the clips alone.
        native_source: What to load for that.
        alone: Makes the clips and runs them alone.
        tolerance: The gates.
        checks: What was compared.
        reason: Why a container gave nothing to compare; empty if all did.
    """

    def __init__(
        self,
        model: PathOrModel,
        original: PathOrModel | None,
        dims: Mapping[str, Sequence[int]],
        containers: Sequence[int],
        axis: str,
        fills: tuple[Fill, ...],
        tolerance: Tolerance | None,
        seeds: int | None,
        ep: Ep,
    ) -> None:
        self.graph, self.source = _read(model)
        native = (self.graph, self.source) if original is None else _read(original)
        self.native, self.native_source = native
        self._own = original is None
        self._fills, self._ep = fills, ep
        half = computes_in_half(self.graph) or computes_in_half(self.native)
        self.tolerance = tolerance or (Tolerance().for_half() if half else Tolerance())
        self._notes: list[str] = []
        if half and tolerance is None:
            self._notes.append("the model computes in float16, so it may differ 100 times more")
        self.checks: list[PaddedDiff] = []
        self.reason = ""
        repaired = None if self._own else self.graph
        self.alone = Alone(self.native, repaired, dims, containers, axis, seeds, self._tell)
        self._done = self._total = 0
        self._filler = 0  # full rows that a container needs besides the clips
        self._progress: Tell = lambda _: None

    def run(self, progress: Tell) -> None:
        """Run everything and compare.

        Raises:
            FeedError: No clip runs alone, or none in a container.
        """
        self._progress = progress
        with open_given(self.native_source) as native:
            found = self.alone.run(native)
            self._total = self._done + sum(1 for _ in self.plan(found)) * len(self._fills)
            if self._own and self._ep == "cpu":
                self._contain(native, found)
                return
        try:  # only now, so that only one set of weights is in memory
            with open_session(self.source, self._ep) as session:
                self._contain(session, found)
        except ModelError as error:
            where = "on DirectML" if self._ep == "dml" else "in ONNX Runtime"
            self.reason = f"the model does not load {where}: {error}"

    def _contain(self, session: Opened, found: ClipTable) -> None:
        for rows, container in self.plan(found):
            self._check(session, rows, container)
        if not (self.checks or self.reason):
            reasons = "; ".join(f"{x.name}: {x.reason}" for x in self.alone.dropped[-3:])
            raise FeedError(f"the model runs in none of the containers ({reasons})")
        # What all comparisons together say: an output that was never a number is not known.
        if not self.reason and all(check.ok for check in self.checks):
            self.reason = "; ".join(faults(grouped((str(x), x.diff) for x in self.checks)))

    @property
    def told(self) -> tuple[str, ...]:
        """The inputs that say where content ends; the one of the metadata first."""
        known = [x.name for x in self.alone.signature.inputs if x.role.kind in TELLS]
        if self.alone.fed is not None:
            known = [self.alone.fed.input, *(x for x in known if x != self.alone.fed.input)]
        return tuple(known)

    @cached_property
    def _row_axes(self) -> dict[str, int | None]:
        """Which axis of each output is that of the rows, where shapes tell."""
        signature = self.alone.signature
        return {k: signature.row_axis(dims or ()) for k, dims in signature.output_dims().items()}

    def plan(self, found: ClipTable) -> Iterator[tuple[list[Clip], int]]:
        """The clips that go into one container together, and how long it is."""
        alone, lengths = self.alone, list(dict.fromkeys(n for n, _ in found))
        step = 0 if alone.clips.one_length else 1
        for seed, first, batch in itertools.product(alone.seeds, alone.firsts, alone.batches):
            start = lengths.index(first)
            turn = [lengths[(start + i * step) % len(lengths)] for i in range(batch)]
            rows = [found[n, seed][i] for i, n in enumerate(turn)]
            longest = max(turn)
            own = [round(longest * times) + i for i, times in enumerate(_LONGER)]
            for container in alone.containers or own:
                if container >= longest:
                    yield rows, container
                else:
                    what = f"{longest} in {alone.name}={container}"
                    alone.drop(what, "a container does not hold a clip that is longer")

    def _check(self, session: Opened, rows: Sequence[Clip], container: int) -> None:
        lengths = tuple(clip.length for clip in rows)
        for fill in self._fills:
            what = f"{','.join(map(str, lengths))} in {self.alone.name}={container}"
            self._tell(f"{what}, padding {fill}")
            try:
                outputs = self._contained(session, rows, container, fill)
            except (FeedError, RunError) as error:
                if reason := self._unpadded(container, rows[0].seed):
                    self.alone.drop(f"{self.alone.name}={container} without padding", reason)
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
        self, session: Opened, rows: Sequence[Clip], container: int, fill: Fill
    ) -> Outputs:
        """Run a container, with one full row more if the model takes the longest for its size."""
        clips, seed = [clip.feeds for clip in rows], rows[0].seed
        try:
            if not self._filler:
                return session.run(self.alone.clips.together(clips, container, fill, seed))
        except RunError:
            if not self.alone.clips.batched:
                raise
        full = self.alone.clips.alone(container, len(clips), seed)
        outputs = session.run(self.alone.clips.together([*clips, full], container, fill, seed))
        self._filler = 1
        return outputs

    def _unpadded(self, container: int, seed: int) -> str:
        """Why the container's size does not run even without padding; empty if it does."""
        try:
            with open_given(self.native_source) as native:
                native.run(self.alone.clips.alone(container, 0, seed))
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
        whole = outputs[name].size
        told = f"{found.size:,} of {whole // rows:,} elements are valid"
        note = told if found.size * rows < whole else ""
        return compare(name, case, alone, found, self.tolerance, note=note)

    def notes(self, ok: bool) -> list[str]:
        """What a reader should know of how it was run."""
        notes = [*self._notes, *self.alone.notes]
        if not self.told:
            notes.append("no input tells the model where content ends: it was run as it is")
            notes += self.alone.signature.unheard() if self._own else []
        if self._filler:
            notes.append(
                "the model runs only with a row as long as the container, so one was added to each"
            )
        if not ok and (node := draws(self.native)) is not None:
            notes.append(
                f"the model draws random numbers ({say(node)}), and draws others for another size"
            )
        if self._ep == "dml":
            notes.append("containers ran on DirectML, clips alone on the CPU")
        return notes

    def _tell(self, what: str) -> None:
        self._progress(f"{self._done}/{max(self._total, self._done + 1)}: {what}")
        self._done += 1


def _read(model: PathOrModel) -> tuple[ir.Model, PathOrModel]:
    """A model's graph, and what to run: a copy with seeds if it draws random numbers."""
    graph = model if isinstance(model, ir.Model) else io.load(model)
    if draws(graph) is not None:
        graph = model = seeded(graph)
    return graph, model
