"""group-heads: the manual is the docstring of the class."""

import math
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import all_same
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, attr_ints, is_op, maker_of

from ..common.fusible import is_weight, only_user
from .attention.rotary_halves import part_of

Heads = tuple[ir.Value, int, int]


@dataclass
class PartUsers:
    """Who reads the parts of all heads.

    Attributes:
        rows: How many put one in rows.
        aside: Who else reads one, by its place and whether its heads come before time: what is
            read, a node, and which input of it.
    """

    rows: int = 0
    aside: dict[tuple[int, bool], list[tuple[ir.Value, ir.Node, int]]] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupedSite(Match):
    """Queries, keys or values of all heads, in rows.

    Attributes:
        product: The MatMul that makes queries, keys and values, head by head.
        bias: What is added to them, if something is.
        head: How many heads there are, how many parts a head has, and how many features a part.
        place: Which of the parts it is.
        users: Who reads the parts.
    """

    product: ir.Node
    bias: ir.Value | None
    head: tuple[int, int, int]
    place: int
    users: PartUsers


@dataclass(frozen=True)
class GroupHeads(NodePass[GroupedSite]):
    """Lets one product make all queries, all keys and all values, and not head by head.

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
        """A Reshape that puts a part of each head in rows."""
        found = _in_rows(node, view)
        apart = None if found is None else found[0].producer()
        if found is None or not is_op(apart, "Reshape"):
            return None
        heads, parts, place = found
        rows, dims, made = (view.shapes.dims(x) for x in (apart.inputs[0], heads, node.outputs[0]))
        if not rows or not dims or not made or not all_same(rows[:-1], made[:-1]):
            return None
        if not all_same(rows[:-1], dims[: len(rows) - 1]):
            return None
        count, width = dims[len(rows) - 1], rows[-1]
        if not isinstance(count, int) or not isinstance(width, int):
            return None
        product, user, bias = maker_of(apart.inputs[0]), apart, None
        if is_op(product, "Add"):
            fixed = [x for x in product.inputs if is_weight(x, (width,), view)]
            if len(fixed) != 1 or only_user(product) is not apart:
                return None
            (bias,), user = fixed, product
            product = maker_of(next(x for x in product.inputs if x is not bias))
        if not is_op(product, "MatMul") or only_user(product) is not user:
            return None
        if not is_weight(product.inputs[1], (None, width), view):
            return None
        users = PartUsers()
        if not _read(heads, found, view, users) or len(users.aside) > users.rows:
            return None
        size = (count, parts, width // count // parts)
        return GroupedSite(node, product, bias, size, place, users)

    def rewrite(self, match: GroupedSite, op: Builder) -> ir.Value:
        """A part of the rows, which are made once for all parts."""

        def build() -> ir.Value:
            data, weight = match.product.inputs
            count, parts, width = match.head
            with op.placed(match.product):  # others may read a part before this site
                rows = op.MatMul(data, _ordered(weight, 1, match.head, op))
                if match.bias is not None:
                    rows = op.Add(rows, _ordered(match.bias, 0, match.head, op))
                given = {"num_outputs": parts} if op.view.opset(match.node) >= 18 else {}
                made = op.make_all("Split", (True,) * parts, rows, axis=-1, **given)
                for (place, swapped), uses in match.users.aside.items():
                    front = len(op.view.shapes.dims(uses[0][0]) or ()) - 2
                    part = op.Reshape(made[place], np.array([*[0] * front, count, width], np.int64))
                    if swapped:
                        part = op.Transpose(
                            part, perm=[*range(front - 1), front, front - 1, front + 1]
                        )
                    for value, node, index in uses:
                        op.reroute(value, [(node, index)], part)
            return made[0]

        split = op.once(("heads", match.product), build, match.product.outputs[0]).producer()
        assert split is not None
        return split.outputs[match.place]


def _ordered(
    value: ir.Value | None, front: int, head: tuple[int, int, int], op: Builder
) -> ir.Value:
    """A weight, or a bias, whose last axis is ordered by parts, and not by heads."""
    apart = op.Reshape(value, np.array([*[-1] * front, *head], np.int64))
    ordered = op.Transpose(apart, perm=[*range(front), front + 1, front, front + 2])
    return op.Reshape(ordered, np.array([*[-1] * front, math.prod(head)], np.int64))


def _in_rows(node: ir.Node, view: View) -> Heads | None:
    """What a Reshape puts in rows, if that is a part of each head."""
    part = node.inputs[0]
    rows, dims = (view.shapes.dims(x) for x in (node.outputs[0], part))
    if not rows or not dims or len(dims) != len(rows) + 1 or not all_same(rows[:-1], dims[:-2]):
        return None
    back = _swapped(part)
    cut = _cut(part if back is None else back, view)
    if cut is None or back is None:
        return cut
    heads = _swapped(cut[0])
    return None if heads is None else (heads, *cut[1:])


def _swapped(value: ir.Value | None) -> ir.Value | None:
    """What the two axes before the last are exchanged of."""
    node = maker_of(value)
    perm = attr_ints(node, "perm") if is_op(node, "Transpose") else None
    if node is None or not perm or len(perm) < 3:
        return None
    n = len(perm)
    return node.inputs[0] if perm == (*range(n - 3), n - 2, n - 3, n - 1) else None


def _cut(part: ir.Value | None, view: View) -> Heads | None:
    """(heads, how many equal parts each has, which of them this is)."""
    node, dims = maker_of(part), view.shapes.dims(part)
    if part is None or node is None or not dims or node.inputs[0] is None:
        return None
    if is_op(node, "Gather"):
        whole, index = view.shapes.dims(node.inputs[0]) or (), const_of(node.inputs[1])
        parts = whole[-2] if len(whole) == len(dims) + 1 else None
        if index is None or index.ndim or not isinstance(parts, int):
            return None
        if attr_int(node, "axis", 0) % len(whole) != len(whole) - 2:
            return None
        return node.inputs[0], parts, int(index) % parts
    found, size = part_of(part, view), dims[-1]
    width = (view.shapes.dims(found[0]) or (None,))[-1] if found else None
    if found is None or not isinstance(size, int) or not isinstance(width, int):
        return None
    if not size or width % size or found[1] % size or found[2] != 1:
        return None
    return found[0], width // size, found[1] // size


def _read(value: ir.Value, heads: Heads, view: View, users: PartUsers) -> bool:
    """Whether all that is cut from these heads is put in rows, or read as heads of a part.

    What it is read by goes into ``users``.
    """
    if value.is_graph_output():
        return False
    part, rank = _cut(value, view), view.shapes.rank(value) or 0
    source = value if part is None else part[0]
    heads_first = _swapped(source)
    own = part is not None and (heads_first or source, part[1]) == heads[:2]
    for use in value.uses():
        node, inside = use.node, PartUsers()
        if is_op(node, "Reshape") and (_in_rows(node, view) or ())[:2] == heads[:2]:
            users.rows += 1
        elif is_op(node, "Transpose", "Split", "Slice", "Gather") and all(
            _read(x, heads, view, inside) for x in node.outputs
        ):
            users.rows += inside.rows
            for key, uses in inside.aside.items():
                users.aside.setdefault(key, []).extend(uses)
        elif own or (is_op(node, "Shape") and attr_int(node, "end", rank) < rank):
            # All parts have the same sizes, but for the last that a Shape may read of the whole.
            key = (part[2] if own and part else 0, heads_first is not None)
            users.aside.setdefault(key, []).append((value, node, use.idx))
        else:
            return False
    return True
