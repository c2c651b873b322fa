"""fuse-residual: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.pads import pad_mode, pads_of
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of
from graphfix.graph.nodes import attr_int, attr_ints, attr_text, is_op, producer_of

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
                user, perm = conv, attr_ints(conv, "perm")
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
    weight = const_of(conv.inputs[1], _MAX_WEIGHT_SIZE)
    if weight is None or weight.dtype != np.float32 or weight.shape[1] != 1:
        return None
    rank = weight.ndim - 2
    if attr_int(conv, "group", 1) != weight.shape[0]:
        return None
    if attr_text(conv, "auto_pad", "NOTSET") != "NOTSET":
        return None
    if set(attr_ints(conv, "strides") or (1,)) != {1}:
        return None
    front_sizes = _sizes_before_residual(conv.inputs[0], residual, perm, view)
    pads = attr_ints(conv, "pads") or (0,) * (2 * rank)
    if front_sizes is None or min(pads) < 0 or any(front_sizes[:2]):
        return None
    begins = [a + b for a, b in zip(front_sizes[2:], pads[:rank], strict=True)]
    steps = attr_ints(conv, "dilations") or (1,) * rank
    taps = [b // s for b, s in zip(begins, steps, strict=True)]
    inside = all(t < n for t, n in zip(taps, weight.shape[2:], strict=True))
    if not inside or any(b % s for b, s in zip(begins, steps, strict=True)):
        return None
    tap = np.zeros(weight.shape[2:], np.float32)
    tap[tuple(taps)] = 1
    return np.add(weight, tap)


def _sizes_before_residual(
    data: ir.Value | None, residual: ir.Value, perm: tuple[int, ...] | None, view: View
) -> tuple[int, ...] | None:
    """Return how much precedes ``residual`` on each axis of the Conv's input, or None."""
    dims, node = view.shapes.dims(data), producer_of(data)
    if data is None or dims is None:
        return None
    if _is_transposed_residual(data, residual, perm):
        return (0,) * len(dims)
    if (
        is_op(node, "Pad")
        and pad_mode(node) == "constant"
        and _is_transposed_residual(node.inputs[0], residual, perm)
    ):
        pads = [x for x in pads_of(node, view) or () if isinstance(x, int) and x >= 0]
        return tuple(pads[: len(dims)]) if len(pads) == 2 * len(dims) else None
    if is_op(node, "Concat"):
        axis, length = attr_int(node, "axis", 0) % len(dims), 0
        for value in node.inputs:
            if _is_transposed_residual(value, residual, perm):
                return tuple(length * (i == axis) for i in range(len(dims)))
            sizes = view.shapes.dims(value)
            size = sizes[axis] if sizes else None
            if not isinstance(size, int):
                return None
            length += size
    return None


def _is_transposed_residual(
    value: ir.Value | None, residual: ir.Value, perm: tuple[int, ...] | None
) -> bool:
    """Return whether ``value``, with its axes in this order, is ``residual``."""
    if value is None or perm is None:
        return value is residual
    node = value.producer()
    inverse_perm = attr_ints(node, "perm") if is_op(node, "Transpose") else None
    return (
        node is not None
        and node.inputs[0] is residual
        and inverse_perm == tuple(np.argsort(perm).tolist())
    )
