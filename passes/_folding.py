"""Which integer and mask tensors are constants once the sizes of a model are fixed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from graphfix.model.values import const_of, is_op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from graphfix.model.view import View

    Array = npt.NDArray[np.generic]

# What has more elements stays computed: a file should not grow by its masks.
LIMIT = 4096

_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
# Every runtime computes these alike: they move data, or round as IEEE 754 says.
_MOVES = frozenset(
    {"Cast", "Concat", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Reshape"}
    | {"NonZero", "Slice", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"}
)
_ARITHMETIC = frozenset(
    {"Abs", "Add", "And", "Ceil", "Div", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less"}
    | {"LessOrEqual", "Max", "Min", "Mul", "Neg", "Not", "Or", "Sign", "Sqrt", "Sub", "Xor"}
)
# Sums and steps are exact in integers only.
_INTEGER_ONLY = frozenset({"CumSum", "Mod", "Range", "ReduceMax", "ReduceMin", "ReduceProd"}) | {
    "ReduceSum"
}

EXACT = _MOVES | _ARITHMETIC | _INTEGER_ONLY
"""The operators that :func:`is_exact` knows."""


class Folding:
    """The constants that follow from the sizes of a model's tensors.

    Weights are never read: only what comes from a Shape or Size is followed, and constants of at
    most LIMIT elements that meet it.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._known: dict[ir.Value, Array] = {}
        for node in view.model.graph.all_nodes():
            found = self._from_shapes(node)
            if found is None:
                found = self._evaluated(node)
            if found is not None:
                self._known[node.outputs[0]] = found

    def results(self) -> Iterator[tuple[ir.Node, Array]]:
        """The nodes whose constant result something needs that is itself no constant."""
        for value, array in self._known.items():
            node = value.producer()
            if node is not None and (value.is_graph_output() or self._is_needed(value)):
                yield node, array

    def _is_needed(self, value: ir.Value) -> bool:
        return any(
            not use.node.outputs or use.node.outputs[0] not in self._known for use in value.uses()
        )

    def _from_shapes(self, node: ir.Node) -> Array | None:
        """What symbolic shapes know of a shape tensor that the file does not hold as it is."""
        if len(node.outputs) != 1 or all(self._is_given(x) for x in node.inputs):
            return None
        shapes, made = self._view.shapes, node.outputs[0]
        data, dims, dtype = shapes.data(made), shapes.dims(made), shapes.dtype(made)
        if data is None or dims is None or dtype not in _INTEGERS:
            return None
        if not all(isinstance(x, int) for x in (*data, *dims)):
            return None
        return np.array(data, dtype.numpy()).reshape([int(str(x)) for x in dims])

    def _is_given(self, value: ir.Value | None) -> bool:
        if value is None:
            return True
        return value not in self._known and const_of(value, LIMIT) is not None

    def _evaluated(self, node: ir.Node) -> Array | None:
        if not is_exact(node, self._view) or all(self._is_given(x) for x in node.inputs):
            return None
        return evaluated(node, self._held, self._view)

    def _held(self, value: ir.Value) -> Array | None:
        array = self._known.get(value)
        return const_of(value, LIMIT) if array is None else array


def evaluated(node: ir.Node, held: Callable[[ir.Value], Array | None], view: View) -> Array | None:
    """What ``node`` makes of constants; None if an input is none, or the result is not small.

    Args:
        node: A node with one output.
        held: What an input holds, if that is known.
        view: The model around it.
    """
    feeds = {}
    for value in node.inputs:
        if value is None or value.name is None:
            continue
        array = held(value)
        if array is None:
            return None
        feeds[value.name] = array
    evaluator = ReferenceEvaluator(ir.to_proto(node), opsets={"": view.opset(node)})
    dtype = view.shapes.dtype(node.outputs[0])
    # A division of integers by zero, or beyond their range, ends the process of ONNX Runtime.
    told: Literal["raise", "ignore"] = "raise" if dtype in _INTEGERS else "ignore"
    try:
        with np.errstate(divide=told, over=told, invalid="ignore"):
            result, *_ = evaluator.run(None, feeds)
    except Exception:  # it fails at these sizes, and so it will where the model is run
        return None
    if not isinstance(result, np.ndarray) or dtype is None or result.dtype != dtype.numpy():
        return None
    return result


def is_exact(node: ir.Node, view: View) -> bool:
    """Whether ``node`` has one small result that every runtime computes alike."""
    if not is_op(node, *_MOVES, *_ARITHMETIC, *_INTEGER_ONLY) or not is_small(node, view):
        return False
    dtypes = {view.shapes.dtype(x) for x in (*node.inputs, node.outputs[0]) if x is not None}
    if is_op(node, *_MOVES, *_ARITHMETIC):
        return dtypes <= {*_INTEGERS, *_FLOATS}
    return dtypes <= set(_INTEGERS)


def is_small(node: ir.Node, view: View) -> bool:
    """Whether ``node`` has one result, of at most LIMIT elements, and no parameter."""
    if len(node.outputs) != 1 or any(x.is_ref() for x in node.attributes.values()):
        return False
    dims = view.shapes.dims(node.outputs[0])
    sizes = [x for x in dims or () if isinstance(x, int)]
    return dims is not None and len(sizes) == len(dims) and math.prod(sizes) <= LIMIT
