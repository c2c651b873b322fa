"""join-products: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_ints, input_at, is_op
from graphfix.wording import group_pairs

from ..common.fusible import FLOATS, is_weight, only_user, readers_in_graph

# Kernels that it must save: a quantizer does not find a weight that is joined with others.
_MIN_SAVED_KERNELS = 2


@dataclass(frozen=True)
class HeadsProduct:
    """A product with a weight whose rows become heads.

    Attributes:
        node: The MatMul.
        bias: The bias, [H * D], or None.
        last: The Reshape to [.., H, D], or the Transpose after it.
        size: H and D.
        perm: The perm of that Transpose, or None.
    """

    node: ir.Node
    bias: ir.Value | None
    last: ir.Node
    size: tuple[int, int]
    perm: tuple[int, ...] | None

    @property
    def kernels(self) -> int:
        """Return how many kernels the product and its layout take."""
        return 2 + (self.bias is not None) + (self.perm is not None)


@dataclass(frozen=True)
class ProductsSite(Match):
    """Heads that are made from one tensor by several products.

    Attributes:
        products: The products, in the order of the graph.
        perm: The perm of the Transpose of all heads, or None.
    """

    products: tuple[HeadsProduct, ...]
    perm: tuple[int, ...] | None


@dataclass(frozen=True)
class JoinProducts(NodePass[ProductsSite]):
    """Makes the heads that come from one tensor by one product, where no attention takes them.

    The relative positions of a Conformer or a DeBERTa are multiplied with a weight in each layer,
    and laid out as heads each time: three kernels a layer, and four for all layers together. The
    queries, keys and values of an attention that stays in pieces are such heads as well. Weights
    and biases are put side by side by a Concat in the graph: ONNX Runtime does that once, when it
    loads the model (constant folding), so no weight is read, moved or written twice.

    Why:
        By `graphfix plan`, of exports of three layers 96 kernels are left on the device where 112
        were (DeBERTa), 123 where 144 were (YOSO, whose attention has no Softmax), 198 where 203
        were (Parakeet). Run on onnxruntime-directml 1.24.4, all three agree with the CPU (1.4e-6,
        2.2e-5 and 1.2e-6).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        positions (float[P, 4] x) => (float[P, 2, 2] y, float[P, 2, 2] z, float[P, 2, 2] w)
        <float[4, 4] a = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] b = {2, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] c = {3, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         int64[3] heads = {0, 2, 2}>
        {
            p = MatMul (x, a)
            first = Reshape (p, heads)
            y = Relu (first)
            q = MatMul (x, b)
            second = Reshape (q, heads)
            z = Relu (second)
            r = MatMul (x, c)
            third = Reshape (r, heads)
            w = Relu (third)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        positions (float[P, 4] x) => (float[P, 2, 2] y, float[P, 2, 2] z, float[P, 2, 2] w)
        <float[4, 4] a = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] b = {2, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4, 4] c = {3, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         int64[3] size = {0, 6, 2}, int64[3] each = {2, 2, 2}>
        {
            weight = Concat <axis = 1> (a, b, c)
            rows = MatMul (x, weight)
            heads = Reshape (rows, size)
            first, second, third = Split <axis = 1> (heads, each)
            y = Relu (first)
            z = Relu (second)
            w = Relu (third)
        }

    Left alone:
        Two products, of which one would spare one kernel only:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        twice (float[B, T, 2] x) => (float[B, T, 1, 2] y, float[B, T, 1, 2] z)
        <float[2, 2] a = {1, 2, 3, 4}, float[2, 2] b = {5, 6, 7, 8}, int64[4] heads = {0, 0, 1, 2}>
        {
            p = MatMul (x, a)
            ph = Reshape (p, heads)
            y = Relu (ph)
            q = MatMul (x, b)
            qh = Reshape (q, heads)
            z = Relu (qh)
        }

    Safety:
        Exact: each number is the same sum. The heads of all layers are in memory at once. A
        quantizer that runs after it does not see the weights; so it is done where it spares two
        kernels at least. Left as they are: weights that are inputs or go into another operator
        too, unless that is computed when the model is loaded; heads of several widths; and what is
        an output.
    """

    anchors = ("MatMul",)

    def match(self, node: ir.Node, view: View) -> ProductsSite | None:
        """Return the site at the first of several products of one tensor that become heads."""
        data = node.inputs[0]
        if data is None or data in view.constant_values or view.shapes.dtype(data) not in FLOATS:
            return None
        first = _heads_product(node, view)
        if first is None or view.opset_of_node(node) < 13:
            return None
        group = _similar_products(first, data, view)
        perm = _common_perm(group)
        saved = sum(x.kernels for x in group) - _joined_kernels(group, perm)
        if group[0].node is not node or saved < _MIN_SAVED_KERNELS:
            return None
        return ProductsSite(first.last, tuple(group), perm)

    def message(self, site: Match) -> str:
        """Return what the site is, in a sentence."""
        count = len(site.products) if isinstance(site, ProductsSite) else 0
        return f"{count} products of one tensor become heads, each by kernels of its own"

    def rewrite(self, match: ProductsSite, op: Builder) -> ir.Value:
        """Build one product of all weights, lay it out as heads, and split these."""
        group, data = match.products, match.products[0].node.inputs[0]
        axis, width = (op.view.shapes.rank(data) or 0) - 1, group[0].size[1]
        counts = [x.size[0] for x in group]
        with op.inserting_before(group[0].node):
            rows = op.MatMul(data, op.Concat(*(x.node.inputs[1] for x in group), axis=1))
            if any(x.bias is not None for x in group):
                rows = op.Add(rows, _join_biases(group, data, op))
            heads = op.Reshape(rows, np.array([*[0] * axis, sum(counts), width], np.int64))
            if match.perm is not None:
                heads = op.Transpose(heads, perm=match.perm)
                axis = match.perm.index(axis)
            wanted = (True,) * len(group)
            parts = op.make_outputs("Split", wanted, heads, np.array(counts, np.int64), axis=axis)
            outputs = [
                _transpose_part(part, product.perm, match.perm, op)
                for part, product in zip(parts, group, strict=True)
            ]
        for product, output in zip(group[1:], outputs[1:], strict=True):
            op.replace_and_remove(product.last.outputs[0], output)
        return outputs[0]


def _similar_products(first: HeadsProduct, data: ir.Value, view: View) -> list[HeadsProduct]:
    """Return the products of a tensor whose heads have the width and kind of the first's."""
    products = (_heads_product(x, view) for x in readers_in_graph(first.node, data))
    kinds = group_pairs(((x.size[1], x.perm is None), x) for x in products if x is not None)
    return kinds[first.size[1], first.perm is None]


def _common_perm(group: Sequence[HeadsProduct]) -> tuple[int, ...] | None:
    """Return the perm for all heads at once: one that keeps the features last, or the first.

    A product takes the Transpose of those whose perm is another.
    """
    perms = [x.perm for x in group if x.perm is not None]
    return next((x for x in perms if x[-1] == len(x) - 1), perms[0] if perms else None)


def _joined_kernels(group: Sequence[HeadsProduct], perm: tuple[int, ...] | None) -> int:
    """Return how many kernels make all heads: product, bias, Reshape, Split and Transposes."""
    biased = any(x.bias is not None for x in group)
    others = sum(x.perm is not None and x.perm != perm for x in group)
    return 3 + biased + (perm is not None) + others


def _join_biases(group: Sequence[HeadsProduct], data: ir.Value | None, op: Builder) -> ir.Value:
    """Build the biases side by side; a product without one gets zeros."""
    dtype = (op.view.shapes.dtype(data) or ir.DataType.FLOAT).numpy()
    biases = (x.bias or np.zeros(x.size[0] * x.size[1], dtype) for x in group)
    return op.Concat(*biases, axis=0)


def _transpose_part(
    part: ir.Value, perm: tuple[int, ...] | None, joint: tuple[int, ...] | None, op: Builder
) -> ir.Value:
    """Build the heads in the order of their own perm, from the order of the joint one."""
    if perm is None or joint is None or perm == joint:
        return part
    return op.Transpose(part, perm=[joint.index(x) for x in perm])


def _heads_product(node: ir.Node, view: View) -> HeadsProduct | None:
    """Return a MatMul with a weight, its bias, Reshape and Transpose, each for the next alone."""
    rows = view.shapes.dims(node.outputs[0])
    weight = input_at(node, 1) if is_op(node, "MatMul") else None
    if not rows or not isinstance(features := rows[-1], int):
        return None
    if not is_weight(weight, (None, features), view):
        return None
    bias, reshape = _bias_and_reader(node, features, view)
    size = None if reshape is None else _heads_size(reshape, rows, view)
    if reshape is None or size is None:
        return None
    transpose = only_user(reshape)
    perm = attr_ints(transpose, "perm") if is_op(transpose, "Transpose") else None
    if transpose is None or not perm or transpose.outputs[0].is_graph_output():
        return HeadsProduct(node, bias, reshape, size, None)
    return HeadsProduct(node, bias, transpose, size, tuple(perm))


def _bias_and_reader(
    product: ir.Node, features: int, view: View
) -> tuple[ir.Value | None, ir.Node | None]:
    """Return the bias that is added to a product, if any, and the only reader of the result."""
    user = only_user(product)
    if not is_op(user, "Add"):
        return None, user
    biases = [x for x in user.inputs if is_weight(x, (features,), view)]
    return (biases[0], only_user(user)) if biases else (None, None)


def _heads_size(reshape: ir.Node, rows: Sequence[Dim], view: View) -> tuple[int, int] | None:
    """Return the count and the width of heads if a Reshape divides the features into them."""
    dims = view.shapes.dims(reshape.outputs[0]) if is_op(reshape, "Reshape") else None
    if not dims or len(dims) != len(rows) + 1 or reshape.outputs[0].is_graph_output():
        return None
    count, width = dims[-2:]
    if not isinstance(count, int) or not isinstance(width, int):
        return None
    return (count, width) if same_dims(rows[:-1], dims[:-2]) else None
