"""Searches around a value: above it, and below it on the way into a Softmax."""

from collections.abc import Callable
from itertools import islice

import onnx_ir as ir

from graphfix.graph.nodes import is_op, value_before
from graphfix.graph.walks import inputs_if_op, reachable_from

THROUGH = frozenset(
    {"Cast", "CastLike", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Slice"}
    | {"Transpose", "Flatten", "Tile", "Concat", "Pad", "Split", "ReduceMax", "ReduceMin"}
    | {"GatherND", "GatherElements", "Trilu", "Dropout", "Resize", "MaxPool", "AveragePool"}
)


ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Neg", "Gather"})


def find_above(
    value: ir.Value, stop: Callable[[ir.Node], bool], arithmetic: frozenset[str] = ARITHMETIC
) -> ir.Node | None:
    """Return the first node above ``value`` that satisfies ``stop``, among the 24 nearest.

    Args:
        value: Where to begin.
        stop: Whether a node is it.
        arithmetic: What is looked through besides operators that keep elements.
    """
    through = THROUGH | arithmetic
    near = reachable_from([value], lambda x: inputs_if_op(x.producer(), through))
    producers = (x.producer() for x in islice(near, 24))
    return next((node for node in producers if node is not None and stop(node)), None)


def is_positions(value: ir.Value) -> bool:
    """Return whether ``value`` counts 0, 1, 2, ...: a Range, a CumSum or such a constant."""
    if find_above(value, lambda n: is_op(n, "Range", "CumSum", "ConstantOfShape", "NonZero")):
        return True
    source = value_before(value, "Cast", "Unsqueeze", "Reshape", "Expand", "Slice", "Identity")
    tensor = None if source is None else ir.convenience.get_const_tensor(source)
    if tensor is None or not 1 < tensor.size <= 1 << 16:
        return False
    flat = tensor.numpy().reshape(-1)
    return bool((flat[1:] - flat[:-1] == 1).all())


_TO_SOFTMAX = frozenset(
    {"Add", "Reshape", "Transpose", "Cast", "Where", "Mul", "Div", "Max", "Min", "Identity"}
    | {"Unsqueeze", "Squeeze", "Sub", "Clip"}
)


def feeds_softmax(node: ir.Node) -> bool:
    """Return whether ``node`` feeds a Softmax with only scaling and moving in between.

    A mask is often prepared once and added in each layer, so this looks past the first Add.
    """
    near = reachable_from(
        node.outputs, lambda x: (y.outputs[0] for y, _ in x.uses() if y.op_type in _TO_SOFTMAX)
    )
    users = (user for x in islice(near, 60) for user, _ in x.uses())
    return any(user.op_type in ("Softmax", "LogSoftmax") for user in users)


def describe_node(node: ir.Node) -> str:
    """Return a node's operator and name, as a user finds it."""
    return f"{node.op_type} {node.name or node.outputs[0].name!r}"
