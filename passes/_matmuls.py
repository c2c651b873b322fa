"""What a MatMul may take along: turned operands and constant factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphfix.model.values import attr_ints, is_op

from ._fusing import only_user
from ._polynomial import number_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.build import Builder
    from graphfix.model.view import View

_LAYOUT = ("Reshape", "Transpose", "Unsqueeze", "Squeeze")


@dataclass(frozen=True)
class Operand:
    """One factor of a product, before what the product itself can do.

    Attributes:
        value: The tensor.
        layout: What is done to its layout on the way, first to last; to be made again.
        swapped: Whether its last two axes are swapped at the end.
        rolled: Whether its first axis goes behind the batch, before those are swapped.
        factor: What it is multiplied with on the way.
    """

    value: ir.Value
    layout: tuple[ir.Node, ...] = ()
    swapped: bool = False
    rolled: bool = False
    factor: float = 1.0

    @property
    def plain(self) -> bool:
        """Whether it is taken as it is."""
        return not (self.swapped or self.rolled or self.factor != 1)

    def build(self, op: Builder) -> ir.Value:
        """The tensor in its layout."""
        value = self.value
        for node in self.layout:
            attributes = {name: x.value for name, x in node.attributes.items()}
            value = op.make(node.op_type, value, *node.inputs[1:], **attributes)
        return value


def operand_of(value: ir.Value, user: ir.Node, view: View, *, scales: bool) -> Operand:
    """What ``user`` multiplies, with the Transpose and the factors before it taken off.

    Args:
        value: The input of ``user``.
        user: The MatMul.
        view: The model.
        scales: Whether factors may be taken off as well.
    """
    node = value.producer()
    turned = None if node is None else _turn(node)
    if turned is not None and turned[1] and not _alike(user, view):
        turned = None
    if node is not None and turned is not None and only_user(node) is user and _computed(node):
        source = node.inputs[0]
        assert source is not None
        factor, layout, inner = _unscaled(source, node, view) if scales else (1.0, (), source)
        return Operand(inner, layout, *turned, factor)
    factor, layout, inner = _unscaled(value, user, view) if scales else (1.0, (), value)
    return Operand(inner, layout, factor=factor)


def _alike(product: ir.Node, view: View) -> bool:
    """Whether both operands have as many dims: else FusedMatMul takes no batch that is turned."""
    ranks = {view.shapes.rank(x) for x in product.inputs}
    return len(ranks) == 1 and None not in ranks


def _unscaled(
    value: ir.Value, user: ir.Node, view: View
) -> tuple[float, tuple[ir.Node, ...], ir.Value]:
    """The factors of ``value``, the layout nodes between and after them, and what is scaled."""
    factor, taken, found = 1.0, 0, value
    path: list[ir.Node] = []
    while (node := value.producer()) is not None and only_user(node) is user:
        scaled = scale_of(node, view)
        if scaled is not None:
            value, by = scaled
            factor, taken, found = factor * by, len(path), value
        elif is_op(node, *_LAYOUT) and node.inputs[0] is not None and _made_again(node):
            path.append(node)
            value = node.inputs[0]
        else:
            break
        user = node
    return factor, tuple(reversed(path[:taken])), found


def scale_of(node: ir.Node | None, view: View) -> tuple[ir.Value, float] | None:
    """What ``node`` multiplies with a number, and the number."""
    if not is_op(node, "Mul", "Div"):
        return None
    for i in (0, 1) if is_op(node, "Mul") else (1,):
        value = node.inputs[1 - i]
        number = number_of(node.inputs[i], view.shapes.rank(value))
        if value is not None and number:
            return value, number if is_op(node, "Mul") else 1 / number
    return None


def _turn(node: ir.Node) -> tuple[bool, bool] | None:
    """How a Transpose turns: (the last two axes, the first behind the batch); None if neither."""
    perm = attr_ints(node, "perm") if is_op(node, "Transpose") else None
    if perm is None or len(perm) < 2:
        return None
    *batch, rows, columns = range(len(perm))
    if perm == (*batch, columns, rows):
        return True, False
    if batch and perm == (*batch[1:], rows, 0, columns):
        return False, True
    return (True, True) if batch and perm == (*batch[1:], rows, columns, 0) else None


def _computed(node: ir.Node) -> bool:
    """Whether a Transpose is one of a run: that of a weight is done when the model is loaded."""
    source = node.inputs[0]
    return (
        source is not None
        and not source.is_initializer()
        and not (is_op(source.producer(), "Constant"))
    )


def _made_again(node: ir.Node) -> bool:
    return not any(x.is_ref() for x in node.attributes.values())
