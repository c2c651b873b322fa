"""What the CPU computes wrongly, and DirectML does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import onnx_ir as ir

from graphfix.model.values import const_of

from .base import Hazard, Provider, Rule, is_folded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.model.view import View

# Two products of 255 and a weight of 64 are 32640, the last that 16 bits hold.
_MOST = 64
_LARGE = 2**26


class SaturatedProduct(Rule):
    """A MatMulInteger of uint8 and int8 whose weights use all 8 bits.

    Why:
        Without the VNNI instructions ONNX Runtime's CPU adds two products in 16 bits, which stop at
        32767 (ONNX Runtime's "Quantize ONNX models", on U8S8 and reduce_range). Run on
        onnxruntime 1.31.1, x86 without VNNI (edges.csv, MatMulInteger, uint8,int8, large): 48769
        for 64134, while DirectML is right, as it is for both of one type. What is quantized with
        reduce_range=True, to 7 bits, is right everywhere. A model that seems to differ on DirectML
        may be the better one there.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        product (uint8[N, 2] x) => (int32[N, 2] y)
        <int8[2, 2] w = {127, 1, 100, -3}>
        {
            y = MatMulInteger (x, w)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        product (uint8[N, 2] x) => (int32[N, 2] y)
        <int8[2, 2] w = {63, 1, 50, -2}>
        {
            y = MatMulInteger (x, w)
        }
    """

    name: ClassVar[str] = "saturated-product"
    providers: ClassVar[tuple[Provider, ...]] = ("cpu",)

    def hazards(self, view: View) -> Iterator[Hazard]:
        """Each with constant weights beyond 64; a warning, since newer CPUs are right."""
        for node in view.nodes("MatMulInteger"):
            types = [view.shapes.dtype(x) for x in node.inputs[:2]]
            if types != [ir.DataType.UINT8, ir.DataType.INT8] or is_folded(node, view):
                continue
            weights = const_of(node.inputs[1], _LARGE)
            if (
                weights is not None
                and weights.size
                and max(-int(weights.min()), int(weights.max())) > _MOST
            ):
                message = "MatMulInteger of uint8 and int8 beyond 64 stops at 16 bits on a CPU"
                yield Hazard(node, f"{message} without VNNI")


class MixedConvInteger(Rule):
    """A ConvInteger of int8 with weights of uint8.

    Why:
        Run on onnxruntime 1.31.1, x86 without VNNI (edges.csv, ConvInteger, int8,uint8), with
        random numbers too: the CPU returns others than the sum of the products, in silence, -33957
        for -34266; with both of one type, or uint8 with weights of int8, all are right. DirectML
        (onnxruntime-directml 1.24.4) is right for each pair of types.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        small (int8[1, 1, 8] x, uint8[1, 1, 3] w) => (int32[1, 1, 6] y)
        {
            y = ConvInteger (x, w)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        small (uint8[1, 1, 8] x, int8[1, 1, 3] w) => (int32[1, 1, 6] y)
        {
            y = ConvInteger (x, w)
        }
    """

    name: ClassVar[str] = "mixed-conv-integer"
    providers: ClassVar[tuple[Provider, ...]] = ("cpu",)

    def hazards(self, view: View) -> Iterator[Hazard]:
        """Each ConvInteger of these types."""
        for node in view.nodes("ConvInteger"):
            types = [view.shapes.dtype(x) for x in node.inputs[:2]]
            if types == [ir.DataType.INT8, ir.DataType.UINT8] and not is_folded(node, view):
                message = "ConvInteger of int8 with weights of uint8: the CPU is wrong in silence"
                yield Hazard(node, message, "error")
