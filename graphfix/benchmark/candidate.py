"""A model among those that are run side by side: what it is loaded from and what it is fed.

All get the inputs of the first model, made into their own: by the passes that they went through,
where those changed the signature, and in their own floating-point type.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.feeds.full_lengths import full_lengths
from graphfix.files import io
from graphfix.paths import StrPath
from graphfix.runtime.model_source import Source
from graphfix.runtime.port import Array, Feeds
from graphfix.runtime.random_nodes import draws, seeded

MapFeeds = Callable[[Feeds], Feeds]


@dataclass(frozen=True)
class Entrant:
    """A model to time.

    Attributes:
        graph: Its graph.
        source: What to load: its file, or the graph with seeds if it draws random numbers.
        map_feeds: Makes inputs for it from those of the first model.
    """

    graph: ir.Model
    source: Source
    map_feeds: MapFeeds

    def feeds(self, of_first: Feeds) -> dict[str, Array]:
        """Its own inputs, from those of the first model.

        Raises:
            FeedError: There is no array for one of its inputs.
        """
        given = full_lengths(self.graph, self.map_feeds(of_first))
        found: dict[str, Array] = {}
        for value in self.graph.graph.inputs:
            name = value.name or ""
            if name in given:
                found[name] = _as_type(np.asarray(given[name]), value.dtype)
            elif value.const_value is None and name not in self.graph.graph.initializers:
                raise FeedError(
                    f"its input {name!r} is none of the first model's, and no pass that it says "
                    "it went through makes one"
                )
        return found

    def fits(self, of_first: Feeds) -> bool:
        """Whether the sizes that are numbers in its own signature are those of the inputs."""
        return not any(isinstance(d, int) and d != size for d, size in self._sizes(of_first))

    def free_dims(self, of_first: Feeds) -> dict[str, int]:
        """A size for each symbolic dim of its inputs, expressions such as ``past + 1`` included."""
        free = ((d, size) for d, size in self._sizes(of_first) if isinstance(d, ir.SymbolicDim))
        return {dim.value: size for dim, size in free if dim.value}

    def _sizes(self, of_first: Feeds) -> Iterator[tuple[int | ir.SymbolicDim, int]]:
        """Each dim of its inputs, and what it is in the arrays."""
        given = self.map_feeds(of_first)
        for value in self.graph.graph.inputs:
            if value.shape is not None and (array := given.get(value.name or "")) is not None:
                yield from zip(value.shape, array.shape, strict=False)


def enter(model: StrPath, map_feeds: MapFeeds | None = None) -> Entrant:
    """Read a model.

    Raises:
        ModelError: It cannot be read.
    """
    graph = io.load(model)
    source = seeded(graph) if draws(graph) is not None else os.fspath(model)
    return Entrant(graph, source, map_feeds or (lambda old: old))


def _as_type(array: Array, dtype: ir.DataType | None) -> Array:
    """Floating-point arrays in the type of the input."""
    floats = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)
    if dtype not in floats or array.dtype == dtype.numpy() or array.dtype.kind not in "fV":
        return array
    return array.astype(dtype.numpy())
