"""drop-nan-guard: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import NodePass, Skip, ValueMatch
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.text import node_label

from .sites.finite_range import FiniteBounds
from .sites.where_masks import condition_of, keeps_shape, softmax_of, where_mask_of


@dataclass(frozen=True)
class DropNanGuard(NodePass[ValueMatch]):
    """Removes the guard Where(IsNaN(p), 0, p) after a Softmax that cannot give NaN.

    A Softmax makes NaN of a row that is -inf throughout, or that holds inf or NaN. Every addend and
    mask before it is followed back to constants and to what MatMul computes, and their bounds are
    added up: no -inf, no two masks of float minimum on top of each other. Run it after
    additive-mask, which makes finite what is not.

    Why:
        torch writes the guard with every SDPA that it exports: an IsNaN and a Where over
        [B, H, T, T], two dispatches a layer on DirectML. With a mask that is finite it does
        nothing. In 14 such exports of transformers models all lose it after additive-mask. With it
        an attention is not fused: of a Qwen2 of three layers in float16, by dynamo, 103 of 273
        kernels are left by `graphfix plan`, and 131 where the guard stays.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        sdpa (float[B, 4, 2, 8] q, float[B, 4, 8, 2] k) => (float[B, 4, 2, 2] kept)
        <float[2, 2] causal = {0.0, -10000.0, 0.0, 0.0}, float nought = {0.0}>
        {
            scores = MatMul (q, k)
            masked = Add (scores, causal)
            weights = Softmax <axis = -1> (masked)
            broken = IsNaN (weights)
            kept = Where (broken, nought, weights)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        sdpa (float[B, 4, 2, 8] q, float[B, 4, 8, 2] k) => (float[B, 4, 2, 2] kept)
        <float[2, 2] causal = {0.0, -10000.0, 0.0, 0.0}>
        {
            scores = MatMul (q, k)
            masked = Add (scores, causal)
            weights = Softmax <axis = -1> (masked)
            kept = Identity (weights)
        }

    Left alone:
        A guard the other way round, "it keeps what is NaN and sets the rest to 0":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        weigh (float[B, H, 4, 8] q, float[B, H, 8, 4] k) => (float[B, H, 4, 4] y)
        <float zero = {0.0}>
        {
            scores = MatMul (q, k)
            p = Softmax <axis = -1> (scores)
            broken = IsNaN (p)
            y = Where (broken, p, zero)
        }

    Safety:
        Exact as long as what MatMul, Gemm, Conv, Einsum or a normalisation computes is finite and
        below 1e30, or in float16 5e4, which the change says in its note: the guard then guards
        nothing. Where activations overflow, a NaN that was made 0 shows again. Refused, with the
        reason: -inf in a constant or, unseen, from an input; sums beyond the type; Log, Exp and
        whatever else may make an infinity; a type that is not known, as in local functions.
    """

    sentence = "the Softmax before this NaN guard cannot make NaN: the guard does nothing"
    safety = "conditional"
    anchors = ("Where",)

    def match(self, node: ir.Node, view: View) -> ValueMatch | Skip | None:
        """Return the site if the node guards a Softmax that cannot make NaN."""
        select = where_mask_of(node)
        if select is None or select.fill.number != 0:
            return None
        guard = condition_of(select.condition, view, when=select.fill_when)
        nan_test, softmax = guard.root.producer(), softmax_of(select.data)
        if not is_op(nan_test, "IsNaN") or nan_test.inputs[0] is not select.data or softmax is None:
            return None
        if not guard.when:
            return Skip(node, "it keeps what is NaN and sets the rest to 0")
        rank = view.shapes.rank(select.data) or 1
        single = select.fill.rank is not None and select.fill.rank <= rank
        if not single and not keeps_shape(node.outputs[0], select.data, view):
            return Skip(node, f"its zero may be larger than {select.data.name!r}")
        bounds = FiniteBounds(view).bounds_of(softmax.inputs[0])
        if isinstance(bounds, str):
            return Skip(node, f"Softmax {node_label(softmax)!r} may make NaN: {bounds}")
        is_float16 = view.shapes.dtype(select.data) == ir.DataType.FLOAT16
        return ValueMatch(node, select.data, note="takes it that no score is over 5e4" * is_float16)

    def rewrite(self, match: ValueMatch, op: Builder) -> ir.Value:
        """Return the weights without the guard."""
        return match.value
