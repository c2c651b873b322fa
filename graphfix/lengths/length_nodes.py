"""Nodes for valid lengths: lengths, positions, masks, addends.

A mask is a comparison of positions, and positions are ``CumSum(ConstantOfShape(size))``, which
DirectML runs well; it does not run a Range over a dynamic size well. Each distinct length, mask and
addend is built once for the whole model.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from graphfix import ops
from graphfix.editing.builder import Builder
from graphfix.facts.symbolic.signs import never_negative
from graphfix.graph.nodes import attr_int, is_op
from graphfix.lengths.dim_nodes import (
    SizeArithmetic,
    build_axis_size,
    build_extremum,
    build_positions,
    is_buildable,
)
from graphfix.lengths.length_source import LengthSource
from graphfix.lengths.number_effects import dtype_limit
from graphfix.lengths.tail_state import (
    Axis,
    BatchFactor,
    Factor,
    TensorState,
    TimeFactor,
    holds_rows,
    size_expr,
)

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

OLDEST = 11
"""The oldest opset that has CumSum."""


class LengthNodes:
    """Builds nodes that compute the valid lengths of a model.

    Args:
        op: The builder.
        source: The padded dim.
        length_input: The input that holds the valid lengths: [B] or [1], or a mask [B, T].
        opset: The version of the standard opset, at least :data:`OLDEST`.
        floor: The number added to hidden scores; None for the least of their type.
    """

    def __init__(
        self,
        op: Builder,
        source: LengthSource,
        length_input: ir.Value,
        opset: int,
        floor: float | None,
    ) -> None:
        self._op = op
        self.source = source
        self._length_input = length_input
        self.opset = opset
        self._floor = floor
        self._valid_sizes = SizeArithmetic(
            op, "valid", source.symbol, self._input_lengths, length_input
        )
        self._padded_sizes = SizeArithmetic(
            op,
            "padded",
            source.symbol,
            lambda: self.axis_size(source.value, source.axis),
            length_input,
        )

    def dtype_of(self, value: ir.Value) -> ir.DataType:
        """Return the element type of a value."""
        dtype = self.source.shapes.dtype(value) or self._infer_dtype(value)
        if dtype is None:
            raise RuntimeError(f"the element type of {value.name!r} is not known")
        return dtype

    def _infer_dtype(self, value: ir.Value) -> ir.DataType | None:
        """Infer the element type of a value that a repair has added, from its producer's inputs."""
        node = value.producer()
        if node is None:
            return None
        if node in ops.MAKES_BOOL:
            return ir.DataType.BOOL
        if is_op(node, "Shape", "ConstantOfShape"):
            return ir.DataType.INT64
        if is_op(node, "Cast"):
            return ir.DataType(attr_int(node, "to", 1))
        first = node.inputs[1 if node.op_type == "Where" else 0]
        return None if first is None else self.dtype_of(first)

    def score_floor(self, dtype: ir.DataType) -> Numbers:
        """Return a scalar that hides a score from a Softmax."""
        if self._floor is None:
            return self.limit_scalar(dtype, high=False)
        return np.array(self._floor, dtype.numpy())

    def limit_scalar(self, dtype: ir.DataType, *, high: bool) -> Numbers:
        """Return the least, or the largest, number of a type as a scalar."""
        return np.array(dtype_limit(dtype, high=high), dtype.numpy())

    # --- lengths ----------------------------------------------------------------------------

    def row_lengths(self, size: sympy.Expr) -> ir.Value:
        """Return the valid length per row of an axis of this size, int64 [B] or [1], at least 0."""
        if str(size) == self.source.symbol:
            return self._input_lengths()
        key = ("rows", str(size))
        zero = np.zeros(1, np.int64)
        return self._op.build_once(
            key,
            lambda: self.elementwise_max(self._valid_sizes.build(size), zero),
            self._length_input,
        )

    def padded_size(self, size: sympy.Expr) -> ir.Value:
        """Return a size with the padding counted in, int64 [1]."""
        return self._padded_sizes.build(size)

    def _input_lengths(self) -> ir.Value:
        """Return how much of each row of the padded input is valid, int64 [B] or [1]."""
        op, length_input = self._op, self._length_input
        is_mask = self.source.length_input is not None and self.source.kind == "mask"
        is_int64 = self.dtype_of(length_input) == ir.DataType.INT64
        if is_int64 and not is_mask:
            return length_input

        def build() -> ir.Value:
            numbers = length_input if is_int64 else op.Cast(length_input, to=ir.DataType.INT64)
            if not is_mask:
                return numbers
            mask_axes = range(1, len(self.source.shapes.dims(length_input) or ()))
            return self.squeeze(self.reduce_sum(numbers, mask_axes), mask_axes)

        return op.build_once(("lengths",), build, length_input)

    def axis_size(self, value: ir.Value, axis: int) -> ir.Value:
        """Return the size of one axis of a tensor, int64 [1]."""
        op = self._op
        return op.build_once(
            ("count", value, axis), lambda: build_axis_size(value, axis, op), value
        )

    def recompute_on_lengths(self, value: ir.Value, rank: int, trailing: int) -> ir.Value:
        """Rebuild on valid lengths the arithmetic that computes a number from sizes.

        Args:
            value: The number: one element.
            rank: How many axes it has.
            trailing: How many axes of size 1 follow that of the batch, if there is a batch.
        """
        op = self._op
        size = self._size_expr_of(value)
        if size is not None and size.is_Integer:  # the same at every length
            return value
        if size is not None and (never_negative(size) or not self._is_made_of_numbers(value)):
            rows = self.row_lengths(size)
            if self.dtype_of(value) != ir.DataType.INT64:
                rows = op.Cast(rows, to=self.dtype_of(value))
            if self.source.batch is None and rank == 0:
                return self.squeeze(rows, [0])
            end = rank if self.source.batch is None else trailing + 1
            return self.unsqueeze(rows, range(1, end))
        node = value.producer()
        if node is None or is_op(node, "Constant"):
            return value
        if node in ops.MOVES_FIRST_INPUT:
            first = node.inputs[0]
            return value if first is None else self.recompute_on_lengths(first, rank, trailing)
        inputs = [
            None if x is None else self.recompute_on_lengths(x, rank, trailing) for x in node.inputs
        ]
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        return op.make(ops.qualified_name(node), *inputs, **attributes)

    def _size_expr_of(self, value: ir.Value | None) -> sympy.Expr | None:
        """Return the expression that one element holds, if the padded dim alone determines it."""
        data = self.source.shapes.known_elements(value)
        size = size_expr(str(data[0])) if data is not None and len(data) == 1 else None
        return size if size is not None and is_buildable(size, self.source.symbol) else None

    def _is_made_of_numbers(self, value: ir.Value) -> bool:
        """Return whether a value is computed from single numbers, so that it may be below 0."""
        node = value.producer()
        if node is None:
            return False
        inputs = node.inputs[:1] if node in ops.MOVES_FIRST_INPUT else node.inputs
        return all(x is None or self._size_expr_of(x) is not None for x in inputs)

    # --- masks ------------------------------------------------------------------------------

    def positions(self, size: sympy.Expr) -> ir.Value:
        """Return 0, 1, 2, ..., one for each index of an axis of this size, int64 [T]."""
        op = self._op

        def build() -> ir.Value:
            count = self.padded_size(size)
            if not never_negative(size):  # a number of windows, where not one fits
                count = self.elementwise_max(count, np.zeros(1, np.int64))
            return build_positions(count, op)

        return op.build_once(("positions", str(size)), build, self._length_input)

    def valid_mask(self, value: ir.Value, axes: Sequence[Axis], axis: int) -> ir.Value:
        """Return which indices of an axis are valid: bool, of ``value``'s rank, 1 on other axes."""
        op = self._op
        time = next(x for x in axes[axis] if isinstance(x, TimeFactor))
        rows = next((i for i, a in enumerate(axes) if holds_rows(a)), None)
        mask_axes = [i for i in range(len(axes)) if i in (axis, rows)]
        factors = tuple(x for i in mask_axes for x in axes[i])
        key = ("mask", str(time.size), time.reversed, axis, rows, len(axes))

        def build() -> ir.Value:
            valid = self._valid_positions(time)
            if len(factors) <= len(mask_axes):
                return self._spread_mask(valid, axis, rows, len(axes))
            # An axis holds batch or time beside something else, such as [B * H, T].
            wide = self._repeat_mask(valid, factors)
            is_mask_axis = np.array([i in mask_axes for i in range(len(axes))])
            unit_shape = np.ones(len(axes), np.int64)
            return op.Reshape(wide, op.Where(is_mask_axis, op.Shape(value), unit_shape))

        return op.build_once((*key, *map(str, factors)), build, self._length_input)

    def _repeat_mask(self, valid: ir.Value, factors: Sequence[Factor]) -> ir.Value:
        """Lay a mask [B, T], or [1, T], along the factors of axes, one axis for each factor."""
        time = next(i for i, x in enumerate(factors) if isinstance(x, TimeFactor))
        batch = next((i for i, x in enumerate(factors) if isinstance(x, BatchFactor)), None)
        sizes = [1 if i in (time, batch) else int(x.size) for i, x in enumerate(factors)]
        valid = self._spread_mask(valid, time, batch, len(factors))
        return self._op.Expand(valid, np.array(sizes, np.int64))

    def hiding_addend(self, value: ir.Value, axes: Sequence[Axis], axis: int) -> ir.Value:
        """Return an addend that hides scores: 0 before the valid length, the floor behind."""
        op, dtype = self._op, self.dtype_of(value)
        mask = self.valid_mask(value, axes, axis)

        def build() -> ir.Value:
            return op.Mul(op.Cast(op.Not(mask), to=dtype), self.score_floor(dtype))

        return op.build_once(("addend", mask, dtype), build, mask)

    def score_limit(self, scores: ir.Value, axes: Sequence[Axis], axis: int) -> ir.Value | None:
        """Return upper bounds of scores: the largest number where valid, the least behind.

        A Min with them is exact for all scores; in float16, whose numbers end at 65504, a sum is
        not. None where a sum is as good, a floor asks for a sum, or Min does not take float16.
        """
        op, dtype = self._op, self.dtype_of(scores)
        if self._floor is not None or dtype != ir.DataType.FLOAT16 or self.opset < 12:
            return None
        mask = self.valid_mask(scores, axes, axis)
        edges = [self.limit_scalar(dtype, high=high) for high in (True, False)]
        return op.build_once(("limit", mask, dtype), lambda: op.Where(mask, *edges), mask)

    def elementwise_max(self, *values: ir.Value | Numbers) -> ir.Value:
        """Return the largest of integers, element by element."""
        return build_extremum(self._op, "Max", values)

    def elementwise_min(self, *values: ir.Value | Numbers) -> ir.Value:
        """Return the least of integers, element by element."""
        return build_extremum(self._op, "Min", values)

    def cast_mask(self, mask: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return a mask as numbers."""
        return self._op.build_once(
            ("cast", mask, dtype), lambda: self._op.Cast(mask, to=dtype), mask
        )

    def _valid_positions(self, time: TimeFactor) -> ir.Value:
        """Return which positions are valid, bool [B, T] or [1, T]."""
        op = self._op

        def build() -> ir.Value:
            rows = self.unsqueeze(self.row_lengths(time.size), [1])
            at = self.unsqueeze(self.positions(time.size), [0])
            if time.reversed:
                return op.Not(op.Less(at, op.Sub(self.padded_size(time.size), rows)))
            return op.Less(at, rows)

        return op.build_once(("within", str(time.size), time.reversed), build, self._length_input)

    def _spread_mask(self, valid: ir.Value, axis: int, rows: int | None, rank: int) -> ir.Value:
        """Lay a mask [B, T], or [1, T], along two axes of a tensor of this rank."""
        if rows is None:
            valid = self.squeeze(valid, [0])
        elif rows > axis:
            valid = self._op.Transpose(valid, perm=[1, 0])
        return self.unsqueeze(valid, [i for i in range(rank) if i not in (axis, rows)])

    def align_row_values(self, rows: ir.Value, state: TensorState) -> ir.Value:
        """Reshape a number for each row, [B] or [1], to the rank of a tensor: [B, 1, 1]."""
        axes = state.axes or ()
        at = next((i for i, a in enumerate(axes) if holds_rows(a)), 0)
        factors = axes[at]
        own = next((i for i, x in enumerate(factors) if isinstance(x, BatchFactor)), None)
        if own is not None and len(factors) > 1:  # [B * H]: each row as often as it occurs
            repeat_axes = [i for i in range(len(factors)) if i != own]
            sizes = [1 if i == own else int(x.size) for i, x in enumerate(factors)]
            wide = self._op.Expand(self.unsqueeze(rows, repeat_axes), np.array(sizes, np.int64))
            rows = self._op.Reshape(wide, np.array([-1], np.int64))
        return self.unsqueeze(rows, [i for i in range(state.rank) if i != at])

    # --- operators whose form depends on the opset --------------------------------------------

    def unsqueeze(self, value: ir.Value, axes: Iterable[int]) -> ir.Value:
        """Insert axes of size 1 at these places of the result."""
        places = list(axes)
        return self._make_with_axes("Unsqueeze", value, places) if places else value

    def squeeze(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Drop these axes, which are of size 1."""
        return self._make_with_axes("Squeeze", value, axes)

    def to_scalar(self, value: ir.Value) -> ir.Value:
        """Drop the axis of a single number."""
        dims = self.source.shapes.dims(value)
        return self.squeeze(value, range(len(dims))) if dims else value

    def reduce_sum(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Sum over axes, which stay with size 1."""
        return self._make_with_axes("ReduceSum", value, axes, keepdims=1)

    def _make_with_axes(
        self, op_type: str, value: ir.Value, axes: Sequence[int], **more: int
    ) -> ir.Value:
        if self.opset >= 13:
            return self._op.make(op_type, value, np.array(list(axes), np.int64), **more)
        return self._op.make(op_type, value, axes=list(axes), **more)
