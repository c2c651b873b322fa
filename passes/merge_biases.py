"""merge-biases: the manual is the docstring of the class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.model.shapes import Dim, all_same
from graphfix.model.values import attr_int, attr_ints, input_at, ints_of, is_op, maker_of
from graphfix.model.view import View

from ._shared.fusible import FLOATS, is_by_feature, is_own_constant, lies_along, only_user, varying

_NORMS = ("LayerNormalization", "InstanceNormalization")
_VIEWS = ("Reshape", "Unsqueeze", "Squeeze")
# A bias, a residual sum, a factor and a layout as heads; this only bounds the walk.
_DEEPEST = 6
_TABLE = 1 << 23  # numbers of a table that is added to when the model is loaded: not a vocabulary's


@dataclass(frozen=True)
class BiasSite(Match):
    """A constant that is added, and the constant before it that it could hold as well.

    Attributes:
        constant: What the node adds, or the table from which it adds rows.
        norm: The norm right before it, which takes the constant as its bias.
        rows: What takes rows from a table.
        first: The Add before it, where there is one, and which of its inputs is no constant.
        steps: What lies between the two, with the input that leads from one to the other.
        moves: What becomes of the first constant on its way: the dims that it is given, the order
            that its axes are given, or the Mul or Div that it goes through.
    """

    constant: ir.Value
    norm: ir.Node | None = None
    rows: ir.Node | None = None
    first: tuple[ir.Node, int] | None = None
    steps: tuple[tuple[ir.Node, int], ...] = ()
    moves: tuple[tuple[str, Sequence[int] | ir.Value], ...] = ()


@dataclass(frozen=True)
class MergeBiases(NodePass[BiasSite]):
    """Adds two constants to each other that are added to a tensor one after the other.

    The bias of a product is added, then the heads that it is laid out as get one more: the u and v
    of a Transformer-XL or Conformer. MobileBERT adds a bias and the residual, multiplies, and adds
    a second bias. BERT adds the embedding of one type to all tokens, then rows of a table of
    positions: the table takes it. A norm with a constant behind it (a conditioned one, AdaLN, whose
    condition is fixed; torch's GroupNorm of one channel a group) takes it as its bias. The
    constants are added by an operator in the graph, which ONNX Runtime runs once, when it loads the
    model.

    Why:
        Each is a kernel of its own on DirectML, over all frames. By `graphfix plan` the profile
        `fast` leaves 131 kernels of a MobileBERT on the device where it leaves 160 without this
        pass, 28 of a BERT of three layers for 29, 142 of a wav2vec2 Conformer for 146.

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
            laid = Reshape (b, dims)
            bare = Reshape (product, heads)
            both = Add (u, laid)
            y = Add (bare, both)
        }

    Safety:
        Exact, except rounding. In floats only, where all constants are known when the model is
        loaded. One number before another one stays: lengths are computed so, and then cut to whole
        numbers, which another rounding could change. What lies between the two sums is a layout, a
        product with a constant, or one more sum, and nothing else reads it; the last of it may be
        read by several sums with constants. A table that something else reads, or that is as large
        as a vocabulary, stays. Without any optimization ONNX Runtime adds the constants in each
        run.
    """

    anchors = ("Add",)
    sentence = "a constant that is added behind another one, a kernel; one sum could do both"

    def match(self, node: ir.Node, view: View) -> BiasSite | None:
        """A sum with a constant, of a sum with a constant or of a norm."""
        if view.shapes.dtype(node.outputs[0]) not in FLOATS:
            return None
        place = varying(node, view)
        if place is None:
            return _tabled(node, view)
        data, constant = node.inputs[place], node.inputs[1 - place]
        if data is None or constant is None:
            return None
        maker = data.producer()
        if is_op(maker, *_NORMS) and only_user(maker) is node and len(maker.outputs) == 1:
            bias = input_at(maker, 2)
            known = maker.inputs[1] in view.fixed and (bias is None or bias in view.fixed)
            fits = known and is_by_feature(constant, maker, view)
            return BiasSite(node, constant, norm=maker) if fits else None
        return _walked(node, data, constant, view)

    def rewrite(self, match: BiasSite, op: Builder) -> ir.Value:
        """One sum."""
        constant = match.constant
        if match.norm is not None:
            data, scale, *bias = match.norm.inputs
            constant = op.Reshape(constant, np.array([-1], np.int64))
            if bias and bias[0] is not None:
                constant = op.Add(bias[0], constant)
            return op.again(match.norm, data, scale, constant)
        assert match.first is not None
        first, place = match.first
        rows, moved = first.inputs[place], first.inputs[1 - place]
        if match.rows is not None:
            table = op.Add(constant, op.Reshape(moved, np.array([-1], np.int64)))
            return op.Add(rows, op.again(match.rows, table, *match.rows.inputs[1:]))
        for kind, given in match.moves:
            if isinstance(given, ir.Value):
                moved = op.make(kind, moved, given)
            elif kind == "Transpose":
                moved = op.Transpose(moved, perm=list(given))
            else:
                moved = op.Reshape(moved, np.array(given, np.int64))
        for step, at in match.steps:
            inputs = list(step.inputs)
            inputs[at] = rows
            rows = op.again(step, *inputs)
        return op.Add(rows, op.Add(constant, moved))


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


def _walked(node: ir.Node, data: ir.Value, constant: ir.Value, view: View) -> BiasSite | None:
    """From a sum back to one before it, if its constant can go the same way."""
    readers = {x for x, _ in data.uses()}
    if data.is_graph_output() or any(
        not is_op(x, "Add") or varying(x, view) is None or x.graph is not node.graph
        for x in readers
    ):
        return None
    steps, value = list[tuple[ir.Node, int]](), data
    while len(steps) < _DEEPEST:
        maker = value.producer()
        if maker is None or maker.graph is not node.graph:
            return None
        if value is not data and only_user(maker) is not steps[0][0]:
            return None
        place = varying(maker, view)
        if is_op(maker, "Add") and place is not None:
            moves = _moves(maker, place, steps, view)
            if moves is None:
                return None
            return BiasSite(
                node, constant, first=(maker, place), steps=tuple(steps), moves=tuple(moves)
            )
        if is_op(maker, "Add"):
            place = _with_bias(maker, view)
        elif is_op(maker, "Transpose", *_VIEWS):
            place = 0
        elif not is_op(maker, "Mul") and not (is_op(maker, "Div") and place == 0):
            return None
        if place is None or (found := maker.inputs[place]) is None:
            return None
        steps.insert(0, (maker, place))
        value = found
    return None


def _with_bias(add: ir.Node, view: View) -> int | None:
    """Which input of a sum of two tensors has had a constant added, for this sum alone."""
    for i, value in enumerate(add.inputs):
        maker = maker_of(value)
        if is_op(maker, "Add") and varying(maker, view) is not None and only_user(maker) is add:
            return i
    return None


def _moves(
    first: ir.Node, place: int, steps: Sequence[tuple[ir.Node, int]], view: View
) -> list[tuple[str, Sequence[int] | ir.Value]] | None:
    """How the constant of ``first`` goes through the steps."""
    before, after = (view.shapes.dims(x) for x in (first.inputs[place], first.outputs[0]))
    dims = view.shapes.dims(first.inputs[1 - place])
    if before is None or after is None or dims is None or not all_same(before, after):
        return None
    sizes = _numbers(dims)
    if math.prod(sizes) == 1:  # perhaps of a length, which may be rounded down after the sum
        return None
    moves: list[tuple[str, Sequence[int] | ir.Value]] = []
    for step, at in steps:
        given, made = view.shapes.dims(step.inputs[at]), view.shapes.dims(step.outputs[0])
        if given is None or made is None:
            return None
        if is_op(step, "Mul", "Div"):
            factor = step.inputs[1 - at]
            other = view.shapes.dims(factor)
            if factor is None or other is None or not all_same(given, made):
                return None
            moves.append((step.op_type, factor))
            sizes = list(np.broadcast_shapes(tuple(sizes), tuple(_numbers(other))))
        elif is_op(step, "Transpose"):
            perm = attr_ints(step, "perm") or range(len(given))[::-1]
            padded = [1] * (len(given) - len(sizes)) + sizes
            sizes = [padded[i] for i in perm]
            moves += [("Reshape", padded), ("Transpose", tuple(perm))]
        elif is_op(step, *_VIEWS):
            laid = _laid(sizes, given, made)
            if laid is None:
                return None
            sizes = laid
            moves.append(("Reshape", laid))
    return moves


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
