"""Find what has to change in each node where a cache gets a fixed size; nothing is edited.

Nodes are visited in order. Most need no edit: an elementwise operator takes aligned axes, and a
Reshape takes sizes. An operand that counts the length counts the valid entries instead; an index of
an entry becomes its position along the axis; a sum over entries takes the valid ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, Skip
from graphfix.facts.axis_factors import keeps_axis
from graphfix.facts.shapes import input_dim_symbols, is_known_dim
from graphfix.facts.symbolic.expressions import Dim, equal_dims, expr_of, symbols_of
from graphfix.facts.symbolic.signs import never_negative
from graphfix.facts.symbolic.sums import subtract_dims
from graphfix.graph.constants import const_of, fill_value_of, ints_of, uniform_number
from graphfix.graph.nodes import attr_int, is_op
from graphfix.graph.text import size_text
from graphfix.graph.walks import bodies_of, opset_of, values_read_in_bodies
from graphfix.ops.axes import axis_of, mixed_axes, reduced_axes
from graphfix.ops.einsums import axes_of_letters, equation_of
from graphfix.ops.pads import pads_by_axis
from graphfix.ops.slices import Cut, read_cuts
from graphfix.ops.softmax import softmax_axes

from .cache_builder import CacheBuilder
from .length_dependence import LengthDependence, UnclearError

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


# Elements move along one axis at a time, so that an entry stays an entry.
_MOVES = (ops.MOVES_ELEMENTS | ops.CASTS | ops.IDLE) - (
    ops.COUNTS_CONTENTS
    | ops.named("DepthToSpace SpaceToDepth ReverseSequence GatherElements GatherND")
)
# No element of the result follows from another entry. A ConstantOfShape follows from sizes alone.
_KEEPS_ENTRIES_APART = (
    _MOVES | ops.ELEMENTWISE | ops.READS_ONLY_SHAPE | ops.named("ConstantOfShape")
)
# A zero in one input gives a zero, in the first input, or in all of them. A FastGelu has a bias.
_ZERO_IN_ANY = ops.ZERO_ABSORBS | ops.named("MatMul Einsum")
_ZERO_IN_FIRST = (
    _MOVES
    | (ops.ZERO_TO_ZERO & ops.UNARY) - ops.named("com.microsoft.FastGelu")
    | ops.named("CumSum Div Trilu")
)
_ZERO_IN_ALL = ops.ZERO_TO_ZERO & ops.BROADCASTS
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
        self._model, self._opset = model, opset_of(model)
        self._shapes, self._lengths = lengths.shapes, lengths
        self._input_symbols = {*input_dim_symbols(model)}
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
        find_edits = _EDITS_BY_OPERATOR.get(ops.qualified_name(node))
        if find_edits is not None:
            yield from find_edits(self, node)
            return
        size_operands = self._size_operands(node)
        if any(node.inputs[i] in self._valid_counts for i in size_operands):
            raise UnclearError("a size is computed from positions")
        self._require_unmixed(node)
        if inputs := dict(self._inputs_to_recount(node, size_operands)):
            yield CacheEdit(node, "counts the valid entries", inputs)

    def _size_operands(self, node: ir.Node) -> tuple[int, ...]:
        """Return the inputs that say how large the result is: they count all entries of a cache.

        An operator with edits of its own, such as Slice, decides about its operands itself.
        """
        if ops.qualified_name(node) in _EDITS_BY_OPERATOR:
            return ()
        return tuple(i for i in ops.size_inputs(node, self._opset) if i < len(node.inputs))

    def _computes_sizes(self, node: ir.Node) -> bool:
        """Return whether all outputs are known sums of sizes, so that their readers decide."""
        if any(x in self._valid_counts for x in node.inputs):
            return False
        if is_op(node, "Shape", "Size"):
            known = self._shapes.known_elements(node.outputs[0]) is not None
            if not known and not self._is_free_of_length(node.inputs[0]):
                raise UnclearError("its input has a shape that is not known")
            return True
        if is_op(node, "Cast") and not self._knows_elements(node, node.outputs[0]):
            counts = self._lengths.length_multiples(node.inputs[0])
            if counts is not None and any(counts):
                self._lengths.casts[node.outputs[0]] = counts
                return True
        if is_op(node, "Range", "CumSum"):
            return False
        return all(self._knows_elements(node, x) for x in node.outputs if x.name)

    def _knows_elements(self, node: ir.Node, output: ir.Value) -> bool:
        """Return whether the elements of an output are sizes, with names or merely unknown.

        What a node computes of a count is none, unless it is a sum of sizes of the inputs: the
        root of a length is unknown as well, and follows from the entries.
        """
        elements = self._shapes.known_elements(output)
        if elements is None:
            return False
        if node in ops.MOVES_ELEMENTS or self._depends_on_length(output):
            return True
        if all(symbols_of(x) <= self._input_symbols for x in elements):
            return True
        return not any(any(self._lengths.length_multiples(x) or ()) for x in node.inputs)

    def _is_free_of_length(self, value: ir.Value | None) -> bool:
        """Return whether no size that the length of a cache is in leads to a shape.

        A shape that is not known follows from those of the operands, and from contents: of those,
        what counts entries is known. The rows of an expert follow from scores.
        """
        seen, queue = set[ir.Value | None](), [value]
        while queue:
            tensor = queue.pop()
            if tensor is None or tensor in seen:
                continue
            seen.add(tensor)
            node, dims = tensor.producer(), self._shapes.dims(tensor)
            if self._depends_on_length(tensor) or (node is not None and bodies_of(node)):
                return False
            if dims is None or not all(map(is_known_dim, dims)):
                if node is None:
                    return False
                queue.extend(node.inputs)
        return True

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
        values = [x for x in (*node.inputs, *node.outputs) if x is not None]
        axes_of = {x: self._lengths.cache_axes(x) for x in values}
        if not any(axes_of.values()):
            return
        if node in _KEEPS_ENTRIES_APART:
            if is_op(node, "Reshape", "Flatten"):
                self._require_entry_axes(node)
            return
        rank = self._shapes.rank(node.inputs[0]) or 0
        mixed = mixed_axes(node, rank, self._opset) if node in ops.NORMS else None
        if mixed is not None and not any({*mixed} & axes.keys() for axes in axes_of.values()):
            return
        raise UnclearError(f"{node.op_type} may mix the entries of a cache")

    def _require_entry_axes(self, node: ir.Node) -> None:
        """Raise UnclearError where a Reshape splits or merges an axis of entries."""
        before, after = (self._shapes.dims(x) for x in (node.inputs[0], node.outputs[0]))
        if before is None or after is None:
            raise UnclearError("its shape is not known")
        for axis in self._lengths.cache_axes(node.inputs[0]):
            places = self._lengths.cache_axes(node.outputs[0])
            if not any(keeps_axis(before, axis, after, place) for place in places):
                sizes, new_sizes = (", ".join(map(size_text, x)) for x in (before, after))
                raise UnclearError(
                    f"[{sizes}] becomes [{new_sizes}], which mixes the entries of a cache"
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
        cache_axes = self._lengths.cache_axes(node.inputs[0])
        axes = reduced_axes(node, self._shapes.rank(node.inputs[0]) or 0, self._opset)
        if axes is None and cache_axes:
            raise UnclearError("which axes it reduces is not known")
        if axes is None or not any(axis in cache_axes for axis in axes):
            return
        if node in ops.REDUCES_TO_EXTREME:
            yield from self._extreme_edits(node, axes)
            return
        if node not in ops.REDUCES_PAST_ZEROS:
            raise UnclearError(f"{node.op_type} goes over the entries of a cache")
        yield from self._zero_invalid_edits(node, axes)

    def _extreme_edits(self, node: ir.Node, axes: Sequence[int]) -> Iterator[CacheEdit]:
        """Yield the edit of a maximum or minimum over entries, such as that of scores and sinks."""
        value = node.inputs[0]
        dims, dtype = self._shapes.dims(value) or (), self._shapes.dtype(value)
        ((axis, cache_axis), *more) = [
            (a, x) for a, x in self._lengths.cache_axes(value).items() if a in axes
        ]
        if more:
            raise UnclearError("it goes over the entries of a cache twice")
        if dtype is None or not (dtype.is_floating_point() or dtype.is_integer()):
            raise UnclearError("its type is not known, or has no lowest number")
        fill = _least_of(dtype, lowest=is_op(node, "ReduceMax"))
        behind = len(dims) - axis - 1
        yield CacheEdit(
            node,
            "looks at valid entries",
            {0: lambda op, x: op.fill_invalid(x, cache_axis, dims[axis], behind, fill)},
        )

    def _einsum_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        inputs: dict[int, Make] = {}
        for places in self._summed_cache_axes(node):
            if any(self._is_zero(node.inputs[place]) for place, _ in places):
                continue
            place, axis = places[0]
            if place in inputs:
                raise UnclearError("it sums over the entries of a cache twice")
            inputs[place] = self._zeroed(node.inputs[place], axis)
        if inputs:
            yield CacheEdit(node, "sums valid entries", inputs)

    def _summed_cache_axes(self, node: ir.Node) -> list[list[tuple[int, int]]]:
        """Return, for each letter of an Einsum that sums over a cache, which axes of which inputs.

        Raises:
            UnclearError: Its equation is not known, or takes the diagonal of a cache.
        """
        equation = equation_of(node)
        ranks = [self._shapes.rank(x) for x in node.inputs]
        if equation is None or None in ranks or len(equation.terms) != len(ranks):
            raise UnclearError("which axes it sums over is not known")
        summed: dict[str, list[tuple[int, int]]] = {}
        for place, (term, rank) in enumerate(zip(equation.terms, ranks, strict=True)):
            cache_axes = self._lengths.cache_axes(node.inputs[place])
            letters = axes_of_letters(term, rank or 0) or []
            for letter, axis in letters:
                if axis not in cache_axes:
                    continue
                if term.count(letter) > 1:
                    raise UnclearError("it takes the diagonal of the entries of a cache")
                if letter not in equation.result:
                    summed.setdefault(letter, []).append((place, axis))
        return [*summed.values()]

    def _zeroed(self, value: ir.Value | None, axis: int) -> Make:
        """Return what builds a value with zeros in place of the invalid entries of an axis."""
        cache_axis = self._lengths.cache_axes(value)[axis]
        dims = self._shapes.dims(value) or ()
        behind = len(dims) - axis - 1
        return lambda op, x: op.zero_invalid(x, cache_axis, dims[axis], behind)

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
            yield CacheEdit(node, "sums valid entries", {0: self._zeroed(value, cache_axes[0][0])})

    def _softmax_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        value = node.inputs[0]
        dims = self._shapes.dims(value) or ()
        rank = len(dims)
        normalized_axes = softmax_axes(node, rank, self._opset) or ()
        cache_axes = [
            (axis, x)
            for axis, x in self._lengths.cache_axes(value).items()
            if axis in normalized_axes
        ]
        if not cache_axes:
            return
        if len(cache_axes) > 1:
            raise UnclearError("it normalizes the entries of a cache along two axes")
        ((axis, cache_axis),) = cache_axes
        size, dtype = dims[axis], self._shapes.dtype(value)

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
        axis = axis_of(node, self._shapes.rank(node.outputs[0]) or 1, self._opset)
        if any(axis in self._lengths.cache_axes(x) for x in node.inputs[1:]):
            raise UnclearError("it joins something in front of the entries of a cache")
        if inputs := dict(self._inputs_to_recount(node)):
            yield CacheEdit(node, "counts the valid entries", inputs)

    def _gather_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        data, index = node.inputs[:2]
        axis = axis_of(node, self._shapes.rank(data) or 1, self._opset)
        cache_axes = self._lengths.cache_axes(data)
        if axis is None or axis not in cache_axes:
            yield from self._table_gather_edits(node, index)
            return
        from_end = self._counts_from_end(index)
        if from_end is None:
            cache_axis, effect = cache_axes[axis], "takes entries by their place"
            yield CacheEdit(node, effect, {1: lambda op, x: op.entries_to_positions(x, cache_axis)})
        elif not from_end:
            raise UnclearError("it takes an entry by its number from the first on")

    def _table_gather_edits(self, node: ir.Node, index: ir.Value | None) -> Iterator[CacheEdit]:
        """Yield the edit of a Gather of anything but entries, such as rows of positions."""
        inputs = dict(self._inputs_to_recount(node))
        if index in self._valid_counts or 1 in inputs:
            recount = inputs.get(1)
            inputs[1] = lambda op, x: op.clamp_at_zero(x if recount is None else recount(op, x))
        if inputs:
            yield CacheEdit(node, "takes rows by the number of valid entries", inputs)

    def _counts_from_end(self, index: ir.Value | None) -> bool | None:
        """Return whether indices count from the last entry; None if they are known in a run."""
        counts = self._lengths.length_multiples(index)
        if counts is not None and index not in self._valid_counts:
            pairs = zip(counts, self._shapes.known_elements(index) or (), strict=True)
            return all(n == 1 or (isinstance(x, int) and x < 0) for n, x in pairs)
        fixed = const_of(index)
        return None if fixed is None else all(x < 0 for x in fixed.reshape(-1).tolist())

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
        cache_axes = self._lengths.cache_axes(data)
        dims = self._shapes.dims(data) or ()
        tables = []
        for axis, start, end in cuts:
            if axis in cache_axes:
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
        """Return the axes that a Slice cuts, each with its start and its end."""
        rank = self._shapes.rank(node.inputs[0]) or 0
        cuts: dict[int, Cut[Dim | None]] | None = read_cuts(node, rank, self._shapes.known_elements)
        if cuts is None:
            raise UnclearError("where it cuts is not known")
        limits = [(axis, x.start, x.end) for axis, x in cuts.items()]
        known_limits = tuple((a, s, e) for a, s, e in limits if s is not None and e is not None)
        if len(known_limits) < len(limits):
            raise UnclearError("where it cuts is not known")
        if any(x.step != 1 for x in cuts.values()) and self._lengths.cache_axes(node.inputs[0]):
            raise UnclearError("it takes every other entry of a cache")
        return known_limits

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
        rank = self._shapes.rank(node.inputs[0]) or 0
        pads = pads_by_axis(node, rank, self._shapes.known_elements)
        if pads is None:
            raise UnclearError("which axes it pads is not known")
        if any(
            pads.get(axis, (0, 0)) != (0, 0) for axis in self._lengths.cache_axes(node.inputs[0])
        ):
            raise UnclearError("it pads the entries of a cache")
        yield from ()

    def _trilu_edits(self, node: ir.Node) -> Iterator[CacheEdit]:
        rank = self._shapes.rank(node.inputs[0]) or 2
        cache_axes = self._lengths.cache_axes(node.inputs[0])
        target = (rank - 1 in cache_axes) - (rank - 2 in cache_axes)
        diagonal = node.inputs[1] if len(node.inputs) > 1 else None
        if self._counts_from_last_column(node.inputs[0], diagonal):
            return
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

    def _counts_from_last_column(self, matrix: ir.Value | None, diagonal: ir.Value | None) -> bool:
        """Return whether a diagonal is as far from the last column, however long caches are."""
        dims, numbers = self._shapes.dims(matrix), self._shapes.known_elements(diagonal)
        if not dims or len(dims) < 2 or not numbers or diagonal in self._valid_counts:
            return False
        first_diagonal = subtract_dims(dims[-1], dims[-2])
        return not self._lengths.depends_on_length(subtract_dims(numbers[0], first_diagonal))

    def _constant_axis(self, axis: ir.Value | None, value: ir.Value | None) -> int:
        array = const_of(axis)
        if array is None:
            raise UnclearError("its axis is not known")
        return int(array.reshape(-1)[0]) % max(self._shapes.rank(value) or 1, 1)

    # What later nodes ask of the outputs

    def _record_outputs(self, node: ir.Node) -> None:
        """Record which outputs hold entries of a cache, count valid ones, or are 0 elsewhere."""
        if node in ops.MEASURES:
            return
        if any(x in self._cache_values for x in node.inputs):
            self._cache_values.update(node.outputs)
        integers = [x for x in node.outputs if self._is_integer(x)]
        if integers and not self._has_known_outputs(node) and self._reads_count(node):
            self._valid_counts.update(integers)
        if self._outputs_zero(node):
            self._zero_values.update(
                x for x in node.outputs if len(self._lengths.cache_axes(x)) == 1
            )

    def _reads_count(self, node: ir.Node) -> bool:
        """Return whether a node reads a number that counts entries, other than as a size."""
        if any(x in self._valid_counts for x in node.inputs):
            return True
        size_operands = self._size_operands(node)
        numbers = [x for i, x in enumerate(node.inputs) if i not in size_operands]
        return any(any(self._lengths.length_multiples(x) or ()) for x in numbers)

    def _has_known_outputs(self, node: ir.Node) -> bool:
        return all(
            self._knows_elements(node, x) or x in self._lengths.casts for x in node.outputs
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
        if node in _ZERO_IN_ANY:
            return any(x in self._zero_values for x in operands)
        if is_op(node, "Where"):
            if operands[0] in self._zero_values and self._is_zero(operands[2]):
                return True
            return self._are_all_zero(operands[1:])
        if node in _ZERO_IN_ALL:
            return self._are_all_zero(operands)
        return node in _ZERO_IN_FIRST and operands[0] in self._zero_values

    def _are_all_zero(self, operands: Sequence[ir.Value | None]) -> bool:
        """Return whether all operands are 0 at invalid entries, one of them only there."""
        return any(x in self._zero_values for x in operands) and all(map(self._is_zero, operands))


def _least_of(dtype: ir.DataType, *, lowest: bool) -> float:
    """Return the lowest number of a type, or the highest."""
    numpy_type = dtype.numpy()
    info = np.finfo(numpy_type) if numpy_type.kind == "f" else np.iinfo(numpy_type)
    return info.min if lowest else info.max


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
    fill = fill_value_of(node) if is_op(node, "ConstantOfShape") else None
    return fill is not None and uniform_number(fill) == 1


def _ends_at_last(end: Dim, size: Dim) -> bool:
    """Return whether a cut that ends there takes the last row."""
    return equal_dims(end, size) or (isinstance(end, int) and end >= _INT32_MAX)


def _recount_by(counts: Sequence[int]) -> Make:
    return lambda op, x: op.add_invalid_count(x, counts)


_EDITS_BY_OPERATOR: dict[str, Callable[[CacheEffects, ir.Node], Iterator[CacheEdit]]] = {
    **dict.fromkeys(ops.REDUCES | ops.named("ArgMax ArgMin"), CacheEffects._reduce_edits),
    "Range": CacheEffects._range_edits,
    "CumSum": CacheEffects._cumsum_edits,
    "MatMul": CacheEffects._matmul_edits,
    "Einsum": CacheEffects._einsum_edits,
    "Softmax": CacheEffects._softmax_edits,
    "Concat": CacheEffects._concat_edits,
    **dict.fromkeys(("Gather", "GatherElements"), CacheEffects._gather_edits),
    "GatherND": CacheEffects._gather_nd_edits,
    "Slice": CacheEffects._slice_edits,
    "Trilu": CacheEffects._trilu_edits,
    "Pad": CacheEffects._pad_edits,
}
