"""Shapes of what slides along an axis, and of products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model.symbolic.exprs import Dim, dim_of, expr_of
from graphfix.model.symbolic.layout import join_shapes, set_shape
from graphfix.model.values import attr_int

if TYPE_CHECKING:
    from onnx_shape_inference import ShapeInferenceContext as Context

    from graphfix.model.symbolic.facts import Facts


def matmul(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Rows of one and columns of the other; what is summed over must be equal."""
    a, b = (None if x is None else x.shape for x in node.inputs[:2])
    if a is not None and b is not None and len(a) >= 2 and len(b) >= 2:
        _product(facts, ctx, node, a, b)


def fused_matmul(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """com.microsoft's MatMul, which turns its operands first."""
    shapes: list[ir.Shape] = []
    for side, value in zip("AB", node.inputs, strict=False):
        if value is None or value.shape is None or len(value.shape) < 2:
            return set_shape(node.outputs[0], None)
        first, *rest = value.shape
        dims: list[Dim] = list(value.shape)
        if len(dims) > 2 and attr_int(node, f"transBatch{side}", 0):
            dims = [*rest[:-1], first, rest[-1]]
        if attr_int(node, f"trans{side}", 0):
            dims[-2:] = dims[:-3:-1]
        shapes.append(ir.Shape(dims))
    return _product(facts, ctx, node, *shapes)


def _product(facts: Facts, ctx: Context, node: ir.Node, a: ir.Shape, b: ir.Shape) -> None:
    facts.must_equal(node, expr_of(a[-1]), expr_of(b[-2]))
    batch = ir.Value()
    join_shapes(facts, ctx, batch, [ir.Shape(list(a)[:-2]), ir.Shape(list(b)[:-2])])
    if batch.shape is not None:
        set_shape(node.outputs[0], [*batch.shape, a[-2], b[-1]])


def gemm(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """What is summed over must be equal."""
    a, b = (None if x is None else x.shape for x in node.inputs[:2])
    if a is not None and b is not None and len(a) == len(b) == 2:
        inner = a[0 if attr_int(node, "transA", 0) else 1]
        other = b[1 if attr_int(node, "transB", 0) else 0]
        facts.must_equal(node, expr_of(inner), expr_of(other))


def conv(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """A window that is longer than what it slides over is an error, not an empty result."""
    shape = node.outputs[0].shape
    for dim in list(shape)[2:] if shape is not None else []:
        facts.must_be_positive(node, expr_of(dim))


def pool(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """The library writes ceiling() for ceil_mode and cannot read it again."""
    shape = node.outputs[0].shape
    if shape is not None:
        dims = [x if isinstance(x, int) or x.value is None else dim_of(expr_of(x)) for x in shape]
        set_shape(node.outputs[0], dims)
