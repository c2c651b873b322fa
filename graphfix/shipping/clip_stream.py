"""A stream of clips of differing lengths, on the original and in containers."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from graphfix.benchmark.interleave import Phases
from graphfix.errors import UsageError
from graphfix.feeds.clips import Clips
from graphfix.feeds.signature import Signature
from graphfix.files import io
from graphfix.runtime.port import Feeds
from graphfix.runtime.process import Runner
from graphfix.runtime.remote import RemoteSession
from graphfix.shipped.container_fit import ClipFit, length_of, rows_in, together
from graphfix.shipped.manifest import Manifest
from graphfix.shipping.stream_cost import (
    Member,
    count_of_containers,
    count_of_original,
    note,
    phases,
)

# For each clip, the model that it is run on and its inputs.
Steps = list[tuple[Path, "Feeds"]]


def lengths_of(
    manifest: Manifest, given: Sequence[int] | None, clips: int, seed: int
) -> tuple[int, ...]:
    """The length of each clip: those that are given, or drawn.

    Raises:
        UsageError: One fits into no container.
    """
    longest = manifest.containers[-1].sizes[manifest.axis.dim]
    if given is None:
        drawn = np.random.default_rng(seed).integers(max(1, longest // 12), longest + 1, clips)
        given = drawn.tolist()
    if not given or min(given) < 1 or max(given) > longest:
        raise UsageError(f"clips must be 1 to {longest} long, as the longest container is")
    return tuple(given)


def clips_of(source: Path, manifest: Manifest, lengths: Sequence[int], seed: int) -> list[Feeds]:
    """A clip of each length."""
    signature = Signature(io.load(source))
    place = next(x for x in signature.inputs if x.name == manifest.axis.input)
    maker = Clips(signature, signature.group(str(place.dims[manifest.axis.axis])), {}, seed)
    return [maker.alone(n, 0, i) for i, n in enumerate(lengths)]


def original(runs: Path, clips: Sequence[Feeds], lengths: Sequence[int], runner: Runner) -> Member:
    """The clips on the original, or on what was repaired of it."""
    return Member(
        count_of_original(runs, len(lengths), sum(n != lengths[0] for n in lengths)),
        lambda seen: _timed([(runs, clip) for clip in clips], seen, runner),
    )


def shipped(folder: Path, manifest: Manifest, clips: Sequence[Feeds], runner: Runner) -> Member:
    """The clips in containers."""
    steps, used = [], []
    for clip in clips:
        length = length_of(manifest, clip)
        container = next(x for x in manifest.containers if x.sizes[manifest.axis.dim] >= length)
        fit = ClipFit(manifest, container, length)
        fed = together(manifest, rows_in(manifest, container), [clip], [fit])
        steps.append((folder / container.file, fed))
        used.append(container)
    return Member(count_of_containers(used), lambda seen: _timed(steps, seen, runner))


def _timed(steps: Steps, seen: dict[str, int], runner: Runner) -> Phases:
    """Run all clips in a process of its own; sessions are made as clips need them."""
    fresh = replace(runner, sessions=len({path for path, _ in steps}) + 1)
    opened: dict[Path, RemoteSession] = {}
    took, moved = [], 0
    with ExitStack() as stack:
        for path, feeds in steps:
            if path not in opened:
                opened[path] = stack.enter_context(RemoteSession(path, fresh))
            outputs = opened[path].run(feeds)
            took.append(opened[path].run_seconds)
            moved += sum(array.nbytes for array in (*feeds.values(), *outputs.values()))
        note(seen, next(iter(opened.values())), moved)
    return phases("clip", sum(x.open_seconds for x in opened.values()), took)
