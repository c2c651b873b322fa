"""Rules for attributes of Resize that DirectML ignores or misreads."""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from graphfix.facts.shapes import same_dim
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, attr_text
from graphfix.providers.directml.placement import PlacementRules
from graphfix.providers.directml.support_queries import refusal_reason
from graphfix.rules.rule import Hazard, Rule, is_folded


class ResizeMode(Rule):
    """Flags a Resize attribute that DirectML does not know or reads otherwise.

    Why:
        Run on onnxruntime-directml 1.24.4, ONNX's own tests of Resize: antialias, which is for axes
        that become shorter, is left out, and tf_crop_and_resize gives other numbers or ends the
        process, both without an error; a keep_aspect_ratio_policy ends in 80070057; with
        pytorch_half_pixel, an axis that becomes 1 long is read in its middle, as with half_pixel,
        and not at its start. The other 29 tests that DirectML takes are right.

    Flagged:
        <ir_version: 8, opset_import: ["" : 18]>
        smaller (float[1, 3, 64, 64] x) => (float[1, 3, 32, 32] y)
        <float[4] scales = {1, 1, 0.5, 0.5}>
        {
            y = Resize <mode = "linear", antialias = 1> (x, , scales)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 18]>
        smaller (float[1, 3, 64, 64] x) => (float[1, 3, 32, 32] y)
        <float[4] scales = {1, 1, 0.5, 0.5}>
        {
            y = Resize <mode = "linear"> (x, , scales)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each Resize that DirectML takes and reads in another way."""
        rules = PlacementRules(view.model.graph.opset_imports, view.shapes)
        for node in view.nodes("Resize"):
            fault = _misread_attribute(node, view)
            kernel = None if fault is None or is_folded(node, view) else rules.kernel_of(node)
            if fault and kernel is not None and refusal_reason(node, kernel, view.shapes) is None:
                yield Hazard(node, fault, "error")


def _misread_attribute(node: ir.Node, view: View) -> str | None:
    mode = attr_text(node, "coordinate_transformation_mode", "half_pixel")
    if attr_int(node, "antialias", 0) and not _only_grows(node, view):
        return "antialias=1, which DirectML leaves out, in silence"
    if mode == "tf_crop_and_resize":
        return "tf_crop_and_resize: DirectML gives other numbers, or the process ends"
    if attr_text(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        return "a keep_aspect_ratio_policy: DirectML refuses it with 80070057"
    in_dims, out_dims = (view.shapes.dims(x[0]) if x else () for x in (node.inputs, node.outputs))
    sizes = zip(in_dims or (), out_dims or (), strict=False)
    if mode == "pytorch_half_pixel" and any(b == 1 != a for a, b in sizes):
        return "pytorch_half_pixel to a size of 1: DirectML takes the middle, and ONNX the start"
    return None


def _only_grows(node: ir.Node, view: View) -> bool:
    """Return whether no axis is known to become shorter, or may: antialias is for those."""
    scales = const_of(node.inputs[2]) if len(node.inputs) > 2 else None
    if scales is not None and scales.size:
        return bool((np.asarray(scales, np.float32) >= 1).all())
    in_dims, out_dims = view.shapes.dims(node.inputs[0]), view.shapes.dims(node.outputs[0])
    if in_dims is None or out_dims is None:
        return False
    return all(
        same_dim(a, b) or (isinstance(a, int) and isinstance(b, int) and a < b)
        for a, b in zip(in_dims, out_dims, strict=False)
    )
