"""Rows that a mask picks, computed alone, and put back where they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.model.shapes import same
from graphfix.model.values import attr_int, attr_ints, axes_of, ints_of, is_op

from ._counting import unsqueezed
from ._window_frozen import nodes_behind
from ._window_local import carried

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from graphfix.build import Builder
    from graphfix.model.shapes import Dim
    from graphfix.model.view import View

_FAR = 500
_REGROUPS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
_VIEWS = ("Transpose", "Identity", *_REGROUPS)
_PRODUCTS = ("MatMul", "Gemm", "Conv", "Einsum")


@dataclass(frozen=True)
class Packed:
    """What is computed of packed rows alone.

    Attributes:
        mask: Which places are picked: [B, T].
        base: What the others hold: [B, T, G].
        gathers: What packs: [k, F] of [B, T, F].
        nodes: What is computed of these, in order.
        made: What they make, [k, G].
    """

    mask: ir.Value
    base: ir.Value
    gathers: tuple[ir.Node, ...]
    nodes: tuple[ir.Node, ...]
    made: ir.Value


def packed_at(node: ir.Node, view: View) -> Packed | str | None:
    """What a ScatterND puts back; or why it must stay packed."""
    base, given = node.inputs[0], node.inputs[2]
    mask = _picking(node.inputs[1], view)
    plain = "reduction" not in node.attributes or node.attributes["reduction"].value == "none"
    if base is None or given is None or mask is None or not plain:
        return None
    mask, made = _of_rows(mask, view), _rows_of(given)
    number = view.numbering.of(mask)
    gathers: dict[ir.Node, None] = {}
    nodes: dict[ir.Node, None] = {}
    pending = [made]
    while pending:
        above = pending.pop().producer()
        if above is not None and _picks(above, number, view):
            gathers[above] = None
            continue
        rows = () if above is None else carried(above, view)
        if above is None or not rows:
            return _mixed(above, number, made, view)
        nodes[above] = None
        pending += [x for i in rows if (x := above.inputs[i]) is not None]
    dims, after = view.shapes.dims(mask) or (), view.shapes.dims(made) or ()
    if not after or not isinstance(after[-1], int):
        return "its rows are packed by a mask, and how wide they are is not known"
    if any(view.shapes.rank(x.outputs[0]) != len(after) or len(after) != 2 for x in gathers):
        return "what is packed by a mask is not seen to be rows of features"
    rests = [view.shapes.dims(x.inputs[0]) for x in gathers]
    if not _alike(view.shapes.dims(base), (*dims, after[-1])) or not all(
        x and isinstance(x[-1], int) and _alike(x[:-1], dims) for x in rests
    ):
        return (
            "its rows are packed by a mask that is not seen to be as long as they are: give their "
            "dims one name when you export it"
        )
    order = {x: i for i, x in enumerate(node.graph or ())}
    if any(x not in order for x in (*gathers, *nodes)):
        return "its rows are packed by a mask outside of the branch or loop that it is in"
    return Packed(mask, base, tuple(gathers), tuple(sorted(nodes, key=order.__getitem__)), made)


def staying_at(node: ir.Node, view: View) -> str | None:
    """Why rows that a NonZero finds stay packed, if they are computed with and never put back."""
    mask = node.inputs[0]
    dims = view.shapes.dims(mask)
    if mask is None or dims is None or all(isinstance(x, int) for x in dims):
        return None
    picks: list[ir.Node] = []
    pending = [node.outputs[0]]
    while pending:
        for use in pending.pop().uses():
            if use.idx == 1 and is_op(use.node, "ScatterND"):
                return None  # told there
            if use.idx == 1 and is_op(use.node, "GatherND", "Gather"):
                picks.append(use.node)
            elif use.idx == 0 and is_op(use.node, *_VIEWS):
                pending += use.node.outputs
    number = view.numbering.of(mask)
    rows = [x for x in picks if _picks(x, number, view) and _has_rows(x.inputs[0], dims, view)]
    if not any(nodes_behind(x, *_PRODUCTS) for x in rows):
        return None
    return (
        "its rows are packed by a mask and stay so, as many as there are in a run: keep them in "
        "[batch, time] and hide keys by the mask instead, or put them back (y[mask] = rows) before "
        "the first attention"
    )


def _has_rows(value: ir.Value | None, dims: Sequence[Dim], view: View) -> bool:
    """Whether a tensor is [B, T, ...] for a mask [B, T], of numbers that are no sizes."""
    mine, dtype = view.shapes.dims(value), view.shapes.dtype(value)
    rows = mine is not None and len(mine) > len(dims) and _alike(mine[: len(dims)], dims)
    return rows and dtype is not None and dtype.is_floating_point()


def unpacked(site: Packed, op: Builder) -> ir.Value:
    """All rows computed, and those taken that the mask picks."""
    view = op.view
    opset = view.opset(op.site)
    held: dict[ir.Value | None, ir.Value] = {}
    for gather in site.gathers:
        width = int(str((view.shapes.dims(gather.inputs[0]) or ())[-1]))
        flat = np.array([-1, width], np.int64)
        held[gather.outputs[0]] = op.Reshape(gather.inputs[0], flat)
    for node in site.nodes:
        inputs = [held.get(x, x) for x in node.inputs]
        held[node.outputs[0]] = op.again(node, *inputs)
    width = int(str((view.shapes.dims(site.made) or ())[-1]))
    shape = op.Concat(op.Shape(site.mask), np.array([width], np.int64), axis=0)
    mask = site.mask
    if view.shapes.dtype(mask) != ir.DataType.BOOL:
        mask = op.Cast(mask, to=ir.DataType.BOOL)
    rank = len(view.shapes.dims(site.mask) or ())
    picked = unsqueezed(mask, (rank,), opset, op)
    return op.Where(picked, op.Reshape(held[site.made], shape), site.base)


def _picking(places: ir.Value | None, view: View) -> ir.Value | None:
    """The mask whose places these are: ``Transpose (NonZero (mask))``, or that as a list."""
    turned = viewed = False
    while places is not None and (node := places.producer()) is not None:
        if is_op(node, "NonZero"):
            mask = node.inputs[0]
            return mask if turned and (not viewed or view.shapes.rank(mask) == 1) else None
        if is_op(node, "Transpose"):
            turned = tuple(attr_ints(node, "perm") or (1, 0)) == (1, 0) and not turned
        elif is_op(node, *_REGROUPS):
            viewed = True
        elif not is_op(node, "Identity"):
            return None
        places = node.inputs[0]
    return None


def _of_rows(mask: ir.Value, view: View) -> ir.Value:
    """The mask of rows that a mask of elements repeats."""
    wide = mask.producer()
    if not is_op(wide, "Expand"):
        return mask
    while is_op(above := _maker(wide.inputs[0]), "Expand"):
        wide = above
    if not is_op(above, "Unsqueeze") or above.inputs[0] is None:
        return mask
    axes, last = axes_of(above), (view.shapes.rank(mask) or 0) - 1
    return above.inputs[0] if axes in ((-1,), (last,)) else mask


def _maker(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else value.producer()


def _rows_of(value: ir.Value) -> ir.Value:
    """The rows that are put back, behind views of them and cuts that leave all of them.

    As many numbers go back as there are in the rows: a cut alone leaves all, and a repetition alone
    adds none. Together they could be one column, repeated.
    """
    kinds: set[str] = set()
    while (node := value.producer()) is not None and node.inputs and node.inputs[0] is not None:
        if is_op(node, "Slice", "Expand"):
            first = is_op(node, "Expand") or ints_of((*node.inputs, None)[1]) == (0,)
            if not first or kinds | {node.op_type} == {"Slice", "Expand"}:
                break
            kinds.add(node.op_type)
        elif not is_op(node, "Reshape", "Identity"):
            break
        value = node.inputs[0]
    return value


def _picks(node: ir.Node, number: Hashable, view: View) -> bool:
    """Whether a node picks rows by the mask of this number."""
    along = is_op(node, "Gather") and attr_int(node, "axis", 0) == 0
    if not along and not (is_op(node, "GatherND") and not attr_int(node, "batch_dims", 0)):
        return False
    own = _picking(node.inputs[1], view)
    return own is not None and view.numbering.of(own) == number


def _alike(a: Sequence[Dim] | None, b: Sequence[Dim]) -> bool:
    return a is not None and len(a) == len(b) and all(map(same, a, b))


def _mixed(node: ir.Node | None, number: Hashable, made: ir.Value, view: View) -> str | None:
    """Why rows stay packed, if they were packed by the same mask at all."""
    pending, seen = [made], {made}
    while pending and len(seen) < _FAR:
        above = pending.pop().producer()
        if above is None:
            continue
        if _picks(above, number, view):
            what = "a tensor" if node is None else f"{node.op_type} {node.name}"
            return (
                f"its rows are packed by a mask, and {what} is not seen to compute each of them "
                "alone: keep them in [batch, time] and hide keys by the mask instead"
            )
        new = {x for x in above.inputs if x is not None} - seen
        seen |= new
        pending += new
    return None
