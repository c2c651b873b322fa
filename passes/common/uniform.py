"""Tensors filled with one number: masks that hide nothing, and what is larger than it need be.

A bidirectional mask leaves transformers as ``index >= 0``, expanded to the size of the scores: true
everywhere. What is known to be one number needs no size of its own where it is broadcast anyway.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from graphfix.graph.constants import filler_of, number_in, scalar_of
from graphfix.graph.nodes import attr_int, is_op, maker_of
from graphfix.ops.broadcast import BY_ELEMENT, is_broadcast
from graphfix.ops.number_laws import COMPARISONS, OF_ONE, OF_TWO

from .lookup import VIEWS, Key, Look, Replacement, constant_of, perm_of
from .reshape_targets import with_axes

Number = float | int | bool

_TAKEN = ("Slice", "Gather", "GatherElements")
_MOVES = (*VIEWS, *_TAKEN, "Expand", "Tile", "Identity", "Transpose")
_LOGIC = ("And", "Or", "Not")
_NOTHING: Mapping[str, Number] = {"Add": 0, "Mul": 1, "And": True, "Or": False}
NEUTRAL = frozenset({"Where", *_NOTHING})
"""The operators that :meth:`Uniform.neutral` looks at."""
_ARITHMETIC = ("Add", "Sub", "Mul")
SHRUNK = frozenset(
    {"ConstantOfShape", "Where", "Cast", *_MOVES, *COMPARISONS, *_LOGIC, *_ARITHMETIC}
)
"""The operators that :meth:`Uniform.smaller` looks at."""
# Index arithmetic is a handful of nodes deep; what lies deeper is taken as unknown.
_DEPTH = 24


class Uniform:
    """The tensors of a model that are one number all over, whatever their size.

    Attributes:
        touched: The tensors whose shape is no longer what shape inference has found.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._filled: dict[ir.Value, Number | None] = {}
        self._trail: dict[ir.Value, tuple[Key, ...]] = {}
        self.touched: set[ir.Value] = set()

    def filled(self, value: ir.Value | None, depth: int = _DEPTH) -> Number | None:
        """The number that every element of ``value`` is, or None."""
        if value is None or depth == 0:
            return None
        if value not in self._filled:
            self._filled[value] = self._number(value, depth - 1)
        return self._filled[value]

    def least(self, value: ir.Value | None, depth: int = _DEPTH) -> Number | None:
        """A number that no element of an integer tensor is below."""
        array = constant_of(value, 1024)
        if array is not None:
            return array.min().item() if array.size and array.dtype.kind in "iu" else None
        node = maker_of(value)
        if node is None or depth == 0:
            return None
        if is_op(node, *_MOVES):
            return self.least(node.inputs[0], depth - 1)
        if is_op(node, "Range"):
            start, step = scalar_of(node.inputs[0]), scalar_of(node.inputs[2])
            return start if step is not None and step > 0 else None
        if is_op(node, "CumSum"):
            step = self.filled(node.inputs[0])
            if step is None or step < 0 or isinstance(step, float):
                return None
            return 0 if attr_int(node, "exclusive", 0) else step
        if is_op(node, "Add"):
            least = [self.least(x, depth - 1) for x in node.inputs]
            return None if least[0] is None or least[1] is None else least[0] + least[1]
        return None

    def _number(self, value: ir.Value, depth: int) -> Number | None:
        node = value.producer()
        if node is None or node.op_type in ("Constant", "Identity"):
            array = constant_of(value, 1024)
            if array is not None:
                return number_in(array)
        if node is None or node.op_type not in SHRUNK:
            return None
        if is_op(node, "ConstantOfShape"):
            filler = filler_of(node)
            return None if filler is None else number_in(filler)
        if is_op(node, *_MOVES):
            return self.filled(node.inputs[0], depth)
        if is_op(node, *COMPARISONS) and (found := self._compared(node)) is not None:
            return found
        if not is_op(node, "Where", "Cast", *_LOGIC, *_ARITHMETIC):
            return None
        numbers = [self.filled(x, depth) for x in node.inputs]
        if is_op(node, "Where") and numbers[0] is not None:
            return numbers[1 if numbers[0] else 2]
        known = [x for x in numbers if x is not None]
        if len(known) != len(numbers) or is_op(node, "Where"):
            return None
        return self._computed(node, known)

    def _compared(self, node: ir.Node) -> bool | None:
        """A comparison that comes out alike wherever it is made."""
        first, second = node.inputs
        a, b = self.filled(first), self.filled(second)
        if a is not None and b is not None:
            return bool(OF_TWO[node.op_type](a, b))
        for one, other, sign in ((first, b, 1), (second, a, -1)):
            least = self.least(one) if isinstance(other, int) else None
            if least is None or other is None or is_op(node, "Equal"):
                continue
            above = is_op(node, "Greater", "GreaterOrEqual") == (sign > 0)
            if least > other or (least == other and is_op(node, "Greater", "Less") != above):
                return above
        return None

    def _computed(self, node: ir.Node, numbers: Sequence[Number]) -> Number | None:
        if is_op(node, *_LOGIC):
            return bool((OF_ONE | OF_TWO)[node.op_type](*numbers))
        dtype = self._look.view.shapes.dtype(node.outputs[0])
        given = self._look.view.shapes.dtype(node.inputs[0])
        if dtype is None or given is None:
            return None
        arrays = [np.array(x, given.numpy()) for x in numbers]
        with np.errstate(all="ignore"):
            made = arrays[0] if is_op(node, "Cast") else OF_TWO[node.op_type](*arrays)
            return number_in(np.asarray(made).astype(dtype.numpy()))

    # --- rules -------------------------------------------------------------------------------

    def neutral(self, node: ir.Node, look: Look) -> Replacement | None:
        """What is added to nothing, or let through by a mask that hides nothing."""
        if not is_op(node, "Where", *_NOTHING) or node.outputs[0].is_graph_output():
            return None
        kept = self._kept(node)
        dims = look.dims(node.outputs[0])
        if kept is None or dims is None or look.dims(kept) != dims or _ends_norm(node, kept):
            return None
        return Replacement("what it adds or hides is nothing", lambda op: [kept])

    def _kept(self, node: ir.Node) -> ir.Value | None:
        """The one operand that decides all elements."""
        if is_op(node, "Where"):
            decided = self.filled(node.inputs[0])
            return None if decided is None else node.inputs[1 if decided else 2]
        for i in (0, 1):
            number = self.filled(node.inputs[i])
            if number is not None and number == _NOTHING[node.op_type]:
                return node.inputs[1 - i]
        return None

    def scattered(self, node: ir.Node, look: Look) -> Replacement | None:
        """One number at every place of a mask, as dynamo writes ``x[mask] = 0``: a Where."""
        data, indices = node.inputs[:2]
        turned = maker_of(indices)
        if not is_op(turned, "Transpose") or perm_of(turned, look) != (1, 0):
            return None
        places = maker_of(turned.inputs[0])
        mask = places.inputs[0] if is_op(places, "NonZero") else None
        number, dtype = self.filled(node.inputs[2]), look.view.shapes.dtype(data)
        whole, dims = look.dims(data), look.dims(mask)
        if mask is None or data is None or number is None or dtype is None or not whole:
            return None
        if "reduction" in node.attributes or look.view.shapes.dtype(mask) != ir.DataType.BOOL:
            return None
        # Rows of a mask that are expanded to those of x are as many, or the indices are none of x.
        expand = mask.producer()
        if is_op(expand, "Expand") and look.data(expand.inputs[1]) == whole:
            mask, dims = expand.inputs[0], whole
        if mask is None or not dims or dims != whole[: len(dims)]:
            return None
        fill, behind = np.array(number, dtype.numpy()), range(len(dims), len(whole))
        why = "it writes one number where a mask is true"
        return Replacement(
            why, lambda op: [op.Where(with_axes("Unsqueeze", mask, behind, op), fill, data)]
        )

    def real(self, node: ir.Node, look: Look) -> Replacement | None:
        """A DFT of numbers with zeros beside them for imaginary parts, as dynamo writes ``fft``."""
        both = maker_of(node.inputs[0])
        parts = both.inputs if is_op(both, "Concat") and not attr_int(node, "inverse", 0) else ()
        sizes = [dims[-1] for x in parts if (dims := look.dims(x))]
        if both is None or sizes != [1, 1] or self.filled(parts[1]) != 0:
            return None
        if attr_int(both, "axis", 0) not in (-1, (look.view.shapes.rank(parts[0]) or 0) - 1):
            return None
        given = (parts[0], *node.inputs[1:])
        return Replacement("its imaginary parts are zeros", lambda op: [op.again(node, *given)])

    def smaller(self, node: ir.Node, look: Look) -> Replacement | None:
        """What is expanded, or filled, for users who would broadcast it themselves."""
        if len(node.outputs) != 1 or node.graph is not look.view.model.graph:
            return None
        made, self._trail = node.outputs[0], {}
        dims = look.dims(made)
        if dims is None or made.is_graph_output() or not made.uses():
            return None
        number = None if is_op(node, "Constant", "Identity") else self.filled(made)
        if number is not None:
            dtype = look.view.shapes.dtype(made)
            ones = (1,) * len(dims)
            if dtype is None or dims == ones or not self._suits(made, ones):
                return None
            one = np.full(ones, number, dtype.numpy())
            why = "it is one number, and is broadcast anyway"
            return self._reached(Replacement(why, lambda op: [op.constant(one)]))
        kept = node.inputs[0] if is_op(node, "Expand", "Tile") else None
        if is_op(node, "And", "Or"):
            kept = self._kept(node)
        source = look.dims(kept)
        if kept is None or source is None or source == dims:
            return None
        if is_op(node, "Tile") and any(x not in (1, y) for x, y in zip(source, dims, strict=True)):
            return None  # it repeats what is more than one
        if not self._suits(made, source):
            return None
        return self._reached(
            Replacement("those who use it can broadcast it themselves", lambda op: [kept])
        )

    def _reached(self, found: Replacement) -> Replacement | None:
        """``found``, unless another has changed a shape there that this one rests on."""
        if not self.touched.isdisjoint(self._trail):
            return None
        self.touched.update(self._trail)
        return found

    def _suits(self, value: ir.Value, dims: tuple[Key, ...], depth: int = _DEPTH) -> bool:
        """Whether nobody sees if ``value`` has only ``dims``, which broadcast to its own."""
        if value.is_graph_output() or depth == 0:
            return False
        self._trail[value] = dims
        return all(self._suits_user(use.node, value, dims, depth) for use in value.uses())

    def _suits_user(
        self, user: ir.Node, value: ir.Value, dims: tuple[Key, ...], depth: int
    ) -> bool:
        look = self._look
        if user.graph is not look.view.model.graph or len(user.outputs) != 1:
            return False
        if not self.touched.isdisjoint(x for x in user.inputs if x is not None):
            return False
        made = user.outputs[0]
        if is_op(user, "Expand") and user.inputs[0] is value:
            wanted = look.dims(made)
            return wanted is not None and look.data(user.inputs[1]) == wanted
        if is_op(user, *BY_ELEMENT) and user.inputs[0] is value:
            return self._suits(made, dims, depth - 1)
        if is_op(user, "Transpose") and len(perm := perm_of(user, look)) == len(dims):
            return self._suits(made, tuple(dims[i] for i in perm), depth - 1)
        if is_op(user, "Gather") and user.inputs[0] is not value:
            table, axis = look.dims(user.inputs[0]), attr_int(user, "axis", 0)
            if table is None:
                return False
            row = (*table[: axis % len(table)], *dims, *table[axis % len(table) + 1 :])
            return self._suits(made, row, depth - 1)
        if not is_broadcast(user, look.view.opset(user)):
            return False
        # As it is when all of them are small: it may take the same by another way.
        shapes = [self._trail.get(x, look.dims(x)) if x else None for x in user.inputs]
        known = [x for x in shapes if x is not None]
        wanted = look.dims(made)
        if len(known) != len(shapes) or wanted is None:
            return False
        size = broadcast(known)
        return size is not None and (size == wanted or self._suits(made, size, depth - 1))


def _ends_norm(node: ir.Node, kept: ir.Value) -> bool:
    """Whether it is the scale or the bias of a LayerNorm in pieces.

    ONNX Runtime makes one kernel of those that have both (optimizer/layer_norm_fusion.cc), also of
    ones and zeros, which a model has that was not trained.
    """
    maker = kept.producer()
    if is_op(node, "Add") and is_op(maker, "Mul"):
        return any(x is not None and _is_norm(x.producer()) for x in maker.inputs)
    return is_op(node, "Mul") and _is_norm(maker)


def _is_norm(node: ir.Node | None) -> bool:
    """Whether it divides what a mean was taken from by a root."""
    if not is_op(node, "Div"):
        return False
    makers = [maker_of(x) for x in node.inputs]
    return is_op(makers[0], "Sub") and is_op(makers[1], "Sqrt")


def broadcast(shapes: Sequence[tuple[Key, ...]]) -> tuple[Key, ...] | None:
    """What shapes broadcast to, if that is the same at every size."""
    rank = max(map(len, shapes), default=0)
    made: list[Key] = []
    for dims in zip(*((1,) * (rank - len(x)) + x for x in shapes), strict=True):
        others = set(dims) - {1}
        if len(others) > 1:
            return None
        made.append(others.pop() if others else 1)
    return tuple(made)
