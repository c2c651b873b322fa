"""A stream of steps: on the original, whose caches grow, and on its shipped folder.

States stay on the device on both sides, so that only runs are timed. The bytes moved count the
original's states, which a host would feed back itself.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import onnx_ir as ir

from graphfix.benchmark.interleave import Phases
from graphfix.errors import UsageError
from graphfix.proof.own_rounding import OwnRounding
from graphfix.providers.table import Ep
from graphfix.runtime.compared_session import Opened, open_original
from graphfix.runtime.port import Feeds
from graphfix.runtime.process import Runner
from graphfix.runtime.remote import RemoteSession
from graphfix.shipped.chunks import largest_takeable
from graphfix.shipped.manifest import Container, Manifest, Streaming
from graphfix.shipped.manifest_file import read_manifest
from graphfix.shipped.stream import Stream
from graphfix.shipping import stream_cost
from graphfix.shipping.allowance import Allowance
from graphfix.shipping.end_to_end import SessionProof
from graphfix.shipping.remote_runs import RemoteRunner
from graphfix.shipping.shipped_plan import stream_plan_of
from graphfix.shipping.stream_cost import StreamCost, Workload
from graphfix.shipping.stream_proof import (
    measure_own_rounding,
    noise_of_steps,
    prove_on_provider,
)
from graphfix.shipping.stream_steps import SequenceRunner, StepSequence

_PROMPT = 37


def choose_counts(manifest: Manifest, counts: Sequence[int] | None, steps: int) -> tuple[int, ...]:
    """Return how many entries each step adds: as requested, or a prompt and single ones.

    Raises:
        UsageError: The caches hold fewer, or a step adds none.
    """
    assert manifest.stream is not None
    grows = [x.dim for x in manifest.stream.caches if x.grows]
    largest = manifest.containers[-1].sizes
    capacity = min((largest[x] for x in grows), default=0)
    limit = capacity if not manifest.stream.rolls else 0
    if counts is None:
        counts = _usual_counts(manifest, capacity, limit, steps)
    if not counts or min(counts) < 1 or (limit and sum(counts) > limit):
        most = f", and all together {limit} at most, as the caches hold" if limit else ""
        raise UsageError(f"each step adds at least one entry{most}")
    return tuple(counts)


def _usual_counts(manifest: Manifest, capacity: int, limit: int, steps: int) -> list[int]:
    """Return a prompt and single entries; of a model whose steps cannot be split, whole containers.

    Args:
        manifest: What was shipped.
        capacity: How many entries the largest caches hold; 0 without caches that grow.
        limit: How many entries there may be in all; 0 for any number.
        steps: How many steps follow the prompt at most.
    """
    assert manifest.stream is not None
    new = sorted({x.sizes[manifest.axis.dim] for x in manifest.containers})
    joins = manifest.stream.joins
    prompt = min(_PROMPT, max(1, capacity // 2)) if joins and capacity else new[-1]
    prompt, step = largest_takeable(prompt, new, joins=joins), new[0]
    count = min(steps, (limit - prompt) // step) if limit else steps
    return [prompt] + [step] * count


class TimedSteps:
    """The same steps for both sides, made by running the original once on the CPU.

    Args:
        source: The original.
        manifest: What was shipped of it.
        counts: How many entries each step adds.
        seed: The same seed makes the same inputs.

    Raises:
        FeedError: The original does not run.
        UsageError: The folder was made from another model.
    """

    def __init__(self, source: Path, manifest: Manifest, counts: Sequence[int], seed: int) -> None:
        assert manifest.stream is not None
        self._streaming: Streaming = manifest.stream
        self._plan, self._constants, _ = stream_plan_of(source, manifest, self._streaming)
        self._source, self._manifest, self._counts, self._seed = source, manifest, counts, seed
        with open_original(source) as session:
            sequences = self._sequences_on(session)
            self._sequence = sequences.run_sequence("the steps", counts)
            self.initial_feeds = {**self._constants, **sequences.initial_feeds()}
        self.feeds = self._sequence.feeds
        self._states = {x.input: x.output for x in self._streaming.states}
        first = self._plan.first
        self._first_call_outputs = dict(first.gives) if first else {}

    def _sequences_on(self, session: Opened) -> SequenceRunner:
        return SequenceRunner(
            self._plan, lambda feeds: session.run({**self._constants, **feeds}), self._seed
        )

    def compare(self, folder: Path, ep: Ep) -> SessionProof:
        """Run the steps on the shipped folder, and compare the outputs with the original's."""
        allowed = Allowance.of_folder(self._source, folder, self._manifest)

        def run_copy(model: ir.Model) -> Sequence[StepSequence]:
            with open_original(model) as session:
                return [self._sequences_on(session).run_sequence("the steps", self._counts)]

        def measure() -> OwnRounding | None:
            if self._streaming.joins or not allowed.own_rounding:
                return None
            tolerance = allowed.rule.tolerance
            return measure_own_rounding(self._source, [self._sequence], tolerance, run_copy)

        noise = noise_of_steps(self._source, [self._sequence], run_copy)
        rule = replace(allowed.rule, measure_noise=noise)
        return prove_on_provider(folder, [self._sequence], rule, ep, measure)

    def original_workload(self, runs: Path, runner: Runner) -> Workload:
        """Return the steps on the original, or on its repaired copy, as a workload."""
        count = len(self.feeds)
        cost = stream_cost.cost_of_original(runs, count, count - 1)
        return Workload(cost, partial(self._run_original, runs, runner))

    def shipped_workload(self, folder: Path, runner: Runner) -> Workload:
        """Return the steps on the shipped folder as a workload."""
        return Workload(StreamCost(), partial(self._run_shipped, folder, runner))

    def _run_original(self, runs: Path, runner: Runner, record: dict[str, int]) -> Phases:
        """Run the original, and feed back its states."""
        with RemoteSession(runs, replace(runner, sessions=1)) as session:
            fed, took, moved_bytes = dict(self.initial_feeds), [], 0
            for feeds in self.feeds:
                fed |= feeds
                outputs = session.run(fed, bind=True)
                took.append(session.run_seconds)
                moved_bytes += sum(x.nbytes for x in (*fed.values(), *outputs.values()))
                fed_back = (
                    self._states if took[1:] else {**self._states, **self._first_call_outputs}
                )
                fed |= {
                    **self._constants,
                    **{into: outputs[name] for into, name in fed_back.items()},
                }
            stream_cost.record_traffic(record, session, moved_bytes)
            return stream_cost.phase_times("step", session.open_seconds, took)

    def _run_shipped(self, folder: Path, runner: Runner, record: dict[str, int]) -> Phases:
        """Run a stream of the folder."""
        with _TimedRunner(folder, runner) as timed_runner:
            stream, took = Stream(timed_runner), []
            for feeds in self.feeds:
                before = timed_runner.seconds
                stream.run(None, feeds)
                took.append(timed_runner.seconds - before)
            sessions = [*timed_runner.sessions.values()]
            cost = stream_cost.cost_of_containers(timed_runner.used)
            record |= {k: x for k, x in asdict(cost).items() if x is not None}
            stream_cost.record_traffic(record, sessions[0], timed_runner.moved)
            return stream_cost.phase_times("step", sum(x.open_seconds for x in sessions), took)


class _TimedRunner(RemoteRunner):
    """Runs containers, and times the runs.

    Attributes:
        used: The container of each run.
        seconds: How long the runs took.
        moved: The bytes that go to the device and come back, without states.
    """

    def __init__(self, folder: Path, runner: Runner) -> None:
        fresh = replace(runner, sessions=len(read_manifest(folder).containers) + 1)
        super().__init__(folder, lambda path: RemoteSession(path, fresh))
        assert self.manifest.stream is not None
        self._links = self.manifest.stream.states
        self.used: list[Container] = []
        self.seconds = 0.0
        self.moved = 0

    def run_container(self, container: Container, feeds: Feeds) -> Feeds:
        """Run a container and return all its outputs."""
        session = self.sessions[container.file]
        outputs: Feeds = session.run(feeds, bind=True)
        self.used.append(container)
        self.seconds += session.run_seconds
        state_names = {name for x in self._links for name in (x.input, x.output)}
        self.moved += sum(
            x.nbytes for k, x in (*feeds.items(), *outputs.items()) if k not in state_names
        )
        return outputs
