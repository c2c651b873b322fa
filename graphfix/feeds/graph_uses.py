"""What lies around a place in the graph: above it, or below it on the way into a Softmax."""

from collections.abc import Callable
from itertools import islice

import onnx_ir as ir

from graphfix.graph.nodes import before, is_op
from graphfix.graph.walks import inputs_of, reached

THROUGH = frozenset(
    {"Cast", "CastLike", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Slice"}
    | {"Transpose", "Flatten", "Tile", "Concat", "Pad", "Split", "ReduceMax", "ReduceMin"}
    | {"GatherND", "GatherElements", "Trilu", "Dropout", "Resize", "MaxPool", "AveragePool"}
)


ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Neg", "Gather"})


def above(
    value: ir.Value, stop: Callable[[ir.Node], bool], arithmetic: frozenset[str] = ARITHMETIC
) -> ir.Node | None:
    """The first node above ``value`` that ``stop`` wants, among the 24 nearest.

    Args:
        value: Where to begin.
        stop: Whether a node is it.
        arithmetic: What is looked through besides operators that keep elements.
    """
    through = THROUGH | arithmetic
    near = reached([value], lambda x: inputs_of(x.producer(), through))
    made = (x.producer() for x in islice(near, 24))
    return next((node for node in made if node is not None and stop(node)), None)


def is_positions(value: ir.Value) -> bool:
    """Whether ``value`` counts 0, 1, 2, ...: a Range, a CumSum, or a constant that does."""
    if above(value, lambda n: is_op(n, "Range", "CumSum", "ConstantOfShape", "NonZero")):
        return True
    source = before(value, "Cast", "Unsqueeze", "Reshape", "Expand", "Slice", "Identity")
    tensor = None if source is None else ir.convenience.get_const_tensor(source)
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
    near = reached(
        node.outputs, lambda x: (y.outputs[0] for y, _ in x.uses() if y.op_type in _TO_SOFTMAX)
    )
    users = (user for x in islice(near, 60) for user, _ in x.uses())
    return any(user.op_type in ("Softmax", "LogSoftmax") for user in users)


def say(node: ir.Node) -> str:
    """A node as a user finds it."""
    return f"{node.op_type} {node.name or node.outputs[0].name!r}"
