"""What is known of a tensor of a padded run: its axes, what is valid, and what its tail holds.

Run a model on a clip alone, and on the same clip in a longer container. A tensor of the second run
*keeps* the first when its valid part, an index below the valid length on every axis that carries
time, holds the same numbers. What lies beyond is the tail, and :class:`Tail` says what is there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx_ir as ir
import sympy

from graphfix.facts.symbolic.expressions import dim_of, evaluator, expr_of

_SQUARABLE = 1e18
Sign = Literal[0, 1, 2]
"""2 of what is above 0 everywhere, 1 of what is nowhere below, 0 of what may be."""
LOW = -1e3
"""What a mask of the model adds to scores that are to weigh nothing is this or less."""


@dataclass(frozen=True)
class Time:
    """A factor of an axis that carries time: the first ``size(ilens)`` of its indices are valid.

    Attributes:
        size: How long it is, an expression in the symbol of the padded dim.
        turned: Whether it runs backwards, so that the *last* ``size(ilens)`` indices are valid.
    """

    size: sympy.Expr
    turned: bool = False


@dataclass(frozen=True)
class Rows:
    """A factor of an axis that carries the batch: each row has a valid length of its own."""

    size: sympy.Expr


@dataclass(frozen=True)
class Other:
    """A factor of an axis that has nothing to do with time."""

    size: sympy.Expr


@dataclass(frozen=True)
class Shifted:
    """A factor whose entry k is entry ``k + first`` of a sequence that no length changes.

    Attributes:
        size: How long it is.
        first: Where it begins, an expression in the symbol of the padded dim.
        finite: Whether entries that only a longer clip reads are known to be numbers.
    """

    size: sympy.Expr
    first: sympy.Expr
    finite: bool = True


Atom = Time | Rows | Other | Shifted
Axis = tuple[Atom, ...]
"""The factors of an axis, outermost first; () is an axis of size 1."""


@dataclass(frozen=True)
class Tail:
    """What lies beyond the valid length of one axis.

    Attributes:
        kind: A known number, the zero point of a quantization, copies of the last valid slice,
            scores that a mask of the model hides, garbage that is finite, or anything, NaN
            included.
        value: The number, for ``number``; for the others the least that may be in it, where that
            is lower than any score: -inf for scores that two masks hide, whose sum may be.
    """

    kind: Literal["number", "point", "last", "low", "finite", "any"]
    value: float = 0.0

    @property
    def is_finite(self) -> bool:
        """Whether times 0 it is 0, and what is made of it: the square of 1e20 is no float32."""
        return self.kind != "any" and abs(self.value) < _SQUARABLE

    @property
    def is_bounded(self) -> bool:
        """Whether it is finite, if perhaps as low as numbers get, as masks are."""
        return self.kind != "any" and -math.inf < self.value < _SQUARABLE

    @property
    def recomputed(self) -> Tail:
        """What is known of it once it was computed with."""
        return FINITE if self.is_finite else ANY

    @property
    def is_zero(self) -> bool:
        """Whether it adds nothing to a sum."""
        return self.kind == "number" and self.value == 0

    def is_below(self, edge: float) -> bool:
        """Whether it is a number at or below ``edge``."""
        return self.kind == "number" and self.value <= edge


ZERO = Tail("number", 0.0)
ONE = Tail("number", 1.0)
LAST = Tail("last")
HIDDEN = Tail("low")
FINITE = Tail("finite")
WILD = Tail("finite", -3.4e38)
ANY = Tail("any")


@dataclass(frozen=True)
class State:
    """What is known of one tensor.

    Attributes:
        axes: Its axes; None if the rank is unknown, which only a tensor without time may be.
        tails: For each axis that carries time, what lies beyond; None for the others.
        fixed: Whether it is made of constants and of sizes that padding does not change.
        physical: Whether it is computed from the size of something padded: a length that counts
            the padding in.
        sign: 2 if every element is above 0, 1 if none is below, 0 if nothing is known.
        fill: The number that every element is, if there is one.
        inside: The number that every valid element is, if there is one: a mask is 1 there.
        point: The zero point, where the tensor is quantized.
        steps: (start, step), if along its only axis it holds start, start + step, ...
        stride: The padded size E, if it holds row * E, or row * E + position: an index into the
            axes [B, E] taken as one.
        length: The valid length that its rows hold, as an expression like those of the axes.
        moving: Whether relative positions are on the way to their places in it, or indices that
            put them there: see :mod:`graphfix.lengths.cell_moves`.
        places: The boolean tensor whose True places it lists, as NonZero does.
    """

    axes: tuple[Axis, ...] | None
    tails: tuple[Tail | None, ...] = ()
    fixed: bool = False
    physical: bool = False
    sign: Sign = 0
    fill: float | None = None
    inside: float | None = None
    point: ir.Value | None = None
    steps: tuple[int, int] | None = None
    stride: sympy.Expr | None = None
    length: sympy.Expr | None = None
    moving: bool = False
    places: State | None = None

    @property
    def timed(self) -> tuple[int, ...]:
        """The axes that carry time."""
        return tuple(i for i, tail in enumerate(self.tails) if tail is not None)

    @property
    def shifted(self) -> tuple[int, ...]:
        """The axes whose entries are elsewhere at another length."""
        axes = self.axes or ()
        return tuple(i for i, x in enumerate(axes) if any(isinstance(y, Shifted) for y in x))

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return len(self.axes or ())

    def at(self, axis: int) -> Axis:
        """The factors of an axis."""
        return () if self.axes is None else self.axes[axis]

    def size(self, axis: int) -> sympy.Expr:
        """How long an axis is, the padding counted in."""
        return size_of(self.at(axis))

    def tail(self, axis: int) -> Tail:
        """What lies beyond the valid length of an axis that carries time."""
        tail = self.tails[axis]
        if tail is None:
            raise ValueError(f"axis {axis} carries no time")
        return tail

    def with_tail(self, axis: int, tail: Tail) -> State:
        """The same with another tail on one axis; what it says of all elements is adjusted."""
        tails = (*self.tails[:axis], tail, *self.tails[axis + 1 :])
        fill, sign = self.fill, self.sign
        if tail.kind == "number":
            fill, sign = fill if tail.value == fill else None, min(sign, sign_in(tail.value))
        elif tail.kind == "low":
            sign = 0
        return replace(self, tails=tails, sign=sign, fill=fill, inside=self.level)

    def with_axis(self, axis: int, new: Axis, tail: Tail | None) -> State:
        """The same with another axis, and another tail of it."""
        axes = self.axes or ()
        axes = (*axes[:axis], new, *axes[axis + 1 :])
        tails = (*self.tails[:axis], tail, *self.tails[axis + 1 :])
        return replace(self, axes=axes, tails=tails, steps=None, length=None)

    def placed(self, places: Sequence[int | None]) -> State:
        """The same with its axes at other places; None is a new axis of size 1."""
        axes = tuple(() if i is None else self.at(i) for i in places)
        tails = tuple(None if i is None else self.tails[i] for i in places)
        return replace(self, axes=axes, tails=tails)

    def recomputed(self, *, zeros: bool = False, finite: bool = True) -> tuple[Tail | None, ...]:
        """Its tails once it was computed with.

        Args:
            zeros: Whether a zero stays one.
            finite: Whether what it is computed with is finite.
        """
        return tuple(
            x if x is None or (zeros and x.is_zero) else x.recomputed if finite else ANY
            for x in self.tails
        )

    def of_others(self, tails: tuple[Tail | None, ...], sign: Sign) -> State:
        """The same axes with other numbers on them, of which neither fill nor steps are known."""
        return replace(
            self, tails=tails, sign=sign, fill=None, inside=None, steps=None, length=None
        )

    def repeated(self, unless: Tail) -> Tail:
        """What lies along an axis that repeats it: its one number, ``unless`` there is none."""
        return unless if self.fill is None else Tail("number", self.fill)

    @property
    def level(self) -> float | None:
        """The number that every valid element is, if there is one."""
        return self.inside if self.fill is None else self.fill

    @property
    def is_finite(self) -> bool:
        """Whether no tail may hold NaN or an infinity."""
        return all(x is None or x.is_finite for x in self.tails)

    @property
    def made(self) -> Tail:
        """What lies in the tail of numbers that are computed of any of its own."""
        return FINITE if self.is_finite else ANY

    @property
    def is_bounded(self) -> bool:
        """Whether every tail is finite, if perhaps as low as numbers get."""
        return all(x is None or x.is_bounded for x in self.tails)


def sign_in(number: float) -> Sign:
    """The sign of what is nothing but this number, or this at least."""
    return 2 if number > 0 else 1 if number == 0 else 0


def carries_time(axis: Axis) -> bool:
    """Whether an axis, or a factor of it, carries time."""
    return any(isinstance(x, Time) for x in axis)


def holds_rows(axis: Axis) -> bool:
    """Whether an axis is, or is partly, that of the batch."""
    return any(isinstance(x, Rows) for x in axis)


def time_of(axis: Axis) -> Time | None:
    """The time that an axis carries if it is nothing but that, and runs forwards."""
    return axis[0] if len(axis) == 1 and isinstance(axis[0], Time) and not axis[0].turned else None


def fixed_axis(size: sympy.Expr) -> Axis:
    """An axis of this size that has nothing to do with time."""
    return () if size == 1 else (Other(size),)


def size_of(axis: Axis) -> sympy.Expr:
    """How long an axis is."""
    return sympy.Mul(*(x.size for x in axis))


def size_expr(text: str) -> sympy.Expr:
    """A dim as an expression, in which equal sizes look the same.

    One that cannot be read is a symbol that no input has.
    """
    try:
        return expr_of(int(text) if text.isdigit() else ir.SymbolicDim(text))
    except ValueError:
        return sympy.Symbol(f"_{text}", integer=True, positive=True)


def same_size(a: sympy.Expr, b: sympy.Expr) -> bool:
    """Whether two sizes are equal for every size of the inputs, as far as either is a size."""
    if a == b or sympy.expand(a - b) == 0:
        return True
    if len(a.free_symbols | b.free_symbols) != 1 or a.free_symbols != b.free_symbols:
        return bool(sympy.simplify(a - b) == 0)
    return _same_in_trials(a, b)


_TRIED = np.arange(1, 4097)


@functools.lru_cache(maxsize=4096)
def _same_in_trials(a: sympy.Expr, b: sympy.Expr) -> bool:
    """Whether two sizes agree at 4096 sizes of an input, where both are at least 1.

    A size is made of quotients rounded down, minima and maxima: such expressions that agree over
    many periods agree for good.
    """
    first, second = map(_tried, (a, b))
    both = (first >= 1) & (second >= 1)
    return bool(both.any() and (first == second)[both].all())


@functools.lru_cache(maxsize=4096)
def never_shrinks(size: sympy.Expr) -> bool:
    """Whether a size of a longer clip is never less, as far as 4096 clips tell."""
    return len(size.free_symbols) != 1 or not (np.diff(_tried(size)) < 0).any()


@functools.lru_cache(maxsize=4096)
def never_changes(number: sympy.Expr) -> bool:
    """Whether a number is the same for a clip of any length, as far as 4096 clips tell."""
    if not number.free_symbols:
        return True
    return len(number.free_symbols) == 1 and not np.diff(_tried(number)).any()


def begins_in_front(start: sympy.Expr) -> bool:
    """Whether a start counts from the first entry, at least up to where a table ends."""
    if len(start.free_symbols) != 1:
        return bool(start.is_Integer and start >= 0)
    values = _tried(start)
    falls = not (np.diff(values) > 0).any()
    return bool(values[0] >= 0 and (falls or (values >= 0).all()))


def length_of(size: sympy.Expr, number: sympy.Expr) -> int | None:
    """The longest of 4096 clips at which a size is this number, if there is one."""
    if len(size.free_symbols) != 1 or not number.is_Integer:
        return None
    found = np.flatnonzero(_tried(size) == int(number))
    return int(_TRIED[found[-1]]) if found.size else None


def _tried(size: sympy.Expr) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """A size at each of the lengths that are tried, of its only symbol."""
    return evaluator(dim_of(size))({str(next(iter(size.free_symbols))): _TRIED})


def with_tails(axes: Sequence[Axis], tail: Tail) -> State:
    """A tensor with these axes, and the same tail wherever one of them carries time."""
    return State(tuple(axes), tuple(tail if carries_time(x) else None for x in axes))


def timed(axes: Sequence[Axis], tails: Sequence[Tail | None], sign: Sign = 0) -> State:
    """A tensor with these axes, and tails where an axis carries time."""
    kept = [t if carries_time(a) else None for a, t in zip(axes, tails, strict=True)]
    return State(tuple(axes), tuple(kept), sign=sign)


def plain(axes: Sequence[Axis] | None, *, fixed: bool = False) -> State:
    """A tensor without time."""
    return State(None if axes is None else tuple(axes), (None,) * len(axes or ()), fixed=fixed)
