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
from graphfix.graph.nodes import attr_int, is_op
from graphfix.wording import group_pairs, plural

from ..common.cuts import cuts_of
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
        own_condition = _condition_of(node, view)
        if own_condition is None or view.opset_of_node(node) < 13:
            return None
        conditions = [
            x
            for x in (_condition_of(x, view) for x in readers_in_graph(node, data))
            if x is not None
        ]
        similar = group_pairs((_join_key(x), x) for x in conditions)[_join_key(own_condition)]
        weights = (view.shapes.dims(x.gemm.inputs[1]) or () for x in similar)
        totals = accumulate(math.prod(d for d in x if isinstance(d, int)) for x in weights)
        group = [x for x, total in zip(similar, totals, strict=True) if total <= _MAX_WEIGHT_SIZE]
        spared = sum(x.kernels for x in group) - 2 - (own_condition.parts[0].rank > 2)
        if not group or group[0].gemm is not node or spared < _MIN_SPARED_KERNELS:
            return None
        return ConditionsSite(own_condition.parts[0].value.producer() or node, tuple(group))

    def message(self, site: Match) -> str:
        """Describe how many products are joined."""
        count = len(site.conditions) if isinstance(site, ConditionsSite) else 0
        return f"{plural(count, 'product')} of one vector, and views of each; one does for all"

    def rewrite(self, match: ConditionsSite, op: Builder) -> ir.Value:
        """Build all products as one, and return the first part."""
        gemms, first = [x.gemm for x in match.conditions], match.conditions[0].gemm
        parts = [part for x in match.conditions for part in x.parts]
        dtype = (op.view.shapes.dtype(first.inputs[0]) or ir.DataType.FLOAT).numpy()
        trans_b = attr_int(first, "transB", 0)
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


def _join_key(condition: Condition) -> tuple[tuple[int, int, int], int]:
    """Return what conditions must have in common to be joined."""
    return condition.parts[0].layout, attr_int(condition.gemm, "transB", 0)


def _condition_of(gemm: ir.Node, view: View) -> Condition | None:
    """Return the condition of a Gemm whose parts are all read in one layout, or None."""
    if not is_op(gemm, "Gemm") or len(gemm.inputs) < 3 or not is_plain_gemm(gemm):
        return None
    dims = view.shapes.dims(gemm.outputs[0])
    if not dims or not isinstance(dims[1], int):
        return None
    weight_dims: list[tuple[int | None, ...]] = [(None, None), (dims[1],)]
    if not all(is_weight(x, y, view) for x, y in zip(gemm.inputs[1:], weight_dims, strict=True)):
        return None
    parts: list[Part] = []
    kernels, pending = 1, [Part(gemm.outputs[0], 0, dims[1])]
    while pending:
        part = pending.pop()
        inner = _inner_parts(part, view)
        if not inner:
            parts.append(part)
        pending += inner
        kernels += len({x.value.producer() for x in inner})
    parts.sort(key=lambda x: x.start)
    ends = [0, *(x.start + x.size for x in parts)]
    if [*(x.start for x in parts), dims[1]] != ends or not all(x.size for x in parts):
        return None
    if len({x.layout for x in parts}) > 1 or any(x.value.is_graph_output() for x in parts):
        return None
    # DirectML makes one kernel of a Gemm and an activation behind it.
    return Condition(gemm, tuple(parts), kernels) if kernels > 1 else None


def _inner_parts(part: Part, view: View) -> list[Part]:
    """Return the parts of a part that is cut, unsqueezed or added to; [] if it is none of these."""
    value, dims = part.value, view.shapes.dims(part.value)
    users = list(dict.fromkeys(x.node for x in value.uses() if x.node.graph is value.graph))
    if not dims or not users or len(users) != len(value.uses()) or value.is_graph_output():
        return []
    if all(is_op(x, "Slice") for x in users):
        return _parts_of_slices(part, users)
    if len(users) > 1:
        return []
    user, output = users[0], users[0].outputs[0]
    new_dims = view.shapes.dims(output) or ()
    if is_op(user, "Split") and attr_int(user, "axis", 0) % part.rank == part.axis:
        return _parts_of_split(part, user, view)
    if is_op(user, "Unsqueeze", "Reshape"):
        places = [i for i, x in enumerate(new_dims) if x != 1]
        places = [0, *places[-1:]] if dims[part.batch] == 1 else places
        if same_dims([new_dims[i] for i in places], (dims[part.batch], part.size)):
            batch, axis = places
            return [replace(part, value=output, batch=batch, axis=axis, rank=len(new_dims))]
    if is_op(user, "Add") and same_dims(new_dims, dims):
        number = scalar_of(user.inputs[1 if user.inputs[0] is value else 0])
        return [] if number is None else [replace(part, value=output, added=part.added + number)]
    return []


def _parts_of_slices(part: Part, slices: list[ir.Node]) -> list[Part]:
    """Return the parts that Slices cut out of a part."""
    cuts = [cuts_of(x, part.rank) or {} for x in slices]
    if any(x.keys() != {part.axis} or x[part.axis][2] != 1 for x in cuts):
        return []
    ranges = [range(part.size)[slice(*x[part.axis])] for x in cuts]
    return [
        replace(part, value=x.outputs[0], start=part.start + span.start, size=len(span))
        for x, span in zip(slices, ranges, strict=True)
    ]


def _parts_of_split(part: Part, split: ir.Node, view: View) -> list[Part]:
    """Return the parts that a Split makes of a part; of size 0 where unknown."""
    sizes = [dims[part.axis] if (dims := view.shapes.dims(x)) else 0 for x in split.outputs]
    counts = [x if isinstance(x, int) else 0 for x in sizes]
    starts = accumulate(counts, initial=part.start)
    return [
        replace(part, value=x, start=start, size=count)
        for x, start, count in zip(split.outputs, starts, counts, strict=False)
    ]
