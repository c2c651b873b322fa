"""Inputs for a model that has been told to expect valid lengths, from those for the original."""

import numpy as np
import onnx_ir as ir

from graphfix.lengths.length_input import LengthInput
from graphfix.runtime.port import Array, Feeds


def full_lengths(model: ir.Model, feeds: Feeds) -> dict[str, Array]:
    """``feeds`` with the length input of ``model``, if it has one that they lack: all is valid.

    Args:
        model: A model; its metadata may name a length input, int64 [B] or [1].
        feeds: Inputs for the model as it was without it.
    """
    known = LengthInput.of(model)
    if known is None or known.kind != "lengths" or known.input in feeds:
        return dict(feeds)
    name, _, axis = known.axis.rpartition(".")
    value = next((x for x in model.graph.inputs if x.name == known.input), None)
    if value is None or name not in feeds:
        return dict(feeds)
    batch = value.shape[0] if value.shape else 1
    rows = batch if isinstance(batch, int) else 1
    for other in model.graph.inputs:
        dims = list(other.shape) if other.shape is not None and other is not value else []
        given = feeds.get(other.name or "")
        if batch in dims and not isinstance(batch, int) and given is not None:
            rows = given.shape[dims.index(batch)]
    return {**feeds, known.input: np.full(rows, feeds[name].shape[int(axis)], np.int64)}
