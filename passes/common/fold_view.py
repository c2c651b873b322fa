"""A model as the rules of fold see it: contents, dims as keys, and numbers for equal tensors.

Shape inference simplifies expressions as if every size were at least 1. The contents of a shape
tensor are used here only if they are also right where a size is 0: an empty cache is a usual input.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix import ops
from graphfix.editing.builder import Builder
from graphfix.facts.numbering import ValueNumbering
from graphfix.facts.symbolic.expressions import Dim, Ints, dim_key, symbols_of
from graphfix.facts.view import View
from graphfix.graph.constants import const_of, const_tensor, ints_of
from graphfix.graph.dims import static_dims
from graphfix.graph.nodes import attr_int, is_op, use_count
from graphfix.graph.walks import bodies_of
from graphfix.ops.axes import permutation_of
from graphfix.ops.einsums import Equation, equation_of
from graphfix.ops.laws import BINARY_LAWS, UNARY_LAWS

Array = npt.NDArray[np.generic]

Key = int | str
"""A dim: a number, or the text that all equal expressions share."""

# Larger tensors stay computed: a file should not grow by its masks.
LIMIT = 4096

INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)

# Sums, and moves whose shape follows from shapes, hold at every size, 0 among them.
_RIGHT_AT_ZERO = (
    (ops.MOVES_ELEMENTS - ops.COUNTS_CONTENTS)
    | ops.MEASURES
    | ops.named("Cast ConstantOfShape Add Sub Mul Neg")
)

# These are computed again with sizes of 0; the Cast is one to a boolean.
_SIZE_LAWS: Mapping[str, Callable[..., Ints]] = {
    "Div": lambda a, b: np.sign(a) * np.sign(b) * (abs(a) // np.maximum(abs(b), 1)),
    "Mod": lambda a, b: np.mod(a, np.where(b == 0, 1, b)),
    "Max": lambda *x: np.maximum.reduce(np.broadcast_arrays(*x)),
    "Min": lambda *x: np.minimum.reduce(np.broadcast_arrays(*x)),
    "Where": lambda condition, yes, no: np.asarray(np.where(condition != 0, yes, no)),
    "Cast": lambda a: a != 0,
    **{
        name: {**UNARY_LAWS, **BINARY_LAWS}[name]
        for name in ops.LOGIC | ops.COMPARISONS | ops.named("Abs")
    },
}


@dataclass(frozen=True)
class Replacement:
    """The values that a rule of fold puts in place of a node.

    Attributes:
        reason: A sentence for ``check``.
        build: Builds, or finds, the values that replace the node's outputs.
    """

    reason: str
    build: Callable[[Builder], Sequence[ir.Value]]


def forward_value(value: ir.Value, node: ir.Node) -> Replacement | None:
    """Return the replacement of a node by ``value``, which it only passes on.

    If the node makes a graph output, whose name must stay, the producer of ``value`` makes it
    instead, provided that only the node reads ``value``.
    """
    reason, output = "it gives back what it is given", node.outputs[0]
    if not output.is_graph_output():
        return Replacement(reason, lambda op: [value])
    producer = value.producer()
    if producer is None or exclusive_producer(value, producer.op_type) is None:
        return None
    if bodies_of(producer) or len(producer.outputs) != 1 or producer.graph is not node.graph:
        return None
    return Replacement(reason, lambda op: [op.clone_node(producer, *producer.inputs)])


def has_same_shape(node: ir.Node, source: ir.Value, look: FoldView) -> bool:
    """Return whether the output of ``node`` has the shape of ``source``."""
    dims = look.dims(node.outputs[0])
    return dims is not None and dims == look.dims(source)


def exclusive_producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Return the node that makes ``value`` if exactly one node reads it, or None."""
    node = None if value is None else value.producer()
    if value is None or not is_op(node, *op_types):
        return None
    return None if use_count(value) != 1 or value.is_graph_output() else node


def integer_of(value: ir.Value | None) -> int | None:
    """Return the one integer that a constant holds, or None."""
    array = constant_of(value, 1)
    if array is None or array.size != 1 or array.dtype.kind != "i":
        return None
    return int(array.item())


def perm_of(node: ir.Node, look: FoldView) -> tuple[int, ...]:
    """Return how a Transpose permutes the axes of its input, () if that is unknown.

    An Einsum of one tensor may be a Transpose.
    """
    if is_op(node, "Einsum"):
        return _perm_of_equation(equation_of(node))
    return permutation_of(node, look.view.shapes.rank(node.inputs[0]) or 0)


def _perm_of_equation(equation: Equation | None) -> tuple[int, ...]:
    if equation is None or len(equation.terms) != 1 or equation.has_ellipsis:
        return ()
    (operand,), result = equation.terms, equation.result
    is_turned = equation.has_distinct_labels and sorted(operand) == sorted(result)
    return tuple(map(operand.index, result)) if is_turned else ()


def constant_of(value: ir.Value | None, limit: int = LIMIT) -> Array | None:
    """Return the array of a constant, or None; float weights in external files are not read."""
    tensor = const_tensor(value, limit)
    weight = isinstance(tensor, ir.ExternalTensor) and tensor.dtype.is_floating_point()
    return None if tensor is None or weight else const_of(value, limit)


@dataclass
class FoldView:
    """A model as the rules of fold see it, kept while nothing changes."""

    view: View
    numbering: ValueNumbering = field(init=False)
    _right_at_zero: dict[ir.Value, bool] = field(default_factory=dict)
    _scopes: dict[ir.Graph, frozenset[ir.Graph]] = field(default_factory=dict)
    _keys: dict[ir.Value, tuple[Sequence[Dim], tuple[Key, ...] | None]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self.numbering = ValueNumbering(self._content_key, lambda value: constant_of(value, 1024))

    def dims(self, value: ir.Value | None) -> tuple[Key, ...] | None:
        """Return the dims of ``value`` as keys if all are known, or None."""
        dims = self.view.shapes.dims(value)
        if dims is None or value is None:
            return None
        cached = self._keys.get(value)
        if cached is None or cached[0] is not dims:  # a pass may have inferred more dims
            cached = self._keys[value] = dims, keys_of(dims)
        return cached[1]

    def refresh(self) -> FoldView:
        """Return a view of the model as it is now, keeping what still holds."""
        look = FoldView(View(self.view.model), _keys=self._keys)
        if look.view.shapes is self.view.shapes:
            look.numbering = self.numbering.update_after_edit(look._content_key)
        return look

    def data(self, value: ir.Value | None) -> tuple[Key, ...] | None:
        """Return what a shape tensor holds, if known and also true at size 0, or None."""
        if value is None:
            return None
        data = self.view.shapes.known_elements(value)
        keys = None if data is None else keys_of(data)
        if keys is None and value.producer() is None:  # a constant that fold has written
            return ints_of(value) if constant_of(value, 64) is not None else None
        return keys if keys is not None and self._holds_at_zero(value) else None

    def numbers(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """Return what a shape tensor holds if that is the same in each run, or None."""
        numbers = static_dims(self.data(value))
        return None if numbers is None else tuple(numbers)

    def is_in_scope(self, node: ir.Node, value: ir.Value) -> bool:
        """Return whether ``value``, made before ``node``, still exists in its scope."""
        graph, home = node.graph, value.graph
        maker = value.producer()
        if maker is not None:
            home = maker.graph
        if graph is None or home is None:
            return False
        if graph not in self._scopes:
            self._scopes[graph] = frozenset(self.view.enclosing_graphs(graph))
        return home in self._scopes[graph]

    def _content_key(self, value: ir.Value) -> Hashable | None:
        data = self.data(value)
        if data is not None:
            return ("data", self.view.shapes.dtype(value), self.view.shapes.rank(value), data)
        root = root_of(value)
        if root is value:
            return None
        dims = self.dims(value)
        return None if dims is None else ("view", self.numbering.number_of(root), dims)

    def _holds_at_zero(self, value: ir.Value) -> bool:
        """Return whether the inferred content of ``value`` is also true where sizes are 0."""
        pending = [value]
        while pending:
            top = pending[-1]
            node = top.producer()
            if top in self._right_at_zero:
                pending.pop()
            elif node is None or node in ops.MEASURES or is_op(node, "Constant"):
                self._right_at_zero[top] = True
            else:
                operands = [x for x in node.inputs if x is not None]
                missing = [x for x in operands if x not in self._right_at_zero]
                if missing and (node in _RIGHT_AT_ZERO or is_op(node, *_SIZE_LAWS)):
                    pending += missing
                else:
                    self._right_at_zero[top] = self._step_holds_at_zero(node, top)
        return self._right_at_zero[value]

    def _step_holds_at_zero(self, node: ir.Node, value: ir.Value) -> bool:
        """Return whether a node whose inputs were judged gives the inferred content at size 0."""
        if not all(self._right_at_zero.get(x, False) for x in node.inputs if x is not None):
            return False
        to_boolean = is_op(node, "Cast") and attr_int(node, "to", 0) == ir.DataType.BOOL
        if node in _RIGHT_AT_ZERO and not to_boolean:
            return True
        return is_op(node, *_SIZE_LAWS) and self._recomputes_to(node, value)

    def _recomputes_to(self, node: ir.Node, value: ir.Value) -> bool:
        """Return whether a law gives the inferred content of ``value`` with sizes of 0 too."""
        shapes = self.view.shapes
        contents = [shapes.known_elements(x) for x in (*node.inputs, value)]
        *operands, result = [x for x in contents if x is not None] or [()]
        if len(operands) < len(node.inputs):
            return False
        symbols = {s for dims in (*operands, result) for dim in dims for s in symbols_of(dim)}
        try:
            for sizes in _sizes_with_zeros(sorted(symbols), shapes.is_never_empty):
                args = [_evaluate_dims(x, sizes) for x in operands]
                computed = _SIZE_LAWS[node.op_type](*args)
                if not np.array_equal(computed, _evaluate_dims(result, sizes)):
                    return False
        # An unknown name, a result that is no number, or a number too large for a tensor.
        except (ValueError, ZeroDivisionError, OverflowError):
            return False
        return True


def root_of(value: ir.Value) -> ir.Value:
    """Return the tensor whose elements ``value`` has, in the same order."""
    while (node := value.producer()) is not None and node in ops.VIEWS:
        source = node.inputs[0]
        if source is None:
            break
        value = source
    return value


def keys_of(dims: Sequence[Dim] | None) -> tuple[Key, ...] | None:
    """Return the dims as keys if all are known, or None; equal dims get equal keys."""
    keys = tuple(key for dim in dims or () if (key := dim_key(dim)) is not None)
    return keys if dims is not None and len(keys) == len(dims) else None


def _sizes_with_zeros(
    symbols: Sequence[str], never_empty: Callable[[Dim], bool]
) -> list[dict[str, int]]:
    """Return sizes with each symbol that may be 0 at 0 in turn, and all of them at 0."""
    primes = dict(zip(symbols, range(7, 7 + 2 * len(symbols), 2), strict=True))
    empty = [x for x in symbols if not never_empty(ir.SymbolicDim(x))]
    return [primes, *({**primes, x: 0} for x in empty), {**primes, **dict.fromkeys(empty, 0)}]


def _evaluate_dims(dims: Sequence[Dim], sizes: Mapping[str, int]) -> Ints:
    numbers = [x if isinstance(x, int) else x.evaluate(sizes) for x in dims]
    if not all(isinstance(x, int) for x in numbers):
        raise ValueError("a division by a size of 0")
    return np.array(numbers, np.int64)
