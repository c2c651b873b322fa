"""What a Pad adds and cuts, wherever that is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.model.values import attr_ints, ints_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.model.shapes import Dim
    from graphfix.model.view import View


def pads_of(node: ir.Node, view: View) -> tuple[Dim, ...] | None:
    """The pads of a Pad, all that is put in front and then all that is put behind.

    From the attribute (before opset 11) or the input. What TorchScript's exporter computes from
    constants is known as well: a ConstantOfShape, Concat, Slice and Transpose of them. A pad that
    follows a size is symbolic.

    Returns:
        None if they are known only in a run.
    """
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return attr_ints(node, "pads")
    return ints_of(node.inputs[1]) or view.shapes.data(node.inputs[1])
