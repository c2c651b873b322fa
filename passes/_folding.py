"""Which integer and mask tensors are constants once the sizes of a model are fixed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from graphfix.model.values import const_of, is_op

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    | {"Slice", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"}
)
_ARITHMETIC = frozenset(
    {"Abs", "Add", "And", "Ceil", "Div", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less"}
    | {"LessOrEqual", "Max", "Min", "Mul", "Neg", "Not", "Or", "Sign", "Sqrt", "Sub", "Xor"}
)
# Sums and steps are exact in integers only.
_INTEGER_ONLY = frozenset({"CumSum", "Mod", "Range", "ReduceMax", "ReduceMin", "ReduceProd"}) | {
    "ReduceSum"
}


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
        if not self._is_exact(node) or all(self._is_given(x) for x in node.inputs):
            return None
        feeds = {}
        for value in node.inputs:
            if value is None or value.name is None:
                continue
            array = self._known.get(value)
            if array is None:
                array = const_of(value, LIMIT)
            if array is None:
                return None
            feeds[value.name] = array
        evaluator = ReferenceEvaluator(ir.to_proto(node), opsets={"": self._view.opset(node)})
        try:
            result, *_ = evaluator.run(None, feeds)
        except Exception:  # it fails at these sizes, and so it will where the model is run
            return None
        dtype = self._view.shapes.dtype(node.outputs[0])
        if not isinstance(result, np.ndarray) or dtype is None or result.dtype != dtype.numpy():
            return None
        return result

    def _is_exact(self, node: ir.Node) -> bool:
        """Whether ``node`` has one small result that every runtime computes alike."""
        if len(node.outputs) != 1 or any(x.is_ref() for x in node.attributes.values()):
            return False
        made = node.outputs[0]
        dims = self._view.shapes.dims(made)
        sizes = [x for x in dims or () if isinstance(x, int)]
        if dims is None or len(sizes) != len(dims) or math.prod(sizes) > LIMIT:
            return False
        dtypes = {self._view.shapes.dtype(x) for x in (*node.inputs, made) if x is not None}
        if is_op(node, *_MOVES, *_ARITHMETIC):
            return dtypes <= {*_INTEGERS, *_FLOATS}
        return is_op(node, *_INTEGER_ONLY) and dtypes <= set(_INTEGERS)
