"""State of a tensor in a padded run: its axes, its valid part, and what its tail holds.

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

from graphfix.facts.symbolic.expressions import expr_of
from graphfix.facts.symbolic.trials import TRIAL_LENGTHS, size_at_trials

_SQUARABLE = 1e18
Sign = Literal[0, 1, 2]
"""2: all elements are above 0; 1: none is below 0; 0: unknown."""


@dataclass(frozen=True)
class TimeFactor:
    """Factor of an axis that carries time: its first ``size(ilens)`` indices are valid.

    Attributes:
        size: How long it is, an expression in the symbol of the padded dim.
        reversed: Whether it runs backwards, so that the *last* ``size(ilens)`` indices are valid.
    """

    size: sympy.Expr
    reversed: bool = False


@dataclass(frozen=True)
class BatchFactor:
    """Factor of an axis that carries the batch: each row has a valid length of its own."""

    size: sympy.Expr


@dataclass(frozen=True)
class OtherFactor:
    """Factor of an axis that has nothing to do with time."""

    size: sympy.Expr


@dataclass(frozen=True)
class ShiftedFactor:
    """Factor whose entry k is entry ``k + first`` of a sequence that no length changes.

    Attributes:
        size: How long it is.
        first: Where it begins, an expression in the symbol of the padded dim.
        finite: Whether entries that only a longer clip reads are known to be numbers.
    """

    size: sympy.Expr
    first: sympy.Expr
    finite: bool = True


Factor = TimeFactor | BatchFactor | OtherFactor | ShiftedFactor
Axis = tuple[Factor, ...]
"""The factors of an axis, outermost first; () is an axis of size 1."""


@dataclass(frozen=True)
class Tail:
    """Contents of a tensor beyond the valid length of one axis.

    Attributes:
        kind: ``number``, a known number; ``point``, the zero point of a quantization; ``last``,
            copies of the last valid slice; ``low``, scores that a mask of the model hides;
            ``finite``, garbage that is finite; ``any``, anything, NaN included.
        value: The number, for ``number``; for the others the least that may be in it, where that
            is lower than any score: -inf where the masks of two hidden scores add up, and, for
            ``any``, where a mask hides entries of other axes and nothing else is NaN or infinite.
    """

    kind: Literal["number", "point", "last", "low", "finite", "any"]
    value: float = 0.0

    @property
    def is_finite(self) -> bool:
        """Return whether it and its square are finite: that of 1e20 is not in float32."""
        return self.kind != "any" and abs(self.value) < _SQUARABLE

    @property
    def is_bounded(self) -> bool:
        """Return whether it is finite, though it may be as low as the masks of models."""
        return self.kind != "any" and -math.inf < self.value < _SQUARABLE

    @property
    def after_arithmetic(self) -> Tail:
        """Return the tail of a result computed with it: finite garbage, or anything."""
        return FINITE if self.is_finite else ANY

    @property
    def is_zero(self) -> bool:
        """Return whether it adds nothing to a sum."""
        return self.kind == "number" and self.value == 0

    def is_below(self, edge: float) -> bool:
        """Return whether it is a number at or below ``edge``."""
        return self.kind == "number" and self.value <= edge


ZERO = Tail("number", 0.0)
ONE = Tail("number", 1.0)
LAST = Tail("last")
HIDDEN = Tail("low")
FINITE = Tail("finite")
WILD = Tail("finite", -3.4e38)
ANY = Tail("any")
PARTLY_HIDDEN = Tail("any", -math.inf)
"""Finite wherever all other axes are valid; in their tails a mask may have put -inf."""


@dataclass(frozen=True)
class TensorState:
    """Facts about one tensor of a padded run.

    Attributes:
        axes: Its axes; None if the rank is unknown, which only a tensor without time may be.
        tails: For each axis that carries time, what lies beyond; None for the others.
        fixed: Whether it is made of constants and of sizes that padding does not change.
        counts_padding: Whether it is computed from the size of something padded, so that it is a
            length that counts the padding in.
        sign: 2 if every element is above 0, 1 if none is below, 0 if nothing is known.
        fill: The number that every element is, if there is one.
        valid_fill: The number that every valid element is, if there is one: a mask is 1 there.
        point: The zero point, where the tensor is quantized.
        steps: (start, step), if along its only axis it holds start, start + step, ...
        stride: The padded size E, if it holds row * E, or row * E + position: an index into the
            axes [B, E] taken as one.
        length: The valid length that its rows hold, as an expression like those of the axes.
        moving: Whether it holds relative positions on the way to their places, or indices that put
            them there: see :mod:`graphfix.lengths.relative_positions`.
        places: The boolean tensor whose True places it lists, as NonZero does.
        capped_at: A padded size, if it holds the lesser of that and of something that padding does
            not change: in the clip alone, the lesser of that and of the valid length.
    """

    axes: tuple[Axis, ...] | None
    tails: tuple[Tail | None, ...] = ()
    fixed: bool = False
    counts_padding: bool = False
    sign: Sign = 0
    fill: float | None = None
    valid_fill: float | None = None
    point: ir.Value | None = None
    steps: tuple[int, int] | None = None
    stride: sympy.Expr | None = None
    length: sympy.Expr | None = None
    moving: bool = False
    places: TensorState | None = None
    capped_at: sympy.Expr | None = None

    @property
    def time_axes(self) -> tuple[int, ...]:
        """Return the axes that carry time."""
        return tuple(i for i, tail in enumerate(self.tails) if tail is not None)

    @property
    def shifted_axes(self) -> tuple[int, ...]:
        """Return the axes whose entries move when the length changes."""
        axes = self.axes or ()
        return tuple(i for i, x in enumerate(axes) if any(isinstance(y, ShiftedFactor) for y in x))

    @property
    def rank(self) -> int:
        """Return the number of axes."""
        return len(self.axes or ())

    def factors_of(self, axis: int) -> Axis:
        """Return the factors of an axis."""
        return () if self.axes is None else self.axes[axis]

    def size_along(self, axis: int) -> sympy.Expr:
        """Return the size of an axis, padding included."""
        return size_of(self.factors_of(axis))

    def tail_along(self, axis: int) -> Tail:
        """Return the tail of an axis that carries time."""
        tail = self.tails[axis]
        if tail is None:
            raise ValueError(f"axis {axis} carries no time")
        return tail

    def with_tail(self, axis: int, tail: Tail) -> TensorState:
        """Replace the tail of one axis, and adjust the facts about all elements."""
        tails = (*self.tails[:axis], tail, *self.tails[axis + 1 :])
        fill, sign = self.fill, self.sign
        if tail.kind == "number":
            fill, sign = fill if tail.value == fill else None, min(sign, sign_of_number(tail.value))
        elif tail.kind == "low":
            sign = 0
        return replace(self, tails=tails, sign=sign, fill=fill, valid_fill=self.valid_value)

    def with_axis(self, axis: int, new: Axis, tail: Tail | None) -> TensorState:
        """Replace an axis and its tail."""
        axes = self.axes or ()
        axes = (*axes[:axis], new, *axes[axis + 1 :])
        tails = (*self.tails[:axis], tail, *self.tails[axis + 1 :])
        return replace(self, axes=axes, tails=tails, steps=None, length=None)

    def rearrange_axes(self, places: Sequence[int | None]) -> TensorState:
        """Put the axes at other places; None is a new axis of size 1."""
        axes = tuple(() if i is None else self.factors_of(i) for i in places)
        tails = tuple(None if i is None else self.tails[i] for i in places)
        return replace(self, axes=axes, tails=tails)

    def tails_after_arithmetic(
        self, *, zeros: bool = False, finite: bool = True
    ) -> tuple[Tail | None, ...]:
        """Return the tails of a result computed with it, element by element.

        Args:
            zeros: Whether a zero stays one.
            finite: Whether all other inputs are finite.
        """
        return tuple(
            x if x is None or (zeros and x.is_zero) else x.after_arithmetic if finite else ANY
            for x in self.tails
        )

    def with_other_numbers(self, tails: tuple[Tail | None, ...], sign: Sign) -> TensorState:
        """Replace tails and sign, and forget what is known of the numbers."""
        return replace(
            self, tails=tails, sign=sign, fill=None, valid_fill=None, steps=None, length=None
        )

    def tail_of_copies(self, unless: Tail) -> Tail:
        """Return the tail along an axis that repeats it: its one number, or ``unless``."""
        return unless if self.fill is None else Tail("number", self.fill)

    @property
    def valid_value(self) -> float | None:
        """Return the number that every valid element is, if there is one."""
        return self.valid_fill if self.fill is None else self.fill

    @property
    def is_finite(self) -> bool:
        """Return whether no tail may hold NaN or an infinity."""
        return all(x is None or x.is_finite for x in self.tails)

    @property
    def mixed_tail(self) -> Tail:
        """Return the tail of numbers that are computed from any of its elements."""
        return FINITE if self.is_finite else ANY

    @property
    def is_bounded(self) -> bool:
        """Return whether every tail is finite, though it may be as low as the masks of models."""
        return all(x is None or x.is_bounded for x in self.tails)


def sign_of_number(number: float) -> Sign:
    """Return the sign of a tensor that holds this number, or more."""
    return 2 if number > 0 else 1 if number == 0 else 0


def carries_time(axis: Axis) -> bool:
    """Return whether an axis, or a factor of it, carries time."""
    return any(isinstance(x, TimeFactor) for x in axis)


def holds_rows(axis: Axis) -> bool:
    """Return whether an axis, or a factor of it, carries the batch."""
    return any(isinstance(x, BatchFactor) for x in axis)


def sole_time(axis: Axis) -> TimeFactor | None:
    """Return the only factor of an axis if it is time that runs forwards; else None."""
    return (
        axis[0]
        if len(axis) == 1 and isinstance(axis[0], TimeFactor) and not axis[0].reversed
        else None
    )


def fixed_axis(size: sympy.Expr) -> Axis:
    """Return an axis of this size that has nothing to do with time."""
    return () if size == 1 else (OtherFactor(size),)


def size_of(axis: Axis) -> sympy.Expr:
    """Return the size of an axis."""
    return sympy.Mul(*(x.size for x in axis))


def size_expr(text: str) -> sympy.Expr:
    """Return a dim as an expression, in which equal sizes look the same.

    One that cannot be read is a symbol that no input has.
    """
    try:
        return expr_of(int(text) if text.isdigit() else ir.SymbolicDim(text))
    except ValueError:
        return sympy.Symbol(f"_{text}", integer=True, positive=True)


def same_size(a: sympy.Expr, b: sympy.Expr) -> bool:
    """Return whether two sizes are equal for every size of the inputs, if both are sizes."""
    if a == b or sympy.expand(a - b) == 0:
        return True
    if len(a.free_symbols | b.free_symbols) != 1 or a.free_symbols != b.free_symbols:
        return bool(sympy.simplify(a - b) == 0)
    return _same_in_trials(a, b)


@functools.lru_cache(maxsize=4096)
def _same_in_trials(a: sympy.Expr, b: sympy.Expr) -> bool:
    """Return whether two sizes agree at 4096 sizes of an input, where both are at least 1."""
    first, second = map(size_at_trials, (a, b))
    are_positive = (first >= 1) & (second >= 1)
    return bool(are_positive.any() and (first == second)[are_positive].all())


@functools.lru_cache(maxsize=4096)
def never_shrinks(size: sympy.Expr) -> bool:
    """Return whether a longer clip never has a smaller size, as far as 4096 clips tell."""
    return len(size.free_symbols) != 1 or not (np.diff(size_at_trials(size)) < 0).any()


@functools.lru_cache(maxsize=4096)
def never_changes(number: sympy.Expr) -> bool:
    """Return whether a number is the same for a clip of any length, as far as 4096 clips tell."""
    if not number.free_symbols:
        return True
    return len(number.free_symbols) == 1 and not np.diff(size_at_trials(number)).any()


def counts_from_start(start: sympy.Expr) -> bool:
    """Return whether a start counts from the first entry, at least to the end of a table."""
    if len(start.free_symbols) != 1:
        return bool(start.is_Integer and start >= 0)
    values = size_at_trials(start)
    falls = not (np.diff(values) > 0).any()
    return bool(values[0] >= 0 and (falls or (values >= 0).all()))


def longest_clip_of_size(size: sympy.Expr, number: sympy.Expr) -> int | None:
    """Return the longest of 4096 clips at which a size is this number, or None."""
    if len(size.free_symbols) != 1 or not number.is_Integer:
        return None
    indices = np.flatnonzero(size_at_trials(size) == int(number))
    return int(TRIAL_LENGTHS[indices[-1]]) if indices.size else None


def state_with_tail(axes: Sequence[Axis], tail: Tail) -> TensorState:
    """Return the state of a tensor with these axes and one tail wherever an axis carries time."""
    return TensorState(tuple(axes), tuple(tail if carries_time(x) else None for x in axes))


def state_with_tails(
    axes: Sequence[Axis], tails: Sequence[Tail | None], sign: Sign = 0
) -> TensorState:
    """Return the state of a tensor with these axes, and tails where an axis carries time."""
    time_tails = [t if carries_time(a) else None for a, t in zip(axes, tails, strict=True)]
    return TensorState(tuple(axes), tuple(time_tails), sign=sign)


def state_without_time(axes: Sequence[Axis] | None, *, fixed: bool = False) -> TensorState:
    """Return the state of a tensor without time."""
    return TensorState(
        None if axes is None else tuple(axes), (None,) * len(axes or ()), fixed=fixed
    )
