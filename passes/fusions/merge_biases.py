"""merge-biases: the manual is the docstring of the class."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_ints, input_at, is_op, producer_of, use_count
from graphfix.graph.walks import reachable_from
from graphfix.ops.axes import axis_of, permutation_of
from graphfix.ops.slices import sliced_axes
from graphfix.ops.softmax import is_along_last_axis

from ..common.fusible import (
    FLOATS,
    is_by_feature,
    is_own_constant,
    lies_along,
    only_user,
    only_varying_input,
)

# Nodes around one sum that a constant is followed through, and readers of one of them.
_MAX_STEPS, _MAX_READERS = 1 << 14, 256
# Of what is added, or multiplied with: a mask's -10000 would take digits off what it is added to.
_MAX_MAGNITUDE = 100.0
# Numbers of a table that is added to when the model is loaded: not a vocabulary's.
_MAX_TABLE_SIZE = 1 << 23


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

    Left alone:
        A constant before another that only one of two readers could carry:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        twice (float[B, T, 4] x) => (float[B, T, 4] y, float[B, T, 4] z)
        <float[4] b = {1, 2, 3, 4}, float[4] c = {5, -6, 7, 8}>
        {
            a = Add (x, b)
            z = Relu (a)
            y = Add (a, c)
        }

    Safety:
        Exact, except rounding. In floats only, and through a product with weights in float32 only,
        since float16 rounds what becomes of the constants. What several sums add, and are
        multiplied with, has to be in the file, and not over 100, as a mask's numbers are: beside
        them others lose their digits. Numbers alone stay: lengths are computed so, and then cut to
        whole numbers, which another rounding could change. What a caller reads, what an activation
        or a norm reads, what over 256 nodes read, and what over 16,384 have to do with, is added
        there as before. A table that something else reads, or that is as large as a vocabulary,
        stays, and so do equal sums, which ONNX Runtime computes once. Without any optimization it
        computes the constants in each run.
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
        site = _match_norm(node, place, view) if is_op(node, "Add") else None
        if site is not None or not _adds_constant(node, view):
            return site
        return _ConstantFlow(node, view).find_site()

    def rewrite(self, match: BiasSite, op: Builder) -> ir.Value:
        """Build one sum of the merged constants."""
        if match.norm is not None and match.constant is not None:
            return _build_norm(match.norm, match.constant, op)
        if match.first is not None and match.rows is not None:
            return _build_table_rows(match.constant, match.rows, *match.first, op)
        return _build_sums(match, op)


def _match_norm(node: ir.Node, place: int, view: View) -> BiasSite | None:
    """Return the site of a constant that is added behind a norm, as its bias could be; or None."""
    norm, constant = producer_of(node.inputs[place]), node.inputs[1 - place]
    if not is_op(norm, "LayerNormalization", "InstanceNormalization") or constant is None:
        return None
    if only_user(norm) is not node or len(norm.outputs) > 1:
        return None
    factors = {norm.inputs[1], input_at(norm, 2)} - {None}
    if not factors <= view.constant_values or not is_by_feature(constant, norm, view):
        return None
    return BiasSite(node, constant, norm=norm)


def _build_norm(norm: ir.Node, constant: ir.Value, op: Builder) -> ir.Value:
    """Build a norm with a constant in its bias."""
    data, scale, *bias = norm.inputs
    constant = op.Reshape(constant, np.array([-1], np.int64))
    if bias and bias[0] is not None:
        constant = op.Add(bias[0], constant)
    return op.clone_node(norm, data, scale, constant)


def _match_table_rows(node: ir.Node, view: View) -> BiasSite | None:
    """Return the site of a sum of table rows and a sum with a constant, or None."""
    bias_place = _input_with_bias(node, view)
    if bias_place is None:
        return None
    first, rows = (producer_of(node.inputs[i]) for i in (bias_place, 1 - bias_place))
    place = None if first is None else only_varying_input(first, view)
    if first is None or rows is None or place is None or only_user(rows) is not node:
        return None
    table, rank = _table_of(rows, view), view.shapes.rank(first.outputs[0])
    if table is None or rank is None:
        return None
    width = (view.shapes.dims(table) or ())[1]
    fits = lies_along(first.inputs[1 - place], width, 0, rank, view)
    return BiasSite(node, table, rows=rows, first=(first, place)) if fits else None


def _table_of(rows: ir.Node, view: View) -> ir.Value | None:
    """Return the constant table that a node alone takes whole rows of, or None."""
    table, opset = rows.inputs[0] if rows.inputs else None, view.opset_of_node(rows)
    dims = view.shapes.dims(table)
    if table is None or dims is None or len(dims) != 2 or not is_own_constant(table, view):
        return None
    if math.prod(_static_dims(dims)) > _MAX_TABLE_SIZE:
        return None
    takes_rows = is_op(rows, "Gather") and axis_of(rows, 2, opset) == 0
    takes_rows = takes_rows or (is_op(rows, "Slice") and sliced_axes(rows, 2) == (0,))
    return table if takes_rows else None


def _build_table_rows(
    table: ir.Value | None, rows: ir.Node, first: ir.Node, place: int, op: Builder
) -> ir.Value:
    """Build the sum of rows of a table, a constant added to all of them, and what varies."""
    bias_row = op.Reshape(first.inputs[1 - place], np.array([-1], np.int64))
    table = op.Add(table, bias_row)
    return op.Add(first.inputs[place], op.clone_node(rows, table, *rows.inputs[1:]))


def _build_sums(match: BiasSite, op: Builder) -> ir.Value:
    """Build the steps without constants, the merged constant behind each, and a sum at each end."""
    bare, added = dict[ir.Value | None, ir.Value](), dict[ir.Value | None, ir.Value]()
    ends = dict[ir.Value, ir.Value]()
    for step in match.steps:
        output = step.outputs[0]
        with op.inserting_before(step):
            inputs = [bare.get(x, x) for x in step.inputs]
            place = only_varying_input(step, op.view) or 0
            varying_input = inputs[place] if _adds_constant(step, op.view) else None
            bare[output] = varying_input or op.clone_node(step, *inputs)
            added[output] = _build_bias(step, match.sizes, added, op)
            if output in match.ends:
                ends[output] = op.Add(bare.pop(output), added.pop(output))
            elif shapes := [(x, i) for x, i in output.uses() if is_op(x, "Shape")]:
                op.redirect_uses(shapes, bare[output])
    last = ends.pop(match.node.outputs[0])
    for old, new in ends.items():
        op.replace_and_remove(old, new)
    return last


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
    if is_op(node, "MatMul"):
        return _weighs_rows(node, view) if place is None else _has_weight(node, place, view)
    if is_op(node, "Div"):
        return place == 0
    if is_op(node, "Mul"):
        return place is not None
    return is_op(node, "Transpose") or node in ops.RESHAPES


def _weighs_rows(product: ir.Node, view: View) -> bool:
    """Return whether a MatMul sums rows with the weights of a Softmax, which are 1 together.

    That is so where there is a row at least, as of attention to itself.
    """
    softmax, dims = producer_of(product.inputs[0]), view.shapes.dims(product.inputs[0]) or ()
    if not is_op(softmax, "Softmax") or not same_dims(dims[-1:], dims[-2:-1]):
        return False
    return is_along_last_axis(softmax, len(dims), view.opset_of_node(softmax))


def _has_weight(product: ir.Node, place: int, view: View) -> bool:
    """Return whether a MatMul in float32 multiplies with a weight, before a sum."""
    is_precise = view.shapes.dtype(product.outputs[0]) == ir.DataType.FLOAT
    # An activation right behind it is in its kernel.
    return is_precise and place == 0 and is_op(only_user(product), "Add", "Sub")


@dataclass(frozen=True)
class _Plan:
    """Sums with constants, and where one sum each will do.

    Attributes:
        sums: The nodes that add constants now.
        carried: These, and the nodes that their constants are carried through.
        ends: The tensors to which the merged constants have to be added.
    """

    sums: set[ir.Node]
    carried: set[ir.Node]
    ends: set[ir.Value]


class _ConstantFlow:
    """Where the constants can be added that a sum adds, and others that meet them.

    A constant is carried from a sum to all readers of the result, while each of them can add it to
    its own result instead. Where one cannot, the result is an end: there the merged constants of
    all sums before are added. A blocked result is an end, too.

    Args:
        start: The first sum with a constant.
        view: The model.
    """

    def __init__(self, start: ir.Node, view: View) -> None:
        self._start, self._view = start, view
        self._blocked: set[ir.Value] = set()
        self._next_steps_by_node: dict[ir.Node, list[ir.Node]] = {}

    def find_site(self) -> BiasSite | None:
        """Return the site if fewer sums will do, and the start is the first of them."""
        while (plan := self._plan()) is not None:
            if early_ends := self._early_ends(plan):
                self._block(early_ends)
                continue
            steps = [x for x in self._start.graph or () if x in plan.carried]
            if next(x for x in steps if x in plan.sums) is not self._start:
                return None
            sizes = self._bias_sizes(steps, plan.ends)
            if sizes is None:
                continue  # with one more end
            if not _has_small_constants(steps, self._view) or self._has_twins(plan.sums):
                return None
            return BiasSite(steps[-1], steps=tuple(steps), sizes=sizes, ends=plan.ends)
        return None

    def _plan(self) -> _Plan | None:
        """Return the sums and ends as results are blocked now, or None if no sum is spared."""
        factors = self._factors_before_sums()
        if factors is None:
            return None
        # The bias of a norm in pieces, or of an affine, is in the kernel that these become.
        carried = set(reachable_from(factors, self._next_steps))
        sums = {x for x, factor in factors.items() if factor is None or factor in carried}
        carried = set(reachable_from(sums, self._next_steps))
        ends = {x.outputs[0] for x in carried if not self._next_steps(x)}
        return _Plan(sums, carried, ends) if len(sums) > len(ends) else None

    def _factors_before_sums(self) -> dict[ir.Node, ir.Node | None] | None:
        """Return all sums whose constants may meet, each with the Mul right before it.

        None if there are too many nodes to look at, or one of the sums lies before the start.
        """
        view, factors = self._view, dict[ir.Node, ir.Node | None]()
        positions = view.node_positions
        for i, step in enumerate(reachable_from([self._start], self._related_steps)):
            if not _adds_constant(step, view):
                continue
            maker = producer_of(step.inputs[only_varying_input(step, view) or 0])
            factors[step] = maker if is_op(maker, "Mul") else None
            is_earlier = positions.get(step, -1) < positions.get(self._start, -1)
            if i > _MAX_STEPS or (is_earlier and factors[step] is None):
                return None
        return factors

    def _next_steps(self, step: ir.Node) -> list[ir.Node]:
        """Return the readers that carry the constant of a result on; [] if it is an end."""
        if step not in self._next_steps_by_node:
            self._next_steps_by_node[step] = self._find_next_steps(step)
        return self._next_steps_by_node[step]

    def _find_next_steps(self, step: ir.Node) -> list[ir.Node]:
        output = step.outputs[0]
        if output in self._blocked or output.is_graph_output() or use_count(output) > _MAX_READERS:
            return []
        # A Shape is the same without what is added.
        readers = [x for x, _ in output.uses() if not is_op(x, "Shape")]
        all_carry = all(x.graph is step.graph and _carries_constant(x, self._view) for x in readers)
        return readers if all_carry else []

    def _related_steps(self, step: ir.Node) -> Iterator[ir.Node]:
        """Yield the steps that may carry the same constants."""
        yield from self._next_steps(step)
        for value in step.inputs:
            maker = None if value in self._view.constant_values else producer_of(value)
            carries = maker is not None and _carries_constant(maker, self._view)
            if maker is not None and carries and self._next_steps(maker):
                yield maker

    def _block(self, values: Iterable[ir.Value | None]) -> None:
        """Let constants be added to these results at the latest."""
        self._blocked.update(x for x in values if x is not None)
        self._next_steps_by_node.clear()

    def _early_ends(self, plan: _Plan) -> set[ir.Value]:
        """Return the results to which constants can be added sooner, with as few sums.

        Behind a layout or a sum of two tensors they may keep others from being fused.
        """
        lasts = [x for x in plan.carried if x.outputs[0] in plan.ends]
        earliest = {last: self._earliest_end(last, plan) for last in lasts}
        return {x.outputs[0] for last, x in earliest.items() if x is not last}

    def _earliest_end(self, last: ir.Node, plan: _Plan) -> ir.Node:
        """Return the first node from which a constant is carried to an end and nowhere else."""
        step = last
        while step not in plan.sums:
            carriers = (x for x in map(producer_of, step.inputs) if x in plan.carried)
            makers = [x for x in carriers if self._next_steps(x)]
            if len(makers) != 1 or len(self._next_steps(makers[0])) != 1:
                break
            step = makers[0]
        return step

    def _bias_sizes(
        self, steps: Sequence[ir.Node], ends: set[ir.Value]
    ) -> dict[ir.Value | None, list[int]] | None:
        """Return the dims of the merged constant behind each step.

        None if a step cannot carry one of its dims; what it reads is blocked then.
        """
        sizes: dict[ir.Value | None, list[int]] = {}
        for step in steps:
            input_sizes = {x: sizes[x] for x in step.inputs if x in sizes and x not in ends}
            output_sizes = _bias_sizes_after(step, input_sizes, self._view)
            if output_sizes is None:
                self._block(input_sizes)
                return None
            sizes[step.outputs[0]] = output_sizes
        return sizes

    def _has_twins(self, sums: set[ir.Node]) -> bool:
        """Return whether another node computes what one of the sums does.

        ONNX Runtime computes both once, and their readers: one changed alone would be one more.
        """
        number_of = self._view.numbering.number_of
        numbers = {number_of(x.outputs[0]) for x in sums}
        others = (x for x in self._view.nodes("Add", "Sub") if x not in sums)
        return len(numbers) < len(sums) or any(number_of(x.outputs[0]) in numbers for x in others)


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
    if is_op(step, "Add", "Sub", "Mul", "Div"):
        place = only_varying_input(step, view)
        constant_dims = view.shapes.dims(step.inputs[(place or 0) - 1]) or ()
        parts = [*sizes.values(), *([] if place is None else [_static_dims(constant_dims)])]
        new_sizes: list[int] | None = list(np.broadcast_shapes(*map(tuple, parts)))
    else:
        ((data, bias_sizes),) = sizes.items()
        new_sizes = _moved_sizes(step, data, bias_sizes, view)
    return new_sizes if new_sizes is not None and math.prod(new_sizes) <= _MAX_TABLE_SIZE else None


def _moved_sizes(
    step: ir.Node, data: ir.Value | None, sizes: list[int], view: View
) -> list[int] | None:
    """Return the dims of a constant behind a MatMul, a Transpose or a view of ``data``."""
    if is_op(step, "MatMul") and only_varying_input(step, view) is None:
        return sizes if sizes[-2:-1] in ([], [1]) else None
    if is_op(step, "MatMul"):
        weight_dims = view.shapes.dims(step.inputs[1]) or ()
        is_matrix = len(_static_dims(weight_dims)) == 2 == len(weight_dims)
        return [*sizes[:-1], *_static_dims(weight_dims[1:])] if is_matrix else None
    dims, new_dims = view.shapes.dims(data), view.shapes.dims(step.outputs[0])
    if dims is None or new_dims is None:
        return None
    if is_op(step, "Transpose"):
        padded = [1] * (len(dims) - len(sizes)) + sizes
        return [padded[i] for i in permutation_of(step, len(dims))] or None
    return _reshaped_sizes(sizes, dims, new_dims)


def _build_bias(
    step: ir.Node,
    sizes: Mapping[ir.Value | None, list[int]],
    added: Mapping[ir.Value | None, ir.Value],
    op: Builder,
) -> ir.Value:
    """Build the merged constant behind a step, from the one before it."""
    place = only_varying_input(step, op.view)
    constant = None if place is None else step.inputs[place - 1]
    if is_op(step, "Add", "Sub"):
        return _build_sum_of_biases(step, constant, added, op)
    data = next(x for x in step.inputs if x in added)
    bias, bias_sizes = added[data], sizes[data]
    if is_op(step, "MatMul"):
        if place is None:
            return bias
        depth = (op.view.shapes.dims(constant) or ())[0]
        if bias_sizes[-1:] != [depth]:
            bias = op.Expand(bias, np.array([*bias_sizes[:-1], depth], np.int64))
        return op.MatMul(bias, constant)
    if is_op(step, "Transpose"):
        rank = op.view.shapes.rank(data) or 0
        padded = np.array([1] * (rank - len(bias_sizes)) + bias_sizes, np.int64)
        return op.Transpose(op.Reshape(bias, padded), perm=attr_ints(step, "perm"))
    if step in ops.RESHAPES:
        return op.Reshape(bias, np.array(sizes[step.outputs[0]], np.int64))
    return op.make(step.op_type, bias, constant)


def _build_sum_of_biases(
    step: ir.Node,
    constant: ir.Value | None,
    added: Mapping[ir.Value | None, ir.Value],
    op: Builder,
) -> ir.Value:
    """Build what an Add or Sub makes of its constant and of those behind its inputs."""
    lhs, rhs = (constant if x is constant else added.get(x) for x in step.inputs)
    if lhs is not None and rhs is not None:
        return op.make(step.op_type, lhs, rhs)
    operand = rhs if lhs is None else lhs
    assert operand is not None
    return op.Neg(operand) if lhs is None and is_op(step, "Sub") else operand


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
