"""roi-size: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_float, attr_text, input_at
from graphfix.ops.regions import HALF_PIXEL_OPSET, has_least_size
from graphfix.providers.directml.placement import PlacementRules

from ..common.cuts import build_slice


@dataclass(frozen=True)
class RegionSite(Match):
    """A RoiAlign whose boxes may be smaller than one cell.

    Attributes:
        boxes: The boxes, ``[N, 4]``: two corners each.
        cell: How large a cell is in the coordinates of the boxes.
        dtype: Their element type.
    """

    boxes: ir.Value
    cell: float
    dtype: ir.DataType


@dataclass(frozen=True)
class RoiSize(NodePass[RegionSite]):
    """Makes the boxes of a RoiAlign at least one cell large.

    Why:
        With output_half_pixel, as models converted from before opset 16 have it, ONNX makes a box
        that is smaller than one cell of the features one cell large. Run on onnxruntime-directml
        1.24.4: DirectML does not, and numbers are off by 0.9 to 2.6, in silence. Detectors crop
        features of a sixteenth of the image, where a small object is less than a cell. With
        half_pixel there is no such size, and it is right.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 16]
        >
        crop (float[4, 2, 8, 8] x, float[N, 4] boxes, int64[N] batch) => (float[N, 2, 3, 3] y)
        {
            y = RoiAlign <output_height = 3, output_width = 3, sampling_ratio = 2,
                spatial_scale = 0.0625, coordinate_transformation_mode = "output_half_pixel">
                (x, boxes, batch)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 16]
        >
        crop (float[4, 2, 8, 8] x, float[N, 4] boxes, int64[N] batch) => (float[N, 2, 3, 3] y)
        <
            int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}, int64[1] axis = {1},
            float half = {8}, float cell = {16}
        >
        {
            moved = Add (boxes, half)
            first = Slice (moved, zero, two, axis)
            last = Slice (moved, two, four, axis)
            least = Add (first, cell)
            end = Max (last, least)
            large = Concat <axis = 1> (first, end)
            y = RoiAlign <coordinate_transformation_mode = "half_pixel", output_height = 3,
                output_width = 3, sampling_ratio = 2, spatial_scale = 0.0625> (x, large, batch)
        }

    Left alone:
        A mode that takes the largest, "mode=max":
        <
            ir_version: 8,
            opset_import: ["" : 16]
        >
        crop (float[1, 2, 8, 8] x, float[N, 4] boxes, int64[N] batch) => (float[N, 2, 3, 3] y)
        {
            y = RoiAlign <output_height = 3, output_width = 3, mode = "max",
                coordinate_transformation_mode = "output_half_pixel"> (x, boxes, batch)
        }

    Safety:
        Exact, up to rounding of the corners: half_pixel moves a box by half a cell, so it is moved
        back first. Refused, with the reason: mode=max, which DirectML computes otherwise for every
        box. Before opset 16 there is no half_pixel, and such a node is skipped.
    """

    sentence = "RoiAlign with output_half_pixel: DirectML is wrong for boxes below one cell"
    anchors = ("RoiAlign",)

    def match(self, node: ir.Node, view: View) -> RegionSite | Skip | None:
        """Return the site if boxes may be smaller than one cell."""
        boxes, scale = input_at(node, 1), attr_float(node, "spatial_scale", 1.0)
        dtype = view.shapes.dtype(boxes)
        if boxes is None or dtype is None or not scale:
            return None
        opset = view.opset_of_node(node)
        if opset < HALF_PIXEL_OPSET or not has_least_size(node, opset):
            return None
        if PlacementRules(view.model.graph.opset_imports, view.shapes).kernel_of(node) is None:
            return None
        if attr_text(node, "mode", "avg") == "max":
            return Skip(node, "with mode=max DirectML is wrong for every box", severity="error")
        return RegionSite(node, boxes, 1.0 / scale, dtype)

    def rewrite(self, match: RegionSite, op: Builder) -> ir.Value:
        """Build the same RoiAlign of boxes that reach one cell at least."""
        half, cell = (np.array(x, match.dtype.numpy()) for x in (match.cell / 2, match.cell))
        moved = op.Add(match.boxes, half)
        first, last = (build_slice(moved, {1: cut}, op) for cut in ((0, 2, 1), (2, 4, 1)))
        least = op.Add(first, cell)
        large = op.Concat(first, op.Max(last, least), axis=1)
        data, _, *others = match.node.inputs
        mode = "half_pixel"
        return op.clone_node(match.node, data, large, *others, coordinate_transformation_mode=mode)
