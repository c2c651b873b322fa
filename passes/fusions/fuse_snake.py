"""fuse-snake: the manual is the docstring of the class."""

from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import Array
from graphfix.graph.nodes import attr_int, is_op, producer_of

from ..common.fusible import CONVOLVES, can_scale_weight, only_user
from ..common.parameters import parameter_of
from ..common.pattern import own, shared

_OPSET = 9  # BatchNormalization has no attribute `spatial` any more
# x + height * sin(frequency * x) ** 2
_SNAKE = shared.Add("data", own.Mul(own.Pow(own.Sin(own.Mul("data", "frequency")), 2), "height"))

# A cosine has an error of 6e-8, half of this times larger behind the height.
_LARGEST_HEIGHT = 32
# How far frequency * height is from 1: torch adds 1e-9 to what it divides by.
_NEAR_ONE = 2e-6
# The next weight is divided by a frequency: it should stay in the range of float16.
_FREQUENCIES = (1e-3, 1e3)


@dataclass(frozen=True)
class SnakeSite(Match):
    """A Snake in pieces: ``x + height * sin(frequency * x) ** 2``.

    Attributes:
        data: x, [B, C, ..].
        frequency: C numbers along axis 1.
        height: C numbers along axis 1.
        count: C.
        rank: The rank of x.
        product: The convolution behind it whose weight takes the frequency, if the height is one
            over that; else None.
    """

    data: ir.Value
    frequency: ir.Value
    height: ir.Value
    count: int
    rank: int
    product: ir.Node | None = None


@dataclass(frozen=True)
class FuseSnake(NodePass[SnakeSite]):
    """Computes a Snake in four operators, or in three behind a convolution of its own.

    Neural codecs and vocoders have it as their activation: DAC, SNAC, X-Codec and the vocoders of
    CosyVoice and Kokoro with one frequency a channel, BigVGAN and Qwen3-TTS's codec with a height
    of its own besides (SnakeBeta). With the same frequency, ``a * snake(x)`` is
    ``a * x + sin(a * x) ** 2``, and the next convolution divides its weight by ``a``. Else the
    square of the sine is half of ``1 - cos(2 * a * x)``, and a BatchNormalization that is told a
    mean of 0 and a variance of 1 is the factor and the sum.

    Why:
        Each is a kernel of its own on DirectML, over all frames. By `graphfix plan` the profile
        `fast` leaves 90 kernels of a DAC decoder of two blocks on the device where 112 were, 110 of
        an X-Codec where 142 were, 389 of Kokoro's decoder where 425 were, 274 of a BigVGAN where
        298 were. Run on onnxruntime-directml 1.24.4: the DAC decoder agrees (2.1e-7).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        snake (float[B, 2, T] x) => (float[B, 3, T] y)
        <float[1, 2, 1] a = {2, 0.5}, float[1, 2, 1] inverse = {0.5, 2}, float two = {2},
         float[3, 2, 1] w = {1, 2, 3, 4, 5, 6}>
        {
            angle = Mul (a, x)
            sine = Sin (angle)
            wave = Pow (sine, two)
            high = Mul (inverse, wave)
            sum = Add (x, high)
            y = Conv (sum, w)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        snake (float[B, 2, T] x) => (float[B, 3, T] y)
        <float[1, 2, 1] a = {2, 0.5}, float two = {2}, float[3, 2, 1] w = {1, 2, 3, 4, 5, 6},
         int64[3] along = {1, -1, 1}>
        {
            divisor = Reshape (a, along)
            scaled = Mul (x, a)
            swing = Sin (scaled)
            square = Pow (swing, two)
            total = Add (scaled, square)
            weight = Div (w, divisor)
            y = Conv (total, weight)
        }

    Left alone:
        A height for which the digits of a cosine are not enough, and no convolution behind it:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        snake (float[B, 2, T] x) => (float[B, 2, T] y)
        <float[1, 2, 1] a = {2, 0.5}, float[1, 2, 1] height = {100, 2}, float two = {2}>
        {
            angle = Mul (a, x)
            sine = Sin (angle)
            wave = Pow (sine, two)
            high = Mul (height, wave)
            y = Add (x, high)
        }

    Safety:
        Exact, except rounding: with a cosine up to 2e-6. In float32 only, for numbers that the file
        tells: heights up to 32, or frequencies from 0.001 to 1,000 whose weight nothing else reads.
    """

    anchors = ("Add", "Conv", "ConvTranspose")
    sentence = "a Snake in pieces, each a kernel of its own"

    def match(self, node: ir.Node, view: View) -> SnakeSite | None:
        """Return the site of a Snake, at the convolution behind it if that takes its frequency."""
        total = node if is_op(node, "Add") else producer_of(node.inputs[0])
        site = None if total is None else _match_snake(total, view)
        return site if site is not None and site.node is node else None

    def rewrite(self, match: SnakeSite, op: Builder) -> ir.Value:
        """Build the Snake with fewer operators."""
        if match.product is not None:
            _, weight, *bias = match.product.inputs
            along = [1] * match.rank
            along[1 if is_op(match.product, "Conv") else 0] = -1
            divisor = op.Reshape(match.frequency, np.array(along, np.int64))
            # In this order ONNX Runtime moves the factor into a Conv before it.
            angle = op.Mul(match.data, match.frequency)
            total = op.Add(angle, op.Pow(op.Sin(angle), np.array(2, np.float32)))
            return op.clone_node(match.product, total, op.Div(weight, divisor), *bias)
        cosine = op.Cos(op.Mul(match.data, op.Mul(match.frequency, np.array(2, np.float32))))
        half = op.Mul(op.Reshape(match.height, np.array([-1], np.int64)), np.array(0.5, np.float32))
        statistics = (np.full(match.count, x, np.float32) for x in (0, 1))  # mean, variance
        wave = op.BatchNormalization(cosine, op.Neg(half), half, *statistics, epsilon=0.0)
        return op.Add(match.data, wave)


def _match_snake(total: ir.Node, view: View) -> SnakeSite | None:
    """Return the site of a Snake whose last operator is ``total``, or None."""
    for parts in _SNAKE.matches(total):
        frequency, height = (parts[x] for x in ("frequency", "height"))
        frequencies, heights = (parameter_of(x, view) for x in (frequency, height))
        if frequencies is None or heights is None:
            continue
        if view.shapes.dtype(height) != ir.DataType.FLOAT:
            continue
        if not _is_by_channel(frequencies) or frequencies.shape != heights.shape:
            continue
        data = parts["data"]
        rest = (data, frequency, height, heights.size, heights.ndim)
        product = only_user(total)
        if _is_inverse(frequencies, heights) and _takes_factor(product, total, heights, view):
            return SnakeSite(product, *rest, product)
        has_digits = bool(np.all(np.abs(heights) <= _LARGEST_HEIGHT))
        has_rank = view.shapes.rank(data) == heights.ndim
        if has_digits and has_rank and view.opset_of_node(total) >= _OPSET:
            return SnakeSite(total, *rest)
    return None


def _is_by_channel(numbers: Array) -> bool:
    """Return whether an array has a number for each channel: [1, C, 1], with more dims of 1."""
    return numbers.ndim > 2 and numbers.shape[1] == numbers.size


def _is_inverse(frequencies: Array, heights: Array) -> bool:
    """Return whether each height is one over its frequency, and of a moderate size."""
    lowest, highest = _FREQUENCIES
    sizes, ones = np.abs(frequencies), np.multiply(frequencies, heights)
    is_moderate = bool(np.all((sizes >= lowest) & (sizes <= highest)))
    return is_moderate and bool(np.all(np.abs(ones - 1) <= _NEAR_ONE))


def _takes_factor(
    product: ir.Node | None, total: ir.Node, numbers: Array, view: View
) -> TypeGuard[ir.Node]:
    """Return whether a convolution can multiply its input's channels by way of its weight."""
    if product is None or product not in CONVOLVES or not can_scale_weight(product, view):
        return False
    if product.inputs[0] is not total.outputs[0]:
        return False
    is_grouped = is_op(product, "Conv") and attr_int(product, "group", 1) != 1
    return not is_grouped and view.shapes.rank(product.inputs[1]) == numbers.ndim
