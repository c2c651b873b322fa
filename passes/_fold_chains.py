"""Operators that do nothing, and chains of them that one operator can stand for."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.model.values import attr_int, attr_ints, is_op

from ._fold_look import VIEWS, Found, constant_of, root_of
from ._targets import constant_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphfix.build import Builder

    from ._fold_look import Key, Look

    Rule = Callable[[ir.Node, ir.Value, Look], Found | None]

_DOES_NOTHING = "it gives back what it is given"
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
_BROADCASTS = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Where", "Equal", "Less", "LessOrEqual", "Greater"),
    *("GreaterOrEqual", "And", "Or", "Xor"),
)
_OPPOSITE = {
    "Less": "GreaterOrEqual",
    "LessOrEqual": "Greater",
    "Greater": "LessOrEqual",
    "GreaterOrEqual": "Less",
}


def chain(node: ir.Node, look: Look) -> Found | None:
    """A node that does nothing goes; one that goes on where another ended is made one with it."""
    rule = _RULES.get(node.op_type)
    if rule is None or not is_op(node, node.op_type) or len(node.outputs) != 1:
        return None
    source = node.inputs[0] if node.inputs else None
    return None if source is None else rule(node, source, look)


def _nothing(value: ir.Value, node: ir.Node) -> Found | None:
    """What makes an output of its graph stays: its name is wanted."""
    if node.outputs[0].is_graph_output():
        return None
    return Found(_DOES_NOTHING, lambda op: [value])


def _identity(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    return _nothing(source, node)


def _same_shape(node: ir.Node, source: ir.Value, look: Look) -> bool:
    dims = look.dims(node.outputs[0])
    return dims is not None and dims == look.dims(source)


def _alone(value: ir.Value, *op_types: str) -> ir.Node | None:
    """The node that makes ``value``, if nothing else than one node needs that."""
    node = value.producer()
    if not is_op(node, *op_types) or len(value.uses()) != 1 or value.is_graph_output():
        return None
    return node


def _view(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    """Reshape, Unsqueeze, Squeeze, Flatten."""
    root = root_of(node.outputs[0])
    dims = look.dims(node.outputs[0])
    if dims is None:
        return None
    if dims == look.dims(root):
        return _nothing(root, node)
    start = source
    while (before := _alone(start, *VIEWS)) is not None and before.inputs[0] is not None:
        start = before.inputs[0]
    computed = is_op(node, "Reshape") and len(node.inputs) > 1 and look.numbers(node.inputs[1])
    if start is source and computed is not None:
        return None
    again = _remade(node, start, look)
    if again is None:
        return None
    return Found(f"it can be made of {start.name!r} at once", lambda op: [again(op)])


def _remade(node: ir.Node, source: ir.Value, look: Look) -> Callable[[Builder], ir.Value] | None:
    """One view of ``source`` with the shape that ``node`` makes."""
    given, made = look.dims(source), look.dims(node.outputs[0])
    if given is None or made is None:
        return None
    opset = look.view.opset(node)
    for op_type, small, large in (("Unsqueeze", given, made), ("Squeeze", made, given)):
        axes = _ones(small, large)
        if axes is not None:
            return partial(_with_axes, op_type, source, axes, opset)
    shape = node.inputs[1] if is_op(node, "Reshape") and len(node.inputs) > 1 else None
    if shape is not None and 0 not in (look.numbers(shape) or (0,)):
        return lambda op: op.again(node, source, shape)
    shapes = look.view.shapes
    told = shapes.data(shape) if node.inputs[0] is source else None
    target = constant_target(
        shapes.dims(source) or (), shapes.dims(node.outputs[0]) or (), told, shapes
    )
    if isinstance(target, str):
        return None
    return lambda op: op.Reshape(source, np.array(target, np.int64))


def _ones(small: tuple[Key, ...], large: tuple[Key, ...]) -> tuple[int, ...] | None:
    """The axes of ``large`` that are 1 and are all that it has more than ``small``."""
    axes, left = [], list(small)
    for i, dim in enumerate(large):
        if left and left[0] == dim:
            left.pop(0)
        elif dim == 1:
            axes.append(i)
        else:
            return None
    return tuple(axes) if not left and axes else None


def _with_axes(
    op_type: str, value: ir.Value, axes: tuple[int, ...], opset: int, op: Builder
) -> ir.Value:
    if opset < 13:
        return op.make(op_type, value, axes=list(axes))
    return op.make(op_type, value, np.array(axes, np.int64))


def _cast(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    target = ir.DataType(attr_int(node, "to", 0))
    if look.view.shapes.dtype(source) == target:
        return _nothing(source, node)
    first = source.producer()
    if not is_op(first, "Cast") or first.inputs[0] is None:
        return None
    start = first.inputs[0]
    given, between = look.view.shapes.dtype(start), look.view.shapes.dtype(source)
    if given is None or between not in _HELD_BY.get(given, ()):
        return None
    if given == target:
        return _nothing(start, node)
    if _alone(source, "Cast") is None:
        return None
    return Found(f"it can be cast from {start.name!r} at once", lambda op: [op.again(node, start)])


def _transpose(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    perm = _perm(node, look)
    if perm is None:
        return None
    if perm == tuple(range(len(perm))):
        return _nothing(source, node)
    first = source.producer()
    if not is_op(first, "Transpose") or first.inputs[0] is None:
        return None
    start, inner = first.inputs[0], _perm(first, look)
    if inner is None:
        return None
    both = tuple(inner[x] for x in perm)
    if both == tuple(range(len(both))):
        return _nothing(start, node)
    if _alone(source, "Transpose") is None:
        return None
    return Found("two Transposes are one", lambda op: [op.Transpose(start, perm=list(both))])


def _perm(node: ir.Node, look: Look) -> tuple[int, ...] | None:
    given = attr_ints(node, "perm")
    rank = look.view.shapes.rank(node.inputs[0])
    if given is None and rank is not None and "perm" not in node.attributes:
        return tuple(range(rank))[::-1]
    return given


def _slice(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    if len(node.inputs) < 3:
        return None
    bounds = _bounds(node, look)
    if bounds is None:
        # As long as what it is cut from, forwards: whatever the bounds are, it is all of it.
        steps = look.numbers(node.inputs[4]) if len(node.inputs) > 4 else ()
        forwards = steps is not None and all(x == 1 for x in steps)
        return _nothing(source, node) if forwards and _same_shape(node, source, look) else None
    if all(step == 1 for *_, step in bounds) and _same_shape(node, source, look):
        return _nothing(source, node)
    first = _alone(source, "Slice")
    if first is None or first.inputs[0] is None or len(first.inputs) < 3:
        return None
    start, inner = first.inputs[0], _bounds(first, look)
    if inner is None or {x[0] for x in inner} & {x[0] for x in bounds}:
        return None
    axes, starts, ends, steps = zip(*inner, *bounds, strict=True)
    arrays = [np.array(x, np.int64) for x in (starts, ends, axes, steps)]
    return Found("two Slices are one", lambda op: [op.Slice(start, *arrays)])


def _bounds(node: ir.Node, look: Look) -> list[tuple[int, int, int, int]] | None:
    """(axis, start, end, step) of each axis that a Slice cuts, if they are constants."""
    rank = look.view.shapes.rank(node.inputs[0])
    given = [look.numbers(x) if x is not None else None for x in node.inputs[1:]]
    if rank is None or None in given[:2]:
        return None
    starts, ends = given[0] or (), given[1] or ()
    axes: tuple[int, ...] | None = tuple(range(len(starts)))
    steps: tuple[int, ...] | None = (1,) * len(starts)
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = given[2]
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        steps = given[3]
    if axes is None or steps is None:
        return None
    return list(zip((x % rank for x in axes), starts, ends, steps, strict=True))


def _expand(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    if _same_shape(node, source, look):
        return _nothing(source, node)
    made = node.outputs[0]
    if made.is_graph_output() or not made.uses():
        return None
    if all(_broadcasts(use.node, made, source, look) for use in made.uses()):
        return Found("those who use it would broadcast it themselves", lambda op: [source])
    return None


def _broadcasts(user: ir.Node, made: ir.Value, source: ir.Value, look: Look) -> bool:
    """Whether ``user`` makes the same of ``source`` as of ``made``, which is larger."""
    if not is_op(user, *_BROADCASTS):
        return False
    wanted = look.dims(user.outputs[0])
    shapes = [look.dims(source if x is made else x) for x in user.inputs]
    if wanted is None:
        return False
    known = [x for x in shapes if x is not None]
    if len(known) != len(shapes) or max(map(len, known)) != len(wanted):
        return False
    padded = [(1,) * (len(wanted) - len(x)) + x for x in known]
    return all(
        {1, dim} == {1, *dims} and (dim == 1 or dim in dims)
        for dim, *dims in zip(wanted, *padded, strict=True)
    )


def _same(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    """Tile, and Pad by nothing: a size for each axis that is the old one leaves all as it is."""
    if is_op(node, "Pad"):
        amounts = look.numbers(node.inputs[1]) if len(node.inputs) > 1 else None
        if amounts is None or any(amounts):
            return None
        return _nothing(source, node)
    numbers = look.numbers(node.inputs[1])
    return _nothing(source, node) if numbers and all(x == 1 for x in numbers) else None


def _concat(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    return _nothing(source, node) if len(node.inputs) == 1 else None


def _times_one(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    """``x * 1``, ``1 * x`` and ``x / 1``: every bit is kept, NaN and the sign of 0 as well."""
    places = (0, 1) if is_op(node, "Mul") else (1,)
    for place in places:
        value, kept = node.inputs[place], node.inputs[1 - place]
        array = constant_of(value, 1)
        one = array is not None and _is_one(array.item())
        if one and kept is not None and _same_shape(node, kept, look):
            return _nothing(kept, node)
    return None


def _is_one(number: object) -> bool:
    return isinstance(number, int | float) and math.isclose(number, 1.0, rel_tol=0, abs_tol=0)


def _not(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    first = source.producer()
    if is_op(first, "Not") and first.inputs[0] is not None:
        return _nothing(first.inputs[0], node)
    first = _alone(source, *_OPPOSITE)
    if first is None or look.view.opset(node) < 12:
        return None
    # Of a NaN, neither a comparison nor its opposite is true.
    dtype = look.view.shapes.dtype(first.inputs[0])
    if dtype is None or not dtype.is_integer():
        return None
    inputs = list(first.inputs)
    op_type = _OPPOSITE[first.op_type]
    return Found(f"it is a {op_type}", lambda op: [op.make(op_type, *inputs)])


def _asked(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    """``b == True`` and ``b xor False`` are b; DirectML compares no booleans."""
    for place in (0, 1):
        array, kept = constant_of(node.inputs[place], 1), node.inputs[1 - place]
        if array is None or array.dtype.kind != "b" or array.size != 1 or kept is None:
            continue
        if not _same_shape(node, kept, look):
            continue
        if bool(array.item()) == is_op(node, "Equal"):
            return _nothing(kept, node)
        return Found("it is a Not", partial(_negated, kept))
    return None


def _negated(value: ir.Value, op: Builder) -> list[ir.Value]:
    return [op.Not(value)]


_RULES: dict[str, Rule] = {
    "Equal": _asked,
    "Xor": _asked,
    **dict.fromkeys(VIEWS, _view),
    "Identity": _identity,
    "Cast": _cast,
    "Transpose": _transpose,
    "Slice": _slice,
    "Expand": _expand,
    "Tile": _same,
    "Pad": _same,
    "Concat": _concat,
    "Mul": _times_one,
    "Div": _times_one,
    "Not": _not,
}
