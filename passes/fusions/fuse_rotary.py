"""fuse-rotary: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dim
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.ops.axes import permutation_of

from ..common.fusible import FLOATS
from ..common.reshape_targets import with_axes
from .attention.axis_layout import operand_layout
from .attention.rotary import Rotation, rotation_of


@dataclass(frozen=True)
class RotarySite(Match):
    """Queries or keys that are rotated.

    Attributes:
        rotation: The rotation.
        source: The tensor before its heads are moved, [B, T, H, D], or [B, T, D] of one head;
            None if nothing moves them.
        heads: The number of heads.
    """

    rotation: Rotation
    source: ir.Value | None
    heads: int


@dataclass(frozen=True)
class FuseRotary(NodePass[RotarySite]):
    """Fuses rotary embeddings, ``x * cos + rotate(x) * sin``, into one RotaryEmbedding.

    Halves of the features are turned, or pairs of neighbours, cut out by steps of two or by a
    Reshape to pairs, as einops writes them; all features or the first; at once, or halves apart, as
    GPT-OSS joins ``a * cos - b * sin`` and ``b * cos + a * sin``; by angles that all rows of the
    batch share, or by those of positions that are fed. Cosines and sines that a table holds twice
    are computed, or read from a constant, once. What is turned goes before the Transpose that moves
    the heads, where fuse-attention takes it; or is turned as it lies, [B, H, T, D], where something
    else is between, as a norm of the keys, or a Cast to float that turns float16 more exactly.

    Why:
        Two products, a sum, two Slices, Neg and Concat, for the queries and for the keys of each
        layer, each a kernel of its own on DirectML: of the 118 that are left of a Llama of two
        layers with a cache 28, where keys go into the cache or are shared by several heads, so that
        fuse-attention does not see them. DirectML's kernel takes both layouts (run on
        onnxruntime-directml 1.24.4).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        keys (float[B, T, 2, 8] x, float[T, 4] angles) => (float[B, 2, T, 8] y)
        <int64[1] start = {0}, int64[1] half = {4}, int64[1] end = {8}, int64[1] last = {3}>
        {
            both = Concat <axis = -1> (angles, angles)
            cos = Cos (both)
            sin = Sin (both)
            t = Transpose <perm = [0, 2, 1, 3]> (x)
            first = Slice (t, start, half, last)
            second = Slice (t, half, end, last)
            negated = Neg (second)
            rotated = Concat <axis = -1> (negated, first)
            a = Mul (t, cos)
            b = Mul (rotated, sin)
            y = Add (a, b)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        keys (float[B, T, 2, 8] x, float[T, 4] angles) => (float[B, 2, T, 8] y)
        <int64[3] merged = {0, 0, 16}, int64[1] start = {0}, int64[4] apart = {0, 0, 2, 8}>
        {
            flat = Reshape (x, merged)
            cosines = Cos (angles)
            sines = Sin (angles)
            turned = com.microsoft.RotaryEmbedding <num_heads = 2> (flat, start, cosines, sines)
            heads = Reshape (turned, apart)
            y = Transpose <perm = [0, 2, 1, 3]> (heads)
        }

    Left alone:
        A table whose halves differ:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        table (float[B, T, 2, 8] x, float[T, 4] angles) => (float[B, 2, T, 8] y)
        <int64[1] start = {0}, int64[1] half = {4}, int64[1] end = {8}, int64[1] last = {3}>
        {
            others = Neg (angles)
            both = Concat <axis = -1> (angles, others)
            cos = Cos (both)
            sin = Sin (both)
            t = Transpose <perm = [0, 2, 1, 3]> (x)
            first = Slice (t, start, half, last)
            second = Slice (t, half, end, last)
            negated = Neg (second)
            rotated = Concat <axis = -1> (negated, first)
            a = Mul (t, cos)
            b = Mul (rotated, sin)
            y = Add (a, b)
        }

        Halves that change places with no sign between them:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        swapped (float[B, T, 2, 8] x, float[T, 4] angles) => (float[B, 2, T, 8] y)
        <int64[1] start = {0}, int64[1] half = {4}, int64[1] end = {8}, int64[1] last = {3}>
        {
            both = Concat <axis = -1> (angles, angles)
            cos = Cos (both)
            sin = Sin (both)
            t = Transpose <perm = [0, 2, 1, 3]> (x)
            first = Slice (t, start, half, last)
            second = Slice (t, half, end, last)
            rotated = Concat <axis = -1> (second, first)
            a = Mul (t, cos)
            b = Mul (rotated, sin)
            y = Add (a, b)
        }

    Safety:
        Exact, except rounding: the same products and sums. Tables hold each number twice, which is
        proved from the graph; otherwise nothing is done. No tokens are turned to none; but a batch
        of 0 rows, with positions for each row, does not run: the kernel wants a row of the table
        for each token.
    """

    sentence = "a rotary embedding in pieces, each a kernel of its own"
    anchors = ("Add", "Concat")

    def match(self, node: ir.Node, view: View) -> RotarySite | None:
        """Return the site if the node is the last one of a rotary embedding."""
        dims = view.shapes.dims(node.outputs[0])
        if dims is None or len(dims) != 4 or view.shapes.dtype(node.outputs[0]) not in FLOATS:
            return None
        rotation = rotation_of(
            node, operand_layout(dims, ("batch", "batch", "query", "feature")), view
        )
        if rotation is None or not isinstance(dims[1], int):
            return None
        mover = rotation.source.producer()
        if is_op(mover, "Transpose") and permutation_of(mover, 4) == (0, 2, 1, 3):
            return RotarySite(node, rotation, mover.inputs[0], dims[1])
        if is_op(mover, "Unsqueeze") and dims[1] == 1:
            return RotarySite(node, rotation, mover.inputs[0], 1)
        # Behind a norm, or a Cast to float for float16; fuse-attention takes the others.
        return RotarySite(node, rotation, None, dims[1]) if is_op(mover, "Mul", "Cast") else None

    def rewrite(self, match: RotarySite, op: Builder) -> ir.Value:
        """Build RotaryEmbedding of [B, T, H * D] and restore the heads, or of [B, H, T, D]."""
        width, source = match.rotation.width, match.source
        if source is None:
            return match.rotation.build(match.rotation.source, match.heads, op)
        flat = _flat_source_of(source, match.heads * width, op.view)
        if flat is None:
            flat = op.Reshape(source, np.array([0, 0, match.heads * width], np.int64))
        turned = match.rotation.build(flat, match.heads, op)
        if match.heads == 1:
            return with_axes("Unsqueeze", turned, (1,), op)
        by_head = op.Reshape(turned, np.array([0, 0, match.heads, width], np.int64))
        return op.Transpose(by_head, perm=(0, 2, 1, 3))


def _flat_source_of(value: ir.Value, width: int, view: View) -> ir.Value | None:
    """Return the [B, T, H * D] that ``value`` is a Reshape of, or ``value`` of one head."""
    node = value.producer()
    source = node.inputs[0] if is_op(node, "Reshape") else None
    dims, own_dims = view.shapes.dims(source), view.shapes.dims(value)
    if own_dims is not None and len(own_dims) == 3:
        return value
    if dims is None or own_dims is None or len(dims) != 3 or dims[2] != width:
        return None
    return source if all(map(same_dim, dims[:2], own_dims[:2])) else None
