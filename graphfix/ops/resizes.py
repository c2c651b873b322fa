"""Read Resize and Upsample: where each opset keeps its scales and sizes."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.graph.constants import const_of, ints_of
from graphfix.graph.nodes import attr_ints, attr_text, input_at
from graphfix.ops.operands import normalize_axes


@dataclass(frozen=True)
class Resize:
    """How a Resize reads between places.

    Attributes:
        axes: The axes that scales or sizes are of, counted from the front.
        scales: The factor of each axis, if they are given and constant.
        sizes: The size of each axis in the result, if they are given and constant.
        mode: nearest, linear or cubic.
        coordinates: Which place of the input an element of the result is at.
        rounding: Which neighbour is the nearest.
        aspect: Whether sizes stretch, or bound a resize that keeps the aspect ratio.
    """

    axes: tuple[int, ...]
    scales: tuple[float, ...] | None
    sizes: tuple[int, ...] | None
    mode: str
    coordinates: str
    rounding: str
    aspect: str

    def resized_dims(self, dims: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the shape of the result; None if it is not known or keeps an aspect ratio."""
        new = list(dims)
        if self.sizes is not None:
            if self.aspect != "stretch":
                return None
            for axis, size in zip(self.axes, self.sizes, strict=True):
                new[axis] = size
        elif self.scales is not None:
            for axis, scale in zip(self.axes, self.scales, strict=True):
                new[axis] = int(dims[axis] * scale)
        else:
            return None
        return tuple(new)


def scales_input(node: ir.Node, opset: int) -> int | None:
    """Return the input that holds the scales; None where they are an attribute (Upsample-7)."""
    if node.op_type == "Upsample":
        return 1 if opset >= 9 else None
    return 2 if opset >= 11 else 1


def read_resize(node: ir.Node, rank: int, opset: int) -> Resize | None:
    """Return how a Resize or Upsample resizes; None if its axes lie outside of the rank."""
    axes = normalize_axes(attr_ints(node, "axes") or tuple(range(rank)), rank)
    if axes is None:
        return None
    before_11 = opset < 11 or node.op_type == "Upsample"
    sizes = None if before_11 or input_at(node, 3) is None else ints_of(node.inputs[3])
    return Resize(
        axes=axes,
        scales=_scales(node, opset),
        sizes=sizes,
        mode=attr_text(node, "mode", "nearest"),
        coordinates="asymmetric"
        if before_11
        else attr_text(node, "coordinate_transformation_mode", "half_pixel"),
        rounding="floor" if before_11 else attr_text(node, "nearest_mode", "round_prefer_floor"),
        aspect=attr_text(node, "keep_aspect_ratio_policy", "stretch"),
    )


def _scales(node: ir.Node, opset: int) -> tuple[float, ...] | None:
    index = scales_input(node, opset)
    if index is None:
        attribute = node.attributes.get("scales")
        return None if attribute is None or attribute.is_ref() else tuple(attribute.as_floats())
    array = const_of(input_at(node, index))
    # Sizes stand beside an empty tensor of scales.
    return None if array is None or array.size == 0 else tuple(float(x) for x in array.reshape(-1))
