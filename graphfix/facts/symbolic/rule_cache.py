"""Answers of rules that hold again: the layers of a model ask the same thousands of times.

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

from graphfix.facts.symbolic.expressions import Array, Dim
from graphfix.facts.symbolic.inferred import FLOATS, SMALL, Facts
from graphfix.graph.nodes import maker_of

Rule = Callable[[ShapeInferenceContext, ir.Node], None]

# Operators whose rules look at more than attributes and inputs, or read floats. What has bodies is
# left out by its attributes, and what only mints names by these.
_ASKED_EACH_TIME = frozenset({"Constant", "OneHot", "Range", "Resize", "Upsample"})
# Types whose elements may be sizes, indices or axes.
_READ = frozenset(
    {ir.DataType.INT64, ir.DataType.INT32, ir.DataType.INT16, ir.DataType.INT8, ir.DataType.BOOL}
    | {ir.DataType.UINT64, ir.DataType.UINT32, ir.DataType.UINT16, ir.DataType.UINT8}
)
# Weights have one of these types or are floats.
_WEIGHTS = frozenset(
    {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4}
    | {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}
)
_TENSOR = (ir.TensorType, type(None))
_PLAIN = frozenset(
    {ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING}
    | {ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS}
)


class Seen:
    """All that a rule can see of a value; one object for all values of which that is the same."""

    __slots__ = ("array", "const", "dtype", "shape", "symbolic", "text")

    def __init__(self, value: ir.Value, symbolic: list[Dim] | None, array: Array | None) -> None:
        self.dtype = value.dtype
        self.shape = value.shape
        self.const = value.const_value
        self.symbolic = symbolic
        self.array = array
        self.text = value.metadata_props.get(SYM_DATA_KEY)


class Context(ShapeInferenceContext):  # type: ignore[misc]
    """The library's context, which also knows what was remembered, and counts what it mints."""

    def __init__(self, opset_imports: Mapping[str, int]) -> None:
        super().__init__(opset_imports)
        self.minted = 0
        self.states: dict[ir.Value, Seen | None] = {}

    def new_symbolic_dim(self) -> ir.SymbolicDim:
        """A dim of its own."""
        self.minted += 1
        dim: ir.SymbolicDim = super().new_symbolic_dim()
        return dim

    def get_symbolic_value(self, value: ir.Value) -> list[Dim] | None:
        """What is known of the elements of a shape tensor."""
        state = self.states.get(value)
        if state is not None and state.symbolic is not None:
            return state.symbolic
        found: list[Dim] | None = super().get_symbolic_value(value)
        return found


class Memory:
    """What the rules have said so far in one inference."""

    def __init__(self, facts: Facts, ctx: Context) -> None:
        self._facts = facts
        self._ctx = ctx
        self._states = ctx.states
        self._by_key: dict[Hashable, Seen] = {}
        self._constants: dict[Hashable, Seen] = {}
        # What was said of the outputs, and what was known of sizes then, if that matters; None
        # where the rule has to be asked each time.
        self._answers: dict[Hashable, tuple[list[Seen], Hashable] | None] = {}

    def infer(self, node: ir.Node, rule: Rule) -> None:
        """Let a node of the main graph have the shape that its rule gives it."""
        if node.op_type == "Constant" and self._is_known(node):
            return
        states, facts, ctx = self._states, self._facts, self._ctx
        key = self._key(node)
        answer = None if key is None else self._answers.get(key)
        if answer is not None and answer[1] in (None, facts.known):
            for value, said in zip(node.outputs, answer[0], strict=True):
                self._say(value, said)
            return
        for value in node.outputs:
            states.pop(value, None)
        if key is None or (answer is None and key in self._answers):
            rule(ctx, node)
            return
        minted, doubts, known = ctx.minted, facts.doubts, facts.known
        rule(ctx, node)
        self._answers[key] = None
        if ctx.minted == minted:
            seen = [self._seen(x) for x in node.outputs]
            states.update(zip(node.outputs, seen, strict=True))
            found = [x for x in seen if x is not None]
            if len(found) == len(seen):
                self._answers[key] = found, known if facts.doubts > doubts else None

    def _is_known(self, node: ir.Node) -> bool:
        """Say what a Constant is, if its tensor is at hand and nothing is claimed of it."""
        value = node.outputs[0]
        tensor = value.const_value
        held = None if tensor is None or value.type is not None else self._held(value, tensor)
        if held is None:
            return False
        dtype, dims, _ = held
        value.dtype = dtype
        state = self._constants.get(held)
        if state is None:
            value.shape = ir.Shape(dims)
            state = self._constants[held] = Seen(value, None, None)
        value.shape = state.shape
        self._states[value] = state
        return True

    def _say(self, value: ir.Value, state: Seen) -> None:
        if value.dtype != state.dtype and state.dtype is not None:
            value.dtype = state.dtype
        value.shape = state.shape
        value.const_value = state.const
        if state.array is not None:
            self._facts.contents[value] = state.array
        if state.text is not None:
            value.metadata_props[SYM_DATA_KEY] = state.text
        self._states[value] = state

    def _key(self, node: ir.Node) -> Hashable | None:
        """What the answer for this node depends on; None if it is not to be remembered."""
        given = self._given(node)
        if given is None or node.op_type in _ASKED_EACH_TIME or node.domain not in ("", "ai.onnx"):
            return None
        attributes = node.attributes.data
        said = _attributes(attributes.values()) if attributes else ()
        if said is None or _looks_further(node):
            return None
        before = []
        for value in node.outputs:
            claimed = value.type
            if value.const_value is not None or type(claimed) not in _TENSOR:
                return None
            before.append(None if claimed is None else claimed.dtype)
        return (node.op_type, said, given, *before)

    def _given(self, node: ir.Node) -> Hashable | None:
        """The states of the inputs; None if one cannot be compared. Dims without a name get one."""
        states, whole = self._states, True
        given: list[Seen | None] = []
        for value in node.inputs:
            if value is None:
                given.append(None)
                continue
            state = states.get(value)
            if state is None and value not in states:
                state = states[value] = self._seen(value)
            whole = whole and state is not None
            given.append(state)
        return tuple(given) if whole else None

    def _seen(self, value: ir.Value) -> Seen | None:
        """The state of a value; None if not all of it can be compared."""
        shape = value.shape
        dims = None if shape is None else shape.dims
        if type(value.type) not in _TENSOR or (dims is not None and None in dims):
            return None
        tensor, array, symbolic, held = value.const_value, None, None, None
        node = value.producer()
        if node is not None and node.op_type == "Constant":
            tensor = ir.convenience.get_const_tensor(value)
            if tensor is None:
                return None
        elif node is not None:
            array, symbolic = self._facts.contents.get(value), self._ctx.get_symbolic_value(value)
        if tensor is not None and (held := self._held(value, tensor)) is None:
            return None
        items = None if array is None else (array.shape, *array.flat)
        key = (value.dtype, dims, held, items, None if symbolic is None else tuple(symbolic))
        state = self._by_key.get(key)
        if state is None:
            state = self._by_key[key] = Seen(value, symbolic, array)
        return state

    def _held(
        self, value: ir.Value, tensor: ir.TensorProtocol
    ) -> tuple[ir.DataType, tuple[int, ...], Hashable] | None:
        """What a rule may look at of a constant; None if that is too much to compare."""
        dtype, dims = tensor.dtype, tuple(tensor.shape.numpy())
        read = dtype in _READ
        if math.prod(dims) <= SMALL and (read or (self._facts.usual and dtype in FLOATS)):
            items = _items(tensor)
            flat = read and len(dims) < 2 and dtype != ir.DataType.BOOL
            self._facts.ints[value] = items if flat else None
            return (dtype, dims, items)
        if dtype in _WEIGHTS and (len(dims) > 1 or not read):
            if not dtype.is_integer():
                self._facts.ints[value] = None
            return (dtype, dims, None)
        return None


def _items(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    items = tuple(tensor.numpy().reshape(-1).tolist())
    if isinstance(tensor, ir.ExternalTensor):
        # It would keep the whole file mapped, once for each tensor.
        with contextlib.suppress(BufferError):  # somebody else is looking at it
            tensor.release()
    return items


def _looks_further(node: ir.Node) -> bool:
    """Whether the rule looks at what the inputs are computed from: see ``quotients.floored``."""
    division = maker_of(node.inputs[0] if node.inputs and node.op_type == "Sub" else None)
    return division is not None and division.op_type == "Div"


def _attributes(attributes: Iterable[ir.Attr]) -> Hashable | None:
    """What attributes say; None if that cannot be compared."""
    said: list[Hashable] = []
    for attribute in attributes:
        if attribute.is_ref() or attribute.type not in _PLAIN:
            return None
        said.append((attribute.name, attribute.type, attribute.value))
    return tuple(said)
