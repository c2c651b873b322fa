"""Slices with constant bounds: what they take along each axis, and how they are built."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.ops.slices import cuts_of_slice

Cut = tuple[int, int, int]
"""Start, end and step of a Slice along one axis."""


def cuts_of(
    node: ir.Node, rank: int, read: Callable[[ir.Value], Sequence[int] | None] = ints_of
) -> dict[int, Cut] | None:
    """Return what a Slice takes along each axis of a tensor, or None if ``read`` fails."""
    cuts = cuts_of_slice(node, rank, read)
    return None if cuts is None else {**cuts}


def build_slice(value: ir.Value | None, cuts: Mapping[int, Cut], op: Builder) -> ir.Value:
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
        # The last part starts in the middle if it is half as long; others may not.
        start = {node.outputs[0]: 0, node.outputs[-1]: size[along]}.get(part)
        cuts: dict[int, Cut] | None = {along: (start, 0, 1)} if isinstance(start, int) else None
    else:
        cuts = cuts_of(node, len(dims)) if node is not None and dims else None
    if source is None or not dims or not size or not cuts:
        return None
    for axis, (first, _, step) in cuts.items():
        long, own = dims[axis], size[axis]
        if not isinstance(long, int) or not isinstance(own, int) or long != 2 * own or step != 1:
            continue
        place = {0: 0, -long: 0, own: 1, -own: 1}.get(first)
        other_cuts = tuple(x for x in sorted(cuts.items()) if x[0] != axis)
        return None if place is None else (HalfCut(source, axis, other_cuts), place)
    return None
