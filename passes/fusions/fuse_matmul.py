"""fuse-matmul: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_float, attr_ints, input_at, is_op, maker_of

from ..common.fusible import FLOATS, MICROSOFT, only_user, swaps_last
from ..common.polynomial import number_of
from ..common.reshape_targets import with_axes
from .attention.operand_path import read_once

# What a product with relative positions goes through until it is added to scores.
_LAYS_OUT = (
    *("Reshape", "Transpose", "Squeeze", "Unsqueeze"),
    *("Pad", "Slice", "Gather", "GatherElements"),
)


@dataclass(frozen=True)
class Operand:
    """One factor of a product, before what the product itself can do.

    Attributes:
        value: The tensor.
        swapped: Whether its last two axes are swapped.
        factor: What it is multiplied with.
    """

    value: ir.Value
    swapped: bool
    factor: float


@dataclass(frozen=True)
class ProductSite(Match):
    """The last node of a product.

    Attributes:
        left: The first operand.
        right: The second.
        alpha: What the product is multiplied with.
    """

    left: Operand
    right: Operand
    alpha: float


@dataclass(frozen=True)
class TurnedSite(Match):
    """A Transpose of what a product with a weight makes, [B, T, W] to [B, W, T].

    Attributes:
        product: The product.
        steps: What is added or multiplied in between, last first: Add or Mul, and [W] or [B, T, 1].
    """

    product: ir.Node
    steps: tuple[tuple[str, ir.Value], ...]


@dataclass(frozen=True)
class FactorSite(Match):
    """A factor of what was laid out otherwise since its product.

    Attributes:
        value: What it scales.
        product: The MatMul or FusedMatMul.
        alpha: The factor.
    """

    value: ir.Value
    product: ir.Node
    alpha: float


Site = ProductSite | TurnedSite | FactorSite


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
        """The last node of a product: the MatMul, or the last factor or the Transpose after it."""
        if is_op(node, "Transpose"):
            return _turned(node, view)
        product, alpha = _taken_apart(node, view)
        if product is None:
            return _factor(node, view)
        if product.inputs[0] is None or product.inputs[1] is None:
            return None
        user = only_user(node)
        if user is not None and _taken_apart(user, view)[0] is product:
            return None  # which is the last node then
        dtype = view.shapes.dtype(product.inputs[0])
        scales = dtype == ir.DataType.FLOAT
        left, right = (_operand_of(x, product, view, scales=scales) for x in product.inputs if x)
        alpha *= left.factor * right.factor
        if not (left.swapped or right.swapped or alpha != 1):
            return None
        if dtype not in FLOATS:
            known = "is not known here" if dtype is None else f"is {dtype.name.lower()}"
            return Skip(node, f"the type of {product.inputs[0].name!r} {known}")
        return ProductSite(node, left, right, alpha)

    def rewrite(self, match: Site, op: Builder) -> ir.Value:
        """The one operator."""
        if isinstance(match, FactorSite):
            given = {name: x.value for name, x in match.product.attributes.items()}
            given["alpha"] = match.alpha * attr_float(match.product, "alpha", 1.0)
            with op.placed(match.product):
                made = op.make(f"{MICROSOFT}.FusedMatMul", *match.product.inputs, **given)
            op.supplant(match.product.outputs[0], made)
            return match.value
        if isinstance(match, TurnedSite):
            data, weight = match.product.inputs
            made = op.make(f"{MICROSOFT}.FusedMatMul", weight, data, transA=1, transB=1)
            for kind, other in reversed(match.steps):
                made = op.make(kind, made, _column(other, op))
            return made
        attributes: dict[str, float | int] = {} if match.alpha == 1 else {"alpha": match.alpha}
        for side, operand in (("A", match.left), ("B", match.right)):
            if operand.swapped:
                attributes[f"trans{side}"] = 1
        kind = f"{MICROSOFT}.FusedMatMul" if attributes else "MatMul"
        return op.make(kind, match.left.value, match.right.value, **attributes)


def _factor(node: ir.Node, view: View) -> FactorSite | None:
    """A factor after what lays out a product of two computed tensors, and does nothing else."""
    scaled = _scale_of(node, view)
    if scaled is None or view.shapes.dtype(scaled[0]) not in FLOATS:
        return None
    user, maker = node, scaled[0].producer()
    while maker is not None and only_user(maker) is user and is_op(maker, *_LAYS_OUT):
        padding = input_at(maker, 2) if is_op(maker, "Pad") else None
        if padding is not None and scalar_of(padding) != 0:
            return None
        user, maker = maker, maker_of(maker.inputs[0])
    product = maker if maker is not None and maker.op_type in ("MatMul", "FusedMatMul") else None
    if product is None or user is node or not read_once(product.outputs[0]):
        return None
    fixed = any(x in view.fixed for x in product.inputs)
    return None if fixed else FactorSite(node, scaled[0], product, scaled[1])


def _turned(node: ir.Node, view: View) -> TurnedSite | None:
    """The product with a weight that a Transpose of its rows and columns ends."""
    value, user, steps = node.inputs[0], node, list[tuple[str, ir.Value]]()
    if not _swaps(node) or view.shapes.rank(value) != 3 or view.shapes.dtype(value) not in FLOATS:
        return None
    while value is not None and (maker := value.producer()) is not None:
        if only_user(maker) is not user:
            return None
        if is_op(maker, "MatMul"):
            ranks = [view.shapes.rank(x) for x in maker.inputs]
            fits = ranks == [3, 2] and maker.inputs[1] in view.fixed
            return TurnedSite(node, maker, tuple(steps)) if fits else None
        sides = (maker.inputs, maker.inputs[::-1]) if is_op(maker, "Add", "Mul") else ()
        found = [(x, y) for x, y in sides if y is not None and _is_column(y, view)]
        if len(found) != 1:
            return None
        steps.append((maker.op_type, found[0][1]))
        value, user = found[0][0], maker
    return None


def _is_column(value: ir.Value, view: View) -> bool:
    """Whether a value is a bias, [W], or has one number for each frame, [B, T, 1]."""
    dims = view.shapes.dims(value) or ()
    return value in view.fixed if len(dims) == 1 else len(dims) == 3 and dims[-1] == 1


def _column(value: ir.Value, op: Builder) -> ir.Value:
    """The same for what is transposed, [W, 1] or [B, 1, T]."""
    if op.view.shapes.rank(value) == 1:
        return with_axes("Unsqueeze", value, (1,), op)
    first = value.producer()
    row = first.inputs[0] if is_op(first, "Unsqueeze") else None
    if row is not None and op.view.shapes.rank(row) == 2:
        return op.once(("row", value), lambda: with_axes("Unsqueeze", row, (1,), op), value)
    return op.once(("turned", value), lambda: op.Transpose(value, perm=[0, 2, 1]), value)


def _taken_apart(node: ir.Node, view: View) -> tuple[ir.Node | None, float]:
    """The MatMul that ``node`` ends, and the factor after it."""
    alpha = 1.0
    while (scaled := _scale_of(node, view)) is not None:
        value, by = scaled
        maker = value.producer()
        if maker is None or only_user(maker) is not node:
            return None, alpha
        alpha, node = alpha * by, maker
    return (node if is_op(node, "MatMul") else None), alpha


def _operand_of(value: ir.Value, user: ir.Node, view: View, *, scales: bool) -> Operand:
    """What ``user`` multiplies, with the Transpose and the factors before it taken off.

    Args:
        value: The input of ``user``.
        user: The MatMul.
        view: The model.
        scales: Whether factors may be taken off as well.
    """
    node, swapped, factor = value.producer(), False, 1.0
    source = node.inputs[0] if node is not None and _swaps(node) else None
    if node is not None and source is not None and only_user(node) is user:
        value, user, swapped = source, node, True
    while scales and (node := value.producer()) is not None and only_user(node) is user:
        scaled = _scale_of(node, view)
        if scaled is None:
            break
        value, user, factor = scaled[0], node, factor * scaled[1]
    return Operand(value, swapped, factor)


def _scale_of(node: ir.Node, view: View) -> tuple[ir.Value, float] | None:
    """What ``node`` multiplies with a number, and the number."""
    if not is_op(node, "Mul", "Div"):
        return None
    for i in (0, 1) if is_op(node, "Mul") else (1,):
        value = node.inputs[1 - i]
        number = number_of(node.inputs[i], view.shapes.rank(value))
        if value is not None and number:
            return value, number if is_op(node, "Mul") else 1 / number
    return None


def _swaps(node: ir.Node) -> bool:
    """Whether a Transpose in each run swaps the last two axes; of a weight it does so once."""
    source = node.inputs[0] if is_op(node, "Transpose") else None
    if source is None or source.is_initializer() or is_op(source.producer(), "Constant"):
        return False
    return swaps_last(attr_ints(node, "perm") or ())
