"""split-packed: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import all_same
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, is_op

from ..common.cuts import cuts_of
from ..common.reshape_targets import with_axes
from .attention.axis_layout import REGROUPS, Atom, Layout, before
from .attention.merged_heads import constant_shape

_MOVES = ("Transpose", *REGROUPS)


@dataclass(frozen=True)
class PackedSite(Match):
    """What takes all that lies packed in the last axis of a tensor: Gathers, Slices, a Split.

    Attributes:
        packed: The tensor.
        parts: What is taken, with its place.
        apart: What takes the axes of a part apart, if its axes are not those that are wanted.
        perm: How they then change places.
        ones: Which axes of 1 are wanted beside them.
    """

    packed: ir.Value
    parts: tuple[tuple[ir.Value, int], ...]
    apart: tuple[int, ...] | None = None
    perm: tuple[int, ...] = ()
    ones: tuple[int, ...] = ()


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
        """The Split, or the first of the Gathers or Slices, of a tensor that was packed."""
        front = node.inputs[0]
        dims = view.shapes.dims(front)
        if front is None or not dims or view.opset(node) < 13:
            return None
        if is_op(node, "Split"):
            axis = attr_int(node, "axis", 0) % len(dims)
            parts = [(x, place) for place, x in enumerate(node.outputs)]
        else:
            users = {use.node: _taken(use.node, len(dims)) for use in front.uses()}
            own, ordered = users[node], [x for x in node.graph or () if x in users]
            axis = -1 if own is None else own[0]
            alike = [(x.outputs[0], users[x]) for x in ordered if x.op_type == node.op_type]
            parts = [(x, at[1]) for x, at in alike if at is not None and at[0] == axis]
            if front.is_graph_output() or len(parts) < len(users) or ordered[0] is not node:
                return None
        made = [view.shapes.dims(x) for x, _ in parts]
        if sorted(place for _, place in parts) != [*range(len(parts))] or dims[axis] != len(parts):
            return None
        if not is_op(node, "Gather") and any(x is None or x[axis] != 1 for x in made):
            return None
        return _packed(node, tuple(parts), axis, view)

    def rewrite(self, match: PackedSite, op: Builder) -> ir.Value:
        """A Split, and what lays out its parts."""
        dims, count = op.view.shapes.dims(match.packed) or (), len(match.parts)
        sizes = np.full(count, int(str(dims[-1])) // count, np.int64)
        split = op.make_all("Split", (True,) * count, match.packed, sizes, axis=len(dims) - 1)
        made = [_laid_out(split[place], match, op) for _, place in match.parts]
        for (old, _), new in zip(match.parts[1:], made[1:], strict=True):
            op.replace(old, new)
            if old.producer() is not match.node:
                op.drop(old)
        return made[0]


def _laid_out(part: ir.Value, match: PackedSite, op: Builder) -> ir.Value:
    if match.apart is None:
        return part
    part = op.Reshape(part, np.array(match.apart, np.int64))
    if list(match.perm) != sorted(match.perm):
        part = op.Transpose(part, perm=match.perm)
    return with_axes("Unsqueeze", part, match.ones, op)


def _taken(node: ir.Node, rank: int) -> tuple[int, int] | None:
    """Along which axis a Gather or a Slice takes one element, and which."""
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


def _packed(
    node: ir.Node, parts: tuple[tuple[ir.Value, int], ...], axis: int, view: View
) -> PackedSite | None:
    """Where the axis of the parts lay before it was moved, if it leads the last one there."""
    front, out = node.inputs[0], view.shapes.dims(node.outputs[0])
    own = tuple(() if x == 1 else (Atom("batch", x),) for x in view.shapes.dims(front) or ())
    layout, value = Layout(own, tuple(x for y in own for x in y)), front
    while value is not None and is_op(maker := value.producer(), *_MOVES):
        found = before(maker, layout, view)
        if found is None:
            break
        layout, value = found, maker.inputs[0]
    dims, lead = view.shapes.dims(value), layout.axes[-1] if layout.axes else ()
    if value is None or value is front or not dims or out is None:
        return None
    if len(lead) < 2 or (lead[0],) != own[axis] or not isinstance(dims[-1], int):
        return None
    sizes = [*dims[:-1], dims[-1] // len(parts)]
    flat = [atom for each in (*layout.axes[:-1], lead[1:]) for atom in each]
    wanted = [atom for i, each in enumerate(own) for atom in each if i != axis]
    if flat == wanted and all_same(sizes, out):
        return PackedSite(node, value, parts)
    apart = constant_shape(sizes, [x.size for x in flat], view)
    if apart is None or {*flat} != {*wanted}:
        return None
    ones = tuple(i for i, dim in enumerate(out) if dim == 1)
    return PackedSite(node, value, parts, apart, tuple(map(flat.index, wanted)), ones)
