"""fuse-affine: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim
from graphfix.facts.view import View

from ..common.fusible import lies_along
from ..common.pattern import own, shared

_OPSET = 9
_AFFINE = shared.Add(own.Mul("data", "scale"), "bias")


@dataclass(frozen=True)
class AffineSite(Match):
    """A product and a sum with constants for each channel.

    Attributes:
        data: What is multiplied, [B, C, ..].
        scale: The factors, C of them.
        bias: What is added, C numbers.
        count: C.
    """

    data: ir.Value
    scale: ir.Value
    bias: ir.Value
    count: int


@dataclass(frozen=True)
class FuseAffine(NodePass[AffineSite]):
    """Fuses a factor and a bias for each channel into one BatchNormalization.

    torch's GroupNorm has them behind the Reshape that gives the channels back. The operator is told
    that the mean is 0 and the variance 1, with nothing added to it.

    Why:
        Two kernels on DirectML become one. By `graphfix plan` the profile `fast` leaves 97 kernels
        of a WavTokenizer's decoder with ten GroupNorms on the device where 107 were. Run on
        onnxruntime-directml 1.24.4: the operator gives the same bits as the two.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        groups (float[B, 4, T] x) => (float[B, 4, T] y)
        <float[2] ones = {1, 1}, float[2] zeros = {0, 0}, int64[3] two = {0, 2, -1},
         int64[3] four = {0, 4, -1}, float[4, 1] s = {1, 2, 3, 4}, float[4, 1] b = {4, 3, 2, 1}>
        {
            g = Reshape (x, two)
            n = InstanceNormalization (g, ones, zeros)
            c = Reshape (n, four)
            m = Mul (c, s)
            y = Add (m, b)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        groups (float[B, 4, T] x) => (float[B, 4, T] y)
        <float[2] ones = {1, 1}, float[2] zeros = {0, 0}, int64[3] two = {0, 2, -1},
         int64[3] four = {0, 4, -1}, float[4, 1] s = {1, 2, 3, 4}, float[4, 1] b = {4, 3, 2, 1},
         int64[1] list = {-1}, float[4] mean = {0, 0, 0, 0}, float[4] variance = {1, 1, 1, 1}>
        {
            g = Reshape (x, two)
            n = InstanceNormalization (g, ones, zeros)
            c = Reshape (n, four)
            scale = Reshape (s, list)
            bias = Reshape (b, list)
            y = BatchNormalization <epsilon = 0.0> (c, scale, bias, mean, variance)
        }

    Left alone:
        Other types than float32:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        group (float16[B, 2, T] x) => (float16[B, 2, T] y)
        <float16[2, 1] s = {15360, 16384}>
        {
            m = Mul (x, s)
            y = Add (m, s)
        }

    Safety:
        Exact. In float32, for a number of channels that the model tells, and where nothing else
        reads the product.
    """

    anchors = ("Add",)
    sentence = "a factor and a bias for each channel, each a kernel of its own"

    def match(self, node: ir.Node, view: View) -> AffineSite | None:
        """Return the site of a constant factor and a constant sum for each channel."""
        for parts in _AFFINE.matches(node) if view.opset_of_node(node) >= _OPSET else ():
            data, scale, bias = (parts[name] for name in ("data", "scale", "bias"))
            dims = view.shapes.dims(data) or ()
            if data in view.constant_values or len(dims) < 3:
                continue
            count = dims[1]
            if not isinstance(count, int) or view.shapes.dtype(data) != ir.DataType.FLOAT:
                continue
            if _is_per_channel(scale, dims, view) and _is_per_channel(bias, dims, view):
                return AffineSite(node, data, scale, bias, count)
        return None

    def rewrite(self, match: AffineSite, op: Builder) -> ir.Value:
        """Build one BatchNormalization with this scale and bias, and no statistics of its own."""
        scale, bias = (op.Reshape(x, np.array([-1], np.int64)) for x in (match.scale, match.bias))
        statistics = (np.full(match.count, x, np.float32) for x in (0, 1))  # mean, variance
        return op.BatchNormalization(match.data, scale, bias, *statistics, epsilon=0.0)


def _is_per_channel(value: ir.Value, dims: Sequence[Dim], view: View) -> bool:
    """Return whether a constant has one number for each channel of data with these dims."""
    return lies_along(value, dims[1], len(dims) - 2, len(dims), view)
