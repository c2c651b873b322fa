"""What is computed from the count of a mask, and the frames that it is compared with.

``sum(mask, 1)``, then the strides of each convolution, is where the content of each row ends among
the frames: the same arithmetic by which their number follows from the length of the audio.
"""

from collections.abc import Iterator

import onnx_ir as ir
import sympy

from graphfix.facts.affine import own_places
from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.quotients import floored
from graphfix.graph.constants import axes_of, scalar_of
from graphfix.graph.nodes import attr_int, is_op
from graphfix.lengths.tail_state import same_size, size_expr

Counts = dict[ir.Value, sympy.Expr]

_SAME = ("Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape", "Expand")
_HELD = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")


def meetings(model: ir.Model, shapes: Shapes) -> Iterator[tuple[str, str]]:
    """The names of a mask's positions and of the frames that its count is compared with.

    Only where the count went through arithmetic of its own: that of durations is the number of
    frames as it is, and durations are no frames.
    """
    counts: Counts = {}
    ones: Counts = {}
    names: set[str] = set()
    for value in model.graph.inputs:
        dims = shapes.dims(value) or ()
        last = size_expr(str(dims[-1])) if len(dims) == 2 else sympy.S.One
        if not value.is_initializer() and last.is_Symbol:
            ones[value] = last
        names |= {x.name for d in dims for x in size_expr(str(d)).free_symbols}
    for node in model.graph:
        if len(node.inputs) and node.outputs:
            _follow(node, shapes, ones, counts)
            for count, frames in _held(node, shapes, counts):
                yield from _one(count, frames, names)


def _one(count: sympy.Expr, frames: sympy.Expr, names: set[str]) -> Iterator[tuple[str, str]]:
    """The two names, if one count is the other with another name for its only symbol."""
    own, other = count.free_symbols, frames.free_symbols
    if len(own) != 1 or len(other) != 1 or own == other:
        return
    (a,), (b,) = own, other
    own_arithmetic = a.name in names and b.name in names and not count.is_Symbol
    if own_arithmetic and same_size(count.subs(a, b), frames):
        yield a.name, b.name


def _follow(node: ir.Node, shapes: Shapes, ones: Counts, counts: Counts) -> None:
    """What a node makes of a mask of ones, or of the count of one."""
    first, result = node.inputs[0], node.outputs[0]
    if first is None:
        return
    if first in ones:
        if is_op(node, "Cast", "Identity"):
            ones[result] = ones[first]
        elif is_op(node, "ReduceSum") and axes_of(node) in ((1,), (-1,)):
            counts[result] = ones[first]
        elif is_op(node, "CumSum") and scalar_of(node.inputs[1]) in (1, -1):
            for use in result.uses():
                if _reads_last(use.node):
                    counts[use.node.outputs[0]] = ones[first]
        return
    below = floored(node, shapes.dtype)  # a quotient that is rounded down in several nodes
    if below is not None and below[0] in counts:
        counts[result] = sympy.floor(counts[below[0]] / below[1])
        return
    known = [x for x in node.inputs if x is not None and x in counts]
    if len(known) != 1:
        return
    if is_op(node, *_SAME) and known[0] is first:
        counts[result] = counts[first]
    elif is_op(node, "Floor", "Ceil"):
        counts[result] = (sympy.floor if node.op_type == "Floor" else sympy.ceiling)(counts[first])
    elif is_op(node, "Add", "Sub", "Mul", "Div"):
        made = _computed(node, shapes, counts)
        if made is not None:
            counts[result] = made


def _reads_last(node: ir.Node) -> bool:
    """``x[:, -1]``, the last entry of a running count."""
    along = is_op(node, "Gather") and attr_int(node, "axis", 0) in (1, -1)
    return along and scalar_of(node.inputs[1]) == -1


def _computed(node: ir.Node, shapes: Shapes, counts: Counts) -> sympy.Expr | None:
    """A sum, difference, product or quotient of a count and a number."""
    parts: list[sympy.Expr] = []
    for value in node.inputs:
        number = None if value is None else scalar_of(value)
        if value is not None and value in counts:
            parts.append(counts[value])
        elif number is not None and float(number).is_integer():
            parts.append(sympy.Integer(int(number)))
        else:
            return None
    a, b = parts
    if node.op_type != "Div":
        return {"Add": a + b, "Sub": a - b, "Mul": a * b}[node.op_type]
    if not b.is_Integer or b <= 0:
        return None
    dtype = shapes.dtype(node.inputs[0])
    return sympy.floor(a / b) if dtype is not None and dtype.is_integer() else a / b


def _held(node: ir.Node, shapes: Shapes, counts: Counts) -> Iterator[tuple[sympy.Expr, sympy.Expr]]:
    """Counts beside the number of frames that a node holds them against."""
    if is_op(node, *_HELD):
        for own, other in (node.inputs, node.inputs[::-1]):
            if own is not None and own in counts and other not in counts:
                for dim in shapes.dims(other) or ():
                    yield counts[own], size_expr(str(dim))
    elif is_op(node, "ScatterND"):
        places = own_places(node.inputs[1], shapes) or ()
        for value, dim in zip(places, shapes.dims(node.inputs[0]) or (), strict=False):
            if value in counts:  # the place of the last frame
                yield counts[value] + 1, size_expr(str(dim))
