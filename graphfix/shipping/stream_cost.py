"""What a stream of runs costs, counted and timed: the original beside its shipped folder.

What a run launches and recompiles is counted, as predicted for DirectML. Time is taken by the clock
of :mod:`graphfix.benchmark`: one model a process, alternately, a copy of the original along.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from graphfix.benchmark.interleave import FailedError, Phases, take_turns
from graphfix.benchmark.timing import Claim, Timing, compare_timings
from graphfix.engine import pipeline
from graphfix.errors import FeedError, ModelError
from graphfix.files import io
from graphfix.job import planning
from graphfix.runtime.port import Feeds
from graphfix.runtime.process import Runner
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.run_errors import RunError
from graphfix.runtime.scratch import ScratchFolder
from graphfix.shipped.manifest import Container
from graphfix.shipping.end_to_end import SessionProof

Progress = pipeline.Progress

Of = Literal["clip", "step"]
SESSIONS = "making sessions"
_PROCESSES = 6


def first_phase(of: Of) -> str:
    """Return the name of the phase of the first run."""
    return f"first {of}"


def total_phase(of: Of) -> str:
    """Return the name of the phase of all runs together."""
    return f"all {of}s"


def phase_times(of: Of, opening: float, took: Sequence[float]) -> Phases:
    """Return the times by phase of a process that has opened its sessions and run all."""
    return {SESSIONS: (opening,), first_phase(of): (took[0],), total_phase(of): (sum(took),)}


@dataclass(frozen=True)
class StreamCost:
    """What a stream costs besides time.

    Attributes:
        launched: Kernels that DirectML runs, as predicted; None where that is not known.
        recompiled: Of these, how many it recompiles, since sizes are others than before.
        on_cpu: Kernels on the CPU.
        moved: Bytes of inputs that go to the device, and of outputs that come back.
        copies: Tensors that are copied from the device to the CPU or back in a run; predicted.
        peak: The most memory of a process, in bytes; None where it is unavailable.
    """

    launched: int | None = None
    recompiled: int | None = None
    on_cpu: int | None = None
    moved: int = 0
    copies: int | None = None
    peak: int | None = None


@dataclass(frozen=True)
class StreamSide:
    """One side of the comparison: the original, or what was shipped.

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
class StreamBenchmark:
    """The result of timing a stream on both sides.

    Attributes:
        ep: Where it ran.
        note: What a reader should know of that.
        lengths: The length of each clip, or how many entries each step adds.
        of: What is run: ``"clip"`` or ``"step"``.
        original: The model that takes any length.
        shipped: The containers.
        claims: How many times as long what is shipped took, by phase.
        proof: The outputs of what is shipped, compared with the original's on the CPU.
        notes: What a reader should know.
    """

    ep: str
    note: str
    lengths: tuple[int, ...]
    of: Of
    original: StreamSide
    shipped: StreamSide
    claims: Mapping[str, Claim]
    proof: SessionProof
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether both sides ran to the end, and their outputs are the same."""
        return self.proof.ok and not (self.original.error or self.shipped.error)

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data for JSON."""
        return {
            "schema": 1,
            "ok": self.ok,
            "ep": self.ep,
            "note": self.note,
            "of": self.of,
            "lengths": list(self.lengths),
            "original": _side_to_json(self.original),
            "shipped": _side_to_json(self.shipped),
            "outputs": self.proof.to_json(),
            "ratios": {phase: x.to_json() for phase, x in self.claims.items()},
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Workload:
    """A side to be timed.

    Attributes:
        cost: Its predicted cost.
        run: Runs it in a new process, and records the bytes moved and the peak of memory.
    """

    cost: StreamCost
    run: Callable[[dict[str, int]], Phases]


def time_sides(
    of: Of, members: Mapping[str, Workload], *, processes: int | None, seed: int, tell: Progress
) -> tuple[tuple[StreamSide, StreamSide], dict[str, Claim]]:
    """Time both sides; return them, and the time ratios by phase.

    Args:
        of: What is run.
        members: The original and what was shipped, by name.
        processes: How many processes of each; no ratio comes of fewer than six.
        seed: The same seed draws the same orders.
        tell: Called with a short text before each process.
    """
    workloads = [*members.values()]
    members_and_copy = (*workloads, workloads[0])  # the original twice: it and its copy
    records: list[dict[str, int]] = [{}, {}, {}]
    courses = take_turns(
        [*zip(members_and_copy, records, strict=True)],
        lambda member: _run_workload(*member),
        turns=_PROCESSES if processes is None else processes,
        seed=seed,
        tell=tell,
    )
    names = (SESSIONS, first_phase(of), total_phase(of))
    original, shipped = (
        StreamSide(
            name,
            replace(member.cost, **records[i]),
            {x: t for x in names if (t := courses[i].timing_of(x)).processes},
            courses[i].error,
        )
        for i, (name, member) in enumerate(members.items())
    )
    compared_phases = () if any(course.error for course in courses) else names
    claims = {
        x: compare_timings(*(courses[i].timing_of(x) for i in (1, 0, 2))) for x in compared_phases
    }
    return (original, shipped), claims


def _run_workload(member: Workload, record: dict[str, int]) -> Phases:
    try:
        return member.run(record)
    except (ModelError, RunError, FeedError) as error:
        raise FailedError(f"does not run: {error}") from error


def runnable_original(
    source: Path, feeds: Feeds, runner: Runner, stack: ExitStack
) -> tuple[Path, str]:
    """Return the original; if it does not run, one repaired for DirectML, and the reason.

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
        path = stack.enter_context(ScratchFolder()).path / source.name
        io.save(model, path)
        return path, str(error)


def record_traffic(record: dict[str, int], session: RemoteSession, moved_bytes: int) -> None:
    """Record the bytes moved, and the peak memory of a session's process if available."""
    record["moved"] = moved_bytes
    if most := session.peak_memory():
        record["peak"] = max(most, record.get("peak", 0))


def cost_of_original(model: Path, runs: int, other_lengths: int) -> StreamCost:
    """Return the cost of so many runs; those of another length recompile their kernels."""
    glance: Any = planning.plan_summary(model)
    if glance is None:
        return StreamCost()
    run = glance["run"]
    launched, on_cpu, copies = (run[x] * runs for x in ("dispatches", "cpu", "copies"))
    return StreamCost(launched, run["recompiled"] * other_lengths, on_cpu, copies=copies)


def cost_of_containers(containers: Sequence[Container]) -> StreamCost:
    """Return the cost of running these containers one after the other."""
    runs = [x.kernels.get("after") or {} for x in containers]
    if not all(runs):
        return StreamCost()
    sums = {key: sum(x[key] for x in runs) for key in ("dispatches", "cpu", "copies")}
    return StreamCost(sums["dispatches"], 0, sums["cpu"], copies=sums["copies"])


def _side_to_json(side: StreamSide) -> dict[str, object]:
    return {
        "name": side.name,
        **asdict(side.count),
        "phases": {phase: timing.to_json() for phase, timing in side.phases.items()},
        "error": side.error,
    }
