"""join-conditions: the manual is the docstring of the class."""

import math
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import all_same
from graphfix.facts.view import View
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op
from graphfix.wording import grouped, plural

from ..common.cuts import cuts_of
from ..common.fusible import FLOATS, beside, is_plain, is_weight
from ..common.reshape_targets import with_axes

# Kernels that it must spare, as of join-products.
_FEWEST = 2
# The numbers of a weight that is made: 1 GB in float32. Protobuf has tensors of up to 2 GB.
_MOST = 1 << 28


@dataclass(frozen=True)
class Part:
    """Neighbouring features of a product, as they are read.

    Attributes:
        value: They, with dims of 1 at some places.
        start: The first of them.
        size: How many they are.
        batch: Where its rows lie in ``value``.
        axis: Where they lie.
        rank: How many dims ``value`` has: all others are 1.
        added: What is added to each.
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
        """What parts that are made at once have in common."""
        return self.batch, self.axis, self.rank


@dataclass(frozen=True)
class Condition:
    """A Gemm of rows.

    Attributes:
        gemm: The node.
        parts: What is read of it, in order: all features, each once.
        kernels: How many it takes.
    """

    gemm: ir.Node
    parts: tuple[Part, ...]
    kernels: int


@dataclass(frozen=True)
class ConditionsSite(Match):
    """What conditions several blocks.

    Attributes:
        conditions: A product for each, of one vector, in the order of the graph.
    """

    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class JoinConditions(NodePass[ConditionsSite]):
    """Makes the scales, shifts and gates that one vector gives to many blocks by one product.

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
        """The first of the products of one vector."""
        data = node.inputs[0]
        if data is None or data in view.fixed or view.shapes.dtype(data) not in FLOATS:
            return None
        mine = _condition(node, view)
        if mine is None or view.opset(node) < 13:
            return None
        found = [x for x in (_condition(x, view) for x in beside(node, data)) if x is not None]
        alike = grouped((_kind(x), x) for x in found)[_kind(mine)]
        weights = (view.shapes.dims(x.gemm.inputs[1]) or () for x in alike)
        totals = accumulate(math.prod(d for d in x if isinstance(d, int)) for x in weights)
        group = [x for x, total in zip(alike, totals, strict=True) if total <= _MOST]
        spared = sum(x.kernels for x in group) - 2 - (mine.parts[0].rank > 2)
        if not group or group[0].gemm is not node or spared < _FEWEST:
            return None
        return ConditionsSite(mine.parts[0].value.producer() or node, tuple(group))

    def message(self, site: Match) -> str:
        """What it is."""
        count = len(site.conditions) if isinstance(site, ConditionsSite) else 0
        return f"{plural(count, 'product')} of one vector, and views of each; one does for all"

    def rewrite(self, match: ConditionsSite, op: Builder) -> ir.Value:
        """All of them at once, and the first part."""
        gemms, first = [x.gemm for x in match.conditions], match.conditions[0].gemm
        parts = [part for x in match.conditions for part in x.parts]
        dtype = (op.view.shapes.dtype(first.inputs[0]) or ir.DataType.FLOAT).numpy()
        turned = attr_int(first, "transB", 0)
        with op.placed(first):
            weight = op.Concat(*(x.inputs[1] for x in gemms), axis=1 - turned)
            bias = op.Concat(*(x.inputs[2] for x in gemms), axis=0)
            if any(x.added for x in parts):
                added = [np.full(x.size, x.added, dtype) for x in parts]
                bias = op.Add(bias, np.concatenate(added))
            made = op.Gemm(first.inputs[0], weight, bias, transB=turned)
            batch, axis, rank = parts[0].layout
            ones = [i for i in range(rank) if i not in (batch, axis)]
            made = with_axes("Unsqueeze", made, ones, op)
            sizes = np.array([x.size for x in parts], np.int64)
            split = op.make_all("Split", (True,) * len(parts), made, sizes, axis=axis)
        for part, new in zip(parts[1:], split[1:], strict=True):
            op.supplant(part.value, new)
        return split[0]


def _kind(condition: Condition) -> tuple[tuple[int, int, int], int]:
    """What those that are joined have in common."""
    return condition.parts[0].layout, attr_int(condition.gemm, "transB", 0)


def _condition(gemm: ir.Node, view: View) -> Condition | None:
    """A Gemm with a weight and a bias, of which all parts are read in one layout."""
    if not is_op(gemm, "Gemm") or len(gemm.inputs) < 3 or not is_plain(gemm):
        return None
    dims = view.shapes.dims(gemm.outputs[0])
    if not dims or not isinstance(dims[1], int):
        return None
    wanted: list[tuple[int | None, ...]] = [(None, None), (dims[1],)]
    if not all(is_weight(x, y, view) for x, y in zip(gemm.inputs[1:], wanted, strict=True)):
        return None
    parts: list[Part] = []
    kernels, pending = 1, [Part(gemm.outputs[0], 0, dims[1])]
    while pending:
        part = pending.pop()
        inner = _opened(part, view)
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


def _opened(part: Part, view: View) -> list[Part]:
    """What a part is read as, if it is cut, gets dims of 1, or a number is added to it."""
    value, dims = part.value, view.shapes.dims(part.value)
    users = list(dict.fromkeys(x.node for x in value.uses() if x.node.graph is value.graph))
    if not dims or not users or len(users) != len(value.uses()) or value.is_graph_output():
        return []
    if all(is_op(x, "Slice") for x in users):
        return _sliced(part, users)
    if len(users) > 1:
        return []
    user, made = users[0], users[0].outputs[0]
    new = view.shapes.dims(made) or ()
    if is_op(user, "Split") and attr_int(user, "axis", 0) % part.rank == part.axis:
        return _split(part, user, view)
    if is_op(user, "Unsqueeze", "Reshape"):
        places = [i for i, x in enumerate(new) if x != 1]
        places = [0, *places[-1:]] if dims[part.batch] == 1 else places
        if all_same([new[i] for i in places], (dims[part.batch], part.size)):
            batch, axis = places
            return [replace(part, value=made, batch=batch, axis=axis, rank=len(new))]
    if is_op(user, "Add") and all_same(new, dims):
        number = scalar_of(user.inputs[1 if user.inputs[0] is value else 0])
        return [] if number is None else [replace(part, value=made, added=part.added + number)]
    return []


def _sliced(part: Part, slices: list[ir.Node]) -> list[Part]:
    """What Slices cut out of a part."""
    cuts = [cuts_of(x, part.rank) or {} for x in slices]
    if any(x.keys() != {part.axis} or x[part.axis][2] != 1 for x in cuts):
        return []
    taken = [range(part.size)[slice(*x[part.axis])] for x in cuts]
    return [
        replace(part, value=x.outputs[0], start=part.start + own.start, size=len(own))
        for x, own in zip(slices, taken, strict=True)
    ]


def _split(part: Part, split: ir.Node, view: View) -> list[Part]:
    """What a Split makes of a part; of size 0 where that is not known."""
    sizes = [dims[part.axis] if (dims := view.shapes.dims(x)) else 0 for x in split.outputs]
    counts = [x if isinstance(x, int) else 0 for x in sizes]
    starts = accumulate(counts, initial=part.start)
    return [
        replace(part, value=x, start=start, size=count)
        for x, start, count in zip(split.outputs, starts, counts, strict=False)
    ]
