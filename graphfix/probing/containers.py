"""Run clips in containers and compare their outputs with those of the clips alone."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import onnx_ir as ir

from graphfix.errors import FeedError, ModelError
from graphfix.feeds.clips import Fill
from graphfix.feeds.graph_uses import node_title
from graphfix.feeds.roles import LENGTH_KINDS
from graphfix.files import io
from graphfix.files.model_input import PathOrModel
from graphfix.probing.in_container import PaddedDiff, crop_to_clip
from graphfix.probing.unpadded import Clip, ClipTable, UnpaddedRuns
from graphfix.proof.allowance import USUAL
from graphfix.proof.budget import Budget
from graphfix.proof.by_channel import (
    ChannelRule,
    OutputPair,
    PairComparison,
    Scales,
    scales_of,
)
from graphfix.proof.compare import Array, OutputDiff, Tolerance
from graphfix.proof.half_outputs import computes_in_half
from graphfix.proof.noise import Noise, NoiseSource
from graphfix.proof.output_record import find_faults
from graphfix.providers.table import PROVIDERS, Ep
from graphfix.runtime.compared_session import Opened, open_original, open_session
from graphfix.runtime.random_nodes import first_random_node, seed_model
from graphfix.runtime.run_errors import RunError
from graphfix.wording import Tell, group_pairs

Outputs = dict[str, Array]

# Default containers, as multiples of the clip: nearly full, and 5 s in 60 s. The second is one
# longer, so that both parities are tried: the ends of a stride depend on it.
_LONGER = (1.5, 12.0)


class PaddedCheck:
    """One padded check: clips in containers, compared with the clips alone.

    Attributes:
        graph: The model that runs the containers.
        source: What to load for it.
        native: The model that runs the clips alone.
        native_source: What to load for that.
        clip_runs: Makes the clips and runs them alone.
        tolerance: The gates.
        checks: The differences of each output of each clip.
        clips_alone: The clips and what they give alone; known after :meth:`run`.
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
        self.graph, self.source = _load_seeded(model)
        native = (self.graph, self.source) if original is None else _load_seeded(original)
        self.native, self.native_source = native
        self._is_own_original = original is None
        self._fills, self._ep = fills, ep
        half = computes_in_half(self.graph) or computes_in_half(self.native)
        self.tolerance = tolerance or (USUAL.for_half() if half else USUAL)
        self._rule = ChannelRule.between((self.graph, self.native), tolerance, self._measure_noise)
        self._notes: list[str] = []
        if half and tolerance is None:
            self._notes.append("the model computes in float16, so it may differ 100 times more")
        self.checks: list[PaddedDiff] = []
        self.clips_alone: list[Clip] = []
        self.reason = ""
        repaired = None if self._is_own_original else self.graph
        self.clip_runs = UnpaddedRuns(
            self.native, repaired, dims, containers, axis, seeds, self._report_step
        )
        self._steps_run = self._total = 0
        self._filler = 0  # full rows that a container needs besides the clips
        self._progress: Tell = lambda _: None

    def run(self, progress: Tell) -> None:
        """Run everything and compare.

        Raises:
            FeedError: No clip runs alone, or none in a container.
        """
        self._progress = progress
        with open_original(self.native_source) as native:
            clip_table = self.clip_runs.run(native)
            self.clips_alone = [clip for clips in clip_table.values() for clip in clips]
            self._total = self._steps_run + sum(1 for _ in self.plan_containers(clip_table)) * len(
                self._fills
            )
            if self._is_own_original and self._ep == "cpu":
                self._run_containers(native, clip_table)
                return
        try:  # only now, so that only one set of weights is in memory
            with open_session(self.source, self._ep) as session:
                self._run_containers(session, clip_table)
        except ModelError as error:
            where = "in ONNX Runtime" if self._ep == "cpu" else f"on {PROVIDERS[self._ep].label}"
            self.reason = f"the model does not load {where}: {error}"

    def _run_containers(self, session: Opened, clip_table: ClipTable) -> None:
        for rows, container in self.plan_containers(clip_table):
            self._check_container(session, rows, container)
        if not (self.checks or self.reason):
            reasons = "; ".join(f"{x.name}: {x.reason}" for x in self.clip_runs.dropped[-3:])
            raise FeedError(f"the model runs in none of the containers ({reasons})")
        # Faults over all comparisons, such as an output that was never a number.
        if not self.reason and all(check.ok for check in self.checks):
            self.reason = "; ".join(find_faults(group_pairs((str(x), x.diff) for x in self.checks)))

    @property
    def ok(self) -> bool:
        """Return whether every clip was compared, and is within the gates."""
        return bool(self.checks) and not self.reason and all(check.ok for check in self.checks)

    @property
    def length_inputs(self) -> tuple[str, ...]:
        """Return the inputs that say where content ends; the one of the metadata first."""
        names = [x.name for x in self.clip_runs.signature.inputs if x.role.kind in LENGTH_KINDS]
        if self.clip_runs.length_input is not None:
            names = [
                self.clip_runs.length_input.input,
                *(x for x in names if x != self.clip_runs.length_input.input),
            ]
        return tuple(names)

    @cached_property
    def _row_axes(self) -> dict[str, int | None]:
        """Return the batch axis of each output; None if shapes do not say it."""
        signature = self.clip_runs.signature
        return {k: signature.row_axis(dims or ()) for k, dims in signature.output_dims().items()}

    def plan_containers(self, clip_table: ClipTable) -> Iterator[tuple[list[Clip], int]]:
        """Yield the clips that go into one container, and how long it is."""
        clip_runs, lengths = self.clip_runs, list(dict.fromkeys(n for n, _ in clip_table))
        step = 0 if clip_runs.clips.shares_one_length else 1
        for seed, first, batch in itertools.product(
            clip_runs.seeds, clip_runs.firsts, clip_runs.batches
        ):
            start = lengths.index(first)
            turn = [lengths[(start + i * step) % len(lengths)] for i in range(batch)]
            rows = [clip_table[n, seed][i] for i, n in enumerate(turn)]
            longest = max(turn)
            own = [round(longest * times) + i for i, times in enumerate(_LONGER)]
            for container in clip_runs.containers or own:
                if container >= longest:
                    yield rows, container
                else:
                    label = f"{longest} in {clip_runs.dim_name}={container}"
                    clip_runs.drop_case(label, "a container does not hold a clip that is longer")

    def _check_container(self, session: Opened, rows: Sequence[Clip], container: int) -> None:
        lengths = tuple(clip.length for clip in rows)
        for fill in self._fills:
            label = f"{','.join(map(str, lengths))} in {self.clip_runs.dim_name}={container}"
            self._report_step(f"{label}, padding {fill}")
            try:
                outputs = self._run_container(session, rows, container, fill)
            except (FeedError, RunError) as error:
                if reason := self._unpadded_failure(container, rows[0].seed):
                    self.clip_runs.drop_case(
                        f"{self.clip_runs.dim_name}={container} without padding", reason
                    )
                else:
                    where = "" if self._ep == "cpu" else f" on {PROVIDERS[self._ep].label}"
                    message = (
                        f"the model does not run{where}, with {label}, padding {fill}: {error}"
                    )
                    self.reason = self.reason or message
                return
            count = len(rows) + self._filler
            for row, clip in enumerate(rows):
                for diff in self._compare_outputs(clip, outputs, row, count, f"{label}, {fill}"):
                    self.checks.append(PaddedDiff(clip.length, container, fill, lengths, row, diff))

    def _run_container(
        self, session: Opened, rows: Sequence[Clip], container: int, fill: Fill
    ) -> Outputs:
        """Run a container; if it fails, add a full row, for models that size by the longest row."""
        clips, seed = [clip.feeds for clip in rows], rows[0].seed
        try:
            if not self._filler:
                return session.run(
                    self.clip_runs.clips.make_container(clips, container, fill, seed)
                )
        except RunError:
            if not self.clip_runs.clips.can_batch:
                raise
        full = self.clip_runs.clips.make_clip(container, len(clips), seed)
        outputs = session.run(
            self.clip_runs.clips.make_container([*clips, full], container, fill, seed)
        )
        self._filler = 1
        return outputs

    def _unpadded_failure(self, container: int, seed: int) -> str:
        """Return why the container's size does not run even without padding; "" if it does."""
        try:
            with open_original(self.native_source) as native:
                native.run(self.clip_runs.clips.make_clip(container, 0, seed))
        except (FeedError, RunError) as error:
            return str(error)
        return ""

    @cached_property
    def _comparison(self) -> PairComparison:
        alone = (x for clip in self.clips_alone for x in clip.outputs.items())
        return PairComparison(self._rule, scales_of(alone))

    def _measure_noise(self, number: str, scales: Scales) -> Noise:
        """Return how far the original differs from itself for the clip of a number."""
        clip = self.clips_alone[int(number)]
        in_half = self.tolerance.whole
        source = NoiseSource(self.native_source, self.native, self._ep, in_half)
        return source.measure_case(clip.feeds, clip.outputs, scales, Budget().part)

    def _compare_outputs(
        self, clip: Clip, outputs: Outputs, row: int, rows: int, case: str
    ) -> Iterator[OutputDiff]:
        number = next(i for i, x in enumerate(self.clips_alone) if x is clip)
        pairs: list[OutputPair] = []
        for name, reference in clip.outputs.items():
            if name not in outputs:
                yield OutputDiff(name, case, ok=False, reason="is missing", total=reference.size)
                continue
            valid_part = crop_to_clip(outputs[name], reference, row, rows, self._row_axes.get(name))
            if isinstance(valid_part, str):
                yield OutputDiff(name, case, ok=False, reason=valid_part, total=reference.size)
                continue
            total = outputs[name].size
            share_text = f"{valid_part.size:,} of {total // rows:,} elements are valid"
            note = share_text if valid_part.size * rows < total else ""
            pairs.append(OutputPair(name, case, reference, valid_part, str(number), note))
        yield from map(self._comparison.compare_pair, self._rule.settle_pairs(pairs))

    def run_notes(self, ok: bool) -> list[str]:
        """Return sentences for the reader on how the models were run."""
        notes = [*self._notes, *self.clip_runs.notes]
        if not self.length_inputs:
            notes.append("no input tells the model where content ends: it was run as it is")
            notes += self.clip_runs.signature.unused_input_notes() if self._is_own_original else []
        if self._filler:
            notes.append(
                "the model runs only with a row as long as the container, so one was added to each"
            )
        if not ok and (node := first_random_node(self.native)) is not None:
            notes.append(
                f"the model draws random numbers ({node_title(node)}), and draws others "
                "for another size"
            )
        if self._ep != "cpu":
            label = PROVIDERS[self._ep].label
            notes.append(f"containers ran on {label}, clips alone on the CPU")
        return notes

    def _report_step(self, label: str) -> None:
        self._progress(f"{self._steps_run}/{max(self._total, self._steps_run + 1)}: {label}")
        self._steps_run += 1


def _load_seeded(model: PathOrModel) -> tuple[ir.Model, PathOrModel]:
    """Return a model's graph, and what to run: a copy with seeds if it draws random numbers."""
    graph = model if isinstance(model, ir.Model) else io.load(model)
    if first_random_node(graph) is not None:
        graph = model = seed_model(graph)
    return graph, model
