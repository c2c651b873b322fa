"""What is added to the scores within windows: a floor for each key that is hidden or is none."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.model.shapes import same

from .._attention.mha_inputs import as_rank_2

if TYPE_CHECKING:
    import numpy.typing as npt

    from graphfix.editing.builder import Builder
    from graphfix.model.shapes import Dim

    from .._attention.hiding_addend import KeyMask
    from .block_mask import Cut
    from .rows import Entry, Rows

# Below these a floor is lost, or is no number: the mask may have been -inf.
_LOWEST = {ir.DataType.FLOAT: -1e9, ir.DataType.FLOAT16: -1e4}


def addend_of(
    cut: Cut, entry: Entry, batch: Dim, dtype: ir.DataType, rows: Rows, op: Builder
) -> ir.Value | None:
    """[B * n, 1, 1, W], once for all attentions with this mask; None if no key is hidden.

    Args:
        cut: The windows.
        entry: A sequence of their length.
        batch: B.
        dtype: The type of the scores.
        rows: The sequences of the model.
        op: The builder.
    """
    if not cut.keys and entry.missing == 0:
        return None
    floor = np.array(max(cut.low, _LOWEST[dtype]), dtype.numpy())
    length = entry.dims[-2]

    def build() -> ir.Value:
        if not cut.keys and isinstance(batch, int) and isinstance(length, int):
            there = np.arange(-(-length // cut.width) * cut.width) < length
            row = np.where(there, np.zeros_like(floor), floor)
            return op.constant(np.tile(row, batch).reshape(-1, 1, 1, cut.width))
        shape = _shape(batch, entry, rows, op)
        seen = [_seen(mask, (batch, length), shape, op) for mask in cut.keys]
        if not seen:
            every = ir.tensor(np.array([True]))
            seen.append(op.make("ConstantOfShape", shape, value=every))
        windows = _in_windows(functools.reduce(op.And, seen), entry, rows, op)
        return op.Mul(op.Cast(op.Not(windows), to=dtype), floor)

    masks = tuple((op.view.numbering.of(x.bit.value), x.visible) for x in cut.keys)
    key = ("windows", str(batch), str(length), cut.width, masks, float(floor), dtype)
    return op.once(key, build, entry.value, *(mask.bit.value for mask in cut.keys))


def _seen(
    mask: KeyMask, wanted: tuple[Dim, Dim], shape: ir.Value | npt.NDArray[np.int64], op: Builder
) -> ir.Value:
    """Booleans [B, T], true where a mask shows a key."""
    value, shapes = mask.bit.value, op.view.shapes
    if shapes.dtype(value) != ir.DataType.BOOL:
        value = op.Cast(value, to=ir.DataType.BOOL)
    value = as_rank_2(value if mask.visible else op.Not(value), mask.bit.axes, op)
    known = [dim for dim in shapes.dims(mask.bit.value) or () if dim != 1]
    whole = [dim for dim in wanted if dim != 1]
    alike = len(known) == len(whole) and all(map(same, known, whole))
    return value if alike else op.Expand(value, shape)


def _shape(batch: Dim, entry: Entry, rows: Rows, op: Builder) -> ir.Value | npt.NDArray[np.int64]:
    """[B, T] as a shape."""
    first = np.array([batch], np.int64) if isinstance(batch, int) else rows.size(entry, 0)
    length = rows.length(entry)
    if isinstance(first, np.ndarray) and isinstance(length, np.ndarray):
        return np.concatenate([first, length])
    return op.Concat(first, length, axis=0)


def _in_windows(seen: ir.Value, entry: Entry, rows: Rows, op: Builder) -> ir.Value:
    """[B * n, 1, 1, W] of [B, T]; what the last window lacks is not seen."""
    if entry.missing != 0:
        missing, zeros = rows.missing(entry), np.zeros(3, np.int64)
        amounts = (
            np.concatenate([zeros, missing])
            if isinstance(missing, np.ndarray)
            else op.Concat(zeros, missing, axis=0)
        )
        seen = op.Pad(seen, amounts, np.array(False))
    return op.Reshape(seen, np.array([-1, 1, 1, entry.width], np.int64))
