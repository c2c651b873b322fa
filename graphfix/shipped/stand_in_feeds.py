"""Inputs for a container whose outputs nobody reads: to warm it up, or to see how long it takes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphfix.runtime.port import Feeds
from graphfix.shipped.container_fit import DTYPES
from graphfix.shipped.manifest import Cache, Container, Manifest


def stand_in_feeds(manifest: Manifest, container: Container, ports: Sequence[Any]) -> Feeds:
    """Return inputs of a clip that fills a container, or of a step behind full caches.

    Args:
        manifest: The manifest.
        container: The container.
        ports: The inputs of its session, as ONNX Runtime has them.
    """
    draw = np.random.default_rng(0)
    described = {x.name: x for x in manifest.inputs}
    # The container of a first call has sizes of its own, and need not have the axis of the steps.
    size = container.sizes.get(manifest.axis.dim, 1)
    counts = {manifest.lengths: size}
    if manifest.stream is not None:
        counts = {x.told: _entries_before(manifest, container, x) for x in manifest.stream.caches}
    feeds = {}
    for port in ports:
        if port.type not in DTYPES:
            continue
        own = described.get(port.name)
        array = np.zeros(port.shape, DTYPES[port.type])
        if port.name in counts:
            array[...] = counts[port.name]
        elif own is not None and own.kind == "mask":
            array[...] = 1 if own.valid is None else own.valid
        elif own is not None and own.kind in ("lengths", "relative-lengths"):
            array[...] = 1 if array.dtype.kind == "f" else size
        elif own is not None and own.kind == "data" and array.dtype.kind == "f":
            array[...] = draw.standard_normal(array.shape)
        feeds[port.name] = array
    return feeds


def _entries_before(manifest: Manifest, container: Container, cache: Cache) -> int:
    """Return how many entries a cache has when the step of a container fills it."""
    new = container.sizes.get(manifest.axis.dim, 0) if cache.grows else 0
    return max(0, container.sizes.get(cache.dim, 0) - new)
