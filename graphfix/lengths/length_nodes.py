"""Valid lengths as nodes: lengths, positions, masks, addends.

A mask is a comparison of positions, and positions are ``CumSum(ConstantOfShape(size))``: what
DirectML runs well, as a Range over a dynamic size does not; before opset 11, which has no CumSum,
they are where ones are not zero. Each distinct length, mask and addend
is made once for the whole model.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from graphfix.editing.builder import Builder
from graphfix.facts.symbolic.signs import never_negative
from graphfix.graph.nodes import attr_int, is_op
from graphfix.lengths.dim_nodes import Arithmetic, counting, extremum, lowers, size_of
from graphfix.lengths.length_source import Source
from graphfix.lengths.number_effects import extreme
from graphfix.lengths.tail_state import Axis, Rows, State, Time, holds_rows, size_expr

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

OLDEST = 11
"""The oldest opset that has CumSum."""


class Lengths:
    """The valid lengths of a model as values in its graph.

    Args:
        op: The builder.
        source: The padded dim.
        given: The input that holds the valid lengths: [B] or [1], or a mask [B, T].
        opset: The version of the standard opset, at least :data:`OLDEST`.
        floor: What is added to a score that is to weigh nothing; None for the least number of
            its type.
    """

    def __init__(
        self, op: Builder, source: Source, given: ir.Value, opset: int, floor: float | None
    ) -> None:
        self._op = op
        self.source = source
        self._given = given
        self.opset = opset
        self._floor = floor
        self._valid = Arithmetic(op, "valid", source.symbol, self._lengths, given)
        self._padded = Arithmetic(
            op, "padded", source.symbol, lambda: self.count(source.value, source.axis), given
        )

    def dtype(self, value: ir.Value) -> ir.DataType:
        """The element type of a value."""
        found = self.source.shapes.dtype(value) or self._made(value)
        if found is None:
            raise RuntimeError(f"the element type of {value.name!r} is not known")
        return found

    def _made(self, value: ir.Value) -> ir.DataType | None:
        """The element type of what a repair has made, from what it was made of."""
        node = value.producer()
        if node is None:
            return None
        if node.op_type in ("Cast", "Shape", "ConstantOfShape", "Less", "Not", "And"):
            to = {"Cast": attr_int(node, "to", 1), "Shape": 7, "ConstantOfShape": 7}
            return ir.DataType(to.get(node.op_type, 9))
        first = node.inputs[1 if node.op_type == "Where" else 0]
        return None if first is None else self.dtype(first)

    def floor(self, dtype: ir.DataType) -> Numbers:
        """A scalar that weighs nothing in a Softmax."""
        if self._floor is None:
            return self.extreme(dtype, high=False)
        return np.array(self._floor, dtype.numpy())

    def extreme(self, dtype: ir.DataType, *, high: bool) -> Numbers:
        """The least, or the largest, number of a type, as a scalar."""
        return np.array(extreme(dtype, high=high), dtype.numpy())

    # --- lengths ----------------------------------------------------------------------------

    def rows(self, size: sympy.Expr) -> ir.Value:
        """The valid length of each row of an axis of this size, int64 [B] or [1], at least 0."""
        if str(size) == self.source.symbol:
            return self._lengths()
        key = ("rows", str(size))
        zero = np.zeros(1, np.int64)
        return self._op.once(key, lambda: self.larger(self._valid.of(size), zero), self._given)

    def size(self, size: sympy.Expr) -> ir.Value:
        """A size with the padding counted in, int64 [1]."""
        return self._padded.of(size)

    def _lengths(self) -> ir.Value:
        """How much of each row of the padded input is valid, int64 [B] or [1]."""
        op, given = self._op, self._given
        mask = self.source.given is not None and self.source.kind == "mask"
        whole = self.dtype(given) == ir.DataType.INT64
        if whole and not mask:
            return given

        def build() -> ir.Value:
            numbers = given if whole else op.Cast(given, to=ir.DataType.INT64)
            if not mask:
                return numbers
            others = range(1, len(self.source.shapes.dims(given) or (0, 0)))
            return self.squeeze(self.reduce_sum(numbers, others), others)

        return op.once(("lengths",), build, given)

    def count(self, value: ir.Value, axis: int) -> ir.Value:
        """The size of one axis of a tensor, int64 [1]."""
        op = self._op
        return op.once(("count", value, axis), lambda: size_of(value, axis, op), value)

    def instead_of(self, value: ir.Value, rank: int, trailing: int) -> ir.Value:
        """The arithmetic that made a number from sizes, on valid lengths.

        Args:
            value: The number: one element.
            rank: How many axes it has.
            trailing: How many axes of size 1 follow that of the batch, if there is a batch.
        """
        op = self._op
        size = self._number(value)
        if size is not None and (never_negative(size) or not self._is_computed(value)):
            rows = self.rows(size)
            if self.dtype(value) != ir.DataType.INT64:
                rows = op.Cast(rows, to=self.dtype(value))
            if self.source.batch is None and rank == 0:
                return self.squeeze(rows, [0])
            end = rank if self.source.batch is None else trailing + 1
            return self.unsqueeze(rows, range(1, end))
        node = value.producer()
        if node is None or is_op(node, "Constant"):
            return value
        if is_op(node, *LOOKED_THROUGH):
            first = node.inputs[0]
            return value if first is None else self.instead_of(first, rank, trailing)
        inputs = [None if x is None else self.instead_of(x, rank, trailing) for x in node.inputs]
        return op.make(node.op_type, *inputs, **{k: v.value for k, v in node.attributes.items()})

    def _number(self, value: ir.Value | None) -> sympy.Expr | None:
        """What one element holds, if that can be computed from the padded dim alone."""
        data = self.source.shapes.data(value)
        size = size_expr(str(data[0])) if data is not None and len(data) == 1 else None
        return size if size is not None and lowers(size, self.source.symbol) else None

    def _is_computed(self, value: ir.Value) -> bool:
        """Whether it is made of single numbers: it may be below 0, and rounds as its nodes do."""
        node = value.producer()
        if node is None or is_op(node, "Shape", "Size"):
            return False
        inputs = node.inputs[:1] if is_op(node, *LOOKED_THROUGH) else node.inputs
        return all(x is None or self._number(x) is not None for x in inputs)

    # --- masks ------------------------------------------------------------------------------

    def positions(self, size: sympy.Expr) -> ir.Value:
        """0, 1, 2, ... as far as an axis of this size goes, int64 [T]."""
        op = self._op

        def build() -> ir.Value:
            count = self.size(size)
            if not never_negative(size):  # windows, where there is not one
                count = self.larger(count, np.zeros(1, np.int64))
            return counting(count, op)

        return op.once(("positions", str(size)), build, self._given)

    def mask(self, value: ir.Value, axes: Sequence[Axis], axis: int) -> ir.Value:
        """Which indices of one axis are valid: bool, in the rank of ``value``, or less by 1s."""
        op = self._op
        time = next(x for x in axes[axis] if isinstance(x, Time))
        rows = next((i for i, a in enumerate(axes) if holds_rows(a)), None)
        held = [i for i in range(len(axes)) if i in (axis, rows)]
        factors = tuple(x for i in held for x in axes[i])
        key = ("mask", str(time.size), time.turned, axis, rows, len(axes))

        def build() -> ir.Value:
            valid = self._within(time)
            if len(factors) <= len(held):
                return self._spread(valid, axis, rows, len(axes))
            # An axis holds batch or time beside something else, such as [B * H, T].
            place = next(i for i, x in enumerate(factors) if isinstance(x, Time))
            batch = next((i for i, x in enumerate(factors) if isinstance(x, Rows)), None)
            valid = self._spread(valid, place, batch, len(factors))
            sizes = [1 if i in (place, batch) else int(x.size) for i, x in enumerate(factors)]
            valid = op.Expand(valid, np.array(sizes, np.int64))
            here = np.array([i in held for i in range(len(axes))])
            return op.Reshape(valid, op.Where(here, op.Shape(value), np.ones(len(axes), np.int64)))

        return op.once((*key, *map(str, factors)), build, self._given)

    def addend(self, value: ir.Value, axes: Sequence[Axis], axis: int) -> ir.Value:
        """What hides the scores beyond the valid length: 0 before, the floor behind."""
        op, dtype = self._op, self.dtype(value)
        mask = self.mask(value, axes, axis)

        def build() -> ir.Value:
            return op.Mul(op.Cast(op.Not(mask), to=dtype), self.floor(dtype))

        return op.once(("addend", mask, dtype), build, mask)

    def limit(self, scores: ir.Value, axes: Sequence[Axis], axis: int) -> ir.Value | None:
        """What no score is above: the largest number before the valid length, the least behind.

        That is exact for all scores, where a sum is not in float16, whose numbers end at 65504.
        None where a sum is as good, or was asked for by a floor, or there is no such Min.
        """
        op, dtype = self._op, self.dtype(scores)
        if self._floor is not None or dtype != ir.DataType.FLOAT16 or self.opset < 12:
            return None
        mask = self.mask(scores, axes, axis)
        edges = [self.extreme(dtype, high=high) for high in (True, False)]
        return op.once(("limit", mask, dtype), lambda: op.Where(mask, *edges), mask)

    def larger(self, *values: ir.Value | Numbers) -> ir.Value:
        """The largest of integers, element by element."""
        return extremum(self._op, "Max", values)

    def smaller(self, *values: ir.Value | Numbers) -> ir.Value:
        """The least of integers, element by element."""
        return extremum(self._op, "Min", values)

    def cast(self, mask: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A mask as numbers."""
        return self._op.once(("cast", mask, dtype), lambda: self._op.Cast(mask, to=dtype), mask)

    def _within(self, time: Time) -> ir.Value:
        """Which positions are valid, bool [B, T] or [1, T]."""
        op = self._op

        def build() -> ir.Value:
            rows = self.unsqueeze(self.rows(time.size), [1])
            at = self.unsqueeze(self.positions(time.size), [0])
            if time.turned:
                return op.Not(op.Less(at, op.Sub(self.size(time.size), rows)))
            return op.Less(at, rows)

        return op.once(("within", str(time.size), time.turned), build, self._given)

    def _spread(self, valid: ir.Value, axis: int, rows: int | None, rank: int) -> ir.Value:
        """A mask [B, T], or [1, T], with time at one of so many axes and the rows at another."""
        if rows is None:
            valid = self.squeeze(valid, [0])
        elif rows > axis:
            valid = self._op.Transpose(valid, perm=[1, 0])
        return self.unsqueeze(valid, [i for i in range(rank) if i not in (axis, rows)])

    def along_rows(self, rows: ir.Value, state: State) -> ir.Value:
        """A number for each row, [B] or [1], in the rank of a tensor: [B, 1, 1]."""
        axes = state.axes or ()
        at = next((i for i, a in enumerate(axes) if holds_rows(a)), 0)
        factors = axes[at]
        own = next((i for i, x in enumerate(factors) if isinstance(x, Rows)), None)
        if own is not None and len(factors) > 1:  # [B * H]: each row as often as it is there
            others = [i for i in range(len(factors)) if i != own]
            sizes = [1 if i == own else int(x.size) for i, x in enumerate(factors)]
            wide = self._op.Expand(self.unsqueeze(rows, others), np.array(sizes, np.int64))
            rows = self._op.Reshape(wide, np.array([-1], np.int64))
        return self.unsqueeze(rows, [i for i in range(state.rank) if i != at])

    # --- operators whose form depends on the opset --------------------------------------------

    def unsqueeze(self, value: ir.Value, axes: Iterable[int]) -> ir.Value:
        """New axes of size 1 at these places of the result."""
        given = list(axes)
        return self._along("Unsqueeze", value, given) if given else value

    def squeeze(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Without these axes, which are of size 1."""
        return self._along("Squeeze", value, axes)

    def scalar(self, value: ir.Value) -> ir.Value:
        """One number without an axis."""
        dims = self.source.shapes.dims(value)
        return self.squeeze(value, range(len(dims))) if dims else value

    def reduce_sum(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """The sum over axes that stay, with size 1."""
        return self._along("ReduceSum", value, axes, keepdims=1)

    def _along(self, op_type: str, value: ir.Value, axes: Sequence[int], **more: int) -> ir.Value:
        if self.opset >= 13:
            return self._op.make(op_type, value, np.array(list(axes), np.int64), **more)
        return self._op.make(op_type, value, axes=list(axes), **more)


LOOKED_THROUGH = (
    *("Unsqueeze", "Squeeze", "Reshape", "Identity"),
    *("Flatten", "Expand", "Gather", "Slice"),
)
"""Operators that hand one element on as it is."""
