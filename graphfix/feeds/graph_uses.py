"""What lies around a place in the graph: above it, or below it on the way into a Softmax."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import onnx_ir as ir

from graphfix.model.values import is_op

THROUGH = frozenset(
    {"Cast", "CastLike", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Slice"}
    | {"Transpose", "Flatten", "Tile", "Concat", "Pad", "Split", "ReduceMax", "ReduceMin"}
    | {"GatherND", "GatherElements", "Trilu", "Dropout", "Resize", "MaxPool", "AveragePool"}
)


ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Neg", "Gather"})


def above(
    value: ir.Value,
    stop: Callable[[ir.Node], bool],
    arithmetic: frozenset[str] = ARITHMETIC,
) -> ir.Node | None:
    """The first node above ``value`` that ``stop`` wants, among the 24 nearest.

    Args:
        value: Where to begin.
        stop: Whether a node is it.
        arithmetic: What is looked through besides operators that keep elements.
    """
    queue = deque([value])
    for _ in range(24):
        if not queue:
            return None
        node = queue.popleft().producer()
        if node is None:
            continue
        if stop(node):
            return node
        if node.op_type in THROUGH or node.op_type in arithmetic:
            queue.extend(x for x in node.inputs if x is not None)
    return None


def is_positions(value: ir.Value) -> bool:
    """Whether ``value`` counts 0, 1, 2, ...: a Range, a CumSum, or a constant that does."""
    if above(value, lambda n: is_op(n, "Range", "CumSum", "ConstantOfShape", "NonZero")):
        return True
    source = value
    while (node := source.producer()) is not None and is_op(
        node, "Cast", "Unsqueeze", "Reshape", "Expand", "Slice", "Identity"
    ):
        first = node.inputs[0]
        if first is None:
            return False
        source = first
    tensor = ir.convenience.get_const_tensor(source)
    if tensor is None or not 1 < tensor.size <= 1 << 16:
        return False
    flat = tensor.numpy().reshape(-1)
    return bool((flat[1:] - flat[:-1] == 1).all())


_TO_SOFTMAX = frozenset(
    {"Add", "Reshape", "Transpose", "Cast", "Where", "Mul", "Div", "Max", "Min", "Identity"}
    | {"Unsqueeze", "Squeeze", "Sub", "Clip"}
)


def into_softmax(node: ir.Node) -> bool:
    """Whether what ``node`` makes goes into a Softmax with only scaling and moving in between.

    A mask is often prepared once and added in each layer, so this looks past the first Add.
    """
    queue, seen = deque(node.outputs), set(node.outputs)
    for _ in range(60):
        if not queue:
            return False
        for user, _index in queue.popleft().uses():
            if user.op_type in ("Softmax", "LogSoftmax"):
                return True
            if user.op_type in _TO_SOFTMAX and user.outputs[0] not in seen:
                seen.add(user.outputs[0])
                queue.append(user.outputs[0])
    return False


def say(node: ir.Node) -> str:
    """A node as a user finds it."""
    return f"{node.op_type} {node.name or node.outputs[0].name!r}"
