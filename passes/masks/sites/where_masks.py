"""Where masks: their fill, the boolean that decides, and the Softmax behind them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import onnx_ir as ir

from graphfix import ops
from graphfix.editing.builder import PASS_KEY
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.graph.walks import reachable_from

from ...common.fills import Fill, fill_of
from ...common.score_reach import inputs_of_score_maker

# They choose by the order of numbers.
_RANKS_ELEMENTS = ops.ORDER_COMPARISONS | ops.RANKS | ops.REDUCES_TO_EXTREME
# How many tensors behind a condition are searched for the scores, and how many before a Softmax
# for its masks.
_MAX_BEHIND_CONDITION = 256
_MAX_BEFORE_SOFTMAX = 64


@dataclass(frozen=True)
class WhereMask:
    """``Where(condition, fill, data)``, in either order of the last two.

    Attributes:
        node: The Where.
        condition: Its boolean.
        fill_when: The value of ``condition`` for which the fill is taken.
        fill: The one number.
        data: The tensor that is taken otherwise.
    """

    node: ir.Node
    condition: ir.Value
    fill_when: bool
    fill: Fill
    data: ir.Value


def where_mask_of(node: ir.Node) -> WhereMask | None:
    """Return a Where as a fill put into data; of two fills, the lower one is the fill."""
    condition, if_true, if_false = node.inputs
    if condition is None or if_true is None or if_false is None:
        return None
    readings = ((True, fill_of(if_true), if_false), (False, fill_of(if_false), if_true))
    masks = [
        WhereMask(node, condition, fill_when, fill, data)
        for fill_when, fill, data in readings
        if fill is not None
    ]
    return min(masks, key=lambda mask: mask.fill.number, default=None)


@dataclass(frozen=True)
class Condition:
    """A boolean without the Nots, repeated Casts and needless Expands around it.

    Attributes:
        root: The boolean tensor that decides.
        when: The value of ``root`` for which the original condition holds.
    """

    root: ir.Value
    when: bool


def condition_of(
    value: ir.Value, view: View, *, expands: bool = False, when: bool = True
) -> Condition:
    """Return what makes ``value`` equal ``when``; with ``expands``, before any Expand."""
    while (node := value.producer()) is not None:
        if is_op(node, "Not"):
            when = not when
        elif is_op(node, "Cast"):
            is_comparison = ops.MAKES_BOOL.has(producer_of(node.inputs[0]))
            if not is_comparison and view.shapes.dtype(node.inputs[0]) != ir.DataType.BOOL:
                break
        elif not is_op(node, "Identity") and not (expands and is_op(node, "Expand")):
            break
        source = node.inputs[0]
        if source is None:
            break
        value = source
    return Condition(value, when)


def keeps_shape(result: ir.Value, operand: ir.Value, view: View) -> bool:
    """Return whether ``result`` is provably no larger than ``operand``, broadcast into it."""
    return same_dims(view.shapes.dims(result), view.shapes.dims(operand))


def is_truth_of(cond: ir.Value, value: ir.Value, view: View) -> bool:
    """Return whether ``cond`` says that ``value`` is not zero."""
    condition = condition_of(cond, view)
    node = condition.root.producer()
    if not condition.when or not is_op(node, "Cast"):
        return False
    return attr_int(node, "to", 0) == ir.DataType.BOOL and node.inputs[0] is value


def ranks_scores(cond: ir.Value, scores: ir.Value) -> bool:
    """Return whether ``cond`` picks scores by their rank, among the 256 tensors nearest to it.

    Less and TopK on the scores make a filter of logits, where a low score may be one of many. An
    Equal does not: transformers finds so which entries of one mask another has left at 0.
    """

    def ranked_inputs(item: tuple[ir.Value, bool]) -> list[tuple[ir.Value, bool]]:
        value, ranked = item
        node = value.producer()
        if node is None or node in ops.READS_ONLY_SHAPE:
            return []
        ranked = ranked or node in _RANKS_ELEMENTS
        return [(x, ranked) for x in node.inputs if x is not None]

    return (scores, True) in islice(
        reachable_from([(cond, False)], ranked_inputs), _MAX_BEHIND_CONDITION
    )


def softmax_of(weights: ir.Value) -> ir.Node | None:
    """Return the Softmax that made ``weights``, through Cast, Identity and Dropout, or None."""
    node = producer_of(weights, "Cast", "Identity", "Dropout")
    return node if is_op(node, "Softmax") else None


def masks_before(softmax: ir.Node) -> Iterator[ir.Node | ir.Value]:
    """Yield the masks among the nodes that lead to ``softmax``, nearest first.

    Yields:
        A Where node; or, for an addend that a repair has made, the boolean it was made from.
    """
    tensors = reachable_from(softmax.inputs[:1], inputs_of_score_maker)
    for node in (x.producer() for x in islice(tensors, _MAX_BEFORE_SOFTMAX)):
        if is_op(node, "Where"):
            yield node
        elif is_op(node, "Mul") and PASS_KEY in node.metadata_props:
            cast = producer_of(node.inputs[0])
            if is_op(cast, "Cast") and (boolean := cast.inputs[0]) is not None:
                yield boolean
