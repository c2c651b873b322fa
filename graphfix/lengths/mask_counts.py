"""Numbers computed from the count of a mask, and the frames that they are compared with.

``sum(mask, 1)``, then the strides of each convolution, is where the content of each row ends among
the frames: the same arithmetic by which their number follows from the length of the audio.
"""

from collections.abc import Iterator

import onnx_ir as ir
import sympy

from graphfix import ops
from graphfix.facts.affine import index_parts, is_full_slice
from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.quotients import floor_division
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op, value_before
from graphfix.lengths.tail_state import same_size, size_expr
from graphfix.ops.operands import read_ints

Counts = dict[ir.Value, sympy.Expr]

_KEEPS_COUNT = ops.VIEWS | ops.CASTS | ops.named("Expand")


def pairs_from_mask_counts(model: ir.Model, shapes: Shapes) -> Iterator[tuple[str, str]]:
    """Yield the names of a mask's positions and of the frames its count is compared with.

    Only where the count went through arithmetic of its own: that of durations is the number of
    frames as it is, and durations are no frames.
    """
    counts: Counts = {}
    mask_lengths: Counts = {}
    names: set[str] = set()
    for value in model.graph.inputs:
        dims = shapes.dims(value) or ()
        last = size_expr(str(dims[-1])) if len(dims) == 2 else sympy.S.One
        if not value.is_initializer() and last.is_Symbol:
            mask_lengths[value] = last
        names |= {x.name for d in dims for x in size_expr(str(d)).free_symbols}
    for node in model.graph:
        if len(node.inputs) and node.outputs:
            _track_count(node, shapes, mask_lengths, counts)
            for count, frames in _compared_sizes(node, shapes, counts):
                yield from _symbols_of_same_size(count, frames, names)


def _symbols_of_same_size(
    count: sympy.Expr, frames: sympy.Expr, names: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield both names if one count is the other with another name for its only symbol."""
    count_symbols, frame_symbols = count.free_symbols, frames.free_symbols
    if len(count_symbols) != 1 or len(frame_symbols) != 1 or count_symbols == frame_symbols:
        return
    (a,), (b,) = count_symbols, frame_symbols
    own_arithmetic = a.name in names and b.name in names and not count.is_Symbol
    if own_arithmetic and same_size(count.subs(a, b), frames):
        yield a.name, b.name


def _track_count(node: ir.Node, shapes: Shapes, mask_lengths: Counts, counts: Counts) -> None:
    """Record what a node makes of a mask of ones, or of the count of one."""
    first, result = node.inputs[0], node.outputs[0]
    if first is None:
        return
    if first in mask_lengths:
        _track_mask(node, shapes, mask_lengths, counts)
        return
    quotient = floor_division(node, shapes.dtype)  # rounded down in several nodes
    if quotient is not None and quotient[0] in counts:
        counts[result] = sympy.floor(counts[quotient[0]] / quotient[1])
        return
    # A CastLike may take the type of its result from another count.
    if node not in ops.CASTS and len([x for x in node.inputs if x in counts]) != 1:
        return
    if first in counts and (node in _KEEPS_COUNT or _takes_all(node, shapes)):
        counts[result] = counts[first]
    elif is_op(node, "Floor"):
        counts[result] = sympy.floor(counts[first])
    elif is_op(node, "Ceil"):
        counts[result] = sympy.ceiling(counts[first])
    elif is_op(node, "Add", "Sub", "Mul", "Div"):
        expr = _count_arithmetic(node, shapes, counts)
        if expr is not None:
            counts[result] = expr


def _takes_all(node: ir.Node, shapes: Shapes) -> bool:
    """Return whether a node is a Slice of everything, as exporters write ``x[:]``."""
    return is_op(node, "Slice") and is_full_slice(node, shapes)


def _track_mask(node: ir.Node, shapes: Shapes, mask_lengths: Counts, counts: Counts) -> None:
    """Record what a node makes of a mask: the same mask, its sum, or its last running sum."""
    first, result = node.inputs[0], node.outputs[0]
    if first is None:
        return
    length = mask_lengths[first]
    if node in ops.CASTS or is_op(node, "Identity"):
        mask_lengths[result] = length
    elif is_op(node, "ReduceSum") and read_ints(node, 1, "axes") in ((1,), (-1,)):
        counts[result] = length
    elif is_op(node, "CumSum") and scalar_of(node.inputs[1]) in (1, -1):
        for reader in _readers_of(result, shapes):
            if _reads_last(reader):
                counts[reader.outputs[0]] = length


def _readers_of(value: ir.Value, shapes: Shapes) -> Iterator[ir.Node]:
    """Yield the nodes that read a value, as it is or through Slices of everything."""
    for use in value.uses():
        yield use.node
        if _takes_all(use.node, shapes):
            yield from _readers_of(use.node.outputs[0], shapes)


def _reads_last(node: ir.Node) -> bool:
    """Return whether a node is ``x[:, -1]``, the last entry of a running count."""
    along = is_op(node, "Gather") and attr_int(node, "axis", 0) in (1, -1)
    return along and scalar_of(node.inputs[1]) == -1


def _count_arithmetic(node: ir.Node, shapes: Shapes, counts: Counts) -> sympy.Expr | None:
    """Return a sum, difference, product or quotient of a count and a number, or None."""
    parts: list[sympy.Expr] = []
    for value in node.inputs:
        # A whole number stays one in each type that lengths are computed in.
        number = None if value is None else scalar_of(value_before(value, *ops.CASTS))
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


def _compared_sizes(
    node: ir.Node, shapes: Shapes, counts: Counts
) -> Iterator[tuple[sympy.Expr, sympy.Expr]]:
    """Yield counts beside the number of frames that a node compares them with."""
    if node in ops.ORDER_COMPARISONS:
        for lhs, rhs in (node.inputs, node.inputs[::-1]):
            if lhs is not None and lhs in counts and rhs not in counts:
                for dim in shapes.dims(rhs) or ():
                    yield counts[lhs], size_expr(str(dim))
    elif is_op(node, "ScatterND"):
        places = index_parts(node.inputs[1], shapes) or ()
        for value, dim in zip(places, shapes.dims(node.inputs[0]) or (), strict=False):
            if value in counts:  # the place of the last frame
                yield counts[value] + 1, size_expr(str(dim))
