"""What inference says of the result of a few nodes."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.facts.shapes import Dim, infer
from graphfix.facts.symbolic.expressions import dim_key

INPUTS = "float[B, T, 4] x, float[1, T, 4] one, float[3, 4] w, float[B, 8] wide, float[6] six"


def result_of(
    body: str, opset: int = 17, inputs: str = INPUTS, dtype: str = "float"
) -> tuple[ir.Model, ir.Value]:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        m ({inputs}) => ({dtype}[unknown_] y) {{ {body} }}"""
    model = ir.from_onnx_text(text)
    model.graph.outputs[0].shape = None
    return model, model.graph.outputs[0]


def dims_of(
    body: str, opset: int = 17, inputs: str = INPUTS, *, usual: bool = False
) -> list[int | str | None] | None:
    """Return the dims of y as keys; None for each dim that is no expression in input sizes."""
    model, y = result_of(body, opset, inputs)
    dims = infer(model, usual=usual).dims(y)
    return None if dims is None else [*map(key_of, dims)]


def contents_of(
    body: str, opset: int = 17, inputs: str = INPUTS, *, usual: bool = False
) -> list[int | str | None] | None:
    """Return the elements of y as keys, as :func:`dims_of`."""
    model, y = result_of(body, opset, inputs, "int64")
    elements = infer(model, usual=usual).known_elements(y)
    return None if elements is None else [*map(key_of, elements)]


def key_of(dim: Dim) -> int | str | None:
    key = dim_key(dim)
    return None if isinstance(key, str) and "_d" in key else key


def keys(*texts: int | str | None) -> list[int | str | None]:
    """Return what is wanted, in the form that equal sizes share."""
    return [dim_key(ir.SymbolicDim(x)) if isinstance(x, str) else x for x in texts]
