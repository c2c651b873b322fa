"""older-operators: the manual is the docstring of the class."""

import math
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, Shapes, same_dim
from graphfix.facts.symbolic.sums import add_dims
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_float, attr_int, input_at, value_before
from graphfix.ops.norms import epsilon_of

from ..common.fusible import FLOATS
from ._attention_parts import (
    build_scores,
    causal_addend,
    join_heads,
    repeat_heads,
    split_heads,
)


@dataclass(frozen=True)
class OlderOperators(NodePass[Match]):
    """Replaces operators that are new in opset 21 or 23 with those that DirectML has.

    Attention becomes two products, a mask and a Softmax, as torch writes it below opset 23, with a
    guard for rows that are masked throughout, behind the Concats of its caches; RMSNormalization
    becomes SimplifiedLayerNormalization, and RotaryEmbedding what turns each half of the features.
    GroupNormalization becomes an InstanceNormalization of groups, as torch writes it below opset
    21.

    Why:
        DirectML has none of the four. Each but the GroupNormalization runs on the CPU, with a copy
        of its inputs and outputs, and opset-ceiling must leave the model where it is, so that Cast,
        Reshape, Transpose and others go to the CPU as well. By `graphfix plan` a BERT of three
        layers, exported by torch 2.13 at opset 23, takes 98 kernels in all; after the profile
        `fast` 57 were left, 21 of them on the CPU, and 33 with this pass, one of them there. Of a
        GroupNormalization ONNX Runtime makes 25 kernels: a WavLM of three layers from opset 23 has
        126 on the device after `fast`, and 150 where it stays. Run on onnxruntime-directml 1.24.4
        after `fast`: a BERT, a T5 encoder and a Whisper encoder compute what they do on the CPU as
        exported, within 2.4e-6, and that WavLM within 1.6e-5.

    Before:
        <
            ir_version: 10,
            opset_import: ["" : 23]
        >
        sdpa (float[B, 2, T, 4] q, float[B, 2, S, 4] k, float[B, 2, S, 4] v, bool[T, S] m) =>
            (float[B, 2, T, 4] y)
        {
            y = Attention (q, k, v, m)
        }

    After:
        <
            ir_version: 10,
            opset_import: ["" : 23]
        >
        sdpa (float[B, 2, T, 4] q, float[B, 2, S, 4] k, float[B, 2, S, 4] v, bool[T, S] m) =>
            (float[B, 2, T, 4] y)
        <float half = {0.5}, float zero = {0.0}, float low = {-inf}>
        {
            columns = Transpose <perm = [0, 1, 3, 2]> (k)
            products = MatMul (q, columns)
            scores = Mul (products, half)
            bias = Where (m, zero, low)
            masked = Add (scores, bias)
            weights = Softmax <axis = -1> (masked)
            broken = IsNaN (weights)
            kept = Where (broken, zero, weights)
            y = MatMul (kept, v)
        }

    Left alone:
        Attention of other types, "it is not of float32 or float16":
        <
            ir_version: 10,
            opset_import: ["" : 23]
        >
        attend (double[B, 4, T, 6] q, double[B, 4, S, 6] k) => (double[B, 4, T, 6] y)
        {
            y = Attention (q, k, k)
        }

    Safety:
        Exact, except rounding, where all scores are numbers: a row of NaN, of which the guard knows
        nothing else than that it is one, becomes 0; and a row whose addends are all the least
        float, no infinity, is the mean, where ONNX Runtime's CPU has 0. Refused, with the reason:
        attributes that only a newer opset has, such as a window; an Attention with a softcap,
        scores as an output, a number of keys for each row or a mask not seen to be as long as the
        keys; heads whose number is not known; a RotaryEmbedding with ids of positions, of
        some features only, of pairs or of three axes; an RMSNormalization of several axes; a
        GroupNormalization of an unknown number of channels.
    """

    safety = "conditional"
    anchors = ("Attention", "GroupNormalization", "RMSNormalization", "RotaryEmbedding")

    def match(self, node: ir.Node, view: View) -> Match | Skip | None:
        """Return the site if the operator is new in opset 21 or 23."""
        recipe = _RECIPES[node.op_type]
        if view.opset_of_node(node) < recipe.first_opset:
            return None
        if view.shapes.dtype(node.inputs[0]) not in FLOATS:
            return Skip(node, "it is not of float32 or float16")
        if any(x.is_ref() or name not in recipe.attributes for name, x in node.attributes.items()):
            return Skip(node, "it has an attribute that this pass does not know")
        reason = recipe.reason_against(node, view)
        return Match(node) if reason is None else Skip(node, reason)

    def message(self, site: Match) -> str:
        """Describe which opset the operator is new in."""
        kind = site.node.op_type
        return f"{kind} is new in opset {_RECIPES[kind].first_opset}: DirectML does not have it"

    def rewrite(self, match: Match, op: Builder) -> ir.Value | tuple[ir.Value, ...]:
        """Build the same from older operators."""
        return _RECIPES[match.node.op_type].build(match.node, op)


@dataclass(frozen=True)
class _Recipe:
    """How one operator is replaced.

    Attributes:
        first_opset: The opset that introduced the operator, or changed its meaning.
        attributes: The attributes that ``build`` reads or may ignore; a newer version has more.
        reason_against: Returns why a node is kept, or None.
        build: Builds the same from older operators.
    """

    first_opset: int
    attributes: AbstractSet[str]
    reason_against: Callable[[ir.Node, View], str | None]
    build: Callable[[ir.Node, Builder], ir.Value | tuple[ir.Value, ...]]


def _reason_against_attention(node: ir.Node, view: View) -> str | None:
    """Return why an Attention is kept, or None."""
    if any(x.uses() or x.is_graph_output() for x in node.outputs[3:]):
        return "it gives its scores as well"
    if any(x is not None for x in node.inputs[6:]):
        return "it is told how many keys of each row count"
    if attr_float(node, "softcap", 0.0) or attr_int(node, "softmax_precision", 1) != 1:
        return "it has a softcap, or another precision for its Softmax"
    return _reason_against_heads(node, view) or _reason_against_mask(node, view)


def _reason_against_heads(node: ir.Node, view: View) -> str | None:
    """Return why the heads of an Attention are not known, or None."""
    if not all(view.shapes.rank(x) in (3, 4) for x in node.inputs[:3]):
        return "its queries, keys and values are not seen to have three or four axes"
    if any(_head_dims(node, place, view.shapes) is None for place in range(3)):
        return "the number of its heads, or of their features, is not known"
    return None


def _head_dims(node: ir.Node, place: int, known: Shapes) -> tuple[int, Dim, int] | None:
    """Return the heads, rows and features of queries, keys or values; None if not known."""
    dims = known.dims(node.inputs[place]) or ()
    if len(dims) == 3:
        heads = attr_int(node, "kv_num_heads" if place else "q_num_heads", 0)
        width = dims[2]
        if not heads or not isinstance(width, int) or width % heads:
            return None
        return heads, dims[1], width // heads
    if len(dims) != 4:
        return None
    _, own_heads, rows, features = dims
    if not isinstance(own_heads, int) or not isinstance(features, int):
        return None
    return own_heads, rows, features


def _reason_against_mask(node: ir.Node, view: View) -> str | None:
    """Return why the mask of an Attention cannot be added to its scores, or None."""
    mask = input_at(node, 3)
    if mask is None:
        return None
    dims, keys, past = view.shapes.dims(mask), _head_dims(node, 1, view.shapes), input_at(node, 4)
    past_dims = view.shapes.dims(past) if past is not None else (0, 0, 0, 0)
    total = None if keys is None or past_dims is None else add_dims(past_dims[2], keys[1])
    if not dims or total is None or not same_dim(dims[-1], total):
        return "its mask is not seen to be as long as its keys"
    fitting_types = (ir.DataType.BOOL, view.shapes.dtype(node.inputs[0]))
    has_fitting_type = view.shapes.dtype(mask) in fitting_types
    return None if has_fitting_type else "its mask is of another type than its queries"


def _build_attention(node: ir.Node, op: Builder) -> tuple[ir.Value, ...]:
    """Build two products, a mask and a Softmax, as torch does below opset 23, and the caches."""
    mask = input_at(node, 3)
    mask_array = const_of(value_before(mask, "Expand"))
    if mask_array is not None and mask_array.dtype == np.bool_ and mask_array.all():
        mask = None
    shapes = op.view.shapes
    number = (shapes.dtype(node.inputs[0]) or ir.DataType.FLOAT).numpy()
    query, new_keys, new_values = (_apart_by_head(node, place, op) for place in range(3))
    caches = [
        x if past is None else op.Concat(past, x, axis=2)
        for past, x in ((input_at(node, 4), new_keys), (input_at(node, 5), new_values))
    ]
    heads, _, width = _head_dims(node, 0, shapes) or (1, 1, 1)
    keys, values = (_with_heads(x, node, i + 1, heads, op) for i, x in enumerate(caches))
    scale = np.array(attr_float(node, "scale", 1 / math.sqrt(width)), number)
    zero, low = np.array(0, number), np.array(-np.inf, number)
    scores = build_scores(query, keys, op, scale=scale)
    if mask is not None:
        is_bool = shapes.dtype(mask) == ir.DataType.BOOL
        scores = op.Add(scores, op.Where(mask, zero, low) if is_bool else mask)
    if attr_int(node, "is_causal", 0):
        addend = causal_addend(query, caches[0], input_at(node, 4), op, low=low)
        scores = op.Add(scores, addend)
    weights = op.Softmax(scores, axis=-1)
    if mask is not None:
        weights = op.Where(op.IsNaN(weights), zero, weights)
    result = op.MatMul(weights, values)
    return (join_heads(result, op) if shapes.rank(node.inputs[0]) == 3 else result, *caches)


def _with_heads(value: ir.Value, node: ir.Node, place: int, heads: int, op: Builder) -> ir.Value:
    """Build keys or values with as many heads as the queries."""
    own_heads, _, features = _head_dims(node, place, op.view.shapes) or (heads, 1, 1)
    return repeat_heads(value, own_heads, heads, features, op)


def _apart_by_head(node: ir.Node, place: int, op: Builder) -> ir.Value:
    """Build queries, keys or values with an axis of heads."""
    value = node.inputs[place]
    assert value is not None
    if op.view.shapes.rank(value) == 4:
        return value
    heads, _, features = _head_dims(node, place, op.view.shapes) or (1, 1, 1)
    return split_heads(value, heads, features, op)


def _reason_against_rms_norm(node: ir.Node, view: View) -> str | None:
    """Return why an RMSNormalization is kept, or None."""
    last = attr_int(node, "axis", -1) in (-1, (view.shapes.rank(node.inputs[0]) or 0) - 1)
    fits = last and view.shapes.rank(node.inputs[1]) == 1
    return None if fits else "it is over several axes, or its scale is not for the last one"


def _build_rms_norm(node: ir.Node, op: Builder) -> ir.Value:
    """Build ONNX Runtime's SimplifiedLayerNormalization."""
    return op.SimplifiedLayerNormalization(*node.inputs, axis=-1, epsilon=epsilon_of(node))


def _reason_against_group_norm(node: ir.Node, view: View) -> str | None:
    """Return why a GroupNormalization is kept, or None."""
    dims = view.shapes.dims(node.inputs[0])
    is_static = dims is not None and len(dims) > 2 and isinstance(dims[1], int)
    return None if is_static else "the number of its channels is not known"


def _build_group_norm(node: ir.Node, op: Builder) -> ir.Value:
    """Build an InstanceNormalization of groups, as torch does below opset 21."""
    data, *scale_and_bias = node.inputs
    dims, groups = op.view.shapes.dims(data) or (), attr_int(node, "num_groups", 1)
    number = (op.view.shapes.dtype(data) or ir.DataType.FLOAT).numpy()
    flat = op.Reshape(data, np.array([0, groups, -1], np.int64))
    identity_scale = (np.ones(groups, number), np.zeros(groups, number))
    rows = op.InstanceNormalization(flat, *identity_scale, epsilon=epsilon_of(node))
    channel_shape = np.array([dims[1], *[1] * (len(dims) - 2)], np.int64)
    scale, bias = (op.Reshape(x, channel_shape) for x in scale_and_bias)
    return op.Add(op.Mul(op.Reshape(rows, op.Shape(data)), scale), bias)


def _reason_against_rotary(node: ir.Node, view: View) -> str | None:
    """Return why a RotaryEmbedding is kept, or None."""
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        return "it looks up the angles of positions"
    if attr_int(node, "interleaved", 0):
        return "it turns pairs of features"
    dims, angles = (view.shapes.dims(x) for x in node.inputs[:2])
    if dims is None or len(dims) != 4 or angles is None or not isinstance(angles[-1], int):
        return "its data are not seen to have four axes"
    return None if dims[-1] == 2 * angles[-1] else "it turns some of the features only"


def _build_rotary(node: ir.Node, op: Builder) -> ir.Value:
    """Build ``x * cos + rotate(x) * sin``."""
    data, *angles = node.inputs[:3]
    half = (op.view.shapes.dims(angles[0]) or (None,))[-1]
    assert isinstance(half, int)
    heads = np.array([1], np.int64)
    cos, sin = (op.Unsqueeze(op.Concat(x, x, axis=-1), heads) for x in angles)
    first, second = op.make_outputs("Split", (True, True), data, np.array([half, half]), axis=3)
    return op.Add(op.Mul(data, cos), op.Mul(op.Concat(op.Neg(second), first, axis=-1), sin))


_RECIPES = {
    "GroupNormalization": _Recipe(
        21, {"num_groups", "epsilon", "stash_type"}, _reason_against_group_norm, _build_group_norm
    ),
    "Attention": _Recipe(
        23,
        {"scale", "is_causal", "softcap", "softmax_precision", "qk_matmul_output_mode"}
        | {"q_num_heads", "kv_num_heads"},
        _reason_against_attention,
        _build_attention,
    ),
    "RMSNormalization": _Recipe(
        23, {"axis", "epsilon", "stash_type"}, _reason_against_rms_norm, _build_rms_norm
    ),
    "RotaryEmbedding": _Recipe(
        23,
        {"interleaved", "num_heads", "rotary_embedding_dim"},
        _reason_against_rotary,
        _build_rotary,
    ),
}
