"""What Slices of constants take along each axis."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.model.values import input_at, ints_of

Cut = tuple[int, int, int]
"""Start, end and step, as ONNX has them."""


def cuts_of(node: ir.Node, rank: int) -> dict[int, Cut] | None:
    """What a Slice, from opset 10 on, takes of which axis of a tensor; None if it is computed."""
    given = [input_at(node, i) for i in range(1, 5)]
    starts, ends, axes, steps = found = [ints_of(x) for x in given]
    computed = any(x is not None and y is None for x, y in zip(given, found, strict=True))
    if computed or starts is None or ends is None:
        return None
    places = range(len(starts)) if axes is None else (x % rank for x in axes)
    taken = zip(starts, ends, (1,) * len(starts) if steps is None else steps, strict=True)
    return dict(zip(places, taken, strict=True))


def sliced(value: ir.Value | None, cuts: dict[int, Cut], op: Builder) -> ir.Value:
    """What these take of a value."""
    starts, ends, steps = (np.array(x, np.int64) for x in zip(*cuts.values(), strict=True))
    return op.Slice(value, starts, ends, np.array([*cuts], np.int64), steps)
