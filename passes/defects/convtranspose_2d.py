"""convtranspose-2d: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import AttrValue, Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_ints

from ..common.reshape_targets import with_axes

# The entry that each attribute gets for the new axis, along which nothing is computed.
_NEUTRAL = {"strides": 1, "dilations": 1, "output_padding": 0, "output_shape": 1, "kernel_shape": 1}
_AXIS = (2,)


@dataclass(frozen=True)
class LineSite(Match):
    """A 1-D ConvTranspose with output_padding.

    Attributes:
        data: The input of the convolution.
        weight: The kernel.
        has_zero_padding: Whether output_padding is 0, so that the attribute can be removed.
    """

    data: ir.Value
    weight: ir.Value
    has_zero_padding: bool


@dataclass(frozen=True)
class Convtranspose2d(NodePass[LineSite]):
    """Rewrites a 1-D ConvTranspose with output_padding as a 2-D one of height 1.

    If its output_padding is 0, as torch's dynamo exporter writes it, the attribute goes instead.

    Why:
        DirectML refuses it with 80070057, at the first run or, in a static model, when the session
        is made. Run on onnxruntime-directml 1.24.4, in all combinations with stride, dilation,
        groups, bias and pads: every 1-D ConvTranspose fails that has the attribute output_padding,
        even if it is 0; every one without runs, and so does every one in 2-D. It is the next error
        of speech decoders (Qwen3-TTS, VITS) after that of reshape-allowzero.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        upsample (float[B, 4, T] x, float[4, 3, 4] w) => (float[B, 3, U] y, float[B, 3, V] z)
        {
            y = ConvTranspose <strides = [2], pads = [1, 1], output_padding = [1]> (x, w)
            z = ConvTranspose <strides = [2], pads = [1, 1], output_padding = [0]> (x, w)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        upsample (float[B, 4, T] x, float[4, 3, 4] w) => (float[B, 3, U] y, float[B, 3, V] z)
        <int64[1] axis = {2}>
        {
            row = Unsqueeze (x, axis)
            kernel = Unsqueeze (w, axis)
            wide = ConvTranspose <strides = [1, 2], pads = [0, 1, 0, 1], output_padding = [0, 1]>
                (row, kernel)
            y = Squeeze (wide, axis)
            z = ConvTranspose <strides = [2], pads = [1, 1]> (x, w)
        }

    Left alone:
        An output_padding that ONNX Runtime refuses as well, "not below the stride":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        up (float[B, 4, T] x, float[4, 6, 4] w) => (float[B, 6, U] y)
        {
            y = ConvTranspose <strides = [2], output_padding = [2]> (x, w)
        }

    Safety:
        Exact: the same sums. The weight is not copied; a constant one is unsqueezed when the model
        is loaded. Refused, with the reason: attributes that are parameters of a local function;
        output_padding that is not below the stride, which ONNX Runtime 1.24.4 runs in 1-D, and in
        2-D with other numbers (1.32 refuses it); and auto_pad=SAME_UPPER or SAME_LOWER with a
        stride, of which convtranspose-pads writes the pads.
    """

    name = "convtranspose-2d"
    sentence = "a 1-D ConvTranspose has output_padding: DirectML refuses it with 80070057"
    anchors = ("ConvTranspose",)

    def match(self, node: ir.Node, view: View) -> LineSite | Skip | None:
        """Return the site if DirectML refuses the 1-D ConvTranspose."""
        data, weight = node.inputs[:2]
        if data is None or weight is None:
            return None
        if "output_padding" in node.attributes and any(
            x.is_ref() for x in node.attributes.values()
        ):
            return Skip(node, "its attributes are parameters of the local function it is in")
        if _has_same_auto_pad(node) and max(attr_ints(node, "strides") or (1,)) > 1:
            return Skip(node, "auto_pad=SAME with a stride: convtranspose-pads comes first")
        padding = attr_ints(node, "output_padding")
        if padding is None or len(padding) != 1:
            return None
        if padding[0] >= (stride := (attr_ints(node, "strides") or (1,))[0]):
            return Skip(
                node,
                f"output_padding is {padding[0]} and not below the stride, {stride}: ONNX Runtime "
                "1.32 refuses that, and 1.24 gives other numbers in 2-D",
            )
        return LineSite(node, data, weight, padding == (0,))

    def rewrite(self, match: LineSite, op: Builder) -> ir.Value:
        """Build a 2-D ConvTranspose, or the same node without output_padding."""
        optional_inputs = match.node.inputs[2:]
        attributes = {name: x.value for name, x in match.node.attributes.items()}
        if match.has_zero_padding:
            del attributes["output_padding"]
            return op.ConvTranspose(match.data, match.weight, *optional_inputs, **attributes)
        row = with_axes("Unsqueeze", match.data, _AXIS, op)
        kernel = op.build_once(
            ("kernel", match.weight),
            lambda: with_axes("Unsqueeze", match.weight, _AXIS, op),
            match.weight,
        )
        wide = op.ConvTranspose(
            row,
            kernel,
            *optional_inputs,
            **{k: _attribute_in_2d(k, x) for k, x in attributes.items()},
        )
        return with_axes("Squeeze", wide, _AXIS, op)


def _has_same_auto_pad(node: ir.Node) -> bool:
    """Return whether auto_pad is SAME, so that DirectML computes the pads."""
    pad = node.attributes.get("auto_pad")
    if pad is None or pad.is_ref() or "output_shape" in node.attributes:
        return False
    return pad.as_string().startswith("SAME")


def _attribute_in_2d(name: str, value: AttrValue) -> AttrValue:
    """Return a 1-D attribute with an entry for a first axis of length 1."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    if name == "pads":
        pads = [int(x) for x in value]
        return [0, pads[0], 0, pads[1]]
    return [_NEUTRAL[name], *value]
