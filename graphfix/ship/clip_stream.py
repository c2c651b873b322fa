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

from graphfix.benchmark.interleave import FailedError, take_turns
from graphfix.benchmark.timing import Claim, Timing, claim
from graphfix.engine import pipeline
from graphfix.errors import FeedError, ModelError, UsageError
from graphfix.feeds.clips import Clips
from graphfix.feeds.signature import Signature
from graphfix.job import planning
from graphfix.model import io
from graphfix.runtime.python import choose, here
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.run_errors import RunError
from graphfix.runtime.scratch import Folder
from graphfix.ship.container_fit import ClipFit, length_of, rows_in, together
from graphfix.ship.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from graphfix.benchmark.interleave import Phases
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
class StreamCost:
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
class StreamSide:
    """The original, or what was shipped.

    Attributes:
        name: Its file or folder.
        count: What it costs besides time.
        phases: How long it took, by phase.
        error: Why it did not get through; empty if it did.
    """

    name: str
    count: StreamCost
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
    original: StreamSide
    shipped: StreamSide
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


# For each clip, the model that it is run on and its inputs.
Steps = list[tuple[Path, "Feeds"]]


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
    if manifest.stream is not None:
        raise UsageError(
            f"{folder} holds a model that runs step by step, and clips are timed; time its files "
            "by themselves: graphfix bench FILE FILE"
        )
    longest = manifest.containers[-1].sizes[manifest.axis.dim]
    if lengths is None:
        drawn = np.random.default_rng(seed).integers(max(1, longest // 12), longest + 1, clips)
        lengths = drawn.tolist()
    if not lengths or min(lengths) < 1 or max(lengths) > longest:
        raise UsageError(f"clips must be 1 to {longest} long, as the longest container is")
    tell("making clips")
    feeds = _clips(source, manifest, lengths, seed)
    containers = [_container(manifest, n) for n in lengths]
    shipped = _contained(folder, manifest, containers, feeds)
    runner = here(where)
    with ExitStack() as stack:
        runs, repaired = _that_runs(source, feeds[0], runner, stack)
        original = [(runs, clip) for clip in feeds]
        tell("counting kernels")
        counts = [_of_lengths(runs, lengths), _of_containers(containers)]
        seen: list[dict[str, int]] = [{}, {}, {}]
        courses = take_turns(
            [(original, seen[0]), (shipped, seen[1]), (original, seen[2])],
            lambda member: _timed(*member, runner),
            turns=_PROCESSES if processes is None else processes,
            seed=seed,
            tell=tell,
        )
    sides = [
        StreamSide(
            str(path),
            replace(counts[i], **seen[i]),
            {x: courses[i].timing(x) for x in PHASES if courses[i].timing(x).processes},
            courses[i].error,
        )
        for i, path in enumerate((source, folder))
    ]
    claims = {
        x: claim(*(courses[i].timing(x) for i in (1, 0, 2)))
        for x in PHASES
        if not any(course.error for course in courses)
    }
    why = f"the original does not run: {repaired}; it was repaired for DirectML"
    notes = (why,) if repaired else ()
    return Stream(where, note, tuple(lengths), sides[0], sides[1], claims, notes)


def _clips(source: Path, manifest: Manifest, lengths: Sequence[int], seed: int) -> list[Feeds]:
    signature = Signature(io.load(source))
    place = next(x for x in signature.inputs if x.name == manifest.axis.input)
    symbol = str(place.dims[manifest.axis.axis])
    maker = Clips(signature, signature.group(symbol), {}, seed)
    return [maker.alone(n, 0, i) for i, n in enumerate(lengths)]


def _container(manifest: Manifest, length: int) -> Container:
    return next(x for x in manifest.containers if x.sizes[manifest.axis.dim] >= length)


def _contained(
    folder: Path, manifest: Manifest, containers: Sequence[Container], feeds: Sequence[Feeds]
) -> Steps:
    steps: Steps = []
    for container, clip in zip(containers, feeds, strict=True):
        fit = ClipFit(manifest, container, length_of(manifest, clip))
        fed = together(manifest, rows_in(manifest, container), [clip], [fit])
        steps.append((folder / container.file, fed))
    return steps


def _that_runs(source: Path, feeds: Feeds, runner: Runner, stack: ExitStack) -> tuple[Path, str]:
    """The original; repaired, and why, if it does not run."""
    try:
        with closing(RemoteSession(source, replace(runner, sessions=1))) as session:
            session.run(feeds)
        return source, ""
    except (ModelError, RunError) as error:
        model = io.load(source)
        pipeline.run(model, "directml")
        path = stack.enter_context(Folder()).path / source.name
        io.save(model, path)
        return path, str(error)


def _timed(steps: Steps, seen: dict[str, int], runner: Runner) -> Phases:
    """Run all clips in a process of its own; sessions are made as clips need them.

    Args:
        steps: The clips.
        seen: Where it notes the bytes of inputs and outputs, and the most memory of a process.
        runner: Where.
    """
    fresh = replace(runner, sessions=len({path for path, _ in steps}) + 1)
    opened: dict[Path, RemoteSession] = {}
    took, moved = [], 0
    try:
        with ExitStack() as stack:
            for path, feeds in steps:
                if path not in opened:
                    opened[path] = stack.enter_context(closing(RemoteSession(path, fresh)))
                outputs = opened[path].run(feeds)
                took.append(opened[path].run_seconds)
                moved += sum(array.nbytes for array in (*feeds.values(), *outputs.values()))
            peak = next(iter(opened.values())).memory().get("peak")
    except (ModelError, RunError, FeedError) as error:
        raise FailedError(f"does not run: {error}") from error
    seen["moved"] = moved
    if peak:
        seen["peak"] = max(int(peak), seen.get("peak", 0))
    opening = sum(session.open_seconds for session in opened.values())
    return {SESSIONS: (opening,), FIRST: (took[0],), CLIPS: (sum(took),)}


def _of_lengths(model: Path, lengths: Sequence[int]) -> StreamCost:
    glance: Any = planning.glance(model, None)["before"]
    if glance is None:
        return StreamCost()
    run, clips = glance["run"], len(lengths)
    return StreamCost(
        run["dispatches"] * clips,
        run["remade"] * sum(n != lengths[0] for n in lengths),
        run["cpu"] * clips,
        copies=run["copies"] * clips,
    )


def _of_containers(containers: Sequence[Container]) -> StreamCost:
    runs = [x.kernels.get("after") or {} for x in containers]
    if not all(runs):
        return StreamCost()
    sums = {key: sum(x[key] for x in runs) for key in ("dispatches", "cpu", "copies")}
    return StreamCost(sums["dispatches"], 0, sums["cpu"], copies=sums["copies"])


def _plain(side: StreamSide) -> dict[str, object]:
    return {
        "name": side.name,
        **asdict(side.count),
        "phases": {phase: timing.to_json() for phase, timing in side.phases.items()},
        "error": side.error,
    }
