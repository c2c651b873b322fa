"""mask-length: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dim
from graphfix.facts.symbolic.expressions import Dim, symbols_of
from graphfix.facts.view import View
from graphfix.graph.constants import const_of, scalar_of
from graphfix.graph.nodes import attr_int, is_op, producer_of, value_before
from graphfix.graph.walks import reachable_from
from graphfix.ops.axes import reduced_axes

# A mask meets what it masks a few nodes on; this only bounds the walk.
_MAX_STEPS = 400
# The largest length is one number; these give it another shape or type.
_MOVES_ELEMENT = ops.VIEWS | ops.CASTS
_MAX_MOVES = 8


@dataclass(frozen=True)
class LongestSite(Match):
    """A Range up to the longest length.

    Attributes:
        source: An input that is as long as what is masked.
        axis: The axis of ``source`` with that length.
        dtype: The type of the Range.
    """

    source: ir.Value
    axis: int
    dtype: ir.DataType


@dataclass(frozen=True)
class MaskLength(NodePass[LongestSite]):
    """Makes a mask as long as the tensor it masks, instead of as long as the longest row.

    FunASR's ``make_pad_mask`` counts to ``lengths.max()``, and multiplies frames by what comes of
    it: so one row of every batch must be full, and the size of the mask is data.

    Why:
        In a container no row is full: the mask is shorter than the frames, and ONNX Runtime ends
        the run ("axis == 1 || axis == largest was false", seen with SANM encoders of both
        exporters). And a size that is data keeps DirectML from fusing the graph, fixed dims or not.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        masked (float[B, T, 4] x, int64[B] lengths) => (float[B, T, 4] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}>
        {
            longest = ReduceMax <keepdims = 0> (lengths)
            index = Range (zero, longest, one)
            ends = Unsqueeze (lengths, last)
            valid = Less (index, ends)
            mask = Cast <to = 1> (valid)
            column = Unsqueeze (mask, last)
            y = Mul (x, column)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        masked (float[B, T, 4] x, int64[B] lengths) => (float[B, T, 4] y)
        <int64[1] last = {-1}, int64 zero = {0}, int64 one = {1}>
        {
            sizes = Shape (x)
            size = Gather <axis = 0> (sizes, one)
            index = Range (zero, size, one)
            ends = Unsqueeze (lengths, last)
            valid = Less (index, ends)
            mask = Cast <to = 1> (valid)
            column = Unsqueeze (mask, last)
            y = Mul (x, column)
        }

    Left alone:
        Where "its mask meets axes of several sizes: S, T":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        two (float[B, T, 4] x, float[B, S, 4] z, int64[B] lengths)
            => (float[B, T, 4] y, float[B, S, 4] w)
        <int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}>
        {
            longest = ReduceMax <keepdims = 0> (lengths)
            index = Range (zero, longest, one)
            ends = Unsqueeze (lengths, last)
            valid = Less (index, ends)
            mask = Cast <to = 1> (valid)
            column = Unsqueeze (mask, last)
            y = Mul (x, column)
            w = Mul (z, column)
        }

        Where "no input is as long as what it masks, 2*T":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        twice (float[B, T, 4] x, int64[B] lengths) => (float[B, P, 4] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}>
        {
            longest = ReduceMax <keepdims = 0> (lengths)
            index = Range (zero, longest, one)
            ends = Unsqueeze (lengths, last)
            valid = Less (index, ends)
            mask = Cast <to = 1> (valid)
            column = Unsqueeze (mask, last)
            doubled = Concat <axis = 1> (x, x)
            y = Mul (doubled, column)
        }

        A Range in other steps than 1:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        steps (float[B, T, 4] x, int64[B] lengths) => (float[B, P, 4] y)
        <int64 zero = {0}, int64 two = {2}, int64[1] last = {-1}>
        {
            longest = ReduceMax <keepdims = 0> (lengths)
            index = Range (zero, longest, two)
            ends = Unsqueeze (lengths, last)
            valid = Less (index, ends)
            mask = Cast <to = 1> (valid)
            column = Unsqueeze (mask, last)
            y = Mul (x, column)
        }

    Safety:
        Exact in every run in which a row is full; all others the original refuses, except those
        where all lengths are 1, whose mask of one frame it spreads over all. There the repaired
        model masks what is behind the first frame.
    """

    sentence = "the mask is as long as the longest row, not as what it masks"
    safety = "conditional"
    anchors = ("Range",)
    keeps_shapes = False

    def match(self, node: ir.Node, view: View) -> LongestSite | Skip | None:
        """Return the site if a mask counts to the longest row of an input."""
        if (scalar_of(node.inputs[0]), scalar_of(node.inputs[2])) != (0, 1):
            return None
        dims, dtype = view.shapes.dims(node.outputs[0]), view.shapes.dtype(node.outputs[0])
        if dtype is None or dims is None or view.in_function(node):
            return None
        if not _is_longest_length(node.inputs[1], view):
            return None
        met_sizes = _sizes_met_by(node.outputs[0], dims[0], view)
        if not met_sizes:
            return None
        if not all(same_dim(met_sizes[0], size) for size in met_sizes[1:]):
            names = ", ".join(sorted({str(x) for x in met_sizes}))
            return Skip(node, f"its mask meets axes of several sizes: {names}")
        source = _input_with_size(met_sizes[0], view)
        if source is None:
            return Skip(node, f"no input is as long as what it masks, {met_sizes[0]}")
        return LongestSite(node, *source, dtype)

    def rewrite(self, match: LongestSite, op: Builder) -> ir.Value:
        """Build the same Range, up to the size of the input."""
        limit = op.Gather(op.Shape(match.source), np.array(match.axis, np.int64), axis=0)
        index = op.Range(np.array(0, np.int64), limit, np.array(1, np.int64))
        return index if match.dtype == ir.DataType.INT64 else op.Cast(index, to=match.dtype)


def _is_longest_length(value: ir.Value | None, view: View) -> bool:
    """Return whether a scalar is the largest element of an integer input."""
    node = _maker_of_element(value)
    if not is_op(node, "ReduceMax"):
        return False
    lengths = node.inputs[0]
    rank = view.shapes.rank(lengths)
    if rank is None:
        return False
    axes = reduced_axes(node, rank, view.opset_of_node(node))
    if axes is None or len(axes) != rank:
        return False
    source = value_before(lengths, "Cast", "Identity")
    dtype = view.shapes.dtype(source)
    is_input = source is not None and source.is_graph_input()
    return is_input and dtype is not None and dtype.is_integer()


def _maker_of_element(value: ir.Value | None) -> ir.Node | None:
    """Return the node that makes a tensor whose first, or only, element ``value`` is."""
    node = producer_of(value)
    for _ in range(_MAX_MOVES):
        if is_op(node, "Gather") and attr_int(node, "axis", 0) == 0:
            index = const_of(node.inputs[1])
            if index is None or index.any():
                return None
        elif not _MOVES_ELEMENT.has(node):
            break
        node = producer_of(node.inputs[0])
    return node


def _sizes_met_by(start: ir.Value, size: Dim, view: View) -> list[Dim]:
    """Return the other sizes, except 1, that axes of this size are combined with.

    Only sizes that follow from those of the inputs count, not from such a combination.
    """
    dims = (dim for x in view.model.graph.inputs for dim in view.shapes.dims(x) or ())
    input_symbols = {name for dim in dims for name in symbols_of(dim)}
    met_sizes: list[Dim] = []
    for node in _nodes_behind(start, size, view):
        if node in ops.BROADCASTS:
            shapes = [d for x in node.inputs if (d := view.shapes.dims(x)) is not None]
            met_sizes += [x for x in _other_sizes(size, shapes) if symbols_of(x) <= input_symbols]
    return met_sizes


def _nodes_behind(start: ir.Value, size: Dim, view: View) -> Iterator[ir.Node]:
    """Yield the readers of ``start``, and of what they make of it with an axis of this size."""

    def outputs_of_size(value: ir.Value) -> Iterator[ir.Value]:
        outputs = (x for node, _ in value.uses() for x in node.outputs)
        return (x for x in outputs if any(same_dim(d, size) for d in view.shapes.dims(x) or ()))

    for value in islice(reachable_from([start], outputs_of_size), _MAX_STEPS):
        yield from (node for node, _ in value.uses())


def _other_sizes(size: Dim, shapes: list[tuple[Dim, ...]]) -> list[Dim]:
    """Return the sizes, except 1, that are aligned with an axis of ``size``."""
    other_dims = []
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        column = [dims[-axis] for dims in shapes if axis <= len(dims)]
        if any(same_dim(dim, size) for dim in column):
            other_dims += [dim for dim in column if dim != 1 and not same_dim(dim, size)]
    return other_dims


def _input_with_size(size: Dim, view: View) -> tuple[ir.Value, int] | None:
    """Return an input and the axis that has this symbolic size, or None."""
    for value in view.model.graph.inputs:
        for axis, dim in enumerate(view.shapes.dims(value) or ()):
            if not isinstance(dim, int) and same_dim(dim, size):
                return value, axis
    return None
