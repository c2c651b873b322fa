"""Searches around a value: for a node above it, and for a Softmax below it."""

from collections.abc import Callable
from itertools import islice

import onnx_ir as ir

from graphfix import ops
from graphfix.graph.constants import const_tensor
from graphfix.graph.nodes import attr_int, is_op, value_before
from graphfix.graph.walks import reachable_from

# Elements of the result lie in the range of the first input, or of all inputs of a Concat.
KEEPS_RANGE = (
    (ops.MOVES_ELEMENTS | ops.CASTS | ops.IDLE | ops.REDUCES_TO_EXTREME | ops.RESAMPLES)
    | (ops.POOLS - ops.named("LpPool"))
    | ops.named("Pad Trilu")
)
SHIFTS_AND_SCALES = ops.named("Add Sub Mul Neg")
_MAX_POSITIONS = 1 << 16
# They scale, shift, bound or move scores on their way into a Softmax.
_KEEPS_SCORES = (
    (ops.MOVES_ELEMENTS | ops.CASTS | ops.IDLE)
    | (SHIFTS_AND_SCALES - ops.named("Neg"))
    | ops.named("Div Max Min Where Clip")
)


def find_above(
    value: ir.Value, stop: Callable[[ir.Node], bool], arithmetic: ops.OpSet = SHIFTS_AND_SCALES
) -> ir.Node | None:
    """Return the first node above ``value`` that satisfies ``stop``, among the 24 nearest.

    Args:
        value: Where to begin.
        stop: Whether a node is it.
        arithmetic: Operators to look through besides those that keep the range of elements.
    """
    through = KEEPS_RANGE | arithmetic
    near = reachable_from(
        [value], lambda x: node.inputs if through.has(node := x.producer()) else ()
    )
    producers = (x.producer() for x in islice(near, 24))
    return next((node for node in producers if node is not None and stop(node)), None)


def is_positions(value: ir.Value) -> bool:
    """Return whether ``value`` counts 0, 1, 2, ...: a Range, a CumSum or such a constant."""
    if find_above(value, lambda n: is_op(n, "Range", "CumSum", "ConstantOfShape", "NonZero")):
        return True
    source = value_before(value, *ops.KEEPS_EVERY_ELEMENT, *ops.CASTS, "Slice")
    tensor = const_tensor(source, _MAX_POSITIONS)
    if tensor is None or tensor.size < 2:
        return False
    flat = tensor.numpy().reshape(-1)
    return bool((flat[1:] - flat[:-1] == 1).all())


def is_only_counted(value: ir.Value) -> bool:
    """Return whether nothing of a mask is read but its size and how many ones it has.

    Rows that it pads are then those of GroupQueryAttention, whose padding is behind what is valid.
    """
    through = ops.CASTS | ops.IDLE
    near = reachable_from([value], lambda x: (y.outputs[0] for y, _ in x.uses() if y in through))
    users = {user for x in near for user, _ in x.uses() if user not in through}
    sums = {x for x in users if is_op(x, "ReduceSum")}
    return bool(sums) and all(x in ops.MEASURES for x in users - sums)


def feeds_softmax(node: ir.Node) -> bool:
    """Return whether ``node`` feeds a Softmax with only scaling and moving in between.

    A mask is often prepared once and added in each layer, so this looks past the first Add.
    """
    near = reachable_from(
        node.outputs, lambda x: (y.outputs[0] for y, _ in x.uses() if y in _KEEPS_SCORES)
    )
    users = (user for x in islice(near, 60) for user, _ in x.uses())
    return any(is_op(user, "Softmax", "LogSoftmax") for user in users)


def cast_type(node: ir.Node) -> ir.DataType | None:
    """Return the type that a Cast or CastLike casts to; None if the model does not say it."""
    if is_op(node, "Cast"):
        return ir.DataType(attr_int(node, "to", ir.DataType.FLOAT))
    return next((x.dtype for x in (node.outputs[0], *node.inputs[1:]) if x and x.dtype), None)


def node_title(node: ir.Node) -> str:
    """Return the operator of a node and its name, or that of its first output: ``Add 'y'``."""
    return f"{node.op_type} {node.name or node.outputs[0].name!r}"
