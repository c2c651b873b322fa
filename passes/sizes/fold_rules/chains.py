"""Operators that do nothing, and chains of them that one operator can stand for."""

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.graph.constants import filler_of, number_in
from graphfix.graph.nodes import attr_int, input_at, is_op, maker_of
from graphfix.wording import a_or_an

from ...common.cuts import cuts_of, sliced
from ...common.lookup import (
    VIEWS,
    Look,
    Replacement,
    alone,
    constant_of,
    nothing,
    perm_of,
    same_shape,
)
from ...common.reshape_targets import with_axes
from .turned import squeezed, turned
from .views import view

Rule = Callable[[ir.Node, ir.Value, Look], Replacement | None]

_T = ir.DataType
# What a type holds of which every number is a number of the type before it.
_HELD_BY = {
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


def chain(node: ir.Node, look: Look) -> Replacement | None:
    """A node that does nothing goes; one that goes on where another ended is made one with it."""
    rule = _RULES.get(node.op_type)
    if rule is None or not is_op(node, node.op_type) or len(node.outputs) != 1:
        return None
    source = node.inputs[0] if node.inputs else None
    return None if source is None else rule(node, source, look)


def _cast(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    target = ir.DataType(attr_int(node, "to", 0))
    if look.view.shapes.dtype(source) == target:
        return nothing(source, node)
    first = source.producer()
    if target == _T.FLOAT and (counted := _counted(source)) is not None:
        return counted
    if not is_op(first, "Cast") or first.inputs[0] is None:
        return None
    start = first.inputs[0]
    given, between = look.view.shapes.dtype(start), look.view.shapes.dtype(source)
    if given is None or between not in _HELD_BY.get(given, ()):
        return None
    if given == target:
        return nothing(start, node)
    if alone(source, "Cast") is None:
        return None
    return Replacement(
        f"it can be cast from {start.name!r} at once", lambda op: [op.again(node, start)]
    )


def _counted(value: ir.Value) -> Replacement | None:
    """Places that are counted in whole numbers, in floats: up to 2 ** 24 each is exact."""
    count = alone(value, "CumSum")
    ones = None if count is None else alone(count.inputs[0], "ConstantOfShape")
    filler = None if ones is None else filler_of(ones)
    if count is None or ones is None or filler is None or number_in(filler) != 1:
        return None
    one = ir.tensor(np.ones(1, np.float32))
    return Replacement(
        "it can be counted in floats",
        lambda op: [
            op.again(count, op.ConstantOfShape(ones.inputs[0], value=one), count.inputs[1])
        ],
    )


def _cast_like(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """A Cast, as the exporters' function bodies write it: of a constant it is one."""
    target, given = look.view.shapes.dtype(input_at(node, 1)), look.view.shapes.dtype(source)
    if target is None or given is None or "saturate" in node.attributes:
        return None
    if given == target:
        return nothing(source, node)
    return Replacement(f"it is a Cast to {target}", lambda op: [op.Cast(source, to=int(target))])


def _slice(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """All of what it is cut from goes; what is cut along other axes is cut at once."""
    steps = input_at(node, 4)
    forwards = steps is None or all(x == 1 for x in look.numbers(steps) or (0,))
    if forwards and same_shape(node, source, look):
        return nothing(source, node)
    before, rank = alone(source, "Slice"), look.view.shapes.rank(source)
    first, second = (x and rank and cuts_of(x, rank) for x in (before, node))
    if not before or not first or not second or first.keys() & second.keys():
        return None
    both = {**first, **second}
    return Replacement(
        "one Slice cuts along all axes", lambda op: [sliced(before.inputs[0], both, op)]
    )


def _expand(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    return nothing(source, node) if same_shape(node, source, look) else None


def _concat(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """What joins nothing to something, as a rotary that turns all of a head does with its rest."""
    axis = attr_int(node, "axis", 0)
    given = [x for x in node.inputs if x is not None]
    filled = [x for x in given if not (dims := look.dims(x)) or dims[axis] != 0] or [source]
    if len(filled) == 1:
        return nothing(filled[0], node)
    if len(filled) == len(given):
        return None
    return Replacement("some of what it joins is empty", lambda op: [op.Concat(*filled, axis=axis)])


def _pad(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """Without an empty input at its end, for which ONNX Runtime puts no Pad into a Conv.

    As torch writes it (optimizer/pad_fusion.cc asks for two inputs, or a third that is 0).
    """
    if len(node.inputs) != 3 or node.inputs[2] is not None:
        return None
    return Replacement("its last input is empty", lambda op: [op.again(node, *node.inputs[:2])])


def _times_one(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """``x * 1``, ``1 * x`` and ``x / 1``: every bit is kept, NaN and the sign of 0 as well."""
    for place in (0, 1) if is_op(node, "Mul") else (1,):
        value, kept = node.inputs[place], node.inputs[1 - place]
        array = constant_of(value, 1)
        one = array is not None and number_in(array) == 1
        if one and kept is not None and same_shape(node, kept, look):
            return nothing(kept, node)
    return None


def _signed(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """``x + -y`` and ``x - -y``, which IEEE 754 defines to be ``x - y`` and ``x + y``."""
    kept, negated = node.inputs[0], alone(node.inputs[1], "Neg")
    if negated is None and is_op(node, "Add"):
        kept, negated = node.inputs[1], alone(kept, "Neg")
    if negated is None or look.view.opset(node) < 7:
        return None
    other, start = "Sub" if is_op(node, "Add") else "Add", negated.inputs[0]
    return Replacement(f"it is {a_or_an(other)}", lambda op: [op.make(other, kept, start)])


def _not(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    negated = maker_of(source)
    if is_op(negated, "Not") and negated.inputs[0] is not None:
        return nothing(negated.inputs[0], node)
    first = alone(source, *_OPPOSITE)
    if first is None:
        return None
    op_type, dtype = _OPPOSITE[first.op_type], look.view.shapes.dtype(first.inputs[0])
    # ONNX Runtime infers no shape of it before, so DirectML fuses nothing behind it.
    early = "OrEqual" in op_type and look.view.opset(node) < 16
    # Of a NaN, neither a comparison nor its opposite is true.
    if early or dtype is None or not dtype.is_integer():
        return None
    inputs = list(first.inputs)
    return Replacement(f"it is {a_or_an(op_type)}", lambda op: [op.make(op_type, *inputs)])


def _gather_nd(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """Rows by one number each, as dynamo writes ``table[positions]``."""
    index = node.inputs[1]
    dims = look.view.shapes.dims(index)
    if index is None or not dims or dims[-1] != 1 or attr_int(node, "batch_dims", 0):
        return None
    place = constant_of(index, 1)
    if place is not None and len(dims) == 2:
        return Replacement("it takes one row", partial(_row, source, int(place.item()), look))
    if not is_op(index.producer(), *VIEWS):  # else the Squeeze is one more
        return None

    def rows(op: Builder) -> list[ir.Value]:
        places = op.once(("rows", index), lambda: with_axes("Squeeze", index, (-1,), op), index)
        return [op.Gather(source, places, axis=0)]

    return Replacement("it gathers rows", rows)


def _row(source: ir.Value, place: int, look: Look, op: Builder) -> list[ir.Value]:
    """As ``x[..., [-2], :]`` by dynamo: cut before a Transpose that brings its axis first."""
    turned, cut = source.producer(), (place, place + 1 or 2**63 - 1, 1)
    if not is_op(turned, "Transpose"):
        return [sliced(source, {0: cut}, op)]
    perm = perm_of(turned, look)
    return [op.Transpose(sliced(turned.inputs[0], {perm[0]: cut}, op), perm=perm)]


def _gather(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """The first so many in order, as XLNet's ``index_select`` of an ``arange``."""
    counted = maker_of(node.inputs[1])
    if counted is None or not is_op(counted, "Range"):
        return None
    start, end, step = counted.inputs
    size = look.data(end)
    # A size as it is, which is never below 0, where a Slice would count from the end.
    if [constant_of(x, 1) for x in (start, step)] != [0, 1] or look.view.shapes.rank(end) != 0:
        return None
    if size is None or not str(size[0]).isalnum():
        return None
    none, axis = np.zeros(1, np.int64), np.array([attr_int(node, "axis", 0)], np.int64)

    def first(op: Builder) -> list[ir.Value]:
        return [op.Slice(source, none, op.Reshape(end, np.array([1], np.int64)), axis)]

    return Replacement("it takes the first in order", first)


def _asked(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """``b == True`` and ``b xor False`` are b; DirectML compares no booleans."""
    for place in (0, 1):
        array, kept = constant_of(node.inputs[place], 1), node.inputs[1 - place]
        if array is None or array.dtype.kind != "b" or array.size != 1 or kept is None:
            continue
        if not same_shape(node, kept, look):
            continue
        if bool(array.item()) == is_op(node, "Equal"):
            return nothing(kept, node)
        return Replacement("it is a Not", partial(_negated, kept))
    return None


def _choice(node: ir.Node, source: ir.Value, look: Look) -> Replacement | None:
    """``Where(x > 20, x, Softplus(x))``, torch's by dynamo: from 15 on both are one float32."""
    asked, (data, soft), plus = source.producer(), node.inputs[1:], maker_of(node.inputs[2])
    if soft is None or not is_op(asked, "Greater") or not is_op(plus, "Softplus"):
        return None
    limit, dtype = constant_of(asked.inputs[1], 1), look.view.shapes.dtype(data)
    if limit is None or limit.size != 1 or not asked.inputs[0] is data is plus.inputs[0]:
        return None
    alike = dtype == ir.DataType.FLOAT and limit.item() >= 15 and same_shape(node, soft, look)
    return nothing(soft, node) if alike else None


def _negated(value: ir.Value, op: Builder) -> list[ir.Value]:
    return [op.Not(value)]


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("Equal", "Xor"), _asked),
    **dict.fromkeys(VIEWS, view),
    "Squeeze": lambda *seen: squeezed(*seen) or view(*seen),
    "Identity": lambda node, source, look: nothing(source, node),
    "Cast": _cast,
    "CastLike": _cast_like,
    **dict.fromkeys(("Transpose", "Einsum"), turned),
    "Slice": _slice,
    "Expand": _expand,
    "Concat": _concat,
    **dict.fromkeys(("Mul", "Div"), _times_one),
    **dict.fromkeys(("Add", "Sub"), _signed),
    "Not": _not,
    "Where": _choice,
    "Pad": _pad,
    "Gather": _gather,
    "GatherND": _gather_nd,
}
CHAINED = frozenset(_RULES)
"""The operators that :func:`chain` has a rule for."""
