"""What is added to the scores within windows: keys that are hidden, and places that are none."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from ._counting import unsqueezed

if TYPE_CHECKING:
    import numpy.typing as npt

    from graphfix.build import Builder
    from graphfix.model.shapes import Dim

    from ._attention_inputs import Term
    from ._window_mask import Cut
    from ._window_rows import Entry, Rows, Size
    from ._window_table import Axis

# Below these a floor is lost, or is no number: the mask may have been -inf.
_LOWEST = {ir.DataType.FLOAT: -1e9, ir.DataType.FLOAT16: -1e4}


@dataclass(frozen=True)
class Addend:
    """What is added to the scores of a query and a key in the same window.

    Attributes:
        cut: The windows.
        entry: A sequence of their length.
        batch: B.
        dtype: The type of the scores.
        rows: The sequences of the model.
        op: The builder.
    """

    cut: Cut
    entry: Entry
    batch: Dim
    dtype: ir.DataType
    rows: Rows
    op: Builder

    def build(self) -> ir.Value | None:
        """[B * n, 1, 1, W], once for all attentions with this mask; None if it is nothing."""
        cut = self.cut
        if cut.keys is None and not cut.rest and self.entry.missing == 0:
            return None
        number = self.op.view.numbering.of
        leaf = None if cut.keys is None else (number(cut.keys.leaf.value), cut.keys.seen)
        added = tuple((number(term.value), term.factor) for term in cut.rest)
        sizes = (str(self.batch), str(self.entry.dims[-2]), cut.width)
        key = ("windows", sizes, leaf, added, self._low, self.dtype)
        sources = [term.value for term in cut.rest]
        if cut.keys is not None:
            sources.append(cut.keys.leaf.value)
        return self.op.once(key, self._made, self.entry.value, *sources)

    @property
    def _low(self) -> float:
        return max(self.cut.low, _LOWEST[self.dtype])

    def _made(self) -> ir.Value:
        parts = [self._windows(self._term(term), self._number(self._low)) for term in self.cut.rest]
        if self.cut.keys is not None or not parts:
            parts.append(self._hidden())
        return functools.reduce(self.op.Add, parts)

    def _hidden(self) -> ir.Value:
        """The floor where there is no key, or none that is seen, and 0 elsewhere."""
        op, length = self.op, self.entry.dims[-2]
        if self.cut.keys is None and isinstance(self.batch, int) and isinstance(length, int):
            count = -(-length // self.cut.width) * self.cut.width
            row = np.where(np.arange(count) < length, 0, self._low)
            every = np.tile(row, self.batch).reshape(-1, 1, 1, self.cut.width)
            return op.constant(every.astype(self.dtype.numpy()))
        seen = self._seen()
        if op.view.opset(op.site) < 13:  # where Pad does not take booleans
            whole = op.Cast(seen, to=ir.DataType.INT32)
            seen = op.Cast(self._windows(whole, np.array(0, np.int32)), to=ir.DataType.BOOL)
        else:
            seen = self._windows(seen, np.array(False))
        return op.Mul(op.Cast(op.Not(seen), to=self.dtype), self._number(self._low))

    def _seen(self) -> ir.Value:
        """Booleans [B, T], true where there is a key that is seen."""
        op, keys = self.op, self.cut.keys
        if keys is None:
            every = ir.tensor(np.array([True]))
            return op.make("ConstantOfShape", self._shape(), value=every)
        value = self._as_rank_2(keys.leaf.value, keys.leaf.axes)
        return value if keys.seen else op.Not(value)

    def _term(self, term: Term) -> ir.Value:
        """A term that is the same for each query, as [B, T]."""
        dims = self.op.view.shapes.dims(term.value) or ()
        last = len(dims) - 1
        axes: list[Axis] = [
            "one" if dim == 1 else "key" if i == last else "other" for i, dim in enumerate(dims)
        ]
        value = self._as_rank_2(term.value, tuple(axes))
        return value if term.factor == 1 else self.op.Mul(value, self._number(term.factor))

    def _as_rank_2(self, value: ir.Value, axes: tuple[Axis, ...]) -> ir.Value:
        """[B, T] of a tensor that has other axes of 1, or lacks that of batch or keys."""
        op = self.op
        opset = op.view.opset(op.site)
        gone = [i for i, axis in enumerate(axes) if axis == "one"]
        if gone and opset < 13:
            value = op.Squeeze(value, axes=gone)
        elif gone:
            value = op.Squeeze(value, np.array(gone, np.int64))
        if len(axes) - len(gone) == 2:
            return value
        value = unsqueezed(value, (1,) if "other" in axes else (0,), opset, op)
        return value if self.batch == 1 and "key" in axes else op.Expand(value, self._shape())

    def _shape(self) -> ir.Value | npt.NDArray[np.int64]:
        """[B, T] as a shape."""
        batch: Size = (
            np.array([self.batch], np.int64)
            if isinstance(self.batch, int)
            else self.rows.size(self.entry, 0)
        )
        length = self.rows.length(self.entry)
        if isinstance(batch, np.ndarray) and isinstance(length, np.ndarray):
            return np.array([*batch, *length], np.int64)
        return self.op.Concat(batch, length, axis=0)

    def _windows(self, value: ir.Value, filler: npt.NDArray[np.generic]) -> ir.Value:
        """[B * n, 1, 1, W] of [B, T], filled up."""
        op, zeros = self.op, np.zeros(3, np.int64)
        if self.entry.missing is not None and self.entry.missing > 0:
            value = op.Pad(value, np.array([*zeros, self.entry.missing], np.int64), filler)
        elif self.entry.missing is None:
            amounts = op.Concat(zeros, self.rows.missing(self.entry), axis=0)
            value = op.Pad(value, amounts, filler)
        return op.Reshape(value, np.array([-1, 1, 1, self.cut.width], np.int64))

    def _number(self, number: float) -> npt.NDArray[np.generic]:
        return np.array(number, self.dtype.numpy())
