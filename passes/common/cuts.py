"""Slices with constant bounds: what they take along each axis, and how they are built."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op, producer_of
from graphfix.ops.axes import axis_of
from graphfix.ops.slices import Cut, cuts_of_slice


def build_slice(
    value: ir.Value | None, cuts: Mapping[int, tuple[int, int, int]], op: Builder
) -> ir.Value:
    """Build the Slice of a value that takes these cuts: by axis, its start, end and step."""
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
    other_cuts: tuple[tuple[int, Cut[int]], ...]


def half_cut_of(part: ir.Value, view: View) -> tuple[HalfCut, int] | None:
    """Return what ``part`` is a half of, and whether it is the first (0) or second (1), or None."""
    node = producer_of(part)
    source = node.inputs[0] if is_op(node, "Slice", "Split") else None
    dims, size = view.shapes.dims(source), view.shapes.dims(part)
    if node is None or source is None or not dims or not size:
        return None
    is_split = is_op(node, "Split")
    cuts = _cuts_of_half(node, part, size, view) if is_split else cuts_of_slice(node, len(dims))
    if cuts is None:
        return None
    for axis, cut in cuts.items():
        length = size[axis]
        if isinstance(length, int) and dims[axis] == 2 * length and cut.step == 1:
            place = {0: 0, -2 * length: 0, length: 1, -length: 1}.get(cut.start)
            other_cuts = tuple(x for x in sorted(cuts.items()) if x[0] != axis)
            return None if place is None else (HalfCut(source, axis, other_cuts), place)
    return None


def _cuts_of_half(
    split: ir.Node, part: ir.Value, size: Sequence[Dim], view: View
) -> dict[int, Cut[int]] | None:
    """Return what a Split into two equal parts takes for one of them, as a Slice would."""
    axis = axis_of(split, len(size), view.opset_of_node(split))
    if axis is None:
        return None
    # The last part starts in the middle if it is half as long; others may not.
    start = {split.outputs[0]: 0, split.outputs[-1]: size[axis]}.get(part)
    return {axis: Cut(start, 0, 1)} if isinstance(start, int) else None
