"""The constant that a Reshape to a computed shape, or a chain of them, can have instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from graphfix.model.shapes import Dim, Shapes, same

if TYPE_CHECKING:
    from collections.abc import Sequence

# Symbols of shape inference for sizes that it cannot express in those of the inputs.
_UNNAMED = re.compile(r"\b_d\d+\b")


def constant_target(
    source: Sequence[Dim], sizes: Sequence[Dim], given: Sequence[Dim] | None, shapes: Shapes
) -> tuple[int, ...] | str:
    """The constant that reshapes ``source`` to ``sizes``, or why there is none.

    Args:
        source: The dims of the input; empty if they are unknown.
        sizes: The dims of the output.
        given: What the computed shape holds, where a -1 may be among it.
        shapes: Knows which dims are never 0.
    """
    target: list[int] = []
    copied: list[Dim] = []
    left: list[int] = []
    for i, size in enumerate(sizes):
        if isinstance(size, int):
            if size == 0:
                return f"entry {i} is 0, which a constant shape cannot say without allowzero=1"
            target.append(size)
        elif i < len(source) and same(source[i], size):
            copied.append(size)
            target.append(0)
        else:
            left.append(i)
            target.append(-1)
    if len(left) > 1:
        entries = " and ".join(f"entry {i} ({_size(sizes[i])})" for i in left)
        dims = ", ".join(_size(x) for x in source)
        return f"one -1 is not enough: {entries} are not what the input [{dims}] has there"
    if left and not (given is not None and len(given) == len(sizes) and given[left[0]] == -1):
        perhaps = [str(x) for x in copied if not shapes.never_empty(x)]
        if perhaps:
            entry = f"entry {left[0]} ({_size(sizes[left[0]])})"
            return f"{entry} would have to be -1, which is ambiguous if {' or '.join(perhaps)} is 0"
    return tuple(target)


def _size(dim: Dim) -> str:
    return "a size known only at run time" if _UNNAMED.search(str(dim)) else str(dim)
