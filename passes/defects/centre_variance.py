"""centre-variance: the manual is the docstring of the class."""

from dataclasses import dataclass
from itertools import permutations
from math import prod

import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.ops.operands import read_ints

from ..common.fusible import FLOATS
from ..common.norm_site import square_of
from ..common.polynomial import number_of
from ..common.reshape_targets import with_axes


@dataclass(frozen=True)
class VarianceSite(Match):
    """A variance that is the mean of squares less the square of the mean.

    Attributes:
        mean: The mean of the data.
        reduce: The ReduceMean that computes it, or a ReduceSum.
    """

    mean: ir.Value
    reduce: ir.Node


@dataclass(frozen=True)
class CentreVariance(NodePass[VarianceSite]):
    """Computes a variance from the differences from the mean, not from the mean of all squares.

    Flax (``use_fast_variance``) and the function bodies of ONNX's own LayerNormalization and
    MeanVarianceNormalization write a variance as the mean of the squares less the square of the
    mean. Where the mean is large beside the spread, these two are nearly equal, and what is left of
    them is mostly rounding.

    Why:
        DirectML sums in another order than the CPU, so it rounds otherwise. Run on
        onnxruntime-directml 1.24.4: for a file of 14 bytes, the scores of magika 1.0.3 differ by
        1.5e-3 from those on the CPU, and by 1.8e-6 after the pass. The pass moves those on the CPU
        by 1.5e-3: they were as far off.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        moments (float[B, T, 8] x) => (float[B, T, 1] y)
        {
            mean = ReduceMean <axes = [-1], keepdims = 1> (x)
            squares = Mul (x, x)
            square = ReduceMean <axes = [-1], keepdims = 1> (squares)
            taken = Mul (mean, mean)
            y = Sub (square, taken)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        moments (float[B, T, 8] x) => (float[B, T, 1] y)
        {
            mean = ReduceMean <axes = [-1], keepdims = 1> (x)
            apart = Sub (x, mean)
            again = Mul (apart, apart)
            y = ReduceMean <axes = [-1], keepdims = 1> (again)
        }

    Left alone:
        Two means over different axes:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        apart (float[N, 5] x) => (float[N, 5] y)
        {
            mean = ReduceMean <axes = [-1]> (x)
            squares = Mul (x, x)
            mean_of_squares = ReduceMean <axes = [0]> (squares)
            squared_mean = Mul (mean, mean)
            y = Sub (mean_of_squares, squared_mean)
        }

    Safety:
        The same in exact arithmetic. Where the original is mostly rounding, the numbers move:
        verification says by how much, and leaves the place as it is where that is more than
        ``--atol`` allows.
    """

    sentence = "a variance is the mean of the squares less the square of the mean: mostly rounding"
    safety = "conditional"
    anchors = ("Sub",)

    def match(self, node: ir.Node, view: View) -> VarianceSite | Skip | None:
        """Return the site if a variance is a mean of squares less a squared mean."""
        squares, centre = _mean_reduction_of(node.inputs[0], view), square_of(node.inputs[1])
        mean = _mean_reduction_of(centre[0], view) if centre else None
        square = square_of(squares.inputs[0]) if squares else None
        if squares is None or centre is None or mean is None or square is None:
            return None
        keepdims = {attr_int(x, "keepdims", 1) for x in (mean, squares)}
        axes, squares_axes = (_axes_of(x) for x in (mean, squares))
        if square[0] is not mean.inputs[0] or axes != squares_axes or len(keepdims) > 1:
            return None
        floats = view.shapes.dtype(square[0]) in FLOATS
        return VarianceSite(node, centre[0], mean) if axes and floats else None

    def rewrite(self, match: VarianceSite, op: Builder) -> ir.Value:
        """Build the mean of the squared differences from the mean."""
        reduce, mean, last = match.reduce, match.mean, match.mean.producer()
        if not attr_int(reduce, "keepdims", 1):
            mean = with_axes("Unsqueeze", mean, _axes_of(reduce), op)
        centred = op.Sub(reduce.inputs[0], mean)
        variance = op.clone_node(reduce, op.Mul(centred, centred), *reduce.inputs[1:])
        if last is None or last is reduce:
            return variance
        return op.clone_node(
            last, *(variance if x is reduce.outputs[0] else x for x in last.inputs)
        )


def _axes_of(reduce: ir.Node) -> tuple[int, ...]:
    """Return the axes of a reduction as they are written; () if they are not given or not known."""
    return read_ints(reduce, 1, "axes") or ()


def _mean_reduction_of(value: ir.Value | None, view: View) -> ir.Node | None:
    """Return the ReduceMean, or ReduceSum scaled by 1 / n, that makes ``value``; or None."""
    node = producer_of(value)
    if is_op(node, "ReduceMean"):
        return node
    for total, number in permutations(node.inputs) if is_op(node, "Mul") else ():
        reduce, share = producer_of(total), number_of(number, 0)
        if is_op(reduce, "ReduceSum") and share is not None:
            dims, axes = view.shapes.dims(reduce.inputs[0]) or (), _axes_of(reduce)
            sizes = [x for x in (dims[a] for a in axes) if isinstance(x, int)] if dims else []
            is_static = sizes and len(sizes) == len(axes)
            return reduce if is_static and abs(prod(sizes) * share - 1) < 1e-6 else None
    return None
