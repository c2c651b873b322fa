"""mask-lookup: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.mask_lookups import identity_lookup, overwriting_updates
from graphfix.facts.shapes import Dim, same_dim, same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op, producer_of
from graphfix.lengths.dim_nodes import build_axis_size

from ..common.reshape_targets import with_axes

Dims = tuple[Dim, ...]


@dataclass(frozen=True)
class LookupSite(Match):
    """A lookup that returns its table unchanged.

    Attributes:
        table: The table.
        cuts: The axes of the table that are looked up only from 0 on: the axis, a tensor that has
            the size of the lookup, and the axis of that tensor.
        axes: The dims of 1 that the result has beside those of the table.
    """

    table: ir.Value
    cuts: tuple[tuple[int, ir.Value, int], ...]
    axes: tuple[int, ...]


@dataclass(frozen=True)
class MaskLookup(NodePass[LookupSite]):
    """Removes gathers that return a mask unchanged, and scatters that write all of it.

    transformers 5 writes a padding mask as ``mask[batch, position]`` with two ranges for indices.
    The TorchScript exporter makes of that one Gather from the flattened mask at ``b * T + t``,
    dynamo a GatherND with indices [B, 1, 1, T, 2]; where B is 1, nothing counts it. transformers
    4.41 writes the padding into the causal mask of a Llama as ``mask[..., :length] = ...``: a
    ScatterND of all there is.

    Why:
        The indices are two Ranges, several Unsqueezes, a Mul, an Add and Reshapes, or Expands and a
        Concat, all recompiled on DirectML at another length, for one Unsqueeze. And they are
        sizes used as numbers, behind which it cannot be seen what is padding: ilens-mask refuses
        such a model. Counted on the zoo: 7 of 33 TorchScript exports have one.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        look (int64[B, T] mask) => (int64[B, 1, 1, T] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[3] ones = {1, 2, 3},
         int64[3] front = {0, 1, 2}, int64[1] all = {-1}>
        {
            flat = Reshape (mask, all)
            rows = Shape <start = 0, end = 1> (mask)
            cols = Shape <start = 1, end = 2> (mask)
            b = Squeeze (rows)
            t = Squeeze (cols)
            at_b = Range (zero, b, one)
            at_t = Range (zero, t, one)
            per_b = Unsqueeze (at_b, ones)
            per_t = Unsqueeze (at_t, front)
            begin = Mul (per_b, cols)
            place = Add (begin, per_t)
            y = Gather (flat, place)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        look (int64[B, T] mask) => (int64[B, 1, 1, T] y)
        <int64[2] middle = {1, 2}>
        {
            y = Unsqueeze (mask, middle)
        }

    Left alone:
        Where "the axes of the mask are looked up in another order":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        turned (int64[B, T] mask) => (int64[T, 1, 1, B] y)
        <int64 zero = {0}, int64 one = {1}, int64[3] ones = {1, 2, 3}, int64[3] front = {0, 1, 2},
         int64[1] all = {-1}>
        {
            flat = Reshape (mask, all)
            rows = Shape <start = 0, end = 1> (mask)
            cols = Shape <start = 1, end = 2> (mask)
            b = Squeeze (rows)
            t = Squeeze (cols)
            at_b = Range (zero, b, one)
            at_t = Range (zero, t, one)
            per_b = Unsqueeze (at_b, front)
            per_t = Unsqueeze (at_t, ones)
            begin = Mul (per_b, cols)
            place = Add (begin, per_t)
            y = Gather (flat, place)
        }

        Where "the mask is looked up several times over":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        heads (int64[B, T] mask) => (int64[B, 2, 1, T] y)
        <int64 zero = {0}, int64 one = {1}, int64[3] ones = {1, 2, 3}, int64[3] front = {0, 1, 2},
         int64[1] all = {-1}, int64[4] two = {1, 2, 1, 1}>
        {
            flat = Reshape (mask, all)
            rows = Shape <start = 0, end = 1> (mask)
            cols = Shape <start = 1, end = 2> (mask)
            b = Squeeze (rows)
            t = Squeeze (cols)
            at_b = Range (zero, b, one)
            at_t = Range (zero, t, one)
            per_b = Unsqueeze (at_b, ones)
            per_t = Unsqueeze (at_t, front)
            begin = Mul (per_b, cols)
            each = Add (begin, per_t)
            place = Expand (each, two)
            y = Gather (flat, place)
        }

        Every other element:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        some (int64[B, T] mask) => (int64[B, 1, 1, P] y)
        <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[3] ones = {1, 2, 3},
         int64[3] front = {0, 1, 2}, int64[1] all = {-1}>
        {
            flat = Reshape (mask, all)
            rows = Shape <start = 0, end = 1> (mask)
            cols = Shape <start = 1, end = 2> (mask)
            b = Squeeze (rows)
            t = Squeeze (cols)
            at_b = Range (zero, b, one)
            at_t = Range (zero, t, two)
            per_b = Unsqueeze (at_b, ones)
            per_t = Unsqueeze (at_t, front)
            begin = Mul (per_b, cols)
            place = Add (begin, per_t)
            y = Gather (flat, place)
        }

    Safety:
        Exact: proved from the symbolic shapes of table and indices, that each index counts the axis
        it is for, from 0 to the end. Reshapes to one dim and back, after a lookup, go with it.
        Where the mask has a dim of another name than what is counted, such as a batch of its own,
        it is cut to that size with a Slice, if an input has that size; a mask that is shorter,
        where the lookup fails, stays as short.
    """

    anchors = ("Gather", "GatherND", "ScatterND", "Reshape")

    def match(self, node: ir.Node, view: View) -> LookupSite | Skip | None:
        """Return the site if a lookup returns the mask, or a write covers all of it."""
        if (
            written_value := overwriting_updates(node, view.shapes)
        ) is not None and not view.in_function(node):
            return LookupSite(node, written_value, (), ())
        lookup = producer_of(node.outputs[0], "Reshape")  # the node, or what it is a Reshape of
        if not is_op(lookup, "Gather", "GatherND") or view.in_function(node):
            return None
        lookup_parts = identity_lookup(lookup, view.shapes)
        if lookup_parts is None:
            return None
        table, table_axes, index = lookup_parts
        if _end_of_lookup(lookup, index, view) is not node:
            return None
        shape = view.shapes.dims(node.outputs[0]) or index
        axes = tuple(axis for axis in range(len(shape)) if axis not in table_axes)
        if any(shape[axis] != 1 for axis in axes):
            return Skip(node, "the mask is looked up several times over, for more axes than it has")
        if list(table_axes) != sorted(table_axes):
            return Skip(node, "the axes of the mask are looked up in another order")
        cuts = _find_cuts(table, [shape[axis] for axis in table_axes], view)
        return Skip(node, cuts) if isinstance(cuts, str) else LookupSite(node, table, cuts, axes)

    def message(self, site: Match) -> str:
        """Describe the lookup or the write."""
        if is_op(site.node, "ScatterND"):
            return "ScatterND writes every element of a mask in its own place"
        return f"{site.node.op_type} looks every element of a mask up in its own place"

    def rewrite(self, match: LookupSite, op: Builder) -> ir.Value:
        """Build the mask, cut to the size of the lookup, with dims of 1."""
        value = match.table
        if match.cuts:
            axes = np.array([axis for axis, *_ in match.cuts], np.int64)
            sizes = [build_axis_size(source, axis, op) for _, source, axis in match.cuts]
            ends = sizes[0] if len(sizes) == 1 else op.Concat(*sizes, axis=0)
            value = op.Slice(value, np.zeros(len(axes), np.int64), ends, axes)
            shapes = op.view.shapes  # inference knows only that there are no more than these
            dims = dict(enumerate(shapes.dims(match.table) or ()))
            dims |= {axis: source.shape[i] for axis, source, i in match.cuts if source.shape}
            shapes.set_dims_and_dtype(value, tuple(dims.values()), shapes.dtype(match.table))
        return with_axes("Unsqueeze", value, match.axes, op)


def _find_cuts(
    table: ir.Value, sizes: Sequence[Dim], view: View
) -> tuple[tuple[int, ir.Value, int], ...] | str:
    """Return the axes that the lookup cuts, with an input of that size; or why there are none."""
    cuts = []
    for axis, (dim, size) in enumerate(zip(view.shapes.dims(table) or (), sizes, strict=True)):
        if same_dim(dim, size):
            continue
        inputs = [x for x in view.model.graph.inputs if not x.is_initializer()]
        places = [(x, i) for x in inputs for i, d in enumerate(x.shape or ()) if same_dim(d, size)]
        if not places:
            return f"the mask has {dim} in axis {axis}, and {size} of these are looked up"
        cuts.append((axis, *places[0]))
    return tuple(cuts)


def _end_of_lookup(lookup: ir.Node, index: Dims, view: View) -> ir.Node:
    """Return the Reshape that restores the index shape of a lookup, or the lookup."""
    end = node = lookup
    while len(uses := tuple(node.outputs[0].uses())) == 1 and not node.outputs[0].is_graph_output():
        node = uses[0].node
        if not is_op(node, "Reshape") or uses[0].idx != 0:
            break
        if same_dims(view.shapes.dims(node.outputs[0]), index):
            end = node
    return end
