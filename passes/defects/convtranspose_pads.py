"""convtranspose-pads: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_ints, attr_text
from graphfix.ops.windows import convolution_weight, window_of


@dataclass(frozen=True)
class SamePadSite(Match):
    """A strided ConvTranspose with auto_pad=SAME.

    Attributes:
        pads: The pads that make its result as long as ONNX says, starts and then ends.
    """

    pads: tuple[int, ...]


@dataclass(frozen=True)
class ConvtransposePads(NodePass[SamePadSite]):
    """Replaces auto_pad=SAME of a strided ConvTranspose with its pads.

    Why:
        Of an input of T elements ONNX makes T times the stride. Run on onnxruntime-directml 1.24.4,
        one and two dims, kernels of 2 to 5, strides of 2 and 3: DirectML makes one element less, in
        silence where sizes are symbolic; where they are known, no session is made. TensorFlow's
        decoders (U-Net) are written so. As pads the same convolution is right.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        upsample (float[B, 4, H, W] x, float[4, 3, 4, 3] w) => (float[B, 3, I, J] y)
        {
            y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        upsample (float[B, 4, H, W] x, float[4, 3, 4, 3] w) => (float[B, 3, I, J] y)
        {
            y = ConvTranspose <strides = [2, 2], pads = [1, 0, 1, 1]> (x, w)
        }

    Left alone:
        A kernel that is shorter than the stride, "nothing to pad":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        upsample (float[B, 4, T] x, float[4, 3, 2] w) => (float[B, 3, U] y)
        {
            y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [3]> (x, w)
        }

    Safety:
        Exact: the same sums. The pads are the kernel, dilated, and output_padding, less the stride,
        whatever the length; the larger half is at the end with SAME_UPPER and at the start with
        SAME_LOWER, as ONNX Runtime has it. Refused, with the reason: a kernel that is shorter than
        the stride, of which DirectML makes as much as the CPU; weights of unknown size; and
        attributes that are parameters of a local function.
    """

    sentence = "auto_pad=SAME with a stride: DirectML makes one element less than ONNX says"
    anchors = ("ConvTranspose",)

    def match(self, node: ir.Node, view: View) -> SamePadSite | Skip | None:
        """Return the site if DirectML makes another length."""
        if any(x.is_ref() for x in node.attributes.values()):
            return None  # convtranspose-2d says so
        if not _has_strided_same_pads(node):
            return None
        window = window_of(node, view.shapes.dims(convolution_weight(node)))
        if window is None:
            return Skip(node, "the size of its kernel is not known", severity="error")
        missing = [
            reach + more - stride
            for reach, more, stride in zip(
                window.reach, window.output_padding, window.strides, strict=True
            )
        ]
        if min(missing) < 0:
            return Skip(node, "its kernel is shorter than the stride: nothing to pad")
        less = [size // 2 for size in missing]
        more = [size - size // 2 for size in missing]
        is_upper = window.auto_pad == "SAME_UPPER"
        return SamePadSite(node, tuple([*less, *more] if is_upper else [*more, *less]))

    def rewrite(self, match: SamePadSite, op: Builder) -> ir.Value:
        """Build the same convolution, with pads."""
        attributes = {name: x.value for name, x in match.node.attributes.items()}
        del attributes["auto_pad"]
        return op.ConvTranspose(*match.node.inputs, **{**attributes, "pads": match.pads})


def _has_strided_same_pads(node: ir.Node) -> bool:
    """Return whether DirectML computes the pads, with a stride, from the size of the input."""
    is_same = attr_text(node, "auto_pad", "").startswith("SAME")
    is_strided = max(attr_ints(node, "strides") or (1,)) > 1
    return is_same and is_strided and "output_shape" not in node.attributes
