"""Where a clip alone and the same clip in a container part: the first tensor, and all others.

Tensors are matched by name and compared while they stream by; only their statistics are kept.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.feeds.clips import Fill
from graphfix.model.text import module_path, path_of
from graphfix.model.values import is_op
from graphfix.probing.compared import ComparedTensor, Inner, PartingNode
from graphfix.probing.containers import Job
from graphfix.probing.content_values import carrying
from graphfix.probing.divergence import Parting
from graphfix.probing.probe_result import Probe
from graphfix.proof.compare import Tolerance
from graphfix.proof.inner_tensors import BUDGET, Run, Sizes, Stream
from graphfix.runtime.compared_session import open_given
from graphfix.runtime.provider import LABELS, Ep
from graphfix.runtime.python import require
from graphfix.runtime.run_errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Progress = Callable[[int, int, str], None]

__all__ = ["Inner", "PartingNode", "Probe", "probe_padded"]

StrPath = str | os.PathLike[str]


def probe_padded(
    model: StrPath | ir.Model,
    *,
    dims: Mapping[str, int] | None = None,
    container: int | None = None,
    axis: str = "",
    original: StrPath | ir.Model | None = None,
    fill: Fill = "noise",
    tolerance: Tolerance | None = None,
    ep: Ep = "cpu",
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> Probe:
    """Find where a clip in a container parts from the clip alone.

    Only the valid prefix of each tensor is compared: as much as it has for the clip alone.

    Args:
        model: The model; the container runs on it.
        dims: Sizes of symbolic dims by name; that of the time axis is the clip.
        container: How long the container is; by default four times the clip, or as much as runs.
        axis: The dim that is padded, by name or place (``audio.2``), if several could be.
        original: The model that runs the clip alone; by default ``model`` itself.
        fill: What to put into the padding.
        tolerance: What outputs may differ; the inside is held to a tenth of it.
        ep: Where the container runs.
        budget: How many bytes of inner tensors to hold at once.
        progress: Called with the number of tensors done, of how many, and what is done.

    Raises:
        ModelError: The model cannot be read, or ONNX Runtime rejects it.
        FeedError: There is no such dim, or the clip or the container does not run.
        UsageError: DirectML is asked for and not to be had.
    """
    require(ep)
    given = {name: [size] for name, size in (dims or {}).items()}
    wanted = [container] if container is not None else []
    job = Job(model, original, given, wanted, axis, (fill,), tolerance, 1, ep)
    alone = job.alone
    with open_given(job.native_source) as native:
        found = alone.run(native)
    length = max(n for n, _ in found)  # of those tried: one frame alone has no neighbours
    clip = found[length, 0][0]
    name = alone.name
    error: RunError | None = None
    # A window or a state may not take the first of them.
    for size in wanted or (4 * length, math.ceil(1.5 * length), 12 * length):
        case = f"with {name}={length} alone and in {size}, padding {fill}"
        feeds = alone.clips.together([clip.feeds], size, fill, 0)
        runs = (
            Run(job.native_source, job.native, clip.feeds),
            Run(job.source, job.graph, feeds, ep),
        )
        try:
            runs[1].peek([])
            break
        except RunError as this:
            error = error or this
    else:
        first = f"with {name}={length} alone and in {wanted[0] if wanted else 4 * length}"
        raise FeedError(
            f"the model does not run, {first}, padding {fill}: {error}; name another container"
        ) from error
    shares = {x.name for x in alone.signature.inputs if x.role.kind == "relative-lengths"}
    known = carrying(job.graph, frozenset(shares))
    parting = Parting(job.graph, job.tolerance, carries=known)
    short, long = (alone.clips.sizes(n) for n in (length, size))
    stream = Stream(*runs, Sizes(alone.signature, short, long), budget=budget)
    _compare_all(parting, stream, progress)
    return _result(parting, stream, case)


def _compare_all(parting: Parting, stream: Stream, progress: Progress | None) -> None:
    """Stream every tensor that both have through ``parting``."""
    before, after = stream.before, stream.after
    for name, array in before.feeds.items():
        if name in after.feeds:
            parting.feed(name, array, after.feeds[name])
    known = {v.name for node in before.graph.graph for v in node.outputs}
    names = [
        value.name
        for node in after.graph.graph
        if not is_op(node, "Constant")
        for value in node.outputs
        if value.name and value.name in known and parting.carries(value)
    ]
    done = 0
    for name, ours, theirs in stream.pairs(names):
        parting.take(name, ours, theirs)
        done += 1
        if progress is not None:
            progress(done, len(names), name)
    if names and not done:
        raise FeedError(f"nothing could be compared: {next(iter(stream.failed.values()), '')}")
    for name in names:
        if name not in parting.inner:
            parting.skip(name, "it is no array, or cannot be looked at")


def _result(parting: Parting, stream: Stream, case: str) -> Probe:
    sites, reached = parting.sites()
    where = stream.after.ep
    places = []
    for name, inner in parting.inner.items():
        node = parting.node_of(name)
        if node is not None:
            place = ComparedTensor(
                inner, path_of(node), node.op_type, module_path(node), name in reached
            )
            places.append(place)
    found = []
    for name in sites:
        node, inner = parting.node_of(name), parting.inner[name]
        assert node is not None
        found.append(
            PartingNode(
                tensor=name,
                node=path_of(node),
                op=node.op_type,
                module="/".join(module_path(node)),
                max_abs=inner.max_abs,
                cosine=inner.cosine,
                scale=inner.scale,
            )
        )
    parted = [x.inner.tensor for x in places if x.inner.state == "parted"]
    skipped = Counter(x.inner.reason for x in places if x.inner.state == "skipped")
    return Probe(
        ok=not parting.failed,
        case=case,
        outputs=parting.failed,
        sites=tuple(found),
        places=tuple(places),
        skipped=dict(skipped),
        healed=tuple(name for name in parted if name not in reached),
        runs=stream.runs,
        peak_bytes=stream.peak,
        notes=()
        if where == "cpu"
        else (f"the container ran on {LABELS[where]}, the clip on the CPU",),
    )
