"""merge-biases: the manual is the docstring of the class."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, all_same
from graphfix.facts.view import View
from graphfix.graph.constants import const_of, ints_of
from graphfix.graph.nodes import attr_int, attr_ints, input_at, is_op, maker_of, users_of
from graphfix.graph.walks import reached

from ..common.fusible import FLOATS, is_by_feature, is_own_constant, lies_along, only_user, varying

_NORMS = ("LayerNormalization", "InstanceNormalization")
_VIEWS = ("Reshape", "Unsqueeze", "Squeeze")
# Nodes around one sum that a constant is followed through, and readers of one of them.
_MOST, _READERS = 1 << 14, 256
# Of what is added, or multiplied with: a mask's -10000 would take digits off what it is added to.
_LARGEST = 100.0
_TABLE = 1 << 23  # numbers of a table that is added to when the model is loaded: not a vocabulary's


@dataclass(frozen=True)
class BiasSite(Match):
    """Constants that are added, and what adds them instead.

    Attributes:
        constant: What the node adds, or the table from which it adds rows.
        norm: The norm right before it, which takes the constant as its bias.
        rows: What takes rows from a table.
        first: The Add of those rows, and which of its inputs is no constant.
        steps: What adds constants, and what those go through, in order.
        sizes: The dims of what is added in the place of those constants, behind each step.
        ends: Where it is added.
    """

    constant: ir.Value | None = None
    norm: ir.Node | None = None
    rows: ir.Node | None = None
    first: tuple[ir.Node, int] | None = None
    steps: tuple[ir.Node, ...] = ()
    sizes: Mapping[ir.Value | None, list[int]] = field(default_factory=dict)
    ends: Collection[ir.Value] = ()


@dataclass(frozen=True)
class MergeBiases(NodePass[BiasSite]):
    """Adds constants in as few sums as will do, of those that follow each other.

    The bias of a product is added, then the heads that it is laid out as get one more: the u and v
    of a Transformer-XL or Conformer. MobileBERT adds a bias and the residual, multiplies, and adds
    a second bias. A Zipformer adds a bias and a residual in each of its blocks, without a norm
    between, and takes a number off before and behind each activation. Where all that lies between
    is a sum, a layout, a product with constants, or rows that a Softmax weighs, one list is added,
    where something else reads it.

    BERT adds the embedding of one type to all tokens, then rows of a table of positions: the table
    takes it. A norm with a constant behind it (a conditioned one, AdaLN, whose condition is fixed;
    torch's GroupNorm of one channel a group) takes it as its bias. The constants are computed by
    operators in the graph, which ONNX Runtime runs once, when it loads the model.

    Why:
        Each is a kernel of its own on DirectML, over all frames. By `graphfix plan` the profile
        `fast` leaves 131 kernels of a MobileBERT on the device where it leaves 160 without this
        pass, 28 of a BERT of three layers for 29, 142 of a wav2vec2 Conformer for 146. A Zipformer
        of four layers has 581 left of 869 by TorchScript, 569 of 684 by dynamo, where 649 and 637
        were left while each sum took the constants of one other only.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        heads (float[B, T, 4] x) => (float[B, T, 2, 2] y)
        <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4] b = {1, 2, 3, 4},
         float[2, 2] u = {1, 0, 0, 1}, int64[4] heads = {0, 0, 2, 2}>
        {
            product = MatMul (x, w)
            rows = Add (product, b)
            split = Reshape (rows, heads)
            y = Add (split, u)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        heads (float[B, T, 4] x) => (float[B, T, 2, 2] y)
        <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1},
         float[4] b = {1, 2, 3, 4},
         float[2, 2] u = {1, 0, 0, 1}, int64[4] heads = {0, 0, 2, 2}, int64[2] dims = {2, 2}>
        {
            product = MatMul (x, w)
            bare = Reshape (product, heads)
            laid = Reshape (b, dims)
            both = Add (laid, u)
            y = Add (bare, both)
        }

    Safety:
        Exact, except rounding. In floats only, and through a product with weights in float32 only,
        since float16 rounds what becomes of the constants. What several sums add, and are
        multiplied with, has to be in the file, and not over 100, as a mask's numbers are: beside
        them others lose their digits. Numbers alone stay: lengths are computed so, and then cut to
        whole numbers, which another rounding could change. What a caller reads, what an activation
        or a norm reads, what over 256 nodes read, and what over 16,384 have to do with, is added
        there as before. A table that something else reads, or that is as large as a vocabulary,
        stays. Without any optimization ONNX Runtime computes the constants in each run.
    """

    anchors = ("Add", "Sub")
    sentence = "a constant that is added behind another one, a kernel; fewer sums would do"

    def match(self, node: ir.Node, view: View) -> BiasSite | None:
        """A sum with a constant, of a norm or the first of several; or one with rows of a table."""
        if view.shapes.dtype(node.outputs[0]) not in FLOATS:
            return None
        place = varying(node, view)
        if place is None:
            return _tabled(node, view) if is_op(node, "Add") else None
        data, constant = node.inputs[place], node.inputs[1 - place]
        maker = maker_of(data)
        if is_op(node, "Add") and is_op(maker, *_NORMS) and only_user(maker) is node:
            bias = input_at(maker, 2)
            known = len(maker.outputs) == 1 and {maker.inputs[1], bias} - {None} <= view.fixed
            if constant is not None and known and is_by_feature(constant, maker, view):
                return BiasSite(node, constant, norm=maker)
        return _gathered(node, view) if _adds(node, view) else None

    def rewrite(self, match: BiasSite, op: Builder) -> ir.Value:
        """One sum."""
        if match.norm is not None and match.constant is not None:
            data, scale, *bias = match.norm.inputs
            constant = op.Reshape(match.constant, np.array([-1], np.int64))
            if bias and bias[0] is not None:
                constant = op.Add(bias[0], constant)
            return op.again(match.norm, data, scale, constant)
        if match.first is not None and match.rows is not None:
            first, place = match.first
            moved = op.Reshape(first.inputs[1 - place], np.array([-1], np.int64))
            table = op.Add(match.constant, moved)
            return op.Add(first.inputs[place], op.again(match.rows, table, *match.rows.inputs[1:]))
        bare, added = dict[ir.Value | None, ir.Value](), dict[ir.Value | None, ir.Value]()
        ends = dict[ir.Value, ir.Value]()
        for step in match.steps:
            made = step.outputs[0]
            with op.placed(step):
                inputs = [bare.get(x, x) for x in step.inputs]
                alone = inputs[varying(step, op.view) or 0] if _adds(step, op.view) else None
                bare[made] = alone or op.again(step, *inputs)
                added[made] = _moved(step, match, added, op)
                if made in match.ends:
                    ends[made] = op.Add(bare.pop(made), added.pop(made))
                elif shapes := [(x.node, x.idx) for x in made.uses() if is_op(x.node, "Shape")]:
                    op.reroute(made, shapes, bare[made])
        last = ends.pop(match.node.outputs[0])
        for old, new in ends.items():
            op.supplant(old, new)
        return last


def _tabled(node: ir.Node, view: View) -> BiasSite | None:
    """From a sum with rows of a table back to one with a constant."""
    at = _with_bias(node, view)
    first = None if at is None else maker_of(node.inputs[at])
    rows = None if at is None else maker_of(node.inputs[1 - at])
    place = None if first is None else varying(first, view)
    if first is None or rows is None or place is None or only_user(rows) is not node:
        return None
    whole = is_op(rows, "Gather") and attr_int(rows, "axis", 0) == 0
    whole = whole or (is_op(rows, "Slice") and ints_of(input_at(rows, 3)) == (0,))
    table, rank = rows.inputs[0], view.shapes.rank(first.outputs[0])
    dims = view.shapes.dims(table)
    if not whole or table is None or not is_own_constant(table, view) or rank is None:
        return None
    if dims is None or len(dims) != 2 or math.prod(_numbers(dims)) > _TABLE:
        return None
    fits = lies_along(first.inputs[1 - place], dims[1], 0, rank, view)
    return BiasSite(node, table, rows=rows, first=(first, place)) if fits else None


def _adds(node: ir.Node, view: View) -> bool:
    """Whether a node adds a constant to a tensor, or takes one off, whose dims stay."""
    place = varying(node, view)
    if place is None or not is_op(node, "Add", *("Sub",) * (place == 0)):
        return False
    dims = [view.shapes.dims(x) for x in (node.inputs[place], *node.outputs)]
    other = view.shapes.dims(node.inputs[1 - place])
    return all_same(*dims) and other is not None and len(_numbers(other)) == len(other)


def _takes(node: ir.Node, view: View) -> bool:
    """Whether what is added to an input of a node could be added, changed, to its output."""
    place = varying(node, view)
    if is_op(node, "Add", "Sub") and (place is None or _adds(node, view)):
        return True
    if is_op(node, "MatMul") and place is None:
        # The weights of a row are 1 together, where there is one for itself at least.
        weights, dims = maker_of(node.inputs[0]), view.shapes.dims(node.inputs[0]) or ()
        last = is_op(weights, "Softmax") and attr_int(weights, "axis", 1) in (-1, len(dims) - 1)
        return last and all_same(dims[-1:], dims[-2:-1])
    if is_op(node, "MatMul"):  # An activation right behind it is in its kernel.
        precise = view.shapes.dtype(node.outputs[0]) == ir.DataType.FLOAT
        return precise and place == 0 and is_op(only_user(node), "Add", "Sub")
    if is_op(node, "Div"):
        return place == 0
    return is_op(node, "Transpose", *_VIEWS) or (is_op(node, "Mul") and place is not None)


def _gathered(node: ir.Node, view: View) -> BiasSite | None:
    """The sums with constants around a node, of which it is the first, if fewer would do."""
    shut = set[ir.Value]()

    @cache
    def users(step: ir.Node) -> list[ir.Node]:
        """What the constant behind a step can go through next; nothing where it has to be added."""
        made, found = step.outputs[0], list[ir.Node]()
        if made not in shut and not made.is_graph_output() and users_of(made) <= _READERS:
            # A Shape is the same without what is added.
            found = [x.node for x in made.uses() if not is_op(x.node, "Shape")]
        return found if all(x.graph is step.graph and _takes(x, view) for x in found) else []

    def beside(step: ir.Node) -> Iterator[ir.Node]:
        """What may have to do with the same constants as a step."""
        yield from users(step)
        makers = (None if x in view.fixed else maker_of(x) for x in step.inputs)
        yield from (x for x in makers if x is not None and _takes(x, view) and users(x))

    while True:
        scaled = dict[ir.Node, ir.Node | None]()
        for i, step in enumerate(reached([node], beside)):
            if _adds(step, view):
                maker = maker_of(step.inputs[varying(step, view) or 0])
                scaled[step] = maker if is_op(maker, "Mul") else None
                earlier = view.places.get(step, -1) < view.places.get(node, -1)
                if i > _MOST or (earlier and scaled[step] is None):
                    return None
        # The bias of a norm in pieces, or of an affine, is in the kernel that these become.
        carried = set(reached(scaled, users))
        sums = {x for x, factor in scaled.items() if factor is None or factor in carried}
        carried = set(reached(sums, users))
        ends = {x.outputs[0] for x in carried if not users(x)}
        if len(sums) <= len(ends):
            return None
        # No later than it has to be: behind a layout or a sum it may keep others from being fused.
        early = set[ir.Value]()
        for last in (x for x in carried if x.outputs[0] in ends):
            step = last
            while step not in sums:
                makers = [x for x in map(maker_of, step.inputs) if x in carried and users(x)]
                if len(makers) != 1 or len(users(makers[0])) != 1:
                    break
                step = makers[0]
            if step is not last:
                early.add(step.outputs[0])
        if early:
            shut |= early
            users.cache_clear()
            continue
        steps = [x for x in node.graph or () if x in carried]
        if next(x for x in steps if x in sums) is not node or not _is_gentle(steps, view):
            return None
        sizes: dict[ir.Value | None, list[int]] = {}
        for step in steps:
            given = {x: sizes[x] for x in step.inputs if x in sizes and x not in ends}
            found = _sizes(step, given, view)
            if found is None:
                shut.update(x for x in given if x is not None)
                users.cache_clear()
                break
            sizes[step.outputs[0]] = found
        else:
            return BiasSite(steps[-1], steps=tuple(steps), sizes=sizes, ends=ends)


def _is_gentle(steps: Sequence[ir.Node], view: View) -> bool:
    """Whether no constant is so large that numbers lose digits beside it, as a mask's does.

    A number by itself is perhaps of a length, which may be rounded down after the sum.
    """
    lists = False
    for step in steps:
        place = varying(step, view)
        if place is not None and is_op(step, "Add", "Sub", "Mul", "Div"):
            known = const_of(step.inputs[1 - place], _TABLE)
            if known is None or not known.size:
                return False
            least, most = float(np.abs(known).min()), float(np.abs(known).max())
            if (least < 1 / _LARGEST) if is_op(step, "Div") else (most > _LARGEST):
                return False
            lists = lists or (known.size > 1 and _adds(step, view))
    return lists


def _sizes(
    step: ir.Node, sizes: Mapping[ir.Value | None, list[int]], view: View
) -> list[int] | None:
    """The dims of what is added behind a step in the place of what is added before it."""
    place, made = varying(step, view), view.shapes.dims(step.outputs[0])
    other = view.shapes.dims(step.inputs[(place or 0) - 1]) or ()
    if made is None:
        return None
    if is_op(step, "Add", "Sub", "Mul", "Div"):
        parts = [*sizes.values(), *([] if place is None else [_numbers(other)])]
        both = list(np.broadcast_shapes(*map(tuple, parts)))
        return both if math.prod(both) <= _TABLE else None
    ((data, before),) = sizes.items()
    given = view.shapes.dims(data)
    if given is None:
        return None
    if is_op(step, "MatMul") and place is None:
        found = before if before[-2:-1] in ([], [1]) else None
    elif is_op(step, "MatMul"):
        wide = _numbers(other)
        found = [*before[:-1], wide[1]] if len(wide) == 2 == len(other) else None
    elif is_op(step, "Transpose"):
        padded = [1] * (len(given) - len(before)) + before
        found = [padded[i] for i in attr_ints(step, "perm") or range(len(given))[::-1]]
    else:
        found = _laid(before, given, made)
    return found if found is not None and math.prod(found) <= _TABLE else None


def _moved(
    step: ir.Node, match: BiasSite, added: Mapping[ir.Value | None, ir.Value], op: Builder
) -> ir.Value:
    """What is added behind a step in the place of what is added before it."""
    place = varying(step, op.view)
    constant = None if place is None else step.inputs[place - 1]
    if is_op(step, "Add", "Sub"):
        left, right = (constant if x is constant else added.get(x) for x in step.inputs)
        if left is not None and right is not None:
            return op.make(step.op_type, left, right)
        alone = right if left is None else left
        assert alone is not None
        return op.Neg(alone) if left is None and is_op(step, "Sub") else alone
    data = next(x for x in step.inputs if x in added)
    moved, sizes = added[data], match.sizes[data]
    if is_op(step, "MatMul") and place is None:
        return moved
    if is_op(step, "MatMul"):
        depth = (op.view.shapes.dims(constant) or ())[0]
        if sizes[-1:] != [depth]:
            moved = op.Expand(moved, np.array([*sizes[:-1], depth], np.int64))
        return op.MatMul(moved, constant)
    if is_op(step, "Transpose"):
        padded = np.array([1] * ((op.view.shapes.rank(data) or 0) - len(sizes)) + sizes, np.int64)
        return op.Transpose(op.Reshape(moved, padded), perm=attr_ints(step, "perm"))
    if is_op(step, *_VIEWS):
        return op.Reshape(moved, np.array(match.sizes[step.outputs[0]], np.int64))
    return op.make(step.op_type, moved, constant)


def _with_bias(add: ir.Node, view: View) -> int | None:
    """Which input of a sum of two tensors has had a constant added, for this sum alone."""
    for i, value in enumerate(add.inputs):
        maker = maker_of(value)
        if is_op(maker, "Add") and varying(maker, view) is not None and only_user(maker) is add:
            return i
    return None


def _numbers(dims: Sequence[Dim]) -> list[int]:
    """The dims of a constant."""
    return [x for x in dims if isinstance(x, int)]


def _laid(
    sizes: Sequence[int], before: Sequence[object], after: Sequence[object]
) -> list[int] | None:
    """The dims that a constant has once the tensor that it is added to is reshaped.

    It has a number for each element of the last axes, which become others as the last ones.
    """
    count = math.prod(sizes)
    while sizes and sizes[0] == 1:
        sizes = sizes[1:]
    if list(before[len(before) - len(sizes) :]) != list(sizes):
        return None
    laid = list[int]()
    for dim in reversed(after):
        if math.prod(laid) == count:
            break
        if not isinstance(dim, int):
            return None
        laid.insert(0, dim)
    return laid if math.prod(laid) == count else None
