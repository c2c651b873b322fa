"""group-heads: the manual is the docstring of the class."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.ops.axes import axis_of, permutation_of

from ..common.fusible import is_weight, only_user
from .attention.rotary_halves import last_axis_cut

Heads = tuple[ir.Value, int, int]
"""A tensor of heads, how many parts each has, and the place of one part."""


@dataclass
class PartUsers:
    """The readers of the parts of all heads.

    Attributes:
        row_readers: How many put a part in rows.
        head_readers: The other readers, by the place of the part and whether its heads come before
            time: the value that is read, the node, and which input of it.
    """

    row_readers: int = 0
    head_readers: dict[tuple[int, bool], list[tuple[ir.Value, ir.Node, int]]] = field(
        default_factory=dict
    )

    def merge(self, other: PartUsers) -> None:
        """Add the readers that were found behind a node that moves parts."""
        self.row_readers += other.row_readers
        for key, uses in other.head_readers.items():
            self.head_readers.setdefault(key, []).extend(uses)


@dataclass(frozen=True)
class GroupedSite(Match):
    """Queries, keys or values of all heads, in rows.

    Attributes:
        product: The MatMul that makes queries, keys and values, head by head.
        bias: Its bias, if it has one.
        head: The number of heads, of parts in a head, and of features in a part.
        place: Which of the parts it is.
        users: The readers of the parts.
    """

    product: ir.Node
    bias: ir.Value | None
    head: tuple[int, int, int]
    place: int
    users: PartUsers


@dataclass(frozen=True)
class GroupHeads(NodePass[GroupedSite]):
    """Makes all queries, all keys and all values by one product, instead of head by head.

    GPT-NeoX, BLOOM, GPT BigCode and DeBERTa keep queries, keys and values of a head side by side,
    so that they are cut from each head and put together again. The columns of the weight, and the
    bias, are put in another order instead, by operators in the graph: ONNX Runtime does that once,
    when it loads the model (constant folding), so no weight is read, moved or written twice.

    Why:
        A Split of rows stands for up to nine kernels a layer, which are recompiled at each new
        length: Reshape, Transpose, Split, and a Transpose and a Reshape of each part. By `graphfix
        plan`, of a GPT-NeoX of two layers with a cache 65 kernels are left on the device where 73
        were, of a BLOOM 60 where 72 were.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        heads (float[B, T, 2] x) => (float[B, T, 4] y)
        <float[2, 8] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         int64[4] apart = {0, 0, 2, 4}, int64[3] rows = {0, 0, 4}>
        {
            both = MatMul (x, w)
            heads = Reshape (both, apart)
            first, second = Split <axis = 3> (heads)
            q = Reshape (first, rows)
            k = Reshape (second, rows)
            y = Mul (q, k)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        heads (float[B, T, 2] x) => (float[B, T, 4] y)
        <float[2, 8] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         int64[4] columns = {-1, 2, 2, 2}, int64[2] whole = {-1, 8}>
        {
            parts = Reshape (w, columns)
            ordered = Transpose <perm = [0, 2, 1, 3]> (parts)
            weight = Reshape (ordered, whole)
            grouped = MatMul (x, weight)
            q, keys = Split <axis = -1> (grouped)
            y = Mul (q, keys)
        }

    Left alone:
        A product that something else reads too:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        read (float[B, T, 2] x) => (float[B, T, 4] y, float[B, T, 8] z)
        <float[2, 8] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         int64[4] apart = {0, 0, 2, 4}, int64[3] rows = {0, 0, 4}>
        {
            both = MatMul (x, w)
            z = Neg (both)
            heads = Reshape (both, apart)
            first, second = Split <axis = 3> (heads)
            q = Reshape (first, rows)
            k = Reshape (second, rows)
            y = Mul (q, k)
        }

        A weight that is an input:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        fed (float[B, T, 2] x, float[2, 8] w) => (float[B, T, 4] y)
        <int64[4] apart = {0, 0, 2, 4}, int64[3] rows = {0, 0, 4}>
        {
            both = MatMul (x, w)
            heads = Reshape (both, apart)
            first, second = Split <axis = 3> (heads)
            q = Reshape (first, rows)
            k = Reshape (second, rows)
            y = Mul (q, k)
        }

        A weight that goes into another product too:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        twice (float[B, T, 2] x) => (float[B, T, 4] y, float[B, T, 8] z)
        <float[2, 8] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         int64[4] apart = {0, 0, 2, 4}, int64[3] rows = {0, 0, 4}>
        {
            both = MatMul (x, w)
            z = MatMul (x, w)
            heads = Reshape (both, apart)
            first, second = Split <axis = 3> (heads)
            q = Reshape (first, rows)
            k = Reshape (second, rows)
            y = Mul (q, k)
        }

    Safety:
        Exact: each number is the same sum. Only where as many parts of all heads are put together
        in rows again as are read as heads, which are then cut from the rows. A weight that is an
        input or goes into another operator too, heads that something reads whole, and parts of
        different sizes stay as they are. Without any optimization ONNX Runtime copies the weights
        in each run.
    """

    sentence = "a part is cut from each head; one product can make all of it in rows"
    anchors = ("Reshape",)

    def match(self, node: ir.Node, view: View) -> GroupedSite | None:
        """Return the site if a Reshape puts one part of each head in rows."""
        part = _part_in_rows(node, view)
        split = None if part is None else part[0].producer()
        if part is None or not is_op(split, "Reshape"):
            return None
        heads, parts, place = part
        size = _head_size(split, heads, node, view)
        projection = None if size is None else _projection_before(split, size[1], view)
        if size is None or projection is None:
            return None
        users = PartUsers()
        if not _collect_part_users(heads, part, view, users):
            return None
        if len(users.head_readers) > users.row_readers:
            return None
        (count, width), (product, bias) = size, projection
        head = (count, parts, width // count // parts)
        return GroupedSite(node, product, bias, head, place, users)

    def rewrite(self, match: GroupedSite, op: Builder) -> ir.Value:
        """Return one part of the rows, which are built once for all parts."""
        key, product = ("heads", match.product), match.product
        split = op.build_once(key, lambda: _build_split(match, op), product.outputs[0]).producer()
        assert split is not None
        return split.outputs[match.place]


def _build_split(match: GroupedSite, op: Builder) -> ir.Value:
    """Build all parts in rows by one product and a Split, and return the first.

    What reads a part as heads gets it cut from the rows again.
    """
    data, weight = match.product.inputs
    count, parts, width = match.head
    with op.inserting_before(match.product):  # others may read a part before this site
        rows = op.MatMul(data, _order_by_part(weight, 1, match.head, op))
        if match.bias is not None:
            rows = op.Add(rows, _order_by_part(match.bias, 0, match.head, op))
        count_attribute = {"num_outputs": parts} if op.view.opset_of_node(match.node) >= 18 else {}
        row_parts = op.make_outputs("Split", (True,) * parts, rows, axis=-1, **count_attribute)
        for (place, swapped), uses in match.users.head_readers.items():
            front = len(op.view.shapes.dims(uses[0][0]) or ()) - 2
            part = op.Reshape(row_parts[place], np.array([*[0] * front, count, width], np.int64))
            if swapped:
                part = op.Transpose(part, perm=[*range(front - 1), front, front - 1, front + 1])
            op.redirect_uses([(node, index) for _, node, index in uses], part)
    return row_parts[0]


def _head_size(
    split: ir.Node, heads: ir.Value, node: ir.Node, view: View
) -> tuple[int, int] | None:
    """Return the number of heads that rows are split into, and the width of a row; or None.

    Args:
        split: The Reshape of [.., H * parts * D] to [.., H, parts * D] or more axes.
        heads: What it makes.
        node: The Reshape that puts one part in rows again, for each row of the first.
        view: The model around it.
    """
    rows, dims = view.shapes.dims(split.inputs[0]), view.shapes.dims(heads)
    out_dims = view.shapes.dims(node.outputs[0])
    if not rows or not dims or not out_dims or not same_dims(rows[:-1], out_dims[:-1]):
        return None
    if not same_dims(rows[:-1], dims[: len(rows) - 1]):
        return None
    count, width = dims[len(rows) - 1], rows[-1]
    return (count, width) if isinstance(count, int) and isinstance(width, int) else None


def _projection_before(
    split: ir.Node, width: int, view: View
) -> tuple[ir.Node, ir.Value | None] | None:
    """Return the MatMul with a weight that makes rows of heads, and its bias; or None."""
    product, user, bias = producer_of(split.inputs[0]), split, None
    if is_op(product, "Add"):
        fixed = [x for x in product.inputs if is_weight(x, (width,), view)]
        if len(fixed) != 1 or only_user(product) is not split:
            return None
        (bias,), user = fixed, product
        product = producer_of(next(x for x in product.inputs if x is not bias))
    if not is_op(product, "MatMul") or only_user(product) is not user:
        return None
    return (product, bias) if is_weight(product.inputs[1], (None, width), view) else None


def _order_by_part(
    value: ir.Value | None, front: int, head: tuple[int, int, int], op: Builder
) -> ir.Value:
    """Build a weight or bias whose last axis is ordered by parts instead of heads."""
    by_head = op.Reshape(value, np.array([*[-1] * front, *head], np.int64))
    ordered = op.Transpose(by_head, perm=[*range(front), front + 1, front, front + 2])
    return op.Reshape(ordered, np.array([*[-1] * front, math.prod(head)], np.int64))


def _part_in_rows(node: ir.Node, view: View) -> Heads | None:
    """Return the heads and the part that a Reshape puts in rows, or None."""
    part = node.inputs[0]
    rows, dims = (view.shapes.dims(x) for x in (node.outputs[0], part))
    if not rows or not dims or len(dims) != len(rows) + 1 or not same_dims(rows[:-1], dims[:-2]):
        return None
    swap_source = _source_of_axis_swap(part, view)
    cut = _part_of_heads(part if swap_source is None else swap_source, view)
    if cut is None or swap_source is None:
        return cut
    heads = _source_of_axis_swap(cut[0], view)
    return None if heads is None else (heads, *cut[1:])


def _source_of_axis_swap(value: ir.Value | None, view: View) -> ir.Value | None:
    """Return the tensor whose two axes before the last ``value`` swaps, or None."""
    node = producer_of(value)
    rank = view.shapes.rank(value)
    if not is_op(node, "Transpose") or rank is None or rank < 3:
        return None
    swap = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
    return node.inputs[0] if permutation_of(node, rank) == swap else None


def _part_of_heads(part: ir.Value | None, view: View) -> Heads | None:
    """Return (heads, number of equal parts in each, which part this is), or None."""
    node, dims = producer_of(part), view.shapes.dims(part)
    if part is None or node is None or not dims:
        return None
    if is_op(node, "Gather"):
        return _gathered_part(node, len(dims), view)
    span, size = last_axis_cut(part, view), dims[-1]
    width = (view.shapes.dims(span[0]) or (None,))[-1] if span else None
    if span is None or not isinstance(size, int) or not isinstance(width, int):
        return None
    source, start, step = span
    if not size or width % size or start % size or step != 1:
        return None
    return source, width // size, start // size


def _gathered_part(gather: ir.Node, rank: int, view: View) -> Heads | None:
    """Return what a Gather takes if it is one element of the axis before the last, or None."""
    source, index = gather.inputs[0], const_of(gather.inputs[1])
    dims = view.shapes.dims(source) or ()
    if source is None or index is None or index.ndim or len(dims) != rank + 1:
        return None
    parts, axis = dims[-2], axis_of(gather, len(dims), view.opset_of_node(gather))
    if not isinstance(parts, int) or axis != len(dims) - 2:
        return None
    return source, parts, int(index) % parts


def _collect_part_users(value: ir.Value, heads: Heads, view: View, users: PartUsers) -> bool:
    """Return whether all parts of these heads are read in rows, or as heads of one part.

    The readers are added to ``users``.
    """
    if value.is_graph_output():
        return False
    part, rank = _part_of_heads(value, view), view.shapes.rank(value) or 0
    source = value if part is None else part[0]
    swap_source = _source_of_axis_swap(source, view)
    is_part = part is not None and (swap_source or source, part[1]) == heads[:2]
    for use in value.uses():
        node, inside = use.node, PartUsers()
        if _puts_in_rows(node, heads, view):
            users.row_readers += 1
        elif _moves_parts(node) and all(
            _collect_part_users(x, heads, view, inside) for x in node.outputs
        ):
            users.merge(inside)
        elif is_part or _reads_shared_sizes(node, rank):
            place = part[2] if is_part and part is not None else 0
            key = (place, swap_source is not None)
            users.head_readers.setdefault(key, []).append((value, node, use.idx))
        else:
            return False
    return True


def _puts_in_rows(node: ir.Node, heads: Heads, view: View) -> bool:
    """Return whether a Reshape puts one part of the same heads in rows."""
    part = _part_in_rows(node, view) if is_op(node, "Reshape") else None
    return part is not None and part[:2] == heads[:2]


def _reads_shared_sizes(node: ir.Node, rank: int) -> bool:
    """Return whether a Shape reads only sizes that all parts of heads have: not the last one."""
    return is_op(node, "Shape") and attr_int(node, "end", rank) < rank


def _moves_parts(node: ir.Node) -> bool:
    """Return whether a node may take parts from heads, or put heads before time."""
    return is_op(node, "Transpose", "Split", "Slice", "Gather")
