"""scale-weights: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.model.values import is_op
from graphfix.model.view import View

from ._shared.fusible import only_user


@dataclass(frozen=True)
class ScaledSite(Match):
    """A product with a weight that is multiplied with constants.

    Attributes:
        product: The MatMul.
        bias: What is added to the product before, [W], or None.
        factor: What it is multiplied with, [W] or one number.
    """

    product: ir.Node
    bias: ir.Value | None
    factor: ir.Value


@dataclass(frozen=True)
class ScaleWeights(NodePass[ScaledSite]):
    """Multiplies a weight and its bias with what their product is multiplied with.

    Layer scale (ConvNeXt, BEiT, DINOv2, Mimi) multiplies each feature with a number of its own, and
    VITS scales its queries behind their bias. The weight is multiplied by an operator in the graph:
    ONNX Runtime does that once, when it loads the model (constant folding), so no weight is read or
    written twice.

    Why:
        Each is a kernel of its own on DirectML, over all frames. By `graphfix plan` the profile
        `fast` leaves 21 kernels of a BEiT of two layers on the device where 25 were, 46 of a
        ConvNeXt of four where 50 were. Behind it a bias may go into the norm that follows.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        scaled (float[B, T, 2] x) => (float[B, T, 2] y)
        <float[2, 2] w = {1, 2, 3, 4}, float[2] b = {1, 2}, float[2] scale = {0.5, 0.25}>
        {
            product = MatMul (x, w)
            rows = Add (product, b)
            y = Mul (scale, rows)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        scaled (float[B, T, 2] x) => (float[B, T, 2] y)
        <float[2, 2] w = {1, 2, 3, 4}, float[2] b = {1, 2}, float[2] scale = {0.5, 0.25}>
        {
            weight = Mul (w, scale)
            scaled = MatMul (x, weight)
            bias = Mul (b, scale)
            y = Add (scaled, bias)
        }

    Safety:
        Exact, except rounding. In float32 only: in float16 a weight that is scaled down may lose
        digits that the product has. A weight that is an input, or goes into another operator too,
        stays, and so does a product that something else reads. One number behind a product without
        a bias is left to fuse-matmul. Without any optimization ONNX Runtime multiplies the weights
        in each run.
    """

    name: ClassVar[str] = "scale-weights"
    anchors: ClassVar[tuple[str, ...]] = ("Mul",)

    def match(self, node: ir.Node, view: View) -> ScaledSite | None:
        """A Mul of constants with a product with a weight, or with that and a bias."""
        for rows, factor in (node.inputs, node.inputs[::-1]):
            product, bias = _linear(rows, node, view)
            if product is None or factor is None or factor not in view.fixed:
                continue
            dims, width = (view.shapes.dims(x) for x in (factor, product.inputs[1]))
            if dims == (width or ())[-1:] or (bias is not None and dims in ((), (1,))):
                return ScaledSite(node, product, bias, factor)
        return None

    def message(self, site: Match) -> str:
        """What it is."""
        return "constants that a product is multiplied with, a kernel; its weight could have them"

    def rewrite(self, match: ScaledSite, op: Builder) -> ir.Value:
        """The product with a scaled weight, and the scaled bias."""
        data, weight = match.product.inputs
        rows = op.MatMul(data, op.Mul(weight, match.factor))
        return rows if match.bias is None else op.Add(rows, op.Mul(match.bias, match.factor))


def _linear(
    value: ir.Value | None, user: ir.Node, view: View
) -> tuple[ir.Node, ir.Value | None] | tuple[None, None]:
    """The MatMul with a weight that makes ``value`` for ``user`` alone, and the bias after it."""
    node, bias = (None if value is None else value.producer()), None
    if node is not None and is_op(node, "Add") and only_user(node) is user:
        found = [
            (x, y) for x, y in (node.inputs, node.inputs[::-1]) if y in view.fixed and x is not None
        ]
        if len(found) != 1 or view.shapes.rank(found[0][1]) != 1:
            return None, None
        user, (value, bias) = node, found[0]
        node = value.producer()
    if node is None or not is_op(node, "MatMul") or only_user(node) is not user:
        return None, None
    weight = node.inputs[1]
    if weight is None or weight not in view.fixed or len(weight.uses()) != 1:
        return None, None
    fits = view.shapes.rank(weight) == 2 and view.shapes.dtype(weight) == ir.DataType.FLOAT
    return (node, bias) if fits else (None, None)
