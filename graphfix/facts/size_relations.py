"""Sizes that must be equal for a model to run, and the weight or node that wants it.

A Conv wants as many channels as its weight has, a MatMul as many columns as the other factor has
rows, an Add equal sizes unless one is 1. Nothing here solves them: see
:mod:`graphfix.facts.forced_sizes`.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.mask_lookups import identity_lookup
from graphfix.facts.shapes import Shapes, is_known_dim
from graphfix.facts.symbolic.expressions import (
    Dim,
    dim_of,
    expr_of,
    multiply_dims,
    product_of_dims,
    rounded_down,
)
from graphfix.graph.constants import const_of, const_tensor, ints_of
from graphfix.graph.nodes import attr_int, input_at, is_op
from graphfix.graph.walks import bodies_of
from graphfix.ops.attention import AttentionSlots, attention_slots
from graphfix.ops.axes import axis_of, squeezed_axes
from graphfix.ops.einsums import axes_of_letters, equation_of
from graphfix.ops.norms import scale_of, scaled_axes
from graphfix.ops.products import read_matmul_nbits, second_factor, summed_axes
from graphfix.ops.recurrent import (
    INITIAL_STATES,
    ROW_LENGTHS,
    feature_axis_of_weight,
    row_axis_of,
)
from graphfix.ops.splits import split_sizes
from graphfix.ops.windows import channel_axis_of_weight, convolution_weight

_LONGEST_WAY = 8
# What lies between a weight and the node that takes it.
_KEEPS_WEIGHTS = ops.MOVES_FIRST_INPUT | ops.CASTS | ops.IDLE | ops.QUANTIZES
_SKIP_NORMS = ops.named("com.microsoft.SkipLayerNormalization") | ops.named(
    "com.microsoft.SkipSimplifiedLayerNormalization"
)
_Operand = tuple[ir.Value | None, Sequence[Dim]]


@dataclass(frozen=True)
class SizeRelation:
    """Two sizes that must be equal for a node to run.

    Attributes:
        a: One size.
        b: The other.
        node: The node.
        broadcasts: Whether one of them may be 1 as well.
        witness: The operand that one of them is a size of, if that is a number.
    """

    a: Dim
    b: Dim
    node: ir.Node
    broadcasts: bool = False
    witness: ir.Value | None = None

    @property
    def source(self) -> str:
        """Return the name of the weight that wants it, else a label of the node."""
        name = self.node.name or self.node.outputs[0].name
        return _weight_above(self.witness) or f"{self.node.op_type} {name!r}"

    @property
    def is_of_weight(self) -> bool:
        """Return whether a weight wants it, which :attr:`source` is the name of then."""
        return bool(_weight_above(self.witness))


@dataclass(frozen=True)
class GraphRelations:
    """The relations of a graph, and those of the branches of each of its Ifs.

    Attributes:
        always: What holds in each run: of the nodes of the graph, and of bodies that surely run.
        wishes: What holds in usual runs: that a Loop has a round, and carries values of one shape.
        branches: For each If, what holds in each of its branches.
    """

    always: tuple[SizeRelation, ...]
    wishes: tuple[SizeRelation, ...]
    branches: tuple[tuple["GraphRelations", ...], ...]

    def in_branches(self) -> Iterator[SizeRelation]:
        """Yield the relations of branches, at any depth."""
        for branches in self.branches:
            for branch in branches:
                yield from branch.all_relations()

    def all_relations(self) -> Iterator[SizeRelation]:
        """Yield every relation, those of branches too."""
        yield from self.always
        yield from self.wishes
        yield from self.in_branches()


def relations_of(graph: ir.Graph, shapes: Shapes, opset: int) -> GraphRelations:
    """Return the sizes that must be equal for a graph to run.

    Args:
        graph: The graph; of local functions nothing is known.
        shapes: Its symbolic shapes.
        opset: The version of the standard opset.
    """
    reader = _Reader(shapes, opset)
    always: list[SizeRelation] = []
    wishes: list[SizeRelation] = []
    branches: list[tuple[GraphRelations, ...]] = []
    for node in graph:
        always += (x for x in reader.read(node) if x.a != x.b)
        wishes += (SizeRelation(a, b, node) for a, b in shapes.carried_dims(node))
        inner = [relations_of(body, shapes, opset) for body in bodies_of(node)]
        if node.op_type == "If":
            branches.append(tuple(inner))
            continue
        for body in inner:
            (always if _surely_runs_body(node) else wishes).extend(body.always)
            wishes += body.wishes
            branches += body.branches
    return GraphRelations(tuple(always), tuple(wishes), tuple(branches))


def _surely_runs_body(node: ir.Node) -> bool:
    """Return whether the body of a node runs once at least."""
    if not is_op(node, "Loop"):
        return True
    count, condition = (const_of(input_at(node, i)) for i in (0, 1))
    counts = input_at(node, 0) is None or (count is not None and count.reshape(-1)[0] > 0)
    starts = input_at(node, 1) is None or (condition is not None and bool(condition.all()))
    return counts and starts


class _Reader:
    """Reads the relations of one node after another."""

    def __init__(self, shapes: Shapes, opset: int) -> None:
        self._shapes, self._opset = shapes, opset

    def read(self, node: ir.Node) -> Iterator[SizeRelation]:
        """Yield what a node wants of sizes."""
        yield from self._lookup(node)
        for operators, read in self._READERS:
            if node in operators:
                yield from read(self, node)

    def _lookup(self, node: ir.Node) -> Iterator[SizeRelation]:
        """Yield the dims of a mask and those it is looked up with: all of it, or its beginning."""
        lookup = identity_lookup(node, self._shapes)
        if lookup is not None:
            dims = self._shapes.dims(lookup.table) or ()
            for dim, axis in zip(dims, lookup.index_axes, strict=False):
                yield SizeRelation(dim, lookup.shape[axis], node, broadcasts=True)

    def _dims(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        return self._shapes.dims(value)

    def _operand_dims(self, node: ir.Node) -> list[_Operand]:
        operands = [x for x in node.inputs if x is not None]
        return [(x, dims) for x in operands if (dims := self._dims(x)) is not None]

    def _broadcast(self, node: ir.Node) -> Iterator[SizeRelation]:
        operands = self._operand_dims(node)
        for place, a in enumerate(operands):
            for b in operands[place + 1 :]:
                yield from _aligned(node, a, b)

    def _one_way(self, node: ir.Node) -> Iterator[SizeRelation]:
        """Yield that a slope or a bias is as long as the data along its axes, or 1."""
        operands = self._operand_dims(node)
        for x in _aligned(node, *operands) if len(operands) == 2 else ():
            yield SizeRelation(x.a, x.b, node, not isinstance(x.b, int), x.witness)

    def _norm(self, node: ir.Node) -> Iterator[SizeRelation]:
        data, weight = self._dims(node.inputs[0]), scale_of(node)
        scale = self._dims(weight)
        axes = scaled_axes(node, len(data), self._opset) if data else None
        if data and scale and axes:
            for axis, size in zip(reversed(axes), reversed(scale), strict=False):
                if size != 1:  # one scale for all is repeated
                    yield SizeRelation(data[axis], size, node, witness=weight)

    def _product(self, node: ir.Node) -> Iterator[SizeRelation]:
        factor = second_factor(node)
        a, b = self._dims(node.inputs[0]), self._dims(factor)
        axes = None if a is None or b is None else summed_axes(node, len(a), len(b))
        if axes is not None and a is not None and b is not None:
            summed = (node.inputs[0], a[axes[0]]), (factor, b[axes[1]])
            yield _relation_of(node, *summed)
            yield from _aligned(node, (node.inputs[0], a[:-2]), (factor, b[:-2]))

    def _packed_product(self, node: ir.Node) -> Iterator[SizeRelation]:
        data, product = self._dims(node.inputs[0]), read_matmul_nbits(node)
        if data and product.k:
            yield SizeRelation(data[-1], product.k, node, witness=product.weight)

    def _einsum(self, node: ir.Node) -> Iterator[SizeRelation]:
        """Yield the dims of each letter; like an Add, an Einsum repeats a size of 1."""
        equation = equation_of(node)
        if equation is None:
            return
        size_by_letter: dict[str, Dim] = {}
        for term, value in zip(equation.terms, node.inputs, strict=False):
            dims = self._dims(value) or ()
            for letter, axis in axes_of_letters(term, len(dims)) or ():
                size = dims[axis]
                first = size_by_letter.setdefault(letter, size)
                if first == 1:
                    size_by_letter[letter] = size
                elif size != 1:
                    yield SizeRelation(first, size, node, broadcasts=True, witness=value)

    def _convolution(self, node: ir.Node) -> Iterator[SizeRelation]:
        weight, data = convolution_weight(node), self._dims(node.inputs[0])
        dims = self._dims(weight)
        axis, factor = channel_axis_of_weight(node)
        if data and dims and len(data) == len(dims) > 1 and is_known_dim(dims[axis]):
            yield SizeRelation(data[1], multiply_dims(dims[axis], factor), node, witness=weight)

    def _recurrence(self, node: ir.Node) -> Iterator[SizeRelation]:
        weight, data = input_at(node, 1), self._dims(node.inputs[0])
        dims, state = self._dims(weight), self._dims(input_at(node, 5))
        if data and dims and len(data) == len(dims) == 3:
            yield SizeRelation(data[2], dims[feature_axis_of_weight(node)], node, witness=weight)
        if state and (hidden := attr_int(node, "hidden_size", 0)):
            yield SizeRelation(state[-1], hidden, node, witness=input_at(node, 2))
        if state and dims and row_axis_of(node) == 1:
            yield SizeRelation(state[0], dims[0], node, witness=weight)
        yield from self._recurrent_rows(node)

    def _recurrent_rows(self, node: ir.Node) -> Iterator[SizeRelation]:
        """Yield that the states and lengths of a recurrence have as many rows as its data."""
        data, axis = self._dims(node.inputs[0]), row_axis_of(node)
        if not data or len(data) != 3:
            return
        for place in INITIAL_STATES:
            state = self._dims(input_at(node, place))
            if state and len(state) == 3:
                yield SizeRelation(data[axis], state[axis], node)
        lengths = self._dims(input_at(node, ROW_LENGTHS))
        if lengths and len(lengths) == 1:
            yield SizeRelation(data[axis], lengths[0], node)

    def _attention(self, node: ir.Node) -> Iterator[SizeRelation]:
        """Yield what an attention wants of its caches, and of its weights or bias."""
        slots = attention_slots(node)
        if slots is None:
            return
        yield from self._cached_attention(node, slots)
        if slots.weights is not None:
            weight = input_at(node, slots.weights)
            data, dims = self._dims(node.inputs[slots.query]), self._dims(weight)
            if data and dims and len(dims) == 2:
                yield SizeRelation(data[-1], dims[0], node, witness=weight)
        elif slots.bias is not None:
            yield from self._biased_attention(node, slots, input_at(node, slots.bias))

    def _cached_attention(self, node: ir.Node, slots: AttentionSlots) -> Iterator[SizeRelation]:
        """Yield that a cache [B, heads, P, D] has the rows and the heads of what is new."""
        query = self._dims(node.inputs[slots.query])
        heads = attr_int(node, "num_heads", 0)
        own_heads = attr_int(node, "kv_num_heads", heads)
        if not query or len(query) != 3 or not heads:
            return
        is_packed = input_at(node, slots.key) is None
        parts = heads + 2 * own_heads if is_packed else heads
        for place in (slots.past_key, slots.past_value):
            past = None if place is None else self._dims(input_at(node, place))
            if not past or len(past) != 4:
                continue
            yield SizeRelation(query[0], past[0], node)
            yield SizeRelation(past[1], own_heads, node)
            if place == slots.past_key or is_packed:
                yield SizeRelation(query[2], multiply_dims(past[3], parts), node)

    def _biased_attention(
        self, node: ir.Node, slots: AttentionSlots, bias: ir.Value | None
    ) -> Iterator[SizeRelation]:
        """Yield that keys are as wide as queries, and a bias as wide as all three together."""
        query, key, value = (
            self._dims(input_at(node, x)) for x in (slots.query, slots.key, slots.value)
        )
        if not (query and key and value and len(query) == len(key) == len(value) == 3):
            return
        yield SizeRelation(query[2], key[2], node)
        if dims := self._dims(bias):
            together = dim_of(2 * expr_of(query[2]) + expr_of(value[2]))
            yield SizeRelation(together, dims[0], node, witness=bias)

    def _skip(self, node: ir.Node) -> Iterator[SizeRelation]:
        """Yield that what is added before a norm is as long and as wide as the data."""
        data, skip = self._dims(node.inputs[0]), self._dims(node.inputs[1])
        for a, b in zip((data or ())[-2:], (skip or ())[-2:], strict=False):
            yield SizeRelation(a, b, node)

    def _rotary(self, node: ir.Node) -> Iterator[SizeRelation]:
        """Yield that a head is twice as wide as the table of cosines."""
        table = input_at(node, 2 if node.domain else 1)
        data, dims = self._dims(node.inputs[0]), self._dims(table)
        heads = 1 if data and len(data) == 4 else attr_int(node, "num_heads", 0)
        if data and dims and heads and not attr_int(node, "rotary_embedding_dim", 0):
            yield SizeRelation(data[-1], multiply_dims(dims[-1], 2 * heads), node, witness=table)

    def _concat(self, node: ir.Node) -> Iterator[SizeRelation]:
        operands = self._operand_dims(node)
        if len({len(dims) for _, dims in operands}) != 1:
            return
        joined = axis_of(node, len(operands[0][1]), self._opset)
        for (first, a), (second, b) in itertools.pairwise(operands):
            for axis, (x, y) in enumerate(zip(a, b, strict=True)):
                if axis != joined:
                    yield _relation_of(node, (first, x), (second, y))

    def _split(self, node: ir.Node) -> Iterator[SizeRelation]:
        data = self._dims(node.inputs[0])
        axis = None if data is None else axis_of(node, len(data), self._opset)
        if data is None or axis is None or isinstance(data[axis], int):
            return
        sizes = split_sizes(node, None, ints_of)
        if sizes is not None:
            yield SizeRelation(data[axis], sum(sizes), node)
        elif input_at(node, 1) is None and "num_outputs" not in node.attributes:
            yield from _multiple_of(node, data[axis], len(node.outputs))

    def _reshape(self, node: ir.Node) -> Iterator[SizeRelation]:
        """Yield that a Reshape keeps the number of elements."""
        data, out = self._dims(node.inputs[0]), self._dims(node.outputs[0])
        if data is not None and out is not None:
            yield SizeRelation(product_of_dims(data), product_of_dims(out), node)

    def _squeeze(self, node: ir.Node) -> Iterator[SizeRelation]:
        data = self._dims(node.inputs[0])
        for axis in squeezed_axes(node, len(data)) or () if data else ():
            yield SizeRelation(data[axis] if data else 1, 1, node)

    def _expand(self, node: ir.Node) -> Iterator[SizeRelation]:
        data, target = self._dims(node.inputs[0]), self._shapes.known_elements(node.inputs[1])
        if data is not None and target is not None:
            yield from _aligned(node, (None, data), (node.inputs[1], target))

    def _quantize(self, node: ir.Node) -> Iterator[SizeRelation]:
        data, scale = self._dims(node.inputs[0]), self._dims(input_at(node, 1))
        axis = axis_of(node, len(data), self._opset) if data else None
        is_blocked = attr_int(node, "block_size", 0) > 0
        per_axis = scale is not None and len(scale) == 1 and scale != (1,) and not is_blocked
        if data and scale and axis is not None and per_axis:
            yield SizeRelation(data[axis], scale[0], node, witness=node.inputs[1])

    def _blocks(self, node: ir.Node) -> Iterator[SizeRelation]:
        """Yield that channels, or height and width, divide into blocks."""
        data, block = self._dims(node.inputs[0]), attr_int(node, "blocksize", 1)
        if data and len(data) == 4:
            is_depth = node.op_type == "DepthToSpace"
            for dim in (data[1],) if is_depth else data[2:]:
                yield from _multiple_of(node, dim, block**2 if is_depth else block)

    _READERS: Sequence[tuple[ops.OpSet, Callable[["_Reader", ir.Node], Iterator[SizeRelation]]]] = (
        (ops.BROADCASTS, _broadcast),
        (ops.named("PRelu com.microsoft.BiasGelu com.microsoft.FastGelu"), _one_way),
        (_SKIP_NORMS, _skip),
        (ops.named("RotaryEmbedding com.microsoft.RotaryEmbedding"), _rotary),
        (ops.NORMS | ops.named("BatchNormalization"), _norm),
        (ops.PRODUCTS, _product),
        (ops.named("com.microsoft.MatMulNBits"), _packed_product),
        (ops.named("Einsum"), _einsum),
        (ops.CONVOLVES, _convolution),
        (ops.RECURRENT, _recurrence),
        (ops.ATTENTIONS, _attention),
        (ops.named("Concat"), _concat),
        (ops.named("Split"), _split),
        (ops.named("Reshape"), _reshape),
        (ops.named("Squeeze"), _squeeze),
        (ops.named("Expand"), _expand),
        (ops.QUANTIZES, _quantize),
        (ops.named("DepthToSpace SpaceToDepth"), _blocks),
    )


def _relation_of(
    node: ir.Node,
    first: tuple[ir.Value | None, Dim],
    second: tuple[ir.Value | None, Dim],
    *,
    broadcasts: bool = False,
) -> SizeRelation:
    """Return that a dim of one operand is that of another; the witness is the one with a number."""
    (one, a), (other, b) = first, second
    return SizeRelation(a, b, node, broadcasts, one if isinstance(a, int) else other)


def _aligned(node: ir.Node, first: _Operand, second: _Operand) -> Iterator[SizeRelation]:
    """Yield the dims of two operands that broadcast, the last ones first."""
    for a, b in zip(reversed(first[1]), reversed(second[1]), strict=False):
        if a != 1 and b != 1:
            yield _relation_of(node, (first[0], a), (second[0], b), broadcasts=True)


def _multiple_of(node: ir.Node, dim: Dim, unit: int) -> Iterator[SizeRelation]:
    """Yield that a size divides into ``unit`` parts."""
    if unit > 1 and not isinstance(dim, int) and is_known_dim(dim):
        yield SizeRelation(dim, rounded_down(dim, unit), node)


def _weight_above(value: ir.Value | None) -> str:
    """Return the name of the constant that a value comes from, or an empty string."""
    for _ in range(_LONGEST_WAY):
        if value is None:
            return ""
        if value.is_initializer() or const_tensor(value) is not None:
            return value.name or ""
        node = value.producer()
        if node is None or node not in _KEEPS_WEIGHTS:
            return ""
        value = node.inputs[0]
    return ""
