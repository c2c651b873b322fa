"""What Slices of constants take along each axis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_int, attr_ints, input_at, is_op, maker_of

Cut = tuple[int, int, int]
"""Start, end and step, as ONNX has them."""


def cuts_of(
    node: ir.Node, rank: int, read: Callable[[ir.Value], Sequence[int] | None] = ints_of
) -> dict[int, Cut] | None:
    """What a Slice takes of which axis of a tensor; None if ``read`` does not know it."""
    named = enumerate(("starts", "ends", "axes", "steps"), 1)
    given = [(input_at(node, i), attr_ints(node, name)) for i, name in named]
    starts, ends, axes, steps = found = [y if x is None else read(x) for x, y in given]
    computed = any(x is not None and y is None for (x, _), y in zip(given, found, strict=True))
    if computed or starts is None or ends is None:
        return None
    places = range(len(starts)) if axes is None else (x % rank for x in axes)
    taken = zip(starts, ends, (1,) * len(starts) if steps is None else steps, strict=True)
    return dict(zip(places, taken, strict=True))


def sliced(value: ir.Value | None, cuts: dict[int, Cut], op: Builder) -> ir.Value:
    """What these take of a value."""
    starts, ends, steps = zip(*cuts.values(), strict=True)
    given = {"starts": starts, "ends": ends, "axes": [*cuts]}
    if op.view.opset(op.site) < 10:  # without steps
        return op.Slice(value, **{name: list(x) for name, x in given.items()})
    more = [] if {*steps} == {1} else [steps]
    return op.Slice(value, *(np.array(x, np.int64) for x in (*given.values(), *more)))


@dataclass(frozen=True)
class Half:
    """What is cut along an axis, and perhaps along others.

    Attributes:
        whole: What it is cut from.
        axis: The axis.
        rest: What is taken of other axes.
    """

    whole: ir.Value
    axis: int
    rest: tuple[tuple[int, Cut], ...]


def half_of(part: ir.Value, view: View) -> tuple[Half, int] | None:
    """What is a half along an axis, and whether it is the first (0) or the second (1)."""
    node = maker_of(part)
    whole = node.inputs[0] if is_op(node, "Slice", "Split") else None
    dims, size = view.shapes.dims(whole), view.shapes.dims(part)
    if is_op(node, "Split") and dims and size:
        along = attr_int(node, "axis", 0) % len(dims)
        each = size[along] if node.outputs[0] is not part else 0
        cuts: dict[int, Cut] | None = {along: (each if isinstance(each, int) else 0, 0, 1)}
    else:
        cuts = cuts_of(node, len(dims)) if node is not None and dims else None
    if whole is None or not dims or not size or not cuts:
        return None
    for axis, (start, _, step) in cuts.items():
        long, own = dims[axis], size[axis]
        if not isinstance(long, int) or not isinstance(own, int) or long != 2 * own or step != 1:
            continue
        place = {0: 0, -long: 0, own: 1, -own: 1}.get(start)
        rest = tuple(x for x in sorted(cuts.items()) if x[0] != axis)
        return None if place is None else (Half(whole, axis, rest), place)
    return None
