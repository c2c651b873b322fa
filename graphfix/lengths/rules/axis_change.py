"""A state with its axes changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from graphfix.lengths.tail_state import Axis, State, Tail


def placed(state: State, places: Sequence[int | None]) -> State:
    """The same with its axes at other places; None is a new axis of size 1."""
    axes = tuple(() if i is None else state.at(i) for i in places)
    tails = tuple(None if i is None else state.tails[i] for i in places)
    return dataclasses.replace(state, axes=axes, tails=tails)


def with_axis(state: State, axis: int, new: Axis, tail: Tail | None) -> State:
    """The same with another axis, and another tail of it."""
    axes = state.axes or ()
    tails = (*state.tails[:axis], tail, *state.tails[axis + 1 :])
    return dataclasses.replace(
        state, axes=(*axes[:axis], new, *axes[axis + 1 :]), tails=tails, steps=None, length=None
    )
