"""fuse-projections: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_int, input_at, is_op, maker_of
from graphfix.wording import a_or_an

from ..common.fusible import FLOATS, MICROSOFT, is_own_constant, is_plain, only_user
from ..common.lookup import alone
from ..common.reshape_targets import with_axes

_ATTENTION = (MICROSOFT, "MultiHeadAttention")
# Inputs of MultiHeadAttention after query, key and value; Attention's are others.
_BIAS, _MASK, _ADDEND, _PAST = 3, 4, 5, 6


@dataclass(frozen=True)
class ProjectedSite(Match):
    """An attention of one tensor.

    Attributes:
        data: What queries, keys and values are made from, [B, T, D].
        weights: What it is multiplied with for each, [D, W], or for all, [D, 3 * W].
        width: W.
        bias: What is added to all, if something is before the attention.
        aside: Which of the three something else reads as well.
        gemm: What makes all three of [T, D], if the batch of 1 comes behind it.
    """

    data: ir.Value
    weights: tuple[ir.Value, ...]
    width: int
    bias: ir.Value | None = None
    aside: ir.Value | None = None
    gemm: ir.Node | None = None


@dataclass(frozen=True)
class BiasSite(Match):
    """The bias of queries, keys and values that are one product, before an attention with a past.

    Attributes:
        product: What it is added to.
        bias: It, [3 * W].
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

    anchors = (".".join(_ATTENTION), "Add")
    keeps_shapes = True

    def match(self, node: ir.Node, view: View) -> ProjectedSite | BiasSite | Skip | None:
        """An attention of three products of one tensor; the bias of one that has a past."""
        if is_op(node, "Add"):
            return _bias(node, view)
        packed = _packed(node, view)
        if packed is not None:
            return packed
        made = [x for x in map(_product, node.inputs[:3]) if x is not None]
        data = made[0].inputs[0] if made else None
        if data is None or len(made) < 3 or any(x.inputs[0] is not data for x in made):
            return None
        weights = tuple(x.inputs[1] for x in made if x.inputs[1] is not None)
        width = _width(weights, view)
        reason = _refused(node, made, view) or _unfit(weights)
        if reason is None and view.shapes.rank(data) != 3:
            reason = f"{data.name!r}, which it is made from, is not known to have three dims"
        if reason is not None or width is None:
            return Skip(node, reason or "its queries, keys and values are of more than one width")
        return ProjectedSite(node, data, weights, width)

    def message(self, site: Match) -> str:
        """What it is."""
        if isinstance(site, BiasSite):
            return "a bias before an attention, a kernel of its own, that the attention could add"
        return "an attention and the three products that it is of, each a kernel of its own"

    def rewrite(self, match: ProjectedSite | BiasSite, op: Builder) -> ir.Value:
        """Attention(input, weights, bias, mask_index, past, attention_bias)."""
        if isinstance(match, BiasSite):
            op.reroute(match.node.outputs[0], [(match.attention, _BIAS)], match.bias)
            return match.product
        if match.aside is not None:
            _make_aside(match, match.aside, op)
        node, weights, data = match.node, match.weights, match.data
        joined = weights[0]
        if match.gemm is not None:
            data = with_axes("Unsqueeze", data, (0,), op)
            if attr_int(match.gemm, "transB", 0):
                joined = op.Transpose(joined, perm=[1, 0])
        if len(weights) > 1:
            key = ("side by side", *weights)
            joined = op.once(key, lambda: op.Concat(*weights, axis=1), *weights)
        dtype = op.view.shapes.dtype(match.data) or ir.DataType.FLOAT
        bias = match.bias or input_at(node, _BIAS)
        inputs = [
            *(data, joined),
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


def _product(value: ir.Value | None) -> ir.Node | None:
    """The MatMul that makes ``value`` with a weight on its right side."""
    node = maker_of(value)
    if not is_op(node, "MatMul") or node.inputs[1] is None:
        return None
    return node if _laid_out(node.inputs[1]).producer() is None else None


def _laid_out(weight: ir.Value) -> ir.Value:
    """What a Reshape makes a matrix of when the model is loaded, as of an Einsum's; or itself."""
    maker = weight.producer()
    whole = maker.inputs[0] if is_op(maker, "Reshape") and ints_of(maker.inputs[1]) else None
    return whole or weight


def _packed(node: ir.Node, view: View) -> ProjectedSite | Skip | None:
    """An attention of the three parts of one product."""
    split = maker_of(node.inputs[0])
    width = _part(split, node.inputs[:3], view)
    if split is None or width is None:
        return None
    if (rows := _of_rows(node, split, width, view)) is not None:
        return rows
    whole, bias = split.inputs[0], None
    add = maker_of(whole)
    if is_op(add, "Add"):
        if only_user(add) is not split:
            return None
        for i in (0, 1):
            if _product(add.inputs[i]) is not None:
                whole, bias = add.inputs[i], add.inputs[1 - i]
                break
    product = _product(whole)
    if product is None or product.inputs[0] is None or product.inputs[1] is None:
        return None
    if only_user(product) is not (split if bias is None else add):
        return None
    if bias is not None and (
        view.shapes.dims(bias) != (3 * width,) or input_at(node, _BIAS) is not None
    ):
        return Skip(node, f"{bias.name!r}, which is added before, is not its only bias")
    read = [x for x in split.outputs if any(use.node is not node for use in x.uses())]
    for part in split.outputs:
        if part.is_graph_output() or (len(read) > 1 and part in read):
            return Skip(node, f"{part.name!r}, which it reads, is an output or goes elsewhere")
    weights = (product.inputs[1],)
    reason = _unlike(node, product, view) or _unfit(weights)
    if reason is not None:
        return Skip(node, reason)
    return ProjectedSite(node, product.inputs[0], weights, width, bias, read[0] if read else None)


def _of_rows(node: ir.Node, split: ir.Node, width: int, view: View) -> ProjectedSite | None:
    """An attention of one Gemm of [T, D], behind which comes the batch of 1."""
    lifted = alone(split.inputs[0], "Unsqueeze")
    gemm = alone(lifted.inputs[0], "Gemm") if lifted is not None else None
    dims = view.shapes.dims(split.inputs[0])
    if gemm is None or len(gemm.inputs) < 3 or not is_plain(gemm) or not dims or dims[0] != 1:
        return None
    data, weight, bias = gemm.inputs
    fits = is_own_constant(weight, view) and view.shapes.dims(bias) == (3 * width,)
    if data is None or weight is None or not fits or input_at(node, _BIAS) is not None:
        return None
    if _unlike(node, gemm, view) is not None:
        return None
    return ProjectedSite(node, data, (weight,), width, bias, gemm=gemm)


def _make_aside(match: ProjectedSite, part: ir.Value, op: Builder) -> None:
    """Make what something else reads of the product by a product of its own."""
    split = part.producer()
    assert split is not None
    first = split.outputs.index(part) * match.width
    ends = np.array([first]), np.array([first + match.width])
    with op.placed(split):
        made = op.MatMul(match.data, op.Slice(match.weights[0], *ends, np.array([1])))
        if match.bias is not None:
            made = op.Add(made, op.Slice(match.bias, *ends, np.array([0])))
    op.reroute(part, [(x.node, x.idx) for x in part.uses() if x.node is not match.node], made)


def _part(split: ir.Node | None, values: Sequence[ir.Value | None], view: View) -> int | None:
    """W, if a Split parts [B, T, 3 * W] into these queries, keys and values."""
    if not is_op(split, "Split") or tuple(values) != tuple(split.outputs):
        return None
    sizes = [view.shapes.dims(x) for x in split.outputs]
    if sizes[0] is None or any(x != sizes[0] for x in sizes) or len(sizes[0]) != 3:
        return None
    width = sizes[0][2] if attr_int(split, "axis", 0) in (-1, 2) else None
    return width if isinstance(width, int) else None


def _bias(node: ir.Node, view: View) -> BiasSite | None:
    """What is added to queries, keys and values at once, if their attention has a past."""
    split = only_user(node)
    attention = only_user(split) if split is not None else None
    if split is None or attention is None or attention.op_identifier()[:2] != _ATTENTION:
        return None
    width = _part(split, attention.inputs[:3], view)
    past, own = input_at(attention, _PAST), input_at(attention, _BIAS)
    if width is None or past is None or own is not None:
        return None
    if any(x.is_graph_output() or {y.node for y in x.uses()} != {attention} for x in split.outputs):
        return None
    for product, bias in (node.inputs, node.inputs[::-1]):
        fits = view.shapes.dims(bias) == (3 * width,) and view.shapes.rank(product) == 3
        if fits and product is not None and bias is not None:
            return BiasSite(node, product, bias, attention)
    return None


def _width(weights: Sequence[ir.Value], view: View) -> int | None:
    """W, if all weights are [D, W] of one size."""
    sizes = {view.shapes.dims(x) or () for x in weights}
    dims = sizes.pop() if len(sizes) == 1 else ()
    return dims[1] if len(dims) == 2 and isinstance(dims[1], int) else None


def _refused(node: ir.Node, products: Sequence[ir.Node], view: View) -> str | None:
    """Why an attention of one tensor stays as it is."""
    kept = [x for x in products if only_user(x) is not node]
    if len(kept) > 1:
        names = " and ".join(str(x.outputs[0].name) for x in kept)
        return f"{names}, which it reads, are outputs or go elsewhere as well"
    return _unlike(node, products[0], view)


def _unlike(node: ir.Node, product: ir.Node, view: View) -> str | None:
    """What an attention has or does that Attention on DirectML has not."""
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


def _unfit(weights: Sequence[ir.Value]) -> str | None:
    """Why weights are not put side by side."""
    for weight in dict.fromkeys((*weights, *map(_laid_out, weights))):
        held = weight.is_initializer() and not weight.is_graph_input()
        layout = () if weight in weights else ("Reshape",)
        if _laid_out(weight) is weight and not held:
            return f"the weight {weight.name!r} is an input, so it would be copied in each run"
        if weight.is_graph_output():
            return f"the weight {weight.name!r} is an output"
        for use in weight.uses():
            if not is_op(use.node, "MatMul", "Concat", "Slice", *layout):
                other, name = a_or_an(use.node.op_type), weight.name
                return f"the weight {name!r}, which goes into {other} too, would be held twice"
    return None
