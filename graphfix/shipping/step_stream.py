"""A stream of steps: on the original, whose caches grow, and on what was shipped of it.

States stay on the device on both sides while the clock runs: it sees the runs alone. What the
original's states weigh is in the bytes moved, as of a host that feeds back what it was given.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from graphfix.benchmark.interleave import Phases
from graphfix.errors import UsageError
from graphfix.feeds.states import State
from graphfix.files import io
from graphfix.runtime.compared_session import open_given
from graphfix.runtime.port import Feeds
from graphfix.runtime.process import Runner
from graphfix.runtime.remote import RemoteSession
from graphfix.shipped.manifest import Container, Manifest, Streaming
from graphfix.shipped.remote_runs import RemoteRuns
from graphfix.shipped.stream import Stream
from graphfix.shipping import stream_cost
from graphfix.shipping.chosen_inputs import decided
from graphfix.shipping.container_spec import ContainerSpec
from graphfix.shipping.stream_cost import Member, StreamCost
from graphfix.shipping.stream_steps import Sequences, plan_that_runs

_PROMPT = 37


def counts_of(manifest: Manifest, given: Sequence[int] | None, steps: int) -> tuple[int, ...]:
    """How many entries each step adds: those that are given, or a prompt and single ones.

    Raises:
        UsageError: The caches hold fewer, or a step adds none.
    """
    assert manifest.stream is not None
    sizes = [x.sizes for x in manifest.containers]
    grows = [x.dim for x in manifest.stream.caches if x.grows]
    full = min((sizes[-1][x] for x in grows), default=0)
    bounded = full and not manifest.stream.rolls
    if given is None:
        new = [x[manifest.axis.dim] for x in sizes]
        prompt = min(_PROMPT, max(1, full // 2)) if manifest.stream.joins and grows else max(new)
        one = 1 if manifest.stream.joins else min(new)
        given = [prompt] + [one] * (min(steps, (full - prompt) // one) if bounded else steps)
    if not given or min(given) < 1 or (bounded and sum(given) > full):
        most = f", and all together {full} at most, as the caches hold" if bounded else ""
        raise UsageError(f"each step adds at least one entry{most}")
    return tuple(given)


class Steps:
    """The same steps for both sides, made by running the original once on the CPU.

    Args:
        source: The original.
        manifest: What was shipped of it.
        counts: How many entries each step adds.
        seed: The same seed makes the same inputs.

    Raises:
        FeedError: The original does not run.
        UsageError: It is not what the folder was made of.
    """

    def __init__(self, source: Path, manifest: Manifest, counts: Sequence[int], seed: int) -> None:
        assert manifest.stream is not None
        about: Streaming = manifest.stream
        names = manifest.provenance.get("names", {})
        grows = {x.dim for x in about.caches if x.grows}
        sizes = {
            names.get(dim, [dim])[0]: tuple(sorted({x.sizes[dim] for x in manifest.containers}))
            for dim in manifest.containers[0].sizes
            if dim not in grows
        }
        cache = sorted({x.sizes[d] for x in manifest.containers for d in grows})
        told = [State(x.input, x.output) for x in about.states]
        model = decided(io.load(source), str(manifest.provenance.get("passes", "")))
        plan, constants, _ = plan_that_runs(source, model, ContainerSpec(sizes), cache, told)
        with open_given(source) as session:
            made = Sequences(plan, lambda feeds: session.run({**constants, **feeds}), seed)
            self.feeds = made.sequence("the steps", counts).feeds
            self.empty = {**constants, **made.before()}
        self._later = constants
        self._states = {x.input: x.output for x in about.states}
        self._gives = dict(plan.first.gives) if plan.first else {}

    def original(self, runs: Path, runner: Runner) -> Member:
        """The steps on the original, or on what was repaired of it."""
        count = len(self.feeds)
        cost = stream_cost.count_of_original(runs, count, count - 1)
        return Member(cost, partial(self._grow, runs, runner))

    def shipped(self, folder: Path, runner: Runner) -> Member:
        """The steps on what was shipped."""
        return Member(StreamCost(), partial(self._play, folder, runner))

    def _grow(self, runs: Path, runner: Runner, seen: dict[str, int]) -> Phases:
        """Feed the original back what it gives."""
        with RemoteSession(runs, replace(runner, sessions=1)) as session:
            fed, took, moved = dict(self.empty), [], 0
            for feeds in self.feeds:
                fed |= feeds
                made = session.run(fed, bind=True)
                took.append(session.run_seconds)
                moved += sum(x.nbytes for x in (*fed.values(), *made.values()))
                again = self._states if took[1:] else {**self._states, **self._gives}
                fed |= {**self._later, **{into: made[name] for into, name in again.items()}}
            stream_cost.note(seen, session, moved)
            return stream_cost.phases("step", session.open_seconds, took)

    def _play(self, folder: Path, runner: Runner, seen: dict[str, int]) -> Phases:
        """Run a stream of the folder."""
        with _Clocked(folder, runner) as clocked:
            stream, took = Stream(clocked), []
            for feeds in self.feeds:
                before = clocked.seconds
                stream.run(None, feeds)
                took.append(clocked.seconds - before)
            sessions = [*clocked.made.values()]
            cost = stream_cost.count_of_containers(clocked.used)
            seen |= {k: x for k, x in asdict(cost).items() if x is not None}
            stream_cost.note(seen, sessions[0], clocked.moved)
            return stream_cost.phases("step", sum(x.open_seconds for x in sessions), took)


class _Clocked(RemoteRuns):
    """Runs containers by the clock.

    Attributes:
        used: The container of each run.
        seconds: How long the runs took.
        moved: The bytes that go to the device and come back, states aside.
    """

    def __init__(self, folder: Path, runner: Runner) -> None:
        fresh = replace(runner, sessions=len(Manifest.read(folder).containers) + 1)
        super().__init__(folder, lambda path: RemoteSession(path, fresh))
        assert self.manifest.stream is not None
        self._links = self.manifest.stream.states
        self.used: list[Container] = []
        self.seconds = 0.0
        self.moved = 0

    def ran(self, container: Container, feeds: Feeds) -> Feeds:
        """All outputs of a container."""
        session = self.made[container.file]
        made: Feeds = session.run(feeds, bind=True)
        self.used.append(container)
        self.seconds += session.run_seconds
        kept = {name for x in self._links for name in (x.input, x.output)}
        self.moved += sum(x.nbytes for k, x in (*feeds.items(), *made.items()) if k not in kept)
        return made
