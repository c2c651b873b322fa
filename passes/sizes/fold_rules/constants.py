"""Nodes with the same result in each run, and Ifs that a constant decides."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from graphfix import ops
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.dims import static_dims
from graphfix.graph.nodes import attr_text, is_op
from graphfix.ops.resizes import read_resize
from graphfix.ops.slices import cuts_of_slice, python_slice

from ...common.fold_view import LIMIT, Array, FoldView, Replacement, constant_of

_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
# Every runtime computes these alike: they move data, or round as IEEE 754 says. Of -0, a Clip or
# Relu makes 0 in one runtime and -0 in another.
_EXACT = (
    ops.MOVES_ELEMENTS
    | (ops.CORRECTLY_ROUNDED & ops.ELEMENTWISE) - ops.IDLE - ops.named("Clip Relu")
    | ops.named("Cast ConstantOfShape NonZero Trilu Where")
    | ops.RESAMPLES  # sums of floats too, see _resized_constant
)
# Sums and steps are exact in integers only; extremes of floats may be NaN.
_EXACT_IN_INTEGERS = ops.REDUCES_TO_EXTREME | ops.named("CumSum Mod Range ReduceProd ReduceSum")
# Elements of a resized constant, such as the position embedding of a vision transformer: 8 MB.
_RESIZED_LIMIT = 2**21
# Nodes in a row that move the elements of a constant before it is resized: a handful in exports.
_MAX_MOVES = 16
FOLDABLE = _EXACT | _EXACT_IN_INTEGERS
"""The operators that :func:`fold_constant` computes."""


def fold_inferred(node: ir.Node, look: FoldView) -> Replacement | None:
    """Replace a node whose output shape inference knows by a constant."""
    if len(node.outputs) != 1 or look.view.shapes.known_elements(node.outputs[0]) is None:
        return None  # nearly always
    return (
        None
        if is_op(node, "Constant", "Identity")
        else _constant_replacement(_inferred_array(node, look))
    )


def fold_constant(node: ir.Node, look: FoldView) -> Replacement | None:
    """Replace a node that computes the same of constants in each run by its result."""
    if is_op(node, "Identity") or len(node.outputs) != 1 or not node.inputs:
        return None
    if node in ops.RESAMPLES:
        return _constant_replacement(_resized_constant(node, look.view))
    if any(x is not None and constant_of(x, LIMIT) is None for x in node.inputs):
        return None
    return (
        _constant_replacement(_evaluate(node, {}, look.view))
        if _is_exact(node, look.view)
        else None
    )


def _constant_replacement(array: Array | None) -> Replacement | None:
    if array is None:
        return None
    return Replacement("it makes the same in each run", lambda op: [op.constant(array)])


def _inferred_array(node: ir.Node, look: FoldView) -> Array | None:
    output = node.outputs[0]
    if (numbers := look.numbers(output)) is None:  # nearly always
        return None
    dtype, dims = look.view.shapes.dtype(output), look.dims(output)
    if dims is None or dtype is None:
        return None
    sizes = static_dims(dims)
    return None if sizes is None else np.array(numbers, dtype.numpy()).reshape(sizes)


def arrays_from_sizes(look: FoldView) -> Mapping[ir.Value, Array]:
    """Return the values that follow from tensor sizes, but not from constants alone."""
    arrays: dict[ir.Value, Array] = {}
    for node in look.view.model.graph.all_nodes():
        operands = [x for x in node.inputs if x is not None]
        is_constant = all(x not in arrays and constant_of(x) is not None for x in operands)
        if len(node.outputs) != 1 or is_constant:
            continue
        array = _inferred_array(node, look)
        if array is None and _is_exact(node, look.view):
            array = _evaluate(node, arrays, look.view)
        if array is not None:
            arrays[node.outputs[0]] = array
    return arrays


def _evaluate(node: ir.Node, arrays: Mapping[ir.Value, Array], view: View) -> Array | None:
    """Return what ``node`` computes of constants and known arrays, or None if it cannot."""

    def array_of(value: ir.Value) -> Array | None:
        return arrays[value] if value in arrays else constant_of(value)

    feeds = {}
    for value in node.inputs:
        if value is None or value.name is None:
            continue
        array = array_of(value)
        if array is None:
            return None
        feeds[value.name] = array
    if is_op(node, "Slice"):
        return _evaluate_slice(node, array_of)
    if node in ops.RESAMPLES:
        return _evaluate_resize(node, array_of, view)
    dtype = view.shapes.dtype(node.outputs[0])
    # A division of integers by zero, or beyond their range, ends the process of ONNX Runtime.
    on_error: Literal["raise", "ignore"] = "raise" if dtype in _INTEGERS else "ignore"
    try:
        evaluator = ReferenceEvaluator(ir.to_proto(node), opsets={"": view.opset_of_node(node)})
        with np.errstate(divide=on_error, over=on_error, invalid="ignore"):
            result, *_ = evaluator.run(None, feeds)
    except Exception:  # it fails at these sizes or attributes, as it will where the model runs
        return None
    if not isinstance(result, np.ndarray) or dtype is None or result.dtype != dtype.numpy():
        return None
    return result


def _evaluate_slice(node: ir.Node, array_of: Callable[[ir.Value], Array | None]) -> Array | None:
    """Slice as ONNX Runtime does, from which the reference differs at negative steps."""

    def ints_of(value: ir.Value) -> Sequence[int] | None:
        array = array_of(value)
        return None if array is None else tuple(int(x) for x in array.reshape(-1).tolist())

    source = node.inputs[0]
    data = None if source is None else array_of(source)
    cuts = None if data is None else cuts_of_slice(node, data.ndim, ints_of)
    if data is None or cuts is None:
        return None
    index = [slice(None)] * data.ndim
    for axis, cut in cuts.items():
        index[axis] = python_slice(cut, data.shape[axis])
    return data[tuple(index)]


def _evaluate_resize(
    node: ir.Node, array_of: Callable[[ir.Value], Array | None], view: View
) -> Array | None:
    """Resize along one axis after the other; a sum of floats is right up to rounding."""
    source = node.inputs[0]
    data = None if source is None else array_of(source)
    resize = None if data is None else read_resize(node, data.ndim, view.opset_of_node(node))
    dims = None if data is None or resize is None else resize.resized_dims(data.shape)
    if data is None or resize is None or dims is None:
        return None
    dtype = data.dtype
    for axis, (old, new) in enumerate(zip(data.shape, dims, strict=True)):
        if resize.mode == "nearest":
            elements = resize.nearest_elements(axis, old, new)
            if elements is None:
                return None
            data = np.take(data, elements, axis)
        elif (weights := resize.weights(axis, old, new)) is None:
            return None
        elif old != new or not np.array_equal(weights, np.eye(old)):
            rows = np.moveaxis(data, axis, -1).astype(np.float64)
            data = np.moveaxis(rows @ weights.T, -1, axis)
    return data.astype(dtype)


def _resized_constant(node: ir.Node, view: View) -> Array | None:
    """Return what a Resize makes of a constant, or of one whose elements are moved first."""
    source = node.inputs[0]
    is_sum = attr_text(node, "mode", "nearest") != "nearest"
    dtypes = _FLOATS if is_sum else (*_INTEGERS, *_FLOATS)
    if source is None or view.shapes.dtype(source) not in dtypes:
        return None
    if not _is_small(node, view, _RESIZED_LIMIT):
        return None
    arrays: dict[ir.Value, Array] = {}
    return _evaluate_resize(node, arrays.get, view) if _move(source, arrays, view) else None


def _move(
    value: ir.Value, arrays: dict[ir.Value, Array], view: View, depth: int = _MAX_MOVES
) -> bool:
    """Put the array of a constant, or of one whose elements are moved, into ``arrays``."""
    if value in arrays or not depth:
        return value in arrays
    node = value.producer()
    array = const_of(value, _RESIZED_LIMIT)
    if array is None and node is not None and node in ops.MOVES_ELEMENTS:
        if not _is_small(node, view, _RESIZED_LIMIT):
            return False
        if all(x is None or _move(x, arrays, view, depth - 1) for x in node.inputs):
            array = _evaluate(node, arrays, view)
    if array is not None:
        arrays[value] = array
    return array is not None


def _is_exact(node: ir.Node, view: View) -> bool:
    """Return whether ``node`` has one small result that every runtime computes alike."""
    if node not in FOLDABLE or not _is_small(node, view):
        return False
    dtypes = {view.shapes.dtype(x) for x in (*node.inputs, node.outputs[0]) if x is not None}
    if node in _EXACT:
        return dtypes <= {*_INTEGERS, *_FLOATS}
    return dtypes <= set(_INTEGERS)


def _is_small(node: ir.Node, view: View, limit: int = LIMIT) -> bool:
    """Return whether ``node`` has one output of at most ``limit`` elements and no parameter."""
    if len(node.outputs) != 1 or any(x.is_ref() for x in node.attributes.values()):
        return False
    sizes = static_dims(view.shapes.dims(node.outputs[0]))
    return sizes is not None and math.prod(sizes) <= limit


def inline_if(node: ir.Node, look: FoldView) -> Replacement | None:
    """Replace an If whose condition is a constant by the branch it takes."""
    if not is_op(node, "If"):
        return None
    condition = constant_of(node.inputs[0])
    names = ("then_branch", "else_branch")
    if condition is None or condition.size != 1 or not all(x in node.attributes for x in names):
        return None
    branch = node.attributes[names[0 if condition.item() else 1]]
    if branch.is_ref() or _reveals_rank(node, branch.as_graph(), look):
        return None
    return Replacement(
        f"its condition is always {bool(condition.item())}: one branch stands in its place",
        lambda op: op.inline_branch(branch.as_graph()),
    )


def _reveals_rank(node: ir.Node, branch: ir.Graph, look: FoldView) -> bool:
    """Return whether ONNX Runtime would reject a branch once the If no longer hides a rank.

    A Range runs with limits of one element, but is rejected where they are seen to be vectors.
    """
    return any(
        look.view.shapes.rank(inner) not in (None, 0)
        for output, inner in zip(node.outputs, branch.outputs, strict=True)
        if any(is_op(use.node, "Range") for use in output.uses())
    )
