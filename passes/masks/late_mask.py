"""late-mask: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.facts.zero_one import zero_one_sources
from graphfix.graph.nodes import attr_ints, is_op

from ..common.fusible import FLOATS
from ..common.lookup import exclusive_producer

_RELUS = ("Relu", "LeakyRelu")


@dataclass(frozen=True)
class EarlyMask(Match):
    """What is computed of a product with a mask, and could be masked then.

    Attributes:
        data: What is masked.
        mask: The mask.
        steps: What is computed, in order.
    """

    data: ir.Value
    mask: ir.Value
    steps: tuple[ir.Node, ...]


@dataclass(frozen=True)
class LateMask(NodePass[EarlyMask]):
    """Masks once, behind the Relu or the convolution over single frames, not before it.

    The subsampling of Parakeet and Nemotron masks padded frames behind each convolution. A Relu of
    what is masked is the Relu, masked, and the convolution before it takes that; a convolution over
    single frames leaves padding in its place, which the mask behind it hides anyway.

    Why:
        Each is a kernel of its own on DirectML, over all frames. By `graphfix plan` the profile
        `fast` leaves 172 kernels of a Parakeet of three layers on the device where 177 were, and
        190 of a streaming Nemotron where 193 were. Run on onnxruntime-directml 1.24.4, both agree
        with the CPU (1.4e-6 and 1.2e-6).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        masked (float[B, 2, T] x, bool[B, 1, T] valid) => (float[B, 2, T] y)
        <float[2, 2, 1] w = {1, 2, 3, 4}, float[2] b = {1, 2}>
        {
            mask = Cast <to = 1> (valid)
            before = Mul (x, mask)
            frames = Conv (before, w, b)
            behind = Mul (frames, mask)
            y = Relu (behind)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        masked (float[B, 2, T] x, bool[B, 1, T] valid) => (float[B, 2, T] y)
        <float[2, 2, 1] w = {1, 2, 3, 4}, float[2] b = {1, 2}>
        {
            mask = Cast <to = 1> (valid)
            unmasked = Conv (x, w, b)
            relu = Relu (unmasked)
            y = Mul (relu, mask)
        }

    Safety:
        Exact, to the sign of a zero, for finite numbers: what is masked is computed and then
        multiplied with 0. A mask that is not proved to be 0 and 1 stays where it is, and so does
        one that differs from channel to channel before a convolution.
    """

    sentence = "a mask before what could be computed without it"
    anchors = ("Mul", "Relu", "LeakyRelu")

    def match(self, node: ir.Node, view: View) -> EarlyMask | None:
        """A Relu of a masked convolution; or the second of two products with one mask."""
        if view.shapes.dtype(node.outputs[0]) not in FLOATS:
            return None
        if is_op(node, *_RELUS):
            found = _masked(node.inputs[0], (node,), view)
            return next((x for x in found if exclusive_producer(x.data, "Conv") is not None), None)
        for value, mask in (node.inputs, node.inputs[::-1]):
            relu = exclusive_producer(value, *_RELUS)
            conv = exclusive_producer(relu.inputs[0] if relu else value, "Conv")
            if conv is None or not _is_by_frame(conv, mask, view):
                continue
            site = next(_masked(conv.inputs[0], (conv, relu) if relu else (conv,), view), None)
            if site is not None and site.mask is mask:
                return replace(site, node=node)
        return None

    def rewrite(self, match: EarlyMask, op: Builder) -> ir.Value:
        """What is computed, and then the mask."""
        made = match.data
        for step in match.steps:
            made = op.clone_node(step, made, *step.inputs[1:])
        return op.Mul(made, match.mask)


def _masked(value: ir.Value | None, steps: tuple[ir.Node, ...], view: View) -> Iterator[EarlyMask]:
    """The ways in which ``value`` is a product with a mask that is 0 and 1, and no larger."""
    product = exclusive_producer(value, "Mul")
    for data, mask in (product.inputs, product.inputs[::-1]) if product is not None else ():
        if data is None or mask is None or zero_one_sources(mask, view) != []:
            continue
        if same_dims(view.shapes.dims(data), view.shapes.dims(value)):
            yield EarlyMask(steps[-1], data, mask, steps)


def _is_by_frame(conv: ir.Node, mask: ir.Value | None, view: View) -> bool:
    """Whether a Conv makes each frame of that frame alone, of which a mask takes all channels."""
    dims = view.shapes.dims(conv.inputs[1])
    sizes = view.shapes.dims(mask)
    if not dims or not sizes or len(sizes) != len(dims) or sizes[1] != 1:
        return False
    strides, pads = (attr_ints(conv, x) or () for x in ("strides", "pads"))
    return set(dims[2:]) == {1} and {*strides} <= {1} and {*pads} <= {0}
