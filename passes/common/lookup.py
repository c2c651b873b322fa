"""What the rules of fold may ask of a model: what a tensor holds, whose shape it has, who is equal.

Sizes are taken to be at least 1 when shape inference simplifies an expression. What a shape tensor
holds is believed here only if it also holds where a size is 0: an empty cache is a usual input.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.numbering import Numbering
from graphfix.facts.symbolic.expressions import Dim, Ints, key_of, symbols_of
from graphfix.facts.view import View
from graphfix.graph.constants import const_of, const_tensor, ints_of
from graphfix.graph.dims import numbers_in
from graphfix.graph.nodes import attr_int, attr_ints, attr_text, is_op, users_of
from graphfix.graph.walks import bodies_of
from graphfix.ops.number_laws import COMPARISONS, OF_ONE, OF_TWO

Array = npt.NDArray[np.generic]

Key = int | str
"""A dim: a number, or the text that all equal expressions share."""

# What has more elements stays computed: a file should not grow by its masks.
LIMIT = 4096

INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)

VIEWS = ("Reshape", "Unsqueeze", "Squeeze", "Flatten")
"""Operators that give the same elements in the same order another shape."""

# Sums and moves hold at every size, 0 among them.
_ALWAYS = frozenset(
    {"Shape", "Size", "Gather", "Slice", "Concat", "Cast", "Identity", "Transpose", "Expand"}
    | {"Tile", "ConstantOfShape", "Add", "Sub", "Mul", "Neg", "Split", *VIEWS}
)


_COMPUTED: Mapping[str, Callable[..., Ints]] = {
    "Div": lambda a, b: np.sign(a) * np.sign(b) * (abs(a) // np.maximum(abs(b), 1)),
    "Mod": lambda a, b: np.mod(a, np.where(b == 0, 1, b)),
    "Max": lambda *x: np.maximum.reduce(np.broadcast_arrays(*x)),
    "Min": lambda *x: np.minimum.reduce(np.broadcast_arrays(*x)),
    **{x: (OF_ONE | OF_TWO)[x] for x in ("Abs", "Not", "And", "Or", *COMPARISONS)},
    "Where": lambda condition, yes, no: np.asarray(np.where(condition != 0, yes, no)),
    "Cast": lambda a: a != 0,
}


@dataclass(frozen=True)
class Replacement:
    """What a rule would do with a node.

    Attributes:
        what: A sentence for ``check``.
        build: Makes, or finds, what stands for the node's outputs.
    """

    what: str
    build: Callable[[Builder], Sequence[ir.Value]]


def nothing(value: ir.Value, node: ir.Node) -> Replacement | None:
    """``node`` gives back ``value``; if it makes an output of its graph its name is wanted.

    So what makes ``value`` makes the output, if only the node needs that.
    """
    what, made = "it gives back what it is given", node.outputs[0]
    if not made.is_graph_output():
        return Replacement(what, lambda op: [value])
    maker = value.producer()
    if maker is None or alone(value, maker.op_type) is None or bodies_of(maker):
        return None
    if len(maker.outputs) != 1 or maker.graph is not node.graph:
        return None
    return Replacement(what, lambda op: [op.again(maker, *maker.inputs)])


def same_shape(node: ir.Node, source: ir.Value, look: Look) -> bool:
    """Whether ``node`` makes something of the shape of ``source``."""
    dims = look.dims(node.outputs[0])
    return dims is not None and dims == look.dims(source)


def alone(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that makes ``value``, if nothing else than one node needs that."""
    node = None if value is None else value.producer()
    if value is None or not is_op(node, *op_types):
        return None
    return None if users_of(value) != 1 or value.is_graph_output() else node


def perm_of(node: ir.Node, look: Look) -> tuple[int, ...]:
    """The axes of what a Transpose is given, in the order of what it makes; none if not known.

    An Einsum of one tensor may be a Transpose.
    """
    if is_op(node, "Einsum"):
        equation = attr_text(node, "equation", "").replace(" ", "")
        given, _, made = equation.partition("->")
        plain = given.isalpha() and sorted(set(given)) == sorted(made)
        return tuple(map(given.index, made)) if plain and len(given) == len(made) else ()
    if "perm" in node.attributes:
        return attr_ints(node, "perm") or ()
    return tuple(reversed(range(look.view.shapes.rank(node.inputs[0]) or 0)))


def constant_of(value: ir.Value | None, limit: int = LIMIT) -> Array | None:
    """What is fixed; weights that lie beside the file are not read, but integers are none."""
    tensor = const_tensor(value, limit)
    weight = isinstance(tensor, ir.ExternalTensor) and tensor.dtype.is_floating_point()
    return None if tensor is None or weight else const_of(value, limit)


@dataclass
class Look:
    """A model as the rules of fold see it; kept for walks through its nodes that change nothing."""

    view: View
    numbering: Numbering = field(init=False)
    _sound: dict[ir.Value, bool] = field(default_factory=dict)
    _scopes: dict[ir.Graph, frozenset[ir.Graph]] = field(default_factory=dict)
    _keys: dict[ir.Value, tuple[Sequence[Dim], tuple[Key, ...] | None]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self.numbering = Numbering(self._contents, lambda value: constant_of(value, 1024))

    def dims(self, value: ir.Value | None) -> tuple[Key, ...] | None:
        """The dims of ``value``, if all of them are known; equal ones are written alike."""
        dims = self.view.shapes.dims(value)
        if dims is None or value is None:
            return None
        known = self._keys.get(value)
        if known is None or known[0] is not dims:  # a pass may learn more of it
            known = self._keys[value] = dims, keys_of(dims)
        return known[1]

    def again(self) -> Look:
        """The model as it is now, with what holds of it still."""
        look = Look(View(self.view.model), _keys=self._keys)
        if look.view.shapes is self.view.shapes:
            look.numbering = self.numbering.renewed(look._contents)
        return look

    def data(self, value: ir.Value | None) -> tuple[Key, ...] | None:
        """What a shape tensor holds, if all of it is known and holds at size 0 as well."""
        if value is None:
            return None
        data = self.view.shapes.data(value)
        known = None if data is None else keys_of(data)
        if known is None and value.producer() is None:  # a constant that fold itself has made
            return ints_of(value) if constant_of(value, 64) is not None else None
        return known if known is not None and self._holds(value) else None

    def numbers(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """What a shape tensor holds if that is the same in each run."""
        numbers = numbers_in(self.data(value))
        return None if numbers is None else tuple(numbers)

    def sees(self, node: ir.Node, value: ir.Value) -> bool:
        """Whether ``value``, made before ``node`` in a walk, is still there and in its scope."""
        graph, home = node.graph, value.graph
        maker = value.producer()
        if maker is not None:
            home = maker.graph
        if graph is None or home is None:
            return False
        if graph not in self._scopes:
            self._scopes[graph] = frozenset(self.view.scope(graph))
        return home in self._scopes[graph]

    def _contents(self, value: ir.Value) -> Hashable | None:
        data = self.data(value)
        if data is not None:
            return ("data", self.view.shapes.dtype(value), self.view.shapes.rank(value), data)
        root = root_of(value)
        if root is value:
            return None
        dims = self.dims(value)
        return None if dims is None else ("view", self.numbering.of(root), dims)

    def _holds(self, value: ir.Value) -> bool:
        """Whether what inference found for ``value`` holds where sizes are 0, too."""
        pending = [value]
        while pending:
            top = pending[-1]
            node = top.producer()
            if top in self._sound:
                pending.pop()
            elif node is None or is_op(node, "Shape", "Size", "Constant"):
                self._sound[top] = True
            else:
                missing = [x for x in node.inputs if x is not None and x not in self._sound]
                if missing and is_op(node, *_ALWAYS, *_COMPUTED):
                    pending += missing
                else:
                    self._sound[top] = self._step_holds(node, top)
        return self._sound[value]

    def _step_holds(self, node: ir.Node, value: ir.Value) -> bool:
        asks_for_zero = is_op(node, "Cast") and attr_int(node, "to", 0) == ir.DataType.BOOL
        if is_op(node, *_ALWAYS) and not asks_for_zero:
            return all(self._sound[x] for x in node.inputs if x is not None)
        if not is_op(node, *_COMPUTED) or not all(
            x is not None and self._sound[x] for x in node.inputs
        ):
            return False
        shapes = self.view.shapes
        given = [shapes.data(x) for x in node.inputs]
        made = shapes.data(value)
        if made is None or any(x is None for x in given):
            return False
        operands = [x or () for x in given]
        symbols = {s for dims in (*operands, made) for dim in dims for s in symbols_of(dim)}
        try:
            for sizes in _with_zeros(sorted(symbols), shapes.never_empty):
                args = [_at(x, sizes) for x in operands]
                if not np.array_equal(_COMPUTED[node.op_type](*args), _at(made, sizes)):
                    return False
        # A name that no expression holds, no number, or one that no tensor holds.
        except (ValueError, ZeroDivisionError, OverflowError):
            return False
        return True


def root_of(value: ir.Value) -> ir.Value:
    """The tensor whose elements ``value`` has, in the same order."""
    while (node := value.producer()) is not None and is_op(node, *VIEWS, "Identity"):
        source = node.inputs[0]
        if source is None:
            break
        value = source
    return value


def keys_of(dims: Sequence[Dim] | None) -> tuple[Key, ...] | None:
    """``dims``, if all are known; equal ones are written alike."""
    keys = tuple(key for dim in dims or () if (key := key_of(dim)) is not None)
    return keys if dims is not None and len(keys) == len(dims) else None


def _with_zeros(symbols: Sequence[str], never_empty: Callable[[Dim], bool]) -> list[dict[str, int]]:
    """Sizes with each symbol at 0 in turn, and all of them, that can be 0 at all."""
    primes = dict(zip(symbols, range(7, 7 + 2 * len(symbols), 2), strict=True))
    empty = [x for x in symbols if not never_empty(ir.SymbolicDim(x))]
    return [primes, *({**primes, x: 0} for x in empty), {**primes, **dict.fromkeys(empty, 0)}]


def _at(dims: Sequence[Dim], sizes: Mapping[str, int]) -> Ints:
    numbers = [x if isinstance(x, int) else x.evaluate(sizes) for x in dims]
    if not all(isinstance(x, int) for x in numbers):
        raise ValueError("a division by a size of 0")
    return np.array(numbers, np.int64)
