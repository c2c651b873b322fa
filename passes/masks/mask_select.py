"""mask-select: the manual is the docstring of the class."""

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of
from graphfix.graph.nodes import is_op, producer_of

from ..common.fusible import FLOATS, only_user

# Numbers that a constant may be expanded to: heads, and not places.
_MAX_EXPANDED_SIZE = 1024
# The opset that Where begins with.
_WHERE = 9


@dataclass(frozen=True)
class SelectSite(Match):
    """A tensor of two constants that a boolean chooses between.

    Attributes:
        truth: The boolean.
        when_true: The value where it is true.
        when_false: The value elsewhere.
    """

    truth: ir.Value
    when_true: Array
    when_false: Array


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

    Left alone:
        A factor that is no constant:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        weigh (float[B, 4, T, T] scores, bool[B, 1, T, T] seen) => (float[B, 4, T, T] y)
        {
            n = Cast <to = 1> (seen)
            addend = Mul (n, scores)
            y = Add (scores, addend)
        }

    Safety:
        Exact, to the sign of a zero. A Cast that something else reads stays, and so does a floor
        that is not finite, since 0 times infinity is NaN.
    """

    sentence = "a mask is cast, multiplied or expanded, where one Where of two constants would do"
    anchors = ("Mul", "Expand")

    def match(self, node: ir.Node, view: View) -> SelectSite | Skip | None:
        """Return the site if one Where of two constants can make the addend."""
        site = _match_expanded(node) if is_op(node, "Expand") else _match_product(node, view)
        if site is not None and view.opset_of_node(node) < _WHERE:
            return Skip(node, f"Where begins with opset {_WHERE}: convert the model to it")
        return site

    def rewrite(self, match: SelectSite, op: Builder) -> ir.Value:
        """Build ``Where(truth, when_true, when_false)``."""
        return op.Where(match.truth, match.when_true, match.when_false)


def _match_product(node: ir.Node, view: View) -> SelectSite | None:
    """Return the site of a floor times a boolean, or None."""
    for factor, value in (node.inputs, node.inputs[::-1]):
        floor, cast = const_of(factor), producer_of(value)
        if floor is None or floor.size != 1 or not np.isfinite(floor).all():
            continue
        if not is_op(cast, "Cast") or only_user(cast) is not node or cast.inputs[0] is None:
            continue
        types = (view.shapes.dtype(cast.inputs[0]), view.shapes.dtype(node.outputs[0]))
        if types[0] != ir.DataType.BOOL or types[1] not in FLOATS:
            continue
        inverted = producer_of(cast.inputs[0])
        zero = np.zeros((), floor.dtype)
        if is_op(inverted, "Not") and inverted.inputs[0] is not None:
            return SelectSite(node, inverted.inputs[0], zero, floor)
        return SelectSite(node, cast.inputs[0], floor, zero)
    return None


def _match_expanded(node: ir.Node) -> SelectSite | None:
    """Return the site of a Where of two constants that is expanded, or None."""
    where, shape = producer_of(node.inputs[0]), const_of(node.inputs[1])
    if not is_op(where, "Where") or only_user(where) is not node or where.inputs[0] is None:
        return None
    when_true, when_false = (const_of(x) for x in where.inputs[1:])
    if (
        shape is None
        or when_true is None
        or when_false is None
        or max(when_true.size, when_false.size) > 1
    ):
        return None
    # What is expanded may have more dims than the shape says.
    sizes = np.broadcast_shapes(when_true.shape, tuple(map(int, shape)))
    if not 0 < math.prod(sizes) <= _MAX_EXPANDED_SIZE:
        return None
    return SelectSite(node, where.inputs[0], np.full(sizes, when_true), when_false)
