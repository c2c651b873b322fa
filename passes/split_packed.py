"""split-packed: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.model.shapes import Dim, all_same
from graphfix.model.values import attr_int, const_of, is_op
from graphfix.model.view import View

from ._attention.axis_layout import REGROUPS, Atom, Layout, before
from ._attention.merged_heads import constant_shape

_MOVES = ("Transpose", *REGROUPS)


@dataclass(frozen=True)
class PackedSite(Match):
    """Gathers of all that lies packed in the last axis of a tensor, at the first of them.

    Attributes:
        packed: The tensor.
        gathers: Each Gather, with the place of what it takes.
        count: How many parts the tensor holds.
        apart: What takes the axes of a part apart, before they change places.
        perm: How they change places; None if they do not.
        shape: What makes of them the axes that a Gather leaves; None if they are those.
    """

    packed: ir.Value
    gathers: tuple[tuple[ir.Node, int], ...]
    count: int
    apart: tuple[int, ...] | None
    perm: tuple[int, ...] | None
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class SplitPacked(NodePass[PackedSite]):
    """Splits queries, keys and values that are packed in one axis, instead of gathering them.

    torch's MultiheadAttention and the attention of ViT, timm's and others, make all three by one
    product, move the axis of the three to the front, and take each by a Gather.

    Why:
        The Unsqueeze, Transpose, Squeeze and three Gathers of torch's MultiheadAttention, over all
        three of them, are one Split; `fuse-projections` then takes the product, the Split and the
        attention as one kernel. By `graphfix plan`, of a torch.nn.TransformerEncoder of three
        layers 76 kernels were left on the device, and with this pass, `turn-back` and what
        `gemm-matmul` takes now 29 are.

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

    name: ClassVar[str] = "split-packed"
    anchors: ClassVar[tuple[str, ...]] = ("Gather",)

    def match(self, node: ir.Node, view: View) -> PackedSite | None:
        """The first of the Gathers of a tensor that was packed."""
        front = node.inputs[0]
        axis = attr_int(node, "axis", 0)
        dims = view.shapes.dims(front)
        if front is None or not dims or front.is_graph_output() or view.opset(node) < 13:
            return None
        gathers = tuple((use.node, _place(use.node, axis)) for use in front.uses())
        count = dims[axis]
        places = {place for _, place in gathers}
        if not isinstance(count, int) or places != {*range(count)} or len(gathers) != count:
            return None
        ordered = [x for x in node.graph or () if any(x is y for y, _ in gathers)]
        if len(ordered) < count or ordered[0] is not node:
            return None
        return _packed(gathers, front, axis % len(dims), view)

    def message(self, site: Match) -> str:
        """What it is."""
        return "parts of one tensor, which are moved to the front and gathered one by one"

    def rewrite(self, match: PackedSite, op: Builder) -> ir.Value:
        """A Split, and what lays out its parts."""
        dims = op.view.shapes.dims(match.packed) or ()
        sizes = np.full(match.count, int(str(dims[-1])) // match.count, np.int64)
        there = (True,) * match.count
        parts = op.make_all("Split", there, match.packed, sizes, axis=len(dims) - 1)
        made = {place: _laid_out(part, match, op) for place, part in enumerate(parts)}
        for gather, place in match.gathers:
            if gather is not match.node:
                old = gather.outputs[0]
                op.replace(old, made[place])
                op.drop(old)
        return made[dict(match.gathers)[match.node]]


def _laid_out(part: ir.Value, match: PackedSite, op: Builder) -> ir.Value:
    if match.apart is not None:
        part = op.Reshape(part, np.array(match.apart, np.int64))
    if match.perm is not None:
        part = op.Transpose(part, perm=match.perm)
    return part if match.shape is None else op.Reshape(part, np.array(match.shape, np.int64))


def _place(gather: ir.Node, axis: int) -> int | None:
    """What a Gather takes along this axis, if that is one number."""
    if not is_op(gather, "Gather") or attr_int(gather, "axis", 0) != axis:
        return None
    index = const_of(gather.inputs[1])
    return int(index) if index is not None and index.shape == () else None


def _packed(
    gathers: tuple[tuple[ir.Node, int], ...], front: ir.Value, axis: int, view: View
) -> PackedSite | None:
    """Where the axis of the parts lay before it was moved to the front, if it leads the last."""
    dims = view.shapes.dims(front) or ()
    own = tuple(() if x == 1 else (Atom("batch", x),) for x in dims)
    layout, value, (moved,) = Layout(own, tuple(x for y in own for x in y)), front, own[axis]
    while is_op(node := value.producer(), *_MOVES) and node.inputs[0] is not None:
        found = before(node, layout, view)
        if found is None:
            break
        layout, value = found, node.inputs[0]
    lead = layout.axes[-1] if layout.axes else ()
    if value is front or len(lead) < 2 or lead[0] is not moved:
        return None
    left = [*layout.axes[:-1], lead[1:]]
    flat = [atom for each in left for atom in each]
    wanted = [atom for each in own for atom in each if atom is not moved]
    if len(flat) != len(wanted) or {*flat} != {*wanted}:
        return None
    sizes: list[Dim] = list(view.shapes.dims(value) or ())
    count = int(str(moved.size))
    sizes[-1] = int(str(sizes[-1])) // count if isinstance(sizes[-1], int) else 0
    if not sizes[-1]:
        return None
    apart, perm = None, None
    if flat != wanted:
        apart = constant_shape(sizes, [x.size for x in flat], view)
        perm = tuple(flat.index(x) for x in wanted)
        sizes = [x.size for x in wanted]
        if apart is None:
            return None
    out = [x for i, x in enumerate(dims) if i != axis]
    shape = None if all_same(sizes, out) else constant_shape(sizes, out, view)
    if shape is None and not all_same(sizes, out):
        return None
    return PackedSite(gathers[0][0], value, gathers, count, apart, perm, shape)
