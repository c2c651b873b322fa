"""A stream of clips of different lengths, on the original and in containers."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from graphfix.benchmark.interleave import Phases
from graphfix.errors import UsageError
from graphfix.feeds.clips import ClipMaker
from graphfix.feeds.signature import Signature
from graphfix.files import io
from graphfix.proof.budget import Budget
from graphfix.proof.by_channel import OutputPair, Scales
from graphfix.proof.noise import Noise, NoiseSource
from graphfix.proof.own_rounding import OwnRounding, measure_own_rounding
from graphfix.providers.table import Ep
from graphfix.runtime.compared_session import open_original, open_session
from graphfix.runtime.port import Feeds
from graphfix.runtime.process import Runner
from graphfix.runtime.remote import RemoteSession
from graphfix.shipped.container_fit import ClipFit, join_clips, length_of, rows_in
from graphfix.shipped.manifest import Container, Manifest
from graphfix.shipping.allowance import Allowance
from graphfix.shipping.end_to_end import SessionProof, compare_outputs
from graphfix.shipping.remote_runs import RemoteRunner
from graphfix.shipping.stream_cost import (
    Workload,
    cost_of_containers,
    cost_of_original,
    phase_times,
    record_traffic,
)

# For each clip, the model that it is run on and its inputs.
ClipRuns = list[tuple[Path, Feeds]]


def choose_lengths(
    manifest: Manifest, lengths: Sequence[int] | None, clips: int, seed: int
) -> tuple[int, ...]:
    """Return the length of each clip: as requested, or drawn at random.

    Raises:
        UsageError: One fits into no container.
    """
    longest = manifest.containers[-1].sizes[manifest.axis.dim]
    if lengths is None:
        drawn = np.random.default_rng(seed).integers(max(1, longest // 12), longest + 1, clips)
        lengths = drawn.tolist()
    if not lengths or min(lengths) < 1 or max(lengths) > longest:
        raise UsageError(f"clips must be 1 to {longest} long, as the longest container is")
    return tuple(lengths)


def make_clips(source: Path, manifest: Manifest, lengths: Sequence[int], seed: int) -> list[Feeds]:
    """Make a clip of each length."""
    signature = Signature(io.load(source))
    place = next(x for x in signature.inputs if x.name == manifest.axis.input)
    maker = ClipMaker(signature, signature.group_of(str(place.dims[manifest.axis.axis])), {}, seed)
    return [maker.make_clip(n, 0, i) for i, n in enumerate(lengths)]


def original_workload(
    runs: Path, clips: Sequence[Feeds], lengths: Sequence[int], runner: Runner
) -> Workload:
    """Return the clips on the original, or on its repaired copy, as a workload."""
    return Workload(
        cost_of_original(runs, len(lengths), sum(n != lengths[0] for n in lengths)),
        lambda record: _time_clips([(runs, clip) for clip in clips], record, runner),
    )


def shipped_workload(
    folder: Path, manifest: Manifest, clips: Sequence[Feeds], runner: Runner
) -> Workload:
    """Return the clips in containers as a workload."""
    steps, used = [], []
    for clip in clips:
        container, _, feeds = _fit_into_container(manifest, clip)
        steps.append((folder / container.file, feeds))
        used.append(container)
    return Workload(cost_of_containers(used), lambda record: _time_clips(steps, record, runner))


def compare_clips(
    source: Path, folder: Path, manifest: Manifest, clips: Sequence[Feeds], ep: Ep
) -> SessionProof:
    """Run the clips on the original, on the CPU, and in containers; compare the outputs.

    Args:
        source: The original.
        folder: What was shipped of it.
        manifest: Its manifest.
        clips: The clips, one row each.
        ep: Where the containers run.

    Raises:
        ModelError: The original does not load.
        RunError: A clip does not run.
    """
    with open_original(source) as session:
        originals = [session.run(clip) for clip in clips]
    pairs: list[OutputPair] = []
    with RemoteRunner(folder, lambda path: open_session(path, ep)) as runner:
        for number, (clip, expected) in enumerate(zip(clips, originals, strict=True)):
            container, fit, feeds = _fit_into_container(manifest, clip)
            runner.open_container(container)
            outputs = runner.run_container(container, feeds)
            pairs += [
                OutputPair(
                    x.name,
                    f"clip of {fit.length}",
                    expected[x.name],
                    fit.cut_output(x, outputs[x.name], 0),
                    str(number),
                )
                for x in manifest.outputs
            ]
    allowed = Allowance.of_folder(source, folder, manifest)
    original, tolerance = io.load(source), allowed.rule.tolerance
    noise_source = NoiseSource(source, original, ep, tolerance.whole)

    def measure() -> OwnRounding | None:
        if not allowed.own_rounding:
            return None
        runs, seconds = [*zip(clips, originals, strict=True)], Budget().part
        return measure_own_rounding(source, original, runs, tolerance, seconds, optimize=True)

    def measure_noise(number: str, scales: Scales) -> Noise:
        clip, expected = clips[int(number)], originals[int(number)]
        return noise_source.measure_case(clip, expected, scales, Budget().part)

    return compare_outputs(pairs, replace(allowed.rule, measure_noise=measure_noise), measure)


def _fit_into_container(manifest: Manifest, clip: Feeds) -> tuple[Container, ClipFit, Feeds]:
    """Return the smallest container that holds a clip, how it fits, and what that is fed."""
    length = length_of(manifest, clip)
    container = next(x for x in manifest.containers if x.sizes[manifest.axis.dim] >= length)
    fit = ClipFit(manifest, container, length)
    return container, fit, join_clips(manifest, rows_in(manifest, container), [clip], [fit])


def _time_clips(steps: ClipRuns, record: dict[str, int], runner: Runner) -> Phases:
    """Run all clips in a new process, opening sessions as clips need them."""
    fresh = replace(runner, sessions=len({path for path, _ in steps}) + 1)
    opened: dict[Path, RemoteSession] = {}
    took, moved_bytes = [], 0
    with ExitStack() as stack:
        for path, feeds in steps:
            if path not in opened:
                opened[path] = stack.enter_context(RemoteSession(path, fresh))
            outputs = opened[path].run(feeds)
            took.append(opened[path].run_seconds)
            moved_bytes += sum(array.nbytes for array in (*feeds.values(), *outputs.values()))
        record_traffic(record, next(iter(opened.values())), moved_bytes)
    return phase_times("clip", sum(x.open_seconds for x in opened.values()), took)
