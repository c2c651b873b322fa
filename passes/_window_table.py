"""What a mask is for each pair of places, found once for sequences of every length.

A mask that is computed from the places of query and key alone, by sums, divisions by constants and
comparisons, repeats itself: there is a period L so that at (i + p * L, j + q * L) each number on
the way is that at (i, j) plus a * p + b * q, and a comparison of two such numbers is settled by its
sign where p and q are far apart. So a table of a few periods holds the mask of every length.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx_ir as ir

from graphfix.model.shapes import same
from graphfix.model.values import (
    attr_int,
    attr_ints,
    axes_of,
    const_of,
    filler_of,
    is_op,
    scalar_of,
)

from ._window_sums import COUNTS, CannotError, Sums, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphfix.model.view import View

Axis = Literal["query", "key", "other", "one"]
# A table of 6,000 x 6,000 booleans takes 36 MB.
LARGEST = 6000
_FAR = 200
_LEAVES = 2
_REGROUPS = ("Reshape", "Unsqueeze", "Squeeze", "Flatten")


@dataclass(frozen=True)
class Leaf:
    """A boolean that no place of a query decides about.

    Attributes:
        value: The tensor.
        axes: What its axes are.
    """

    value: ir.Value
    axes: tuple[Axis, ...]


class Tables(Sums):
    """The tables of a mask and of all that it is computed from.

    Args:
        view: The model around it.
        period: The period.
        blocks: How many periods the places may be apart.
        length: How long the sequence is, if that is known: then nothing need repeat itself.
    """

    def __init__(self, view: View, period: int, blocks: int, length: int | None) -> None:
        super().__init__(period, period * (blocks + 1) if length is None else length, length)
        self._view = view
        self.leaves: list[Leaf] = []
        self._known: dict[tuple[ir.Value, tuple[Axis, ...]], Table] = {}

    def of(self, value: ir.Value, axes: tuple[Axis, ...], depth: int = 0) -> Table:
        """What ``value`` holds, whose axes are ``axes``; CannotError or LongerError."""
        found = self._known.get((value, axes))
        if found is None:
            try:
                found = self._made(value, axes, depth)
            except CannotError as error:
                if "query" in axes or not self._is_boolean(value) or str(error):
                    raise
                found = self._leaf(Leaf(value, axes))
            self._known[value, axes] = found
        return found

    def _is_boolean(self, value: ir.Value) -> bool:
        return self._view.shapes.dtype(value) == ir.DataType.BOOL

    def _leaf(self, leaf: Leaf) -> Table:
        numbers = [self._view.numbering.of(x.value) for x in self.leaves]
        number = self._view.numbering.of(leaf.value)
        if number not in numbers:
            if len(self.leaves) == _LEAVES:
                raise CannotError
            self.leaves.append(leaf)
            numbers.append(number)
        states = np.arange(2**_LEAVES) >> numbers.index(number) & 1
        return Table(states.astype(bool).reshape(1, 1, -1))

    def _made(self, value: ir.Value, axes: tuple[Axis, ...], depth: int) -> Table:
        node = value.producer()
        array = const_of(value, limit=LARGEST * LARGEST)
        if array is not None and array.dtype.kind in "biuf":
            return self._constant(array, axes)
        if node is None or depth > _FAR or not is_op(node, node.op_type):
            raise CannotError
        if is_op(node, "Range"):
            return self._range(node, axes)
        if is_op(node, "CumSum"):
            return self._counted(node, axes)
        if is_op(node, "ConstantOfShape"):
            filler = filler_of(node)
            if filler is None:
                raise CannotError
            return Table(filler.reshape(1, 1, 1))
        source = node.inputs[0] if node.inputs else None
        if source is None:
            raise CannotError
        if is_op(node, "Transpose"):
            perm = attr_ints(node, "perm") or tuple(reversed(range(len(axes))))
            before: list[Axis] = ["one"] * len(axes)
            for axis, place in zip(axes, perm, strict=True):
                before[place] = axis
            return self.of(source, tuple(before), depth + 1)
        if is_op(node, *_REGROUPS):
            return self.of(source, self._regrouped(node, axes), depth + 1)
        if is_op(node, "Identity", "Expand"):
            return self.of(source, self._aligned(source, value, axes), depth + 1)
        inputs = [x for x in node.inputs if x is not None]
        given = [self.of(x, self._aligned(x, value, axes), depth + 1) for x in inputs]
        made = self.computed(node, given)
        if made.array.dtype.kind == "f" and np.isnan(made.array).any():
            raise CannotError
        return made

    def _constant(self, array: NDArray[np.generic], axes: tuple[Axis, ...]) -> Table:
        if array.size == 1:
            return Table(array.reshape(1, 1, 1))
        if self.length is None or any(
            size > 1 and axis not in ("query", "key")
            for size, axis in zip(array.shape, axes, strict=True)
        ):
            raise CannotError
        return Table(array.reshape([*self._square(axes), 1]))

    def _square(self, axes: Sequence[Axis]) -> tuple[int, int]:
        return (self.size if "query" in axes else 1, self.size if "key" in axes else 1)

    def _places(self, axis: Axis, start: int, step: int, dtype: np.dtype[np.generic]) -> Table:
        if ir.DataType.from_numpy(dtype) not in COUNTS:
            raise CannotError
        numbers = (start + step * np.arange(self.size)).astype(dtype)
        slope = Fraction(step * self.period)
        if axis == "query":
            return Table(numbers.reshape(-1, 1, 1), (slope, Fraction(0)))
        if axis == "key":
            return Table(numbers.reshape(1, -1, 1), (Fraction(0), slope))
        raise CannotError

    def _range(self, node: ir.Node, axes: tuple[Axis, ...]) -> Table:
        start, step = scalar_of(node.inputs[0]), scalar_of(node.inputs[2])
        if len(axes) != 1 or start is None or step is None or start != int(start) or step < 1:
            raise CannotError
        if step != int(step):
            raise CannotError
        dtype = self._view.shapes.dtype(node.outputs[0]) or ir.DataType.INT64
        return self._places(axes[0], int(start), int(step), dtype.numpy())

    def _counted(self, node: ir.Node, axes: tuple[Axis, ...]) -> Table:
        """A CumSum of ones: what the pass cumsum-index makes of a Range."""
        axis, ones = scalar_of(node.inputs[1]), node.inputs[0]
        made = ones.producer() if ones is not None else None
        filler = filler_of(made) if is_op(made, "ConstantOfShape") else None
        number = scalar_of(ones) if filler is None else filler.reshape(-1)[0].item()
        if number != 1 or axis is None or attr_int(node, "reverse", 0):
            raise CannotError
        dtype = self._view.shapes.dtype(node.outputs[0]) or ir.DataType.INT64
        first = 0 if attr_int(node, "exclusive", 0) else 1
        return self._places(axes[int(axis)], first, 1, dtype.numpy())

    def _regrouped(self, node: ir.Node, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """The axes before a Reshape that only brings or takes axes of 1."""
        before = self._view.shapes.dims(node.inputs[0])
        after = self._view.shapes.dims(node.outputs[0])
        if before is None or after is None or len(after) != len(axes):
            raise CannotError
        if is_op(node, "Unsqueeze") and (gone := axes_of(node)) is not None:
            new = {axis % len(after) for axis in gone}
            return tuple(axis for i, axis in enumerate(axes) if i not in new)
        rest = [(dim, axis) for dim, axis in zip(after, axes, strict=True) if dim != 1]
        found: list[Axis] = []
        for dim in before:
            if dim == 1:
                found.append("one")
            elif rest and same(rest[0][0], dim):
                found.append(rest.pop(0)[1])
            else:
                raise CannotError
        if rest:
            raise CannotError
        return tuple(found)

    def _aligned(
        self, source: ir.Value, value: ir.Value, axes: tuple[Axis, ...]
    ) -> tuple[Axis, ...]:
        """The axes of an operand that is broadcast to a tensor with ``axes``."""
        mine, theirs = self._view.shapes.dims(source), self._view.shapes.dims(value)
        if mine is None or theirs is None or len(mine) > len(axes) or len(theirs) != len(axes):
            raise CannotError
        skipped = len(axes) - len(mine)
        found: list[Axis] = []
        for dim, whole, axis in zip(mine, theirs[skipped:], axes[skipped:], strict=True):
            if dim != 1 and not same(dim, whole):
                raise CannotError
            found.append("one" if dim == 1 else axis)
        return tuple(found)
