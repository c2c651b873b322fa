"""fuse-projections: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_int, input_at, is_op, producer_of
from graphfix.ops.axes import axis_of
from graphfix.ops.products import read_gemm
from graphfix.wording import with_article

from ..common.fold_view import exclusive_producer
from ..common.fusible import FLOATS, MICROSOFT, is_own_constant, is_plain_gemm, only_user
from ..common.reshape_targets import with_axes

_ATTENTION = ops.named(f"{MICROSOFT}.MultiHeadAttention")
# Inputs of MultiHeadAttention after query, key and value; Attention's are others.
_BIAS, _MASK, _ADDEND, _PAST = 3, 4, 5, 6


@dataclass(frozen=True)
class ProjectedSite(Match):
    """An attention whose queries, keys and values are projections of one tensor.

    Attributes:
        data: The tensor, [B, T, D].
        weights: The weights of the three, [D, W] each, or one for all, [D, 3 * W].
        width: W.
        bias: The bias of all three, if one is added before the attention.
        shared_part: Which of the three has another reader.
        gemm: The Gemm that makes all three of [T, D], if a batch of 1 is added behind it.
    """

    data: ir.Value
    weights: tuple[ir.Value, ...]
    width: int
    bias: ir.Value | None = None
    shared_part: ir.Value | None = None
    gemm: ir.Node | None = None


@dataclass(frozen=True)
class BiasSite(Match):
    """The bias of packed queries, keys and values before an attention with a past.

    Attributes:
        product: The product that the bias is added to.
        bias: The bias, [3 * W].
        attention: The attention.
    """

    product: ir.Value
    bias: ir.Value
    attention: ir.Node


@dataclass(frozen=True)
class FuseProjections(NodePass[ProjectedSite | BiasSite]):
    """Fuses the query, key and value projections of one tensor into its attention.

    Three MatMuls of one tensor with weights of the file, and the MultiHeadAttention of what they
    make, become Attention of com.microsoft, which multiplies once, with the weights side by side.
    They are put side by side by a Concat of them in the graph: ONNX Runtime does that once, when it
    loads the model (constant folding). So no weight is read, moved or written twice, however
    large; layers that share their weights share the Concat. One MatMul for all three, with or
    without a bias, and the Split after it become an Attention as well; so does one Gemm of a
    sequence without a batch, as `join-conditions` makes it. One of the three that
    something else reads too has a product of its own: the values, for the memory of SANM; the
    queries, for relative positions. Of an attention with a past, which stays a MultiHeadAttention,
    that bias goes into the attention.

    Why:
        Four kernels become one: on DirectML a self-attention is then a single one, its projections
        included. Run on onnxruntime-directml 1.24.4, dynamic and static: with a mask, with an
        attention bias and with neither it gives the bits that MultiHeadAttention after three
        MatMuls gives there. With a bias and a past MultiHeadAttention was run there in BLOOM, whose
        logits agree with the CPU's (3.9e-5 where values of size 30 are fed). ONNX Runtime's kernel
        for the CPU dies without a bias (a segmentation fault, 1.31), so there always is one, of
        zeros if need be. It is not slower there: 0.77 to 1.02 of the time at 100 to 1500 rows of 64
        to 768 numbers. With a product of its own for the values, by `graphfix plan`, of a SANM
        encoder of three layers 68 kernels are left on the device where 71 were; Paraformer and
        SenseVoice, so repaired, agree with the CPU there (2.5e-6). With one for the queries, 192 of
        a Parakeet of three layers where 198 were. Of a Gemm, 25 of two layers of Qwen3-ASR's
        official encoder, and 23 by TorchScript, where 29 and 27 were; both agree there (1.2e-7).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        attention (float[B, T, 4] x, int32[B, T] seen) => (float[B, T, 4] y)
        <float[4, 4] wq = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] wk = {2, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] wv = {3, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}>
        {
            q = MatMul (x, wq)
            k = MatMul (x, wk)
            v = MatMul (x, wv)
            y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, , seen)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        attention (float[B, T, 4] x, int32[B, T] seen) => (float[B, T, 4] y)
        <float[4, 4] wq = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] wk = {2, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] wv = {3, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[12] none = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}>
        {
            weights = Concat <axis = 1> (wq, wk, wv)
            y = com.microsoft.Attention <num_heads = 2> (x, weights, none, seen)
        }

    Left alone:
        An attention that "has a past":
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        cached (float[B, T, 4] x, float[B, 2, P, 2] keys, float[B, 2, P, 2] values)
            => (float[B, T, 4] y, float[B, 2, N, 2] k2, float[B, 2, N, 2] v2)
        <float[4, 4] wq = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] wk = {2, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] wv = {3, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}>
        {
            q = MatMul (x, wq)
            k = MatMul (x, wk)
            v = MatMul (x, wv)
            y, k2, v2 = com.microsoft.MultiHeadAttention <num_heads = 2>
                (q, k, v, , , , keys, values)
        }

        Where "the weight 'wk' is an input":
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        fed (float[B, T, 4] x, float[4, 4] wk) => (float[B, T, 4] y)
        <float[4, 4] wq = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] wv = {3, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}>
        {
            q = MatMul (x, wq)
            k = MatMul (x, wk)
            v = MatMul (x, wv)
            y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v)
        }

        An attention that "is unidirectional":
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        causal (float[B, T, 4] x) => (float[B, T, 4] y)
        <float[4, 4] wq = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] wk = {2, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] wv = {3, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}>
        {
            q = MatMul (x, wq)
            k = MatMul (x, wk)
            v = MatMul (x, wv)
            y = com.microsoft.MultiHeadAttention <num_heads = 2, unidirectional = 1> (q, k, v)
        }

        Keys and values of another tensor than the queries:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        cross (float[B, T, 4] x, float[B, S, 4] memory) => (float[B, T, 4] y)
        <float[4, 4] wq = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] wk = {2, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] wv = {3, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}>
        {
            q = MatMul (x, wq)
            k = MatMul (memory, wk)
            v = MatMul (memory, wv)
            y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v)
        }

    Safety:
        Exact, except rounding: the same products and sums. Without any optimization ONNX Runtime
        copies the weights in each run. A quantizer keeps a weight of which a part is cut for
        something else in float32 as well. Refused, with the reason: two of queries, keys and values
        read by something else; three widths; weights that are inputs, or computed by more than a
        Reshape, or used by something else than a product, which would keep them twice in memory; a
        past or a present, and ``unidirectional``, which DirectML's Attention does not take; other
        types than float and float16. An attention of several tensors (cross-attention) is none of
        these.
    """

    anchors = (*_ATTENTION, "Add")
    keeps_shapes = True

    def match(self, node: ir.Node, view: View) -> ProjectedSite | BiasSite | Skip | None:
        """Return the site if projections of one tensor, or their bias, can be fused."""
        if is_op(node, "Add"):
            return _match_bias(node, view)
        packed = _match_packed(node, view)
        return _match_apart(node, view) if packed is None else packed

    def message(self, site: Match) -> str:
        """Describe the projections or the bias at a site."""
        if isinstance(site, BiasSite):
            return "a bias before an attention, a kernel of its own, that the attention could add"
        return "an attention and the three products that it is of, each a kernel of its own"

    def rewrite(self, match: ProjectedSite | BiasSite, op: Builder) -> ir.Value:
        """Build Attention(input, weights, bias, mask_index, past, attention_bias)."""
        if isinstance(match, BiasSite):
            op.redirect_uses([(match.attention, _BIAS)], match.bias)
            return match.product
        if match.shared_part is not None:
            _compute_shared_part(match, match.shared_part, op)
        node, data = match.node, match.data
        if match.gemm is not None:
            data = with_axes("Unsqueeze", data, (0,), op)
        weights = _build_weights(match, op)
        dtype = op.view.shapes.dtype(match.data) or ir.DataType.FLOAT
        bias = match.bias or input_at(node, _BIAS)
        inputs = [
            *(data, weights),
            np.zeros(3 * match.width, dtype.numpy()) if bias is None else bias,
            *(input_at(node, _MASK), None, input_at(node, _ADDEND)),
        ]
        while inputs[-1] is None:
            inputs.pop()
        attributes: dict[str, int | float] = {}
        for name in ("scale", "mask_filter_value"):
            if name in node.attributes:
                attributes[name] = node.attributes[name].as_float()
        heads = attr_int(node, "num_heads", 1)
        return op.make(f"{MICROSOFT}.Attention", *inputs, num_heads=heads, **attributes)


def _build_weights(match: ProjectedSite, op: Builder) -> ir.Value:
    """Build [D, 3 * W] of one weight or of three side by side, once for all that share them."""
    weights = match.weights
    if len(weights) > 1:
        key = ("side by side", *weights)
        return op.build_once(key, lambda: op.Concat(*weights, axis=1), *weights)
    (weight,) = weights
    if match.gemm is not None and read_gemm(match.gemm).trans_b:
        return op.Transpose(weight, perm=[1, 0])
    return weight


def _match_apart(node: ir.Node, view: View) -> ProjectedSite | Skip | None:
    """Return the site of an attention of three products of one tensor."""
    products = [x for x in map(_projection_of, node.inputs[:3]) if x is not None]
    sources = {x.inputs[0] for x in products}
    data = sources.pop() if len(products) == 3 and len(sources) == 1 else None
    if data is None:
        return None
    weights = tuple(x.inputs[1] for x in products if x.inputs[1] is not None)
    width = _common_width(weights, view)
    reason = _reason_against_fusing(node, products, view) or _reason_against_concat(weights)
    if reason is None and view.shapes.rank(data) != 3:
        reason = f"{data.name!r}, which it is made from, is not known to have three dims"
    if reason is not None or width is None:
        return Skip(node, reason or "its queries, keys and values are of more than one width")
    return ProjectedSite(node, data, weights, width)


def _projection_of(value: ir.Value | None) -> ir.Node | None:
    """Return the MatMul with a weight as second operand that makes ``value``, or None."""
    node = producer_of(value)
    if not is_op(node, "MatMul") or node.inputs[1] is None:
        return None
    return node if _matrix_before_reshape(node.inputs[1]).producer() is None else None


def _matrix_before_reshape(weight: ir.Value) -> ir.Value:
    """Return the matrix that a constant Reshape makes ``weight`` of, or ``weight`` itself."""
    maker = weight.producer()
    matrix = maker.inputs[0] if is_op(maker, "Reshape") and ints_of(maker.inputs[1]) else None
    return matrix or weight


def _match_packed(node: ir.Node, view: View) -> ProjectedSite | Skip | None:
    """Return the site of an attention of the three parts of one product."""
    split = producer_of(node.inputs[0])
    width = _packed_width(split, node.inputs[:3], view)
    if split is None or width is None:
        return None
    if (rows := _match_gemm(node, split, width, view)) is not None:
        return rows
    product, bias = _product_and_bias(split)
    if product is None or product.inputs[0] is None or product.inputs[1] is None:
        return None
    shared_parts = [x for x in split.outputs if any(use.node is not node for use in x.uses())]
    weights = (product.inputs[1],)
    reason = (
        _reason_against_bias(node, bias, width, view)
        or _reason_against_sharing(split, shared_parts)
        or _unsupported_feature(node, product, view)
        or _reason_against_concat(weights)
    )
    if reason is not None:
        return Skip(node, reason)
    shared_part = shared_parts[0] if shared_parts else None
    return ProjectedSite(node, product.inputs[0], weights, width, bias, shared_part)


def _product_and_bias(split: ir.Node) -> tuple[ir.Node | None, ir.Value | None]:
    """Return the MatMul with a weight that only a Split reads, and the bias in between, if any.

    The MatMul is None if there is none, or something else reads it.
    """
    projected, user, bias = split.inputs[0], split, None
    add = producer_of(projected)
    if is_op(add, "Add"):
        if only_user(add) is not split:
            return None, None
        for i in (0, 1):
            if _projection_of(add.inputs[i]) is not None:
                projected, user, bias = add.inputs[i], add, add.inputs[1 - i]
                break
    product = _projection_of(projected)
    return (product if product is not None and only_user(product) is user else None), bias


def _reason_against_bias(
    node: ir.Node, bias: ir.Value | None, width: int, view: View
) -> str | None:
    """Return why the bias before a Split cannot be that of the attention, or None."""
    if bias is None:
        return None
    if view.shapes.dims(bias) != (3 * width,) or input_at(node, _BIAS) is not None:
        return f"{bias.name!r}, which is added before, is not its only bias"
    return None


def _reason_against_sharing(split: ir.Node, shared_parts: Sequence[ir.Value]) -> str | None:
    """Return which of the three parts is still needed, or None; one may be read elsewhere."""
    for part in split.outputs:
        if part.is_graph_output() or (len(shared_parts) > 1 and part in shared_parts):
            return f"{part.name!r}, which it reads, is an output or goes elsewhere"
    return None


def _match_gemm(node: ir.Node, split: ir.Node, width: int, view: View) -> ProjectedSite | None:
    """Return the site of an attention of one Gemm of [T, D], with the batch of 1 behind it."""
    lifted = exclusive_producer(split.inputs[0], "Unsqueeze")
    gemm = exclusive_producer(lifted.inputs[0], "Gemm") if lifted is not None else None
    dims = view.shapes.dims(split.inputs[0])
    if gemm is None or len(gemm.inputs) < 3 or not is_plain_gemm(gemm) or not dims or dims[0] != 1:
        return None
    data, weight, bias = gemm.inputs
    fits = is_own_constant(weight, view) and view.shapes.dims(bias) == (3 * width,)
    if data is None or weight is None or not fits or input_at(node, _BIAS) is not None:
        return None
    if _unsupported_feature(node, gemm, view) is not None:
        return None
    return ProjectedSite(node, data, (weight,), width, bias, gemm=gemm)


def _compute_shared_part(match: ProjectedSite, part: ir.Value, op: Builder) -> None:
    """Compute the part that has another reader by a product of its own."""
    split = part.producer()
    assert split is not None
    first = split.outputs.index(part) * match.width
    ends = np.array([first]), np.array([first + match.width])
    with op.inserting_before(split):
        product = op.MatMul(match.data, op.Slice(match.weights[0], *ends, np.array([1])))
        if match.bias is not None:
            product = op.Add(product, op.Slice(match.bias, *ends, np.array([0])))
    others = [(x.node, x.idx) for x in part.uses() if x.node is not match.node]
    op.redirect_uses(others, product)


def _packed_width(
    split: ir.Node | None, values: Sequence[ir.Value | None], view: View
) -> int | None:
    """Return W if a Split parts [B, T, 3 * W] into queries, keys and values, or None."""
    if not is_op(split, "Split") or tuple(values) != tuple(split.outputs):
        return None
    sizes = [view.shapes.dims(x) for x in split.outputs]
    if sizes[0] is None or any(x != sizes[0] for x in sizes) or len(sizes[0]) != 3:
        return None
    axis, width = axis_of(split, 3, view.opset_of_node(split)), sizes[0][2]
    return width if axis == 2 and isinstance(width, int) else None


def _match_bias(node: ir.Node, view: View) -> BiasSite | None:
    """Return the site of a bias of packed queries, keys and values, or None."""
    split = only_user(node)
    attention = only_user(split) if split is not None else None
    if split is None or attention is None or attention not in _ATTENTION:
        return None
    width = _packed_width(split, attention.inputs[:3], view)
    past, own_bias = input_at(attention, _PAST), input_at(attention, _BIAS)
    if width is None or past is None or own_bias is not None:
        return None
    if not all(_is_read_by(x, attention) for x in split.outputs):
        return None
    for product, bias in (node.inputs, node.inputs[::-1]):
        fits = view.shapes.dims(bias) == (3 * width,) and view.shapes.rank(product) == 3
        if fits and product is not None and bias is not None:
            return BiasSite(node, product, bias, attention)
    return None


def _is_read_by(value: ir.Value, node: ir.Node) -> bool:
    """Return whether one node alone reads a value."""
    return not value.is_graph_output() and {use.node for use in value.uses()} == {node}


def _common_width(weights: Sequence[ir.Value], view: View) -> int | None:
    """Return W if all weights are [D, W] of one size, or None."""
    sizes = {view.shapes.dims(x) or () for x in weights}
    dims = sizes.pop() if len(sizes) == 1 else ()
    return dims[1] if len(dims) == 2 and isinstance(dims[1], int) else None


def _reason_against_fusing(node: ir.Node, products: Sequence[ir.Node], view: View) -> str | None:
    """Return why an attention of projections is not fused, or None."""
    shared_products = [x for x in products if only_user(x) is not node]
    if len(shared_products) > 1:
        names = " and ".join(str(x.outputs[0].name) for x in shared_products)
        return f"{names}, which it reads, are outputs or go elsewhere as well"
    return _unsupported_feature(node, products[0], view)


def _unsupported_feature(node: ir.Node, product: ir.Node, view: View) -> str | None:
    """Return what the node has or does that DirectML's Attention cannot, or None."""
    if any(input_at(node, i) is not None for i in range(_PAST, len(node.inputs))):
        return "it has a past, which DirectML's Attention does not take"
    if any(x.name and (x.uses() or x.is_graph_output()) for x in node.outputs[1:]):
        return "its keys and values are outputs, which DirectML's Attention does not make"
    if any(x.is_ref() for x in node.attributes.values()):
        return "its attributes are parameters of the local function it is in"
    if attr_int(node, "unidirectional", 0):
        return "it is unidirectional, which DirectML's Attention is not"
    dtype = view.shapes.dtype(product.inputs[0])
    if dtype not in FLOATS:
        return f"it is in {dtype.name.lower() if dtype else 'a type that is not known'}"
    return None


def _reason_against_concat(weights: Sequence[ir.Value]) -> str | None:
    """Return why the weights are not concatenated, or None."""
    for weight in dict.fromkeys((*weights, *map(_matrix_before_reshape, weights))):
        is_constant = weight.is_initializer() and not weight.is_graph_input()
        layout = () if weight in weights else ("Reshape",)
        if _matrix_before_reshape(weight) is weight and not is_constant:
            return f"the weight {weight.name!r} is an input, so it would be copied in each run"
        if weight.is_graph_output():
            return f"the weight {weight.name!r} is an output"
        for use in weight.uses():
            if not is_op(use.node, "MatMul", "Concat", "Slice", *layout):
                operator, name = with_article(use.node.op_type), weight.name
                return f"the weight {name!r}, which goes into {operator} too, would be held twice"
    return None
