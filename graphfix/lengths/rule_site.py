"""View of a node for its rule: states of its inputs, its shapes, and how to ask for a repair."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import sympy

from graphfix import ops
from graphfix.facts.symbolic.expressions import Dim
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import input_at, is_op
from graphfix.lengths.dim_nodes import is_buildable
from graphfix.lengths.joint_axes import RefusedError, check_batch, check_maskable, check_rows
from graphfix.lengths.length_source import LengthSource
from graphfix.lengths.number_effects import dtype_limit
from graphfix.lengths.repairs.fill_tail import HideTail, RaiseTail, ZeroTail
from graphfix.lengths.repairs.frames import EdgeTail, LastFrames
from graphfix.lengths.repairs.repair import FrameRepair, Leak, Repair
from graphfix.lengths.repairs.statistics import LengthData
from graphfix.lengths.tail_state import (
    LAST,
    ZERO,
    Axis,
    BatchFactor,
    OtherFactor,
    Tail,
    TensorState,
    TimeFactor,
    size_expr,
    state_without_time,
)
from graphfix.ops.axes import axis_of
from graphfix.ops.operands import read_operand
from graphfix.ops.pads import pads_by_axis
from graphfix.ops.slices import Cut, read_cuts
from graphfix.spec.quoting import quote_name

Numbers = npt.NDArray[np.generic]
DimCut = Cut[sympy.Expr | None]


GROWS = "its result grows with the padding, and there is no rule that says how"
_HUGE = 1e30
"""Larger than the numbers of any model."""


@dataclass(eq=False)
class RuleSite:
    """One node of a padded model, as its rule sees it.

    Attributes:
        node: The node.
        states: The state of each input; None for one that is absent.
        source: The padded dim.
        opset: The version of the standard opset.
        state_of: Returns the state of any tensor.
        repairs: The repairs that were asked for so far.
        zero_points: The zero point of each input that has one: it counts as zero in that input.
    """

    node: ir.Node
    states: list[TensorState | None]
    source: LengthSource
    opset: int
    state_of: Callable[[ir.Value], TensorState | None] = lambda value: None
    repairs: list[Repair] = field(default_factory=list)
    zero_points: dict[int, ir.Value | None] = field(default_factory=dict)

    def input_state(self, index: int = 0) -> TensorState:
        """Return the state of an input that must be there."""
        state = self.optional_state(index)
        if state is None:
            raise RefusedError(f"input {index} of it is missing")
        return state

    def optional_state(self, index: int | None) -> TensorState | None:
        """Return the state of an input; None if it is absent, or the operator has no such input."""
        return None if index is None or index >= len(self.states) else self.states[index]

    def has_input(self, index: int | None) -> bool:
        """Return whether an input is present."""
        return self.optional_state(index) is not None

    def present_states(self) -> list[TensorState]:
        """Return the states of the inputs that are present."""
        return [state for state in self.states if state is not None]

    def require_zero_tail(self, index: int, axis: int, leak: Leak) -> TensorState:
        """Request a tail of zeros, and return the state of the input with it."""
        state = self.input_state(index)
        if not state.tail_along(axis).is_zero:
            point = self.zero_points.get(index)
            dims = self.source.shapes.dims(point)
            if point is not None and (dims is None or any(x != 1 for x in dims)):
                raise RefusedError("its zero point is not one number")
            state = self._request_mask(ZeroTail(self.node, leak, index, axis, state, point), ZERO)
        return state

    def require_hidden_tail(self, index: int, axis: int) -> TensorState:
        """Request a tail that a Softmax ignores, and return the state of the input with it."""
        if self.input_state(index).tail_along(axis).kind == "low":
            return self.input_state(index)
        return self.require_low_tail(index, axis, "attention dilution")

    def require_low_tail(self, index: int, axis: int, leak: Leak) -> TensorState:
        """Request a tail that is never the largest, and return the state of the input with it."""
        state, dtype = self.input_state(index), self.source.shapes.dtype(self.node.inputs[index])
        edge = dtype_limit(ir.DataType.FLOAT if dtype is None else dtype, high=False)
        if not state.tail_along(axis).is_below(max(edge, -_HUGE)):
            state = self._request_mask(
                HideTail(self.node, leak, index, axis, state), Tail("number", edge)
            )
        return state

    def require_high_tail(
        self, index: int, axis: int, leak: Leak, most: float | None = None
    ) -> TensorState:
        """Request a tail that is never the least, and return the state of the input with it.

        Args:
            index: The input.
            axis: Its axis of time.
            leak: Which leak that closes.
            most: The largest number in it, if that is known; else the largest of its type.
        """
        state, dtype = self.input_state(index), self.source.shapes.dtype(self.node.inputs[index])
        edge = dtype_limit(ir.DataType.FLOAT if dtype is None else dtype, high=True)
        number = edge if most is None else most
        tail = state.tail_along(axis)
        if tail.kind != "number" or tail.value < min(number, _HUGE):
            repair = RaiseTail(self.node, leak, index, axis, state, number)
            state = self._request_mask(repair, Tail("number", number))
        return state

    def require_finite_tails(self, index: int, leak: Leak) -> TensorState:
        """Request finite tails, and return the state of the input with them."""
        for axis in self.input_state(index).time_axes:
            if not self.input_state(index).tail_along(axis).is_finite:
                self.require_zero_tail(index, axis, leak)
        return self.input_state(index)

    def require_last_tail(self, index: int, axis: int, leak: Leak) -> TensorState:
        """Request a tail of copies of the last frame, and return the input's state with it."""
        state = self.input_state(index)
        if state.tail_along(axis).kind != "last":
            size = state.size_along(axis)
            self.check_size(size)
            self.request_repair(EdgeTail(self.node, leak, axis, size, state, index))
            self.states[index] = state.with_tail(axis, LAST)
        return self.input_state(index)

    def require_valid_length(self, index: int, axes: Sequence[Axis]) -> TensorState:
        """Request the valid length in place of a padded size, and return the state of the input.

        Args:
            index: The input.
            axes: The axes that it is broadcast to; each row of the batch has a length of its own.
        """
        rank = self.input_state(index).rank
        at = next((i for i, x in enumerate(axes) if x and isinstance(x[0], BatchFactor)), None)
        if self.source.batch is not None and at is None:
            raise RefusedError(
                "a size is used as a number, its result has no batch axis, and each row has a "
                f"length of its own: {self.batch_advice()}"
            )
        value = self.node.inputs[index]
        if value is None or not _has_one_element(self.source.shapes.dims(value)):
            raise RefusedError("several sizes at once are used as numbers")
        if not self._is_made_of_lengths(value):
            raise RefusedError("a size is used as a number, and it is not known which")
        trailing = 0 if at is None else len(axes) - at - 1
        self.repairs.append(LengthData(self.node, "length as data", index, rank, trailing))
        self.states[index] = state_without_time(())
        return self.input_state(index)

    def _is_made_of_lengths(self, value: ir.Value | None) -> bool:
        """Return whether a number is computed from sizes that valid lengths can replace."""
        if value is None:
            return True
        data = self.source.shapes.known_elements(value) or ()
        if len(data) == 1 and is_buildable(size_expr(str(data[0])), self.source.symbol):
            return True
        node = value.producer()
        if node is None or is_op(node, "Constant"):
            return const_of(value) is not None
        if node in ops.MEASURES:
            return False
        if node in ops.MOVES_FIRST_INPUT:
            is_scalar = _has_one_element(self.source.shapes.dims(node.inputs[0]))
            return is_scalar and self._is_made_of_lengths(node.inputs[0])
        # What makes one number of several, as ReduceMax does, would do so over rows of the batch.
        return node in ops.ELEMENTWISE and all(map(self._is_made_of_lengths, node.inputs))

    def batch_advice(self) -> str:
        """Return what a user can do where rows of a batch have lengths of their own."""
        name = quote_name(self.source.batch or "B")
        return f"fix the batch at 1 (-p fix-dims:{name}=1), or export the model for one clip"

    def check_size(self, size: sympy.Expr) -> None:
        """Refuse if a size cannot be computed from the length of the padded input."""
        symbol = self.source.symbol
        if not is_buildable(size, symbol):
            raise RefusedError(f"its length {size} cannot be computed from {symbol} alone")

    def check_mask(self, state: TensorState, axis: int) -> None:
        """Refuse if no mask over an axis can be built, or how much of it is valid not computed."""
        check_maskable(state.axes or (), axis, self.source)
        for factor in state.factors_of(axis):
            if isinstance(factor, TimeFactor):
                self.check_size(factor.size)

    def check_parameters(self, reason: str) -> None:
        """Refuse, for this reason, if an input behind the first carries time."""
        if any(x is not None and x.time_axes for x in self.states[1:]):
            raise RefusedError(reason)

    def state_after_arithmetic(
        self, axes: tuple[Axis, ...] | None, tails: tuple[Tail | None, ...]
    ) -> TensorState:
        """Return a result with these axes, its tails computed from all inputs."""
        finite = all(x.is_finite for x in self.present_states())
        return TensorState(axes, TensorState(axes, tails).tails_after_arithmetic(finite=finite))

    def request_last_frames(
        self, state: TensorState, axis: int, offsets: tuple[int, ...], *, drop: bool
    ) -> None:
        """Request reads from the end of the valid part, unless all frames are the same.

        Args:
            state: What is known of the input.
            axis: Its axis of time, which is nothing but that.
            offsets: The frames that are read, counted from the end: -1 is the last.
            drop: Whether the axis is dropped.
        """
        if state.fill is None and not (state.tail_along(axis).kind == "last" and offsets == (-1,)):
            size = state.size_along(axis)
            self.check_size(size)
            leak: Leak = "last-frame read"
            self.request_repair(LastFrames(self.node, leak, axis, size, state, offsets, drop))

    def request_repair(self, repair: Repair) -> None:
        """Request a repair of the whole node."""
        if isinstance(repair, FrameRepair):
            check_rows(repair.state, self.source)
        elif isinstance(state := getattr(repair, "state", None), TensorState):
            check_batch(state, self.source)
        self.repairs.append(repair)

    def dims_of(self, value: ir.Value | None) -> list[sympy.Expr] | None:
        """Return the dims of a tensor as expressions."""
        dims = self.source.shapes.dims(value)
        return None if dims is None else [size_expr(str(x)) for x in dims]

    def output_dims(self, index: int = 0) -> list[sympy.Expr]:
        """Return the dims of an output, which must be known."""
        dims = self.dims_of(self.node.outputs[index])
        if dims is None:
            raise RefusedError("the shape of its result is not known")
        return dims

    def input_contents(self, index: int) -> list[sympy.Expr] | None:
        """Return what a small integer input holds, as expressions; None where it is not known."""
        return self.contents_of(input_at(self.node, index))

    def input_array(self, index: int) -> Numbers | None:
        """Return what an input holds in every run: a constant, or what only constants make."""
        return self._array_of(input_at(self.node, index))

    def input_ints(self, index: int) -> tuple[int, ...] | None:
        """Return what an input holds in every run, as whole numbers."""
        return self.ints_of(input_at(self.node, index))

    def ints_of(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """Return what a tensor holds in every run, as whole numbers."""
        array = self._array_of(value)
        return None if array is None else tuple(int(x) for x in array.reshape(-1))

    def _array_of(self, value: ir.Value | None) -> Numbers | None:
        constant = const_of(value)
        contents, dims = self.contents_of(value), self.dims_of(value)
        if constant is not None or contents is None or not all(x.is_Integer for x in contents):
            return constant
        shape = [int(x) for x in dims or () if x.is_Integer]
        return np.array([int(x) for x in contents], np.int64).reshape(shape)

    def slice_cuts(self, rank: int) -> dict[int, DimCut] | None:
        """Return what a Slice takes along each axis, with None for what is not known.

        Args:
            rank: Of its data.

        Returns:
            None if it is not known which axes it cuts.
        """
        cuts = read_cuts(self.node, rank, self._elements_of)
        if cuts is None:
            return None
        return {
            axis: Cut(*(None if x is None else size_expr(str(x)) for x in cut))
            for axis, cut in cuts.items()
        }

    def pad_amounts(self, rank: int) -> dict[int, tuple[sympy.Expr, sympy.Expr]] | None:
        """Return what a Pad puts before and behind each axis; None if it is not known.

        Args:
            rank: Of its data.
        """
        pads = pads_by_axis(self.node, rank, self._elements_of)
        if pads is None:
            return None
        return {axis: (size_expr(str(a)), size_expr(str(b))) for axis, (a, b) in pads.items()}

    def axis_attribute(self, rank: int) -> int:
        """Return the axis of a Gather, Concat, Split, ..., counted from the front.

        Args:
            rank: Of the first input.
        """
        axis = axis_of(self.node, rank, self.opset)
        if axis is None:
            raise RefusedError(f"its axis lies outside of its rank {rank}")
        return axis

    def axes_operand(self) -> tuple[int, ...] | None:
        """Return the axes of a Squeeze or Unsqueeze as written; None if not known, or absent."""
        return read_operand(self.node, 1, "axes", self.ints_of)

    def contents_of(self, value: ir.Value | None) -> list[sympy.Expr] | None:
        """Return what a small integer tensor holds, if the inputs' dims determine it."""
        data = self.source.shapes.known_elements(value)
        sizes = None if data is None else [size_expr(str(x)) for x in data]
        return sizes if sizes is not None and all(map(self.is_size_of_inputs, sizes)) else None

    def _elements_of(self, value: ir.Value) -> Sequence[Dim] | None:
        """Return the same as dims instead of expressions."""
        data = self.source.shapes.known_elements(value)
        return None if self.contents_of(value) is None else data

    def is_size_of_inputs(self, size: sympy.Expr) -> bool:
        """Return whether a size is one in the dims of the inputs."""
        return all(x.name in self.source.symbols for x in size.free_symbols)

    def grows_with_padding(self, size: sympy.Expr) -> bool:
        """Return whether a size counts padding in."""
        return any(x.name == self.source.symbol for x in size.free_symbols)

    def axis_of_size(self, size: sympy.Expr) -> Axis:
        """Return the axis of a new tensor that is made to this size."""
        if size == 1:
            return ()
        if self.grows_with_padding(size):
            return (TimeFactor(size),)
        return (BatchFactor(size),) if str(size) == self.source.batch else (OtherFactor(size),)

    def axis_of_repeats(self, size: sympy.Expr) -> Axis:
        """Return the axis of a tensor whose elements are all the same along it."""
        symbol = next((x for x in size.free_symbols if x.name == self.source.batch), None)
        if symbol is None or not self.grows_with_padding(size):
            return self.axis_of_size(size)
        other_size = sympy.cancel(size / symbol)
        is_product = symbol not in other_size.free_symbols and self.grows_with_padding(other_size)
        return (
            (BatchFactor(symbol), TimeFactor(other_size)) if is_product else self.axis_of_size(size)
        )

    def output_axes(self, index: int = 0) -> tuple[Axis, ...]:
        """Return the axes of an output by its dims alone."""
        return tuple(self.axis_of_size(x) for x in self.output_dims(index))

    def output_without_time(self, index: int = 0, *, fixed: bool = False) -> TensorState:
        """Return the state of an output that no padding reaches."""
        if any(map(self.grows_with_padding, self.dims_of(self.node.outputs[index]) or ())):
            raise RefusedError(GROWS)
        return self.output_of_shape(index, fixed=fixed)

    def output_of_shape(self, index: int = 0, *, fixed: bool = False) -> TensorState:
        """Return a state of which at most the shape is known."""
        dims = self.dims_of(self.node.outputs[index])
        return state_without_time(
            None if dims is None else [self.axis_of_size(x) for x in dims], fixed=fixed
        )

    def _request_mask(self, repair: ZeroTail | HideTail | RaiseTail, tail: Tail) -> TensorState:
        self.check_mask(repair.state, repair.axis)
        self.repairs.append(repair)
        self.states[repair.index] = repair.state.with_tail(repair.axis, tail)
        return self.input_state(repair.index)


class AcceptedInputs(enum.Flag):
    """Inputs that a rule can read besides tensors of frames."""

    SIZES = enum.auto()
    """Padded sizes."""
    SIZES_BEHIND = enum.auto()
    """Padded sizes, in all inputs but the first."""
    SHRINKING = enum.auto()
    """Sizes that are less for some longer clip."""
    PLACES = enum.auto()
    """The places of a mask."""


_NOTHING = AcceptedInputs(0)


@dataclass(frozen=True)
class PaddingRule:
    """Effect of padding on the results of an operator.

    Attributes:
        infer_states: Returns the state of each output, and asks for repairs.
        accepts: The inputs that it can read.
    """

    infer_states: Callable[[RuleSite], TensorState | Sequence[TensorState | None]]
    accepts: AcceptedInputs = _NOTHING


def _has_one_element(dims: Sequence[object] | None) -> bool:
    return dims is not None and all(x == 1 for x in dims)
