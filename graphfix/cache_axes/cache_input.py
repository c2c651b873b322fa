"""Input of a model with caches of a fixed size that holds the number of valid entries.

The valid entries of a cache are its last ones; those before them are hidden. Such a model takes the
feeds of the one with growing caches, with zeros in front, and the number of valid entries besides.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfix import json_types
from graphfix.errors import ModelError
from graphfix.runtime.port import Array, Feeds
from graphfix.shipped.in_front import fit_in_front

if TYPE_CHECKING:
    import onnx_ir as ir

KEY = "graphfix.cache_axes"
"""The entry of ``metadata_props`` that lists the dims of caches."""


@dataclass(frozen=True)
class CacheInput:
    """Caches of one length that were given a fixed size.

    Attributes:
        input: The input, int64 [1], that takes the number of valid entries; "" if nothing needs it.
        dim: The former name of the dim.
        size: The number of entries that each cache now has.
        padded: Inputs that are filled up in front: name, axis and number.
        states: States that grew: input, output and axis.
    """

    input: str
    dim: str
    size: int
    padded: tuple[tuple[str, int, float], ...]
    states: tuple[tuple[str, str, int], ...]

    @classmethod
    def all_from_metadata(cls, model: ir.Model) -> tuple[CacheInput, ...]:
        """Read the metadata of ``model``; () if it lists no caches.

        Raises:
            ModelError: The entry is malformed.
        """
        text = model.metadata_props.get(KEY)
        if text is None:
            return ()
        try:
            entries: Any = json_types.parse_json(text)
            return tuple(
                cls(
                    x["input"],
                    x["dim"],
                    int(x["size"]),
                    tuple((str(a), int(b), float(c)) for a, b, c in x["padded"]),
                    tuple((str(a), str(b), int(c)) for a, b, c in x["states"]),
                )
                for x in entries
            )
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise ModelError(f"the model's {KEY}={text[:80]!r} is malformed: {error!r}") from error

    def write_metadata(self, model: ir.Model) -> None:
        """Append this entry to the metadata of ``model``."""
        entries = [x for x in self.all_from_metadata(model) if x.dim != self.dim]
        model.metadata_props[KEY] = json.dumps([asdict(x) for x in (*entries, self)])

    def cache_length(self, feeds: Feeds) -> int:
        """Return how many entries the caches have in feeds of the original model."""
        for name, axis, _ in self.padded:
            if name in feeds and (name in {x for x, _, _ in self.states} or not self.states):
                return int(feeds[name].shape[axis])
        return 0

    def pad_feeds(self, old: Feeds) -> dict[str, Array]:
        """Return feeds of the model with caches of this size, from feeds of the original."""
        length = self.cache_length(old)
        new = dict(old)
        if self.input:
            new[self.input] = np.array([length], np.int64)
        for name, axis, fill in self.padded:
            if name in old:
                shape = list(old[name].shape)
                shape[axis] += self.size - length
                new[name] = fit_in_front(old[name], shape, fill)
        return new
