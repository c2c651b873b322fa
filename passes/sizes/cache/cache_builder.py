"""Builds the nodes that a model with caches of a fixed size needs, each once."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import sympy

from graphfix.editing.builder import Builder
from graphfix.errors import PaddingError
from graphfix.facts.symbolic.expressions import Dim, expr_of, replace_symbols
from graphfix.lengths.dim_nodes import SizeArithmetic

from .length_dependence import CacheAxis

_INT64 = ir.DataType.INT64
_SCALAR = np.array([], np.int64)
# From this opset on Max takes integers.
_MAX_TAKES_INTEGERS = 12


@dataclass(frozen=True)
class CacheBuilder:
    """Builds the numbers and masks for caches of one size.

    Args:
        _op: The builder that edits the graph.
        _valid_count: The input, int64 [1], that takes the number of valid entries.
        _symbol: The dim that was the length.
        _size: The entries that each cache has now.
        _graph_inputs: Inputs of the graph with their dims, from which other sizes are read.
    """

    _op: Builder
    _valid_count: ir.Value
    _symbol: str
    _size: int
    _graph_inputs: Sequence[tuple[ir.Value, Sequence[Dim]]]

    def add_invalid_count(self, value: ir.Value, counts: Sequence[int]) -> ir.Value:
        """Build ``value`` plus, for each element, ``counts`` times the invalid entries."""
        op = self._op
        invalid_count = self._invalid_entries()
        factors = set(counts)
        if factors != {1} and factors != {-1}:
            invalid_count = op.Mul(invalid_count, np.array(counts, np.int64))
        if op.view.shapes.rank(value) == 0:
            invalid_count = op.Reshape(invalid_count, _SCALAR)
        return (op.Sub if factors == {-1} else op.Add)(value, self._cast_like(invalid_count, value))

    def rebuild_node(self, node: ir.Node) -> ir.Value:
        """Build the output of a node once more."""
        return self._clone_typed(node, *node.inputs)

    def entries_to_positions(
        self, index: ir.Value, cache_axis: CacheAxis, factors: Sequence[int] | None = None
    ) -> ir.Value:
        """Build positions along an axis from numbers of entries, counted from the first valid."""
        op = self._op
        shift = self._invalid_along(cache_axis)
        if factors is not None:
            shift = op.Mul(shift, np.array(factors, np.int64))
        return self.clamp_at_zero(op.Add(index, self._cast_like(shift, index)))

    def clamp_at_zero(self, index: ir.Value) -> ir.Value:
        """Build row numbers with negative ones, those of invalid rows, set to 0."""
        op, zero = self._op, self._zero_like(index)
        if op.view.opset_of_node(op.site) < _MAX_TAKES_INTEGERS:
            return op.Where(op.Less(index, zero), zero, index)
        return op.Max(index, zero)

    def rebuild_cumsum(self, node: ir.Node, summed: ir.Value) -> ir.Value:
        """Build a CumSum once more, of another operand."""
        return self._clone_typed(node, summed, *node.inputs[1:])

    def cumsum_positions(self, node: ir.Node, summed: ir.Value) -> ir.Value:
        """Build the positions that a CumSum counts, plus the entries that caches have dropped."""
        op, positions = self._op, self.rebuild_cumsum(node, summed)
        dropped = self.clamp_at_zero(op.Sub(self._valid_count, np.array([self._size], np.int64)))
        return op.Add(positions, self._cast_like(dropped, positions))

    def zero_invalid(
        self, value: ir.Value, cache_axis: CacheAxis, size: Dim, trailing_axes: int
    ) -> ir.Value:
        """Build ``value`` with zeros in place of invalid entries."""
        return self.fill_invalid(value, cache_axis, size, trailing_axes, 0)

    def fill_invalid(
        self, value: ir.Value, cache_axis: CacheAxis, size: Dim, trailing_axes: int, fill: float
    ) -> ir.Value:
        """Build ``value`` with a number in place of invalid entries."""
        op, dtype = self._op, self._op.view.shapes.dtype(value) or _INT64
        mask = self._append_unit_axes(self._invalid_mask(cache_axis, size), trailing_axes)
        return op.Where(mask, op.constant(np.array(fill, dtype.numpy())), value)

    def keep_above_diagonal(self, value: ir.Value, first: int, rows: Dim, columns: Dim) -> ir.Value:
        """Build ``value`` [.., rows, columns] above a diagonal counted from valid columns."""
        op = self._op
        distances = op.Sub(self._iota(columns), self._append_unit_axes(self._iota(rows), 1))
        smallest_kept = op.Add(self._invalid_entries(), np.array([first], np.int64))
        return op.Where(op.Less(distances, smallest_kept), self._zero_like(value), value)

    def hide_invalid(
        self,
        value: ir.Value,
        cache_axis: CacheAxis,
        size: Dim,
        trailing_axes: int,
        dtype: ir.DataType,
    ) -> ir.Value:
        """Build scores, or their addend, with the lowest number where entries are invalid."""
        op = self._op

        def build_mask() -> ir.Value:
            numpy_type = dtype.numpy()
            lowest = np.array(
                np.finfo(np.float32 if numpy_type.kind != "f" else numpy_type).min, numpy_type
            )
            mask = op.Where(self._invalid_mask(cache_axis, size), lowest, np.zeros((), numpy_type))
            return self._append_unit_axes(mask, trailing_axes)

        key = ("hide", str(cache_axis), str(size), trailing_axes, str(dtype))
        own = ("hidden", value.name, *key)
        return op.build_once(
            own, lambda: op.Add(value, op.build_once(key, build_mask, self._valid_count)), value
        )

    def take_rows(
        self,
        node: ir.Node,
        other_cuts: Sequence[tuple[int, Dim, Dim]],
        axis: int,
        start: Dim,
        count: Dim,
        follows_cache: int,
    ) -> ir.Value:
        """Build the rows that a Slice takes of a table, by the number of valid entries.

        Args:
            node: The Slice.
            other_cuts: What it cuts along other axes: axis, start, end.
            axis: The axis of the table.
            start: Where it begins in a model whose cache is empty.
            count: How many rows it takes.
            follows_cache: 1 if it begins behind the cache, 0 if it ends there.
        """
        op = self._op
        table = node.inputs[0]
        if other_cuts:
            axes, starts, ends = zip(*other_cuts, strict=True)
            table = op.Slice(
                table, self._size_vector(starts), self._size_vector(ends), np.array(axes)
            )
        index = op.Add(self._iota(count), self._size_vector([start]))
        index = (
            op.Add(index, self._valid_count)
            if follows_cache
            else op.Sub(index, self._invalid_entries())
        )
        return op.Gather(table, self.clamp_at_zero(index), axis=axis)

    # Shared by all

    def _clone_typed(self, node: ir.Node, *inputs: ir.Value | None) -> ir.Value:
        """Build a node once more, with the type that its output had, which nothing else tells."""
        output = self._op.clone_node(node, *inputs)
        dtype = self._op.view.shapes.dtype(node.outputs[0])
        if dtype is not None:
            output.dtype = dtype
        return output

    def _invalid_entries(self) -> ir.Value:
        """Build the number of invalid entries of a cache, int64 [1]."""
        size = np.array([self._size], np.int64)
        return self._op.build_once(
            ("spare",), lambda: self._op.Sub(size, self._valid_count), self._valid_count
        )

    def _invalid_along(self, cache_axis: CacheAxis) -> ir.Value:
        """Build the number of invalid entries along an axis, int64 [1]."""
        if cache_axis.window is None:
            return self._invalid_entries()

        def build() -> ir.Value:
            valid_entries = self._op.Add(self._valid_count, self._size_vector([cache_axis.extra]))
            return self._op.Sub(self._size_vector([cache_axis.window or 0]), valid_entries)

        return self._op.build_once(("shift", str(cache_axis)), build, self._valid_count)

    def _invalid_mask(self, cache_axis: CacheAxis, size: Dim) -> ir.Value:
        """Build which entries of an axis are invalid, bool [size]."""

        def build() -> ir.Value:  # a LessOrEqual below opset 16 has no shape inference
            return self._op.Less(self._iota(size), self._invalid_along(cache_axis))

        return self._op.build_once(
            ("spare ones", str(cache_axis), str(size)), build, self._valid_count
        )

    def _iota(self, size: Dim) -> ir.Value:
        """Build 0, 1, 2 and so on, int64 [size]."""
        size = replace_symbols(size, {self._symbol: self._size})
        op = self._op
        if isinstance(size, int):
            return op.constant(np.arange(size, dtype=np.int64))

        def build() -> ir.Value:
            limit = op.Reshape(self._size_vector([size]), _SCALAR)
            return op.Range(np.array(0, np.int64), limit, np.array(1, np.int64))

        return op.build_once(("iota", str(size)), build, self._valid_count)

    def _size_vector(self, dims: Sequence[Dim]) -> ir.Value:
        """Build sizes as int64 [n]: numbers, and sums of sizes of the inputs."""
        op = self._op
        if all(isinstance(x, int) for x in dims):
            return op.constant(np.array(dims, np.int64))
        if len(dims) > 1:
            return op.Concat(*[self._size_vector([x]) for x in dims], axis=0)
        (dim,) = dims

        def build() -> ir.Value:
            expr = expr_of(replace_symbols(dim, {self._symbol: self._size}))
            number, terms = sympy.expand(expr).as_coeff_add()
            total = op.constant(np.array([int(number)], np.int64))
            for term in terms:
                total = op.Add(total, self._size_of_term(term))
            return total

        return op.build_once(("size", str(dim)), build, self._valid_count)

    def _size_of_term(self, term: sympy.Expr) -> ir.Value:
        """Build a product of numbers and sizes of the inputs, such as ``2*floor(S/4)``.

        Raises:
            PaddingError: A factor has several sizes in it.
        """
        by_name: dict[str, sympy.Expr] = {}
        for factor in sympy.Mul.make_args(term):
            names = sorted(x.name for x in factor.free_symbols)
            if len(names) > 1:
                raise PaddingError(f"static-cache: the size {term} is no sum of sizes of inputs")
            name = names[0] if names else ""
            by_name[name] = by_name.get(name, sympy.Integer(1)) * factor
        number = by_name.pop("", sympy.Integer(1))
        sizes = [
            SizeArithmetic(
                self._op, "size", name, functools.partial(self._input_size, name), self._valid_count
            ).build(factor)
            for name, factor in by_name.items()
        ]
        size = functools.reduce(self._op.Mul, sizes)
        return size if number == 1 else self._op.Mul(size, np.array([int(number)], np.int64))

    def _input_size(self, name: str) -> ir.Value:
        places = ((x, i, dim) for x, dims in self._graph_inputs for i, dim in enumerate(dims))
        value, axis = next((x, i) for x, i, dim in places if str(dim) == name)
        shape = self._op.build_once(
            ("shape", value.name), lambda: self._op.Shape(value), self._valid_count
        )
        return self._op.Gather(shape, np.array([axis], np.int64), axis=0)

    def _append_unit_axes(self, value: ir.Value, axes: int) -> ir.Value:
        """Build a vector with ``axes`` axes of 1 appended."""
        return value if not axes else self._op.Reshape(value, np.array([-1, *[1] * axes], np.int64))

    def _zero_like(self, value: ir.Value) -> ir.Value:
        dtype = self._op.view.shapes.dtype(value) or _INT64
        return self._op.constant(np.zeros((), dtype.numpy()))

    def _cast_like(self, number: ir.Value, value: ir.Value) -> ir.Value:
        """Build an integer in the type of ``value``."""
        dtype = self._op.view.shapes.dtype(value)
        return number if dtype in (None, _INT64) else self._op.Cast(number, to=dtype)
