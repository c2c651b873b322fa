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
    name, _, axis = length_input.axis.rpartition(".")
    value = next((x for x in model.graph.inputs if x.name == length_input.input), None)
    if value is None or name not in feeds:
        return dict(feeds)
    batch = value.shape[0] if value.shape else 1
    rows = batch if isinstance(batch, int) else 1
    for graph_input in model.graph.inputs:
        dims = (
            list(graph_input.shape)
            if graph_input.shape is not None and graph_input is not value
            else []
        )
        array = feeds.get(graph_input.name or "")
        if batch in dims and not isinstance(batch, int) and array is not None:
            rows = array.shape[dims.index(batch)]
    return {**feeds, length_input.input: np.full(rows, feeds[name].shape[int(axis)], np.int64)}
