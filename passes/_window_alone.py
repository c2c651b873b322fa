"""Whether each row of a batch is computed from that row alone, and all in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model.symbolic import symbols_of
from graphfix.model.values import attr_int, attr_ints, axes_of, ints_of, is_op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.model.shapes import Dim, Shapes

_POINTWISE = frozenset(
    {"Abs", "Add", "And", "Cast", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp"}
    | {"Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity"}
    | {"LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or"}
    | {"PRelu", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt"}
    | {"Sub", "Sum", "Tanh", "Where", "Xor", "IsNaN", "IsInf"}
)
# Axis 0 of what they take first is that of the batch, whatever they do along the others.
_BY_BATCH = frozenset(
    {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "InstanceNormalization"}
    | {"GroupNormalization", "GlobalAveragePool", "DepthToSpace", "SpaceToDepth"}
)
_ALONG_AN_AXIS = {
    "Softmax": -1,
    "LogSoftmax": -1,
    "LayerNormalization": -1,
    "Concat": 0,
    "Split": 0,
}
_REDUCES = frozenset(
    {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"}
    | {"ReduceProd", "ReduceSumSquare", "ReduceLogSumExp"}
)
# What a size may go through on its way to a shape.
_OF_SIZES = frozenset(
    {"Cast", "Concat", "Gather", "Identity", "Mul", "Slice", "Squeeze", "Unsqueeze"}
)
_SHAPES = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}


def mixing(graph: ir.Graph, rows: str, shapes: Shapes) -> ir.Node | None:
    """The first node that is not seen to compute each row alone.

    A batch of more rows then holds, in each of its rows, what that row gives by itself.

    Args:
        graph: A graph whose inputs have the batch at axis 0, or not at all.
        rows: The name of that dim.
        shapes: The shapes of what is in the graph.
    """
    look = _Look(rows, shapes)
    return next((node for node in graph if not look.is_apart(node)), None)


class _Look:
    def __init__(self, rows: str, shapes: Shapes) -> None:
        self._rows = rows
        self._shapes = shapes

    def is_apart(self, node: ir.Node) -> bool:
        """Whether a node keeps rows, at axis 0, apart."""
        given = [x for x in node.inputs if x is not None]
        if any(self._counts(x) for x in given):
            return self._hands_sizes_on(node)
        if is_op(node, "Shape", "Constant"):
            return True
        dims = [self._shapes.dims(x) for x in (*given, *node.outputs)]
        if any(x is None for x in dims):
            return False
        if not any(self._has(x or ()) for x in dims):
            return True
        if not all(self._leads(x or ()) for x in dims if self._has(x or ())):
            return False
        return self._keeps(node)

    def _keeps(self, node: ir.Node) -> bool:
        first, out = node.inputs[0] if node.inputs else None, node.outputs[0]
        before, after = self._dims(first), self._dims(out)
        if not self._has(after):
            return False
        if is_op(node, *_POINTWISE):
            return self._are_aligned(node)
        if not self._has(before):
            return is_op(node, "MatMul") and len(before) < len(after) and self._are_aligned(node)
        others = [self._dims(x) for x in node.inputs[1:]]
        if is_op(node, "MatMul"):
            # Rows times columns: the last two axes are summed over and made.
            return self._are_aligned(node) and len(after) > (2 if self._has(others[0]) else 1)
        if is_op(node, "Concat"):
            return self._along(node, 0) and all(map(self._has, others))
        if any(map(self._has, others)):
            return False
        if is_op(node, *_BY_BATCH, "Reshape"):
            return True
        if is_op(node, "Expand"):
            return len(before) == len(after)
        if is_op(node, "Gemm"):
            return not attr_int(node, "transA", 0)
        if is_op(node, "Transpose"):
            return (attr_ints(node, "perm") or (1,))[0] == 0
        if is_op(node, *_ALONG_AN_AXIS):
            return self._along(node, _ALONG_AN_AXIS[node.op_type])
        if is_op(node, "Gather"):
            return self._along(node, 0)
        if is_op(node, *_REDUCES, "Squeeze", "Unsqueeze"):
            axes, rank = axes_of(node), len(after if is_op(node, "Unsqueeze") else before)
            return axes is not None and all(axis % rank for axis in axes)
        if is_op(node, "Slice"):
            cut = ints_of(node.inputs[3]) if len(node.inputs) > 3 else None
            return cut is not None and all(axis % len(before) for axis in cut)
        if is_op(node, "Pad"):
            pads = None if len(node.inputs) > 3 and node.inputs[3] else ints_of(node.inputs[1])
            return pads is not None and not pads[0] and not pads[len(pads) // 2]
        return False

    def _along(self, node: ir.Node, default: int) -> bool:
        rank = len(self._dims(node.inputs[0]))
        return rank > 1 and attr_int(node, "axis", default) % rank != 0

    def _are_aligned(self, node: ir.Node) -> bool:
        """Whether rows meet rows, and everything else is the same for each of them."""
        rank = len(self._dims(node.outputs[0]))
        for value in node.inputs:
            dims = self._dims(value)
            if self._has(dims):
                if len(dims) != rank:
                    return False
            elif len(dims) == rank and dims[0] != 1:
                return False
        return True

    def _hands_sizes_on(self, node: ir.Node) -> bool:
        """Whether what counts the rows becomes a shape, not a number that is computed with."""
        if is_op(node, *_OF_SIZES):
            whole = self._shapes.dtype(node.outputs[0]) in (ir.DataType.INT64, ir.DataType.INT32)
            return whole and self._shapes.data(node.outputs[0]) is not None
        at = _SHAPES.get(node.op_type) if is_op(node, *_SHAPES) else None
        others = [x for i, x in enumerate(node.inputs) if i != at and x is not None]
        if at is None or any(map(self._counts, others)):
            return False
        after = self._dims(node.outputs[0])
        if not self._leads(after):
            return False
        if is_op(node, "Expand") and not self._has(self._dims(node.inputs[0])):
            before = self._dims(node.inputs[0])
            return len(before) < len(after) or before[0] == 1
        return not is_op(node, "Reshape") or self._leads(self._dims(node.inputs[0]))

    def _counts(self, value: ir.Value) -> bool:
        return any(self._rows in symbols_of(x) for x in self._shapes.data(value) or ())

    def _has(self, dims: Sequence[Dim]) -> bool:
        return any(self._rows in symbols_of(dim) for dim in dims)

    def _leads(self, dims: Sequence[Dim]) -> bool:
        """Whether axis 0 is that of the rows, and no other has to do with them."""
        return str(dims[0]) == self._rows and not self._has(dims[1:]) if dims else False

    def _dims(self, value: ir.Value | None) -> Sequence[Dim]:
        return () if value is None else self._shapes.dims(value) or ()
