"""What inference says of the result of a few nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext

from graphfix.facts.shapes import Dim, infer
from graphfix.facts.symbolic.expressions import dim_key, expr_of
from graphfix.facts.symbolic.inferred import Facts
from graphfix.graph.constants import const_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import sympy

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


def size_of(dim: int | str) -> sympy.Expr:
    """Return a size as an expression in the symbols of the inputs."""
    return expr_of(ir.SymbolicDim(dim) if isinstance(dim, str) else dim)


def keys(*texts: int | str | None) -> list[int | str | None]:
    """Return what is wanted, in the form that equal sizes share."""
    return [dim_key(ir.SymbolicDim(x)) if isinstance(x, str) else x for x in texts]


class HeardFacts(Facts):
    """Facts that keep what a rule noted, as text: pairs that are equal, what is positive."""

    def __init__(self, graph: ir.Graph, *, usual: bool = False) -> None:
        super().__init__(graph, positive=(), usual=usual)
        self.equal: list[tuple[str, str]] = []
        self.positive: list[str] = []

    def must_equal(self, node: ir.Node, a: sympy.Expr, b: sympy.Expr) -> None:
        self.equal.append((str(a), str(b)))
        super().must_equal(node, a, b)

    def must_be_positive(self, node: ir.Node, expr: sympy.Expr) -> None:
        self.positive.append(str(expr))
        super().must_be_positive(node, expr)


def apply_rule(
    rule: Callable[[Facts, ShapeInferenceContext, ir.Node], None],
    body: str,
    inputs: str = INPUTS,
    opset: int = 17,
    *,
    usual: bool = False,
) -> tuple[list[int | str | None] | None, HeardFacts]:
    """Apply one shape rule alone to the last node; return the dims of its first output.

    Without the library's rule, which goes first in an inference and hides what ours leaves out.
    Dims of x, like those of all inputs, are sizes.
    """
    text = f"""<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        m ({inputs}) => (float[] y) {{ {body} }}"""
    model = ir.from_onnx_text(text)
    model.graph.outputs[0].shape = None
    facts = HeardFacts(model.graph, usual=usual)
    for value in model.graph.inputs:
        if value.shape is not None:
            facts.dims_as_sizes(value.shape)
    for node in model.graph:
        if (array := const_of(node.outputs[0])) is not None:
            node.outputs[0].dtype = ir.DataType.from_numpy(array.dtype)
            node.outputs[0].shape = ir.Shape(array.shape)
    node = model.graph[-1]
    rule(facts, ShapeInferenceContext(model.opset_imports), node)
    shape = node.outputs[0].shape
    return None if shape is None else [*map(key_of, shape)], facts
