"""quantize-axis: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import Array
from graphfix.graph.nodes import attr_int, is_op
from graphfix.ops.axes import axis_of

from ..common.fusible import FLOATS, MICROSOFT

_REVISED_OPSET = 21
_EIGHT_BIT_TYPES = (ir.DataType.INT8, ir.DataType.UINT8)
_FOUR_BIT_TYPES = (ir.DataType.INT4, ir.DataType.UINT4)


@dataclass(frozen=True)
class AxisSite(Match):
    """A QuantizeLinear or DequantizeLinear with a scale for each slice of an axis.

    Attributes:
        inputs: What is quantized, its scales and, if it has any, its zero points.
        axis: The axis, counted from the front.
        integer: The type of what is quantized.
        missing: How many zero points it has not.
    """

    inputs: tuple[ir.Value, ...]
    axis: int
    integer: ir.DataType
    missing: int = 0


@dataclass(frozen=True)
class QuantizeAxis(NodePass[AxisSite]):
    """Uses com.microsoft's QuantizeLinear and DequantizeLinear for scales along an axis.

    Why:
        The DirectML kernels that came with opset 21, and with blocks, lay the scales along the last
        axis, whatever `axis` says. Run on onnxruntime-directml 1.24.4: along another axis they end
        in 80070057, or give wrong numbers without an error where the sizes allow it; along the
        last one, and at opsets 13 and 19, they are right. So are com.microsoft's, if they have zero
        points; without, the device is lost (887A0005). Weights that are quantized channel by
        channel have their scales along the first axis. An export of a newer opset was right, on the
        CPU, until opset-ceiling brought it to 21.

    Before:
        <
            ir_version: 10,
            opset_import: ["" : 21]
        >
        stem (float[B, 3, T] x) => (float[B, 2, T] y)
        <int8[2, 3, 1] w = {1, 2, 3, 4, 5, 6}, float[2] scales = {0.5, 0.25}>
        {
            k = DequantizeLinear <axis = 0> (w, scales)
            y = Conv (x, k)
        }

    After:
        <
            ir_version: 10,
            opset_import: ["" : 21, "com.microsoft" : 1]
        >
        stem (float[B, 3, T] x) => (float[B, 2, T] y)
        <int8[2, 3, 1] w = {1, 2, 3, 4, 5, 6}, float[2] scales = {0.5, 0.25}, int8[2] zero = {0, 0}>
        {
            k = com.microsoft.DequantizeLinear <axis = 0> (w, scales, zero)
            y = Conv (x, k)
        }

    Left alone:
        One scale for all, which has no axis:
        <
            ir_version: 8,
            opset_import: ["" : 21]
        >
        read (uint8[A, B] x) => (float[A, B] y)
        <float s = {2}>
        {
            y = DequantizeLinear (x, s)
        }

    Safety:
        Exact: the same arithmetic. Integers of 8 bits only; what is quantized in blocks is right,
        and skipped.
    """

    sentence = "scales along another axis than the last: DirectML lays them along the last"
    anchors = ("DequantizeLinear", "QuantizeLinear")

    def match(self, node: ir.Node, view: View) -> AxisSite | Skip | None:
        """Return the site if the scales lie along another axis than the last."""
        axis = _scale_axis(node, view)
        if axis is None or attr_int(node, "precision", 0):  # which only opset 23 has, on the CPU
            return None
        quantized = node.outputs[0] if is_op(node, "QuantizeLinear") else node.inputs[0]
        integer = view.shapes.dtype(quantized)
        numbers = {view.shapes.dtype(x) for x in (*node.inputs[:2], node.outputs[0])} - {integer}
        if integer in _FOUR_BIT_TYPES and numbers.issubset(FLOATS):
            return Skip(node, "its integers are of 4 bits, and com.microsoft's on DirectML of 8")
        if integer not in _EIGHT_BIT_TYPES or not numbers.issubset(FLOATS) or len(numbers) != 1:
            return None  # of other types there is no kernel, nor of two
        inputs = tuple(x for x in node.inputs if x is not None)
        if len(inputs) > 2:
            return AxisSite(node, inputs, axis, integer)
        (scales,) = view.shapes.dims(node.inputs[1]) or (None,)
        if not isinstance(scales, int):
            return Skip(node, "it has no zero points, and how many it would need is not known")
        return AxisSite(node, inputs, axis, integer, missing=scales)

    def rewrite(self, match: AxisSite, op: Builder) -> ir.Value:
        """Build com.microsoft's operator, with zero points."""
        inputs: list[ir.Value | Array] = [*match.inputs]
        if match.missing:
            inputs.append(np.zeros(match.missing, match.integer.numpy()))
        return op.make(f"{MICROSOFT}.{match.node.op_type}", *inputs, axis=match.axis)


def _scale_axis(node: ir.Node, view: View) -> int | None:
    """Return the axis of the scales where DirectML lays them along another, the last; or None."""
    rank, scales = view.shapes.rank(node.inputs[0]), view.shapes.dims(node.inputs[1])
    opset = view.opset_of_node(node)
    if opset < _REVISED_OPSET or rank is None or scales is None or len(scales) != 1:
        return None
    axis = axis_of(node, rank, opset)
    return None if axis is None or axis == rank - 1 or scales[0] == 1 else axis
