"""fuse-matmul: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_float, is_op, producer_of
from graphfix.ops.axes import permutation_of
from graphfix.ops.pads import pad_fill, pad_mode

from ..common.fusible import FLOATS, MICROSOFT, only_user, swaps_last_axes
from ..common.polynomial import number_of
from ..common.reshape_targets import with_axes
from .attention.operand_path import is_read_once

_PRODUCTS = ops.named(f"MatMul {MICROSOFT}.FusedMatMul")
# A factor may be applied before these. Products with relative positions are shifted by them before
# they are added to the scores.
_KEEPS_FACTOR = ops.MOVES_FIRST_INPUT | ops.named("Pad")


@dataclass(frozen=True)
class Operand:
    """One factor of a product, without the Transpose and number that the product absorbs.

    Attributes:
        value: The tensor.
        swapped: Whether its last two axes are swapped.
        factor: The number that it is multiplied with.
    """

    value: ir.Value
    swapped: bool
    factor: float


@dataclass(frozen=True)
class ProductSite(Match):
    """The last node of a product.

    Attributes:
        lhs: The first operand.
        rhs: The second operand.
        alpha: The number that the product is multiplied with.
    """

    lhs: Operand
    rhs: Operand
    alpha: float


@dataclass(frozen=True)
class TransposedProductSite(Match):
    """A Transpose behind a product with a weight, [B, T, W] to [B, W, T].

    Attributes:
        product: The product.
        steps: The Adds and Muls in between, last first, each with its operand, [W] or [B, T, 1].
    """

    product: ir.Node
    steps: tuple[tuple[str, ir.Value], ...]


@dataclass(frozen=True)
class FactorSite(Match):
    """A constant factor behind the layout operators that follow a product.

    Attributes:
        value: The tensor that is scaled.
        product: The MatMul or FusedMatMul.
        alpha: The factor.
    """

    value: ir.Value
    product: ir.Node
    alpha: float


Site = ProductSite | TransposedProductSite | FactorSite


@dataclass(frozen=True)
class FuseMatmul(NodePass[Site]):
    """Fuses Transposes and constant factors into the MatMul beside them.

    A Transpose of the last two axes becomes an attribute of com.microsoft's FusedMatMul, and so do
    constant factors after the product and before it, also where products with relative positions
    were shifted in between. A Transpose of a product with a weight, its bias and masks of frames
    included, is the product the other way round.

    Why:
        Each is a kernel of its own on DirectML, where products of attentions that cannot be fused
        have them. Run on onnxruntime-directml 1.24.4: FusedMatMul is within 2e-6 of the CPU with
        every attribute at ranks 2 to 4; at rank 5 it fails, as MatMul does. A weight of two dims
        times data of three, both transposed, is within 4e-6 there.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        scores (float[B, 2, T, 4] q, float[B, 2, T, 4] k) => (float[B, 2, T, T] y)
        <float scale = {0.5}>
        {
            scaled = Mul (q, scale)
            turned = Transpose <perm = [0, 1, 3, 2]> (k)
            y = MatMul (scaled, turned)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        scores (float[B, 2, T, 4] q, float[B, 2, T, 4] k) => (float[B, 2, T, T] y)
        {
            y = com.microsoft.FusedMatMul <alpha = 0.5, transB = 1> (q, k)
        }

    Left alone:
        Other types than float and float16, "the type of 'a' is double":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        half (double[B, H, M, K] a, double[B, H, K, N] b) => (double[B, H, M, N] y)
        <double half = {0.5}>
        {
            p = MatMul (a, b)
            y = Mul (p, half)
        }

    Safety:
        Exact, except rounding. What a Transpose or a factor makes must be used by the product
        alone; otherwise it would be computed all the same, and stays. A factor before a product in
        float16 stays: a sum of larger numbers may pass 65504 before it is scaled. Transposes of
        weights stay: they are done once, when the model is loaded. A constant with more dims than
        what it scales is no factor. Refused, with the reason: other types than float and float16,
        and those of a local function, which are not known.
    """

    sentence = "Transposes or factors beside a MatMul, each a kernel of its own"
    anchors = ("MatMul", "Mul", "Div", "Transpose")

    def match(self, node: ir.Node, view: View) -> Site | Skip | None:
        """Return the site if Transposes or factors can be fused into a MatMul."""
        if is_op(node, "Transpose"):
            return _match_transposed_product(node, view)
        product, alpha = _product_and_factor(node, view)
        if product is None:
            return _match_factor(node, view)
        if product.inputs[0] is None or product.inputs[1] is None:
            return None
        user = only_user(node)
        if user is not None and _product_and_factor(user, view)[0] is product:
            return None  # that node is the last one of the product
        dtype = view.shapes.dtype(product.inputs[0])
        scales = dtype == ir.DataType.FLOAT
        lhs, rhs = (_operand_of(x, product, view, scales=scales) for x in product.inputs if x)
        alpha *= lhs.factor * rhs.factor
        if not (lhs.swapped or rhs.swapped or alpha != 1):
            return None
        if dtype not in FLOATS:
            type_text = "is not known here" if dtype is None else f"is {dtype.name.lower()}"
            return Skip(node, f"the type of {product.inputs[0].name!r} {type_text}")
        return ProductSite(node, lhs, rhs, alpha)

    def rewrite(self, match: Site, op: Builder) -> ir.Value:
        """Build one MatMul or FusedMatMul."""
        if isinstance(match, FactorSite):
            fused_attributes = {name: x.value for name, x in match.product.attributes.items()}
            fused_attributes["alpha"] = match.alpha * attr_float(match.product, "alpha", 1.0)
            with op.inserting_before(match.product):
                product = op.make(
                    f"{MICROSOFT}.FusedMatMul", *match.product.inputs, **fused_attributes
                )
            op.replace_and_remove(match.product.outputs[0], product)
            return match.value
        if isinstance(match, TransposedProductSite):
            data, weight = match.product.inputs
            product = op.make(f"{MICROSOFT}.FusedMatMul", weight, data, transA=1, transB=1)
            for kind, term in reversed(match.steps):
                product = op.make(kind, product, _transpose_column(term, op))
            return product
        attributes: dict[str, float | int] = {} if match.alpha == 1 else {"alpha": match.alpha}
        for side, operand in (("A", match.lhs), ("B", match.rhs)):
            if operand.swapped:
                attributes[f"trans{side}"] = 1
        kind = f"{MICROSOFT}.FusedMatMul" if attributes else "MatMul"
        return op.make(kind, match.lhs.value, match.rhs.value, **attributes)


def _match_factor(node: ir.Node, view: View) -> FactorSite | None:
    """Return the site of a factor behind layout operators of a product, or None."""
    scaled = _scale_of(node, view)
    if scaled is None or view.shapes.dtype(scaled[0]) not in FLOATS:
        return None
    user, maker = node, scaled[0].producer()
    while _KEEPS_FACTOR.has(maker) and _keeps_factor(maker, user):
        user, maker = maker, producer_of(maker.inputs[0])
    if not _PRODUCTS.has(maker) or user is node or not is_read_once(maker.outputs[0]):
        return None
    fixed = any(x in view.constant_values for x in maker.inputs)
    return None if fixed else FactorSite(node, scaled[0], maker, scaled[1])


def _keeps_factor(node: ir.Node, user: ir.Node) -> bool:
    """Return whether a node that moves elements moves them to ``user`` alone, and pads by zeros."""
    if only_user(node) is not user or len(node.outputs) != 1:
        return False
    return not is_op(node, "Pad") or pad_mode(node) != "constant" or pad_fill(node) == 0


def _match_transposed_product(node: ir.Node, view: View) -> TransposedProductSite | None:
    """Return the site of a Transpose behind a product with a weight, or None."""
    value, user, steps = node.inputs[0], node, list[tuple[str, ir.Value]]()
    if view.shapes.rank(value) != 3 or view.shapes.dtype(value) not in FLOATS:
        return None
    if not _swaps_last_axes(node, view):
        return None
    while value is not None and (maker := value.producer()) is not None:
        if only_user(maker) is not user:
            return None
        if is_op(maker, "MatMul"):
            ranks = [view.shapes.rank(x) for x in maker.inputs]
            fits = ranks == [3, 2] and maker.inputs[1] in view.constant_values
            return TransposedProductSite(node, maker, tuple(steps)) if fits else None
        rows_and_column = _split_off_column(maker, view)
        if rows_and_column is None:
            return None
        value, column = rows_and_column
        steps.append((maker.op_type, column))
        user = maker
    return None


def _split_off_column(node: ir.Node, view: View) -> tuple[ir.Value | None, ir.Value] | None:
    """Return what an Add or Mul adds a bias or a number a frame to, and that; or None."""
    sides = (node.inputs, node.inputs[::-1]) if is_op(node, "Add", "Mul") else ()
    pairs = [(x, y) for x, y in sides if y is not None and _is_column(y, view)]
    return pairs[0] if len(pairs) == 1 else None


def _is_column(value: ir.Value, view: View) -> bool:
    """Return whether a value is a bias, [W], or has one number a frame, [B, T, 1]."""
    dims = view.shapes.dims(value) or ()
    return value in view.constant_values if len(dims) == 1 else len(dims) == 3 and dims[-1] == 1


def _transpose_column(value: ir.Value, op: Builder) -> ir.Value:
    """Build the bias or frame values of the transposed product, [W, 1] or [B, 1, T]."""
    if op.view.shapes.rank(value) == 1:
        return with_axes("Unsqueeze", value, (1,), op)
    first = value.producer()
    row = first.inputs[0] if is_op(first, "Unsqueeze") else None
    if row is not None and op.view.shapes.rank(row) == 2:
        return op.build_once(("row", value), lambda: with_axes("Unsqueeze", row, (1,), op), value)
    return op.build_once(("turned", value), lambda: op.Transpose(value, perm=[0, 2, 1]), value)


def _product_and_factor(node: ir.Node, view: View) -> tuple[ir.Node | None, float]:
    """Return the MatMul that ``node`` ends, or None, and the factor behind it."""
    alpha = 1.0
    while (scaled := _scale_of(node, view)) is not None:
        value, number = scaled
        maker = value.producer()
        if maker is None or only_user(maker) is not node:
            return None, alpha
        alpha, node = alpha * number, maker
    return (node if is_op(node, "MatMul") else None), alpha


def _operand_of(value: ir.Value, user: ir.Node, view: View, *, scales: bool) -> Operand:
    """Return the operand of ``user`` without the Transpose and factors before it.

    Args:
        value: The input of ``user``.
        user: The MatMul.
        view: The model.
        scales: Whether factors may be taken off as well.
    """
    node, swapped, factor = value.producer(), False, 1.0
    source = node.inputs[0] if node is not None and _swaps_last_axes(node, view) else None
    if node is not None and source is not None and only_user(node) is user:
        value, user, swapped = source, node, True
    while scales and (node := value.producer()) is not None and only_user(node) is user:
        scaled = _scale_of(node, view)
        if scaled is None:
            break
        value, user, factor = scaled[0], node, factor * scaled[1]
    return Operand(value, swapped, factor)


def _scale_of(node: ir.Node, view: View) -> tuple[ir.Value, float] | None:
    """Return the tensor that ``node`` multiplies with a number, and the number; or None."""
    if not is_op(node, "Mul", "Div"):
        return None
    for i in (0, 1) if is_op(node, "Mul") else (1,):
        value = node.inputs[1 - i]
        number = number_of(node.inputs[i], view.shapes.rank(value))
        if value is not None and number:
            return value, number if is_op(node, "Mul") else 1 / number
    return None


def _swaps_last_axes(node: ir.Node, view: View) -> bool:
    """Return whether a Transpose swaps the last two axes in each run, not once as a weight's."""
    source = node.inputs[0] if is_op(node, "Transpose") else None
    if source is None or source.is_initializer() or is_op(source.producer(), "Constant"):
        return False
    perm = node.attributes.get("perm")
    if perm is not None and perm.is_ref():
        return False  # it differs from call to call
    return swaps_last_axes(permutation_of(node, view.shapes.rank(source) or 0))
