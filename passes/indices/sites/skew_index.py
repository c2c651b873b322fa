"""Indices for GatherElements: distances of two positions, built once for all layers."""

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.symbolic.expressions import Dim, dim_key
from graphfix.lengths.dim_nodes import build_axis_size, build_ones

from ...common.reshape_targets import with_axes


class Positions:
    """The positions 0 to T - 1 of the rows of a tensor, and indices made of them.

    Tensors of the same sizes share all that is built.

    Args:
        like: A tensor [.., T, K].
        dims: Its dims; only the last one may be unknown.
        op: The builder.
    """

    def __init__(self, like: ir.Value, dims: Sequence[Dim], op: Builder) -> None:
        self._like, self._dims, self._op = like, dims, op
        self._key = dim_key(self._dims[-2])

    def row_count(self) -> ir.Value:
        """Build T, [1]."""
        return self._build_once(
            "length", lambda: build_axis_size(self._like, len(self._dims) - 2, self._op)
        )

    def column_index(self) -> ir.Value:
        """Build ``j``, [T]."""
        return self._build_once("across", self._count_rows)

    def row_index(self) -> ir.Value:
        """Build ``i``, [T, 1]."""
        return self._build_once(
            "down", lambda: with_axes("Unsqueeze", self.column_index(), (1,), self._op)
        )

    def rows_below(self) -> ir.Value:
        """Build ``T - 1 - i``, [T, 1]."""
        return self._build_once(
            "below", lambda: with_axes("Unsqueeze", self._count_rows(reverse=1), (1,), self._op)
        )

    def diagonal_index(self) -> ir.Value:
        """Build ``T - 1 - i + j``, [T, T]; T itself need not be copied to the device."""
        return self._build_once(
            "diagonal", lambda: self._op.Add(self.column_index(), self.rows_below())
        )

    def skewed_index(self, direction: int) -> ir.Value:
        """Build ``direction * i + j``, [T, T]."""
        combine = self._op.Sub if direction < 0 else self._op.Add
        return self._build_once(
            ("apart", direction), lambda: combine(self.column_index(), self.row_index())
        )

    def expand_to_batch(self, key: Hashable, build: Callable[[], ir.Value]) -> ir.Value:
        """Expand what ``build`` makes, [T, K], to each matrix of the tensor: [.., T, K]."""
        batch_dims = self._dims[:-2]
        if all(x == 1 for x in batch_dims):
            unit_axes = tuple(range(len(batch_dims)))
            return self._build_once(
                key, lambda: with_axes("Unsqueeze", build(), unit_axes, self._op)
            )
        sizes = tuple(map(dim_key, batch_dims))
        return self._build_once(
            (key, *sizes),
            lambda: self._op.Expand(build(), self._build_once(sizes, self._batch_shape)),
        )

    def _count_rows(self, **options: int) -> ir.Value:
        """Build 0 to T - 1 or, in reverse, T - 1 to 0, [T]."""
        ones = self._build_once("ones", lambda: build_ones(self.row_count(), self._op))
        return self._op.CumSum(ones, np.array(0, np.int64), exclusive=1, **options)

    def _batch_shape(self) -> ir.Value:
        """Build ``[.., 1, 1]``."""
        sizes, count = self._op.Shape(self._like), np.array([len(self._dims) - 2], np.int64)
        first = np.zeros(1, np.int64)
        lead = self._op.Slice(sizes, first, count, first)
        return self._op.Concat(lead, np.ones(2, np.int64), axis=0)

    def _build_once(self, key: Hashable, build: Callable[[], ir.Value]) -> ir.Value:
        return self._op.build_once(("positions", self._key, key), build, self._like)
