"""What a rule sees of a node: the states of its inputs, its shapes, and how to ask for a repair."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import sympy

from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_ints, input_at, is_op
from graphfix.lengths.dim_nodes import lowers
from graphfix.lengths.joint_axes import RefusedError, check_batch, check_maskable, check_rows
from graphfix.lengths.length_nodes import LOOKED_THROUGH
from graphfix.lengths.length_source import Source
from graphfix.lengths.number_effects import MANY, UNARY, extreme
from graphfix.lengths.repairs.fill_tail import Hide, Zero
from graphfix.lengths.repairs.frames import LastFrames
from graphfix.lengths.repairs.repair import FrameRepair, Leak, Repair
from graphfix.lengths.repairs.statistics import LengthData
from graphfix.lengths.tail_state import ZERO, Axis, Other, Rows, State, Tail, Time, plain, size_expr

Numbers = npt.NDArray[np.generic]


GROWS = "its result grows with the padding, and there is no rule that says how"
# Inputs that were attributes, before opset 10.
_ATTRIBUTES = {("Slice", 1): "starts", ("Slice", 2): "ends", ("Slice", 3): "axes"}

_HUGE = 1e30
"""No number of a model is as large as that."""


@dataclass(eq=False)
class Site:
    """One node of a padded model.

    Attributes:
        node: The node.
        states: What is known of each input; None for one that is absent.
        source: The padded dim.
        opset: The version of the standard opset.
        known: What is known of any tensor.
        repairs: What has been asked for so far.
        points: The zero point of each input that has one: what counts as zero in it.
    """

    node: ir.Node
    states: list[State | None]
    source: Source
    opset: int
    known: Callable[[ir.Value], State | None] = lambda value: None
    repairs: list[Repair] = field(default_factory=list)
    points: dict[int, ir.Value | None] = field(default_factory=dict)

    def state(self, index: int = 0) -> State:
        """What is known of an input that must be there."""
        state = self.states[index] if index < len(self.states) else None
        if state is None:
            raise RefusedError(f"input {index} of it is missing")
        return state

    def has(self, index: int) -> bool:
        """Whether an input is given, or the attribute that it was in an older opset."""
        if self._attribute(index) is not None:
            return True
        return index < len(self.states) and self.states[index] is not None

    def need_zero(self, index: int, axis: int, leak: Leak) -> State:
        """The state of an input once its tail adds nothing to a sum."""
        state = self.state(index)
        if not state.tail(axis).is_zero:
            point = self.points.get(index)
            dims = self.source.shapes.dims(point)
            if point is not None and (dims is None or any(x != 1 for x in dims)):
                raise RefusedError("its zero point is not one number")
            state = self._mask(Zero(self.node, leak, index, axis, state, point), ZERO)
        return state

    def need_hidden(self, index: int, axis: int) -> State:
        """The state of an input once its tail weighs nothing in a Softmax."""
        if self.state(index).tail(axis).kind == "low":
            return self.state(index)
        return self.need_low(index, axis, "attention dilution")

    def need_low(self, index: int, axis: int, leak: Leak) -> State:
        """The state of an input once its tail is never the largest, whatever is valid."""
        state, dtype = self.state(index), self.source.shapes.dtype(self.node.inputs[index])
        edge = extreme(ir.DataType.FLOAT if dtype is None else dtype, high=False)
        if not state.tail(axis).is_below(max(edge, -_HUGE)):
            state = self._mask(Hide(self.node, leak, index, axis, state), Tail("number", edge))
        return state

    def need_finite(self, index: int, leak: Leak) -> State:
        """The state of an input once 0 times its tail is 0."""
        for axis in self.state(index).timed:
            if not self.state(index).tail(axis).is_finite:
                self.need_zero(index, axis, leak)
        return self.state(index)

    def need_length(self, index: int, axes: Sequence[Axis]) -> State:
        """The state of an input that holds a size once it holds the valid length instead.

        Args:
            index: The input.
            axes: The axes that it is broadcast to; each row of the batch has a length of its own.
        """
        rank = self.state(index).rank
        at = next((i for i, x in enumerate(axes) if x and isinstance(x[0], Rows)), None)
        if self.source.batch is not None and at is None:
            raise RefusedError("a size is used as a number, and its result has no batch axis")
        value = self.node.inputs[index]
        if value is None or not _one_element(self.source.shapes.dims(value)):
            raise RefusedError("several sizes at once are used as numbers")
        if not self._is_of_lengths(value):
            raise RefusedError("a size is used as a number, and it is not known which")
        trailing = 0 if at is None else len(axes) - at - 1
        self.repairs.append(LengthData(self.node, "length as data", index, rank, trailing))
        self.states[index] = plain(())
        return self.state(index)

    def _is_of_lengths(self, value: ir.Value | None) -> bool:
        """Whether a number is made of sizes that valid lengths can take the place of."""
        if value is None:
            return True
        data = self.source.shapes.data(value) or ()
        if len(data) == 1 and lowers(size_expr(str(data[0])), self.source.symbol):
            return True
        node = value.producer()
        if node is None or is_op(node, "Constant"):
            return const_of(value) is not None
        if is_op(node, "Shape", "Size"):
            return False
        if is_op(node, *LOOKED_THROUGH):
            one = _one_element(self.source.shapes.dims(node.inputs[0]))
            return one and self._is_of_lengths(node.inputs[0])
        # What makes one number of several, as ReduceMax does, would do so over rows of the batch.
        return is_op(node, *MANY, *UNARY) and all(map(self._is_of_lengths, node.inputs))

    def check_size(self, size: sympy.Expr) -> None:
        """Refuse if a size cannot be computed from the length of the padded input."""
        symbol = self.source.symbol
        if not lowers(size, symbol):
            raise RefusedError(f"its length {size} cannot be computed from {symbol} alone")

    def check_mask(self, state: State, axis: int) -> None:
        """Refuse if no mask over an axis can be built, or how much of it is valid not computed."""
        check_maskable(state.axes or (), axis, self.source)
        for factor in state.at(axis):
            if isinstance(factor, Time):
                self.check_size(factor.size)

    def check_behind(self, reason: str) -> None:
        """Refuse, for this reason, if an input behind the first carries time."""
        if any(x is not None and x.timed for x in self.states[1:]):
            raise RefusedError(reason)

    def recomputed(self, axes: tuple[Axis, ...] | None, tails: tuple[Tail | None, ...]) -> State:
        """A result with these axes, its tails computed from all inputs."""
        finite = all(x is None or x.is_finite for x in self.states)
        return State(axes, State(axes, tails).recomputed(finite=finite))

    def read_last(self, state: State, axis: int, offsets: tuple[int, ...], *, drop: bool) -> None:
        """Ask for reads from the end of what is valid, if there is not the same everywhere.

        Args:
            state: What is known of the input.
            axis: Its axis of time, which is nothing but that.
            offsets: Where is read: -1 is the last.
            drop: Whether the axis goes.
        """
        if state.fill is None and not (state.tail(axis).kind == "last" and offsets == (-1,)):
            size = state.size(axis)
            self.check_size(size)
            leak: Leak = "last-frame read"
            self.repair(LastFrames(self.node, leak, axis, size, state, offsets, drop))

    def repair(self, repair: Repair) -> None:
        """Ask for a repair of the whole node."""
        if isinstance(repair, FrameRepair):
            check_rows(repair.state, self.source)
        elif isinstance(state := getattr(repair, "state", None), State):
            check_batch(state, self.source)
        self.repairs.append(repair)

    def dims(self, value: ir.Value | None) -> list[sympy.Expr] | None:
        """The dims of a tensor as expressions."""
        dims = self.source.shapes.dims(value)
        return None if dims is None else [size_expr(str(x)) for x in dims]

    def out_dims(self, index: int = 0) -> list[sympy.Expr]:
        """The dims of an output, which must be known."""
        dims = self.dims(self.node.outputs[index])
        if dims is None:
            raise RefusedError("the shape of its result is not known")
        return dims

    def contents(self, index: int) -> list[sympy.Expr] | None:
        """What a small integer input holds, as expressions; None where it is not known.

        Of what was an attribute in an older opset, what that holds.
        """
        attribute = self._attribute(index)
        if attribute is not None:
            return [sympy.Integer(x) for x in attribute.as_ints()]
        return self.held(input_at(self.node, index))

    def array(self, index: int) -> Numbers | None:
        """What an input holds in every run: a constant, or what is computed of constants alone."""
        value = input_at(self.node, index)
        found = const_of(value)
        held, dims = self.contents(index), self.dims(value)
        if found is not None or held is None or not all(x.is_Integer for x in held):
            return found
        shape = [int(x) for x in dims or () if x.is_Integer]
        return np.array([int(x) for x in held], np.int64).reshape(shape)

    def ints(self, index: int) -> tuple[int, ...] | None:
        """The same, as whole numbers."""
        array = self.array(index)
        return None if array is None else tuple(int(x) for x in array.reshape(-1))

    def axes(self) -> tuple[int, ...] | None:
        """The axes of a Squeeze, Unsqueeze or Reduce; None if they are not known, or not given."""
        return self.ints(1) if self.has(1) else attr_ints(self.node, "axes")

    def _attribute(self, index: int) -> ir.Attr | None:
        """The attribute that an input was in an older opset."""
        name = _ATTRIBUTES.get((self.node.op_type, index))
        return None if name is None else self.node.attributes.get(name)

    def held(self, value: ir.Value | None) -> list[sympy.Expr] | None:
        """What a small integer tensor holds, if that is known in terms of the inputs' dims."""
        data = self.source.shapes.data(value)
        sizes = None if data is None else [size_expr(str(x)) for x in data]
        return sizes if sizes is not None and all(map(self.is_known, sizes)) else None

    def is_known(self, size: sympy.Expr) -> bool:
        """Whether a size is one in the dims of the inputs."""
        return all(x.name in self.source.symbols for x in size.free_symbols)

    def grows(self, size: sympy.Expr) -> bool:
        """Whether a size counts padding in."""
        return any(x.name == self.source.symbol for x in size.free_symbols)

    def axis_of(self, size: sympy.Expr) -> Axis:
        """The axis of a tensor that is made to a size, not of anything padded."""
        if size == 1:
            return ()
        if self.grows(size):
            return (Time(size),)
        return (Rows(size),) if str(size) == self.source.batch else (Other(size),)

    def same_along(self, size: sympy.Expr) -> Axis:
        """The axis of what is the same all along: of rows and frames, any order is theirs."""
        symbol = next((x for x in size.free_symbols if x.name == self.source.batch), None)
        if symbol is None or not self.grows(size):
            return self.axis_of(size)
        rest = sympy.cancel(size / symbol)
        whole = symbol not in rest.free_symbols and self.grows(rest)
        return (Rows(symbol), Time(rest)) if whole else self.axis_of(size)

    def axes_of(self, index: int = 0) -> tuple[Axis, ...]:
        """The axes of an output that is made to its size."""
        return tuple(self.axis_of(x) for x in self.out_dims(index))

    def without_time(self, index: int = 0, *, fixed: bool = False) -> State:
        """The state of an output that no padding reaches."""
        if any(map(self.grows, self.dims(self.node.outputs[index]) or ())):
            raise RefusedError(GROWS)
        return self.of_its_shape(index, fixed=fixed)

    def of_its_shape(self, index: int = 0, *, fixed: bool = False) -> State:
        """A result of which nothing but the shape is known, if that is."""
        dims = self.dims(self.node.outputs[index])
        return plain(None if dims is None else [self.axis_of(x) for x in dims], fixed=fixed)

    def _mask(self, repair: Zero | Hide, tail: Tail) -> State:
        self.check_mask(repair.state, repair.axis)
        self.repairs.append(repair)
        self.states[repair.index] = repair.state.with_tail(repair.axis, tail)
        return self.state(repair.index)


class Takes(enum.Flag):
    """What a rule knows how to read, besides tensors of frames."""

    SIZES = enum.auto()
    """Padded sizes."""
    SIZES_BEHIND = enum.auto()
    """Padded sizes, in all inputs but the first."""
    SHRINKING = enum.auto()
    """What is less for some longer clip."""
    PLACES = enum.auto()
    """The places of a mask."""


_NOTHING = Takes(0)


@dataclass(frozen=True)
class Rule:
    """What padding does to the results of an operator.

    Attributes:
        apply: Gives the state of each output, and asks for repairs.
        takes: What it knows how to read.
    """

    apply: Callable[[Site], State | Sequence[State | None]]
    takes: Takes = _NOTHING


def _one_element(dims: Sequence[object] | None) -> bool:
    return dims is not None and all(x == 1 for x in dims)
