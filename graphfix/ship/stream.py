"""A stream of clips of differing lengths: what it costs on the original, and in containers.

What a run launches and makes anew is counted, as foreseen for DirectML. Time is taken by the clock
of :mod:`graphfix.benchmark`: one model a process, processes in turn, a copy of the original along.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfix import pipeline, planning
from graphfix.benchmark.timing import Claim, Timing, claim
from graphfix.benchmark.turns import Course, FailedError, take_turns
from graphfix.errors import FeedError, ModelError, UsageError
from graphfix.feeds.clips import Clips
from graphfix.feeds.signature import Signature
from graphfix.model import io
from graphfix.runtime.errors import RunError
from graphfix.runtime.python import choose, here
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.scratch import Folder
from graphfix.ship.fit import Fit, rows_in, together
from graphfix.ship.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from graphfix.benchmark.turns import Phases
    from graphfix.runtime.port import Array
    from graphfix.runtime.process import Runner
    from graphfix.runtime.python import Wanted
    from graphfix.ship.manifest import Container

    Feeds = Mapping[str, Array]
    Progress = Callable[[str], None]

SESSIONS, FIRST, CLIPS = "making sessions", "first clip", "all clips"
PHASES = (SESSIONS, FIRST, CLIPS)
_CLIPS = 30
_PROCESSES = 6


@dataclass(frozen=True)
class Count:
    """What a stream costs besides time.

    Attributes:
        launched: Kernels that DirectML runs, as foreseen; None where that is not known.
        remade: Of these, how many it makes anew, since the clip is not as long as the first.
        on_cpu: Kernels on the CPU.
        moved: Bytes of inputs that go to the device, and of outputs that come back.
        copies: Tensors that are copied between the device and the CPU within the runs, as foreseen.
        peak: The most memory of a process, in bytes; None where it is not to be had.
    """

    launched: int | None = None
    remade: int | None = None
    on_cpu: int | None = None
    moved: int = 0
    copies: int | None = None
    peak: int | None = None


@dataclass(frozen=True)
class Side:
    """The original, or what was shipped.

    Attributes:
        name: Its file or folder.
        count: What it costs besides time.
        phases: How long it took, by phase.
        error: Why it did not get through; empty if it did.
    """

    name: str
    count: Count
    phases: Mapping[str, Timing]
    error: str = ""


@dataclass(frozen=True)
class Stream:
    """What was found.

    Attributes:
        ep: Where it ran.
        note: What a reader should know of that.
        lengths: The length of each clip.
        original: The model that takes any length.
        shipped: The containers.
        claims: How many times as long what is shipped took, by phase.
        notes: What a reader should know.
    """

    ep: str
    note: str
    lengths: tuple[int, ...]
    original: Side
    shipped: Side
    claims: Mapping[str, Claim]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether both got through."""
        return not (self.original.error or self.shipped.error)

    def to_json(self) -> dict[str, object]:
        """As plain data."""
        return {
            "schema": 1,
            "ok": self.ok,
            "ep": self.ep,
            "note": self.note,
            "lengths": list(self.lengths),
            "original": _plain(self.original),
            "shipped": _plain(self.shipped),
            "ratios": {phase: x.to_json() for phase, x in self.claims.items()},
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class _Member:
    """What one process runs: for each clip, a model and its inputs."""

    models: tuple[Path, ...]
    steps: tuple[tuple[int, Feeds], ...]


@dataclass
class _Seen:
    """What was seen of a member while it was timed.

    Attributes:
        moved: Bytes of inputs and outputs.
        peak: The most memory of a process, in bytes.
    """

    moved: int = 0
    peak: int | None = None


def stream(
    folder: str | Path,
    against: str | Path,
    *,
    ep: Wanted = "auto",
    lengths: Sequence[int] | None = None,
    clips: int = _CLIPS,
    processes: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Stream:
    """Run a stream of clips on a model and on what was shipped of it.

    Args:
        folder: What ``graphfix ship`` made.
        against: The model that takes any length: the original. Where it does not run, it is
            repaired for DirectML first, and a note says so.
        ep: Where; ``"auto"`` is DirectML if there is one, else the CPU.
        lengths: The length of each clip; drawn from a twelfth of the longest container on, if not
            given.
        clips: How many are drawn.
        processes: How many processes of each; no ratio comes of fewer than six.
        seed: The same seed draws the same clips and orders.
        progress: Called with a short text at each step.

    Raises:
        UsageError: The provider is not to be had, or a clip fits into no container.
        ModelError: A file cannot be read.
    """
    tell = progress or (lambda _: None)
    where, note = choose(ep)
    folder, source = Path(folder), Path(against)
    manifest = Manifest.read(folder)
    chosen = tuple(lengths) if lengths else _drawn(manifest, clips, seed)
    longest = manifest.containers[-1].sizes[manifest.axis.dim]
    if not chosen or min(chosen) < 1 or max(chosen) > longest:
        raise UsageError(f"clips must be 1 to {longest} long, as the longest container is")
    tell("making clips")
    feeds = _clips(source, manifest, chosen, seed)
    shipped = _contained(folder, manifest, chosen, feeds)
    runner = here(where)
    notes = []
    with ExitStack() as stack:
        original, repaired = _that_runs(source, feeds, runner, stack)
        if repaired:
            notes.append(f"the original does not run: {repaired}; it was repaired for DirectML")
        tell("counting kernels")
        counts = [
            _of_lengths(planning.glance(original.models[0], None)["before"], chosen),
            _of_containers(manifest, chosen),
        ]
        seen = (_Seen(), _Seen(), _Seen())
        members = [(0, original), (1, shipped), (2, original)]
        courses = take_turns(
            members,
            lambda x: _timed(x[1], runner, seen[x[0]]),
            turns=_PROCESSES if processes is None else processes,
            seed=seed,
            tell=tell,
        )
    sides = [
        Side(
            str(path),
            replace(counts[i], moved=seen[i].moved, peak=seen[i].peak),
            {x: courses[i].timing(x) for x in PHASES if courses[i].timing(x).processes},
            courses[i].error,
        )
        for i, path in enumerate((source, folder))
    ]
    claims = _claims(courses)
    return Stream(where, note, chosen, sides[0], sides[1], claims, tuple(notes))


def _drawn(manifest: Manifest, clips: int, seed: int) -> tuple[int, ...]:
    longest = manifest.containers[-1].sizes[manifest.axis.dim]
    drawn = np.random.default_rng(seed).integers(max(1, longest // 12), longest + 1, clips)
    return tuple(int(x) for x in drawn)


def _clips(source: Path, manifest: Manifest, lengths: Sequence[int], seed: int) -> list[Feeds]:
    signature = Signature(io.load(source))
    place = next(x for x in signature.inputs if x.name == manifest.axis.input)
    symbol = str(place.dims[manifest.axis.axis])
    maker = Clips(signature, signature.group(symbol), {}, seed)
    return [maker.alone(n, 0, i) for i, n in enumerate(lengths)]


def _contained(
    folder: Path, manifest: Manifest, lengths: Sequence[int], feeds: Sequence[Feeds]
) -> _Member:
    steps = []
    for length, clip in zip(lengths, feeds, strict=True):
        container = _container(manifest, length)
        one = Fit(manifest, container, length)
        fed = together(manifest, rows_in(manifest, container), [clip], [one])
        steps.append((manifest.containers.index(container), fed))
    return _Member(tuple(folder / x.file for x in manifest.containers), tuple(steps))


def _container(manifest: Manifest, length: int) -> Container:
    dim = manifest.axis.dim
    return next(x for x in manifest.containers if x.sizes[dim] >= length)


def _that_runs(
    source: Path, feeds: Sequence[Feeds], runner: Runner, stack: ExitStack
) -> tuple[_Member, str]:
    """The original; repaired, and why, if it does not run."""
    steps = tuple((0, clip) for clip in feeds)
    try:
        with closing(RemoteSession(source, replace(runner, sessions=1))) as session:
            session.run(feeds[0])
        return _Member((source,), steps), ""
    except (ModelError, RunError) as error:
        model = io.load(source)
        pipeline.run(model, "directml")
        path = stack.enter_context(Folder()).path / source.name
        io.save(model, path)
        return _Member((path,), steps), str(error)


def _timed(member: _Member, runner: Runner, seen: _Seen) -> Phases:
    """Run all clips in a process of its own; sessions are made as clips need them."""
    fresh = replace(runner, sessions=len(member.models) + 1)
    opened: dict[int, RemoteSession] = {}
    opening, took, moved = 0.0, [], 0
    try:
        with ExitStack() as stack:
            for at, feeds in member.steps:
                if at not in opened:
                    session = RemoteSession(member.models[at], fresh)
                    opened[at] = stack.enter_context(closing(session))
                    opening += session.open_seconds
                outputs = opened[at].run(feeds)
                took.append(opened[at].run_seconds)
                moved += sum(array.nbytes for array in (*feeds.values(), *outputs.values()))
            seen.moved = moved
            peak = next(iter(opened.values())).memory().get("peak")
            if peak:
                seen.peak = max(int(peak), seen.peak or 0)
    except (ModelError, RunError, FeedError) as error:
        raise FailedError(f"does not run: {error}") from error
    return {SESSIONS: (opening,), FIRST: (took[0],), CLIPS: (sum(took),)}


def _of_lengths(glance: Any, lengths: Sequence[int]) -> Count:  # noqa: ANN401  (JSON)
    if glance is None:
        return Count()
    run, others = glance["run"], sum(n != lengths[0] for n in lengths)
    clips = len(lengths)
    return Count(
        run["dispatches"] * clips,
        run["remade"] * others,
        run["cpu"] * clips,
        copies=run["copies"] * clips,
    )


def _of_containers(manifest: Manifest, lengths: Sequence[int]) -> Count:
    runs = [_container(manifest, n).kernels.get("after") or {} for n in lengths]
    if not all(runs):
        return Count()
    return Count(
        sum(x["dispatches"] for x in runs),
        0,
        sum(x["cpu"] for x in runs),
        copies=sum(x["copies"] for x in runs),
    )


def _claims(courses: Sequence[Course]) -> dict[str, Claim]:
    original, shipped, copy = courses
    if original.error or shipped.error or copy.error:
        return {}
    return {x: claim(shipped.timing(x), original.timing(x), copy.timing(x)) for x in PHASES}


def _plain(side: Side) -> dict[str, object]:
    return {
        "name": side.name,
        **asdict(side.count),
        "phases": {phase: timing.to_json() for phase, timing in side.phases.items()},
        "error": side.error,
    }
