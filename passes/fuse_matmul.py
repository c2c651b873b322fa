"""fuse-matmul: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import onnx_ir as ir

from graphfix.core import Match, NodePass, Safety, Skip
from graphfix.model.shapes import same
from graphfix.model.values import is_op

from ._fusing import FLOATS, MICROSOFT, only_user
from ._matmuls import Operand, operand_of, scale_of

if TYPE_CHECKING:
    from graphfix.build import Builder
    from graphfix.model.view import View


@dataclass(frozen=True)
class ProductSite(Match):
    """The last node of a product.

    Attributes:
        left: The first operand.
        right: The second.
        alpha: What the product is multiplied with.
        bias: What is added to it, if it becomes a Gemm.
    """

    left: Operand
    right: Operand
    alpha: float
    bias: ir.Value | None


@dataclass(frozen=True)
class FuseMatmul(NodePass[ProductSite]):
    """A MatMul takes the Transposes and constant factors around it along, or a bias.

    A Transpose of the last two axes, or of the first axis behind the batch, becomes an attribute
    of com.microsoft's FusedMatMul, and so do constant factors: after the product, before it, and
    before the Reshapes and Transposes that lay out an operand. A product of two matrices with a
    bias becomes a Gemm.

    Why:
        Each is a kernel of its own on DirectML. ONNX Runtime's optimizer does this too, but only
        right beside the MatMul: a scale of the queries before their heads are split, as Whisper
        has it, stays. Run on onnxruntime-directml 1.24.4: FusedMatMul is within 2e-6 of the CPU
        with every attribute at ranks 2 to 4; at rank 5 it fails, as MatMul does. What saves no
        kernel is left alone: a MatMul of more than two dims and the bias after it are two kernels
        either way, since a Gemm would need two Reshapes.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        scores (float[B, T, 8] x, float[B, 2, T, 4] k) => (float[B, 2, T, T] y)
        <float scale = {0.5}, int64[4] heads = {0, 0, 2, 4}>
        {
            scaled = Mul (x, scale)
            split = Reshape (scaled, heads)
            q = Transpose <perm = [0, 2, 1, 3]> (split)
            turned = Transpose <perm = [0, 1, 3, 2]> (k)
            y = MatMul (q, turned)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        scores (float[B, T, 8] x, float[B, 2, T, 4] k) => (float[B, 2, T, T] y)
        <int64[4] heads = {0, 0, 2, 4}>
        {
            unscaled = Reshape (x, heads)
            laid = Transpose <perm = [0, 2, 1, 3]> (unscaled)
            y = com.microsoft.FusedMatMul <alpha = 0.5, transB = 1> (laid, k)
        }

    Safety:
        Exact, but for rounding. What a Transpose or a factor makes must be used by the product
        alone; otherwise it would be computed all the same, and stays. A factor before a product in
        float16 stays: a sum of larger numbers may pass 65504 before it is scaled. Transposes of
        weights stay: they are done once, when the model is loaded. A constant with more dims than
        what it scales is no factor. Refused, with the reason: other types than float and float16,
        and those of a local function, which are not known.
    """

    name: ClassVar[str] = "fuse-matmul"
    safety: ClassVar[Safety] = "exact"
    anchors: ClassVar[tuple[str, ...]] = ("MatMul", "Mul", "Div", "Add")

    def match(self, node: ir.Node, view: View) -> ProductSite | Skip | None:
        """The last node of a product: the MatMul, its factor or its bias."""
        product, alpha, bias = _taken_apart(node, view)
        if product is None or product.inputs[0] is None or product.inputs[1] is None:
            return None
        user = only_user(node)
        if user is not None and _taken_apart(user, view)[0] is product:
            return None  # which is the last node then
        dtype = view.shapes.dtype(product.inputs[0])
        scales = dtype == ir.DataType.FLOAT
        left, right = (operand_of(x, product, view, scales=scales) for x in product.inputs if x)
        if left.plain and right.plain and alpha == 1 and bias is None:
            return None
        if dtype not in FLOATS:
            known = "is not known here" if dtype is None else f"is {dtype.name.lower()}"
            return Skip(node, f"the type of {product.inputs[0].name!r} {known}")
        return ProductSite(node, left, right, alpha * left.factor * right.factor, bias)

    def message(self, site: Match) -> str:
        """What it is."""
        return "Transposes, factors or a bias beside a MatMul, each a kernel of its own"

    def rewrite(self, match: ProductSite, op: Builder) -> ir.Value:
        """The one operator, with the layout of an operand that was scaled before it."""
        given = [match.left.build(op), match.right.build(op)]
        attributes: dict[str, float | int] = {} if match.alpha == 1 else {"alpha": match.alpha}
        for side, operand in (("A", match.left), ("B", match.right)):
            if operand.swapped:
                attributes[f"trans{side}"] = 1
            if operand.rolled:
                attributes[f"transBatch{side}"] = 1
        if match.bias is not None:
            return op.make("Gemm", *given, match.bias, **attributes)
        kind = f"{MICROSOFT}.FusedMatMul" if attributes else "MatMul"
        return op.make(kind, *given, **attributes)


def _taken_apart(node: ir.Node, view: View) -> tuple[ir.Node | None, float, ir.Value | None]:
    """The MatMul that ``node`` ends, the factor after it and the bias after that."""
    bias, alpha, last = None, 1.0, node
    if is_op(node, "Add"):
        for i in (0, 1):
            value, other = node.inputs[i], node.inputs[1 - i]
            maker = value.producer() if value is not None else None
            if maker is not None and only_user(maker) is node and _is_bias(other, maker, view):
                bias, last = other, maker
                break
        else:
            return None, alpha, None
    while (scaled := scale_of(last, view)) is not None:
        value, by = scaled
        maker = value.producer()
        if maker is None or only_user(maker) is not last:
            return None, alpha, None
        alpha, last = alpha * by, maker
    return (last if is_op(last, "MatMul") else None), alpha, bias


def _is_bias(value: ir.Value | None, maker: ir.Node, view: View) -> bool:
    """Whether a Gemm can add ``value`` to what ``maker``, a product of two matrices, makes."""
    product = maker
    while (scaled := scale_of(product, view)) is not None:
        before = scaled[0].producer()
        if before is None:
            return False
        product = before
    if value is None or not is_op(product, "MatMul"):
        return False
    if any(view.shapes.rank(x) != 2 for x in product.inputs):
        return False
    dims, wanted = view.shapes.dims(value), view.shapes.dims(maker.outputs[0])
    if dims is None or wanted is None or not 1 <= len(dims) <= 2:
        return False
    ends = zip(reversed(dims), reversed(wanted), strict=False)
    return all(a == 1 or same(a, b) for a, b in ends)
