"""What a Pad adds and cuts, whether an attribute or an input says so."""

from collections.abc import Sequence

import onnx_ir as ir

from graphfix.facts.shapes import Dim
from graphfix.facts.symbolic.expressions import expr_of
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_ints, attr_text

# Frames of a short clip: relative positions are cut where a clip is shorter than their window.
_SHORT_SIZES = (1, 2, 3, 4)
_INTEGER_MIN_MAX_OPSET = 12


def pads_of(node: ir.Node, view: View) -> tuple[Dim, ...] | None:
    """Return the pads of a Pad, all that is put in front and then all that is put behind.

    From the attribute (before opset 11) or the input. What TorchScript's exporter computes from
    constants is known as well: a ConstantOfShape, Concat, Slice and Transpose of them. A pad that
    follows a size is symbolic.

    Returns:
        None if they are known only in a run.
    """
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return attr_ints(node, "pads")
    return ints_of(node.inputs[1]) or view.shapes.known_elements(node.inputs[1])


def directml_misreads_pads(node: ir.Node, pads: Sequence[Dim]) -> bool:
    """Return whether DirectML was seen to cut wrongly where these pads are below 0.

    Run on onnxruntime-directml 1.24.4, opset 11 to 21: with a constant or the edge it is wrong
    where something is cut in front, with wrap where an axis is both cut and padded, with reflect
    never. DirectML's own pads have no sign (DML_PADDING_OPERATOR_DESC): the rest is right by luck.
    """
    mode = pad_mode(node)
    numbers = [x if isinstance(x, int) else -int(may_be_negative(x)) for x in pads]
    front, back = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    if mode == "wrap":
        return any(a * b < 0 for a, b in zip(front, back, strict=True))
    return mode != "reflect" and min(front, default=0) < 0


def pad_mode(node: ir.Node) -> str:
    """Return the mode of a Pad; one that is a function's parameter counts as constant."""
    return attr_text(node, "mode", "constant")


def can_split_pads(node: ir.Node, pads: Sequence[Dim], opset: int) -> bool:
    """Return whether added and cut parts can be inferred apart, before a run or in it.

    In a run that is the Max and the Min of the pads and 0, which take integers from opset 12 on.
    """
    are_numbers = all(isinstance(x, int) for x in pads)
    return are_numbers or (opset >= _INTEGER_MIN_MAX_OPSET and pad_mode(node) == "constant")


def has_negative_pad(pads: Sequence[Dim]) -> bool:
    """Return whether one of the pads is known to be below 0."""
    return any(isinstance(x, int) and x < 0 for x in pads)


def may_be_negative(pad: Dim) -> bool:
    """Return whether a pad of a size is below 0 where that is small, as ``S - 5`` is."""
    if isinstance(pad, int) or pad.value is None:
        return False
    expr = expr_of(pad)
    return any(expr.subs(dict.fromkeys(expr.free_symbols, size)) < 0 for size in _SHORT_SIZES)
