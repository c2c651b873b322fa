"""A model in ONNX text, its floats of another type."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir


def typed(text: str, dtype: str, constants: str) -> ir.Model:
    """The model with ``dtype`` for each ``float``.

    Args:
        text: The model.
        dtype: ``float``, ``float16`` or another name that ONNX text has.
        constants: How its first float constant begins: the parser reads none of float16.
    """
    if dtype != "float16":
        return ir.from_onnx_text(text.replace("float", dtype))
    before, mark, after = text.partition(constants)
    model = ir.from_onnx_text(f"{before.replace('float', dtype)}{mark}{after}")
    for value in model.graph.initializers.values():
        if value.dtype == ir.DataType.FLOAT:
            tensor = ir.tensor(value.const_value.numpy().astype(np.float16), name=value.name)
            value.const_value, value.dtype = tensor, tensor.dtype
    return model
