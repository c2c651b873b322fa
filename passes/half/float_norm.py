"""float-norm: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import const_of


@dataclass(frozen=True)
class FloatNorm(NodePass[Match]):
    """Computes a float16 LayerNormalization or InstanceNormalization in float32.

    Why:
        On DirectML the variance is a float16 as well, and no more than 65504. Run on
        onnxruntime-directml 1.24.4: 16 numbers of which one is 5000 are wrong by 11, in silence;
        with one of 1000 they are right, and in float32 always. It is
        in no profile: three nodes for one are dear where the numbers are small, as most are.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        norm (float16[B, T, 8] x, float16[8] scale, float16[8] bias) => (float16[B, T, 8] y)
        {
            y = LayerNormalization <epsilon = 1e-12> (x, scale, bias)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        norm (float16[B, T, 8] x, float16[8] scale, float16[8] bias) => (float16[B, T, 8] y)
        {
            wide = Cast <to = 1> (x)
            wide_scale = Cast <to = 1> (scale)
            wide_bias = Cast <to = 1> (bias)
            normed = LayerNormalization <epsilon = 1e-12> (wide, wide_scale, wide_bias)
            y = Cast <to = 10> (normed)
        }

    Left alone:
        A norm whose mean is read as well, "its mean":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        norm (float16[B, T, 8] x, float16[8] scale) => (float16[B, T, 8] y, float[B, T, 1] mean)
        {
            y, mean = LayerNormalization (x, scale)
        }

    Safety:
        As exact as float32 is, and rounded to float16 once, on condition that the variance is not
        lost in float32: over a millionth of the square of the largest element. It is not bit for
        bit what a kernel for float16 makes, for these round in their own ways: one of ONNX
        Runtime's for the CPU, on an Intel Xeon, was off by 0.8 % of an element near 0. What is
        allowed to a float16 model in verification is more than that. Casts of constant scales are
        folded when the model is loaded. ONNX Runtime no longer makes a SkipLayerNormalization of it
        and the sum before it. Refused: a node of which the mean or the deviation is used as well.
    """

    safety = "conditional"
    anchors = ("LayerNormalization", "InstanceNormalization")

    def match(self, node: ir.Node, view: View) -> Match | Skip | None:
        """Return the site if a norm computes in float16."""
        data = node.inputs[0]
        if view.shapes.dtype(data) != ir.DataType.FLOAT16 or const_of(data) is not None:
            return None
        if any(x.uses() or x.is_graph_output() for x in node.outputs[1:]):
            return Skip(node, "its mean or deviation is used as well")
        return Match(node)

    def message(self, site: Match) -> str:
        """Describe what may overflow."""
        return f"{site.node.op_type} in float16: wrong where the variance passes 65504"

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        """Build the same norm in float32, between Casts."""
        inputs = [None if x is None else _cast_to_float(x, op) for x in match.node.inputs]
        return op.Cast(op.clone_node(match.node, *inputs), to=ir.DataType.FLOAT16)


def _cast_to_float(value: ir.Value, op: Builder) -> ir.Value:
    """Build a Cast to float32, once for each value."""
    return op.build_once(("float", value), lambda: op.Cast(value, to=ir.DataType.FLOAT), value)
