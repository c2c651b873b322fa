"""A model that is run beside others: its source and its feeds.

All get the inputs of the first model, made into their own: by the passes that they went through,
where those changed the signature, and in their own floating-point type.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Readings
from graphfix.errors import FeedError
from graphfix.feeds.full_lengths import add_full_lengths
from graphfix.files import io
from graphfix.paths import StrPath
from graphfix.runtime.model_source import Source
from graphfix.runtime.port import Array, Feeds
from graphfix.runtime.random_nodes import first_random_node, seed_model

MapFeeds = Callable[[Feeds], Feeds]
# Returns the first model's outputs as a model's own tell them, from the outputs of both.
ReadOutputs = Callable[[Readings, Readings], Readings]


@dataclass(frozen=True)
class Entrant:
    """A model to time.

    Attributes:
        graph: Its graph.
        source: What to load: its file, or the graph with seeds if it draws random numbers.
        map_feeds: Makes inputs for it from those of the first model.
        read_outputs: Returns the first model's outputs as its own tell them.
    """

    graph: ir.Model
    source: Source
    map_feeds: MapFeeds
    read_outputs: ReadOutputs = lambda new, _: new

    def own_feeds(self, of_first: Feeds) -> dict[str, Array]:
        """Return its own inputs, made from those of the first model.

        Raises:
            FeedError: There is no array for one of its inputs.
        """
        mapped = add_full_lengths(self.graph, self.map_feeds(of_first))
        own_arrays: dict[str, Array] = {}
        for value in self.graph.graph.inputs:
            name = value.name or ""
            if name in mapped:
                own_arrays[name] = _as_type(np.asarray(mapped[name]), value.dtype)
            elif value.const_value is None and name not in self.graph.graph.initializers:
                raise FeedError(
                    f"its input {name!r} is none of the first model's, and no pass that it says "
                    "it went through makes one"
                )
        return own_arrays

    def fits(self, of_first: Feeds) -> bool:
        """Return whether the fixed sizes of its signature are those of the inputs."""
        return not any(
            isinstance(d, int) and d != size for d, size in self._dims_with_sizes(of_first)
        )

    def free_dims(self, of_first: Feeds) -> dict[str, int]:
        """Return a size for each symbolic dim of its inputs, also for ``past + 1``."""
        free = (
            (d, size)
            for d, size in self._dims_with_sizes(of_first)
            if isinstance(d, ir.SymbolicDim)
        )
        return {dim.value: size for dim, size in free if dim.value}

    def _dims_with_sizes(self, of_first: Feeds) -> Iterator[tuple[int | ir.SymbolicDim, int]]:
        """Yield each dim of its inputs, with its size in the arrays."""
        mapped = self.map_feeds(of_first)
        for value in self.graph.graph.inputs:
            if value.shape is not None and (array := mapped.get(value.name or "")) is not None:
                yield from zip(value.shape, array.shape, strict=False)


def read_entrant(
    model: StrPath, map_feeds: MapFeeds | None = None, read_outputs: ReadOutputs | None = None
) -> Entrant:
    """Read a model to time.

    Raises:
        ModelError: It cannot be read.
    """
    graph = io.load(model)
    source = seed_model(graph) if first_random_node(graph) is not None else os.fspath(model)
    return Entrant(
        graph, source, map_feeds or (lambda old: old), read_outputs or (lambda new, _: new)
    )


def _as_type(array: Array, dtype: ir.DataType | None) -> Array:
    """Return a floating-point array in the type of the input."""
    floats = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)
    if dtype not in floats or array.dtype == dtype.numpy() or array.dtype.kind not in "fV":
        return array
    return array.astype(dtype.numpy())
