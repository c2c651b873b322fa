"""group-products: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, is_op, producer_of

from ..common.fusible import MICROSOFT, only_user


@dataclass(frozen=True)
class RepeatSite(Match):
    """A product with keys or values that are repeated for the heads that share them.

    Attributes:
        kept: Them before, [B, K, T, D].
        heads: How many heads there are.
        groups: K, how many of them have keys and values.
    """

    kept: ir.Value
    heads: int
    groups: int


@dataclass(frozen=True)
class GroupProducts(NodePass[RepeatSite]):
    """Multiplies heads that share keys and values with them at once, instead of repeating them.

    The queries of all heads of a group are rows of one product. That is for attentions that stay in
    pieces, such as Gemma 2's with a Tanh on its scores; fuse-attention does the same for others.

    Why:
        Unsqueeze, Expand and Reshape write the keys and the values once for each head, as long as
        the cache is; two Reshapes around each product move nothing. Of a Gemma 2 with a cache 39 of
        82 kernels of each layer are left on the device where 41 were, and it agrees with the CPU
        there (run on onnxruntime-directml 1.24.4, 9.4e-6).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        values (float[B, 4, S, T] weights, float[B, 2, T, 8] v) => (float[B, 4, S, 8] y)
        <int64[1] two = {2}, int64[5] twice = {1, 1, 2, 1, 1}, int64[4] all = {0, 4, -1, 8}>
        {
            apart = Unsqueeze (v, two)
            repeated = Expand (apart, twice)
            each = Reshape (repeated, all)
            y = MatMul (weights, each)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        values (float[B, 4, S, T] weights, float[B, 2, T, 8] v) => (float[B, 4, S, 8] y)
        <int64[4] groups = {0, 2, -1, 0}, int64[4] heads = {0, 4, -1, 0}>
        {
            rows = Reshape (weights, groups)
            products = MatMul (rows, v)
            y = Reshape (products, heads)
        }

    Safety:
        Exact, except rounding. What is repeated is used by this product alone.
    """

    sentence = "keys or values are repeated for each head that shares them"
    anchors = ("MatMul", f"{MICROSOFT}.FusedMatMul")

    def match(self, node: ir.Node, view: View) -> RepeatSite | None:
        """A product whose right side is Reshape(Expand(Unsqueeze)) over an axis of heads."""
        left, right = (view.shapes.dims(x) for x in node.inputs[:2])
        joined = producer_of(node.inputs[1])
        if not is_op(joined, "Reshape") or only_user(joined) is not node:
            return None
        repeated = producer_of(joined.inputs[0])
        lifted = producer_of(repeated.inputs[0]) if is_op(repeated, "Expand") else None
        kept = lifted.inputs[0] if is_op(lifted, "Unsqueeze") else None
        dims, apart = view.shapes.dims(kept), view.shapes.dims(joined.inputs[0])
        if not left or not right or not dims or not apart or kept is None:
            return None
        if any(attr_int(node, x, 0) for x in ("transA", "transBatchA", "transBatchB")):
            return None
        heads, groups, times = left[1], dims[1], apart[2]
        if not (len(left) == len(right) == len(dims) == 4) or len(apart) != 5:
            return None
        if not isinstance(heads, int) or not isinstance(groups, int) or heads != right[1]:
            return None
        spread = (*dims[:2], times, *dims[2:])
        whole = isinstance(times, int) and groups * times == heads and groups < heads
        if not whole or not same_dims(apart, spread) or not same_dims(right[2:], dims[2:]):
            return None
        return RepeatSite(node, kept, heads, groups)

    def rewrite(self, match: RepeatSite, op: Builder) -> ir.Value:
        """``Reshape(MatMul(Reshape(left), kept))``."""
        rows = op.Reshape(match.node.inputs[0], np.array([0, match.groups, -1, 0], np.int64))
        made = op.clone_node(match.node, rows, match.kept)
        return op.Reshape(made, np.array([0, match.heads, -1, 0], np.int64))
