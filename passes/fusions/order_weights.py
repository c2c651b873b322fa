"""order-weights: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int

from ..common.fusible import is_own_constant
from ..common.lookup import exclusive_producer


@dataclass(frozen=True)
class StackedSite(Match):
    """A product of features that were put together pair by pair.

    Attributes:
        parts: The tensors whose features take turns, each [.., N].
        width: N.
    """

    parts: tuple[ir.Value, ...]
    width: int


@dataclass(frozen=True)
class OrderWeights(NodePass[StackedSite]):
    """Puts the rows of a weight in the order in which the features before it are at hand.

    Parakeet and Nemotron make sines and cosines of each relative position and let them take turns:
    two Unsqueezes, a Concat and a Reshape. The product behind them can take all sines and then all
    cosines, with its rows in that order. These are moved by operators in the graph: ONNX Runtime
    does that once, when it loads the model (constant folding), so no weight is read or written
    twice.

    Why:
        Four kernels on DirectML become one. By `graphfix plan` the profile `fast` leaves 172 of a
        Parakeet of three layers on the device where 175 were, and 190 of a streaming Nemotron where
        193 were. Run on onnxruntime-directml 1.24.4, both agree with the CPU (1.4e-6 and 1.2e-6).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        positions (float[T, 2] x) => (float[T, 3] y)
        <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, int64[1] last = {-1},
         int64[2] size = {0, 4}>
        {
            sin = Sin (x)
            cos = Cos (x)
            s = Unsqueeze (sin, last)
            c = Unsqueeze (cos, last)
            pairs = Concat <axis = -1> (s, c)
            features = Reshape (pairs, size)
            y = MatMul (features, w)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        positions (float[T, 2] x) => (float[T, 3] y)
        <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, int64[3] apart = {2, 2, -1},
         int64[2] rows = {4, -1}>
        {
            sin = Sin (x)
            cos = Cos (x)
            turns = Reshape (w, apart)
            ordered = Transpose <perm = [1, 0, 2]> (turns)
            weight = Reshape (ordered, rows)
            both = Concat <axis = -1> (sin, cos)
            y = MatMul (both, weight)
        }

    Safety:
        Exact, except rounding: the same products, summed in another order. Left as they are: a
        weight that is an input or goes into another operator too, and features that something else
        reads.
    """

    sentence = "features that take turns, for which the rows of the weight could be ordered"
    anchors = ("MatMul",)

    def match(self, node: ir.Node, view: View) -> StackedSite | None:
        """A product of a Reshape that merges a Concat of Unsqueezes, over the last axis of each."""
        reshape = exclusive_producer(node.inputs[0], "Reshape")
        concat = None if reshape is None else exclusive_producer(reshape.inputs[0], "Concat")
        if concat is None or not is_own_constant(node.inputs[1], view):
            return None
        stacks = [exclusive_producer(x, "Unsqueeze") for x in concat.inputs]
        parts = tuple(x.inputs[0] for x in stacks if x is not None and x.inputs[0] is not None)
        made, pairs = (view.shapes.dims(x) for x in (node.inputs[0], concat.outputs[0]))
        if len(parts) < len(stacks) or not made or pairs is None or len(pairs) != len(made) + 1:
            return None
        width, last = pairs[-2], attr_int(concat, "axis", 0) in (-1, len(made))
        if not last or not isinstance(width, int) or view.shapes.rank(node.inputs[1]) != 2:
            return None
        # What is stacked behind the features of each part, whose other dims are as they are after.
        stacked = all(same_dims(view.shapes.dims(x), pairs[:-1]) for x in parts)
        merged = same_dims(made, (*pairs[:-2], width * len(parts)))
        return StackedSite(node, parts, width) if stacked and merged else None

    def rewrite(self, match: StackedSite, op: Builder) -> ir.Value:
        """The product of all of one part, then all of the next."""
        count, weight = len(match.parts), match.node.inputs[1]
        turns = op.Reshape(weight, np.array([match.width, count, -1], np.int64))
        ordered = op.Transpose(turns, perm=[1, 0, 2])
        flat = op.Reshape(ordered, np.array([match.width * count, -1], np.int64))
        return op.MatMul(op.Concat(*match.parts, axis=-1), flat)
