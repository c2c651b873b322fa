"""What the nodes of a model with caches of one size are given: made once, for all who ask."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.symbolic.expressions import Dim, replaced
from graphfix.facts.symbolic.sums import terms_of

from .slots import Slots

_WHOLE = ir.DataType.INT64
_SCALAR = np.array([], np.int64)


@dataclass(frozen=True)
class Makers:
    """Makes the numbers and masks of one cache length.

    Args:
        builder: What edits the graph.
        told: The input, int64 [1], that takes the number of valid entries.
        symbol: The dim that was the length.
        size: The entries that each cache has now.
        inputs: Inputs of the graph with their dims: sizes of the others are read from them.
    """

    _op: Builder
    _told: ir.Value
    _symbol: str
    _size: int
    _inputs: Sequence[tuple[ir.Value, Sequence[Dim]]]

    def moved(self, value: ir.Value, counts: Sequence[int]) -> ir.Value:
        """``value`` plus, for each element, so many times the entries that are not valid."""
        op = self._op
        spare = self._spare()
        many = set(counts)
        if many != {1} and many != {-1}:
            spare = op.Mul(spare, np.array(counts, np.int64))
        if op.view.shapes.rank(value) == 0:
            spare = op.Reshape(spare, _SCALAR)
        return (op.Sub if many == {-1} else op.Add)(value, self._like(spare, value))

    def again(self, node: ir.Node) -> ir.Value:
        """What a node makes, made once more."""
        made = self._op.again(node, *node.inputs)
        dtype = self._op.view.shapes.dtype(node.outputs[0])
        if dtype is not None:
            made.dtype = dtype
        return made

    def placed(self, index: ir.Value, slots: Slots, which: Sequence[int] | None = None) -> ir.Value:
        """Numbers of entries, from the first valid one on, as places along the axis."""
        op = self._op
        shift = self._shift(slots)
        if which is not None:
            shift = op.Mul(shift, np.array(which, np.int64))
        return op.Max(op.Add(index, self._like(shift, index)), self._zero(index))

    def at_least_0(self, index: ir.Value) -> ir.Value:
        """Numbers of rows, of which those that are not valid may be negative."""
        return self._op.Max(index, self._zero(index))

    def counted(self, node: ir.Node, ones: ir.Value) -> ir.Value:
        """A CumSum made once more."""
        return self._op.again(node, ones, *node.inputs[1:])

    def rolled(self, node: ir.Node, ones: ir.Value) -> ir.Value:
        """Positions that a CumSum counts; of caches that have rolled on, the first is not 0."""
        op, positions = self._op, self.counted(node, ones)
        beyond = op.Max(op.Sub(self._told, np.array([self._size], np.int64)), np.array(0, np.int64))
        return op.Add(positions, self._like(beyond, positions))

    def cleaned(self, value: ir.Value, slots: Slots, size: Dim, behind: int) -> ir.Value:
        """``value`` with zeros in the place of entries that are not valid."""
        mask = self._behind(self._spare_ones(slots, size), behind)
        return self._op.Where(mask, self._zero(value), value)

    def above(self, value: ir.Value, first: int, rows: Dim, columns: Dim) -> ir.Value:
        """``value`` [..., rows, columns] above a diagonal, counted from the first valid column."""
        op = self._op
        ahead = op.Sub(self._iota(columns), self._behind(self._iota(rows), 1))
        least = op.Add(self._spare(), np.array([first], np.int64))
        return op.Where(op.Less(ahead, least), self._zero(value), value)

    def hidden(
        self, value: ir.Value, slots: Slots, size: Dim, behind: int, dtype: ir.DataType
    ) -> ir.Value:
        """Scores, or what is added to them, that are the least there is where nothing is valid."""
        op = self._op

        def hide() -> ir.Value:
            kind = dtype.numpy()
            least = np.array(np.finfo(np.float32 if kind.kind != "f" else kind).min, kind)
            made = op.Where(self._spare_ones(slots, size), least, np.zeros((), kind))
            return self._behind(made, behind)

        key = ("hide", str(slots), str(size), behind, str(dtype))
        own = ("hidden", value.name, *key)
        return op.once(own, lambda: op.Add(value, op.once(key, hide, self._told)), value)

    def rows(
        self,
        node: ir.Node,
        rest: Sequence[tuple[int, Dim, Dim]],
        axis: int,
        first: Dim,
        count: Dim,
        moves: int,
    ) -> ir.Value:
        """The rows that a Slice takes of a table, by the number of valid entries.

        Args:
            node: The Slice.
            rest: What it cuts along other axes: axis, start, end.
            axis: The axis of the table.
            first: Where it begins, in a model whose cache is empty.
            count: How many rows it takes.
            moves: 1 if it begins behind the cache, 0 if it ends there.
        """
        op = self._op
        table = node.inputs[0]
        if rest:
            axes, starts, ends = zip(*rest, strict=True)
            table = op.Slice(table, self._sizes(starts), self._sizes(ends), np.array(axes))
        index = op.Add(self._iota(count), self._sizes([first]))
        index = op.Add(index, self._told) if moves else op.Sub(index, self._spare())
        return op.Gather(table, op.Max(index, np.array(0, np.int64)), axis=axis)

    # Shared by all

    def _spare(self) -> ir.Value:
        """How many entries of a cache are not valid, int64 [1]."""
        size = np.array([self._size], np.int64)
        return self._op.once(("spare",), lambda: self._op.Sub(size, self._told), self._told)

    def _shift(self, slots: Slots) -> ir.Value:
        """How many entries of an axis are not valid, int64 [1]."""
        if slots.window is None:
            return self._spare()

        def build() -> ir.Value:
            there = self._op.Add(self._told, self._sizes([slots.behind]))
            return self._op.Sub(self._sizes([slots.window or 0]), there)

        return self._op.once(("shift", str(slots)), build, self._told)

    def _spare_ones(self, slots: Slots, size: Dim) -> ir.Value:
        """Which entries of an axis are not valid, bool [size]."""

        def build() -> ir.Value:  # a LessOrEqual below opset 16 has no shape inference
            return self._op.Less(self._iota(size), self._shift(slots))

        return self._op.once(("spare ones", str(slots), str(size)), build, self._told)

    def _iota(self, size: Dim) -> ir.Value:
        """0, 1, 2 and so on, int64 [size]."""
        size = replaced(size, {self._symbol: self._size})
        op = self._op
        if isinstance(size, int):
            return op.constant(np.arange(size, dtype=np.int64))

        def build() -> ir.Value:
            limit = op.Reshape(self._sizes([size]), _SCALAR)
            return op.Range(np.array(0, np.int64), limit, np.array(1, np.int64))

        return op.once(("iota", str(size)), build, self._told)

    def _sizes(self, dims: Sequence[Dim]) -> ir.Value:
        """Sizes as int64 [n]: numbers, and sums of those of the inputs."""
        op = self._op
        if all(isinstance(x, int) for x in dims):
            return op.constant(np.array(dims, np.int64))
        if len(dims) > 1:
            return op.Concat(*[self._sizes([x]) for x in dims], axis=0)
        (dim,) = dims

        def build() -> ir.Value:
            number, terms = terms_of(replaced(dim, {self._symbol: self._size}))
            total = op.constant(np.array([number], np.int64))
            for factor, name in terms:
                size = self._size_of(name)
                if factor != 1:
                    size = op.Mul(size, np.array([factor], np.int64))
                total = op.Add(total, size)
            return total

        return op.once(("size", str(dim)), build, self._told)

    def _size_of(self, name: str) -> ir.Value:
        places = ((x, i, dim) for x, dims in self._inputs for i, dim in enumerate(dims))
        value, axis = next((x, i) for x, i, dim in places if str(dim) == name)
        shape = self._op.once(("shape", value.name), lambda: self._op.Shape(value), self._told)
        return self._op.Gather(shape, np.array([axis], np.int64), axis=0)

    def _behind(self, value: ir.Value, axes: int) -> ir.Value:
        """A vector with so many axes of 1 behind it."""
        return value if not axes else self._op.Reshape(value, np.array([-1, *[1] * axes], np.int64))

    def _zero(self, value: ir.Value) -> ir.Value:
        dtype = self._op.view.shapes.dtype(value) or _WHOLE
        return self._op.constant(np.zeros((), dtype.numpy()))

    def _like(self, number: ir.Value, value: ir.Value) -> ir.Value:
        """A whole number in the type of ``value``."""
        dtype = self._op.view.shapes.dtype(value)
        return number if dtype in (None, _WHOLE) else self._op.Cast(number, to=dtype)
