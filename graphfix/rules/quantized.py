"""Rules for hazards in quantized weights."""

from collections.abc import Iterator

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int
from graphfix.providers.directml.placement import PlacementRules
from graphfix.rules.rule import Hazard, Rule, is_fixed

_HALF_BYTES = (ir.DataType.INT4, ir.DataType.UINT4)


class FourBits(Rule):
    """Flags a DequantizeLinear of constant 4-bit integers without blocks.

    Why:
        Run on onnxruntime-directml 1.24.4, int4 and uint4 weights of 16 to 1,024 elements with one
        scale, or one for each row or column: no session is made, 80070057. Of blocks of 16 it is,
        and of weights of 8 bits; 4 bits that a QuantizeLinear makes in the run are right.

    Flagged:
        <ir_version: 10, opset_import: ["" : 21]>
        head (float[B, 2] x) => (float[B, 2] y)
        <int4[2, 2] w = {33, 67}, float scale = {0.5}>
        {
            k = DequantizeLinear (w, scale)
            y = MatMul (x, k)
        }

    Clean:
        <ir_version: 10, opset_import: ["" : 21]>
        head (float[B, 2] x) => (float[B, 2] y)
        <int8[2, 2] w = {1, 2, 3, 4}, float scale = {0.5}>
        {
            k = DequantizeLinear (w, scale)
            y = MatMul (x, k)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each DequantizeLinear of constant 4-bit integers that DirectML takes."""
        rules = PlacementRules(view.model.graph.opset_imports, view.shapes)
        for node in view.nodes("DequantizeLinear"):
            dtype = view.shapes.dtype(node.inputs[0])
            if dtype not in _HALF_BYTES or attr_int(node, "block_size", 0):
                continue
            if is_fixed(node.inputs[0], view) and rules.kernel_of(node) is not None:
                message = f"{dtype.name.lower()} weights without blocks: no session, 80070057"
                yield Hazard(node, f"{message}; quantize them in blocks, or to 8 bits", "error")
