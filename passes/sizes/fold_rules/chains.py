"""Operators that do nothing, and chains that one operator can replace."""

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.editing.builder import Builder
from graphfix.graph.constants import fill_value_of, uniform_number
from graphfix.graph.nodes import attr_int, input_at, is_op, producer_of
from graphfix.ops.slices import cut_of_cut, cuts_of_slice
from graphfix.wording import with_article

from ...common.cuts import build_slice
from ...common.fold_view import (
    FoldView,
    Replacement,
    constant_of,
    exclusive_producer,
    forward_value,
    has_same_shape,
    perm_of,
)
from ...common.pattern import operand, own, shared
from ...common.reshape_targets import with_axes
from .gathers import simplify_full_gather
from .transposes import simplify_transpose, squeeze_before_transpose
from .views import simplify_view

Rule = Callable[[ir.Node, ir.Value, FoldView], Replacement | None]

_T = ir.DataType
# Types that hold every number of another type, by that type.
_EXACT_IN = {
    _T.BOOL: (_T.INT32, _T.INT64, _T.FLOAT16, _T.FLOAT, _T.DOUBLE, _T.UINT8, _T.INT8),
    _T.INT32: (_T.INT64, _T.DOUBLE),
    _T.UINT8: (_T.INT32, _T.INT64, _T.FLOAT16, _T.FLOAT, _T.DOUBLE),
    _T.INT8: (_T.INT32, _T.INT64, _T.FLOAT16, _T.FLOAT, _T.DOUBLE),
    _T.FLOAT16: (_T.FLOAT, _T.DOUBLE),
    _T.BFLOAT16: (_T.FLOAT, _T.DOUBLE),
    _T.FLOAT: (_T.DOUBLE,),
}
_OPPOSITE = {
    "Less": "GreaterOrEqual",
    "LessOrEqual": "Greater",
    "Greater": "LessOrEqual",
    "GreaterOrEqual": "Less",
}


def _is_softplus_limit(limit: ir.Value) -> bool:
    """Return whether a constant is one number from which on x and Softplus(x) are one float32."""
    array = constant_of(limit, 1)
    return array is not None and array.size == 1 and array.item() >= 15


_TIMES_ONE = shared.Mul("x", 1) | shared.Div("x", 1)
_WITH_NEGATIVE = shared.Add("x", own.Neg("y")) | shared.Sub("x", own.Neg("y"))
_FIRST_IN_ORDER = shared.Gather("rows", shared.Range(0, "end", 1))
_SOFTPLUS_BELOW_LIMIT = shared.Where(
    shared.Greater("x", operand(where=_is_softplus_limit)),
    "x",
    shared.Softplus("x", name="softplus"),
)


def simplify_chain(node: ir.Node, look: FoldView) -> Replacement | None:
    """Drop a node that does nothing, or merge it with the one before it."""
    simplify = _SIMPLIFIERS.get(node.op_type)
    if simplify is None or not is_op(node, node.op_type) or len(node.outputs) != 1:
        return None
    source = node.inputs[0] if node.inputs else None
    return None if source is None else simplify(node, source, look)


def _simplify_cast(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    target = ir.DataType(attr_int(node, "to", 0))
    if look.view.shapes.dtype(source) == target:
        return forward_value(source, node)
    first = source.producer()
    if target == _T.FLOAT and (float_count := _count_in_floats(source)) is not None:
        return float_count
    if not is_op(first, "Cast") or first.inputs[0] is None:
        return None
    start = first.inputs[0]
    start_dtype, source_dtype = look.view.shapes.dtype(start), look.view.shapes.dtype(source)
    if start_dtype is None or source_dtype not in _EXACT_IN.get(start_dtype, ()):
        return None
    if start_dtype == target:
        return forward_value(start, node)
    if exclusive_producer(source, "Cast") is None:
        return None
    return Replacement(
        f"it can be cast from {start.name!r} at once", lambda op: [op.clone_node(node, start)]
    )


def _count_in_floats(value: ir.Value) -> Replacement | None:
    """Count positions in float32 instead of integers: exact up to 2 ** 24."""
    count = exclusive_producer(value, "CumSum")
    fill_node = None if count is None else exclusive_producer(count.inputs[0], "ConstantOfShape")
    filler = None if fill_node is None else fill_value_of(fill_node)
    if count is None or fill_node is None or filler is None or uniform_number(filler) != 1:
        return None
    float_one = ir.tensor(np.ones(1, np.float32))
    return Replacement(
        "it can be counted in floats",
        lambda op: [
            op.clone_node(
                count, op.ConstantOfShape(fill_node.inputs[0], value=float_one), count.inputs[1]
            )
        ],
    )


def _simplify_cast_like(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Turn a CastLike, as in function bodies of exporters, into a Cast."""
    target, source_dtype = look.view.shapes.dtype(input_at(node, 1)), look.view.shapes.dtype(source)
    if target is None or source_dtype is None or "saturate" in node.attributes:
        return None
    if source_dtype == target:
        return forward_value(source, node)
    return Replacement(f"it is a Cast to {target}", lambda op: [op.Cast(source, to=int(target))])


def _simplify_slice(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Drop a Slice of everything; merge a Slice of a Slice."""
    steps = input_at(node, 4)
    forwards = steps is None or all(x == 1 for x in look.numbers(steps) or (0,))
    if forwards and has_same_shape(node, source, look):
        return forward_value(source, node)
    before, rank = exclusive_producer(source, "Slice"), look.view.shapes.rank(source)
    first, second = (x and rank and cuts_of_slice(x, rank) for x in (before, node))
    if not before or not first or not second:
        return None
    all_cuts = {**first, **second}
    for axis in first.keys() & second.keys():
        if (cut := cut_of_cut(first[axis], second[axis])) is None:
            return None
        all_cuts[axis] = cut
    return Replacement(
        "one Slice cuts all of it", lambda op: [build_slice(before.inputs[0], all_cuts, op)]
    )


def _simplify_expand(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    return forward_value(source, node) if has_same_shape(node, source, look) else None


def _simplify_concat(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Drop empty parts of a Concat, as a rotary embedding of all features has."""
    axis = attr_int(node, "axis", 0)
    parts = [x for x in node.inputs if x is not None]
    nonempty = [x for x in parts if not (dims := look.dims(x)) or dims[axis] != 0] or [source]
    if len(nonempty) == 1:
        return forward_value(nonempty[0], node)
    if len(nonempty) == len(parts):
        return None
    return Replacement(
        "some of what it joins is empty", lambda op: [op.Concat(*nonempty, axis=axis)]
    )


def _simplify_pad(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Drop an empty last input of a Pad, with which ONNX Runtime fuses no Pad into a Conv.

    As torch writes it (optimizer/pad_fusion.cc asks for two inputs, or a third that is 0).
    """
    if len(node.inputs) != 3 or node.inputs[2] is not None:
        return None
    return Replacement(
        "its last input is empty", lambda op: [op.clone_node(node, *node.inputs[:2])]
    )


def _simplify_product(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Drop ``x * 1``, ``1 * x`` and ``x / 1``: every bit stays, also NaN and the sign of 0."""
    factors = (product["x"] for product in _TIMES_ONE.matches(node))
    return next((forward_value(x, node) for x in factors if has_same_shape(node, x, look)), None)


def _simplify_sum(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Turn ``x + -y`` into ``x - y`` and ``x - -y`` into ``x + y``, which IEEE 754 equates."""
    total = _WITH_NEGATIVE.match(node)
    if total is None or look.view.opset_of_node(node) < 7:
        return None
    op_type = "Sub" if is_op(node, "Add") else "Add"
    return Replacement(
        f"it is {with_article(op_type)}", lambda op: [op.make(op_type, total["x"], total["y"])]
    )


def _simplify_not(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    negated = producer_of(source)
    if is_op(negated, "Not") and negated.inputs[0] is not None:
        return forward_value(negated.inputs[0], node)
    comparison = exclusive_producer(source, *_OPPOSITE)
    if comparison is None:
        return None
    op_type, dtype = _OPPOSITE[comparison.op_type], look.view.shapes.dtype(comparison.inputs[0])
    # ONNX Runtime infers no shape of it before, so DirectML fuses nothing behind it.
    early = "OrEqual" in op_type and look.view.opset_of_node(node) < 16
    # Of a NaN, neither a comparison nor its opposite is true.
    if early or dtype is None or not dtype.is_integer():
        return None
    inputs = list(comparison.inputs)
    return Replacement(f"it is {with_article(op_type)}", lambda op: [op.make(op_type, *inputs)])


def _simplify_gather_nd(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Turn a GatherND of rows by one index each, as dynamo writes it, into a Gather."""
    index = node.inputs[1]
    dims = look.view.shapes.dims(index)
    if index is None or not dims or dims[-1] != 1 or attr_int(node, "batch_dims", 0):
        return None
    place = constant_of(index, 1)
    if place is not None and len(dims) == 2:
        return Replacement("it takes one row", partial(_build_row, source, int(place.item()), look))
    if not ops.RESHAPES.has(index.producer()):  # else the Squeeze is one more
        return None

    def build_gather(op: Builder) -> list[ir.Value]:
        places = op.build_once(
            ("rows", index), lambda: with_axes("Squeeze", index, (-1,), op), index
        )
        return [op.Gather(source, places, axis=0)]

    return Replacement("it gathers rows", build_gather)


def _build_row(source: ir.Value, index: int, look: FoldView, op: Builder) -> list[ir.Value]:
    """Build one row, cut before a Transpose that brings its axis first, as dynamo writes it."""
    transpose, cut = source.producer(), (index, index + 1 or 2**63 - 1, 1)
    perm = perm_of(transpose, look) if is_op(transpose, "Transpose") else ()
    if transpose is None or not perm:
        return [build_slice(source, {0: cut}, op)]
    return [op.Transpose(build_slice(transpose.inputs[0], {perm[0]: cut}, op), perm=perm)]


def _simplify_gather(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Turn a Gather of the first elements in order, as of an arange, into a Slice."""
    rows = _FIRST_IN_ORDER.match(node)
    end = None if rows is None else rows["end"]
    size = look.data(end)
    # A size as it is, which is never below 0, where a Slice would count from the end.
    if end is None or size is None or look.view.shapes.rank(end) != 0 or not str(size[0]).isalnum():
        return None
    zero, axis = np.zeros(1, np.int64), np.array([attr_int(node, "axis", 0)], np.int64)

    def build_slice_of_first(op: Builder) -> list[ir.Value]:
        return [op.Slice(source, zero, op.Reshape(end, np.array([1], np.int64)), axis)]

    return Replacement("it takes the first in order", build_slice_of_first)


def _simplify_comparison(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Drop ``b == True`` and ``b xor False``: DirectML compares no booleans."""
    for index in (0, 1):
        array, operand = constant_of(node.inputs[index], 1), node.inputs[1 - index]
        if array is None or array.dtype.kind != "b" or array.size != 1 or operand is None:
            continue
        if not has_same_shape(node, operand, look):
            continue
        if bool(array.item()) == is_op(node, "Equal"):
            return forward_value(operand, node)
        return Replacement("it is a Not", partial(_build_not, operand))
    return None


def _simplify_softplus_where(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Drop torch's ``Where(x > 20, x, Softplus(x))``: from 15 on both are one float32."""
    choice = _SOFTPLUS_BELOW_LIMIT.match(node)
    if choice is None or look.view.shapes.dtype(choice["x"]) != ir.DataType.FLOAT:
        return None
    soft = choice["softplus"]
    return forward_value(soft, node) if has_same_shape(node, soft, look) else None


def _build_not(value: ir.Value, op: Builder) -> list[ir.Value]:
    return [op.Not(value)]


_SIMPLIFIERS: dict[str, Rule] = {
    **dict.fromkeys(("Equal", "Xor"), _simplify_comparison),
    **dict.fromkeys(ops.RESHAPES, simplify_view),
    "Squeeze": lambda *seen: squeeze_before_transpose(*seen) or simplify_view(*seen),
    "Identity": lambda node, source, look: forward_value(source, node),
    "Cast": _simplify_cast,
    "CastLike": _simplify_cast_like,
    **dict.fromkeys(("Transpose", "Einsum"), simplify_transpose),
    "Slice": _simplify_slice,
    "Expand": _simplify_expand,
    "Concat": _simplify_concat,
    **dict.fromkeys(("Mul", "Div"), _simplify_product),
    **dict.fromkeys(("Add", "Sub"), _simplify_sum),
    "Not": _simplify_not,
    "Where": _simplify_softplus_where,
    "Pad": _simplify_pad,
    "Gather": lambda *seen: simplify_full_gather(*seen) or _simplify_gather(*seen),
    "GatherND": lambda *seen: simplify_full_gather(*seen) or _simplify_gather_nd(*seen),
}
CHAIN_OPERATORS = frozenset(_SIMPLIFIERS)
"""The operators that :func:`simplify_chain` has a rule for."""
