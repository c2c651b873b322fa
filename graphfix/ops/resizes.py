"""Read Resize and Upsample: where each opset keeps its scales and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.graph.constants import const_of, ints_of
from graphfix.graph.nodes import attr_float, attr_int, attr_ints, attr_text, input_at
from graphfix.ops.operands import normalize_axes

Places = npt.NDArray[np.float64]


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
        antialias: Whether an axis that becomes shorter is smoothed first.
        excludes_outside: Whether the weights of a cubic leave out what is outside of the input.
        cubic_coefficient: The ``a`` of a cubic.
    """

    axes: tuple[int, ...]
    scales: tuple[float, ...] | None
    sizes: tuple[int, ...] | None
    mode: str
    coordinates: str
    rounding: str
    aspect: str
    antialias: bool
    excludes_outside: bool
    cubic_coefficient: float

    def scale_along(self, axis: int) -> float | None:
        """Return the factor of an axis, 1 where none is given; None if sizes decide it."""
        if self.scales is None:
            return None
        return dict(zip(self.axes, self.scales, strict=True)).get(axis, 1.0)

    def places(self, index: Places, scale: float) -> Places | None:
        """Return which place of the input elements of the result are at, not cut to its edges.

        Args:
            index: The elements, along one axis.
            scale: The factor of that axis; a size that it gives is cut to a whole one.

        Returns:
            None if the places depend on the sizes. In pytorch_half_pixel a result of one element is
            at place 0, whatever this says.
        """
        match self.coordinates:
            case "half_pixel" | "pytorch_half_pixel":
                return (index + 0.5) / scale - 0.5
            case "asymmetric":
                return index / scale
            case "tf_half_pixel_for_nn":
                return (index + 0.5) / scale
        return None

    def neighbours(self, places: Places) -> tuple[Places, Places]:
        """Return the first and the last element of the input that each place is computed from."""
        if self.mode == "nearest":
            nearest = _ROUNDINGS[self.rounding](places)
            return nearest, nearest
        before, behind = (1, 2) if self.mode == "cubic" else (0, 1)
        return np.floor(places) - before, np.floor(places) + behind

    def nearest_elements(self, axis: int, old: int, new: int) -> list[int] | None:
        """Return which element of the input each element along an axis is a copy of.

        Args:
            axis: The axis, counted from the front.
            old: How many elements the input has along it.
            new: How many the result has.

        Returns:
            None if it is not the nearest that is taken, or if the runtimes may round a place to
            either side: they compute places in float32, which is exact for powers of two only. Also
            if a factor such as 1.2 leaves the size as it is: ONNX Runtime then copies the input.
        """
        if self.mode != "nearest" or not old:
            return None
        scale = self.scale_along(axis)
        scale = new / old if scale is None else scale
        if old == new:
            return list(range(old)) if scale == 1.0 else None
        places = self.places(np.arange(new, dtype=np.float64), scale)
        if places is None or (self.coordinates == "pytorch_half_pixel" and new == 1):
            return None
        nearest, _ = self.neighbours(places)
        if math.frexp(scale)[0] != 0.5:  # no power of two
            margin = _ROUNDED * (1 + np.abs(places))
            low, high = (self.neighbours(x)[0] for x in (places - margin, places + margin))
            if not np.array_equal(low, high):
                return None
        return [int(x) for x in np.clip(nearest, 0, old - 1)]

    def weights(self, axis: int, old: int, new: int) -> Places | None:
        """Return the weight of each element of the input in each of the result, along an axis.

        A linear or cubic resize is a product with such a matrix along one axis after the other.

        Args:
            axis: The axis, counted from the front.
            old: How many elements the input has along it.
            new: How many the result has.

        Returns:
            [new, old], float64. None if the nearest is taken, if places are cut out by ``roi``, or
            if a factor such as 1.2 leaves the size as it is: ONNX Runtime then copies the input.
        """
        scale = self.scale_along(axis)
        scale = new / old if scale is None and old else scale
        places = None if not scale else self._all_places(old, new, scale)
        is_copy = old == new and scale != 1.0
        if self.mode not in _KERNELS or places is None or scale is None or is_copy:
            return None
        kernel, reach = _KERNELS[self.mode]
        shrunk = min(scale, 1.0) if self.antialias else 1.0
        steps = math.ceil(reach / shrunk) + 1
        elements = np.floor(places)[:, None] + np.arange(-steps, steps + 1)
        weights = kernel((elements - places[:, None]) * shrunk, self.cubic_coefficient)
        if self.excludes_outside:
            weights[(elements < 0) | (elements >= old)] = 0
        weights /= weights.sum(axis=1, keepdims=True)
        matrix = np.zeros((new, old))
        rows = np.broadcast_to(np.arange(new)[:, None], weights.shape)
        # What lies outside of the input is its first or last element.
        np.add.at(matrix, (rows, np.clip(elements, 0, old - 1).astype(np.int64)), weights)
        return matrix

    def _all_places(self, old: int, new: int, scale: float) -> Places | None:
        """Return the place of each element of a result, also where it depends on the sizes."""
        index = np.arange(new, dtype=np.float64)
        match self.coordinates:
            case "align_corners":
                return index * (old - 1) / max(new - 1, 1)
            case "pytorch_half_pixel" if new == 1:
                return index
            case "half_pixel_symmetric":
                return old / 2 - new / (2 * scale) + (index + 0.5) / scale - 0.5
        return self.places(index, scale)

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
                # In float32, as ONNX Runtime multiplies: 0.7 of 10 is 7.
                new[axis] = int(np.float32(dims[axis]) * np.float32(scale))
        else:
            return None
        return tuple(new)


def _triangle(distance: Places, _: float) -> Places:
    """Return the weights of a linear resize."""
    weights: Places = np.maximum(1 - np.abs(distance), 0.0)
    return weights


def _cubic(distance: Places, a: float) -> Places:
    """Return the weights of a cubic resize."""
    x = np.abs(distance)
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = ((x - 5) * x + 8) * a * x - 4 * a
    return np.where(x <= 1, inner, np.where(x < 2, outer, 0))


# The weight at a distance, and how far it reaches.
_KERNELS = {"linear": (_triangle, 1), "cubic": (_cubic, 2)}

# Far more than float32 rounds a place by, as a share of it.
_ROUNDED = 1e-4

_ROUNDINGS: dict[str, Callable[[Places], Places]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda places: np.ceil(places - 0.5),
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
}


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
        antialias=bool(attr_int(node, "antialias", 0)),
        excludes_outside=bool(attr_int(node, "exclude_outside", 0)),
        cubic_coefficient=attr_float(node, "cubic_coeff_a", -0.75),
    )


def _scales(node: ir.Node, opset: int) -> tuple[float, ...] | None:
    index = scales_input(node, opset)
    if index is None:
        attribute = node.attributes.get("scales")
        return None if attribute is None or attribute.is_ref() else tuple(attribute.as_floats())
    array = const_of(input_at(node, index))
    # Sizes stand beside an empty tensor of scales.
    return None if array is None or array.size == 0 else tuple(float(x) for x in array.reshape(-1))
