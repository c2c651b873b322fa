"""Limits of float16: tensors that overflow, and norms that would overflow on a device.

ONNX Runtime's CPU computes most of float16 in float32 and rounds the results, so it does not show
the variance inside a norm. That is computed here from the float32 inputs of the norm.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.graph.nodes import attr_float, attr_int, input_at, is_op
from graphfix.ops.axes import mixed_axes
from graphfix.runtime.port import Array

LIMIT = 65504.0
# A number below minus this is taken for the fill of a mask.
_MASK_FILL = 1e4
# How many times larger other inputs may be than those that were tried.
ROOM = 4.0
# DirectML rounds a variance to float16. Run on onnxruntime-directml 1.24.4, 64 numbers a row: with
# an epsilon of 1e-12 rows that spread by 3e-3 are right, by 1e-3 off by 2 %, by 3e-4 by 20 %; with
# 1e-5 all are within 0.13 %. SkipLayerNormalization is right for all of them. Sums and products of
# 20,000 elements are right: DirectML adds in float32.
SMALLEST_VARIANCE = 2.0**-17
_ROUNDS_VARIANCE = ops.named("LayerNormalization InstanceNormalization")
_SKIP_LAYER_NORMS = ops.named(
    "com.microsoft.SkipLayerNormalization com.microsoft.SkipSimplifiedLayerNormalization"
)
_SKIP_GROUP_NORM = ops.named("com.microsoft.SkipGroupNorm")
_GROUP_NORMS = ops.named("com.microsoft.GroupNorm com.microsoft.SkipGroupNorm")


@dataclass(frozen=True)
class RangeGap:
    """Distance of one tensor of the candidate from float32.

    Attributes:
        largest: The largest magnitude in float32.
        lost: How many elements are infinite or NaN, and are numbers in float32.
    """

    largest: float
    lost: int


def measure_gap(before: Array, after: Array) -> RangeGap | None:
    """Compare a tensor with float32; None if it holds no floats or has changed its shape."""
    if before.dtype != np.float32 or before.shape != after.shape or after.dtype.kind != "f":
        return None
    lowest, highest = extremes_of(before)
    usual = lowest > -_MASK_FILL and highest < LIMIT and np.isfinite(extremes_of(after)).all()
    if usual:  # of millions of numbers, two passes over each array are enough
        return RangeGap(max(abs(lowest), abs(highest)), 0)
    finite_before, finite_after = np.isfinite(before), np.isfinite(after)
    # float16 has another mask fill: the model does not compute with the old one.
    shown = finite_before & finite_after & ((np.abs(before) < LIMIT) | (np.abs(after) > LIMIT / 2))
    shown &= (before > -_MASK_FILL) | (after > -_MASK_FILL)
    largest = float(np.max(np.abs(before[shown]), initial=0.0))
    return RangeGap(largest, int(np.count_nonzero(finite_before & ~finite_after)))


def extremes_of(array: Array) -> tuple[float, float]:
    """Return the lowest and the highest number; NaN if one is NaN, and 0 if there is none."""
    if not array.size:
        return 0.0, 0.0
    return float(array.min()), float(array.max())


def is_near_limit(array: Array) -> bool:
    """Return whether a float32 tensor is near the limit of float16, except by a mask's fill."""
    lowest, highest = extremes_of(array)
    if lowest >= -LIMIT / ROOM and highest <= LIMIT / ROOM:
        return False
    magnitudes = np.abs(array[np.isfinite(array)])
    near = magnitudes[magnitudes > LIMIT / ROOM]
    if not near.size:
        return False
    # A mask's fill recurs to the last bit; a large activation does not.
    values, counts = np.unique(near, return_counts=True)
    return bool((counts < max(2, near.size // 100)).any()) or values.size > 8


def norm_fault(node: ir.Node, name: str, data: Array, opset: int) -> str:
    """Return which sum inside a norm float16 may not hold, given its float32 input; "" if none.

    Args:
        node: Any operator.
        name: The tensor that it reads; of a norm the data or what is added to it, not the scale.
        data: What is in that tensor.
        opset: The version of the standard opset at the node.
    """
    is_data = any(x is not None and x.name == name for x in _summands(node))
    rows = _normalized_rows(node, data, opset) if is_data and data.size else None
    if rows is None:
        return ""
    wide = np.where(np.isfinite(rows), rows, 0).astype(np.float64)
    square = float(np.max(np.mean(np.square(wide), axis=-1), initial=0.0))
    if square > LIMIT / ROOM:
        return f"the mean square of what it takes reaches {square:.3g}"
    if node in _ROUNDS_VARIANCE:
        spread = np.var(wide, axis=-1)
        least = attr_float(node, "epsilon", 1e-5)
        least += float(np.min(spread[spread > 0], initial=np.inf))
        if least < SMALLEST_VARIANCE:
            return f"the variance of what it takes, and epsilon, come to {least:.3g}"
    return ""


def _summands(node: ir.Node) -> Sequence[ir.Value | None]:
    """Return the inputs whose sum a norm normalizes: the data, and what some of them add to it."""
    if node in _SKIP_GROUP_NORM:
        return (node.inputs[0], input_at(node, 3))
    return node.inputs[: 2 if node in _SKIP_LAYER_NORMS else 1]


def _normalized_rows(node: ir.Node, data: Array, opset: int) -> Array | None:
    """Return the data with all elements that a norm averages together in one row.

    None if the operator is no norm, or normalizes each element by itself.
    """
    if node not in ops.NORMS:
        return None
    if is_op(node, "GroupNormalization"):
        return _rows_of_groups(data, attr_int(node, "num_groups", 1))
    if node in _GROUP_NORMS:
        channels_last = attr_int(node, "channels_last", 1)
        data = np.moveaxis(data, -1, 1) if channels_last else data
        return _rows_of_groups(data, attr_int(node, "groups", 1))
    axes = mixed_axes(node, data.ndim, opset)
    if not axes:
        return None
    data = np.moveaxis(data, axes, range(-len(axes), 0))
    return data.reshape(*data.shape[: -len(axes)], -1)


def _rows_of_groups(data: Array, groups: int) -> Array:
    """Return ``[N, C, ...]`` as ``[N, groups, elements of a group]``."""
    return data.reshape(data.shape[0], groups, -1)
