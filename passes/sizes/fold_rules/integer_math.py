"""Arithmetic on integers that exporters write in many nodes: no bit of it changes."""

import numpy as np
import onnx_ir as ir

from graphfix.graph.nodes import attr_int, is_op, maker_of

from ...common.lookup import INTEGERS, Look, Replacement, alone, constant_of, nothing, same_shape

COUNTED = frozenset({"Where", "Sub", "Add", "Slice", "Less", "Greater"})
"""The operators that :func:`integers` looks at."""

_OR_EQUAL = 12  # the opset that brought LessOrEqual


def integers(node: ir.Node, look: Look) -> Replacement | None:
    """A division that rounds down, a number added before another, a sum from the end."""
    if not is_op(node, *COUNTED) or len(node.outputs) != 1:
        return None
    if is_op(node, "Less", "Greater"):
        return _compared(node, look)
    if look.view.shapes.dtype(node.outputs[0]) not in INTEGERS or look.data(node.outputs[0]):
        return None  # sizes are planned all at once
    if is_op(node, "Slice"):
        return _from_the_end(node, look)
    return _rounded_down(node, look) or _added(node, look)


def _rounded_down(node: ir.Node, look: Look) -> Replacement | None:
    """``x // k``: what is cut towards zero is one too much where x is below 0 and leaves a rest.

    TorchScript chooses between the two with a Where, dynamo subtracts the condition. Both are
    ``(x - x mod k) / k``, except the k smallest integers of the type, of which that overflows.
    """
    if is_op(node, "Where"):
        condition, less, cut = node.inputs
        one = _less_by_one(less, cut)
    elif is_op(node, "Sub"):
        cut, cast = node.inputs
        caster = alone(cast, "Cast")
        condition, one = (None, False) if caster is None else (caster.inputs[0], True)
    else:
        return None
    division = maker_of(cut)
    if condition is None or not one or not is_op(division, "Div"):
        return None
    x, by = division.inputs
    k = _number(by)
    both = alone(condition, "And")
    if x is None or by is None or k is None or k < 1 or both is None:
        return None
    first, second = both.inputs
    rest = _rest_of(second, x, k) if _below_zero(first, x) else None
    if rest is None and _below_zero(second, x):
        rest = _rest_of(first, x, k)
    if rest is None or look.dims(node.outputs[0]) != look.dims(x) or look.dims(x) is None:
        return None
    return Replacement(f"it is {x.name!r} // {k}", lambda op: [op.Div(op.Sub(x, rest), by)])


def _less_by_one(less: ir.Value | None, cut: ir.Value | None) -> bool:
    node = alone(less, "Sub", "Add")
    if node is None or node.inputs[0] is not cut:
        return False
    return _number(node.inputs[1]) == (1 if is_op(node, "Sub") else -1)


def _below_zero(value: ir.Value | None, x: ir.Value) -> bool:
    node = maker_of(value)
    return is_op(node, "Less") and node.inputs[0] is x and _number(node.inputs[1]) == 0


def _rest_of(value: ir.Value | None, x: ir.Value, k: int) -> ir.Value | None:
    """``x mod k``, if ``value`` is whether it is not 0."""
    node = maker_of(value)
    if is_op(node, "Not") and node.inputs[0] is not None:
        node = node.inputs[0].producer()
        if not is_op(node, "Equal") or _number(node.inputs[1]) != 0:
            return None
    elif not is_op(node, "Cast") or attr_int(node, "to", 0) != ir.DataType.BOOL:
        return None
    rest = node.inputs[0]
    maker = maker_of(rest)
    if not is_op(maker, "Mod") or attr_int(maker, "fmod", 0):  # which has the sign of x
        return None
    return rest if maker.inputs[0] is x and _number(maker.inputs[1]) == k else None


def _added(node: ir.Node, look: Look) -> Replacement | None:
    """``(x + 1) - 1``, which is x in any integers, and ``(x + 1) - 2``."""
    last = _addend(node)
    first = maker_of(node.inputs[0])
    before = _addend(first) if is_op(first, "Add", "Sub") else None
    if last is None or first is None or before is None or first.inputs[0] is None:
        return None
    start, total = first.inputs[0], before + last
    dtype, dims = look.view.shapes.dtype(start), look.dims(start)
    if dtype not in INTEGERS or dims is None or dims != look.dims(node.outputs[0]):
        return None
    if total == 0:
        return nothing(start, node)
    if abs(total) >= 1 << 31 or alone(node.inputs[0], "Add", "Sub") is None:
        return None
    number = np.array(total, dtype.numpy())
    return Replacement("two numbers are added as one", lambda op: [op.Add(start, number)])


def _compared(node: ir.Node, look: Look) -> Replacement | None:
    """``a < b + 1``, which is ``a <= b`` in integers: a frame that is within a length."""
    more = int(is_op(node, "Less"))
    total, least = alone(node.inputs[more], "Add", "Sub"), node.inputs[1 - more]
    start = None if total is None or _addend(total) != 1 else total.inputs[0]
    if start is None or total is None or least is None or not same_shape(total, start, look):
        return None
    if look.view.shapes.dtype(start) not in INTEGERS or look.view.opset(node) < _OR_EQUAL:
        return None
    return Replacement(
        f"it is {least.name!r} <= {start.name!r}", lambda op: [op.LessOrEqual(least, start)]
    )


def _addend(node: ir.Node) -> int | None:
    """What an Add or Sub adds on its right side."""
    number = _number(node.inputs[1])
    return number if number is None or is_op(node, "Add") else -number


def _from_the_end(node: ir.Node, look: Look) -> Replacement | None:
    """A CumSum between two Slices that turn its axis round is one from the end."""
    middle = alone(node.inputs[0], "CumSum")
    first = None if middle is None else alone(middle.inputs[0], "Slice")
    if middle is None or first is None or first.inputs[0] is None:
        return None
    rank = look.view.shapes.rank(first.inputs[0])
    axis = _number(middle.inputs[1])
    if rank is None or axis is None:
        return None
    if _turned(first, look) != axis % rank or _turned(node, look) != axis % rank:
        return None
    start, at = first.inputs[0], middle.inputs[1]
    ways = {
        "exclusive": attr_int(middle, "exclusive", 0),
        "reverse": 1 - attr_int(middle, "reverse", 0),
    }
    return Replacement("it is a sum from the end", lambda op: [op.CumSum(start, at, **ways)])


def _turned(node: ir.Node, look: Look) -> int | None:
    """The axis that a Slice turns round, if it is one and all of it."""
    rank = look.view.shapes.rank(node.inputs[0])
    if len(node.inputs) < 5 or rank is None:
        return None
    start, end, axis, step = (_number(x) for x in node.inputs[1:5])
    if start != -1 or step != -1 or end is None or axis is None or end > -(1 << 31) + 1:
        return None
    return axis % rank


def _number(value: ir.Value | None) -> int | None:
    """The one integer that a constant holds."""
    array = constant_of(value, 1)
    if array is None or array.size != 1 or array.dtype.kind != "i":
        return None
    return int(array.item())
