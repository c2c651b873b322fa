"""What Slices with constant bounds take along each axis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_int, attr_ints, input_at, is_op, producer_of

Cut = tuple[int, int, int]
"""Start, end and step, as ONNX has them."""


def cuts_of(
    node: ir.Node, rank: int, read: Callable[[ir.Value], Sequence[int] | None] = ints_of
) -> dict[int, Cut] | None:
    """Return what a Slice takes along each axis of a tensor, or None if ``read`` fails."""
    names = enumerate(("starts", "ends", "axes", "steps"), 1)
    sources = [(input_at(node, i), attr_ints(node, name)) for i, name in names]
    starts, ends, axes, steps = numbers = [y if x is None else read(x) for x, y in sources]
    computed = any(x is not None and y is None for (x, _), y in zip(sources, numbers, strict=True))
    if computed or starts is None or ends is None:
        return None
    places = range(len(starts)) if axes is None else (x % rank for x in axes)
    cuts = zip(starts, ends, (1,) * len(starts) if steps is None else steps, strict=True)
    return dict(zip(places, cuts, strict=True))


def build_slice(value: ir.Value | None, cuts: dict[int, Cut], op: Builder) -> ir.Value:
    """Build the Slice of a value that takes these cuts."""
    starts, ends, steps = zip(*cuts.values(), strict=True)
    bounds = {"starts": starts, "ends": ends, "axes": [*cuts]}
    if op.view.opset_of_node(op.site) < 10:  # without steps
        return op.Slice(value, **{name: list(x) for name, x in bounds.items()})
    step_input = [] if {*steps} == {1} else [steps]
    return op.Slice(value, *(np.array(x, np.int64) for x in (*bounds.values(), *step_input)))


@dataclass(frozen=True)
class HalfCut:
    """A tensor cut in half along an axis, and perhaps cut along others.

    Attributes:
        source: The tensor that it is cut from.
        axis: The axis.
        other_cuts: The cuts along other axes.
    """

    source: ir.Value
    axis: int
    other_cuts: tuple[tuple[int, Cut], ...]


def half_cut_of(part: ir.Value, view: View) -> tuple[HalfCut, int] | None:
    """Return what ``part`` is a half of, and whether it is the first (0) or second (1), or None."""
    node = producer_of(part)
    source = node.inputs[0] if is_op(node, "Slice", "Split") else None
    dims, size = view.shapes.dims(source), view.shapes.dims(part)
    if is_op(node, "Split") and dims and size:
        along = attr_int(node, "axis", 0) % len(dims)
        each = size[along] if node.outputs[0] is not part else 0
        cuts: dict[int, Cut] | None = {along: (each if isinstance(each, int) else 0, 0, 1)}
    else:
        cuts = cuts_of(node, len(dims)) if node is not None and dims else None
    if source is None or not dims or not size or not cuts:
        return None
    for axis, (start, _, step) in cuts.items():
        long, own = dims[axis], size[axis]
        if not isinstance(long, int) or not isinstance(own, int) or long != 2 * own or step != 1:
            continue
        place = {0: 0, -long: 0, own: 1, -own: 1}.get(start)
        other_cuts = tuple(x for x in sorted(cuts.items()) if x[0] != axis)
        return None if place is None else (HalfCut(source, axis, other_cuts), place)
    return None
