"""Where masks: their fill, the boolean that decides, and the Softmax they reach."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from weakref import WeakKeyDictionary

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import PASS_KEY
from graphfix.facts.shapes import same_dim, same_dims
from graphfix.facts.view import View
from graphfix.facts.zero_one import BOOLEAN_OPS
from graphfix.graph.constants import axes_of, const_of, fill_value_of, scalar_of, uniform_number
from graphfix.graph.nodes import attr_int, attr_ints, is_op, producer_of
from graphfix.graph.text import node_label
from graphfix.graph.walks import inputs_if_op, reachable_from

# No score is this low by itself: from here down a constant is meant to hide. Exporters write
# -1e4, -65504 (float16), -1e9, -3.4e38 and -inf.
HIDES = -1e3
# The axis, counted from the end, of a Softmax along a dim that the masked tensor does not have.
NOWHERE = 0

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)
# A change of layout: each element is one of those of the input.
LAYOUT = ("Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Tile")
# Element by element, or a change of layout: a very low number stays one.
_CARRIES = frozenset({*LAYOUT, "Add", "Max", "Min", "Clip", "Slice", "Concat", "Split", "Gather"})
_BLOCKS_BUT_LEADS_ON = ("Mul", "Div", "Sub", "Neg", "Where", "QuantizeLinear", "DequantizeLinear")
_LEADS_ON = _CARRIES | {"Sub", "Dropout", "Cast", "Where", *_BLOCKS_BUT_LEADS_ON}
"""The operators behind which :func:`reach_of` may go on; no other."""
# Which input is added to the scores.
BIAS = {
    ("", "Attention"): 3,
    ("com.microsoft", "Attention"): 5,
    ("com.microsoft", "PackedAttention"): 5,
    ("com.microsoft", "MultiHeadAttention"): 5,
    ("com.microsoft", "PackedMultiHeadAttention"): 6,
    ("com.microsoft", "DecoderMaskedMultiHeadAttention"): 4,
    ("com.microsoft", "GroupQueryAttention"): 10,
}
# Which tensors may reach a Softmax: found once for all who ask, from the Softmaxes backwards.
_REACHING_SOFTMAX: WeakKeyDictionary[View, frozenset[ir.Value]] = WeakKeyDictionary()
_RANKING_ENDS = ("LogSoftmax", "TopK", "ArgMax", "Hardmax")
_BY_RANK = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "TopK", "ReduceMax", "ArgMax")
_READS_ONLY_THE_SHAPE = ("Shape", "Size")


@dataclass(frozen=True)
class Fill:
    """A tensor filled with one number.

    Attributes:
        number: The number.
        dtype: The numpy type of its elements.
        rank: Its rank if it has a single element; None if it has a larger shape.
    """

    number: float
    dtype: np.dtype[np.generic]
    rank: int | None


def fill_of(value: ir.Value | None) -> Fill | None:
    """Return the one float that ``value`` is filled with, through Expand and the like, or None."""
    own_shape, dtype = False, None
    while value is not None:
        array, node = const_of(value), value.producer()
        if array is None and is_op(node, "ConstantOfShape"):
            own_shape, array = True, fill_value_of(node)
        if array is not None:
            kind = array.dtype if dtype is None else dtype
            number = None if kind.kind in "biu" else uniform_number(array)
            if number is None:
                return None
            return Fill(float(number), kind, None if own_shape or array.size != 1 else array.ndim)
        if is_op(node, "Cast"):
            target = ir.DataType(attr_int(node, "to", 0))
            dtype = dtype or (target.numpy() if target in _FLOATS else np.dtype(bool))
        elif is_op(node, "Expand", "Unsqueeze", "Squeeze", "Reshape"):
            own_shape = True
        else:
            return None
        value = node.inputs[0]
    return None


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
            is_comparison = is_op(producer_of(node.inputs[0]), *BOOLEAN_OPS)
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


@dataclass
class Reach:
    """Where a masked tensor goes.

    Attributes:
        softmaxes: Every Softmax that it reaches, with the axis of the masked tensor along which
            it works (counted from the end; :data:`NOWHERE` if it has none; None if a layout
            obscures it).
        scale: The smallest positive number that it is multiplied by on the way.
        blocked: The first reason why a very low number must not be changed, or None.
        near_miss: Another operator than Softmax that normalises or ranks, if it reaches one.
        attentions: Every operator that adds it to scores of its own, before a Softmax of its own.
    """

    softmaxes: list[tuple[ir.Node, int | None]] = field(default_factory=list)
    attentions: list[ir.Node] = field(default_factory=list)
    scale: float = 1.0
    blocked: str | None = None
    near_miss: str | None = None

    def block_change(self, reason: str) -> None:
        """Record a reason; the first one counts."""
        self.blocked = self.blocked or reason


def reach_of(value: ir.Value, view: View, *, to_bool: bool) -> Reach:
    """Follow ``value`` forward to every Softmax. Linear in the nodes between.

    Args:
        value: The masked tensor.
        view: The model around it.
        to_bool: Whether a Cast to bool is harmless, since the tensor is 0 where nothing is hidden.
    """
    reach = Reach()
    pending: list[tuple[ir.Value, float, tuple[ir.Node, ...]]] = [(value, 1.0, ())]
    visited = {value}
    while pending:
        tensor, scale, path = pending.pop()
        if tensor.is_graph_output():
            reach.block_change(
                f"{tensor.name!r} is also an output of its graph, where the fill is seen"
            )
        for use in tensor.uses():
            node = use.node
            if is_op(node, *_READS_ONLY_THE_SHAPE):
                continue
            if is_op(node, "Softmax"):
                reach.softmaxes.append((node, _axis_at_start(node, path, view)))
                reach.scale = min(reach.scale, scale)
                continue
            if use.idx == BIAS.get((node.domain, node.op_type)):
                reach.attentions.append(node)
                reach.scale = min(reach.scale, scale)
            factor = _factor_through(node, tensor, use.idx, view, to_bool=to_bool)
            if isinstance(factor, str):
                reach.block_change(factor)
                if is_op(node, *_RANKING_ENDS):
                    reach.near_miss = node.op_type
                # Go on: whether it reaches a Softmax at all decides if this is a near miss.
                factor = float(is_op(node, *_BLOCKS_BUT_LEADS_ON))
            for output in node.outputs if factor else ():
                if output not in visited:
                    visited.add(output)
                    pending.append((output, scale * factor, (*path, node)))
    return reach


def may_reach_softmax(value: ir.Value, view: View) -> bool:
    """Return whether :func:`reach_of` may find a Softmax behind ``value``; if not, it finds none.

    A model has a thousand sums with a bias; the biases may lie in an external file, and nearly none
    reaches a Softmax before a MatMul.
    """
    if (reaching := _REACHING_SOFTMAX.get(view)) is None:
        scores = (x for node in view.nodes("Softmax") for x in node.inputs)
        behind_softmax = reachable_from(scores, lambda x: inputs_if_op(x.producer(), _LEADS_ON))
        reaching = _REACHING_SOFTMAX[view] = frozenset(behind_softmax)
    return value in reaching


def _factor_through(
    node: ir.Node, value: ir.Value, index: int, view: View, *, to_bool: bool
) -> float | str:
    """Return the factor ``node`` applies to ``value``, 0 where the path ends, or a reason."""
    destination = f"it also goes to {node.op_type} {node_label(node)!r}"
    if not is_op(node, node.op_type):
        return f"{destination} of {node.domain}, which is opaque"
    if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
        return (
            f"it is quantised at {node_label(node)!r}: a low floor would take the whole int8 range"
        )
    if node.op_type in _CARRIES or (node.op_type in ("Sub", "Dropout") and index == 0):
        return 1.0
    if node.op_type == "Cast":
        target = ir.DataType(attr_int(node, "to", 0))
        if target in _FLOATS:
            return 1.0
        if target == ir.DataType.BOOL and to_bool:
            return 0.0
        return f"{destination}, which makes a number of it"
    if node.op_type == "Where" and index in (1, 2):
        other_fill = fill_of(node.inputs[3 - index])
        if other_fill is not None and other_fill.number <= HIDES:
            return 1.0
        return f"{destination}, which chooses between it and something else"
    if node.op_type == "Mul" or (node.op_type == "Div" and index == 0):
        factor = scalar_of(node.inputs[1 - index])
        if factor is None:
            return f"{destination}, whose other factor is not a constant: its sign is not known"
        if not factor > 0 or math.isinf(factor):
            return f"{destination} by {factor:g}, which is not positive"
        return float(factor) if node.op_type == "Mul" else 1.0 / float(factor)
    return destination


def _axis_at_start(softmax: ir.Node, path: tuple[ir.Node, ...], view: View) -> int | None:
    """Return the axis of a Softmax in the tensor where ``path`` starts, from the end, or None."""
    axis: int | None = attr_int(softmax, "axis", -1 if view.opset_of_node(softmax) >= 13 else 1)
    rank = view.shapes.rank(softmax.inputs[0])
    if axis is not None and axis >= 0:
        axis = None if rank is None else axis - rank
    for node in reversed(path):
        if axis is None:
            return None
        if node.op_type == "Transpose":
            perm = attr_ints(node, "perm")
            axis = None if perm is None else perm[axis] - len(perm)
        elif node.op_type == "Unsqueeze":
            axis = axis_before_unsqueeze(node, axis, view)
        elif node.op_type in ("Reshape", "Flatten", "Squeeze"):
            axis = axis if _keeps_axes_from(node, axis, view) else None
        elif node.op_type == "Gather":
            axis = axis if axis == -1 and _keeps_axes_from(node, axis, view) else None
        if axis == NOWHERE:
            break
    return axis


def axis_before_unsqueeze(node: ir.Node, axis: int, view: View) -> int | None:
    """Return the axis, counted from the end, in the input of an Unsqueeze, or None."""
    axes, rank = axes_of(node), view.shapes.rank(node.outputs[0])
    if axes is None or rank is None:
        return None
    new_axes = {x - rank if x >= 0 else x for x in axes}
    return NOWHERE if axis in new_axes else axis + sum(x > axis for x in new_axes)


def _keeps_axes_from(node: ir.Node, axis: int, view: View) -> bool:
    before, after = view.shapes.dims(node.inputs[0]), view.shapes.dims(node.outputs[0])
    if before is None or after is None or min(len(before), len(after)) < -axis:
        return False
    return all(map(same_dim, before[axis:], after[axis:]))


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
        if node is None or is_op(node, *_READS_ONLY_THE_SHAPE):
            return []
        ranked = ranked or is_op(node, *_BY_RANK)
        return [(x, ranked) for x in node.inputs if x is not None]

    return (scores, True) in islice(reachable_from([(cond, False)], ranked_inputs), 256)


def softmax_of(weights: ir.Value) -> ir.Node | None:
    """Return the Softmax that made ``weights``, through Cast, Identity and Dropout, or None."""
    node = producer_of(weights, "Cast", "Identity", "Dropout")
    return node if is_op(node, "Softmax") else None


def masks_before(softmax: ir.Node) -> Iterator[ir.Node | ir.Value]:
    """Yield the masks among the nodes that lead to ``softmax``, nearest first.

    Yields:
        A Where node; or, for an addend that a repair has made, the boolean it was made from.
    """
    leads_on = {"Where", "Mul", "Div", "Sub", "Cast", "Dropout", *_CARRIES}
    tensors = reachable_from(softmax.inputs[:1], lambda x: inputs_if_op(x.producer(), leads_on))
    for node in (x.producer() for x in islice(tensors, 64)):
        if is_op(node, "Where"):
            yield node
        elif is_op(node, "Mul") and PASS_KEY in node.metadata_props:
            cast = producer_of(node.inputs[0])
            if is_op(cast, "Cast") and (boolean := cast.inputs[0]) is not None:
                yield boolean
