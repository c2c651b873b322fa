"""pointwise-conv: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, attr_ints, input_at, is_op

from ..common.fusible import FLOATS, MICROSOFT, is_own_constant, only_user
from ..common.lookup import exclusive_producer
from ..common.reshape_targets import with_axes


@dataclass(frozen=True)
class PointwiseSite(Match):
    """A Transpose to [B, T, C] of what a Conv over single frames makes.

    Attributes:
        conv: The Conv.
    """

    conv: ir.Node


@dataclass(frozen=True)
class PointwiseConv(NodePass[PointwiseSite]):
    """Makes a product of a Conv over single frames and the Transpose after it.

    The second pointwise Conv of a Conformer ends in channels, and is turned to rows for the
    residual sum: com.microsoft's FusedMatMul takes channels and makes rows. The bias of the Conv is
    added after it, where `fuse-norm` takes it into the residual sum and its norm.

    Why:
        Two kernels become one in each layer of a Conformer. By `graphfix plan`, of a Parakeet of
        three layers 198 kernels are left on the device where 201 were. Run on onnxruntime-directml
        1.24.4, it agrees with the CPU there (1.2e-6), and so does a Wav2Vec2-Conformer (4.4e-6).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        rows (float[B, 2, T] x) => (float[B, T, 2] y)
        <float[2, 2, 1] w = {1, 2, 3, 4}>
        {
            frames = Conv (x, w)
            y = Transpose <perm = [0, 2, 1]> (frames)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        rows (float[B, 2, T] x) => (float[B, T, 2] y)
        <float[2, 2, 1] w = {1, 2, 3, 4}, int64[1] last = {2}>
        {
            weight = Squeeze (w, last)
            y = com.microsoft.FusedMatMul <transA = 1, transB = 1> (x, weight)
        }

    Safety:
        Exact, except rounding: the same products and sums. Left as they are: a Conv whose bias is
        not followed by a sum, of which there would be as many kernels as before, and one with
        groups, strides or padding; weights that are inputs or go into another operator too.
    """

    sentence = "a Conv over single frames and a Transpose, which one product computes"
    anchors = ("Transpose",)

    def match(self, node: ir.Node, view: View) -> PointwiseSite | None:
        """A Transpose of channels and frames, after a Conv that only it reads."""
        conv = exclusive_producer(node.inputs[0], "Conv")
        if conv is None or attr_ints(node, "perm") != (0, 2, 1) or attr_int(conv, "group", 1) != 1:
            return None
        _, weight, *bias = conv.inputs
        if (view.shapes.dims(weight) or ())[2:] != (1,) or not is_own_constant(weight, view):
            return None
        plain = {attr_ints(conv, "strides"), attr_ints(conv, "pads")} <= {None, (1,), (0, 0)}
        if not plain or view.shapes.dtype(node.inputs[0]) not in FLOATS:
            return None
        added = any(x is not None for x in bias)
        return None if added and not is_op(only_user(node), "Add") else PointwiseSite(node, conv)

    def rewrite(self, match: PointwiseSite, op: Builder) -> ir.Value:
        """The product, and the bias."""
        data, weight, *_ = match.conv.inputs
        bias = input_at(match.conv, 2)
        assert weight is not None
        matrix = with_axes("Squeeze", weight, (2,), op)
        made = op.make(f"{MICROSOFT}.FusedMatMul", data, matrix, transA=1, transB=1)
        return made if bias is None else op.Add(made, bias)
