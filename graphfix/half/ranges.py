"""Where float16 ends: tensors that overflow, and sums and norms that would on a device.

The candidate runs beside its model in float32, inner tensors streamed. ONNX Runtime's CPU computes
most of float16 in float32 and rounds what comes out, so what happens inside a kernel is not seen
there: a variance, a sum before it is divided. Those are computed here of the float32 that go in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.model.values import attr_float, attr_int, axes_of
from graphfix.runtime.port import Array as Array

if TYPE_CHECKING:
    from collections.abc import Iterator


LIMIT = 65504.0
# From here down a number is taken for the floor of a mask.
_FLOOR = 1e4
# Other inputs may be larger than those that were tried.
ROOM = 4.0
# DirectML rounds a variance to float16. Run on onnxruntime-directml 1.24.4, 64 numbers a row: with
# an epsilon of 1e-12 rows that spread by 3e-3 are right, by 1e-3 off by 2 %, by 3e-4 by 20 %; with
# 1e-5 all are within 0.13 %. SkipLayerNormalization is right for all of them.
LOST = 2.0**-17
_ROUNDED = frozenset({"LayerNormalization", "InstanceNormalization"})

_NORMS = frozenset(
    {"LayerNormalization", "SkipLayerNormalization", "SimplifiedLayerNormalization"}
    | {"SkipSimplifiedLayerNormalization", "RMSNormalization", "InstanceNormalization"}
    | {"GroupNormalization", "GroupNorm", "SkipGroupNorm", "EmbedLayerNormalization"}
    | {"LpNormalization", "MeanVarianceNormalization"}
)
_SUMS = frozenset({"ReduceMean", "ReduceSum", "ReduceL1", "ReduceLogSumExp", "GlobalAveragePool"})
_SQUARES = frozenset({"ReduceL2", "ReduceSumSquare", "LpNormalization"})


@dataclass(frozen=True)
class Gap:
    """How far one tensor of the candidate is from float32.

    Attributes:
        name: The tensor.
        error: The largest difference, as a share of the largest element.
        largest: The largest magnitude in float32.
        lost: How many elements are infinite or NaN, and are numbers in float32.
    """

    name: str
    error: float
    largest: float
    lost: int


def gap_of(name: str, before: Array, after: Array) -> Gap | None:
    """Hold a tensor against float32; None of what holds no floats or has changed its shape."""
    if before.dtype != np.float32 or before.shape != after.shape or after.dtype.kind != "f":
        return None
    if before.size and (plain := _plain_gap(name, before, after)) is not None:
        return plain
    wide, half = before.astype(np.float64), after.astype(np.float64)
    known = np.isfinite(wide)
    lost = int(np.count_nonzero(known & ~np.isfinite(half)))
    # A mask has another floor; how far that is from the old one means nothing.
    shown = known & np.isfinite(half) & ((np.abs(wide) < LIMIT) | (np.abs(half) > LIMIT / 2))
    shown &= ~((wide <= -_FLOOR) & (half <= -_FLOOR))
    largest = float(np.max(np.abs(wide[shown]), initial=0.0))
    error = float(np.max(np.abs(wide[shown] - half[shown]), initial=0.0))
    return Gap(name, error / largest if largest else 0.0, largest, lost)


def _plain_gap(name: str, before: Array, after: Array) -> Gap | None:
    """The same where all numbers are finite and small, as nearly all are; None otherwise.

    Tensors have millions of numbers, and each look at all of them takes as long as a kernel.
    """
    least, most = float(before.min()), float(before.max())
    ends = (least, most, float(after.min()), float(after.max()))
    if not all(-_FLOOR < x < LIMIT / 2 for x in ends):  # NaN is not
        return None
    gap = np.subtract(before, after, dtype=np.float64)
    error, largest = float(np.max(np.abs(gap))), max(abs(least), abs(most))
    return Gap(name, error / largest if largest else 0.0, largest, 0)


def is_near(array: Array) -> bool:
    """Whether a tensor in float32 comes near what float16 holds, but for the floor of a mask."""
    if array.size and max(-float(array.min()), float(array.max())) <= LIMIT / ROOM:
        return False  # nearly always; NaN is not
    size = np.abs(array[np.isfinite(array)])
    near = size[size > LIMIT / ROOM]
    if not near.size:
        return False
    # A mask's floor recurs to the last bit; a large activation does not.
    values, counts = np.unique(near, return_counts=True)
    return bool((counts < max(2, near.size // 100)).any()) or values.size > 8


def inside(node: ir.Node, given: Array) -> Iterator[str]:
    """What a kernel of float16 may not hold, of what it takes in float32.

    Args:
        node: An operator that sums or norms.
        given: Its first input.
    """
    wide = np.where(np.isfinite(given), given, 0).astype(np.float64)
    axes = _axes(node, given.ndim)
    if not axes or not given.size:
        return
    if node.op_type in _NORMS:
        square = float(np.max(np.mean(np.square(wide), axis=axes), initial=0.0))
        if square > LIMIT / ROOM:
            yield f"the mean square of what it takes reaches {square:.3g}"
        if node.op_type in _ROUNDED:
            spread = np.var(wide, axis=axes)
            least = attr_float(node, "epsilon", 1e-5)
            least += float(np.min(spread[spread > 0], initial=np.inf))
            if least < LOST:
                yield f"the variance of what it takes, and epsilon, come to {least:.3g}"
    elif node.op_type in _SQUARES:
        square = float(np.max(np.sum(np.square(wide), axis=axes), initial=0.0))
        if square > LIMIT / ROOM:
            yield f"its squares sum to {square:.3g}"
    elif node.op_type in _SUMS:
        total = float(np.max(np.sum(np.abs(wide), axis=axes), initial=0.0))
        if total > LIMIT / ROOM:
            yield f"what it sums comes to {total:.3g}"


def looks_inside(node: ir.Node) -> bool:
    """Whether :func:`inside` has anything to say of a node."""
    return node.op_type in _NORMS | _SUMS | _SQUARES


def _axes(node: ir.Node, rank: int) -> tuple[int, ...]:
    if node.op_type in ("InstanceNormalization", "GlobalAveragePool", "GroupNormalization"):
        return tuple(range(2, rank))
    if node.op_type in ("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"):
        first = attr_int(node, "axis", -1) % max(rank, 1)
        return tuple(range(first, rank))
    if node.op_type in _NORMS:
        return (rank - 1,) if rank else ()
    axes = axes_of(node)
    return tuple(x % rank for x in axes) if axes and rank else tuple(range(rank))
