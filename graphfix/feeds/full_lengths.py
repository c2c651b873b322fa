"""Feeds for a model with an added length input, from feeds for the original."""

import numpy as np
import onnx_ir as ir

from graphfix.lengths.length_input import LengthInput
from graphfix.runtime.port import Array, Feeds


def add_full_lengths(model: ir.Model, feeds: Feeds) -> dict[str, Array]:
    """Add the length input of ``model`` to ``feeds`` if they lack it; every length is full.

    Args:
        model: A model; its metadata may name a length input, int64 [B] or [1].
        feeds: Inputs for the model as it was without it.
    """
    length_input = LengthInput.from_metadata(model)
    if length_input is None or length_input.kind != "lengths" or length_input.input in feeds:
        return dict(feeds)
    name, axis = length_input.padded_place
    value = next((x for x in model.graph.inputs if x.name == length_input.input), None)
    if value is None or name not in feeds:
        return dict(feeds)
    batch = value.shape[0] if value.shape else 1
    rows = batch if isinstance(batch, int) else _size_of_dim(model, batch, feeds)
    return {**feeds, length_input.input: np.full(rows, feeds[name].shape[axis], np.int64)}


def _size_of_dim(model: ir.Model, dim: ir.SymbolicDim, feeds: Feeds) -> int:
    """Return the size of a symbolic dim in the feeds; 1 if nothing that is fed has it."""
    for value in model.graph.inputs:
        array = feeds.get(value.name or "")
        if array is not None and value.shape is not None and dim in value.shape:
            return int(array.shape[list(value.shape).index(dim)])
    return 1
