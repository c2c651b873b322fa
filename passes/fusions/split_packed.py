"""split-packed: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op
from graphfix.ops.axes import axis_of
from graphfix.ops.slices import cuts_of_slice

from ..common.reshape_targets import with_axes
from .attention.axis_layout import Atom, Layout, layout_before
from .attention.merged_heads import constant_shape

Parts = tuple[tuple[ir.Value, int], ...]
"""Tensors, each with its place among the parts."""
Axes = tuple[tuple[Atom, ...], ...]

_MOVES = ops.VIEWS | ops.named("Transpose")


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
    parts: Parts
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

    Left alone:
        Parts that lie at the end of the last axis, feature by feature:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        inside (float[T, B, 12] x) => (float[T, B, 4] q, float[T, B, 4] k, float[T, B, 4] v)
        <int64[4] apart = {0, 0, 4, 3}, int64 first = {0}, int64 second = {1}, int64 third = {2}>
        {
            each = Reshape (x, apart)
            front = Transpose <perm = [3, 0, 1, 2]> (each)
            q = Gather <axis = 0> (front, first)
            k = Gather <axis = 0> (front, second)
            v = Gather <axis = 0> (front, third)
        }

        A part that nobody takes:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        some (float[T, B, 12] x) => (float[T, B, 4] q, float[T, B, 4] k)
        <int64[4] apart = {0, 0, 3, 4}, int64 first = {0}, int64 second = {1}>
        {
            each = Reshape (x, apart)
            front = Transpose <perm = [2, 0, 1, 3]> (each)
            q = Gather <axis = 0> (front, first)
            k = Gather <axis = 0> (front, second)
        }

        All parts together read by something else:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        whole (float[T, B, 12] x)
            => (float[T, B, 4] q, float[T, B, 4] k, float[T, B, 4] v, float[3, T, B, 4] all)
        <int64[4] apart = {0, 0, 3, 4}, int64 first = {0}, int64 second = {1}, int64 third = {2}>
        {
            each = Reshape (x, apart)
            front = Transpose <perm = [2, 0, 1, 3]> (each)
            all = Relu (front)
            q = Gather <axis = 0> (front, first)
            k = Gather <axis = 0> (front, second)
            v = Gather <axis = 0> (front, third)
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
        rank = len(dims)
        if is_op(node, "Split"):
            axis_and_parts = _parts_of_split(node, rank, view)
        else:
            axis_and_parts = _parts_of_readers(node, front, rank, view)
        if axis_and_parts is None:
            return None
        axis, parts = axis_and_parts
        if sorted(place for _, place in parts) != [*range(len(parts))] or dims[axis] != len(parts):
            return None
        part_dims = [view.shapes.dims(x) for x, _ in parts]
        if not is_op(node, "Gather") and any(x is None or x[axis] != 1 for x in part_dims):
            return None
        return _match_packed(node, parts, axis, view)

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


def _parts_of_split(node: ir.Node, rank: int, view: View) -> tuple[int, Parts] | None:
    """Return the axis of a Split, and its outputs with their places; None if it is not known."""
    axis = axis_of(node, rank, view.opset_of_node(node))
    return None if axis is None else (axis, tuple((x, i) for i, x in enumerate(node.outputs)))


def _parts_of_readers(
    node: ir.Node, front: ir.Value, rank: int, view: View
) -> tuple[int, Parts] | None:
    """Return the axis that all readers of a tensor take one element of, and what each takes.

    None if another reader is among them, or ``node`` is not the first.
    """
    elements = {use.node: _taken_element(use.node, rank, view) for use in front.uses()}
    own, ordered = elements[node], [x for x in node.graph or () if x in elements]
    if own is None or front.is_graph_output() or ordered[0] is not node:
        return None
    axis, _ = own
    alike = [(x.outputs[0], elements[x]) for x in ordered if x.op_type == node.op_type]
    parts = tuple((x, place[1]) for x, place in alike if place is not None and place[0] == axis)
    return (axis, parts) if len(parts) == len(elements) else None


def _taken_element(node: ir.Node, rank: int, view: View) -> tuple[int, int] | None:
    """Return the axis along which a Gather or Slice takes one element, and which; or None."""
    if is_op(node, "Gather"):
        index, axis = const_of(node.inputs[1]), axis_of(node, rank, view.opset_of_node(node))
        return None if index is None or index.shape != () or axis is None else (axis, int(index))
    cuts = cuts_of_slice(node, rank) if is_op(node, "Slice") else None
    if cuts is None or len(cuts) != 1:
        return None
    ((axis, (start, end, step)),) = cuts.items()
    return (axis, start) if (end, step) == (start + 1, 1) else None


def _match_packed(node: ir.Node, parts: Parts, axis: int, view: View) -> PackedSite | None:
    """Return the site if the axis of the parts led the last one before it was moved."""
    front, out = node.inputs[0], view.shapes.dims(node.outputs[0])
    own: Axes = tuple(() if x == 1 else (Atom("batch", x),) for x in view.shapes.dims(front) or ())
    packed = _packed_tensor(front, own, axis, view)
    if packed is None or out is None:
        return None
    value, width, axes = packed
    sizes = [*(view.shapes.dims(value) or ())[:-1], width // len(parts)]
    packed_atoms, part_atoms = _flat_atoms(axes), _flat_atoms((*own[:axis], *own[axis + 1 :]))
    if packed_atoms == part_atoms and same_dims(sizes, out):
        return PackedSite(node, value, parts)
    part_shape = constant_shape(sizes, [x.size for x in packed_atoms], view)
    if part_shape is None or {*packed_atoms} != {*part_atoms}:
        return None
    perm = tuple(map(packed_atoms.index, part_atoms))
    unit_axes = tuple(i for i, dim in enumerate(out) if dim == 1)
    return PackedSite(node, value, parts, part_shape, perm, unit_axes)


def _packed_tensor(
    front: ir.Value | None, own: Axes, axis: int, view: View
) -> tuple[ir.Value, int, Axes] | None:
    """Return the tensor whose last axis the parts lead, its width, and the axes of one part.

    Args:
        front: The tensor that the parts are taken from.
        own: The atoms of its axes.
        axis: The axis of the parts.
        view: The model around it.
    """
    value, axes = _axes_before_moves(front, own, view)
    dims, lead = view.shapes.dims(value), axes[-1] if axes else ()
    if value is None or value is front or not dims or not isinstance(dims[-1], int):
        return None
    if len(lead) < 2 or (lead[0],) != own[axis]:
        return None
    return value, dims[-1], (*axes[:-1], lead[1:])


def _flat_atoms(axes: Axes) -> list[Atom]:
    """Return the atoms of axes in their order."""
    return [atom for axis in axes for atom in axis]


def _axes_before_moves(
    value: ir.Value | None, axes: Axes, view: View
) -> tuple[ir.Value | None, Axes]:
    """Return the tensor before Reshapes and Transposes, and the atoms of each of its axes."""
    layout = Layout(axes, tuple(_flat_atoms(axes)))
    while value is not None and _MOVES.has(maker := value.producer()):
        source_layout = layout_before(maker, layout, view)
        if source_layout is None:
            break
        layout, value = source_layout, maker.inputs[0]
    return value, layout.axes
