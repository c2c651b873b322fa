"""Which Softmaxes masked scores reach, and what happens to a very low score on the way."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.hidden_scores import hides_score
from graphfix.facts.shapes import same_dim
from graphfix.facts.view import View
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op
from graphfix.graph.text import node_label
from graphfix.graph.walks import reachable_from
from graphfix.ops.attention import attention_slots
from graphfix.ops.axes import permutation_of, squeezed_axes, written_axis
from graphfix.ops.softmax import softmax_axis

from .fills import FLOATS, fill_of

# The axis, counted from the end, of a Softmax along a dim that the masked tensor does not have.
NOWHERE = 0

# A very low score stays very low through these.
KEEPS_LOW_SCORES = ops.MOVES_ELEMENTS | ops.named("Add Max Min Clip")
# These may change it; what lies behind them decides only whether the site is a near miss.
_MAY_CHANGE_SCORES = ops.QUANTIZES | ops.named("Mul Div Sub Neg Where")
LEADS_TO_SOFTMAX = KEEPS_LOW_SCORES | _MAY_CHANGE_SCORES | ops.IDLE | ops.CASTS
"""The operators behind which :func:`reach_of` may go on; no other."""
# They normalise or rank scores in another way than Softmax.
_RANKING_ENDS = ops.RANKS | ops.named("LogSoftmax Hardmax")
# An axis counted from the end is the same behind them; an Expand or Concat may enlarge its dim.
_KEEPS_AXES_FROM_END = LEADS_TO_SOFTMAX - (
    ops.MOVES_FIRST_INPUT - ops.named("Identity Expand Tile Slice Split")
)
# Which tensors may reach a Softmax: found once for all who ask, from the Softmaxes backwards.
_REACHING_SOFTMAX: WeakKeyDictionary[View, frozenset[ir.Value]] = WeakKeyDictionary()


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
        for node, index in tensor.uses():
            if node in ops.READS_ONLY_SHAPE:
                continue
            if is_op(node, "Softmax"):
                reach.softmaxes.append((node, _axis_at_start(node, path, view)))
                reach.scale = min(reach.scale, scale)
                continue
            if (slots := attention_slots(node)) is not None and slots.addend == index:
                reach.attentions.append(node)
                reach.scale = min(reach.scale, scale)
            factor = _factor_through(node, index, to_bool=to_bool)
            if isinstance(factor, str):
                reach.block_change(factor)
                if node in _RANKING_ENDS:
                    reach.near_miss = node.op_type
                # Go on: whether it reaches a Softmax at all decides if this is a near miss.
                factor = float(node in _MAY_CHANGE_SCORES)
            unvisited = [x for x in node.outputs if factor and x not in visited]
            visited.update(unvisited)
            pending += [(output, scale * factor, (*path, node)) for output in unvisited]
    return reach


def may_reach_softmax(value: ir.Value, view: View) -> bool:
    """Return whether :func:`reach_of` may find a Softmax behind ``value``; if not, it finds none.

    A model has a thousand sums with a bias; the biases may lie in an external file, and nearly none
    reaches a Softmax before a MatMul.
    """
    if (reaching := _REACHING_SOFTMAX.get(view)) is None:
        scores = (x for node in view.nodes("Softmax") for x in node.inputs)
        behind_softmax = reachable_from(scores, inputs_of_score_maker)
        reaching = _REACHING_SOFTMAX[view] = frozenset(behind_softmax)
    return value in reaching


def inputs_of_score_maker(scores: ir.Value) -> Sequence[ir.Value | None]:
    """Return the inputs of what makes ``scores``, if a mask there may reach their Softmax."""
    node = scores.producer()
    return node.inputs if LEADS_TO_SOFTMAX.has(node) else ()


def _factor_through(node: ir.Node, index: int, *, to_bool: bool) -> float | str:
    """Return the factor ``node`` applies to an input, 0 where the path ends, or a reason."""
    destination = f"it also goes to {node.op_type} {node_label(node)!r}"
    if not is_op(node, node.op_type):
        return f"{destination} of {node.domain}, which is opaque"
    if node in KEEPS_LOW_SCORES or (is_op(node, "Sub", "Dropout") and index == 0):
        return 1.0
    if node in ops.ROUNDS_TO_INTEGERS:
        return (
            f"it is quantised at {node_label(node)!r}: a low floor would take the whole int8 range"
        )
    if is_op(node, "Cast"):
        return _factor_of_cast(node, destination, to_bool=to_bool)
    if is_op(node, "Where") and index in (1, 2):
        other_fill = fill_of(node.inputs[3 - index])
        if other_fill is not None and hides_score(other_fill.number):
            return 1.0
        return f"{destination}, which chooses between it and something else"
    if is_op(node, "Mul") or (is_op(node, "Div") and index == 0):
        return _factor_of_scaling(node, index, destination)
    return destination


def _factor_of_cast(cast: ir.Node, destination: str, *, to_bool: bool) -> float | str:
    """Return 1 for a Cast to floats, 0 for a harmless one to bool, or a reason."""
    target = ir.DataType(attr_int(cast, "to", 0))
    if target in FLOATS:
        return 1.0
    if target == ir.DataType.BOOL and to_bool:
        return 0.0
    return f"{destination}, which makes a number of it"


def _factor_of_scaling(node: ir.Node, index: int, destination: str) -> float | str:
    """Return the positive constant that a Mul or Div multiplies an input by, or a reason."""
    factor = scalar_of(node.inputs[1 - index])
    if factor is None:
        return f"{destination}, whose other factor is not a constant: its sign is not known"
    if not factor > 0 or math.isinf(factor):
        return f"{destination} by {factor:g}, which is not positive"
    return float(factor) if is_op(node, "Mul") else 1.0 / float(factor)


def _axis_at_start(softmax: ir.Node, path: tuple[ir.Node, ...], view: View) -> int | None:
    """Return the axis of a Softmax in the tensor where ``path`` starts, from the end, or None."""
    axis = _softmax_axis_from_end(softmax, view)
    for node in reversed(path):
        if axis is None or axis == NOWHERE:
            break
        axis = _axis_before(node, axis, view)
    return axis


def _softmax_axis_from_end(softmax: ir.Node, view: View) -> int | None:
    """Return the one axis that a Softmax normalizes, counted from the end, or None."""
    opset, rank = view.opset_of_node(softmax), view.shapes.rank(softmax.inputs[0])
    if rank is not None:
        axis = softmax_axis(softmax, rank, opset)
        return None if axis is None else axis - rank
    axis = written_axis(softmax, opset)
    # Before opset 13 all axes behind are normalized together: of an unknown rank, only the last
    # axis is certain to be normalized alone.
    return axis if axis is not None and (axis == -1 or (axis < 0 and opset >= 13)) else None


def _axis_before(node: ir.Node, axis: int, view: View) -> int | None:
    """Return an axis, counted from the end, in what a node on the path is given, or None."""
    if is_op(node, "Transpose"):
        rank = view.shapes.rank(node.outputs[0])
        perm = permutation_of(node, rank or 0)
        return perm[axis] - len(perm) if perm else None
    if is_op(node, "Unsqueeze"):
        return axis_before_unsqueeze(node, axis, view)
    if is_op(node, "Gather"):
        return axis if axis == -1 and _keeps_axes_from(node, axis, view) else None
    if is_op(node, "GatherElements"):
        rank = view.shapes.rank(node.outputs[0])
        # Along another axis than that of its own, each element may be one of another row.
        same = written_axis(node, view.opset_of_node(node)) in (axis, axis + (rank or 0))
        return axis if same and rank is not None else None
    if node in ops.RESHAPES:
        return axis if _keeps_axes_from(node, axis, view) else None
    return axis if node in _KEEPS_AXES_FROM_END else None


def axis_before_unsqueeze(node: ir.Node, axis: int, view: View) -> int | None:
    """Return the axis, counted from the end, in the input of an Unsqueeze, or None."""
    rank = view.shapes.rank(node.outputs[0])
    axes = None if rank is None else squeezed_axes(node, rank)
    if axes is None or rank is None:
        return None
    new_axes = {x - rank for x in axes}
    return NOWHERE if axis in new_axes else axis + sum(x > axis for x in new_axes)


def _keeps_axes_from(node: ir.Node, axis: int, view: View) -> bool:
    before, after = view.shapes.dims(node.inputs[0]), view.shapes.dims(node.outputs[0])
    if before is None or after is None or min(len(before), len(after)) < -axis:
        return False
    return all(map(same_dim, before[axis:], after[axis:]))
