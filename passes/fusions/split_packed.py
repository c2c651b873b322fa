"""split-packed: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, is_op

from ..common.cuts import cuts_of
from ..common.reshape_targets import with_axes
from .attention.axis_layout import REGROUPS, Atom, Layout, layout_before
from .attention.merged_heads import constant_shape

_MOVES = ("Transpose", *REGROUPS)


@dataclass(frozen=True)
class PackedSite(Match):
    """The Gathers, Slices or Split that take all parts packed in the last axis of a tensor.

    Attributes:
        packed: The tensor.
        parts: The tensors that are taken, each with its place.
        part_shape: The target of a Reshape of each part, if its axes differ from those taken.
        perm: The permutation behind that Reshape.
        unit_axes: The axes of 1 that are added behind it.
    """

    packed: ir.Value
    parts: tuple[tuple[ir.Value, int], ...]
    part_shape: tuple[int, ...] | None = None
    perm: tuple[int, ...] = ()
    unit_axes: tuple[int, ...] = ()


@dataclass(frozen=True)
class SplitPacked(NodePass[PackedSite]):
    """Splits queries, keys and values that are packed in one axis, instead of gathering them.

    torch's MultiheadAttention and the attention of ViT, timm's and others, make all three by one
    product, move the axis of the three to the front, and take each by a Gather.

    Why:
        The Unsqueeze, Transpose, Squeeze and three Gathers of torch's MultiheadAttention, over all
        three of them, are one Split; `fuse-projections` then takes the product, the Split and the
        attention as one kernel. By `graphfix plan`, of a torch.nn.TransformerEncoder of three
        layers with a mask 78 of 135 kernels were left on the device, and 23 are with this pass,
        `turn-back` and what else `gemm-matmul` takes since. They agree with the CPU on
        onnxruntime-directml 1.24.4 (9.4e-5 where values of size 30 are fed).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        parts (float[T, B, 12] x) => (float[T, B, 4] q, float[T, B, 4] k, float[T, B, 4] v)
        <int64[4] apart = {0, 0, 3, 4}, int64 first = {0}, int64 second = {1}, int64 third = {2}>
        {
            each = Reshape (x, apart)
            front = Transpose <perm = [2, 0, 1, 3]> (each)
            q = Gather <axis = 0> (front, first)
            k = Gather <axis = 0> (front, second)
            v = Gather <axis = 0> (front, third)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        parts (float[T, B, 12] x) => (float[T, B, 4] q, float[T, B, 4] k, float[T, B, 4] v)
        <int64[3] sizes = {4, 4, 4}>
        {
            q, k, v = Split <axis = 2> (x, sizes)
        }

    Safety:
        Exact: numbers are moved, and each comes to where it was. Where the axes of a part lie is
        followed through Reshapes and Transposes by symbolic shapes. Left as it is: what is packed
        anywhere but at the start of the last axis, or read by something else than such Gathers.
    """

    sentence = "parts of one tensor, which are moved to the front and gathered one by one"
    anchors = ("Gather", "Slice", "Split")

    def match(self, node: ir.Node, view: View) -> PackedSite | None:
        """Return the site at the Split, or the first Gather or Slice, of a packed tensor."""
        front = node.inputs[0]
        dims = view.shapes.dims(front)
        if front is None or not dims or view.opset_of_node(node) < 13:
            return None
        if is_op(node, "Split"):
            axis = attr_int(node, "axis", 0) % len(dims)
            parts = [(x, place) for place, x in enumerate(node.outputs)]
        else:
            elements = {use.node: _taken_element(use.node, len(dims)) for use in front.uses()}
            own_element, ordered = elements[node], [x for x in node.graph or () if x in elements]
            axis = -1 if own_element is None else own_element[0]
            alike = [(x.outputs[0], elements[x]) for x in ordered if x.op_type == node.op_type]
            parts = [(x, at[1]) for x, at in alike if at is not None and at[0] == axis]
            if front.is_graph_output() or len(parts) < len(elements) or ordered[0] is not node:
                return None
        part_dims = [view.shapes.dims(x) for x, _ in parts]
        if sorted(place for _, place in parts) != [*range(len(parts))] or dims[axis] != len(parts):
            return None
        if not is_op(node, "Gather") and any(x is None or x[axis] != 1 for x in part_dims):
            return None
        return _match_packed(node, tuple(parts), axis, view)

    def rewrite(self, match: PackedSite, op: Builder) -> ir.Value:
        """Build a Split and the layout of its parts."""
        dims, count = op.view.shapes.dims(match.packed) or (), len(match.parts)
        sizes = np.full(count, int(str(dims[-1])) // count, np.int64)
        split = op.make_outputs("Split", (True,) * count, match.packed, sizes, axis=len(dims) - 1)
        new_parts = [_restore_layout(split[place], match, op) for _, place in match.parts]
        for (old, _), new in zip(match.parts[1:], new_parts[1:], strict=True):
            op.replace_value(old, new)
            if old.producer() is not match.node:
                op.remove_unread(old)
        return new_parts[0]


def _restore_layout(part: ir.Value, match: PackedSite, op: Builder) -> ir.Value:
    """Build a part with the axes that its readers expect."""
    if match.part_shape is None:
        return part
    part = op.Reshape(part, np.array(match.part_shape, np.int64))
    if list(match.perm) != sorted(match.perm):
        part = op.Transpose(part, perm=match.perm)
    return with_axes("Unsqueeze", part, match.unit_axes, op)


def _taken_element(node: ir.Node, rank: int) -> tuple[int, int] | None:
    """Return the axis along which a Gather or Slice takes one element, and which; or None."""
    if is_op(node, "Gather"):
        index = const_of(node.inputs[1])
        if index is None or index.shape != ():
            return None
        return attr_int(node, "axis", 0) % rank, int(index)
    cuts = cuts_of(node, rank) if is_op(node, "Slice") else None
    if cuts is None or len(cuts) != 1:
        return None
    ((axis, (start, end, step)),) = cuts.items()
    return (axis, start) if (end, step) == (start + 1, 1) else None


def _match_packed(
    node: ir.Node, parts: tuple[tuple[ir.Value, int], ...], axis: int, view: View
) -> PackedSite | None:
    """Return the site if the axis of the parts led the last one before it was moved."""
    front, out = node.inputs[0], view.shapes.dims(node.outputs[0])
    own = tuple(() if x == 1 else (Atom("batch", x),) for x in view.shapes.dims(front) or ())
    layout, value = Layout(own, tuple(x for y in own for x in y)), front
    while value is not None and is_op(maker := value.producer(), *_MOVES):
        source_layout = layout_before(maker, layout, view)
        if source_layout is None:
            break
        layout, value = source_layout, maker.inputs[0]
    dims, lead = view.shapes.dims(value), layout.axes[-1] if layout.axes else ()
    if value is None or value is front or not dims or out is None:
        return None
    if len(lead) < 2 or (lead[0],) != own[axis] or not isinstance(dims[-1], int):
        return None
    sizes = [*dims[:-1], dims[-1] // len(parts)]
    flat = [atom for each in (*layout.axes[:-1], lead[1:]) for atom in each]
    part_atoms = [atom for i, each in enumerate(own) for atom in each if i != axis]
    if flat == part_atoms and same_dims(sizes, out):
        return PackedSite(node, value, parts)
    part_shape = constant_shape(sizes, [x.size for x in flat], view)
    if part_shape is None or {*flat} != {*part_atoms}:
        return None
    unit_axes = tuple(i for i, dim in enumerate(out) if dim == 1)
    return PackedSite(node, value, parts, part_shape, tuple(map(flat.index, part_atoms)), unit_axes)
