"""Limits of float16: tensors that overflow, and norms that would on a device.

The candidate runs beside its model in float32, inner tensors streamed. ONNX Runtime's CPU computes
most of float16 in float32 and rounds what comes out, so the variance inside a norm is not seen
there: it is computed here of the float32 that go in.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.graph.nodes import attr_float, attr_int
from graphfix.runtime.port import Array

LIMIT = 65504.0
# From here down a number is taken for the floor of a mask.
_FLOOR = 1e4
# Other inputs may be larger than those that were tried.
ROOM = 4.0
# DirectML rounds a variance to float16. Run on onnxruntime-directml 1.24.4, 64 numbers a row: with
# an epsilon of 1e-12 rows that spread by 3e-3 are right, by 1e-3 off by 2 %, by 3e-4 by 20 %; with
# 1e-5 all are within 0.13 %. SkipLayerNormalization is right for all of them. Sums and products of
# 20,000 elements are right: DirectML adds in float32.
SMALLEST_VARIANCE = 2.0**-17
_ROUNDED = frozenset({"LayerNormalization", "InstanceNormalization"})

_OVER_ROWS = frozenset(
    {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "SkipGroupNorm", "GroupNorm"}
    | {"EmbedLayerNormalization", "LpNormalization", "MeanVarianceNormalization"}
)
_OVER_LAST = frozenset({"LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"})
_OVER_SPACE = frozenset({"InstanceNormalization", "GroupNormalization"})


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
    finite_before, finite_after = np.isfinite(before), np.isfinite(after)
    # A mask has another floor: the old one is no number that the model computes with.
    shown = finite_before & finite_after & ((np.abs(before) < LIMIT) | (np.abs(after) > LIMIT / 2))
    shown &= (before > -_FLOOR) | (after > -_FLOOR)
    largest = float(np.max(np.abs(before[shown]), initial=0.0))
    return RangeGap(largest, int(np.count_nonzero(finite_before & ~finite_after)))


def is_near_limit(array: Array) -> bool:
    """Return whether a float32 tensor nears what float16 holds, except the floor of a mask."""
    size = np.abs(array[np.isfinite(array)])
    near = size[size > LIMIT / ROOM]
    if not near.size:
        return False
    # A mask's floor recurs to the last bit; a large activation does not.
    values, counts = np.unique(near, return_counts=True)
    return bool((counts < max(2, near.size // 100)).any()) or values.size > 8


def norm_fault(node: ir.Node, data: Array) -> str:
    """Say what a float16 norm may not hold inside, given its float32 input; "" if nothing.

    Args:
        node: Any operator.
        data: Its first input.
    """
    axes = _norm_axes(node, data.ndim)
    if not axes or not data.size:
        return ""
    wide = np.where(np.isfinite(data), data, 0).astype(np.float64)
    square = float(np.max(np.mean(np.square(wide), axis=axes), initial=0.0))
    if square > LIMIT / ROOM:
        return f"the mean square of what it takes reaches {square:.3g}"
    if node.op_type in _ROUNDED:
        spread = np.var(wide, axis=axes)
        least = attr_float(node, "epsilon", 1e-5)
        least += float(np.min(spread[spread > 0], initial=np.inf))
        if least < SMALLEST_VARIANCE:
            return f"the variance of what it takes, and epsilon, come to {least:.3g}"
    return ""


def _norm_axes(node: ir.Node, rank: int) -> tuple[int, ...]:
    """Return over which axes an operator norms; none if it is no norm."""
    if node.op_type in _OVER_SPACE:
        return tuple(range(2, rank))
    if node.op_type in _OVER_LAST:
        return tuple(range(attr_int(node, "axis", -1) % max(rank, 1), rank))
    return (rank - 1,) if node.op_type in _OVER_ROWS and rank else ()
