"""Read RoiAlign: where its boxes lie, by opset."""

import onnx_ir as ir

from graphfix.graph.nodes import attr_text

HALF_PIXEL_OPSET = 16
"""Since this opset an attribute says where boxes lie; before they lie as output_half_pixel says."""


def has_least_size(node: ir.Node, opset: int) -> bool:
    """Return whether ONNX makes a box that is smaller than one cell one cell large."""
    if opset < HALF_PIXEL_OPSET:
        return True
    return attr_text(node, "coordinate_transformation_mode", "half_pixel") == "output_half_pixel"
