"""join-conditions: the manual is the docstring of the class."""

import math
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import is_op
from graphfix.ops.axes import axis_of
from graphfix.ops.products import read_gemm
from graphfix.ops.slices import cuts_of_slice, python_slice
from graphfix.wording import group_pairs, plural

from ..common.fusible import FLOATS, is_plain_gemm, is_weight, readers_in_graph
from ..common.reshape_targets import with_axes

# Kernels that it must spare, as of join-products.
_MIN_SPARED_KERNELS = 2
# The numbers of a weight that is made: 1 GB in float32. Protobuf has tensors of up to 2 GB.
_MAX_WEIGHT_SIZE = 1 << 28


@dataclass(frozen=True)
class Part:
    """Adjacent features of a product, as they are read.

    Attributes:
        value: The tensor of the features, with dims of 1 at some axes.
        start: The first feature.
        size: The number of features.
        batch: The axis of the rows in ``value``.
        axis: The axis of the features in ``value``.
        rank: The number of dims of ``value``: all others are 1.
        added: The number that is added to each feature.
    """

    value: ir.Value
    start: int
    size: int
    batch: int = 0
    axis: int = 1
    rank: int = 2
    added: float = 0.0

    @property
    def layout(self) -> tuple[int, int, int]:
        """Return the axes and the rank, which joined parts have in common."""
        return self.batch, self.axis, self.rank


@dataclass(frozen=True)
class Condition:
    """A Gemm of rows.

    Attributes:
        gemm: The node.
        parts: All parts of its features, in order, each read once.
        kernels: How many kernels the Gemm and its views take.
    """

    gemm: ir.Node
    parts: tuple[Part, ...]
    kernels: int


@dataclass(frozen=True)
class ConditionsSite(Match):
    """Products of one vector that condition several blocks.

    Attributes:
        conditions: The products, in the order of the graph.
    """

    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class JoinConditions(NodePass[ConditionsSite]):
    """Joins the products of one vector that give scales, shifts and gates to many blocks.

    A style, a speaker or the time of a diffusion step goes through a Gemm in each block, gets dims
    of 1, is split in two or six, and 1 is added to its scales: AdaIN in StyleTTS 2 and Kokoro, the
    norms of diffusion transformers, U-Nets. One Gemm, one view and one Split make them for all
    blocks. Weights and biases are put side by side by a Concat in the graph: ONNX Runtime does that
    once, when it loads the model (constant folding), so no weight is read, moved or written twice.
    What is added goes into the bias. Queries, keys and values of a sequence without a batch are
    made so as well.

    Why:
        By `graphfix plan` of exports by dynamo, kernels on the device: 235 are left where 328 were
        in a vocoder as Kokoro has it (332 as exported), 79 where 111 were in a diffusion
        transformer of three layers (184), 45 where 74 were in a decoder as StyleTTS 2 has it (75).
        Run on onnxruntime-directml 1.24.4, all three agree with the CPU (2.9e-6, 4.8e-7 and
        7.5e-7), and so does a Split of 1,000 parts. 29 are left where 35 were in two layers of the
        official encoder of Qwen3-ASR (70), whose sequences have no batch.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        blocks (float[B, 4, T] x, float[B, 3] style) => (float[B, 4, T] y)
        <float[8, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6},
         float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}, float one = {1}, int64[1] last = {2},
         float[4, 3] v = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, float[4] c = {1, 2, 3, 4}>
        {
            first = Gemm <transB = 1> (style, w, b)
            wide = Unsqueeze (first, last)
            gain, shift = Split <axis = 1> (wide)
            scale = Add (gain, one)
            scaled = Mul (x, scale)
            shifted = Add (scaled, shift)
            active = Relu (shifted)
            second = Gemm <transB = 1> (style, v, c)
            more = Unsqueeze (second, last)
            y = Add (active, more)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        blocks (float[B, 4, T] x, float[B, 3] style) => (float[B, 4, T] y)
        <float[8, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6},
         float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}, int64[1] last = {2},
         float[4, 3] v = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, float[4] c = {1, 2, 3, 4},
         float[12] ones = {1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}, int64[3] sizes = {4, 4, 4}>
        {
            weight = Concat <axis = 0> (w, v)
            biases = Concat <axis = 0> (b, c)
            bias = Add (biases, ones)
            rows = Gemm <transB = 1> (style, weight, bias)
            all = Unsqueeze (rows, last)
            scale, shift, more = Split <axis = 1> (all, sizes)
            scaled = Mul (x, scale)
            shifted = Add (scaled, shift)
            active = Relu (shifted)
            y = Add (active, more)
        }

    Left alone:
        One product alone:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        single (float[B, 4, T] x, float[B, 3] style) => (float[B, 4, T] y)
        <float[8, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6},
         float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}, int64[1] last = {2}>
        {
            first = Gemm <transB = 1> (style, w, b)
            wide = Unsqueeze (first, last)
            gain, shift = Split <axis = 1> (wide)
            scaled = Mul (x, gain)
            y = Add (scaled, shift)
        }

        Products with a factor:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        factors (float[B, 4, T] x, float[B, 3] style) => (float[B, 4, T] y)
        <float[8, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6},
         float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}, int64[1] last = {2},
         float[4, 3] v = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, float[4] c = {1, 2, 3, 4}>
        {
            first = Gemm <alpha = 2.0, transB = 1> (style, w, b)
            wide = Unsqueeze (first, last)
            scale, shift = Split <axis = 1> (wide)
            scaled = Mul (x, scale)
            shifted = Add (scaled, shift)
            active = Relu (shifted)
            second = Gemm <alpha = 2.0, transB = 1> (style, v, c)
            more = Unsqueeze (second, last)
            y = Add (active, more)
        }

        Products of which only a part is read:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        parts (float[B, 4, T] x, float[B, 3] style) => (float[B, 4, T] y)
        <float[8, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6},
         float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}, int64[1] last = {2}, int64[1] axis = {1},
         float[8, 3] v = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6},
         float[8] c = {1, 2, 3, 4, 5, 6, 7, 8}, int64[1] start = {0}, int64[1] half = {4}>
        {
            first = Gemm <transB = 1> (style, w, b)
            wide = Unsqueeze (first, last)
            scale = Slice (wide, start, half, axis)
            scaled = Mul (x, scale)
            active = Relu (scaled)
            second = Gemm <transB = 1> (style, v, c)
            more = Unsqueeze (second, last)
            shift = Slice (more, start, half, axis)
            y = Add (active, shift)
        }

    Safety:
        Exact, except rounding. Without any optimization ONNX Runtime copies the weights in each
        run; what is put side by side has 1 GB at most. A quantizer that runs after it does not see
        the weights; so it is done where it spares two kernels at least. Left as they are: products
        of which a part is an output, or not read, or read twice; views that differ; and weights
        that are inputs or go into another operator too.
    """

    anchors = ("Gemm",)

    def match(self, node: ir.Node, view: View) -> ConditionsSite | None:
        """Return the site at the first of several products of one vector."""
        data = node.inputs[0]
        if data is None or data in view.constant_values or view.shapes.dtype(data) not in FLOATS:
            return None
        if view.opset_of_node(node) < 13:
            return None
        conditions = _conditions_like(node, data, view)
        if not conditions or conditions[0].gemm is not node:
            return None
        first_part = conditions[0].parts[0]
        joined_kernels = 2 + (first_part.rank > 2)
        if sum(x.kernels for x in conditions) - joined_kernels < _MIN_SPARED_KERNELS:
            return None
        return ConditionsSite(first_part.value.producer() or node, conditions)

    def message(self, site: Match) -> str:
        """Describe how many products are joined."""
        count = len(site.conditions) if isinstance(site, ConditionsSite) else 0
        return f"{plural(count, 'product')} of one vector, and views of each; one does for all"

    def rewrite(self, match: ConditionsSite, op: Builder) -> ir.Value:
        """Build all products as one, and return the first part."""
        gemms, first = [x.gemm for x in match.conditions], match.conditions[0].gemm
        parts = [part for x in match.conditions for part in x.parts]
        dtype = (op.view.shapes.dtype(first.inputs[0]) or ir.DataType.FLOAT).numpy()
        trans_b = int(read_gemm(first).trans_b)
        with op.inserting_before(first):
            weight = op.Concat(*(x.inputs[1] for x in gemms), axis=1 - trans_b)
            bias = op.Concat(*(x.inputs[2] for x in gemms), axis=0)
            if any(x.added for x in parts):
                added = [np.full(x.size, x.added, dtype) for x in parts]
                bias = op.Add(bias, np.concatenate(added))
            product = op.Gemm(first.inputs[0], weight, bias, transB=trans_b)
            batch, axis, rank = parts[0].layout
            unit_axes = [i for i in range(rank) if i not in (batch, axis)]
            product = with_axes("Unsqueeze", product, unit_axes, op)
            sizes = np.array([x.size for x in parts], np.int64)
            split = op.make_outputs("Split", (True,) * len(parts), product, sizes, axis=axis)
        for part, new in zip(parts[1:], split[1:], strict=True):
            op.replace_and_remove(part.value, new)
        return split[0]


def _conditions_like(node: ir.Node, data: ir.Value, view: View) -> tuple[Condition, ...]:
    """Return the conditions of one vector that can be joined with that of a Gemm, in order.

    As many as one weight can hold; none if the Gemm is no condition.
    """
    own_condition = _condition_of(node, view)
    if own_condition is None:
        return ()
    gemms = readers_in_graph(node, data)
    conditions = [x for x in (_condition_of(x, view) for x in gemms) if x is not None]
    similar = group_pairs((_join_key(x), x) for x in conditions)[_join_key(own_condition)]
    weights = (view.shapes.dims(x.gemm.inputs[1]) or () for x in similar)
    totals = accumulate(math.prod(d for d in x if isinstance(d, int)) for x in weights)
    fitting = zip(similar, totals, strict=True)
    return tuple(x for x, total in fitting if total <= _MAX_WEIGHT_SIZE)


def _join_key(condition: Condition) -> tuple[tuple[int, int, int], bool]:
    """Return what conditions must have in common to be joined."""
    return condition.parts[0].layout, read_gemm(condition.gemm).trans_b


def _condition_of(gemm: ir.Node, view: View) -> Condition | None:
    """Return the condition of a Gemm whose parts are all read in one layout, or None."""
    width = _width_of(gemm, view)
    if width is None:
        return None
    parts, kernels = _parts_of_product(Part(gemm.outputs[0], 0, width), view)
    if not _are_adjacent(parts, width) or len({x.layout for x in parts}) > 1:
        return None
    # DirectML makes one kernel of a Gemm and an activation behind it.
    if kernels < 2 or any(x.value.is_graph_output() for x in parts):
        return None
    return Condition(gemm, tuple(parts), kernels)


def _width_of(gemm: ir.Node, view: View) -> int | None:
    """Return how many features a plain Gemm with a weight and a bias of its own makes, or None."""
    if not is_op(gemm, "Gemm") or len(gemm.inputs) < 3 or not is_plain_gemm(gemm):
        return None
    dims = view.shapes.dims(gemm.outputs[0])
    if not dims or not isinstance(dims[1], int):
        return None
    _, weight, bias = gemm.inputs
    has_weights = is_weight(weight, (None, None), view) and is_weight(bias, (dims[1],), view)
    return dims[1] if has_weights else None


def _parts_of_product(product: Part, view: View) -> tuple[list[Part], int]:
    """Return the parts that a product is cut into, in order, and the kernels of all of it."""
    parts: list[Part] = []
    kernels, pending = 1, [product]
    while pending:
        part = pending.pop()
        inner_parts = _inner_parts(part, view)
        if not inner_parts:
            parts.append(part)
        pending += inner_parts
        kernels += len({x.value.producer() for x in inner_parts})
    return sorted(parts, key=lambda part: part.start), kernels


def _are_adjacent(parts: list[Part], width: int) -> bool:
    """Return whether parts have each of the features once, and none is empty."""
    ends = [0, *(x.start + x.size for x in parts)]
    return [*(x.start for x in parts), width] == ends and all(x.size for x in parts)


def _inner_parts(part: Part, view: View) -> list[Part]:
    """Return the parts of a part that is cut, unsqueezed or added to; [] if it is none of these."""
    value = part.value
    users = list(dict.fromkeys(x.node for x in value.uses() if x.node.graph is value.graph))
    if not users or len(users) != len(value.uses()) or value.is_graph_output():
        return []
    if all(is_op(x, "Slice") for x in users):
        return _parts_of_slices(part, users)
    if len(users) > 1:
        return []
    (user,) = users
    if is_op(user, "Split"):
        return _parts_of_split(part, user, view)
    if is_op(user, "Unsqueeze", "Reshape"):
        return _part_behind_view(part, user, view)
    return _part_behind_sum(part, user, view) if is_op(user, "Add") else []


def _parts_of_slices(part: Part, slices: list[ir.Node]) -> list[Part]:
    """Return the parts that Slices cut out of a part."""
    cuts = [cuts_of_slice(x, part.rank) or {} for x in slices]
    if any(x.keys() != {part.axis} or x[part.axis].step != 1 for x in cuts):
        return []
    ranges = [range(part.size)[python_slice(x[part.axis], part.size)] for x in cuts]
    return [
        replace(part, value=x.outputs[0], start=part.start + span.start, size=len(span))
        for x, span in zip(slices, ranges, strict=True)
    ]


def _parts_of_split(part: Part, split: ir.Node, view: View) -> list[Part]:
    """Return the parts that a Split makes of a part; of size 0 where unknown."""
    if axis_of(split, part.rank, view.opset_of_node(split)) != part.axis:
        return []
    sizes = [dims[part.axis] if (dims := view.shapes.dims(x)) else 0 for x in split.outputs]
    counts = [x if isinstance(x, int) else 0 for x in sizes]
    starts = accumulate(counts, initial=part.start)
    return [
        replace(part, value=x, start=start, size=count)
        for x, start, count in zip(split.outputs, starts, counts, strict=False)
    ]


def _part_behind_view(part: Part, user: ir.Node, view: View) -> list[Part]:
    """Return a part with more dims of 1, if that is what a view makes of it."""
    output = user.outputs[0]
    dims, new_dims = view.shapes.dims(part.value), view.shapes.dims(output)
    if not dims or not new_dims:
        return []
    places = [i for i, x in enumerate(new_dims) if x != 1]
    places = [0, *places] if dims[part.batch] == 1 else places
    if not same_dims([new_dims[i] for i in places], (dims[part.batch], part.size)):
        return []
    batch, axis = places
    return [replace(part, value=output, batch=batch, axis=axis, rank=len(new_dims))]


def _part_behind_sum(part: Part, add: ir.Node, view: View) -> list[Part]:
    """Return a part with a number added, if that is what an Add makes of it."""
    output = add.outputs[0]
    if not same_dims(view.shapes.dims(output), view.shapes.dims(part.value)):
        return []
    number = scalar_of(add.inputs[1 if add.inputs[0] is part.value else 0])
    return [] if number is None else [replace(part, value=output, added=part.added + number)]
