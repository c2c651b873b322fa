"""fuse-residual: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of
from graphfix.graph.nodes import is_op, producer_of
from graphfix.ops.axes import axis_of, inverse_permutation, permutation_of
from graphfix.ops.pads import pad_mode, pads_by_axis
from graphfix.ops.windows import Window, window_of

from ..common.fusible import only_user

_MAX_WEIGHT_SIZE = 1 << 18  # numbers of a weight: 2,048 channels of 128 taps


@dataclass(frozen=True)
class ResidualSite(Match):
    """A depthwise Conv to which its own input is added.

    Attributes:
        conv: The Conv.
        weight: Its new weight, with the input added.
        perm: The permutation of its output before the sum; None if it is not transposed.
    """

    conv: ir.Node
    weight: Array
    perm: tuple[int, ...] | None


@dataclass(frozen=True)
class FuseResidual(NodePass[ResidualSite]):
    """Fuses the sum of a depthwise Conv and its own input into the Conv.

    Why:
        The memory block of FSMN and SANM (SenseVoice, Paraformer, FSMN-VAD) is a Conv along time,
        one filter a channel, and its input is added to what it gives. The tap that reads the frame
        itself plus 1 does the same, and saves a kernel a layer: by `graphfix plan`, of SenseVoice
        111 kernels are left on the device where 116 were, of Paraformer 71 of 74.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        memory (float[B, T, 2] x) => (float[B, T, 2] y)
        <float[2, 1, 3] w = {0.5, 1.0, 0.5, 0.25, 2.0, 0.25}>
        {
            channels = Transpose <perm = [0, 2, 1]> (x)
            filtered = Conv <group = 2, pads = [1, 1]> (channels, w)
            frames = Transpose <perm = [0, 2, 1]> (filtered)
            y = Add (frames, x)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        memory (float[B, T, 2] x) => (float[B, T, 2] y)
        <float[2, 1, 3] more = {0.5, 2.0, 0.5, 0.25, 3.0, 0.25}>
        {
            channels = Transpose <perm = [0, 2, 1]> (x)
            summed = Conv <group = 2, pads = [1, 1]> (channels, more)
            y = Transpose <perm = [0, 2, 1]> (summed)
        }

    Left alone:
        A weight in float16, which 1 would round:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        memory (float16[B, 3, T] x) => (float16[B, 3, T] y)
        <float16[3, 1, 1] w = {1, 2, 3}>
        {
            c = Conv <group = 3> (x, w)
            y = Add (c, x)
        }

    Safety:
        Exact, except rounding. The frame may be padded (pads of the Conv, or a Pad before it) or
        follow frames of a cache (a Concat): which tap reads it is counted. In float32 only, where
        adding 1 to a small weight keeps enough of it.
    """

    sentence = "a depthwise Conv, and its own input is added to it: two kernels for one"
    anchors = ("Add",)

    def match(self, node: ir.Node, view: View) -> ResidualSite | None:
        """Return the site if a node adds a depthwise Conv and its own input."""
        for value, residual in (node.inputs, node.inputs[::-1]):
            conv, user, perm = producer_of(value), node, None
            if is_op(conv, "Transpose"):
                if only_user(conv) is not node:
                    continue
                user, perm = conv, permutation_of(conv, view.shapes.rank(value) or 0)
                conv = producer_of(conv.inputs[0])
            if not is_op(conv, "Conv") or only_user(conv) is not user or residual is None:
                continue
            if not same_dims(view.shapes.dims(value), view.shapes.dims(residual)):
                continue
            weight = _add_residual_tap(conv, residual, perm, view)
            if weight is not None:
                return ResidualSite(node, conv, weight, perm)
        return None

    def rewrite(self, match: ResidualSite, op: Builder) -> ir.Value:
        """Build the Conv with the residual in its weight."""
        data, _, *bias = match.conv.inputs
        conv_output = op.clone_node(match.conv, data, match.weight, *bias)
        return conv_output if match.perm is None else op.Transpose(conv_output, perm=match.perm)


def _add_residual_tap(
    conv: ir.Node, residual: ir.Value, perm: tuple[int, ...] | None, view: View
) -> Array | None:
    """Return the weight plus 1 at the one tap that reads ``residual``, or None."""
    kernel, window = conv.inputs[1], window_of(conv)
    dims = view.shapes.dims(kernel)
    if window is None or dims is None or dims[1] != 1 or window.group != dims[0]:
        return None  # not one filter a channel: its weight is not even read
    weight = const_of(kernel, _MAX_WEIGHT_SIZE)
    if weight is None or weight.dtype != np.float32:
        return None
    if window.auto_pad != "NOTSET" or {*window.strides} != {1} or min(window.before) < 0:
        return None
    front_sizes = _sizes_before_residual(conv.inputs[0], residual, perm, view)
    if front_sizes is None or min(window.after) < 0 or any(front_sizes[:2]):
        return None
    begins = [a + b for a, b in zip(front_sizes[2:], window.before, strict=True)]
    taps = _taps_at(begins, window)
    if taps is None:
        return None
    tap = np.zeros(weight.shape[2:], np.float32)
    tap[taps] = 1
    return np.add(weight, tap)


def _taps_at(begins: Sequence[int], window: Window) -> tuple[int, ...] | None:
    """Return the tap of each axis that reads as far behind the first as this, or None."""
    taps: list[int] = []
    for begin, dilation, size in zip(begins, window.dilations, window.kernel, strict=True):
        tap, offset = divmod(begin, dilation)
        if offset or tap >= size:
            return None
        taps.append(tap)
    return tuple(taps)


def _sizes_before_residual(
    data: ir.Value | None, residual: ir.Value, perm: tuple[int, ...] | None, view: View
) -> tuple[int, ...] | None:
    """Return how much precedes ``residual`` on each axis of the Conv's input, or None."""
    rank, node = view.shapes.rank(data), producer_of(data)
    if data is None or rank is None:
        return None
    if _is_transposed_residual(data, residual, perm):
        return (0,) * rank
    if is_op(node, "Pad"):
        is_padded = _is_transposed_residual(node.inputs[0], residual, perm)
        return _sizes_padded_before(node, rank, view) if is_padded else None
    if is_op(node, "Concat"):
        places = [_is_transposed_residual(x, residual, perm) for x in node.inputs]
        return _sizes_joined_before(node, places.index(True), rank, view) if any(places) else None
    return None


def _sizes_joined_before(
    concat: ir.Node, place: int, rank: int, view: View
) -> tuple[int, ...] | None:
    """Return the size of what a Concat puts before an input, for each axis; None if unknown."""
    axis = axis_of(concat, rank, view.opset_of_node(concat))
    if axis is None:
        return None
    sizes = [(view.shapes.dims(x) or (None,) * rank)[axis] for x in concat.inputs[:place]]
    numbers = [size for size in sizes if isinstance(size, int)]
    if len(numbers) < len(sizes):
        return None
    return tuple(sum(numbers) * (i == axis) for i in range(rank))


def _sizes_padded_before(pad: ir.Node, rank: int, view: View) -> tuple[int, ...] | None:
    """Return what a Pad in mode constant puts before each axis; None if unknown, or it cuts."""
    pads = pads_by_axis(pad, rank, view.shapes.known_elements)
    if pads is None or pad_mode(pad) != "constant":
        return None
    sizes = {axis: pair for axis, pair in pads.items() if pair != (0, 0)}
    numbers = [x for pair in sizes.values() for x in pair if isinstance(x, int) and x >= 0]
    if len(numbers) < 2 * len(sizes):
        return None
    before = dict(zip(sizes, numbers[::2], strict=True))
    return tuple(before.get(axis, 0) for axis in range(rank))


def _is_transposed_residual(
    value: ir.Value | None, residual: ir.Value, perm: tuple[int, ...] | None
) -> bool:
    """Return whether ``value``, with its axes in this order, is ``residual``."""
    if value is None or perm is None:
        return value is residual
    node = value.producer()
    if not is_op(node, "Transpose") or node.inputs[0] is not residual:
        return False
    return permutation_of(node, len(perm)) == inverse_permutation(perm)
