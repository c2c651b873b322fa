"""fuse-attention: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View

from .attention.mha_inputs import (
    build_attention_bias,
    build_key_padding,
    build_product_shape,
    concat_biases,
)
from .attention.operand_path import Past
from .attention.site import Attention, attention_at, shape_readers_of


@dataclass(frozen=True)
class FuseAttention(NodePass[Attention]):
    """Fuses the nodes of an attention into one MultiHeadAttention of com.microsoft.

    It is found at its Softmax between two products (MatMul or Einsum of two computed tensors), and
    followed through whatever splits, merges, turns and scales its tensors: where each axis lies is
    proved from symbolic shapes, never from names. The biases of queries, keys and values go into
    the operator, those that are added to their heads too. Grouped heads are repeated in
    [B, T, H * D]; where keys and values have a past, heads of queries that share one of keys become
    more queries of that head, so that no cache is repeated. A mask of keys that is all that is
    added to the scores becomes ``key_padding_mask``, anything else ``attention_bias``, with the
    other sign where it is subtracted. A rotary embedding before it, of halves or of pairs, of all
    features or of the first, becomes RotaryEmbedding. What many layers share is made once. It
    stands after the profile ``directml``, which makes addends of masks and takes NaN guards away,
    and before passes that fuse an Add.

    Why:
        An attention takes 15 to 30 kernels on DirectML in the exports that were looked at, each of
        them recompiled at another length, most of them over [B, H, T, T]; MultiHeadAttention is one
        kernel on DirectML, CPU and CUDA. onnxscript's rules for it (0.7.2) match half of the places
        in repaired exports: fixed patterns do not see a merged batch [B * H, T, D], a scale that is
        computed, a Mul after the Softmax. Where they match with a mask, DirectML refuses the
        result: it takes ``attention_bias`` as [B, H, T, T] alone, queries, keys and values of rank
        3 alone (80070057 otherwise, run on the real provider), gives other numbers where there is
        a ``key_padding_mask`` beside it (run), and reads no ``unidirectional``
        (DmlOperatorMultiHeadAttention.cpp). RotaryEmbedding is within 3e-7 of the CPU there, also
        with ``interleaved`` and ``rotary_embedding_dim`` (run). GroupQueryAttention is not written:
        it is causal, and DirectML's does not add an ``attention_bias`` (run, off by 1.7), so that
        a mask that is an input has no place in it. MultiHeadAttention takes more queries than new
        keys there (run, 1.5e-7 from the CPU, with and without a past). A bias of heads, as those of
        Transformer-XL, costs a Transpose, a Reshape and an Add more beside it: of a Parakeet of
        three layers 218 kernels were left on the device, and 212 are. Of Llama, Qwen2, Qwen3 and
        Mistral with caches 0.50 to 0.58 of the kernels on the device were left while grouped heads
        were repeated, and are 0.43 to 0.49.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        attention (float[B, T, 32] q, float[B, T, 32] k, float[B, T, 32] v, bool[B, T] hidden)
            => (float[B, T, 32] context)
        <int64[4] split = {0, 0, 2, 16}, int64[3] merge = {0, 0, 32}, float scale = {0.25},
         int64[2] axes = {1, 2}, float floor = {-10000.0}>
        {
            q4 = Reshape (q, split)
            queries = Transpose <perm = [0, 2, 1, 3]> (q4)
            k4 = Reshape (k, split)
            keys = Transpose <perm = [0, 2, 3, 1]> (k4)
            v4 = Reshape (v, split)
            values = Transpose <perm = [0, 2, 1, 3]> (v4)
            products = MatMul (queries, keys)
            scaled = Mul (products, scale)
            hidden4 = Unsqueeze (hidden, axes)
            as_float = Cast <to = 1> (hidden4)
            addend = Mul (as_float, floor)
            scores = Add (scaled, addend)
            weights = Softmax <axis = -1> (scores)
            heads = MatMul (weights, values)
            side_by_side = Transpose <perm = [0, 2, 1, 3]> (heads)
            context = Reshape (side_by_side, merge)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        attention (float[B, T, 32] q, float[B, T, 32] k, float[B, T, 32] v, bool[B, T] hidden)
            => (float[B, T, 32] context)
        {
            visible = Not (hidden)
            mask = Cast <to = 6> (visible)
            context = com.microsoft.MultiHeadAttention
                <num_heads = 2, scale = 0.25, mask_filter_value = -10000.0> (q, k, v, , mask)
        }

    Left alone:
        Scores that are "neither a constant scale nor an addend" away from their product:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        bounded (float[B, 2, T, 8] q, float[B, 2, S, 8] k, float[B, 2, S, 8] v)
            => (float[B, 2, T, 8] y)
        {
            keys = Transpose <perm = [0, 1, 3, 2]> (k)
            products = MatMul (q, keys)
            scores = Tanh (products)
            weights = Softmax <axis = -1> (scores)
            y = MatMul (weights, v)
        }

        Weights that somebody else reads, as what is "also an output":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        read (float[B, 2, T, 8] q, float[B, 2, S, 8] k, float[B, 2, S, 8] v)
            => (float[B, 2, T, 8] y, float[B, 2, T, S] weights)
        {
            keys = Transpose <perm = [0, 1, 3, 2]> (k)
            products = MatMul (q, keys)
            weights = Softmax <axis = -1> (products)
            y = MatMul (weights, v)
        }

        A Softmax that "does not go along the last axis":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        columns (float[B, 2, T, 8] q, float[B, 2, S, 8] k, float[B, 2, S, 8] v)
            => (float[B, 2, T, 8] y)
        {
            keys = Transpose <perm = [0, 1, 3, 2]> (k)
            products = MatMul (q, keys)
            weights = Softmax <axis = -2> (products)
            y = MatMul (weights, v)
        }

        Heads that lie apart already, so that the layout "takes more kernels than it saves":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        apart (float[B, 2, T, 8] q, float[B, 2, S, 8] k, float[B, 2, S, 8] v)
            => (float[B, 2, T, 8] y)
        {
            keys = Transpose <perm = [0, 1, 3, 2]> (k)
            products = MatMul (q, keys)
            weights = Softmax <axis = -1> (products)
            y = MatMul (weights, v)
        }

    Safety:
        Equal to rounding in every row that has a key to look at: the same products, sums and
        Softmax, in another order. A Mul after the Softmax that sets hidden weights to 0 once more
        goes, where it is proved to be 0 only where a mask hides a key: such weights are 0 already.
        In a row that is hidden whole the result was 0 there and is now a mean of the values. A mask
        of integers is taken to hold 0 and 1 alone, which the report then says; one made of booleans
        is so. Where heads share a past, the batch is taken not to be empty, which the report says
        if no node demands it. Keys are as many as values where a MatMul of the weights and the
        values says so.
        Refused, with the reason: weights or scores that somebody else reads; types other than float
        and float16; sizes that are not proved to be equal; an attention that would take as many
        kernels to lay out for the operator, and more, as it saves (one that is alone, of one head,
        with an addend to be expanded).
    """

    sentence = "an attention in pieces, which one MultiHeadAttention computes"
    safety = "valid-rows"
    anchors = ("MatMul", "Einsum")

    def match(self, node: ir.Node, view: View) -> Attention | Skip | None:
        """Return the attention that ends in this product, or why it is skipped."""
        return attention_at(node, view)

    def rewrite(self, match: Attention, op: Builder) -> ir.Value:
        """Build MultiHeadAttention of query, key, value, biases and the key padding mask."""
        for shape in shape_readers_of(match.scores_node, op.view):
            op.insert_before(shape)  # the product would stay for the sake of its size
            op.replace_and_remove(shape.outputs[0], build_product_shape(match.scores_node, op))
        op.insert_before(match.product)
        pasts = [plan.tensor.past for plan in match.operands[1:]]
        inputs = _build_inputs(match, pasts, op)
        while inputs[-1] is None:
            inputs.pop()
        attributes: dict[str, int | float] = {"num_heads": match.sizes.heads, "scale": match.scale}
        if match.key_mask is not None:
            attributes["mask_filter_value"] = match.key_mask.low
        output_flags = [True, *(True for past in pasts if past is not None)]
        outputs = op.make_outputs(
            "com.microsoft.MultiHeadAttention", output_flags, *inputs, **attributes
        )
        for past, present in zip(pasts, outputs[1:], strict=False):
            if past is not None:
                op.replace_value(past.node.outputs[0], present, [past.reader])
                if past.other_readers:
                    op.move_readers_behind(present)
        return match.result.build(match.groups.ungroup_result(outputs[0], op), op)


def _build_inputs(
    match: Attention, pasts: Sequence[Past | None], op: Builder
) -> list[ir.Value | None]:
    """Build query, key, value, bias, key_padding_mask, attention_bias, past_key and past_value."""
    sizes = match.sizes
    query, key, value = (plan.build(plan.tensor.value, op) for plan in match.operands)
    biases = [plan.bias for plan in match.operands]
    if match.groups.group_size > 1 and biases[0] is not None:
        # Heads that become more queries of one head have different biases.
        query, biases[0] = op.Add(query, biases[0]), None
    widths = [sizes.width, sizes.width, match.operands[2].dims[2]]
    dtype = op.view.shapes.dtype(match.operands[0].tensor.value) or ir.DataType.FLOAT
    bias = concat_biases(biases, widths, dtype, op)
    past_values = [None if past is None else past.value for past in pasts]
    key_padding, attention_bias = None, None
    grouped_query = match.groups.group_queries(query, op)
    if match.key_mask is not None:
        key_padding = build_key_padding(match.key_mask, sizes, key, op)
    if match.bias_terms:
        key_sizes = [(key, 1), *((x, 2) for x in past_values[:1] if x is not None)]
        attention_bias = match.groups.repeat_bias(
            build_attention_bias(match.bias_terms, sizes, query, key_sizes, op), op
        )
    return [grouped_query, key, value, bias, key_padding, attention_bias, *past_values]
