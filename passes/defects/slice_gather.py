"""slice-gather: the manual is the docstring of the class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.dims import static_dims
from graphfix.graph.nodes import is_op, use_count
from graphfix.ops.slices import cuts_of_slice, python_slice
from graphfix.providers.directml.operator_facts import COMPUTES_IN_PLACE

# The indices of a Gather are stored in the file: at most 32 kB of them.
_MAX_INDICES = 4096


@dataclass(frozen=True)
class PartSite(Match):
    """A Slice that takes adjacent elements.

    Attributes:
        data: The tensor that is sliced.
        axis: The axis.
        start: The first entry that is taken.
        end: The entry behind the last one.
    """

    data: ir.Value
    axis: int
    start: int
    end: int


@dataclass(frozen=True)
class SliceGather(NodePass[PartSite]):
    """Replaces a Slice of adjacent rows that DirectML would overwrite with a Gather.

    Looked at are Slices of fixed sizes along the first axis that is not 1, with a step of 1.

    Why:
        Run on onnxruntime-directml 1.24.4: where all sizes are fixed, so that DirectML compiles
        the graph, what is sliced is computed in it and read by nothing else, and the part is read
        by one operator only, which goes by elements and makes as many of the same type, no session
        can be made: 80070057 out of DmlGraphFusionHelper.cpp. So it is of float32, float16, int64
        and bool, at any start and length, with Reshapes between, behind Add, Mul, MatMul, Conv,
        Softmax and Transpose, and before 38 operators (Relu, Tanh, Erf, Clip, Pow, Add and so on).
        It is loaded with rows of two batches, a second reader of either tensor, another axis or
        step, a size that is open, and before MatMul, Softmax, LayerNormalization, Transpose,
        Concat, Where and Cast. That the part is computed on in place is suspected. A Gather of the
        same rows is loaded, and is one kernel, as the Slice is.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        trimmed (float[1, 6, 2] x) => (float[1, 4, 2] y)
        <int64[1] start = {0}, int64[1] end = {4}, int64[1] axis = {1}>
        {
            twice = Add (x, x)
            part = Slice (twice, start, end, axis)
            y = Tanh (part)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        trimmed (float[1, 6, 2] x) => (float[1, 4, 2] y)
        <int64[4] rows = {0, 1, 2, 3}>
        {
            twice = Add (x, x)
            part = Gather <axis = 1> (twice, rows)
            y = Tanh (part)
        }

    Left alone:
        More indices than are written into a model, "a Gather would need 8,000 indices":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        cut (float[1, 9000] x) => (float[1, 8000] y)
        <int64[1] s = {0}, int64[1] e = {8000}, int64[1] a = {1}>
        {
            z = Neg (x)
            q = Slice (z, s, e, a)
            y = Relu (q)
        }

    Safety:
        Exact: the same elements. Nothing is done with more than 4096 of them along the axis, since
        the file then holds as many numbers; that is said.
    """

    anchors = ("Slice",)

    def match(self, node: ir.Node, view: View) -> PartSite | Skip | None:
        """Return the site if a Slice takes part of a buffer between two operators."""
        data, cut = node.inputs[0], _first_axis_cut(node, view)
        if data is None or cut is None or node.graph is not view.model.graph:
            return None
        if not _is_computed_for_one_reader(data) or not _has_elementwise_reader(node, view):
            return None
        axis, start, end = cut
        if end - start > _MAX_INDICES:
            return Skip(
                node,
                f"DirectML makes no session of it; a Gather would need {end - start:,} indices: "
                "let something else read the Slice as well, as an output of the model does",
            )
        return PartSite(node, data, axis, start, end)

    def message(self, site: Match) -> str:
        """Describe what DirectML does with the Slice."""
        return (
            "a part of a tensor that nothing else reads is computed on element by element: "
            "DirectML makes no session of that"
        )

    def rewrite(self, match: PartSite, op: Builder) -> ir.Value:
        """Build a Gather of the same rows."""
        rows = np.arange(match.start, match.end, dtype=np.int64)
        return op.Gather(match.data, rows, axis=match.axis)


def _first_axis_cut(node: ir.Node, view: View) -> tuple[int, int, int] | None:
    """Return the axis, start and end of a Slice of adjacent rows of the first axis that is not 1.

    Returns:
        None for any other Slice, and where a size is symbolic or 0.
    """
    in_dims, out_dims = (static_dims(view.shapes.dims(x[0])) for x in (node.inputs, node.outputs))
    if not in_dims or not out_dims or 0 in (*in_dims, *out_dims):
        return None
    cut_axes = [i for i, (a, b) in enumerate(zip(in_dims, out_dims, strict=True)) if a != b]
    if len(cut_axes) != 1 or any(dim != 1 for dim in in_dims[: cut_axes[0]]):
        return None

    def read(value: ir.Value) -> Sequence[int] | None:
        return ints_of(value) or static_dims(view.shapes.known_elements(value))

    (axis,) = cut_axes
    cut = (cuts_of_slice(node, len(in_dims), read) or {}).get(axis)
    if cut is None or cut.step != 1:
        return None
    start, end, _ = python_slice(cut, in_dims[axis]).indices(in_dims[axis])
    return axis, start, end


def _is_computed_for_one_reader(value: ir.Value | None) -> bool:
    """Return whether a node computes ``value`` for this reader alone, except views between."""
    while value is not None and use_count(value) == 1 and not value.is_graph_output():
        node = value.producer()
        if node is None or is_op(node, "Constant"):
            return False
        if node not in ops.VIEWS:
            return True
        value = node.inputs[0]
    return False


def _has_elementwise_reader(node: ir.Node, view: View) -> bool:
    """Return whether the only reader, behind views, is elementwise and keeps the size."""
    value = node.outputs[0]
    size = _count_elements(value, view)
    while len(uses := tuple(value.uses())) == 1 and not value.is_graph_output():
        user = uses[0].node
        if user.graph is not node.graph:
            return False
        if user in COMPUTES_IN_PLACE:
            return size is not None and _count_elements(user.outputs[0], view) == size
        if user not in ops.VIEWS or uses[0].idx != 0:
            return False
        value = user.outputs[0]
    return False


def _count_elements(value: ir.Value, view: View) -> int | None:
    """Return the number of elements, or None if a dim is unknown."""
    sizes = static_dims(view.shapes.dims(value))
    return None if sizes is None else math.prod(sizes)
