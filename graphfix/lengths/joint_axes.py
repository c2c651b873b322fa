"""Axes that run together, and those that no mask can be put over: the rest is refused."""

import dataclasses
import functools
from collections.abc import Sequence

import sympy

from graphfix.facts.symbolic.trials import lengths_where_equal, must_be_equal
from graphfix.lengths import tail_state as facts
from graphfix.lengths.length_source import LengthSource
from graphfix.spec.quoting import quote_name


class RefusedError(Exception):
    """Raised for a node that cannot be analysed, or a leak without a repair, with the reason."""


def check_maskable(axes: Sequence[facts.Axis], axis: int, source: LengthSource) -> None:
    """Refuse if no mask over one axis of a tensor can be built.

    Raises:
        RefusedError: The axis holds several times, or the tensor has no row for each length.
    """
    if sum(isinstance(x, facts.TimeFactor) for x in axes[axis]) != 1:
        raise RefusedError("an axis holds several times at once")
    rows = [i for i, x in enumerate(axes) if facts.holds_rows(x)]
    if source.batch is not None and len(rows) != 1:
        raise RefusedError("it has no batch axis, and each row of the batch has its own length")
    for i in {axis, *rows}:
        merged_factors = axes[i] if len(axes[i]) > 1 else ()
        if any(isinstance(x, facts.OtherFactor) and not x.size.is_Integer for x in merged_factors):
            raise RefusedError("an axis holds time together with a size that is not fixed")


def check_rows(state: facts.TensorState, source: LengthSource) -> None:
    """Refuse if frames of a tensor cannot be picked for each row of the batch.

    Raises:
        RefusedError: No axis of it is the batch alone, and each row has a length of its own.
    """
    check_batch(state, source)
    rows = [x for x in state.axes or () if facts.holds_rows(x)]
    if any(len(x) > 1 for x in rows) or len(rows) > 1:
        raise RefusedError("its batch axis holds something else beside the batch")


def check_batch(state: facts.TensorState, source: LengthSource) -> None:
    """Refuse if a tensor has no row for each length.

    Raises:
        RefusedError: No axis of it carries the batch, and each row has a length of its own.
    """
    if source.batch is not None and not any(map(facts.holds_rows, state.axes or ())):
        raise RefusedError("it has no batch axis, and each row of the batch has its own length")


def check_rows_unmixed(state: facts.TensorState, axes: Sequence[int]) -> None:
    """Refuse to mix rows of the batch, each of which has its own length.

    Raises:
        RefusedError: One of these axes carries the batch, and another carries time.
    """
    if state.time_axes and any(facts.holds_rows(state.factors_of(i)) for i in axes):
        raise RefusedError("it mixes rows of the batch, and each has its own length")


def require_sole_time(axis: facts.Axis, subject: str) -> facts.TimeFactor:
    """Return the only factor of an axis, which must be time that runs forwards.

    Args:
        axis: The axis.
        subject: The beginning of the message to the user: what reads the axis, and how.

    Raises:
        RefusedError: The axis has other factors, or its time runs backwards.
    """
    time = facts.sole_time(axis)
    if time is None:
        raise RefusedError(f"{subject} holds time beside something else, or runs backwards")
    return time


def join_axes(axes: Sequence[facts.Axis], *, broadcasts: bool = True) -> facts.Axis:
    """Return the axis that several axes broadcast to.

    Args:
        axes: The axes.
        broadcasts: Whether the node repeats a size of 1; a Concat does not.

    Raises:
        RefusedError: They do not run together: frame i of one is not frame i of another.
    """
    join_pair = functools.partial(_join_pair, broadcasts=broadcasts)
    return functools.reduce(join_pair, axes, ())


def _join_pair(a: facts.Axis, b: facts.Axis, *, broadcasts: bool) -> facts.Axis:
    if not a or a == b:
        return b
    if not b:
        return a
    shifted = any(isinstance(x, facts.ShiftedFactor) for x in (*a, *b))
    if not (shifted or facts.carries_time(a) or facts.carries_time(b)):
        return a if facts.holds_rows(a) else b
    if len(a) == len(b) and not shifted:
        pairs = zip(a, b, strict=True)
        return tuple(_join_factors(x, y, broadcasts=broadcasts) for x, y in pairs)
    raise RefusedError(f"it combines axes of size {_format_axis(a)} and {_format_axis(b)}")


def _join_factors(a: facts.Factor, b: facts.Factor, *, broadcasts: bool) -> facts.Factor:
    if _is_cut_from(a.size, b.size):  # a table that ends: the model does not run on longer clips
        return _join_factors(b, dataclasses.replace(a, size=b.size), broadcasts=broadcasts)
    if _is_cut_from(b.size, a.size):
        return _join_factors(a, dataclasses.replace(b, size=a.size), broadcasts=broadcasts)
    same = facts.same_size(a.size, b.size)
    if isinstance(a, facts.TimeFactor) and isinstance(b, facts.TimeFactor):
        # Half of the frames, up to their number again, runs beside all frames if that is even.
        same = same or must_be_equal(a.size, b.size, broadcasts=broadcasts)
    if isinstance(a, facts.TimeFactor) and isinstance(b, facts.TimeFactor):
        if same and a.reversed == b.reversed:
            return min(a, b, key=lambda x: len(str(x.size)))
        if same:
            raise RefusedError("it combines a tensor with one that runs backwards")
    elif same and not isinstance(a, facts.TimeFactor) and not isinstance(b, facts.TimeFactor):
        return a if isinstance(a, facts.BatchFactor) else b
    raise RefusedError(_mismatch_reason(a, b))


def _mismatch_reason(a: facts.Factor, b: facts.Factor) -> str:
    """Return why two axes do not run together, and what a user can do if one of them is fixed."""
    for time, partner in ((a, b), (b, a)):
        clip = (
            facts.longest_clip_of_size(time.size, partner.size)
            if isinstance(time, facts.TimeFactor)
            else None
        )
        if clip is not None and isinstance(partner, facts.OtherFactor):
            name = next(iter(time.size.free_symbols)).name
            return (
                f"it takes {time.size} frames side by side with {partner.size} of something that "
                "does not follow the clip, so that no other clip runs and none is padded: fix "
                f"the size (-p fix-dims:{quote_name(name)}={clip}), or export the model "
                "with what is "
                f"fixed, as a table of positions is, cut to the clip (table[:{time.size}])"
            )
    reason = f"it combines axes of size {a.size} and {b.size}"
    lengths = lengths_where_equal(a.size, b.size)
    if lengths is None:
        return reason
    name = next(iter(a.size.free_symbols | b.size.free_symbols)).name
    return (
        f"{reason}, which are equal for clips of {lengths[0]} to {lengths[1]} alone, as where a "
        "trace has counted one of them: export the model with the size of the tensor (x.shape), or "
        f"fix it (-p fix-dims:{quote_name(name)}={lengths[1]})"
    )


def _is_cut_from(a: sympy.Expr, b: sympy.Expr) -> bool:
    """Return whether ``a`` is the minimum of ``b`` and something else, as for a table that ends."""
    if isinstance(a, sympy.Max) and len(a.args) == 2 and a.args[0] == 0:
        a = a.args[1]
    return isinstance(a, sympy.Min) and any(facts.same_size(x, b) for x in a.args)


def _format_axis(axis: facts.Axis) -> str:
    return " * ".join(str(x.size) for x in axis) or "1"
