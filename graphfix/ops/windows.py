"""Read what slides along axes: convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.graph.nodes import attr_int, attr_ints, attr_text, input_at


@dataclass(frozen=True)
class Window:
    """How a convolution or a pool slides along its spatial axes, from axis 2 on.

    Attributes:
        kernel: The size of the window along each axis, before dilation.
        strides: How far it moves.
        dilations: How far its elements lie apart.
        before: What is put before each axis; 0 where ``auto_pad`` decides.
        after: What is put behind it.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        group: How many groups the channels form; 1 for a pool.
        ceil_mode: Whether a last window of a pool may hang over the end.
        output_padding: What a ConvTranspose adds to the end of its result.
        output_shape: The spatial sizes of the result of a ConvTranspose, if it has the attribute.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    auto_pad: str
    group: int
    ceil_mode: bool
    output_padding: tuple[int, ...]
    output_shape: tuple[int, ...] | None

    @property
    def reach(self) -> tuple[int, ...]:
        """Return how many places a window spans along each axis, dilation counted in."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def pads_for(self, sizes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Return what is put before and behind each axis where the input has these sizes.

        Not for ConvTranspose, whose ``auto_pad`` ONNX and ONNX Runtime read differently.
        """
        if not self.auto_pad.startswith("SAME"):
            return tuple(zip(self.before, self.after, strict=True))
        pads = []
        for size, stride, reach in zip(sizes, self.strides, self.reach, strict=True):
            missing = max(0, (-(-size // stride) - 1) * stride + reach - size)
            less, more = missing // 2, missing - missing // 2
            pads.append((less, more) if self.auto_pad == "SAME_UPPER" else (more, less))
        return tuple(pads)


def window_of(node: ir.Node, weight_dims: Sequence[object] | None = None) -> Window | None:
    """Return how a convolution or a pool slides; None if the kernel's size is not known.

    Args:
        node: A Conv, ConvTranspose, ConvInteger, QLinearConv or pool. The kernel is the attribute
            ``kernel_shape``, or the shape of the weight.
        weight_dims: The shape of the weight, where it is inferred and not declared.
    """
    kernel = attr_ints(node, "kernel_shape") or _weight_kernel(node, weight_dims)
    if kernel is None:
        return None
    rank = len(kernel)
    auto_pad = attr_text(node, "auto_pad", "NOTSET")
    pads = attr_ints(node, "pads") if auto_pad == "NOTSET" else None
    pads = pads or (0,) * (2 * rank)
    return Window(
        kernel=kernel,
        strides=attr_ints(node, "strides") or (1,) * rank,
        dilations=attr_ints(node, "dilations") or (1,) * rank,
        before=pads[:rank],
        after=pads[rank:],
        auto_pad=auto_pad,
        group=attr_int(node, "group", 1),
        ceil_mode=bool(attr_int(node, "ceil_mode", 0)),
        output_padding=attr_ints(node, "output_padding") or (0,) * rank,
        output_shape=attr_ints(node, "output_shape"),
    )


def _weight_kernel(node: ir.Node, weight_dims: Sequence[object] | None) -> tuple[int, ...] | None:
    """Return the spatial sizes of the weight of a convolution."""
    weight = convolution_weight(node)
    if weight_dims is None and weight is not None and weight.shape is not None:
        weight_dims = tuple(weight.shape)
    if weight_dims is None:
        return None
    sizes = weight_dims[2:]
    if not all(isinstance(size, int) for size in sizes):
        return None
    return tuple(size for size in sizes if isinstance(size, int))


def convolution_weight(node: ir.Node) -> ir.Value | None:
    """Return the weight of a convolution."""
    return input_at(node, 3 if node.op_type == "QLinearConv" else 1)


def channel_axis_of_weight(node: ir.Node) -> tuple[int, int]:
    """Return the axis of a convolution's weight, and the factor, that say how many channels it has.

    A Conv of two groups over a weight of ``[8, 5, 3]`` takes 10 channels; a ConvTranspose as many
    as its weight has rows.
    """
    if node.op_type in ("ConvTranspose", "CausalConvWithState"):
        return 0, 1
    return 1, attr_int(node, "group", 1)
