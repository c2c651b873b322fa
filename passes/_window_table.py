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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphfix.model.view import View

Axis = Literal["query", "key", "other", "one"]
Slopes = tuple[Fraction, Fraction]
STILL: Slopes = (Fraction(0), Fraction(0))

# A table of 6,000 x 6,000 booleans takes 36 MB.
LARGEST = 6000
# In float16 counts are exact up to 2,048 only.
_COUNTS = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT, ir.DataType.DOUBLE)
_FAR = 200
_LEAVES = 2
_COMPARES = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
_REGROUPS = ("Reshape", "Unsqueeze", "Squeeze", "Flatten")
_POINTWISE: dict[str, Callable[..., NDArray[np.generic]]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Not": np.logical_not,
    "Where": np.where,
    "Neg": np.negative,
    "Abs": np.abs,
    "Min": np.minimum,
    "Max": np.maximum,
    "Div": np.divide,
}
_COMPARISONS: dict[str, Callable[..., NDArray[np.generic]]] = {
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Equal": np.equal,
}


class CannotError(Exception):
    """What a tensor holds is not seen; with the reason, if windows are cut there."""


class LongerError(Exception):
    """The period is too short by this factor."""

    def __init__(self, factor: int) -> None:
        super().__init__(factor)
        self.factor = factor


@dataclass(frozen=True)
class Table:
    """What a tensor holds for each query, key and state of the leaves.

    Attributes:
        array: Of rank 3, with 1 along what does not matter.
        slopes: By how much it grows from one period of queries, and of keys, to the next; None if
            it is the size of such a number, which stays the same where both move on.
        rate: By how much that grows from one period of distance to the next, to both sides.
    """

    array: NDArray[np.generic]
    slopes: Slopes | None = STILL
    rate: Fraction = Fraction(0)

    @property
    def still(self) -> bool:
        """Whether it depends on the places within their periods and on which are far apart."""
        return self.slopes == STILL


@dataclass(frozen=True)
class Leaf:
    """A boolean that no place of a query decides about.

    Attributes:
        value: The tensor.
        axes: What its axes are.
    """

    value: ir.Value
    axes: tuple[Axis, ...]


class Tables:
    """The tables of a mask and of all that it is computed from.

    Args:
        view: The model around it.
        period: The period.
        blocks: How many periods the places may be apart.
        length: How long the sequence is, if that is known: then nothing need repeat itself.
    """

    def __init__(self, view: View, period: int, blocks: int, length: int | None) -> None:
        self._view = view
        self.period = period
        self.length = length
        self.size = period * (blocks + 1) if length is None else length
        self.leaves: list[Leaf] = []
        self.apart = 0
        self.cuts = False
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
        made = self._computed(node, given)
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
        if ir.DataType.from_numpy(dtype) not in _COUNTS:
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

    def _computed(self, node: ir.Node, x: Sequence[Table]) -> Table:
        kind = node.op_type
        if kind in _COMPARES:
            return self._compared(kind, x[0], x[1])
        if kind == "Cast":
            return self._cast(ir.DataType(attr_int(node, "to", 0)), x[0])
        if kind in ("Floor", "Ceil"):
            return self._rounded(kind, x[0])
        if kind == "Mod":
            return self._remainder(node, x[0], x[1])
        if kind == "Div" and x[0].array.dtype.kind in "iu":
            return self._quotient(x[0], x[1])
        function = _POINTWISE.get(kind)
        if function is None or (kind in ("Min", "Max") and len(x) != 2):
            raise CannotError
        with np.errstate(all="ignore"):
            array = function(*(table.array for table in x))
        if self.length is not None or all(table.still for table in x):
            return Table(array)
        if kind == "Abs":
            slopes = x[0].slopes
            if slopes is None or slopes[0] != -slopes[1]:
                raise CannotError
            return Table(array, None, abs(slopes[0]))
        return Table(array, _slopes(kind, x))

    def _cast(self, to: ir.DataType, x: Table) -> Table:
        array = x.array
        if to == ir.DataType.BOOL:
            if not x.still and self.length is None:
                raise CannotError
            return Table(array != 0)
        if to.is_integer() and array.dtype.kind == "f":
            x = self._rounded("Trunc", x)
        if to not in _COUNTS and not x.still and self.length is None:
            raise CannotError
        return Table(x.array.astype(to.numpy()), x.slopes)

    def _rounded(self, kind: str, x: Table) -> Table:
        function = {"Floor": np.floor, "Ceil": np.ceil, "Trunc": np.trunc}[kind]
        if self.length is None:
            _require_whole(_even(x))
            if kind == "Trunc":
                _require_counts(x)
        if not x.still:
            self.cuts = True
        return Table(function(x.array.astype(np.float64)), x.slopes)

    def _quotient(self, x: Table, by: Table) -> Table:
        """Integer division, which ONNX cuts towards zero."""
        width = self._width(x, by)
        slopes = _scaled(_even(x), Fraction(1, width))
        if self.length is None:
            _require_counts(x)
            _require_whole(slopes)
        array = np.trunc(x.array.astype(np.float64) / width).astype(x.array.dtype)
        return Table(array, slopes)

    def _remainder(self, node: ir.Node, x: Table, by: Table) -> Table:
        width = self._width(x, by)
        if self.length is None:
            if attr_int(node, "fmod", 0):
                _require_counts(x)
            _require_whole(_scaled(_even(x), Fraction(1, width)))
        function = np.fmod if attr_int(node, "fmod", 0) else np.mod
        return Table(function(x.array, np.asarray(width, x.array.dtype)))

    def _width(self, x: Table, by: Table) -> int:
        """The one whole number that counts are divided by."""
        number = by.array.reshape(-1)[0].item() if by.array.size == 1 else 0
        if number != int(number) or number < 1:
            raise CannotError
        if not x.still:
            self.cuts = True
        return int(number)

    def _compared(self, kind: str, a: Table, b: Table) -> Table:
        if a.array.dtype.kind == "b" or b.array.dtype.kind == "b":
            result = _COMPARISONS[kind](a.array, b.array)
        else:
            result = _COMPARISONS[kind](a.array.astype(np.float64), b.array.astype(np.float64))
        if self.length is not None or (a.still and b.still):
            return Table(result)
        if a.slopes is None or b.slopes is None:
            size, other = (a, b) if a.slopes is None else (b, a)
            if not other.still:
                raise CannotError
            self._settles_after(self._most(size) + self._most(other), size.rate)
            return Table(result)
        slopes = (a.slopes[0] - b.slopes[0], a.slopes[1] - b.slopes[1])
        base = self._first(a) - self._first(b)
        if slopes[0] == -slopes[1]:
            self._settles_after(float(np.abs(base).max()), abs(slopes[0]))
            return Table(result)
        if not (min(slopes) >= 0 or max(slopes) <= 0):
            raise CannotError
        # It only grows, or only falls: what is decided at the start stays so.
        up = min(slopes) >= 0
        nearest = float(base.min() if up else -base.max())
        stays = ("GreaterOrEqual", "Less") if up else ("LessOrEqual", "Greater")
        if nearest < 0 or (nearest == 0 and kind not in stays):
            raise CannotError
        return Table(result[:1, :1, :1])

    def _settles_after(self, most: float, rate: Fraction) -> None:
        """Note how many periods apart a number of this size, growing so, has its final sign."""
        if rate:
            self.apart = max(self.apart, int(most // float(rate)) + 1)

    def _first(self, x: Table) -> NDArray[np.float64]:
        """What it holds in the first period of queries and of keys."""
        return x.array[: self.period, : self.period].astype(np.float64)

    def _most(self, x: Table) -> float:
        return float(np.abs(self._first(x)).max())


def _slopes(kind: str, x: Sequence[Table]) -> Slopes:
    """How what is computed grows; CannotError if it does not grow evenly."""
    if kind in ("Add", "Sub"):
        a, b = x[0].slopes, x[1].slopes
        if a is None or b is None:
            raise CannotError
        sign = 1 if kind == "Add" else -1
        return a[0] + sign * b[0], a[1] + sign * b[1]
    if kind == "Neg":
        return _scaled(_even(x[0]), Fraction(-1))
    if kind in ("Mul", "Div"):
        for one, other in (x, x[::-1]) if kind == "Mul" else (x,):
            if other.array.size == 1 and other.still:
                number = other.array.reshape(-1)[0].item()
                # 1 / 15 is no float: a product with it drifts away from the whole numbers.
                if number == 0 or number != int(number):
                    raise CannotError
                by = Fraction(int(number))
                return _scaled(_even(one), by if kind == "Mul" else 1 / by)
    raise CannotError


def _even(x: Table) -> Slopes:
    if x.slopes is None:
        raise CannotError
    return x.slopes


def _scaled(slopes: Slopes, by: Fraction) -> Slopes:
    return slopes[0] * by, slopes[1] * by


def _require_whole(slopes: Sequence[Fraction]) -> None:
    for slope in slopes:
        if slope.denominator != 1:
            raise LongerError(slope.denominator)


def _require_counts(x: Table) -> None:
    """Cutting towards zero is rounding down, from 0 on."""
    if x.array.min() < 0 or x.slopes is None or min(x.slopes) < 0:
        raise CannotError
