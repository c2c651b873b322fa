"""scale-weights: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import is_op

from ..common.fusible import (
    CONVOLVES,
    SCALED_NORMS,
    can_scale_weight,
    is_by_feature,
    only_user,
    only_varying_input,
)

# One number passes these: it can multiply the first input instead of the one output.
_PASSES_NUMBER = (ops.MOVES_FIRST_INPUT - ops.named("Split")) | ops.named("Einsum")
# The same of a positive number, element by element.
_PASSES_POSITIVE = (ops.UNARY & ops.SCALES_ALONG) - ops.IDLE


@dataclass(frozen=True)
class ScaledSite(Match):
    """A product with a weight, and a constant factor before or behind it.

    Attributes:
        product: The MatMul, Conv or ConvTranspose; or the norm, whose weight is its scale.
        kind: Mul or Div.
        factor: The factor or divisor, [W] or one number.
        flat: Whether the factor has dims of 1 around its W.
        data: The input of the product.
        before: The nodes from the factor to the product behind it, in order.
        after: The nodes from the product to the factor behind it, in order, each with the input
            that leads there.
    """

    product: ir.Node
    kind: str
    factor: ir.Value
    data: ir.Value
    flat: bool = False
    before: tuple[ir.Node, ...] = ()
    after: tuple[tuple[ir.Node, int], ...] = ()


@dataclass(frozen=True)
class ScaleWeights(NodePass[ScaledSite]):
    """Multiplies constant factors of a product, or of its input, into the weight.

    Layer scale (ConvNeXt, BEiT, DINOv2, Mimi) multiplies each feature with a number of its own, and
    VITS scales its queries behind their bias; Funnel and XLNet do so once these are laid out as
    heads, and FastSpeech2's Conformer halves what a convolution gives, behind a Transpose. A norm
    whose condition is fixed (AdaLN), and torch's GroupNorm with one channel a group (wav2vec2), are
    multiplied with another scale: their own takes it. HiFi-GAN and vocoders like it divide by the
    number of their branches before the next convolution, with a LeakyRelu in between. The weight is
    multiplied by an operator in the graph: ONNX Runtime does that once, when it loads the model
    (constant folding), so no weight is read or written twice.

    Why:
        Each is a kernel of its own on DirectML, over all frames. By `graphfix plan` the profile
        `fast` leaves 21 kernels of a BEiT of two layers on the device where 25 were, 46 of a
        ConvNeXt of four where 50 were, 80 of a HiFi-GAN of two stages where 84 were: there the sum
        of the branches takes the LeakyRelu once nothing lies between them. Behind it a bias may go
        into the norm that follows.

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

    Left alone:
        A weight in float16, which would be rounded twice:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        scale (float16[B, T, 2] x) => (float16[B, T, 2] y)
        <float16[2, 2] w = {15360, 16384, 15360, 16384}, float16[2] s = {13107, 14746}>
        {
            p = MatMul (x, w)
            y = Mul (p, s)
        }

    Safety:
        Exact, except rounding. In float32 only: in float16 a weight that is scaled down may lose
        digits that the product has. A weight that is an input, or that two products take, stays,
        and so does a product that something else reads. Through a LeakyRelu or Relu goes a positive
        number only. One number right behind a product is left to fuse-matmul, and to ONNX Runtime
        where that is a convolution. A norm that gives its mean as well stays. Without any
        optimization ONNX Runtime multiplies the weights in each run.
    """

    anchors = ("Mul", "Div")
    sentence = "constants that a product is multiplied with, a kernel; its weight could have them"

    def match(self, node: ir.Node, view: View) -> ScaledSite | None:
        """Return the site if a constant factor can be multiplied into a weight."""
        orders = (node.inputs, node.inputs[::-1]) if is_op(node, "Mul") else (node.inputs,)
        for rows, factor in orders:
            if rows is None or factor is None or only_varying_input(node, view) is None:
                continue
            if factor not in view.constant_values:
                continue
            is_scalar = view.shapes.dims(factor) in ((), (1,))
            site = _match_factor_behind(node, rows, factor, is_scalar, view)
            if site is None and is_scalar:
                site = _match_factor_ahead(node, rows, factor, view)
            if site is not None:
                return site
        return None

    def rewrite(self, match: ScaledSite, op: Builder) -> ir.Value:
        """Build the product with a scaled weight, and the nodes around it."""
        rows = match.data
        for step in match.before:
            rows = op.clone_node(step, rows)
        factor = match.factor
        if match.flat:
            factor = op.Reshape(factor, np.array([-1], np.int64))
        _, weight, *bias = match.product.inputs
        if match.node is not match.product:  # else its data were multiplied, and not its bias
            bias = [x and op.make(match.kind, x, factor) for x in bias]
        rows = op.clone_node(match.product, rows, op.make(match.kind, weight, factor), *bias)
        for step, place in match.after:
            inputs = list(step.inputs)
            inputs[place] = rows
            if is_op(step, "Add"):
                inputs[1 - place] = op.make(match.kind, inputs[1 - place], match.factor)
            rows = op.clone_node(step, *inputs)
        return rows


def _match_factor_behind(
    node: ir.Node, rows: ir.Value, factor: ir.Value, is_scalar: bool, view: View
) -> ScaledSite | None:
    """Return the site of a factor behind a product with a weight, or None."""
    user, value, after = node, rows, list[tuple[ir.Node, int]]()
    while True:
        maker = value.producer()
        if maker is None or only_user(maker) is not user or len(value.uses()) > 1:
            return None
        if can_scale_weight(maker, view):
            break
        place = _scalable_input(maker, is_scalar, view)
        data = None if place is None else maker.inputs[place]
        if place is None or data is None:
            return None
        after.insert(0, (maker, place))
        user, value = maker, data
    data = maker.inputs[0]
    # One number right behind a product is left to fuse-matmul, and to ONNX Runtime.
    fits = after or maker in SCALED_NORMS if is_scalar else is_by_feature(factor, maker, view)
    if data is None or not fits:
        return None
    flat = not is_scalar and view.shapes.rank(factor) != 1
    return ScaledSite(node, maker, node.op_type, factor, data, flat, after=tuple(after))


def _match_factor_ahead(
    node: ir.Node, rows: ir.Value, factor: ir.Value, view: View
) -> ScaledSite | None:
    """Return the site of one number before a convolution; a positive one passes a Relu."""
    product, number, before = only_user(node), scalar_of(factor), list[ir.Node]()
    while product is not None and product in _PASSES_POSITIVE and number is not None and number > 0:
        before.append(product)
        product = only_user(product)
    if not CONVOLVES.has(product) or not can_scale_weight(product, view):
        return None
    if product.inputs[0] is not (before[-1] if before else node).outputs[0]:
        return None
    return ScaledSite(product, product, node.op_type, factor, rows, before=tuple(before))


def _scalable_input(step: ir.Node, is_scalar: bool, view: View) -> int | None:
    """Return which input of a step can be scaled instead of its output, or None."""
    if is_op(step, "Add"):
        place = only_varying_input(step, view)
        fits = place is not None and (is_scalar or view.shapes.rank(step.inputs[1 - place]) == 1)
        return place if fits else None
    passes = is_scalar and step in _PASSES_NUMBER and step.inputs[0] not in view.constant_values
    return 0 if passes else None
