"""Rules for infinities that DirectML does not produce, by the table edges.csv."""

from collections.abc import Iterator

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.view import View
from graphfix.graph.nodes import value_before
from graphfix.providers.directml.operator_facts import SATURATES_IN_FLOAT16
from graphfix.rules.rule import Hazard, Rule, is_folded

# An infinity of the first input is one in the result.
_KEEPS_INFINITY = ops.MOVES_FIRST_INPUT | ops.CASTS


class LostInfinity(Rule):
    """Flags a test for infinity behind a float16 sum.

    Why:
        Run on onnxruntime-directml 1.24.4 (edges.csv, Conv, ConvTranspose, Gemm, MatMul, ReduceL2,
        ReduceProd, ReduceSum and ReduceSumSquare, float16, large; survey.csv, ReduceL1 and Selu):
        where the sum passes 65504, it stays 65504; on the CPU, where it is not widened to float32,
        it is infinite. What clamps a float16 only where it is infinite, as T5 and BART do, never
        does so there.

    Flagged:
        <ir_version: 9, opset_import: ["" : 20]>
        guard (float16[N, 4] x, float16[4, 4] w) => (bool[N, 4] y)
        {
            sums = MatMul (x, w)
            y = IsInf (sums)
        }

    Clean:
        <ir_version: 9, opset_import: ["" : 20]>
        guard (float16[N, 4] x, float16[4, 4] w) => (bool[N, 4] y)
        <float most = {65504.0}>
        {
            sums = MatMul (x, w)
            size = Abs (sums)
            wide = Cast <to = 1> (size)
            y = GreaterOrEqual (wide, most)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each IsInf right behind a float16 sum, Casts and moves aside."""
        for node in view.nodes("IsInf"):
            value = value_before(node.inputs[0], *_KEEPS_INFINITY)
            if value is None or view.shapes.dtype(value) != ir.DataType.FLOAT16:
                continue
            producer = value.producer()
            if SATURATES_IN_FLOAT16.has(producer) and not is_folded(node, view):
                message = f"{producer.op_type} in float16 stops at 65504: this never is True"
                yield Hazard(node, message)
