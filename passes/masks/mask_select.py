"""mask-select: the manual is the docstring of the class."""

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of
from graphfix.graph.nodes import is_op, maker_of

from ..common.fusible import FLOATS, only_user

# Numbers that a constant may be expanded to: heads, and not places.
_MOST = 1024


@dataclass(frozen=True)
class SelectSite(Match):
    """A tensor of one constant where a boolean is true, and of another elsewhere.

    Attributes:
        truth: The boolean.
        there: What it is where that is true.
        elsewhere: What it is elsewhere.
    """

    truth: ir.Value
    there: Array
    elsewhere: Array


@dataclass(frozen=True)
class MaskSelect(NodePass[SelectSite]):
    """Makes the addend of a mask with one Where of two constants.

    A boolean that is cast and multiplied with the floor, perhaps behind a Not, becomes a Where of
    the floor and 0. Where that is then expanded over the heads by a constant shape, the floor has
    that shape. Scores are still masked by an Add: what is chosen is the mask alone, once a model.

    Why:
        Not, Cast, Mul and Expand are four kernels on DirectML, and a Where is one; DirectML
        has it in every type of floats (OperatorRegistration.cpp). Of 264 exports 104 have such a
        mask after additive-mask, 78 of them with a Not. Run on onnxruntime-directml 1.24.4 in
        Llama, Qwen3, BLOOM, Gemma 2, Whisper and WavLM: they agree with the CPU.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        masked (float[B, 4, T, T] scores, bool[B, 1, T, T] visible) => (float[B, 4, T, T] y)
        <float floor = {-10000.0}>
        {
            hidden = Not (visible)
            as_float = Cast <to = 1> (hidden)
            addend = Mul (as_float, floor)
            y = Add (scores, addend)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        masked (float[B, 4, T, T] scores, bool[B, 1, T, T] visible) => (float[B, 4, T, T] y)
        <float floor = {-10000.0}, float zero = {0.0}>
        {
            addend = Where (visible, zero, floor)
            y = Add (scores, addend)
        }

    Safety:
        Exact, to the sign of a zero. A Cast that something else reads stays, and so does a floor
        that is not finite, since 0 times infinity is NaN.
    """

    sentence = "a mask is cast, multiplied or expanded, where one Where of two constants would do"
    anchors = ("Mul", "Expand")

    def match(self, node: ir.Node, view: View) -> SelectSite | None:
        """A floor times a boolean; or a Where of two constants, expanded."""
        return _expanded(node) if is_op(node, "Expand") else _product(node, view)

    def rewrite(self, match: SelectSite, op: Builder) -> ir.Value:
        """``Where(truth, there, elsewhere)``."""
        return op.Where(match.truth, match.there, match.elsewhere)


def _product(node: ir.Node, view: View) -> SelectSite | None:
    for factor, value in (node.inputs, node.inputs[::-1]):
        floor, cast = const_of(factor), maker_of(value)
        if floor is None or floor.size != 1 or not np.isfinite(floor).all():
            continue
        if not is_op(cast, "Cast") or only_user(cast) is not node or cast.inputs[0] is None:
            continue
        types = (view.shapes.dtype(cast.inputs[0]), view.shapes.dtype(node.outputs[0]))
        if types[0] != ir.DataType.BOOL or types[1] not in FLOATS:
            continue
        inverted = maker_of(cast.inputs[0])
        nothing = np.zeros((), floor.dtype)
        if is_op(inverted, "Not") and inverted.inputs[0] is not None:
            return SelectSite(node, inverted.inputs[0], nothing, floor)
        return SelectSite(node, cast.inputs[0], floor, nothing)
    return None


def _expanded(node: ir.Node) -> SelectSite | None:
    where, shape = maker_of(node.inputs[0]), const_of(node.inputs[1])
    if not is_op(where, "Where") or only_user(where) is not node or where.inputs[0] is None:
        return None
    there, elsewhere = (const_of(x) for x in where.inputs[1:])
    if shape is None or there is None or elsewhere is None or max(there.size, elsewhere.size) > 1:
        return None
    # What is expanded may have more dims than the shape says.
    sizes = np.broadcast_shapes(there.shape, tuple(map(int, shape)))
    if not 0 < math.prod(sizes) <= _MOST:
        return None
    return SelectSite(node, where.inputs[0], np.full(sizes, there), elsewhere)
