"""Clips alone: the lengths at which a model runs without padding, and what it makes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.facts.fixed_inputs import arrays_since
from graphfix.feeds.case import Dropped
from graphfix.feeds.case_search import wanted_sizes
from graphfix.feeds.clips import Clips, time_of
from graphfix.feeds.dim_groups import TIES
from graphfix.feeds.signature import Signature
from graphfix.lengths.length_input import LengthInput
from graphfix.proof.output_record import kept_positive, silent_outputs
from graphfix.runtime.compared_session import Opened
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.wording import Tell

# Lengths that are tried if nobody gives any, until three run; a waveform needs some hundred.
_LENGTHS = (7, 23, 40, 80, 161, 400, 720, 1600, 3200, 6400, 12800, 25600)
_ENOUGH = 3
# So many contents are tried if some outputs are whole numbers, or all.
_SOME_SEEDS, _MANY_SEEDS = 2, 5
# Rows beyond the given lengths are such shares of the longest.
_SHARES = (0.62, 0.81, 0.47)
# Clips that a container of one size is tried with: full, nearly full, and down to a twelfth.
_FILLED = (1.0, 0.93, 0.6, 0.25, 1 / 12)


@dataclass(frozen=True)
class Clip:
    """A clip, and what the model makes of it alone.

    Attributes:
        length: Its length.
        feeds: Its inputs.
        outputs: What the original makes of them.
        seed: Which of several contents of that length it has.
    """

    length: int
    feeds: Feeds
    outputs: Feeds
    seed: int = 0


ClipTable = dict[tuple[int, int], list[Clip]]
"""Clips by length and seed, one for each row of a container."""


class Alone:
    """Makes clips of several lengths and contents, and runs each without padding.

    Args:
        native: The model that runs them.
        repaired: The model that runs the containers, if that is another: it may have fixed sizes
            and inputs of its own.
        dims: Sizes to use, by the name of the symbolic dim.
        containers: How long the containers are to be; none to choose.
        axis: The dim that is padded; empty to find it.
        seeds: How many contents each length has; None to choose.
        tell: Called with what is run next.

    Attributes:
        fed: How the containers' model is told the lengths, if its metadata says so.
        signature: The inputs of ``native``; known when the clips have run, as all that follows.
        clips: Makes the inputs.
        time: The group of dims that is padded.
        containers: How long the containers are to be, as far as that is asked for or fixed.
        batches: How many clips go into a container.
        firsts: The lengths of clips that begin a container; the others fill its rows.
        seeds: The contents.
        dropped: Lengths and containers that the model cannot run without padding.
        notes: What a reader should know of the inputs.
    """

    signature: Signature
    clips: Clips
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
        self._given, self._wanted = dims, containers
        self._axis, self._tell = axis, tell
        model = native if repaired is None else repaired
        self.fed = LengthInput.of(model)
        self.seeds = range(_seeds(model) if seeds is None else seeds)
        self.dropped: list[Dropped] = []
        self._refused: list[Dropped] = []
        self.notes: list[str] = []
        self.batches: tuple[int, ...] = (1,)
        self.firsts: list[int] = []

    def run(self, session: Opened) -> ClipTable:
        """The clips that run alone.

        Raises:
            FeedError: None does, or it is not clear which dim is padded.
        """
        constants = {} if self._repaired is None else arrays_since(self._native, self._repaired)

        for tie in TIES:
            self.signature = Signature(self._native, tie, constants)
            self.time = time_of(self.signature, self._axis, self._given, self.fed)
            self._fit()
            extra = None if self._repaired is None else Signature(self._repaired, tie)
            self.clips = Clips(self.signature, self.time, self._dims, fed=self.fed, extra=extra)
            found = self._run_alone(session)
            if found:
                return self._finite(session, found, extra)
        tried = "; ".join(f"{x.name}: {x.reason}" for x in self.dropped[:3])
        raise FeedError(f"the model runs at none of the lengths without padding ({tried})")

    def _fit(self) -> None:
        """Where a repair has fixed sizes: that container and no other, and clips that it holds."""
        fixed = {} if self._repaired is None else _fixed_sizes(self.signature, self._repaired)
        self._dims, self.containers = self._given, self._wanted
        if not fixed:
            return
        wanted = wanted_sizes(self.signature, self._given)
        sizes = {g: wanted.get(g, ()) for g in wanted} | {g: (n,) for g, n in fixed.items()}
        size = fixed.get(self.time)
        if size is not None:
            shorter = [n for n in wanted.get(self.time, ()) if n < size]
            sizes[self.time] = tuple(shorter or clips_for(size))
            if not self._wanted or size in self._wanted:
                self.containers = (size,)
                why = f"the model is fixed at {size}"
                others = [n for n in self._wanted if n != size]
                self._refused = [Dropped(f"{self.name}={n}", why) for n in others]
        self._dims = {self.signature.user_name(group): n for group, n in sizes.items()}

    def _finite(self, session: Opened, found: ClipTable, extra: Signature | None) -> ClipTable:
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
            self.notes.append(kept_positive(silent))
            return again
        self.clips = usual
        return found

    def _run_alone(self, session: Opened) -> ClipTable:
        sizes = wanted_sizes(self.signature, self._dims)
        given = list(dict.fromkeys(sizes.get(self.time, ())))
        batch = sizes.get(self.signature.batch or "", (1,)) if self.clips.batched else (1,)
        self.batches = tuple(n for n in dict.fromkeys(batch) if n > 0) or (1,)
        most = max(self.batches)
        if self.containers and given and max(self.containers) < max(given):
            raise FeedError(
                f"a container of {max(self.containers)} does not hold a clip of {max(given)}"
            )
        tried = given or [n for n in _LENGTHS if n <= max(self.containers, default=n)]
        more = [max(1, round(max(tried, default=1) * share)) for share in _SHARES]
        found: ClipTable = {}
        self.dropped = list(self._refused)
        self.firsts = []
        for length in (*tried, *(more[: max(0, most - len(given))] if given else ())):
            if not given and len(self.firsts) >= _ENOUGH:
                break
            clips = {seed: self._clips_of(session, length, seed, most) for seed in self.seeds}
            if all(clips.values()):
                found |= {(length, seed): made for seed, made in clips.items()}
                self.firsts += [length] if length in tried else []
        return found if self.firsts else {}

    def _clips_of(self, session: Opened, length: int, seed: int, rows: int) -> list[Clip]:
        made = []
        name = f"{self.name}={length} alone"
        for row in range(rows):
            self._tell(name)
            try:
                feeds = self.clips.alone(length, row, seed)
                made.append(Clip(length, feeds, session.run(feeds), seed))
            except (FeedError, RunError) as error:
                self.drop(name, str(error))
                return []
        return made

    def drop(self, name: str, reason: str) -> None:
        """Note what the model cannot run, once."""
        if all(x.name != name for x in self.dropped):
            self.dropped.append(Dropped(name, reason))

    @property
    def name(self) -> str:
        """What the model calls the dim that is padded."""
        return self.signature.user_name(self.time)


def _seeds(model: ir.Model) -> int:
    """How many contents to try: the largest of a row, say, stays the same in most of them."""
    floats = sum(v.dtype is None or v.dtype.is_floating_point() for v in model.graph.outputs)
    if floats == len(model.graph.outputs):
        return 1
    return _SOME_SEEDS if floats else _MANY_SEEDS


def _silent(found: ClipTable) -> list[str]:
    return silent_outputs(clip.outputs for clips in found.values() for clip in clips)


def _fixed_sizes(signature: Signature, repaired: ir.Model) -> dict[str, int]:
    """The groups of dims that were symbolic and are numbers now.

    Args:
        signature: The inputs of the model as it was.
        repaired: The model as it is.
    """
    now = {value.name: value.shape for value in repaired.graph.inputs}
    known = set(signature.symbols())
    found: dict[str, int] = {}
    for item in signature.inputs:
        shape = now.get(item.name)
        if shape is None or len(shape) != len(item.dims):
            continue
        for dim, size in zip(item.dims, shape, strict=True):
            if isinstance(size, int) and not isinstance(dim, int) and dim.value in known:
                found[signature.group(dim.value)] = size
    return found


def clips_for(size: int) -> list[int]:
    """Lengths of clips for a container of one size, of both parities where it has room."""
    found = [max(1, round(size * share)) for share in _FILLED]
    return sorted({*found, *(n - 1 for n in (size, found[2]) if n > 2)}, reverse=True)
