"""What operators make of tables of counts: sums, divisions by constants, comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.model.values import attr_int

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Slopes = tuple[Fraction, Fraction]
STILL: Slopes = (Fraction(0), Fraction(0))
# In float16 counts are exact up to 2,048 only.
COUNTS = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT, ir.DataType.DOUBLE)
_COMPARES = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
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


class Sums:
    """What operators make of tables.

    Args:
        period: The period.
        size: How many places the tables have.
        length: How long the sequence is, if that is known: then nothing need repeat itself.

    Attributes:
        apart: How many periods apart everything is settled.
        cuts: Whether anything was divided or rounded: windows may be cut there.
    """

    def __init__(self, period: int, size: int, length: int | None) -> None:
        self.period = period
        self.size = size
        self.length = length
        self.apart = 0
        self.cuts = False

    def computed(self, node: ir.Node, x: Sequence[Table]) -> Table:
        """What a node makes of its inputs; CannotError or LongerError."""
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
        if to not in COUNTS and not x.still and self.length is None:
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
