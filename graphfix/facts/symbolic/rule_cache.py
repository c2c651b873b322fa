"""A cache of the results of shape rules: the layers of a model have the same nodes many times.

An answer is remembered by all that a rule can see: the operator and its attributes, the type, dims
and contents of each input, and what was said of each output before. It is kept only if no name was
minted for it, since the next node has to get another one; and one that rests on the sign of a size
not being known holds until more is known of sizes.
"""

import contextlib
import math
from collections.abc import Callable, Hashable, Iterable, Mapping

import onnx_ir as ir
from onnx_shape_inference import SYM_DATA_KEY, ShapeInferenceContext

from graphfix import ops
from graphfix.facts.symbolic.expressions import Array, Dim
from graphfix.facts.symbolic.inferred import FLOATS, MAX_SHAPE_ELEMENTS, Facts
from graphfix.graph.nodes import producer_of

Rule = Callable[[ShapeInferenceContext, ir.Node], None]

# Operators whose rules look at more than attributes and inputs, or read floats. What has bodies is
# left out by its attributes, and what only mints names by these.
_NEVER_CACHED = ops.RESIZES | ops.named("Constant OneHot Range")
# Types whose elements may be sizes, indices or axes.
_READABLE_TYPES = frozenset(
    {ir.DataType.INT64, ir.DataType.INT32, ir.DataType.INT16, ir.DataType.INT8, ir.DataType.BOOL}
    | {ir.DataType.UINT64, ir.DataType.UINT32, ir.DataType.UINT16, ir.DataType.UINT8}
)
# Weights have one of these types or are floats.
_WEIGHTS = frozenset(
    {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4}
    | {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}
)
_TENSOR = (ir.TensorType, type(None))
_PLAIN_ATTRIBUTES = frozenset(
    {ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING}
    | {ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS}
)


class ValueState:
    """All that a rule can see of a value; values of which that is the same share one object."""

    __slots__ = ("array", "const", "dtype", "shape", "symbolic", "text")

    def __init__(self, value: ir.Value, symbolic: list[Dim] | None, array: Array | None) -> None:
        self.dtype = value.dtype
        self.shape = value.shape
        self.const = value.const_value
        self.symbolic = symbolic
        self.array = array
        self.text = value.metadata_props.get(SYM_DATA_KEY)


Answer = tuple[list[ValueState], Hashable]
"""The state of each output; and what was known of sizes, if the answer depends on that."""


class CachingContext(ShapeInferenceContext):  # type: ignore[misc]
    """The library's context, which also knows cached states, and counts the symbols it mints."""

    def __init__(self, opset_imports: Mapping[str, int]) -> None:
        super().__init__(opset_imports)
        self.minted = 0
        self.states: dict[ir.Value, ValueState | None] = {}

    def new_symbolic_dim(self) -> ir.SymbolicDim:
        """Return a new dim with a symbol of its own."""
        self.minted += 1
        dim: ir.SymbolicDim = super().new_symbolic_dim()
        return dim

    def get_symbolic_value(self, value: ir.Value) -> list[Dim] | None:
        """Return what is known of the elements of a shape tensor."""
        state = self.states.get(value)
        if state is not None and state.symbolic is not None:
            return state.symbolic
        elements: list[Dim] | None = super().get_symbolic_value(value)
        return elements


class RuleCache:
    """The answers that the rules have given so far in one inference."""

    def __init__(self, facts: Facts, ctx: CachingContext) -> None:
        self._facts = facts
        self._ctx = ctx
        self._states = ctx.states
        self._by_key: dict[Hashable, ValueState] = {}
        self._constants: dict[Hashable, ValueState] = {}
        self._answers: dict[Hashable, Answer | None] = {}  # None: ask the rule each time

    def infer_node(self, node: ir.Node, rule: Rule) -> None:
        """Give a node of the main graph the shapes that its rule says, or said before."""
        if node.op_type == "Constant" and self._infer_constant(node):
            return
        key = self._answer_key(node)
        answer = None if key is None else self._answers.get(key)
        if answer is not None and answer[1] in (None, self._facts.knowledge):
            for value, state in zip(node.outputs, answer[0], strict=True):
                self._apply_state(value, state)
            return
        for value in node.outputs:
            self._states.pop(value, None)
        if key is None or (answer is None and key in self._answers):
            rule(self._ctx, node)
        else:
            self._answers[key] = self._ask_rule(node, rule)

    def _ask_rule(self, node: ir.Node, rule: Rule) -> Answer | None:
        """Return the answer of a rule; None if it has to be asked each time."""
        facts, ctx = self._facts, self._ctx
        minted, doubts, knowledge = ctx.minted, facts.doubts, facts.knowledge
        rule(ctx, node)
        if ctx.minted > minted:
            return None
        states = [self._state_of(x) for x in node.outputs]
        self._states.update(zip(node.outputs, states, strict=True))
        known_states = [x for x in states if x is not None]
        if len(known_states) < len(states):
            return None
        return known_states, knowledge if facts.doubts > doubts else None

    def _infer_constant(self, node: ir.Node) -> bool:
        """Infer a Constant that has a tensor; return whether it has one that can be compared."""
        value = node.outputs[0]
        tensor = value.const_value
        key = (
            None if tensor is None or value.type is not None else self._constant_key(value, tensor)
        )
        if key is None:
            return False
        dtype, dims, _ = key
        value.dtype = dtype
        state = self._constants.get(key)
        if state is None:
            value.shape = ir.Shape(dims)
            state = self._constants[key] = ValueState(value, None, None)
        value.shape = state.shape
        self._states[value] = state
        return True

    def _apply_state(self, value: ir.Value, state: ValueState) -> None:
        if value.dtype != state.dtype and state.dtype is not None:
            value.dtype = state.dtype
        value.shape = state.shape
        value.const_value = state.const
        if state.array is not None:
            self._facts.contents[value] = state.array
        if state.text is not None:
            value.metadata_props[SYM_DATA_KEY] = state.text
        self._states[value] = state

    def _answer_key(self, node: ir.Node) -> Hashable | None:
        """Return what the answer for this node depends on; None if it is not to be cached."""
        input_states = self._input_states(node)
        if (
            input_states is None
            or node.op_type in _NEVER_CACHED
            or node.domain not in ("", "ai.onnx")
        ):
            return None
        attributes_key = _attributes_key(node.attributes.values()) if node.attributes else ()
        if attributes_key is None or _reads_producers(node):
            return None
        before = []
        for value in node.outputs:
            declared_type = value.type
            if value.const_value is not None or type(declared_type) not in _TENSOR:
                return None
            before.append(None if declared_type is None else declared_type.dtype)
        return (node.op_type, attributes_key, input_states, *before)

    def _input_states(self, node: ir.Node) -> Hashable | None:
        """Return the states of the inputs; None if one cannot be compared. Names nameless dims."""
        states, comparable = self._states, True
        input_states: list[ValueState | None] = []
        for value in node.inputs:
            if value is None:
                input_states.append(None)
                continue
            state = states.get(value)
            if state is None and value not in states:
                state = states[value] = self._state_of(value)
            comparable = comparable and state is not None
            input_states.append(state)
        return tuple(input_states) if comparable else None

    def _state_of(self, value: ir.Value) -> ValueState | None:
        """Return the state of a value; None if not all of it can be compared."""
        shape = value.shape
        dims = None if shape is None else shape.dims
        if type(value.type) not in _TENSOR or (dims is not None and None in dims):
            return None
        tensor, array, symbolic, constant_key = value.const_value, None, None, None
        node = value.producer()
        if node is not None and node.op_type == "Constant":
            tensor = ir.convenience.get_const_tensor(value)
            if tensor is None:
                return None
        elif node is not None:
            array, symbolic = self._facts.contents.get(value), self._ctx.get_symbolic_value(value)
        if tensor is not None and (constant_key := self._constant_key(value, tensor)) is None:
            return None
        items = None if array is None else (array.shape, *array.flat)
        key = (
            value.dtype,
            dims,
            constant_key,
            items,
            None if symbolic is None else tuple(symbolic),
        )
        state = self._by_key.get(key)
        if state is None:
            state = self._by_key[key] = ValueState(value, symbolic, array)
        return state

    def _constant_key(
        self, value: ir.Value, tensor: ir.TensorProtocol
    ) -> tuple[ir.DataType, tuple[int, ...], Hashable] | None:
        """Return what a rule may look at of a constant; None if that is too much to compare."""
        dtype, dims = tensor.dtype, tuple(tensor.shape.numpy())
        is_readable = dtype in _READABLE_TYPES
        if math.prod(dims) <= MAX_SHAPE_ELEMENTS and (
            is_readable or (self._facts.usual and dtype in FLOATS)
        ):
            items = _tensor_items(tensor)
            flat = is_readable and len(dims) < 2 and dtype != ir.DataType.BOOL
            self._facts.constant_ints[value] = items if flat else None
            return (dtype, dims, items)
        if dtype in _WEIGHTS and (len(dims) > 1 or not is_readable):
            if not dtype.is_integer():
                self._facts.constant_ints[value] = None
            return (dtype, dims, None)
        return None


def _tensor_items(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    items = tuple(tensor.numpy().reshape(-1).tolist())
    if isinstance(tensor, ir.ExternalTensor):
        # It would keep the whole file mapped, once for each tensor.
        with contextlib.suppress(BufferError):  # somebody else is looking at it
            tensor.release()
    return items


def _reads_producers(node: ir.Node) -> bool:
    """Return whether the rule looks at how inputs are computed, as for a rounded quotient."""
    division = producer_of(node.inputs[0] if node.inputs and node.op_type == "Sub" else None)
    return division is not None and division.op_type == "Div"


def _attributes_key(attributes: Iterable[ir.Attr]) -> Hashable | None:
    """Return what attributes say, as a key; None if that cannot be compared."""
    entries: list[Hashable] = []
    for attribute in attributes:
        if attribute.is_ref() or attribute.type not in _PLAIN_ATTRIBUTES:
            return None
        entries.append((attribute.name, attribute.type, attribute.value))
    return tuple(entries)
