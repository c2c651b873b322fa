"""onnx's own shape inference, for a process that may die of it.

It is C++ in the process that calls it: no signal is heard in it, however long a model lets it take.
It is called by :func:`graphfix.runtime.isolated_call.call_in_worker`, in a process that has loaded
little yet; so only onnx is imported here.
"""

import numpy as np
import onnx

from graphfix.runtime.port import Array, Feeds

INFERRED = f"{__name__}:infer_dims"


def infer_dims(path: str, _: Feeds) -> dict[str, Array]:
    """Return the inferred shapes in a file, by the names of tensors.

    Args:
        path: The file.

    Returns:
        int64 [rank] for each; -1 is a size that is not known.
    """
    graph = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False)).graph
    return {
        x.name: np.array([dim.dim_value or -1 for dim in x.type.tensor_type.shape.dim], np.int64)
        for x in (*graph.value_info, *graph.output)
        if x.type.tensor_type.HasField("shape")
    }
