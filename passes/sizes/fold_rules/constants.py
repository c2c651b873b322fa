"""Nodes whose result is the same in each run, and the Ifs that a constant decides."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from graphfix.facts.view import View
from graphfix.graph.dims import numbers_in
from graphfix.graph.nodes import is_op
from graphfix.ops.slicing import slice_of

from ...common.lookup import LIMIT, Array, Look, Replacement, constant_of

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
WORKED_OUT = frozenset({*_MOVES, *_ARITHMETIC, *_INTEGER_ONLY})
"""The operators that :func:`worked_out` looks at."""


def known(node: ir.Node, look: Look) -> Replacement | None:
    """A node of which shape inference says what it makes becomes that."""
    if len(node.outputs) != 1 or look.view.shapes.data(node.outputs[0]) is None:
        return None  # nearly always
    return None if is_op(node, "Constant", "Identity") else _same(_from_sizes(node, look))


def worked_out(node: ir.Node, look: Look) -> Replacement | None:
    """A node that makes the same of constants in each run becomes what it makes."""
    if is_op(node, "Identity") or len(node.outputs) != 1 or not node.inputs:
        return None
    if any(x is not None and constant_of(x, LIMIT) is None for x in node.inputs):
        return None
    return _same(_evaluated(node, {}, look.view)) if _is_exact(node, look.view) else None


def _same(held: Array | None) -> Replacement | None:
    if held is None:
        return None
    return Replacement("it makes the same in each run", lambda op: [op.constant(held)])


def _from_sizes(node: ir.Node, look: Look) -> Array | None:
    made = node.outputs[0]
    if (numbers := look.numbers(made)) is None:  # nearly always
        return None
    dtype, dims = look.view.shapes.dtype(made), look.dims(made)
    if dims is None or dtype is None:
        return None
    sizes = numbers_in(dims)
    return None if sizes is None else np.array(numbers, dtype.numpy()).reshape(sizes)


def from_sizes(look: Look) -> Mapping[ir.Value, Array]:
    """What follows from the sizes of tensors; constants alone do not."""
    found: dict[ir.Value, Array] = {}
    for node in look.view.model.graph.all_nodes():
        given = [x for x in node.inputs if x is not None]
        settled = all(x not in found and constant_of(x) is not None for x in given)
        if len(node.outputs) != 1 or settled:
            continue
        array = _from_sizes(node, look)
        if array is None and _is_exact(node, look.view):
            array = _evaluated(node, found, look.view)
        if array is not None:
            found[node.outputs[0]] = array
    return found


def _evaluated(node: ir.Node, known: Mapping[ir.Value, Array], view: View) -> Array | None:
    """What ``node`` makes of constants and what is known; None if it lacks one, or fails."""

    def held(value: ir.Value) -> Array | None:
        return known[value] if value in known else constant_of(value)

    feeds = {}
    for value in node.inputs:
        if value is None or value.name is None:
            continue
        array = held(value)
        if array is None:
            return None
        feeds[value.name] = array
    if is_op(node, "Slice") and len(node.inputs) > 2:
        return _sliced([None if x is None else held(x) for x in node.inputs])
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


def _sliced(inputs: Sequence[Array | None]) -> Array | None:
    """As ONNX Runtime does it, from which the reference parts where a step is below 0."""
    data, starts, ends, axes, steps = (*inputs, None, None)[:5]
    if data is None or starts is None or ends is None:
        return None
    places = range(len(starts)) if axes is None else axes.tolist()
    index = [slice(None)] * data.ndim
    for i, axis in enumerate(places):
        step = 1 if steps is None else int(steps[i])
        index[axis] = slice_of(int(starts[i]), int(ends[i]), step, data.shape[axis])
    return data[tuple(index)]


def _is_exact(node: ir.Node, view: View) -> bool:
    """Whether ``node`` has one small result that every runtime computes alike."""
    if not is_op(node, *WORKED_OUT) or not _is_small(node, view):
        return False
    dtypes = {view.shapes.dtype(x) for x in (*node.inputs, node.outputs[0]) if x is not None}
    if is_op(node, *_MOVES, *_ARITHMETIC):
        return dtypes <= {*_INTEGERS, *_FLOATS}
    return dtypes <= set(_INTEGERS)


def _is_small(node: ir.Node, view: View) -> bool:
    """Whether ``node`` has one result, of at most LIMIT elements, and no parameter."""
    if len(node.outputs) != 1 or any(x.is_ref() for x in node.attributes.values()):
        return False
    sizes = numbers_in(view.shapes.dims(node.outputs[0]))
    return sizes is not None and math.prod(sizes) <= LIMIT


def decided_if(node: ir.Node, look: Look) -> Replacement | None:
    """An If whose condition is a constant becomes the branch that it takes."""
    if not is_op(node, "If"):
        return None
    condition = constant_of(node.inputs[0])
    names = ("then_branch", "else_branch")
    if condition is None or condition.size != 1 or not all(x in node.attributes for x in names):
        return None
    branch = node.attributes[names[0 if condition.item() else 1]]
    if branch.is_ref() or _says_too_much(node, branch.as_graph(), look):
        return None
    return Replacement(
        f"its condition is always {bool(condition.item())}: one branch stands in its place",
        lambda op: op.inline(branch.as_graph()),
    )


def _says_too_much(node: ir.Node, branch: ir.Graph, look: Look) -> bool:
    """Whether ONNX Runtime would not load what it runs while the If hides a rank from it.

    A Range takes a vector of one element when it runs, and is rejected where it is seen to be one.
    """
    return any(
        look.view.shapes.rank(inner) not in (None, 0)
        for made, inner in zip(node.outputs, branch.outputs, strict=True)
        if any(is_op(use.node, "Range") for use in made.uses())
    )
