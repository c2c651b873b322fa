"""What a Pad adds and cuts, wherever that is written."""

from collections.abc import Sequence

import onnx_ir as ir

from graphfix.facts.shapes import Dim
from graphfix.facts.symbolic.expressions import expr_of
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_ints, attr_text

# Frames of a short clip: relative positions are cut where a clip is shorter than their window.
_SMALL = (1, 2, 3, 4)
_INTEGERS = 12


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


def are_misread(node: ir.Node, pads: Sequence[Dim]) -> bool:
    """Whether DirectML was seen to cut wrongly where these pads are below 0.

    Run on onnxruntime-directml 1.24.4, opset 11 to 21: with a constant or the edge it is wrong
    where something is cut in front, with wrap where an axis is both cut and padded, with reflect
    never. DirectML's own pads have no sign (DML_PADDING_OPERATOR_DESC): the rest is right by luck.
    """
    how = mode_of(node)
    whole = [x if isinstance(x, int) else -int(may_cut(x)) for x in pads]
    front, back = whole[: len(whole) // 2], whole[len(whole) // 2 :]
    if how == "wrap":
        return any(a * b < 0 for a, b in zip(front, back, strict=True))
    return how != "reflect" and min(front, default=0) < 0


def mode_of(node: ir.Node) -> str:
    """What a Pad puts on; one that is a parameter of a function is taken for a constant."""
    return attr_text(node, "mode", "constant")


def can_be_split(node: ir.Node, pads: Sequence[Dim], opset: int) -> bool:
    """Whether what is added and what is cut can be inferred apart, before a run or in it.

    In a run that is the Max and the Min of the pads and 0, which take integers from opset 12 on.
    """
    known = all(isinstance(x, int) for x in pads)
    return known or (opset >= _INTEGERS and mode_of(node) == "constant")


def is_negative(pads: Sequence[Dim]) -> bool:
    """Whether one of them is known to be below 0."""
    return any(isinstance(x, int) and x < 0 for x in pads)


def may_cut(pad: Dim) -> bool:
    """Whether a pad that follows a size is below 0 where that is small, as ``S - 5`` is."""
    if isinstance(pad, int) or pad.value is None:
        return False
    expr = expr_of(pad)
    return any(expr.subs(dict.fromkeys(expr.free_symbols, size)) < 0 for size in _SMALL)
