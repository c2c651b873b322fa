"""What a stream of runs costs, counted and timed: the original beside what was shipped of it.

What a run launches and recompiles is counted, as predicted for DirectML. Time is taken by the clock
of :mod:`graphfix.benchmark`: one model a process, alternately, a copy of the original along.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from graphfix.benchmark.interleave import FailedError, Phases, take_turns
from graphfix.benchmark.timing import Claim, Timing, claim
from graphfix.engine import pipeline
from graphfix.errors import FeedError, ModelError
from graphfix.files import io
from graphfix.job import planning
from graphfix.runtime.port import Feeds
from graphfix.runtime.process import Runner
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.run_errors import RunError
from graphfix.runtime.scratch import Folder
from graphfix.shipped.manifest import Container

Progress = pipeline.Progress

Of = Literal["clip", "step"]
SESSIONS = "making sessions"
_PROCESSES = 6


def first(of: Of) -> str:
    """The phase of the first of them."""
    return f"first {of}"


def all_of(of: Of) -> str:
    """The phase of all of them together."""
    return f"all {of}s"


def phases(of: Of, opening: float, took: Sequence[float]) -> Phases:
    """The phases of a process that has made its sessions and run all."""
    return {SESSIONS: (opening,), first(of): (took[0],), all_of(of): (sum(took),)}


@dataclass(frozen=True)
class StreamCost:
    """What a stream costs besides time.

    Attributes:
        launched: Kernels that DirectML runs, as predicted; None where that is not known.
        remade: Of these, how many it recompiles, since sizes are others than before.
        on_cpu: Kernels on the CPU.
        moved: Bytes of inputs that go to the device, and of outputs that come back.
        copies: Tensors that are copied from the device to the CPU or back in a run; predicted.
        peak: The most memory of a process, in bytes; None where it is unavailable.
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
        lengths: The length of each clip, or how many entries each step adds.
        of: What is run: ``"clip"`` or ``"step"``.
        original: The model that takes any length.
        shipped: The containers.
        claims: How many times as long what is shipped took, by phase.
        notes: What a reader should know.
    """

    ep: str
    note: str
    lengths: tuple[int, ...]
    of: Of
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
            "of": self.of,
            "lengths": list(self.lengths),
            "original": _plain(self.original),
            "shipped": _plain(self.shipped),
            "ratios": {phase: x.to_json() for phase, x in self.claims.items()},
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Member:
    """What is timed.

    Attributes:
        cost: What it costs, as predicted.
        run: Runs all in a process of its own, and notes the bytes moved and the peak of memory.
    """

    cost: StreamCost
    run: Callable[[dict[str, int]], Phases]


def timed(
    of: Of, members: Mapping[str, Member], *, processes: int | None, seed: int, tell: Progress
) -> tuple[tuple[StreamSide, StreamSide], dict[str, Claim]]:
    """Both sides, and how many times as long what is shipped took, by phase.

    Args:
        of: What is run.
        members: The original and what was shipped, by name.
        processes: How many processes of each; no ratio comes of fewer than six.
        seed: The same seed draws the same orders.
        tell: Called with a short text before each process.
    """
    both = [*members.values()]
    seen: list[dict[str, int]] = [{}, {}, {}]
    courses = take_turns(
        [*zip((*both, both[0]), seen, strict=True)],  # the original twice: it and its copy
        lambda member: _run(*member),
        turns=_PROCESSES if processes is None else processes,
        seed=seed,
        tell=tell,
    )
    names = (SESSIONS, first(of), all_of(of))
    one, other = (
        StreamSide(
            name,
            replace(member.cost, **seen[i]),
            {x: t for x in names if (t := courses[i].timing(x)).processes},
            courses[i].error,
        )
        for i, (name, member) in enumerate(members.items())
    )
    told = () if any(course.error for course in courses) else names
    claims = {x: claim(*(courses[i].timing(x) for i in (1, 0, 2))) for x in told}
    return (one, other), claims


def _run(member: Member, seen: dict[str, int]) -> Phases:
    try:
        return member.run(seen)
    except (ModelError, RunError, FeedError) as error:
        raise FailedError(f"does not run: {error}") from error


def that_runs(source: Path, feeds: Feeds, runner: Runner, stack: ExitStack) -> tuple[Path, str]:
    """The original; repaired for DirectML, and why, if it does not run.

    Args:
        source: The original.
        feeds: What it is tried on.
        runner: Where.
        stack: What removes the repaired file.
    """
    try:
        with RemoteSession(source, replace(runner, sessions=1)) as session:
            session.run(feeds)
        return source, ""
    except (ModelError, RunError) as error:
        model = io.load(source)
        pipeline.run(model, "directml")
        path = stack.enter_context(Folder()).path / source.name
        io.save(model, path)
        return path, str(error)


def note(seen: dict[str, int], session: RemoteSession, moved: int) -> None:
    """Note the bytes that moved, and the most memory of a session's process, if it is available."""
    seen["moved"] = moved
    if most := session.peak_memory():
        seen["peak"] = max(most, seen.get("peak", 0))


def count_of_original(model: Path, runs: int, others: int) -> StreamCost:
    """What so many runs launch; of each whose lengths are others, the shapes are compiled again."""
    glance: Any = planning.glance(model)
    if glance is None:
        return StreamCost()
    run = glance["run"]
    launched, on_cpu, copies = (run[x] * runs for x in ("dispatches", "cpu", "copies"))
    return StreamCost(launched, run["remade"] * others, on_cpu, copies=copies)


def count_of_containers(containers: Sequence[Container]) -> StreamCost:
    """What these containers launch, one after the other."""
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
