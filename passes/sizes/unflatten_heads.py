"""unflatten-heads: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import const_of

from ..common.reshape_targets import reshape_target_of


@dataclass(frozen=True)
class ShapeSite(Match):
    """A Reshape whose computed shape is a constant in disguise.

    Attributes:
        data: The tensor that is reshaped.
        target: The shape; 0 copies the dim of the input at that place.
    """

    data: ir.Value
    target: tuple[int, ...]


@dataclass(frozen=True)
class UnflattenHeads(NodePass[ShapeSite]):
    """Replaces a computed Reshape target with a constant such as [0, 0, H, D].

    Every Reshape is looked at whose shape is computed at run time: head splits, head merges,
    chunks, foldings. What the shape holds is proved from symbolic shapes, never from names, so the
    size may also come from another tensor. A 0 is written where the input has that size at the same
    place; a -1 only if nothing else will do, and only where it cannot mean two things. Where sizes
    lie at other places, as for [B, H, T, D] to [B*H, T, D], the shape stays computed: an Unsqueeze
    or Squeeze could bring them there, but is a kernel of the device, and what it would save is on
    the CPU.

    Why:
        On DirectML the chain Shape, Gather, Unsqueeze, Concat runs on the CPU, and each new content
        of its result re-creates the Reshape kernel for that one call
        (MLOperatorAuthorImpl.cpp 2511-2691). A Reshape whose shape is no initializer cannot be part
        of a fused graph (GraphPartitioner.cpp 145-245). With allowzero=1, as the dynamo exporter
        writes it, a -1 is taken for 4294967295: 8007023E at the first run. Of 93 dynamo exports 83
        crashed so on the real EP; with allowzero=0 on every Reshape 88 ran.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        heads (float[B, T, 32] x) => (float[B, T, 2, 16] y)
        <int64 first = {0}, int64 second = {1}, int64[1] axis = {0},
         int64[1] h = {2}, int64[1] d = {16}>
        {
            shape = Shape (x)
            b = Gather (shape, first)
            b1 = Unsqueeze (b, axis)
            t = Gather (shape, second)
            t1 = Unsqueeze (t, axis)
            target = Concat <axis = 0> (b1, t1, h, d)
            y = Reshape (x, target)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        heads (float[B, T, 32] x) => (float[B, T, 2, 16] y)
        <int64[4] gf_unflatten_heads_0 = {0, 0, 2, 16}>
        {
            y = Reshape (x, gf_unflatten_heads_0)
        }

    Left alone:
        Sizes in another order, "are not what the input [B, T, 32] has there":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        turn (float[B, T, 32] x) => (float[T, B, 2, 16] y)
        <int64[2] heads = {2, 16}>
        {
            b = Shape <start = 0, end = 1> (x)
            t = Shape <start = 1, end = 2> (x)
            target = Concat <axis = 0> (t, b, heads)
            y = Reshape (x, target)
        }

    Safety:
        Exact: the same elements in the same shape, for every input that the model before accepts. A
        size of 0 at run time is copied by the 0. A -1 that was not there before is written only
        beside sizes that are never 0: numbers, lengths of a Conv, and what the model itself has
        beside a -1. That is taken to be at least 1, as is a sequence of which a Slice takes the
        first or the last row: with allowzero=1 ONNX forbids 0 beside -1 (ORT's CPU kernels run it),
        without it a 0 copies what the input has at its place. So `x.reshape(B * T, -1)` of [B, T,
        8] makes [B, 0] of an empty sequence, and [0, 8] after the repair; other such shapes may not
        run then. A shape with two sizes that the input has nowhere, such as chunks of it, is
        skipped.
    """

    sentence = "its shape is recomputed in each run although it is constant"
    anchors = ("Reshape",)

    def match(self, node: ir.Node, view: View) -> ShapeSite | Skip | None:
        """Return the site if the computed shape of a Reshape can be a constant."""
        data, shape = (*node.inputs, None)[:2]  # before opset 5 the shape was an attribute
        if data is None or shape is None or const_of(shape) is not None:
            return None
        if shape.is_graph_input():
            return Skip(
                node, f"its shape {shape.name} is an input of the graph: the caller's choice"
            )
        if view.in_function(node):
            return Skip(node, "its sizes depend on the calls of the local function it is in")
        sizes = view.shapes.dims(node.outputs[0])
        if sizes is None:
            return Skip(node, f"what {shape.name} holds, even how many sizes, is not known")
        source, shape_values = view.shapes.dims(data) or (), view.shapes.known_elements(shape)
        target = reshape_target_of(source, sizes, view.shapes, shape_values)
        if isinstance(target, str):
            return Skip(node, target)
        return None if target.before or target.after else ShapeSite(node, data, target.shape)

    def rewrite(self, match: ShapeSite, op: Builder) -> ir.Value:
        """Build the same Reshape with the constant; allowzero defaults to 0."""
        return op.Reshape(match.data, np.array(match.target, np.int64))
