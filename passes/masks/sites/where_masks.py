"""Where masks: what fills them, which boolean decides, and which Softmax they reach."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from weakref import WeakKeyDictionary

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import PASS_KEY
from graphfix.facts.shapes import all_same, same
from graphfix.facts.view import View
from graphfix.facts.zero_one import ANSWERS
from graphfix.graph.constants import axes_of, const_of, filler_of, number_in, scalar_of
from graphfix.graph.nodes import attr_int, attr_ints, is_op, maker_of
from graphfix.graph.text import path_of
from graphfix.graph.walks import inputs_of, reached

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
_FOUND: WeakKeyDictionary[View, frozenset[ir.Value]] = WeakKeyDictionary()
_RANKS = ("LogSoftmax", "TopK", "ArgMax", "Hardmax")
_BY_RANK = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "TopK", "ReduceMax", "ArgMax")
_READS_ONLY_THE_SHAPE = ("Shape", "Size")


@dataclass(frozen=True)
class Fill:
    """A tensor filled with one number.

    Attributes:
        number: The number.
        dtype: The numpy type of its elements.
        rank: Its rank if it has a single element; None if it has a shape of its own.
    """

    number: float
    dtype: np.dtype[np.generic]
    rank: int | None


def fill_of(value: ir.Value | None) -> Fill | None:
    """The one floating-point number that ``value`` is filled with, through Expand and the like."""
    own_shape, dtype = False, None
    while value is not None:
        array, node = const_of(value), value.producer()
        if array is None and is_op(node, "ConstantOfShape"):
            own_shape, array = True, filler_of(node)
        if array is not None:
            kind = array.dtype if dtype is None else dtype
            number = None if kind.kind in "biu" else number_in(array)
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
class Select:
    """``Where(cond, fill, data)``, in either order of the last two.

    Attributes:
        node: The Where.
        cond: Its boolean.
        when: The value of ``cond`` for which the fill is taken.
        fill: The one number.
        data: What is taken elsewhere.
    """

    node: ir.Node
    cond: ir.Value
    when: bool
    fill: Fill
    data: ir.Value


def select_of(node: ir.Node) -> Select | None:
    """A Where as a fill put into data; of two fills, the one that hides is the fill."""
    cond, chosen, other = node.inputs
    if cond is None or chosen is None or other is None:
        return None
    ways = ((True, fill_of(chosen), other), (False, fill_of(other), chosen))
    found = [Select(node, cond, when, fill, data) for when, fill, data in ways if fill is not None]
    return min(found, key=lambda select: select.fill.number, default=None)


@dataclass(frozen=True)
class Condition:
    """A boolean with the Nots, repeated Casts and needless Expands around it taken off.

    Attributes:
        root: The boolean tensor that decides.
        when: The value of ``root`` for which the original condition is what was asked for.
    """

    root: ir.Value
    when: bool


def condition_of(
    value: ir.Value, view: View, *, expands: bool = False, when: bool = True
) -> Condition:
    """What makes ``value`` be ``when``; with ``expands``, the boolean before it was made larger."""
    while (node := value.producer()) is not None:
        if is_op(node, "Not"):
            when = not when
        elif is_op(node, "Cast"):
            asks = is_op(maker_of(node.inputs[0]), *ANSWERS)
            if not asks and view.shapes.dtype(node.inputs[0]) != ir.DataType.BOOL:
                break
        elif not is_op(node, "Identity") and not (expands and is_op(node, "Expand")):
            break
        source = node.inputs[0]
        if source is None:
            break
        value = source
    return Condition(value, when)


def keeps_shape(result: ir.Value, operand: ir.Value, view: View) -> bool:
    """Whether ``result`` is provably no larger than ``operand``, which was broadcast into it."""
    return all_same(view.shapes.dims(result), view.shapes.dims(operand))


@dataclass
class Reach:
    """Where a masked tensor goes.

    Attributes:
        softmaxes: Every Softmax that it reaches, with the masked tensor's axis it works along
            (counted from the end; :data:`NOWHERE` if it has none; None where a layout hides it).
        scale: The smallest positive number that it is multiplied by on the way.
        blocked: The first reason for which a very low number must not be changed, or None.
        near: Another operator than Softmax that normalises or ranks, if it reaches one.
        attentions: Every operator that adds it to scores of its own, before a Softmax of its own.
    """

    softmaxes: list[tuple[ir.Node, int | None]] = field(default_factory=list)
    attentions: list[ir.Node] = field(default_factory=list)
    scale: float = 1.0
    blocked: str | None = None
    near: str | None = None

    def block(self, reason: str) -> None:
        """Note a reason; the first one is kept."""
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
    seen = {value}
    while pending:
        top, scale, path = pending.pop()
        if top.is_graph_output():
            reach.block(f"{top.name!r} is also an output of its graph, where the fill is seen")
        for use in top.uses():
            node = use.node
            if is_op(node, *_READS_ONLY_THE_SHAPE):
                continue
            if is_op(node, "Softmax"):
                reach.softmaxes.append((node, _axis_before(node, path, view)))
                reach.scale = min(reach.scale, scale)
                continue
            if use.idx == BIAS.get((node.domain, node.op_type)):
                reach.attentions.append(node)
                reach.scale = min(reach.scale, scale)
            factor = _carried(node, top, use.idx, view, to_bool=to_bool)
            if isinstance(factor, str):
                reach.block(factor)
                if is_op(node, *_RANKS):
                    reach.near = node.op_type
                # Go on: whether it reaches a Softmax at all decides if this is a near miss.
                factor = float(is_op(node, *_BLOCKS_BUT_LEADS_ON))
            for made in node.outputs if factor else ():
                if made not in seen:
                    seen.add(made)
                    pending.append((made, scale * factor, (*path, node)))
    return reach


def may_reach_softmax(value: ir.Value, view: View) -> bool:
    """Whether :func:`reach_of` may find a Softmax behind ``value``; if not, it finds none.

    A model has a thousand sums with a bias; whether one of them is a mask is in a file beside it,
    and nearly none leads to a Softmax before a MatMul ends the way.
    """
    if (found := _FOUND.get(view)) is None:
        scores = (x for node in view.nodes("Softmax") for x in node.inputs)
        before = reached(scores, lambda x: inputs_of(x.producer(), _LEADS_ON))
        found = _FOUND[view] = frozenset(before)
    return value in found


def _carried(
    node: ir.Node, value: ir.Value, index: int, view: View, *, to_bool: bool
) -> float | str:
    """The number that ``node`` multiplies ``value`` by; 0 if it goes no further; or a reason."""
    where = f"it also goes to {node.op_type} {path_of(node)!r}"
    if not is_op(node, node.op_type):
        return f"{where} of {node.domain}, which is opaque"
    if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
        return f"it is quantised at {path_of(node)!r}: a low floor would take the whole int8 range"
    if node.op_type in _CARRIES or (node.op_type in ("Sub", "Dropout") and index == 0):
        return 1.0
    if node.op_type == "Cast":
        target = ir.DataType(attr_int(node, "to", 0))
        if target in _FLOATS:
            return 1.0
        if target == ir.DataType.BOOL and to_bool:
            return 0.0
        return f"{where}, which makes a number of it"
    if node.op_type == "Where" and index in (1, 2):
        other = fill_of(node.inputs[3 - index])
        if other is not None and other.number <= HIDES:
            return 1.0
        return f"{where}, which chooses between it and something else"
    if node.op_type == "Mul" or (node.op_type == "Div" and index == 0):
        factor = scalar_of(node.inputs[1 - index])
        if factor is None:
            return f"{where}, whose other factor is not a constant: its sign is not known"
        if not factor > 0 or math.isinf(factor):
            return f"{where} by {factor:g}, which is not positive"
        return float(factor) if node.op_type == "Mul" else 1.0 / float(factor)
    return where


def _axis_before(softmax: ir.Node, path: tuple[ir.Node, ...], view: View) -> int | None:
    """The axis that ``softmax`` works along, in the tensor where ``path`` starts, from the end."""
    axis: int | None = attr_int(softmax, "axis", -1 if view.opset(softmax) >= 13 else 1)
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
            axis = before_unsqueeze(node, axis, view)
        elif node.op_type in ("Reshape", "Flatten", "Squeeze"):
            axis = axis if _same_end(node, axis, view) else None
        elif node.op_type == "Gather":
            axis = axis if axis == -1 and _same_end(node, axis, view) else None
        if axis == NOWHERE:
            break
    return axis


def before_unsqueeze(node: ir.Node, axis: int, view: View) -> int | None:
    """The axis, counted from the end, in the input of an Unsqueeze; None where it is not known."""
    axes, rank = axes_of(node), view.shapes.rank(node.outputs[0])
    if axes is None or rank is None:
        return None
    made = {x - rank if x >= 0 else x for x in axes}
    return NOWHERE if axis in made else axis + sum(x > axis for x in made)


def _same_end(node: ir.Node, axis: int, view: View) -> bool:
    before, after = view.shapes.dims(node.inputs[0]), view.shapes.dims(node.outputs[0])
    if before is None or after is None or min(len(before), len(after)) < -axis:
        return False
    return all(map(same, before[axis:], after[axis:]))


def is_truth_of(cond: ir.Value, value: ir.Value, view: View) -> bool:
    """Whether ``cond`` says that ``value`` is not zero."""
    condition = condition_of(cond, view)
    node = condition.root.producer()
    if not condition.when or not is_op(node, "Cast"):
        return False
    return attr_int(node, "to", 0) == ir.DataType.BOOL and node.inputs[0] is value


def filters(cond: ir.Value, scores: ir.Value) -> bool:
    """Whether ``cond`` picks scores by their rank, among the 256 tensors nearest to it.

    Less and TopK on the scores make a filter of logits, where a low score may be one of many. An
    Equal does not: transformers asks so which entries of one mask another has left at 0.
    """

    def sources(place: tuple[ir.Value, bool]) -> list[tuple[ir.Value, bool]]:
        value, ranked = place
        node = value.producer()
        if node is None or is_op(node, *_READS_ONLY_THE_SHAPE):
            return []
        ranked = ranked or is_op(node, *_BY_RANK)
        return [(x, ranked) for x in node.inputs if x is not None]

    return (scores, True) in islice(reached([(cond, False)], sources), 256)


def softmax_of(weights: ir.Value) -> ir.Node | None:
    """The Softmax that made ``weights``, through Cast, Identity and Dropout."""
    node = maker_of(weights, "Cast", "Identity", "Dropout")
    return node if is_op(node, "Softmax") else None


def masks_before(softmax: ir.Node) -> Iterator[ir.Node | ir.Value]:
    """The masks among the nodes that lead to ``softmax``, nearest first.

    Yields:
        A Where node; or, for an addend that a repair has made, the boolean it was made from.
    """
    leads_on = {"Where", "Mul", "Div", "Sub", "Cast", "Dropout", *_CARRIES}
    near = reached(softmax.inputs[:1], lambda x: inputs_of(x.producer(), leads_on))
    for node in (x.producer() for x in islice(near, 64)):
        if is_op(node, "Where"):
            yield node
        elif is_op(node, "Mul") and PASS_KEY in node.metadata_props:
            cast = maker_of(node.inputs[0])
            if is_op(cast, "Cast") and (boolean := cast.inputs[0]) is not None:
                yield boolean
