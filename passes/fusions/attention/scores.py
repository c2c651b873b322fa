"""Nodes between the two products of an attention, before and after its Softmax."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix import ops
from graphfix.core import Skip
from graphfix.facts.hidden_scores import hides_score
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op, producer_of
from graphfix.graph.text import describe_node, node_label
from graphfix.ops.softmax import is_along_last_axis

from ...common.fills import fill_of
from .axis_layout import Atom, Layout, layout_after
from .bit_tensors import BitTensor, bit_tensors_of
from .operand_path import keeps_dims, scaling_of
from .product import Product, product_of, why_not_product

_MAX_STEPS = 24
# The layout of the scores is followed through these.
_ARRANGES = ops.IDLE | ops.CASTS | ops.RESHAPES | ops.named("Transpose")
# These may lie between a product and its Softmax; where they cannot be fused, the Skip names them.
_MAY_CHANGE_SCORES = (
    _ARRANGES | ops.MOVES_ELEMENTS | ops.ARITHMETIC | ops.named("Clip Neg Tanh Where")
)
Step = tuple["ir.Node", int]


@dataclass(frozen=True)
class Addend:
    """A tensor that is added to the scores.

    Attributes:
        value: The addend.
        axes: The axes of the scores at that point.
        bits: The 0/1 tensors that alone determine it.
        factor: What the sum is multiplied by before the Softmax.
    """

    value: ir.Value
    axes: tuple[tuple[Atom, ...], ...]
    bits: tuple[BitTensor, ...]
    factor: float


@dataclass(frozen=True)
class Scores:
    """The path from the product of queries and keys to the Softmax.

    Attributes:
        product: The product of queries and keys.
        path: The nodes between, nearest to the product first.
        layout: The layout of the scores at the Softmax.
        factor: What the product is multiplied by.
        addends: The tensors that are added to it.
        may_add_keys: Whether an addend is not proved to have as many keys as the product, or
            one: the sum may then have more keys.
    """

    product: Product
    path: tuple[ir.Node, ...]
    layout: Layout
    factor: float
    addends: tuple[Addend, ...]
    may_add_keys: bool = False


@dataclass(frozen=True)
class Weights:
    """The path from the Softmax to the product with the values.

    Attributes:
        softmax: The Softmax.
        operand: The index of the operand of the product that holds the weights.
        keep_masks: What the weights are multiplied by: 0 for hidden keys, 1 elsewhere.
        path: The nodes between, nearest to the Softmax first.
    """

    softmax: ir.Node
    operand: int
    keep_masks: tuple[ir.Value, ...]
    path: tuple[ir.Node, ...]


def weights_of(node: ir.Node, view: View) -> Weights | Skip | None:
    """Return how a Softmax's weights reach a product, a Skip, or None if they do not."""
    for index, value in enumerate(node.inputs if is_op(node, "Einsum") else node.inputs[:1]):
        path: list[ir.Node] = []
        keep_masks: list[ir.Value] = []
        while (
            value is not None
            and (producer := value.producer()) is not None
            and len(path) < _MAX_STEPS
        ):
            if is_op(producer, "Softmax"):
                return Weights(producer, index, tuple(keep_masks), tuple(reversed(path)))
            path.append(producer)
            if is_op(producer, "Mul"):
                masked = _masked_weights(producer, view)
                if masked is None:
                    break
                value, keep_mask = masked
                keep_masks.append(keep_mask)
            elif producer in _ARRANGES:
                value = producer.inputs[0]
            else:
                guarded = is_op(producer, "Where") and any(
                    x is not None and is_op(x.producer(), "Softmax") for x in producer.inputs[1:]
                )
                return Skip(node, _reason_after_softmax(producer)) if guarded else None
    return None


def scores_of(node: ir.Node, softmax: ir.Node, view: View) -> Scores | Skip | None:
    """Return the path from a product of queries and keys to ``softmax``, a Skip, or None.

    A Skip names ``node``, the second product.
    """
    source = softmax.inputs[0]
    rank = view.shapes.rank(source)
    if source is None:
        return None
    path = _path_from_product(source, view, _MAX_STEPS, ())
    if path is None or rank is None:
        obstacle = _find_obstacle(source, view)
        return None if obstacle is None else Skip(node, obstacle)
    if not is_along_last_axis(softmax, rank, view.opset_of_node(softmax)):
        return Skip(node, "its Softmax does not go along the last axis")
    product = product_of(path[0][0], view)
    if product is None:
        return None
    scores = Scores(product, (), product.result.layout, 1.0, ())
    for step, index in path[1:]:
        longer = _scores_after(step, index, scores, view)
        if isinstance(longer, str):
            return Skip(node, longer)
        scores = longer
    *other_axes, last_axis = scores.layout.axes
    has_keys_elsewhere = any(atom.role == "key" for axis in other_axes for atom in axis)
    if has_keys_elsewhere or any(atom.role != "key" for atom in last_axis):
        return Skip(node, "its Softmax does not go along the keys alone")
    return scores


def _scores_after(step: ir.Node, index: int, scores: Scores, view: View) -> Scores | str:
    """Return the scores with one more node on their path, or why it cannot be fused.

    Args:
        step: The node.
        index: Which of its inputs are the scores.
        scores: The scores before it.
        view: The model around it.
    """
    scores = replace(scores, path=(*scores.path, step))
    scaled = scaling_of(step, view)
    if scaled is not None:
        factor = scaled[1]
        addends = tuple(replace(x, factor=x.factor * factor) for x in scores.addends)
        return replace(scores, factor=scores.factor * factor, addends=addends)
    if is_op(step, "Add", "Sub"):
        return _scores_plus_addend(step, index, scores, view)
    if is_op(step, "Max", "Clip"):
        return scores  # a floor that only hidden scores reach: see _score_inputs
    layout = layout_after(step, scores.layout, view)
    if layout is None:
        return f"how {describe_node(step)} arranges its scores is not seen"
    return replace(scores, layout=layout)


def _scores_plus_addend(step: ir.Node, index: int, scores: Scores, view: View) -> Scores | str:
    """Return the scores with one more addend, or why it cannot be one."""
    layout, own, addend = scores.layout, step.inputs[index], step.inputs[1 - index]
    if not layout.keeps_operand_order:
        return f"its scores are in another order at {node_label(step)!r}"
    may_add_keys = own is not None and not keeps_dims(step, own, view, may_add_dims=True)
    new_axes = (view.shapes.rank(step.outputs[0]) or 0) - len(layout.axes)
    layout = replace(layout, axes=((),) * new_axes + layout.axes)
    addends = list(scores.addends)
    if addend is not None:
        bits = tuple(bit_tensors_of(addend, layout.axes, view))
        sign = -1.0 if is_op(step, "Sub") else 1.0
        addends.append(Addend(addend, layout.axes, bits, sign))
    return replace(
        scores,
        layout=layout,
        addends=tuple(addends),
        may_add_keys=scores.may_add_keys or may_add_keys,
    )


def why_read_elsewhere(nodes: Sequence[ir.Node], shape_readers: Collection[ir.Node]) -> str | None:
    """Return why the outputs of these nodes are still needed by others, or None."""
    for node in nodes:
        value = node.outputs[0]
        uses = [use for use in value.uses() if use.node not in shape_readers]
        if len(uses) == 1 and not value.is_graph_output():
            continue
        if value.is_graph_output():
            return (
                f"what {node_label(node)!r} makes is also an output, which a fused operator has not"
            )
        users = sorted({use.node.op_type for use in value.uses()})
        return f"what {node_label(node)!r} makes is read more than once, by {' and '.join(users)}"
    return None


def _reason_after_softmax(node: ir.Node) -> str:
    """Return why a Where behind a Softmax keeps its attention from being fused."""
    where = f"{describe_node(node)} chooses between its weights and something else"
    if is_op(producer_of(node.inputs[0]), "IsNaN"):
        return f"{where}: the pass drop-nan-guard takes it away, unless a row may be hidden whole"
    return f"{where}; the pass additive-mask makes a Mul of it"


def _masked_weights(node: ir.Node, view: View) -> tuple[ir.Value, ir.Value] | None:
    """Return (weights, keep mask) of a Mul that sets hidden weights to 0 again, or None."""
    for weights, keep_mask in (node.inputs, node.inputs[::-1]):
        if weights is None or keep_mask is None or not keeps_dims(node, weights, view):
            continue
        if is_op(producer_of(weights, *_ARRANGES, "Mul"), "Softmax"):
            return weights, keep_mask
    return None


def _path_from_product(
    value: ir.Value, view: View, steps_left: int, tail: tuple[Step, ...]
) -> list[Step] | None:
    """Return the nodes from a product to ``value``, each with the input to follow, or None."""
    node = value.producer()
    if node is None or steps_left == 0:
        return None
    if is_op(node, "MatMul", "Einsum"):
        computed = all(
            x is not None and not x.is_initializer() and const_of(x) is None for x in node.inputs
        )
        return [(node, 0), *tail] if computed and product_of(node, view) is not None else None
    for index in _score_inputs(node, view):
        source = node.inputs[index]
        if source is not None:
            path = _path_from_product(source, view, steps_left - 1, ((node, index), *tail))
            if path is not None:
                return path
    return None


def _score_inputs(node: ir.Node, view: View) -> list[int]:
    """Return which inputs of a node between product and Softmax may be the scores."""
    if node in _ARRANGES:
        return [0]
    scaled = scaling_of(node, view)
    if scaled is not None:
        return [i for i, x in enumerate(node.inputs) if x is scaled[0]][:1]
    if is_op(node, "Add", "Sub"):
        return _summands_with_dims(node, view)
    return [0] if _clamps_hidden_scores(node) else []


def _summands_with_dims(node: ir.Node, view: View) -> list[int]:
    """Return which inputs of an Add, or whether the first of a Sub, have the dims of the sum."""
    terms = node.inputs[: 1 if is_op(node, "Sub") else 2]
    operands = [(i, x) for i, x in enumerate(terms) if x is not None]
    same_dims = [i for i, x in operands if keeps_dims(node, x, view, may_add_dims=True)]
    # The length of the last axis is proved by the product of the weights with the values.
    return same_dims or [
        i for i, x in operands if keeps_dims(node, x, view, except_last=1, may_add_dims=True)
    ]


def _clamps_hidden_scores(node: ir.Node) -> bool:
    """Return whether a Max or Clip has a floor so low that only hidden scores reach it."""
    if not is_op(node, "Max", "Clip") or len([x for x in node.inputs if x is not None]) != 2:
        return False
    floor = fill_of(node.inputs[1])
    return floor is not None and hides_score(floor.number)


def _find_obstacle(value: ir.Value, view: View) -> str | None:
    """Return why the path between a product and its Softmax cannot be fused, or None."""
    stack: list[tuple[ir.Value, ir.Node | None]] = [(value, None)]
    for _ in range(_MAX_STEPS):
        if not stack:
            break
        current, first = stack.pop()
        node = current.producer()
        if is_op(node, "MatMul", "Einsum"):
            if not any(x is not None and x.is_initializer() for x in node.inputs):
                return why_not_product(node, view) if first is None else _obstacle_reason(first)
        elif _MAY_CHANGE_SCORES.has(node):
            score_inputs = _score_inputs(node, view)
            first = first if first is not None or score_inputs else node
            sources = [node.inputs[i] for i in score_inputs] or node.inputs
            stack += [(x, first) for x in sources if x is not None]
    return None


def _obstacle_reason(node: ir.Node) -> str:
    """Return why a node between scores and Softmax cannot be fused."""
    where = f"{describe_node(node)} lies between its scores and their Softmax"
    if is_op(node, "Where"):
        return f"{where}; the pass additive-mask makes an Add of a mask there"
    return f"{where}, and is neither a constant scale nor an addend"
