"""Operators that compute each place of a sequence from that place alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.model.shapes import same
from graphfix.model.values import attr_int, axes_of, is_op

from .._attention.axis_layout import keeps

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from graphfix.model.shapes import Dim
    from graphfix.model.view import View

_POINTWISE = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Where", "Neg", "Abs", "Sqrt", "Reciprocal"),
    *("Exp", "Log", "Erf", "Tanh", "Sigmoid", "Relu", "LeakyRelu", "Elu", "Gelu", "Softplus"),
    *("HardSwish", "HardSigmoid", "Clip", "Cast", "Identity"),
)
_REDUCES = ("ReduceMean", "ReduceSum", "ReduceL2", "ReduceSumSquare")


def carried(node: ir.Node, view: View) -> tuple[int, ...]:
    """Which inputs of a node have a row for each row that it makes of [T, F] or [B, T, F].

    Empty if it is not seen that it computes each row from the rows at that place alone.
    """
    dims = view.shapes.dims(node.outputs[0])
    if dims is None or len(dims) not in (2, 3) or not isinstance(dims[-1], int):
        return ()
    if any(x.uses() or x.is_graph_output() for x in node.outputs[1:]):
        return ()
    rank = len(dims)
    found: tuple[int, ...] = ()
    if is_op(node, *_POINTWISE) or keeps(node, view):
        for i, value in enumerate(node.inputs):
            if value is None or is_parameter(value, rank, view):
                continue
            if not has_rows(value, dims, view):
                return ()
            found += (i,)
        return found
    first = node.inputs[0] if node.inputs else None
    if first is None or not has_rows(first, dims, view):
        return ()
    if is_op(node, "MatMul") and view.shapes.rank(node.inputs[1]) == 2:
        return (0,)
    last = (-1, rank - 1)
    others = [x for x in node.inputs[1:] if x is not None]
    if is_op(node, "LayerNormalization") and attr_int(node, "axis", -1) in last:
        return (0,) if all(is_parameter(x, rank, view) for x in others) else ()
    if is_op(node, "Gemm") and not attr_int(node, "transA", 0):
        return (0,) if all(is_parameter(x, rank, view) for x in others[1:]) else ()
    if is_op(node, *_REDUCES) and attr_int(node, "keepdims", 1):
        axes = axes_of(node)
        return (0,) if axes is not None and len(axes) == 1 and axes[0] in last else ()
    return ()


def is_parameter(value: ir.Value, rank: int, view: View) -> bool:
    """Whether a tensor is the same for each row of one of this rank."""
    dims = view.shapes.dims(value)
    return dims is not None and all(dim == 1 for dim in dims[:-1]) and len(dims) <= rank


def has_rows(value: ir.Value, dims: Sequence[Dim], view: View) -> bool:
    """Whether a tensor has a row for each row of one of these dims."""
    mine = view.shapes.dims(value)
    return (
        mine is not None
        and len(mine) == len(dims)
        and isinstance(mine[-1], int)
        and all(same(a, b) for a, b in zip(mine[:-1], dims[:-1], strict=True))
    )
