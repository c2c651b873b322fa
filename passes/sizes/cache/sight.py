"""What has to change in each node where a cache gets a size: read off the graph, nothing edited.

The nodes are looked at in order. Most need nothing: an elementwise operator takes aligned axes, and
a Reshape takes sizes. What counts the length takes the number of valid entries instead; what finds
an entry by its number takes its place; what sums over entries takes those that are valid.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, Skip
from graphfix.facts.symbolic.expressions import Dim, equal_dims, expr_of, product_of_dims
from graphfix.facts.symbolic.signs import never_negative
from graphfix.facts.symbolic.sums import subtract_dims
from graphfix.graph.constants import axes_of, const_of, ints_of
from graphfix.graph.nodes import attr_int, is_op
from graphfix.graph.walks import bodies_of, values_read_in_bodies
from graphfix.ops.broadcast import BROADCAST

from .makers import CacheBuilder
from .slots import LengthDependence, UnclearError

Make = Callable[[CacheBuilder, ir.Value], ir.Value]


@dataclass(frozen=True)
class CacheEdit(Match):
    """A node whose inputs or output must change.

    Attributes:
        effect: What the edit does, as a sentence.
        inputs: How each changed input is built.
        output: How the output is built; None if it stays.
    """

    effect: str
    inputs: dict[int, Make] = field(default_factory=dict)
    output: Make | None = None


# The operands that say a size: they take that of the cache, not what is valid of it.
_SIZE_OPERANDS = {
    **dict.fromkeys(("Expand", "Reshape", "Split", "Squeeze", "Tile", "Unsqueeze"), (1,)),
    "ConstantOfShape": (0,),
    **dict.fromkeys(("EyeLike", "RandomNormalLike"), ()),
}
_MOVES = frozenset(
    {
        *ops.VIEWS,
        *ops.REPEATS,
        "Transpose",
        "Cast",
        "CastLike",
        "Dropout",
        "Split",
        "Slice",
        "Gather",
        "Concat",
    }
)
# Of zeros they make zeros.
_ZERO_TO_ZERO = frozenset({"Neg", "Abs", "Relu", "Sqrt", "Sign", "Ceil", "Floor", "Trilu"})
_POINTWISE = frozenset(
    {*BROADCAST, *_ZERO_TO_ZERO, "Sigmoid", "Tanh", "Exp", "Log", "Erf", "Not", "IsNaN", "IsInf"}
    | {"Softplus", "Reciprocal", "Cos", "Sin", "Clip", "Gelu", "Elu", "LeakyRelu", "HardSigmoid"}
    | {"ConstantOfShape", "EyeLike", "QuickGelu", "Round", "Selu", "Range", "Shape", "Size"}
)
# They take rows along the last axis, each by itself.
_ROWWISE = frozenset(
    {"LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"}
    | {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "LpNormalization"}
)
_REDUCES = frozenset(
    {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceL1"}
    | {"ReduceSumSquare", "ArgMax", "ArgMin"}
)
_INT32_MAX = 2**31 - 1


class CacheEffects:
    """Finds what each node needs when the length of caches becomes a fixed size.

    Args:
        model: The model; the dim of the length has one name everywhere.
        lengths: How dims and numbers depend on the length.
        contents: The inputs that are caches.
        zeros: The inputs that are fed zeros for invalid entries.
    """

    def __init__(
        self,
        model: ir.Model,
        lengths: LengthDependence,
        contents: Iterable[ir.Value],
        zeros: Iterable[ir.Value],
    ) -> None:
        self._model = model
        self._shapes, self._lengths = lengths.shapes, lengths
        self._cache_values = set(contents)
        self._zero_values = set(zeros)
        # Whole numbers that count valid entries: no sizes any more.
        self._valid_counts: set[ir.Value] = set()
        self._masked_adds: set[ir.Value] = set()

    def sites(self) -> Iterator[CacheEdit | Skip]:
        """Yield an edit for every node that must change, a Skip where analysis fails."""
        for node in self._model.graph:
            try:
                yield from self._edits_of(node)
                self._record_outputs(node)
            except UnclearError as error:
                yield Skip(node, str(error))

    # What a node needs

    def _edits_of(self, node: ir.Node) -> Iterator[CacheEdit]:
        values = [x for x in (*node.inputs, *node.outputs) if x is not None]
        if bodies_of(node):
            if any(map(self._depends_on_length, [*values, *values_read_in_bodies(node)])):
                raise UnclearError("a graph inside it reads what depends on the length of a cache")
            return
        if self._computes_sizes(node) or not any(map(self._depends_on_length, values)):
            return
        for operand_index in _SIZE_OPERANDS.get(node.op_type, ()):
            if (
                operand_index < len(node.inputs)
                and node.inputs[operand_index] in self._valid_counts
            ):
                raise UnclearError("a size is computed from positions")
        find_edits = (
            _EDITS_BY_OPERATOR.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        )
        if find_edits is not None:
            yield from find_edits(self, node)
            return
        self._require_unmixed(node)
        if inputs := dict(self._inputs_to_recount(node, _SIZE_OPERANDS.get(node.op_type, ()))):
            yield CacheEdit(node, "counts the valid entries", inputs)

    def _computes_sizes(self, node: ir.Node) -> bool:
        """Return whether all outputs are known sums of sizes, so that their readers decide."""
        if any(x in self._valid_counts for x in node.inputs):
            return False
        if is_op(node, "Shape", "Size"):
            if self._shapes.known_elements(node.outputs[0]) is None:
                raise UnclearError("its input has a shape that is not known")
            return True
        if is_op(node, "Cast") and self._shapes.known_elements(node.outputs[0]) is None:
            counts = self._lengths.length_multiples(node.inputs[0])
            if counts is not None and any(counts):
                self._lengths.casts[node.outputs[0]] = counts
                return True
        outputs = [x for x in node.outputs if x.name]
        all_known = all(self._shapes.known_elements(x) is not None for x in outputs)
        return all_known and not is_op(node, "Range", "CumSum")

    def _depends_on_length(self, value: ir.Value) -> bool:
        """Return whether the shape or a known content of a value depends on the cache length."""
        if value in self._valid_counts or value in self._lengths.casts:
            return True
        dims_and_data = (
            *(self._shapes.dims(value) or ()),
            *(self._shapes.known_elements(value) or ()),
        )
        return any(map(self._lengths.depends_on_length, dims_and_data))

    def _inputs_to_recount(
        self, node: ir.Node, sizes: Sequence[int] = ()
    ) -> Iterator[tuple[int, Make]]:
        """Yield inputs that count from the length and must count valid entries instead."""
        for i, value in enumerate(node.inputs):
            counts = None if i in sizes else self._lengths.length_multiples(value)
            if counts is not None and any(counts):
                yield i, _recount_by([-a for a in counts])

    def _require_unmixed(self, node: ir.Node) -> None:
        """Raise UnclearError where an operator may mix the entries of a cache."""
        kinds = {
            x: self._lengths.cache_axes(x) for x in (*node.inputs, *node.outputs) if x is not None
        }
        if not any(kinds.values()):
            return
        if node.op_type in _POINTWISE or node.op_type in _MOVES:
            if is_op(node, "Reshape", "Flatten"):
                self._require_entry_axes(node)
            return
        last = {(self._shapes.rank(x) or 0) - 1 for x in node.inputs[:1]}
        if node.op_type in _ROWWISE and not any(last & x.keys() for x in kinds.values()):
            return
        raise UnclearError(f"{node.op_type} may mix the entries of a cache")

    def _require_entry_axes(self, node: ir.Node) -> None:
        """Raise UnclearError where a Reshape splits or merges an axis of entries."""
        before, after = (self._shapes.dims(x) for x in (node.inputs[0], node.outputs[0]))
        if before is None or after is None:
            raise UnclearError("its shape is not known")
        for axis in self._lengths.cache_axes(node.inputs[0]):
            behind = product_of_dims(before[axis + 1 :])
            if not any(
                equal_dims(before[axis], after[i])
                and equal_dims(behind, product_of_dims(after[i + 1 :]))
                for i in self._lengths.cache_axes(node.outputs[0])
            ):
                raise UnclearError(
                    f"{[*before]} becomes {[*after]}, which mixes the entries of a cache"
                )

    # The rules

    def _range_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        start, limit = (self._lengths.length_multiples(x) for x in node.inputs[:2])
        if start is None or limit is None or any(x in self._valid_counts for x in node.inputs):
            raise UnclearError("where it ends is not known as a sum of sizes")
        if shift := limit[0]:
            effect = "ends at the last valid entry"
            yield CacheEdit(
                node,
                effect,
                output=lambda op, _: op.add_invalid_count(op.rebuild_node(node), [-shift]),
            )
        self._valid_counts.add(node.outputs[0])

    def _cumsum_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        for edit in self._zero_invalid_edits(
            node, [self._constant_axis(node.inputs[1], node.inputs[0])]
        ):
            value = node.inputs[0]
            yield _offset_cumsum(node, value, edit) if value is not None else edit
        self._valid_counts.add(node.outputs[0])

    def _reduce_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        rank = self._shapes.rank(node.inputs[0]) or 0
        reduced = axes_of(node)
        if is_op(node, "ArgMax", "ArgMin"):
            reduced = (attr_int(node, "axis", 0),)
        axes = [a % rank for a in reduced] if reduced else [*range(rank)]
        if not any(a in self._lengths.cache_axes(node.inputs[0]) for a in axes):
            return
        if not is_op(node, "ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2"):
            raise UnclearError(f"{node.op_type} goes over the entries of a cache")
        yield from self._zero_invalid_edits(node, axes)

    def _matmul_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        a, b = node.inputs[:2]
        ranks = [self._shapes.rank(x) or 0 for x in (a, b)]
        inner = (ranks[0] - 1, max(ranks[1] - 2, 0))
        if inner[0] in self._lengths.cache_axes(a) and not (self._is_zero(a) or self._is_zero(b)):
            yield from self._zero_invalid_edits(node, [inner[0]])

    def _zero_invalid_edits(self, node: ir.Node, axes: Sequence[int]) -> Iterator[CacheEdit]:
        """Yield the edit that sums zeros in place of entries that are invalid on these axes."""
        value = node.inputs[0]
        cache_axes = [(a, x) for a, x in self._lengths.cache_axes(value).items() if a in axes]
        if len(cache_axes) > 1:
            raise UnclearError("it sums over the entries of a cache twice")
        if cache_axes and not self._is_zero(value):
            ((axis, cache_axis),) = cache_axes
            dims = self._shapes.dims(value) or ()
            behind = len(dims) - axis - 1
            effect = "sums valid entries"
            yield CacheEdit(
                node, effect, {0: lambda op, x: op.zero_invalid(x, cache_axis, dims[axis], behind)}
            )

    def _softmax_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        value = node.inputs[0]
        rank = self._shapes.rank(value) or 0
        axis = attr_int(node, "axis", -1) % max(rank, 1)
        cache_axis = self._lengths.cache_axes(value).get(axis)
        if cache_axis is None:
            return
        size = (self._shapes.dims(value) or ())[axis]
        dtype = self._shapes.dtype(value)

        def hide_scores(op: CacheBuilder, x: ir.Value) -> ir.Value:
            return op.hide_invalid(x, cache_axis, size, rank - axis - 1, dtype or ir.DataType.FLOAT)

        self._zero_values.add(node.outputs[0])
        site = None if value is None else self._shared_mask_add(value, axis - rank)
        if site is None:
            yield CacheEdit(node, "gives no weight to what is not valid", {0: hide_scores})
            return
        add, operand_index = site
        if add.outputs[0] not in self._masked_adds:
            self._masked_adds.add(add.outputs[0])
            yield CacheEdit(
                add, "adds what hides entries that are not valid", {operand_index: hide_scores}
            )

    def _shared_mask_add(self, value: ir.Value, axis: int) -> tuple[ir.Node, int] | None:
        """Return the Add of a mask that all layers share, and which operand the mask is."""
        node = value.producer()
        while is_op(node, "Identity", "Cast", "Reshape"):
            before = node.inputs[0]
            dims, old = self._shapes.dims(node.outputs[0]), self._shapes.dims(before)
            if before is None or not dims or not old or axis != -1 or dims[-1] != old[-1]:
                return None
            node = before.producer()
        if not is_op(node, "Add"):
            return None
        for i, mask in enumerate(node.inputs):
            dims = self._shapes.dims(mask)
            if mask is None or mask in self._cache_values or not dims or len(dims) < -axis:
                continue
            if axis % len(dims) in self._lengths.cache_axes(mask):
                return node, i
        return None

    def _concat_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        axis = attr_int(node, "axis", 0) % (self._shapes.rank(node.outputs[0]) or 1)
        if any(axis in self._lengths.cache_axes(x) for x in node.inputs[1:]):
            raise UnclearError("it joins something in front of the entries of a cache")
        if inputs := dict(self._inputs_to_recount(node)):
            yield CacheEdit(node, "counts the valid entries", inputs)

    def _gather_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        data, index = node.inputs[:2]
        axis = attr_int(node, "axis", 0) % (self._shapes.rank(data) or 1)
        counts = self._lengths.length_multiples(index)
        cache_axis = self._lengths.cache_axes(data).get(axis)
        if cache_axis is None:
            inputs = dict(self._inputs_to_recount(node))
            if index in self._valid_counts or 1 in inputs:
                move = inputs.get(1)
                inputs[1] = lambda op, x: op.clamp_at_zero(x if move is None else move(op, x))
            if inputs:
                yield CacheEdit(node, "takes rows by the number of valid entries", inputs)
            return
        fixed = const_of(index)
        if counts is not None and index not in self._valid_counts:
            pairs = zip(counts, self._shapes.known_elements(index) or (), strict=True)
            from_end = all(n == 1 or (isinstance(x, int) and x < 0) for n, x in pairs)
        elif fixed is not None:
            from_end = all(x < 0 for x in fixed.reshape(-1).tolist())
        else:
            effect = "takes entries by their place"
            yield CacheEdit(node, effect, {1: lambda op, x: op.entries_to_positions(x, cache_axis)})
            return
        if not from_end:
            raise UnclearError("it takes an entry by its number from the first on")

    def _gather_nd_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        data, index = node.inputs[:2]
        first = attr_int(node, "batch_dims", 0)
        dims = self._shapes.dims(index)
        if not dims or not isinstance(dims[-1], int):
            raise UnclearError("how many axes it looks up is not known")
        axes_by_index = self._lengths.cache_axes(data)
        kinds = [axes_by_index.get(first + i) for i in range(dims[-1])]
        cache_axes = [x for x in kinds if x is not None]
        if len(cache_axes) > 1:
            raise UnclearError("it looks up entries of a cache along two axes")
        if cache_axes:
            factors = [0 if x is None else 1 for x in kinds]
            effect = "takes entries by their place"
            yield CacheEdit(
                node, effect, {1: lambda op, x: op.entries_to_positions(x, cache_axes[0], factors)}
            )

    def _slice_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        data = node.inputs[0]
        cuts = self._cuts_of(node)
        slots = self._lengths.cache_axes(data)
        dims = self._shapes.dims(data) or ()
        tables = []
        for axis, start, end in cuts:
            if axis in slots:
                self._require_cut_from_end(start, end, dims[axis])
            elif self._lengths.length_multiple(start) == -1 and _ends_at_last(end, dims[axis]):
                continue  # as many of its last rows as there are entries: aligned as these are
            elif self._lengths.depends_on_length(start) or self._lengths.depends_on_length(end):
                tables.append((axis, start, end))
        if not tables:
            return
        ((axis, start, end), *more) = tables
        if (
            more
            or self._lengths.length_multiple(end) != 1
            or self._lengths.length_multiple(start) not in (0, 1)
        ):
            raise UnclearError("it cuts a table where that depends on the length of a cache")
        other_cuts = tuple(x for x in cuts if x[0] != axis)
        begin = self._lengths.without_length(start)
        follows_cache = self._lengths.length_multiple(start)
        yield CacheEdit(
            node,
            "takes rows by the number of valid entries",
            output=lambda op, _: op.take_rows(
                node, other_cuts, axis, begin, subtract_dims(end, start), follows_cache
            ),
        )

    def _cuts_of(self, node: ir.Node) -> tuple[tuple[int, Dim, Dim], ...]:
        data = [self._shapes.known_elements(x) for x in node.inputs[1:]]
        rank = self._shapes.rank(node.inputs[0]) or 0
        if len(data) < 2 or data[0] is None or data[1] is None:
            raise UnclearError("where it cuts is not known")
        steps = data[3] if len(data) > 3 and node.inputs[4] is not None else (1,)
        if set(steps or (0,)) != {1} and self._lengths.cache_axes(node.inputs[0]):
            raise UnclearError("it takes every other entry of a cache")
        starts, ends = data[0], data[1]
        axes = data[2] if len(data) > 2 and node.inputs[3] is not None else range(len(starts))
        if axes is None:
            raise UnclearError("which axis it cuts is not known")
        return tuple((int(str(a)) % rank, s, e) for a, s, e in zip(axes, starts, ends, strict=True))

    def _require_cut_from_end(self, start: Dim, end: Dim, size: Dim) -> None:
        """Raise UnclearError where a cut does not count from the last entry."""
        to_end = _ends_at_last(end, size)
        from_back = not self._lengths.depends_on_length(start) and never_negative(-expr_of(start))
        if to_end and (from_back or self._lengths.depends_on_length(start)):
            return
        near_end = (isinstance(end, int) and end < 0) or self._lengths.length_multiple(end) == 1
        if not near_end or not (from_back or self._lengths.length_multiple(start) == 1):
            raise UnclearError("it takes entries by their number from the first on")

    def _pad_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        pads = self._shapes.known_elements(node.inputs[1]) if len(node.inputs) > 1 else None
        rank = self._shapes.rank(node.inputs[0]) or 0
        if pads is None or len(pads) != 2 * rank:
            raise UnclearError("which axes it pads is not known")
        slots = self._lengths.cache_axes(node.inputs[0])
        if any(pads[axis + side] != 0 for axis in slots for side in (0, rank)):
            raise UnclearError("it pads the entries of a cache")
        yield from ()

    def _trilu_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        rank = self._shapes.rank(node.inputs[0]) or 2
        slots = self._lengths.cache_axes(node.inputs[0])
        target = (rank - 1 in slots) - (rank - 2 in slots)
        diagonal = node.inputs[1] if len(node.inputs) > 1 else None
        counts = (0,) if diagonal is None else self._lengths.length_multiples(diagonal)
        if counts is None:
            raise UnclearError("which diagonal it takes is not known")
        if counts[0] != target:
            if diagonal is None:
                raise UnclearError("it counts diagonals from the first entry")
            move, dims = [target - counts[0]], self._shapes.dims(node.inputs[0])
            fixed = ints_of(diagonal) if attr_int(node, "upper", 1) and move == [1] else None
            effect = "counts from the last"
            if fixed is None or dims is None:
                yield CacheEdit(node, effect, {1: lambda op, x: op.add_invalid_count(x, move)})
                return
            first, (rows, columns) = fixed[0], dims[-2:]  # which keeps it part of a fused graph
            yield CacheEdit(
                node,
                effect,
                output=lambda op, _: op.keep_above_diagonal(
                    op.rebuild_node(node), first, rows, columns
                ),
            )

    def _constant_axis(self, axis: ir.Value | None, value: ir.Value | None) -> int:
        array = const_of(axis)
        if array is None:
            raise UnclearError("its axis is not known")
        return int(array.reshape(-1)[0]) % max(self._shapes.rank(value) or 1, 1)

    # What is known of what comes out

    def _record_outputs(self, node: ir.Node) -> None:
        operands = [x for x in node.inputs if x is not None]
        if is_op(node, "Shape", "Size"):
            return
        if any(x in self._cache_values for x in operands):
            self._cache_values.update(node.outputs)
        if not self._has_known_outputs(node):
            sizes, multiples = (
                _SIZE_OPERANDS.get(node.op_type, ()),
                map(self._lengths.length_multiples, operands),
            )
            counts = {i for i, x in enumerate(multiples) if x is not None and any(x)}
            if not counts <= {*sizes} or any(x in self._valid_counts for x in operands):
                self._valid_counts.update(x for x in node.outputs if self._is_integer(x))
        if self._outputs_zero(node):
            self._zero_values.update(
                x for x in node.outputs if len(self._lengths.cache_axes(x)) == 1
            )

    def _has_known_outputs(self, node: ir.Node) -> bool:
        return all(
            self._shapes.known_elements(x) is not None or x in self._lengths.casts
            for x in node.outputs
        ) and not any(x in self._valid_counts for x in node.inputs)

    def _is_integer(self, value: ir.Value) -> bool:
        dtype = self._shapes.dtype(value)
        return dtype is None or dtype.is_integer()

    def _is_zero(self, value: ir.Value | None) -> bool:
        if value in self._zero_values:
            return True
        fixed = const_of(value)
        return fixed is not None and fixed.size == 1 and not fixed.any()

    def _outputs_zero(self, node: ir.Node) -> bool:
        """Return whether the output is 0 at invalid entries."""
        operands = list(node.inputs)
        if is_op(node, "Mul", "And", "MatMul"):
            return any(x in self._zero_values for x in operands)
        if is_op(node, "Where"):
            if operands[0] in self._zero_values and self._is_zero(operands[2]):
                return True
            return any(x in self._zero_values for x in operands[1:]) and all(
                map(self._is_zero, operands[1:])
            )
        if is_op(node, "Add", "Sub", "Or", "Max", "Min"):
            return any(x in self._zero_values for x in operands) and all(
                map(self._is_zero, operands)
            )
        same = is_op(node, "CumSum", "Div") or node.op_type in _MOVES | _ZERO_TO_ZERO
        return same and operands[0] in self._zero_values


def _offset_cumsum(node: ir.Node, summed: ir.Value, edit: CacheEdit) -> CacheEdit:
    """Return the edit of a CumSum, offset by dropped entries if it counts positions."""
    if not _is_all_ones(summed):
        return edit
    build_operand = edit.inputs[0]
    return CacheEdit(
        node, edit.effect, output=lambda op, _: op.cumsum_positions(node, build_operand(op, summed))
    )


def _is_all_ones(value: ir.Value) -> bool:
    """Return whether all elements are 1, so that their sums are positions."""
    node = value.producer()
    fill = node.attributes.get("value") if node is not None else None
    return is_op(node, "ConstantOfShape") and fill is not None and fill.as_tensor().numpy() == 1


def _ends_at_last(end: Dim, size: Dim) -> bool:
    """Return whether a cut that ends there takes the last row."""
    return equal_dims(end, size) or (isinstance(end, int) and end >= _INT32_MAX)


def _recount_by(counts: Sequence[int]) -> Make:
    return lambda op, x: op.add_invalid_count(x, counts)


_EDITS_BY_OPERATOR: dict[str, Callable[[CacheEffects, ir.Node], Iterator[CacheEdit]]] = {
    "Range": CacheEffects._range_edits,
    "CumSum": CacheEffects._cumsum_edits,
    "MatMul": CacheEffects._matmul_edits,
    "Softmax": CacheEffects._softmax_edits,
    "Concat": CacheEffects._concat_edits,
    **dict.fromkeys(("Gather", "GatherElements"), CacheEffects._gather_edits),
    "GatherND": CacheEffects._gather_nd_edits,
    "Slice": CacheEffects._slice_edits,
    "Trilu": CacheEffects._trilu_edits,
    "Pad": CacheEffects._pad_edits,
    **dict.fromkeys(_REDUCES, CacheEffects._reduce_edits),
}
