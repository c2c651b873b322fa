"""Exports without the numbers of their weights: small files that keep every node and every size.

Run as ``python -m bench.skeleton EXPORT ... FOLDER`` for what ``tests/bench`` keeps.

A kernel is counted by the graph alone, so random numbers do for most weights. What a pass reads,
such as the constants of a Gelu, is small and is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

LARGEST = 64
"""Numbers of the largest float weight that is kept as it is."""


def strip_weights(model: onnx.ModelProto) -> None:
    """Drop the numbers of large float weights, and the names and notes of nodes."""
    for tensor in _large_floats(model.graph):
        dims, name = list(tensor.dims), tensor.name
        tensor.Clear()
        tensor.data_type, tensor.name = onnx.TensorProto.FLOAT, name
        tensor.dims.extend(dims)
    for items in (model.graph.node, model.graph.value_info, [model.graph, model]):
        for item in items:
            item.ClearField("doc_string")
            del item.metadata_props[:]
    for node in model.graph.node:
        node.ClearField("name")


def load_skeleton(path: Path) -> onnx.ModelProto:
    """Return a stripped model with random weights, the same ones each time."""
    model = onnx.load(path)
    random = np.random.default_rng(0)
    for tensor in _large_floats(model.graph):
        numbers = random.normal(0, 0.1, tuple(tensor.dims)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))
    return model


def _large_floats(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the large float weights: initializers, and what Constant nodes hold."""
    held = (x.t for node in graph.node if node.op_type == "Constant" for x in node.attribute)
    for tensor in (*graph.initializer, *held):
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) > LARGEST:
            yield tensor


def main() -> None:
    """Write the skeletons of some exports into a folder."""
    *exports, folder = sys.argv[1:]
    for export in exports:
        model = onnx.load(export)
        strip_weights(model)
        onnx.save(model, Path(folder) / Path(export).name)


if __name__ == "__main__":
    main()
