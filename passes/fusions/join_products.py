"""join-products: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_ints, input_at, is_op
from graphfix.wording import group_pairs

from ..common.fusible import FLOATS, is_weight, only_user, readers_in_graph

# Kernels that it must spare: a weight that is put beside others is none that a quantizer finds.
_FEWEST = 2


@dataclass(frozen=True)
class HeadsProduct:
    """A product with a weight whose rows become heads.

    Attributes:
        node: The MatMul.
        bias: What is added to it, [H * D], if something is.
        last: The Reshape to [.., H, D], or the Transpose after it.
        size: H and D.
        perm: That Transpose, if there is one.
    """

    node: ir.Node
    bias: ir.Value | None
    last: ir.Node
    size: tuple[int, int]
    perm: tuple[int, ...] | None

    @property
    def kernels(self) -> int:
        """How many it takes."""
        return 2 + (self.bias is not None) + (self.perm is not None)


@dataclass(frozen=True)
class ProductsSite(Match):
    """Heads that are made from one tensor by several products.

    Attributes:
        products: They, in the order of the graph.
        perm: The Transpose that is made of all, if they have one.
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

    Safety:
        Exact: each number is the same sum. The heads of all layers are in memory at once. A
        quantizer that runs after it does not see the weights; so it is done where it spares two
        kernels at least. Left as they are: weights that are inputs or go into another operator
        too, unless that is computed when the model is loaded; heads of several widths; and what is
        an output.
    """

    anchors = ("MatMul",)

    def match(self, node: ir.Node, view: View) -> ProductsSite | None:
        """The first of the products of one tensor."""
        data = node.inputs[0]
        if data is None or data in view.constant_values or view.shapes.dtype(data) not in FLOATS:
            return None
        mine = _heads_product(node, view)
        if mine is None or view.opset_of_node(node) < 13:
            return None
        found = [
            x
            for x in (_heads_product(x, view) for x in readers_in_graph(node, data))
            if x is not None
        ]
        alike = group_pairs(((x.size[1], x.perm is None), x) for x in found)
        group = alike[mine.size[1], mine.perm is None]
        # One that keeps the features last: a product takes the Transpose of those of another.
        perms = [x.perm for x in group if x.perm is not None]
        perm = next((x for x in perms if x[-1] == len(x) - 1), mine.perm)
        biased = any(x.bias is not None for x in group)
        made = 3 + biased + (perm is not None) + sum(x != perm for x in perms)
        if group[0].node is not node or sum(x.kernels for x in group) - made < _FEWEST:
            return None
        return ProductsSite(mine.last, tuple(group), perm)

    def message(self, site: Match) -> str:
        """What it is."""
        count = len(site.products) if isinstance(site, ProductsSite) else 0
        return f"{count} products of one tensor become heads, each by kernels of its own"

    def rewrite(self, match: ProductsSite, op: Builder) -> ir.Value:
        """All heads at once, and the first of them."""
        group, data = match.products, match.products[0].node.inputs[0]
        axis, width = (op.view.shapes.rank(data) or 0) - 1, group[0].size[1]
        counts = [x.size[0] for x in group]
        with op.inserting_before(group[0].node):
            made = op.MatMul(data, op.Concat(*(x.node.inputs[1] for x in group), axis=1))
            if any(x.bias is not None for x in group):
                dtype = (op.view.shapes.dtype(data) or ir.DataType.FLOAT).numpy()
                none = (np.zeros(count * width, dtype) for count in counts)
                biases = (x.bias or zeros for x, zeros in zip(group, none, strict=True))
                made = op.Add(made, op.Concat(*biases, axis=0))
            made = op.Reshape(made, np.array([*[0] * axis, sum(counts), width], np.int64))
            if match.perm is not None:
                made = op.Transpose(made, perm=match.perm)
                axis = match.perm.index(axis)
            there = (True,) * len(group)
            parts = list(
                op.make_outputs("Split", there, made, np.array(counts, np.int64), axis=axis)
            )
            for i, product in enumerate(group):
                if product.perm is not None and product.perm != match.perm and match.perm:
                    turned = [match.perm.index(x) for x in product.perm]
                    parts[i] = op.Transpose(parts[i], perm=turned)
        for product, part in zip(group[1:], parts[1:], strict=True):
            op.replace_and_remove(product.last.outputs[0], part)
        return parts[0]


def _heads_product(node: ir.Node, view: View) -> HeadsProduct | None:
    """A MatMul with a weight, a bias, and what lays it out as heads, each for the next alone."""
    rows = view.shapes.dims(node.outputs[0])
    weight = input_at(node, 1) if is_op(node, "MatMul") else None
    if not rows or not isinstance(features := rows[-1], int):
        return None
    if not is_weight(weight, (None, features), view):
        return None
    user, bias = only_user(node), None
    if is_op(user, "Add"):
        biases = [x for x in user.inputs if is_weight(x, (features,), view)]
        bias, user = (biases[0], only_user(user)) if biases else (None, None)
    dims = view.shapes.dims(user.outputs[0]) if is_op(user, "Reshape") else None
    if user is None or not dims or len(dims) != len(rows) + 1:
        return None
    count, width = dims[-2:]
    if not isinstance(count, int) or not isinstance(width, int):
        return None
    if not same_dims(rows[:-1], dims[:-2]) or user.outputs[0].is_graph_output():
        return None
    after = only_user(user)
    perm = attr_ints(after, "perm") if is_op(after, "Transpose") else None
    if after is None or not perm or after.outputs[0].is_graph_output():
        return HeadsProduct(node, bias, user, (count, width), None)
    return HeadsProduct(node, bias, after, (count, width), tuple(perm))
