"""scatter-mask: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.affine import index_parts, index_strides
from graphfix.facts.shapes import same_dim
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.lengths.dim_nodes import build_axis_size, build_positions

from ..common.fold_view import FoldView
from ..common.uniform import UniformTensors


@dataclass(frozen=True)
class ScatterSite(Match):
    """A sum from the end of zeros with a one in each row.

    Attributes:
        zeros: The zeros, [B, T].
        place: The position of the one in each row, [B, 1]; below 0 it counts from the end.
    """

    zeros: ir.Value
    place: ir.Value


@dataclass(frozen=True)
class ScatterMask(NodePass[ScatterSite]):
    """Replaces a mask that is summed up from a one at the last frame with a comparison.

    wav2vec2, HuBERT, WavLM and their like write a one at the last frame of each row and sum from
    the end: ones up to it, zeros behind. That is where a place is not above that of the last.

    Why:
        ScatterND of opset 18, as torch's dynamo exporter writes it, has no kernel on DirectML: by
        `graphfix plan` three tensors go to the CPU and one comes back in each run, and the queue of
        the GPU is waited for each time. Where it has one (to opset 17) there are fewer
        kernels: of a HuBERT by TorchScript 54 are left on the device where 58 were. Run on
        onnxruntime-directml 1.24.4, three HuBERTs, UniSpeech and wav2vec2 agree with the CPU.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        mask (int64[B, 1] last, float[B, T] x) => (int64[B, T] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] column = {1}, int64 axis = {1}>
        {
            shape = Shape (x)
            b = Gather (shape, zero)
            rows = Range (zero, b, one)
            row = Unsqueeze (rows, column)
            at = Concat <axis = 1> (row, last)
            zeros = ConstantOfShape <value = int64[1] {0}> (shape)
            many = Shape <start = 0, end = 1> (x)
            ones = Expand (one, many)
            marked = ScatterND (zeros, at, ones)
            y = CumSum <reverse = 1> (marked, axis)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        mask (int64[B, 1] last, float[B, T] x) => (int64[B, T] y)
        <int64 zero = {0}, int64 first = {0}, int64[1] second = {1}>
        {
            shape = Shape (x)
            t = Gather <axis = 0> (shape, second)
            behind = Less (last, zero)
            wrapped = Add (last, t)
            end = Where (behind, wrapped, last)
            each = ConstantOfShape <value = int64[1] {1}> (t)
            places = CumSum <exclusive = 1> (each, first)
            inside = LessOrEqual (places, end)
            y = Cast <to = 7> (inside)
        }

    Left alone:
        A sum from the front, which is a mask of what comes behind:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        front (int64[B, 1] last, float[B, T] x) => (int64[B, T] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] column = {1}, int64 axis = {1}>
        {
            shape = Shape (x)
            b = Gather (shape, zero)
            rows = Range (zero, b, one)
            row = Unsqueeze (rows, column)
            at = Concat <axis = 1> (row, last)
            zeros = ConstantOfShape <value = int64[1] {0}> (shape)
            many = Shape <start = 0, end = 1> (x)
            ones = Expand (one, many)
            marked = ScatterND (zeros, at, ones)
            y = CumSum (marked, axis)
        }

        Twos in place of ones:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        twos (int64[B, 1] last, float[B, T] x) => (int64[B, T] y)
        <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] column = {1},
         int64 axis = {1}>
        {
            shape = Shape (x)
            b = Gather (shape, zero)
            rows = Range (zero, b, one)
            row = Unsqueeze (rows, column)
            at = Concat <axis = 1> (row, last)
            zeros = ConstantOfShape <value = int64[1] {0}> (shape)
            many = Shape <start = 0, end = 1> (x)
            marks = Expand (two, many)
            marked = ScatterND (zeros, at, marks)
            y = CumSum <reverse = 1> (marked, axis)
        }

    Safety:
        Exact: the same zeros and ones. The zeros, the ones, the rows that count from 0 and as many
        of them as there are rows of zeros are proved; anything else stays as it is. A place that is
        outside of the row, which fails, gives a row of ones or of zeros.
    """

    sentence = "a mask is a one at the last frame, summed from the end; it could be compared"
    anchors = ("CumSum",)

    def match(self, node: ir.Node, view: View) -> ScatterSite | None:
        """Return the site if a mask is one 1 a row, summed from the end."""
        if not attr_int(node, "reverse", 0) or attr_int(node, "exclusive", 0):
            return None
        scatter = producer_of(node.inputs[0])
        if not is_op(scatter, "ScatterND") or "reduction" in scatter.attributes:
            return None
        zeros, indices, updates = scatter.inputs
        if zeros is None or view.shapes.rank(zeros) != 2:
            return None
        if ints_of(node.inputs[1]) not in ((1,), (-1,)):
            return None
        place = _place_in_each_row(indices, zeros, view)
        uniform = UniformTensors(FoldView(view))
        is_one_in_zeros = (uniform.uniform_number(zeros), uniform.uniform_number(updates)) == (0, 1)
        return ScatterSite(node, zeros, place) if place is not None and is_one_in_zeros else None

    def rewrite(self, match: ScatterSite, op: Builder) -> ir.Value:
        """Build a mask of ones up to the position of each row."""
        maker, shapes = match.zeros.producer(), op.view.shapes
        shape = maker.inputs[-1] if is_op(maker, "ConstantOfShape", "Expand") else None
        shape_values, dims = shapes.known_elements(shape) or (), shapes.dims(match.zeros) or ()
        if shape is not None and len(shape_values) == 2 and same_dim(shape_values[1], dims[1]):
            size = op.Gather(shape, np.array([1], np.int64), axis=0)  # the zeros need not be made
        else:
            size = build_axis_size(match.zeros, 1, op)
        place, zero = match.place, np.array(0, np.int64)
        end = op.Where(op.Less(place, zero), op.Add(place, size), place)
        places = build_positions(size, op)
        if op.view.opset_of_node(match.node) < 16:
            # ONNX Runtime infers no shape of LessOrEqual there.
            inside = op.Not(op.Greater(places, end))
        else:
            inside = op.LessOrEqual(places, end)
        return op.Cast(inside, to=int(op.view.shapes.dtype(match.zeros) or ir.DataType.INT64))


def _place_in_each_row(indices: ir.Value | None, zeros: ir.Value, view: View) -> ir.Value | None:
    """Return the position [B, 1] that the indices of a ScatterND give in each row, in order."""
    places = index_parts(indices, view.shapes) or []
    if len(places) != 2:
        return None
    row, place = places
    dims, rows = view.shapes.dims(zeros), view.shapes.dims(row)
    if not dims or not rows or not same_dim(rows[0], dims[0]):
        return None
    if index_strides(row, view.shapes) != {-2: 1}:  # it counts the rows from 0
        return None
    is_int64 = view.shapes.dtype(place) == ir.DataType.INT64
    return place if is_int64 and view.shapes.rank(place) == 2 else None
