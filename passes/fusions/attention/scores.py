"""What lies between the two products of an attention, before and after the Softmax."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix.core import Skip
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, is_op, maker_of
from graphfix.graph.text import path_of, told

from ...masks.sites.where_masks import HIDES, fill_of
from .axis_layout import REGROUPS, Atom, Layout, after
from .bit_tensors import Bit, bits_of
from .operand_path import keeps_dims, scaling_of
from .product import Product, not_a_product, product_of

_FAR = 24
_ARRANGES = ("Identity", "Dropout", "Cast", "Transpose", *REGROUPS)
_LEADS_ON = (
    *("Where", "Add", "Sub", "Mul", "Div", "Tanh", "Min", "Max", "Clip", "Pow", "Neg"),
    *_ARRANGES,
)
Step = tuple["ir.Node", int]


@dataclass(frozen=True)
class Addend:
    """What is added to the scores.

    Attributes:
        value: The addend.
        axes: What the axes of the scores are there.
        bits: The tensors of zeros and ones that alone decide about it.
        factor: What the sum is multiplied by before the Softmax.
    """

    value: ir.Value
    axes: tuple[tuple[Atom, ...], ...]
    bits: tuple[Bit, ...]
    factor: float = 1.0


@dataclass(frozen=True)
class Scores:
    """The way from the product of queries and keys to the Softmax.

    Attributes:
        product: That product.
        path: The nodes between, nearest to the product first.
        layout: What the axes are at the Softmax.
        factor: What the product is multiplied by.
        addends: What is added to it.
        open: Whether one of them is not proved to be of as many keys, or of one: the sum may be of
            more keys than the product, as far as it goes.
    """

    product: Product
    path: tuple[ir.Node, ...]
    layout: Layout
    factor: float
    addends: tuple[Addend, ...]
    open: bool = False


@dataclass(frozen=True)
class Weights:
    """The way from the Softmax to the product with the values.

    Attributes:
        softmax: The Softmax.
        input: Which operand of the product they are.
        keeps: What the weights are multiplied by: 0 where they are hidden, 1 elsewhere.
        path: The nodes between, nearest to the Softmax first.
    """

    softmax: ir.Node
    input: int
    keeps: tuple[ir.Value, ...]
    path: tuple[ir.Node, ...]


def weights_of(node: ir.Node, view: View) -> Weights | Skip | None:
    """How the weights of a Softmax come into a product; why not; None if they do not at all."""
    for index, value in enumerate(node.inputs if is_op(node, "Einsum") else node.inputs[:1]):
        path: list[ir.Node] = []
        keeps: list[ir.Value] = []
        while value is not None and (made := value.producer()) is not None and len(path) < _FAR:
            if is_op(made, "Softmax"):
                return Weights(made, index, tuple(keeps), tuple(reversed(path)))
            path.append(made)
            if is_op(made, "Mul"):
                found = _weighed(made, view)
                if found is None:
                    break
                value, keep = found
                keeps.append(keep)
            elif is_op(made, *_ARRANGES):
                value = made.inputs[0]
            else:
                guarded = is_op(made, "Where") and any(
                    x is not None and is_op(x.producer(), "Softmax") for x in made.inputs[1:]
                )
                return Skip(node, _after_softmax(made)) if guarded else None
    return None


def scores_of(node: ir.Node, softmax: ir.Node, view: View) -> Scores | Skip | None:
    """The way from a product of queries and keys to ``softmax``; None if there is none.

    A reason why not is said of ``node``, the second product.
    """
    source = softmax.inputs[0]
    rank = view.shapes.rank(source)
    if source is None:
        return None
    path = _path(source, view, _FAR, ())
    if path is None or rank is None:
        why = _obstacle(source, view)
        return None if why is None else Skip(node, why)
    if attr_int(softmax, "axis", -1 if view.opset(softmax) >= 13 else 1) not in (-1, rank - 1):
        return Skip(node, "its Softmax does not go along the last axis")
    product = product_of(path[0][0], view)
    if product is None:
        return None
    layout, factor, addends = product.result.layout, 1.0, list[Addend]()
    unproved = False
    for made, index in path[1:]:
        scaled = scaling_of(made, view)
        if scaled is not None:
            factor *= scaled[1]
            addends = [replace(x, factor=x.factor * scaled[1]) for x in addends]
        elif is_op(made, "Add", "Sub"):
            addend = made.inputs[1 - index]
            if not layout.in_order:
                return Skip(node, f"its scores are in another order at {path_of(made)!r}")
            scores = made.inputs[index]
            unproved |= scores is not None and not keeps_dims(made, scores, view, lifts=True)
            ones = (view.shapes.rank(made.outputs[0]) or 0) - len(layout.axes)
            layout = replace(layout, axes=((),) * ones + layout.axes)
            if addend is not None:
                bits = tuple(bits_of(addend, layout.axes, view))
                sign = -1.0 if is_op(made, "Sub") else 1.0
                addends.append(Addend(addend, layout.axes, bits, sign))
        elif not is_op(made, "Max", "Clip"):
            moved = after(made, layout, view)
            if moved is None:
                return Skip(node, f"how {told(made)} arranges its scores is not seen")
            layout = moved
    if any(atom.role == "key" for axis_ in layout.axes[:-1] for atom in axis_) or any(
        atom.role != "key" for atom in layout.axes[-1]
    ):
        return Skip(node, "its Softmax does not go along the keys alone")
    nodes = tuple(made for made, _ in path[1:])
    return Scores(product, nodes, layout, factor, tuple(addends), unproved)


def read_elsewhere(nodes: Sequence[ir.Node], measures: Collection[ir.Node]) -> str | None:
    """Why what these nodes make cannot go: something else than ``measures`` reads it as well."""
    for node in nodes:
        value = node.outputs[0]
        uses = [use for use in value.uses() if use.node not in measures]
        if len(uses) == 1 and not value.is_graph_output():
            continue
        if value.is_graph_output():
            return f"what {path_of(node)!r} makes is also an output, which a fused operator has not"
        users = sorted({use.node.op_type for use in value.uses()})
        return f"what {path_of(node)!r} makes is read more than once, by {' and '.join(users)}"
    return None


def _after_softmax(node: ir.Node) -> str:
    where = f"{told(node)} chooses between its weights and something else"
    if is_op(maker_of(node.inputs[0]), "IsNaN"):
        return f"{where}: the pass drop-nan-guard takes it away, unless a row may be hidden whole"
    return f"{where}; the pass additive-mask makes a Mul of it"


def _weighed(node: ir.Node, view: View) -> tuple[ir.Value, ir.Value] | None:
    """(weights, keep) of a Mul that sets hidden weights to 0 once more."""
    for weights, keep in (node.inputs, node.inputs[::-1]):
        if weights is None or keep is None or not keeps_dims(node, weights, view):
            continue
        if is_op(maker_of(weights, "Identity", "Dropout", "Cast", "Reshape", "Mul"), "Softmax"):
            return weights, keep
    return None


def _path(value: ir.Value, view: View, far: int, after_: tuple[Step, ...]) -> list[Step] | None:
    """The nodes from a product of two computed tensors to ``value``, each with its input."""
    node = value.producer()
    if node is None or far == 0:
        return None
    if is_op(node, "MatMul", "Einsum"):
        computed = all(
            x is not None and not x.is_initializer() and const_of(x) is None for x in node.inputs
        )
        return [(node, 0), *after_] if computed and product_of(node, view) is not None else None
    for index in _followed(node, view):
        source = node.inputs[index]
        if source is not None:
            found = _path(source, view, far - 1, ((node, index), *after_))
            if found is not None:
                return found
    return None


def _followed(node: ir.Node, view: View) -> list[int]:
    """Which inputs of a node between the product and the Softmax may be the scores."""
    if is_op(node, *_ARRANGES):
        return [0]
    scaled = scaling_of(node, view)
    if scaled is not None:
        return [i for i, x in enumerate(node.inputs) if x is scaled[0]][:1]
    if is_op(node, "Add", "Sub"):
        terms = node.inputs[: 1 if is_op(node, "Sub") else 2]
        both = [(i, x) for i, x in enumerate(terms) if x is not None]
        found = [i for i, x in both if keeps_dims(node, x, view, lifts=True)]
        # How long the last axis is follows from the values, in their product with the weights.
        return found or [i for i, x in both if keeps_dims(node, x, view, but=1, lifts=True)]
    if is_op(node, "Max", "Clip") and len([x for x in node.inputs if x is not None]) == 2:
        # No score is this low by itself, so nothing but what is hidden is clamped.
        fill = fill_of(node.inputs[1])
        return [0] if fill is not None and fill.number <= HIDES else []
    return []


def _obstacle(value: ir.Value, view: View) -> str | None:
    """What no fused operator has between a product of two computed tensors and their Softmax."""
    stack: list[tuple[ir.Value, ir.Node | None]] = [(value, None)]
    for _ in range(_FAR):
        if not stack:
            break
        top, first = stack.pop()
        node = top.producer()
        if is_op(node, "MatMul", "Einsum"):
            if not any(x is not None and x.is_initializer() for x in node.inputs):
                return not_a_product(node, view) if first is None else _reason(first)
        elif is_op(node, *_LEADS_ON):
            through = _followed(node, view)
            first = first if first is not None or through else node
            sources = [node.inputs[i] for i in through] or node.inputs
            stack += [(x, first) for x in sources if x is not None]
    return None


def _reason(node: ir.Node) -> str:
    where = f"{told(node)} lies between its scores and their Softmax"
    if is_op(node, "Where"):
        return f"{where}; the pass additive-mask makes an Add of a mask there"
    return f"{where}, and is neither a constant scale nor an addend"
