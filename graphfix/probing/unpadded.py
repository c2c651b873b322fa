"""Run clips without padding: at which lengths a model runs, and its outputs there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.facts.fixed_inputs import fixed_input_arrays
from graphfix.feeds.case import DroppedCase
from graphfix.feeds.case_search import requested_sizes
from graphfix.feeds.clips import ClipMaker, find_padded_group
from graphfix.feeds.dim_groups import TIES
from graphfix.feeds.signature import Signature
from graphfix.lengths.length_input import LengthInput
from graphfix.proof.output_record import find_silent_outputs, positive_inputs_note
from graphfix.runtime.compared_session import Opened
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.wording import Tell

# Lengths that are tried by default, until three run; a waveform needs some hundred.
_LENGTHS = (7, 23, 40, 80, 161, 400, 720, 1600, 3200, 6400, 12800, 25600)
_ENOUGH = 3
# How many contents are tried if some outputs are integers, and if all are.
_SOME_SEEDS, _MANY_SEEDS = 2, 5
# The lengths of rows beyond those that the user gives, as shares of the longest.
_SHARES = (0.62, 0.81, 0.47)
# Clips for a container of a fixed size: full, nearly full, and down to a twelfth.
_FILLED = (1.0, 0.93, 0.6, 0.25, 1 / 12)


@dataclass(frozen=True)
class Clip:
    """A clip, and the outputs of the model for it alone.

    Attributes:
        length: Its length.
        feeds: Its inputs.
        outputs: The outputs of the original for them.
        seed: Clips of one length with other seeds have other contents.
    """

    length: int
    feeds: Feeds
    outputs: Feeds
    seed: int = 0


ClipTable = dict[tuple[int, int], list[Clip]]
"""Clips by length and seed, one for each row of a container."""


class UnpaddedRuns:
    """Makes clips of several lengths and contents, and runs each without padding.

    Args:
        native: The model that runs the clips.
        repaired: The model that runs the containers, if that is another: it may have fixed sizes
            and more inputs.
        dims: Sizes to use, by the name of the symbolic dim.
        containers: The lengths of the containers; empty to choose them.
        axis: The dim that is padded; empty to find it.
        seeds: How many contents each length has; None to choose.
        tell: Called with a short text before each run.

    Attributes:
        length_input: The input of the containers' model that takes the lengths, if its metadata
            names one.
        signature: The inputs of ``native``; known after the clips have run, as all that follows.
        clips: Makes the inputs.
        time: The group of dims that is padded.
        containers: The lengths of the containers, if the user gives them or the model fixes them.
        batches: How many clips go into a container.
        firsts: The lengths of clips in the first row of a container; others fill its other rows.
        seeds: The seeds of the contents.
        dropped: Lengths and containers that the model cannot run without padding.
        notes: Sentences for the reader on the inputs.
    """

    signature: Signature
    clips: ClipMaker
    time: str

    def __init__(
        self,
        native: ir.Model,
        repaired: ir.Model | None,
        dims: Mapping[str, Sequence[int]],
        containers: Sequence[int],
        axis: str,
        seeds: int | None,
        tell: Tell,
    ) -> None:
        self._native, self._repaired = native, repaired
        self._user_dims, self._user_containers = dims, containers
        self._axis, self._tell = axis, tell
        model = native if repaired is None else repaired
        self.length_input = LengthInput.from_metadata(model)
        self.seeds = range(_seed_count(model) if seeds is None else seeds)
        self.dropped: list[DroppedCase] = []
        self._refused: list[DroppedCase] = []
        self.notes: list[str] = []
        self.batches: tuple[int, ...] = (1,)
        self.firsts: list[int] = []

    def run(self, session: Opened) -> ClipTable:
        """Return the clips that run alone.

        Raises:
            FeedError: No length runs, or it is not clear which dim is padded.
        """
        constants = (
            {} if self._repaired is None else fixed_input_arrays(self._native, self._repaired)
        )

        for tie in TIES:
            self.signature = Signature(self._native, tie, constants)
            self.time = find_padded_group(
                self.signature, self._axis, self._user_dims, self.length_input
            )
            self._fit_to_repair()
            extra = None if self._repaired is None else Signature(self._repaired, tie)
            self.clips = ClipMaker(
                self.signature, self.time, self._dims, length_input=self.length_input, extra=extra
            )
            clip_table = self._run_clips(session)
            if clip_table:
                return self._prefer_finite(session, clip_table, extra)
        tried = "; ".join(f"{x.name}: {x.reason}" for x in self.dropped[:3])
        raise FeedError(f"the model runs at none of the lengths without padding ({tried})")

    def _fit_to_repair(self) -> None:
        """Choose the sizes that a repair has fixed: its container, and clips that fit into it."""
        fixed = {} if self._repaired is None else _fixed_sizes(self.signature, self._repaired)
        self._dims, self.containers = self._user_dims, self._user_containers
        if not fixed:
            return
        user_sizes = requested_sizes(self.signature, self._user_dims)
        sizes = {g: user_sizes.get(g, ()) for g in user_sizes} | {g: (n,) for g, n in fixed.items()}
        size = fixed.get(self.time)
        if size is not None:
            shorter = [n for n in user_sizes.get(self.time, ()) if n < size]
            sizes[self.time] = tuple(shorter or clip_lengths_for(size))
            if not self._user_containers or size in self._user_containers:
                self.containers = (size,)
                reason = f"the model is fixed at {size}"
                other_sizes = [n for n in self._user_containers if n != size]
                self._refused = [DroppedCase(f"{self.dim_name}={n}", reason) for n in other_sizes]
        self._dims = {self.signature.user_name(group): n for group, n in sizes.items()}

    def _prefer_finite(
        self, session: Opened, clip_table: ClipTable, extra: Signature | None
    ) -> ClipTable:
        """Return the clips, or others with values above 0 if an output is never a number."""
        silent = _silent_names(clip_table)
        if not silent:
            return clip_table
        usual = self.clips
        self.clips = ClipMaker(
            self.signature,
            self.time,
            self._dims,
            length_input=self.length_input,
            extra=extra,
            positive=True,
        )
        positive_table = self._run_clips(session)
        if positive_table and len(_silent_names(positive_table)) < len(silent):
            self.notes.append(positive_inputs_note(silent))
            return positive_table
        self.clips = usual
        return clip_table

    def _run_clips(self, session: Opened) -> ClipTable:
        """Run clips of all lengths, as many of each as a container has rows.

        Raises:
            FeedError: A container is shorter than a clip that the user asks for.
        """
        sizes = requested_sizes(self.signature, self._dims)
        user_lengths = list(dict.fromkeys(sizes.get(self.time, ())))
        _require_room(self.containers, user_lengths)
        batch = sizes.get(self.signature.batch or "", (1,)) if self.clips.can_batch else (1,)
        self.batches = tuple(n for n in dict.fromkeys(batch) if n > 0) or (1,)
        rows = max(self.batches)
        self.dropped, self.firsts = list(self._refused), []
        clip_table: ClipTable = {}
        enough = len(user_lengths) or _ENOUGH
        for length in user_lengths or self._usual_lengths():
            if len(self.firsts) < enough and self._run_length(session, length, rows, clip_table):
                self.firsts.append(length)
        for length in _filler_lengths(user_lengths, rows):
            self._run_length(session, length, rows, clip_table)
        return clip_table if self.firsts else {}

    def _usual_lengths(self) -> list[int]:
        return [n for n in _LENGTHS if n <= max(self.containers, default=n)]

    def _run_length(self, session: Opened, length: int, rows: int, clip_table: ClipTable) -> bool:
        """Run the clips of one length and add them to the table; return whether all of them run."""
        clips = {seed: self._run_rows(session, length, seed, rows) for seed in self.seeds}
        if not all(clips.values()):
            return False
        clip_table |= {(length, seed): row_clips for seed, row_clips in clips.items()}
        return True

    def _run_rows(self, session: Opened, length: int, seed: int, rows: int) -> list[Clip]:
        row_clips = []
        name = f"{self.dim_name}={length} alone"
        for row in range(rows):
            self._tell(name)
            try:
                feeds = self.clips.make_clip(length, row, seed)
                row_clips.append(Clip(length, feeds, session.run(feeds), seed))
            except (FeedError, RunError) as error:
                self.drop_case(name, str(error))
                return []
        return row_clips

    def drop_case(self, name: str, reason: str) -> None:
        """Record what the model cannot run, once."""
        if all(x.name != name for x in self.dropped):
            self.dropped.append(DroppedCase(name, reason))

    @property
    def dim_name(self) -> str:
        """Return the model's own name of the dim that is padded."""
        return self.signature.user_name(self.time)


def _seed_count(model: ir.Model) -> int:
    """Return how many contents to try: more for integer outputs, which show few leaks each."""
    floats = sum(v.dtype is None or v.dtype.is_floating_point() for v in model.graph.outputs)
    if floats == len(model.graph.outputs):
        return 1
    return _SOME_SEEDS if floats else _MANY_SEEDS


def _require_room(containers: Sequence[int], lengths: Sequence[int]) -> None:
    """Raise FeedError if no container holds the longest clip that the user asks for."""
    if containers and lengths and max(containers) < max(lengths):
        raise FeedError(f"a container of {max(containers)} does not hold a clip of {max(lengths)}")


def _filler_lengths(user_lengths: Sequence[int], rows: int) -> list[int]:
    """Return lengths for the rows of a container beyond the lengths that the user gives."""
    if not user_lengths:
        return []
    lengths = [max(1, round(max(user_lengths) * share)) for share in _SHARES]
    return lengths[: max(0, rows - len(user_lengths))]


def _silent_names(clip_table: ClipTable) -> list[str]:
    return find_silent_outputs(clip.outputs for clips in clip_table.values() for clip in clips)


def _fixed_sizes(signature: Signature, repaired: ir.Model) -> dict[str, int]:
    """Return the groups of dims that were symbolic and are numbers now.

    Args:
        signature: The inputs of the model as it was.
        repaired: The model as it is.
    """
    now = {value.name: value.shape for value in repaired.graph.inputs}
    symbols = set(signature.symbols())
    sizes: dict[str, int] = {}
    for item in signature.inputs:
        shape = now.get(item.name)
        if shape is None or len(shape) != len(item.dims):
            continue
        for dim, size in zip(item.dims, shape, strict=True):
            if isinstance(size, int) and not isinstance(dim, int) and dim.value in symbols:
                sizes[signature.group_of(dim.value)] = size
    return sizes


def clip_lengths_for(size: int) -> list[int]:
    """Return clip lengths for a container of one size, of both parities where it has room."""
    lengths = [max(1, round(size * share)) for share in _FILLED]
    return sorted({*lengths, *(n - 1 for n in (size, lengths[2]) if n > 2)}, reverse=True)
