"""einsum-matmul: the manual is the docstring of the class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same_dim
from graphfix.facts.view import View

from ..common.fusible import FLOATS
from .attention.product import einsum_labels

# As many dims as DirectML's MatMul takes.
_RANK = 4


@dataclass(frozen=True)
class EinsumSite(Match):
    """An Einsum that MatMul computes; each axis has a letter, as in the equation.

    Attributes:
        left: The operand that gives the rows, and its axes.
        right: The other.
        rows: What the left one has alone.
        columns: What the right one has alone.
        batch: What both and the result have.
        summed: What is summed over.
        out: The axes of the result.
        sizes: How long the axes are.
    """

    left: tuple[ir.Value, str]
    right: tuple[ir.Value, str]
    rows: str
    columns: str
    batch: str
    summed: str
    out: str
    sizes: dict[str, Dim]

    @property
    def apart(self) -> str:
        """Where the result has several columns, which are one in the product: they."""
        return self.columns if len(self.columns) > 1 else ""

    @property
    def numbers(self) -> bool:
        """Whether all axes that are merged are of known sizes."""
        merged = self.apart + (self.summed if len(self.summed) > 1 else "")
        return all(isinstance(self.sizes[x], int) for x in merged)

    def size(self, axes: str) -> int:
        """How many elements these axes have, of which all are known."""
        return math.prod(int(str(self.sizes[x])) for x in axes)

    @property
    def orders(self) -> tuple[str, str]:
        """The axes of the left operand and of the product, with as few Transposes as can be."""
        if not self.batch:
            return self.rows + self.summed, self.rows + self.columns
        ways = []
        for row in reversed(self.rows):
            lead = self.rows.replace(row, "") + self.batch + row
            ways.append((lead + self.summed, lead + self.columns))
        return min(ways, key=lambda way: (way[0] != self.left[1]) + (way[1] != self.out))


@dataclass(frozen=True)
class EinsumMatmul(NodePass[EinsumSite]):
    """Makes a MatMul of an Einsum that DirectML multiplies out before it sums.

    DirectML computes an Einsum of two tensors by its GEMM if one axis is summed over, each tensor
    has at most one axis of its own, and they share at most two. Of any other it makes the tensor of
    all products, and sums that. The projections of XLNet and Funnel are such (``ibh,hnd->ibnd``),
    and the relative positions of W2V-BERT and SeamlessM4T (``bhld,lrd->bhlr``).

    Why:
        DmlOperatorEinSum.cpp has the two ways (MatMul; MultiplyReduceSum). On onnxruntime-directml
        1.24.4 and a software device, side by side, ``ibh,hnd->ibnd`` of 256 frames and 8 heads of
        64 takes 12 times as long as a MatMul; ``bhld,lrd->bhlr`` of 16 heads of 64 takes 11 times
        as long as two Transposes, a MatMul and a Transpose, of 512 and of 1,000 frames, where its
        products are 4 GB. An Einsum that is a GEMM (``bind,bjnd->bnij``) takes as long as those,
        and stays.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        heads (float[T, B, 4] x) => (float[T, B, 2, 2] y)
        <float[4, 2, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}>
        {
            y = Einsum <equation = "ibh,hnd->ibnd"> (x, w)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        heads (float[T, B, 4] x) => (float[T, B, 2, 2] y)
        <float[4, 2, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         int64[2] flat = {4, 4}, int64[4] apart = {0, 0, 2, 2}>
        {
            weight = Reshape (w, flat)
            product = MatMul (x, weight)
            y = Reshape (product, apart)
        }

    Safety:
        Exact, except rounding: the same products, summed in another order. Left as they are: an
        Einsum with dots, of one or of three operands, that takes a diagonal or sums over an axis of
        one operand alone; axes to be merged whose size is not a number; more than four dims.
    """

    sentence = "an Einsum that DirectML multiplies out, element by element, before it sums"
    anchors = ("Einsum",)

    def match(self, node: ir.Node, view: View) -> EinsumSite | None:
        """An Einsum of two tensors that is no GEMM on DirectML."""
        labels = einsum_labels(node, view)
        if labels is None or view.shapes.dtype(node.outputs[0]) not in FLOATS:
            return None
        for a, b in ((0, 1), (1, 0)):
            site = _site(node, (a, b), labels, view)
            if site is not None:
                return site
        return None

    def rewrite(self, match: EinsumSite, op: Builder) -> ir.Value:
        """MatMul, and what lays out its operands and its result."""
        before, after = match.orders
        kept = [0] * (len(before) - len(match.summed))
        left = _turned(*match.left, before, op)
        right = _turned(*match.right, match.batch + match.summed + match.columns, op)
        if len(match.summed) > 1:
            left = op.Reshape(left, np.array([*kept, match.size(match.summed)], np.int64))
        if len(match.summed) > 1 or match.apart:
            flat = [match.size(match.summed), match.size(match.columns)]
            right = op.Reshape(right, np.array(flat, np.int64))
        made = op.MatMul(left, right)
        if match.apart:
            apart = [match.size(x) for x in match.apart]
            made = op.Reshape(made, np.array([*kept, *apart], np.int64))
        return _turned(made, after, match.out, op)


def _turned(value: ir.Value, axes: str, wanted: str, op: Builder) -> ir.Value:
    """A tensor with its axes in the order that is wanted."""
    return value if axes == wanted else op.Transpose(value, perm=[axes.index(x) for x in wanted])


def _site(
    node: ir.Node, order: tuple[int, int], labels: Sequence[str], view: View
) -> EinsumSite | None:
    """The Einsum with its operands in this order, if that can be a MatMul."""
    (left, a), (right, b) = ((node.inputs[i], labels[i]) for i in order)
    out, dims = labels[2], [view.shapes.dims(x) for x in (left, right)]
    if left is None or right is None or dims[0] is None or dims[1] is None:
        return None
    mine, sizes = dict(zip(a, dims[0], strict=True)), dict(zip(b, dims[1], strict=True))
    rows, columns = _only(a, b), _only(b, a)
    both = [x for x in a if x in b]
    batch = "".join(x for x in both if x in out)
    summed = "".join(x for x in both if x not in out)
    if not summed or not rows or not columns or set(out) != {*rows, *columns, *batch}:
        return None
    is_gemm = len(summed) == 1 and len(rows) == len(columns) == 1
    if is_gemm or len(out) > _RANK or not all(same_dim(mine[x], sizes[x]) for x in both):
        return None
    site = EinsumSite(
        *(node, (left, a), (right, b), rows, columns, batch, summed, out, sizes | mine)
    )
    # Of several columns with a batch there is no one matrix.
    return site if (not batch or len(columns) == len(summed) == 1) and site.numbers else None


def _only(axes: str, others: str) -> str:
    return "".join(x for x in axes if x not in others)
