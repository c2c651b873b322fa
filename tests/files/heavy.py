"""A model whose weight is big enough for a file of its own, and tells which model it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

SIZE = 32 * 1024  # elements: over 64 KiB, so that they go into a file of their own


def make(path: Path, value: float) -> Path:
    """A model with a big weight inside that adds ``value`` to each element."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[{SIZE}] x) => (float[{SIZE}] y) {{ y = Add (x, w) }}"""
    )
    weight = np.full(SIZE, value, np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, path)
    return path


def data_of(path: Path) -> set[str]:
    """The files of weights that a model refers to."""
    proto = onnx.load(path, load_external_data=False)
    return {e.value for t in proto.graph.initializer for e in t.external_data if e.key[:3] == "loc"}
