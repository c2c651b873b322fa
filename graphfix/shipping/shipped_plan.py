"""A model read again as it was when its folder was shipped: sizes and states by the manifest."""

from pathlib import Path

import onnx_ir as ir

from graphfix.feeds.dim_groups import Tie
from graphfix.feeds.states import StatePair
from graphfix.files import io
from graphfix.runtime.port import Feeds
from graphfix.shipped.manifest import Manifest, Streaming
from graphfix.shipping.chosen_inputs import fix_and_fold_inputs
from graphfix.shipping.container_spec import ContainerSpec
from graphfix.shipping.stream_plan import StreamPlan
from graphfix.shipping.stream_steps import choose_running_plan


def passes_of(manifest: Manifest) -> str:
    """Return the passes of a folder as text, "" if the manifest has none."""
    return str(manifest.provenance.get("passes", ""))


def own_name(manifest: Manifest, dim: str) -> str:
    """Return what the model calls a dim of the containers."""
    names: dict[str, list[str]] = manifest.provenance.get("names", {})
    return names.get(dim, [dim])[0]


def container_spec_of(manifest: Manifest) -> ContainerSpec:
    """Return the sizes of the containers by the model's own names, without those of caches."""
    stream = manifest.stream
    grows = set() if stream is None else {x.dim for x in stream.caches if x.grows}
    ports = manifest.inputs
    named = {x for port in ports for dim in port.dims for x in manifest.dims_behind(dim)}
    sizes = {
        own_name(manifest, dim): tuple(sorted({x.sizes[dim] for x in manifest.containers}))
        for dim in manifest.containers[0].sizes
        if dim in named - grows
    }
    return ContainerSpec(sizes, manifest.axis.rate)


def stream_plan_of(
    source: Path, manifest: Manifest, stream: Streaming
) -> tuple[StreamPlan, Feeds, Tie]:
    """Plan the steps of a model as its folder takes them.

    Args:
        source: The model.
        manifest: What was shipped of it.
        stream: Its states.

    Returns:
        The plan, what the model is fed in each step besides, and how long its mask is.

    Raises:
        UsageError: The folder was made from another model.
    """
    grows = {x.dim for x in stream.caches if x.grows}
    cache = sorted({x.sizes[d] for x in manifest.containers for d in grows})
    states = [StatePair(x.input, x.output) for x in stream.states]
    model: ir.Model = fix_and_fold_inputs(io.load(source), passes_of(manifest))
    spec = container_spec_of(manifest)
    new = own_name(manifest, manifest.axis.dim)
    new = new if new in spec.sizes else ""  # each step adds as many
    return choose_running_plan(source, model, spec, cache, states, new)
