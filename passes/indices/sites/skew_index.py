"""Indices for GatherElements: how far apart two positions are, made once for all layers."""

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.symbolic.expressions import Dim, key_of
from graphfix.lengths.dim_nodes import counting, size_of

from ...common.reshape_targets import with_axes


class Positions:
    """The positions 0 to T - 1 of the rows of a tensor, and what is made of them.

    All that is made for tensors of the same sizes is made once.

    Args:
        like: A tensor [.., T, K].
        dims: Its dims; only the last need not be known.
        op: The builder.
    """

    def __init__(self, like: ir.Value, dims: Sequence[Dim], op: Builder) -> None:
        self._like, self._dims, self._op = like, dims, op
        self._key = key_of(self._dims[-2])

    def length(self) -> ir.Value:
        """T, [1]."""
        return self._once("length", lambda: size_of(self._like, len(self._dims) - 2, self._op))

    def across(self) -> ir.Value:
        """``j``, [T]."""
        return self._once("across", lambda: counting(self.length(), self._op))

    def down(self) -> ir.Value:
        """``i``, [T, 1]."""
        return self._once("down", lambda: with_axes("Unsqueeze", self.across(), (1,), self._op))

    def apart(self, turn: int) -> ir.Value:
        """``turn * i + j``, [T, T]."""
        combine = self._op.Sub if turn < 0 else self._op.Add
        return self._once(("apart", turn), lambda: combine(self.across(), self.down()))

    def spread(self, key: Hashable, build: Callable[[], ir.Value]) -> ir.Value:
        """What ``build`` makes, [T, K], for each matrix of the tensor: [.., T, K]."""
        lead = self._dims[:-2]
        if all(x == 1 for x in lead):
            ones = tuple(range(len(lead)))
            return self._once(key, lambda: with_axes("Unsqueeze", build(), ones, self._op))
        sizes = tuple(map(key_of, lead))
        return self._once(
            (key, *sizes), lambda: self._op.Expand(build(), self._once(sizes, self._shape))
        )

    def _shape(self) -> ir.Value:
        """``[.., 1, 1]``."""
        sizes, count = self._op.Shape(self._like), np.array([len(self._dims) - 2], np.int64)
        first = np.zeros(1, np.int64)
        lead = self._op.Slice(sizes, first, count, first)
        return self._op.Concat(lead, np.ones(2, np.int64), axis=0)

    def _once(self, key: Hashable, build: Callable[[], ir.Value]) -> ir.Value:
        return self._op.once(("positions", self._key, key), build, self._like)
