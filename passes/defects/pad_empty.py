"""pad-empty: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.pads import may_be_negative, pads_of
from graphfix.facts.view import View
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import input_at
from graphfix.ops.pads import pad_mode
from graphfix.providers.empty_inputs import find_empty_inputs

from ..common.cuts import build_slice

_PADS_ARE_AN_INPUT = 11


@dataclass(frozen=True)
class EmptyPadSite(Match):
    """A constant Pad of a tensor that may be empty.

    Attributes:
        data: The tensor.
        axis: The axis that may have size 0.
        filler: One element along that axis, all of it the number that is padded with.
    """

    data: ir.Value
    axis: int
    filler: np.ndarray[tuple[int, ...], np.dtype[np.generic]]


@dataclass(frozen=True)
class PadEmpty(NodePass[EmptyPadSite]):
    """Lengthens what may be empty by one element before a Pad, and cuts it off behind it.

    Why:
        Detectors pad the list of what they found to a fixed length. Run on onnxruntime-directml
        1.24.4: a Pad of a tensor without elements is not dispatched, so what lay in memory comes
        out, in silence; a detector without detections was off by 12.3. A Concat with an empty
        tensor is right.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        found (float[N, 4] boxes, bool[N] keep) => (float[U, 4] y)
        <int64[4] pads = {0, 0, 6, 0}>
        {
            kept = Compress <axis = 0> (boxes, keep)
            y = Pad (kept, pads)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        found (float[N, 4] boxes, bool[N] keep) => (float[U, 4] y)
        <
            int64[4] pads = {0, 0, 6, 0}, float[1, 4] filler = {0, 0, 0, 0}, int64[1] zero = {0},
            int64[1] end = {-1}, int64[1] axis = {0}
        >
        {
            kept = Compress <axis = 0> (boxes, keep)
            longer = Concat <axis = 0> (kept, filler)
            padded = Pad (longer, pads)
            y = Slice (padded, zero, end, axis)
        }

    Left alone:
        A tensor whose other sizes are not known, "the sizes of its other axes":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        found (float[N, C] boxes, bool[N] keep) => (float[U, C] y)
        <int64[4] pads = {0, 0, 6, 0}>
        {
            kept = Compress <axis = 0> (boxes, keep)
            y = Pad (kept, pads)
        }

    Safety:
        Exact: the element that is added is the number that is padded with, at the end of the
        padding. Only where a size is 0, counts what is found in data, or is 0 at some large sizes
        of the inputs. Refused, with the reason: a number that is computed in a run, other axes of
        unknown size, pads below 0, and pads that are an attribute.
    """

    sentence = "a Pad of what may be empty: DirectML returns what lay in memory then"
    anchors = ("Pad",)

    def match(self, node: ir.Node, view: View) -> EmptyPadSite | Skip | None:
        """Return the site if the Pad makes something of what may be empty."""
        data, pads = input_at(node, 0), pads_of(node, view)
        if pad_mode(node) != "constant" or data is None or pads is None:
            return None
        place = next((x for x in find_empty_inputs(view, (node,))), None)
        if place is None:
            return None
        if any(map(may_be_negative, pads)) or any(isinstance(x, int) and x < 0 for x in pads):
            return Skip(node, "its pads may be below 0: pad-slice comes first", severity="warning")
        if view.opset_of_node(node) < _PADS_ARE_AN_INPUT:
            return Skip(node, "below opset 11 its pads are no input", severity="warning")
        dtype, sizes = view.shapes.dtype(data), _filler_sizes(view, data, place.axes)
        if sizes is None or dtype is None:
            return Skip(node, "the sizes of its other axes are not known", severity="warning")
        fill = input_at(node, 2)
        number = 0 if fill is None else scalar_of(fill)
        if number is None:
            return Skip(node, "what it pads with is computed in a run", severity="warning")
        return EmptyPadSite(node, data, place.axes[0], np.full(sizes, number, dtype.numpy()))

    def rewrite(self, match: EmptyPadSite, op: Builder) -> ir.Value:
        """Build ``Slice(Pad(Concat(x, filler)))``."""
        longer = op.Concat(match.data, match.filler, axis=match.axis)
        padded = op.clone_node(match.node, longer, *match.node.inputs[1:])
        return build_slice(padded, {match.axis: (0, -1, 1)}, op)


def _filler_sizes(view: View, data: ir.Value, axes: Sequence[int]) -> list[int] | None:
    """Return the shape of one element along the axis that may be empty.

    None if several axes may be, or if the size of another is not a number above 0.
    """
    sizes = [1 if i in axes else size for i, size in enumerate(view.shapes.dims(data) or ())]
    known = [size for size in sizes if isinstance(size, int) and size]
    return known if len(axes) == 1 and len(known) == len(sizes) else None
