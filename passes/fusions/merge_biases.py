"""merge-biases: the manual is the docstring of the class."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import const_of, ints_of
from graphfix.graph.nodes import attr_int, attr_ints, input_at, is_op, producer_of, use_count
from graphfix.graph.walks import reachable_from

from ..common.fusible import (
    FLOATS,
    is_by_feature,
    is_own_constant,
    lies_along,
    only_user,
    only_varying_input,
)

_NORMS = ("LayerNormalization", "InstanceNormalization")
_VIEWS = ("Reshape", "Unsqueeze", "Squeeze")
# Nodes around one sum that a constant is followed through, and readers of one of them.
_MAX_STEPS, _MAX_READERS = 1 << 14, 256
# Of what is added, or multiplied with: a mask's -10000 would take digits off what it is added to.
_MAX_MAGNITUDE = 100.0
_MAX_TABLE_SIZE = (
    1 << 23
)  # numbers of a table that is added to when the model is loaded: not a vocabulary's


@dataclass(frozen=True)
class BiasSite(Match):
    """Constants that are added one after another, and where their sum can be added.

    Attributes:
        constant: The constant that the node adds, or the table whose rows it adds.
        norm: The norm right before the node, which takes the constant as its bias.
        rows: The node that takes rows from the table.
        first: The Add of a constant before those rows are added, and which of its inputs varies.
        steps: The nodes that add constants, and those in between, in order.
        sizes: The dims of the merged constant behind each step.
        ends: The tensors to which the merged constant is added.
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
    """Merges constants that are added one after another into as few Adds as possible.

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
        """Return the site if constants added one after another can be merged."""
        if view.shapes.dtype(node.outputs[0]) not in FLOATS:
            return None
        place = only_varying_input(node, view)
        if place is None:
            return _match_table_rows(node, view) if is_op(node, "Add") else None
        data, constant = node.inputs[place], node.inputs[1 - place]
        maker = producer_of(data)
        if is_op(node, "Add") and is_op(maker, *_NORMS) and only_user(maker) is node:
            bias = input_at(maker, 2)
            is_constant = (
                len(maker.outputs) == 1 and {maker.inputs[1], bias} - {None} <= view.constant_values
            )
            if constant is not None and is_constant and is_by_feature(constant, maker, view):
                return BiasSite(node, constant, norm=maker)
        return _match_sums(node, view) if _adds_constant(node, view) else None

    def rewrite(self, match: BiasSite, op: Builder) -> ir.Value:
        """Build one sum of the merged constants."""
        if match.norm is not None and match.constant is not None:
            data, scale, *bias = match.norm.inputs
            constant = op.Reshape(match.constant, np.array([-1], np.int64))
            if bias and bias[0] is not None:
                constant = op.Add(bias[0], constant)
            return op.clone_node(match.norm, data, scale, constant)
        if match.first is not None and match.rows is not None:
            first, place = match.first
            bias_row = op.Reshape(first.inputs[1 - place], np.array([-1], np.int64))
            table = op.Add(match.constant, bias_row)
            return op.Add(
                first.inputs[place], op.clone_node(match.rows, table, *match.rows.inputs[1:])
            )
        bare, added = dict[ir.Value | None, ir.Value](), dict[ir.Value | None, ir.Value]()
        ends = dict[ir.Value, ir.Value]()
        for step in match.steps:
            output = step.outputs[0]
            with op.inserting_before(step):
                inputs = [bare.get(x, x) for x in step.inputs]
                varying_input = (
                    inputs[only_varying_input(step, op.view) or 0]
                    if _adds_constant(step, op.view)
                    else None
                )
                bare[output] = varying_input or op.clone_node(step, *inputs)
                added[output] = _bias_after(step, match, added, op)
                if output in match.ends:
                    ends[output] = op.Add(bare.pop(output), added.pop(output))
                elif shapes := [(x.node, x.idx) for x in output.uses() if is_op(x.node, "Shape")]:
                    op.redirect_uses(output, shapes, bare[output])
        last = ends.pop(match.node.outputs[0])
        for old, new in ends.items():
            op.replace_and_remove(old, new)
        return last


def _match_table_rows(node: ir.Node, view: View) -> BiasSite | None:
    """Return the site of a sum of table rows and a sum with a constant, or None."""
    bias_place = _input_with_bias(node, view)
    first = None if bias_place is None else producer_of(node.inputs[bias_place])
    rows = None if bias_place is None else producer_of(node.inputs[1 - bias_place])
    place = None if first is None else only_varying_input(first, view)
    if first is None or rows is None or place is None or only_user(rows) is not node:
        return None
    takes_rows = is_op(rows, "Gather") and attr_int(rows, "axis", 0) == 0
    takes_rows = takes_rows or (is_op(rows, "Slice") and ints_of(input_at(rows, 3)) == (0,))
    table, rank = rows.inputs[0], view.shapes.rank(first.outputs[0])
    dims = view.shapes.dims(table)
    if not takes_rows or table is None or not is_own_constant(table, view) or rank is None:
        return None
    if dims is None or len(dims) != 2 or math.prod(_static_dims(dims)) > _MAX_TABLE_SIZE:
        return None
    fits = lies_along(first.inputs[1 - place], dims[1], 0, rank, view)
    return BiasSite(node, table, rows=rows, first=(first, place)) if fits else None


def _adds_constant(node: ir.Node, view: View) -> bool:
    """Return whether a node adds or subtracts a constant and keeps the dims."""
    place = only_varying_input(node, view)
    if place is None or not is_op(node, "Add", *("Sub",) * (place == 0)):
        return False
    dims = [view.shapes.dims(x) for x in (node.inputs[place], *node.outputs)]
    constant_dims = view.shapes.dims(node.inputs[1 - place])
    return (
        same_dims(*dims)
        and constant_dims is not None
        and len(_static_dims(constant_dims)) == len(constant_dims)
    )


def _carries_constant(node: ir.Node, view: View) -> bool:
    """Return whether a constant added to an input can be added to the output instead."""
    place = only_varying_input(node, view)
    if is_op(node, "Add", "Sub") and (place is None or _adds_constant(node, view)):
        return True
    if is_op(node, "MatMul") and place is None:
        # The weights of a row are 1 together, where there is one for itself at least.
        weights, dims = producer_of(node.inputs[0]), view.shapes.dims(node.inputs[0]) or ()
        last = is_op(weights, "Softmax") and attr_int(weights, "axis", 1) in (-1, len(dims) - 1)
        return last and same_dims(dims[-1:], dims[-2:-1])
    if is_op(node, "MatMul"):  # An activation right behind it is in its kernel.
        precise = view.shapes.dtype(node.outputs[0]) == ir.DataType.FLOAT
        return precise and place == 0 and is_op(only_user(node), "Add", "Sub")
    if is_op(node, "Div"):
        return place == 0
    return is_op(node, "Transpose", *_VIEWS) or (is_op(node, "Mul") and place is not None)


def _match_sums(node: ir.Node, view: View) -> BiasSite | None:
    """Return the site of sums with constants that starts here, if fewer sums will do."""
    blocked = set[ir.Value]()

    @cache
    def next_steps(step: ir.Node) -> list[ir.Node]:
        """Return the readers that a constant can pass next; [] where it must be added."""
        output, readers = step.outputs[0], list[ir.Node]()
        if (
            output not in blocked
            and not output.is_graph_output()
            and use_count(output) <= _MAX_READERS
        ):
            # A Shape is the same without what is added.
            readers = [x.node for x in output.uses() if not is_op(x.node, "Shape")]
        return (
            readers
            if all(x.graph is step.graph and _carries_constant(x, view) for x in readers)
            else []
        )

    def related_steps(step: ir.Node) -> Iterator[ir.Node]:
        """Yield the steps that may involve the same constants."""
        yield from next_steps(step)
        makers = (None if x in view.constant_values else producer_of(x) for x in step.inputs)
        yield from (
            x for x in makers if x is not None and _carries_constant(x, view) and next_steps(x)
        )

    while True:
        scaled = dict[ir.Node, ir.Node | None]()
        for i, step in enumerate(reachable_from([node], related_steps)):
            if _adds_constant(step, view):
                maker = producer_of(step.inputs[only_varying_input(step, view) or 0])
                scaled[step] = maker if is_op(maker, "Mul") else None
                earlier = view.node_positions.get(step, -1) < view.node_positions.get(node, -1)
                if i > _MAX_STEPS or (earlier and scaled[step] is None):
                    return None
        # The bias of a norm in pieces, or of an affine, is in the kernel that these become.
        carried = set(reachable_from(scaled, next_steps))
        sums = {x for x, factor in scaled.items() if factor is None or factor in carried}
        carried = set(reachable_from(sums, next_steps))
        ends = {x.outputs[0] for x in carried if not next_steps(x)}
        if len(sums) <= len(ends):
            return None
        # No later than it has to be: behind a layout or a sum it may keep others from being fused.
        early = set[ir.Value]()
        for last in (x for x in carried if x.outputs[0] in ends):
            step = last
            while step not in sums:
                makers = [
                    x for x in map(producer_of, step.inputs) if x in carried and next_steps(x)
                ]
                if len(makers) != 1 or len(next_steps(makers[0])) != 1:
                    break
                step = makers[0]
            if step is not last:
                early.add(step.outputs[0])
        if early:
            blocked |= early
            next_steps.cache_clear()
            continue
        steps = [x for x in node.graph or () if x in carried]
        if next(x for x in steps if x in sums) is not node or not _has_small_constants(steps, view):
            return None
        sizes: dict[ir.Value | None, list[int]] = {}
        for step in steps:
            input_sizes = {x: sizes[x] for x in step.inputs if x in sizes and x not in ends}
            output_sizes = _bias_sizes_after(step, input_sizes, view)
            if output_sizes is None:
                blocked.update(x for x in input_sizes if x is not None)
                next_steps.cache_clear()
                break
            sizes[step.outputs[0]] = output_sizes
        else:
            return BiasSite(steps[-1], steps=tuple(steps), sizes=sizes, ends=ends)


def _has_small_constants(steps: Sequence[ir.Node], view: View) -> bool:
    """Return whether no constant is so large that numbers lose digits, as a mask's is.

    A single number may be part of a length that is rounded down after the sum: at least one
    constant must be a list.
    """
    has_list = False
    for step in steps:
        place = only_varying_input(step, view)
        if place is not None and is_op(step, "Add", "Sub", "Mul", "Div"):
            array = const_of(step.inputs[1 - place], _MAX_TABLE_SIZE)
            if array is None or not array.size:
                return False
            least, most = float(np.abs(array).min()), float(np.abs(array).max())
            if (least < 1 / _MAX_MAGNITUDE) if is_op(step, "Div") else (most > _MAX_MAGNITUDE):
                return False
            has_list = has_list or (array.size > 1 and _adds_constant(step, view))
    return has_list


def _bias_sizes_after(
    step: ir.Node, sizes: Mapping[ir.Value | None, list[int]], view: View
) -> list[int] | None:
    """Return the dims of the merged constant behind a step, from those before it."""
    place, out_dims = only_varying_input(step, view), view.shapes.dims(step.outputs[0])
    constant_dims = view.shapes.dims(step.inputs[(place or 0) - 1]) or ()
    if out_dims is None:
        return None
    if is_op(step, "Add", "Sub", "Mul", "Div"):
        parts = [*sizes.values(), *([] if place is None else [_static_dims(constant_dims)])]
        broadcast_sizes = list(np.broadcast_shapes(*map(tuple, parts)))
        return broadcast_sizes if math.prod(broadcast_sizes) <= _MAX_TABLE_SIZE else None
    ((data, bias_sizes),) = sizes.items()
    data_dims = view.shapes.dims(data)
    if data_dims is None:
        return None
    if is_op(step, "MatMul") and place is None:
        new_sizes = bias_sizes if bias_sizes[-2:-1] in ([], [1]) else None
    elif is_op(step, "MatMul"):
        wide = _static_dims(constant_dims)
        new_sizes = [*bias_sizes[:-1], wide[1]] if len(wide) == 2 == len(constant_dims) else None
    elif is_op(step, "Transpose"):
        padded = [1] * (len(data_dims) - len(bias_sizes)) + bias_sizes
        new_sizes = [padded[i] for i in attr_ints(step, "perm") or range(len(data_dims))[::-1]]
    else:
        new_sizes = _reshaped_sizes(bias_sizes, data_dims, out_dims)
    return new_sizes if new_sizes is not None and math.prod(new_sizes) <= _MAX_TABLE_SIZE else None


def _bias_after(
    step: ir.Node, match: BiasSite, added: Mapping[ir.Value | None, ir.Value], op: Builder
) -> ir.Value:
    """Build the merged constant behind a step, from the one before it."""
    place = only_varying_input(step, op.view)
    constant = None if place is None else step.inputs[place - 1]
    if is_op(step, "Add", "Sub"):
        lhs, rhs = (constant if x is constant else added.get(x) for x in step.inputs)
        if lhs is not None and rhs is not None:
            return op.make(step.op_type, lhs, rhs)
        operand = rhs if lhs is None else lhs
        assert operand is not None
        return op.Neg(operand) if lhs is None and is_op(step, "Sub") else operand
    data = next(x for x in step.inputs if x in added)
    bias, sizes = added[data], match.sizes[data]
    if is_op(step, "MatMul") and place is None:
        return bias
    if is_op(step, "MatMul"):
        depth = (op.view.shapes.dims(constant) or ())[0]
        if sizes[-1:] != [depth]:
            bias = op.Expand(bias, np.array([*sizes[:-1], depth], np.int64))
        return op.MatMul(bias, constant)
    if is_op(step, "Transpose"):
        padded = np.array([1] * ((op.view.shapes.rank(data) or 0) - len(sizes)) + sizes, np.int64)
        return op.Transpose(op.Reshape(bias, padded), perm=attr_ints(step, "perm"))
    if is_op(step, *_VIEWS):
        return op.Reshape(bias, np.array(match.sizes[step.outputs[0]], np.int64))
    return op.make(step.op_type, bias, constant)


def _input_with_bias(add: ir.Node, view: View) -> int | None:
    """Return which input of a sum has a constant added for this sum alone, or None."""
    for i, value in enumerate(add.inputs):
        maker = producer_of(value)
        if (
            is_op(maker, "Add")
            and only_varying_input(maker, view) is not None
            and only_user(maker) is add
        ):
            return i
    return None


def _static_dims(dims: Sequence[Dim]) -> list[int]:
    """Return the dims that are integers."""
    return [x for x in dims if isinstance(x, int)]


def _reshaped_sizes(
    sizes: Sequence[int], before: Sequence[object], after: Sequence[object]
) -> list[int] | None:
    """Return the dims of a constant once the tensor it is added to is reshaped, or None.

    It has a number for each element of the last axes, which become others as the last ones.
    """
    count = math.prod(sizes)
    while sizes and sizes[0] == 1:
        sizes = sizes[1:]
    if list(before[len(before) - len(sizes) :]) != list(sizes):
        return None
    new_sizes = list[int]()
    for dim in reversed(after):
        if math.prod(new_sizes) == count:
            break
        if not isinstance(dim, int):
            return None
        new_sizes.insert(0, dim)
    return new_sizes if math.prod(new_sizes) == count else None
