"""Indices out of padding that are none: a float there may be any number, or no number at all.

What a user pads an input of integers with is a number that the model takes, and so is what is
computed from it; an index that was a float is in range only where it is valid. Outside a table the
whole run ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.lengths.numbers import MANY, UNARY
from graphfix.model.values import is_op

if TYPE_CHECKING:
    from graphfix.lengths.site import Site

_HANDS_ON = frozenset({"Concat", "Expand", "Flatten", "Gather", "Reshape", "Slice", "Squeeze"})
_HANDS_ON |= {"Tile", "Transpose", "Unsqueeze", *UNARY, *MANY}


def strays(value: ir.Value | None, site: Site) -> bool:
    """Whether an integer behind what is valid was a float there."""
    pending: list[ir.Value | None] = [value]
    seen: set[ir.Value] = set()
    while pending:
        value = pending.pop()
        state = None if value is None else site.known(value)
        if value is None or state is None or value in seen or not state.timed:
            continue
        seen.add(value)
        if state.fixed or all(state.tail(i).kind in ("number", "last") for i in state.timed):
            continue
        node, dtype = value.producer(), site.source.shapes.dtype(value)
        if dtype is not None and dtype.is_floating_point():
            return True
        if node is not None and is_op(node, *_HANDS_ON):
            inputs = node.inputs[1:] if is_op(node, "Where") else node.inputs
            pending += [] if dtype == ir.DataType.BOOL else inputs  # what is asked is 0 or 1
    return False
