"""What each graph input is for, told from how the graph uses it.

An input is followed through the graph together with what the numbers 0 and 1 would become on the
way, ``(f(0), f(1))``. Where the trail ends says what the input is: as indices into a table, token
ids; as the condition that puts -inf into scores, a mask, and the pair says which of 0 and 1 marks
padding; compared with positions, a length. Names are a hint only where use says nothing.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import onnx_ir as ir

from graphfix.model.values import attr_int, is_op, scalar_of

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal[
    "tokens",  # indices into a table; low <= x < high
    "positions",  # 0, 1, 2, ... along time
    "mask",  # `valid` where there is content, `padded` where there is padding
    "lengths",  # how much of each row is content
    "relative-lengths",  # the same, as a fraction of the longest
    "cu-lengths",  # where each of several joined clips begins and ends: 0, ..., T
    "choice",  # one of a few numbers that the graph asks about
    "int",  # some whole number, low <= x < high
    "data",  # anything
]

# A value at or below this takes its position out of a Softmax.
FILL = -1e3


@dataclass(frozen=True)
class Role:
    """What an input is for.

    Attributes:
        kind: The role.
        why: The use that told it, for a user to read.
        low: The smallest integer that may be fed.
        high: One more than the largest integer that may be fed.
        valid: What a mask has where there is content.
        padded: What a mask has where there is padding.
        choices: The numbers that the graph compares a ``choice`` with.
    """

    kind: Kind
    why: str
    low: int = 0
    high: int = 2
    valid: float = 1.0
    padded: float = 0.0
    choices: tuple[int, ...] = ()


def roles_of(model: ir.Model) -> dict[str, Role]:
    """The role of every input of ``model`` that has to be fed, by name. Nothing is edited.

    Local functions are not looked into: pass a model in which they are inlined.
    """
    return {
        value.name or "": _role(value) for value in model.graph.inputs if not value.is_initializer()
    }


class _Pair(NamedTuple):
    """What an input's 0 and 1 have become."""

    zero: float
    one: float
    line: bool  # by x * (one - zero) + zero so far
    whole: bool  # still an integer tensor

    @property
    def spread(self) -> bool:
        return self.zero != self.one

    def lost(self) -> _Pair:
        """The trail goes on, but what became of 0 and 1 is no longer known."""
        return self._replace(zero=math.nan, one=math.nan, line=False)


@dataclass
class _Clues:
    """What was met along the trails of one input."""

    table: tuple[int, int] | None = None  # low, high of the input
    table_node: str = ""
    masks: list[tuple[float, float, str]] = field(default_factory=list)  # valid, padded, why
    added: str = ""  # added as it is to what goes into a Softmax
    gates: str = ""  # multiplied with something else
    compared: str = ""
    limits: str = ""
    summed: str = ""
    fraction: str = ""
    waves: str = ""
    neighbours: bool = False
    branch: bool = False
    shape: bool = False
    asked: list[int] = field(default_factory=list)


_THROUGH = frozenset(
    {"Cast", "CastLike", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Slice"}
    | {"Transpose", "Flatten", "Tile", "Concat", "Pad", "Split", "ReduceMax", "ReduceMin"}
    | {"GatherND", "GatherElements", "Trilu", "Dropout", "Resize", "MaxPool", "AveragePool"}
)
_UNARY: dict[str, Callable[[float], float]] = {
    "Neg": lambda x: -x,
    "Abs": abs,
    "Not": lambda x: float(not x),
    "Floor": lambda x: float(math.floor(x)),
    "Ceil": lambda x: float(math.ceil(x)),
    "Round": lambda x: float(round(x)),
    "Sign": lambda x: float((x > 0) - (x < 0)),
}
_BINARY: dict[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: 0.0 if 0.0 in (a, b) else a * b,
    "Div": lambda a, b: a / b if b else math.inf,
    "Min": min,
    "Max": max,
    "And": lambda a, b: float(bool(a) and bool(b)),
    "Or": lambda a, b: float(bool(a) or bool(b)),
    "Xor": lambda a, b: float(bool(a) != bool(b)),
    "Equal": lambda a, b: float(a == b),
    "Less": lambda a, b: float(a < b),
    "LessOrEqual": lambda a, b: float(a <= b),
    "Greater": lambda a, b: float(a > b),
    "GreaterOrEqual": lambda a, b: float(a >= b),
}
_COMPARE = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
_LINEAR = frozenset({"Add", "Sub", "Mul"})
_SUMS = frozenset({"ReduceSum", "CumSum"})
_SHAPE_INPUTS = {
    "Reshape": (1,),
    "Expand": (1,),
    "ConstantOfShape": (0,),
    "Slice": (1, 2),
    "Tile": (1,),
    "Range": (0, 1, 2),
    "Pad": (1,),
    "Resize": (2, 3),
}
_ROW_LENGTHS = frozenset({("LSTM", 4), ("GRU", 4), ("RNN", 4), ("ReverseSequence", 1)})
# To see a role, a few steps are enough; this only bounds the walk over a huge graph.
_MOST_STEPS = 4000


class _Walk:
    """Follows one input through the graph and collects clues."""

    def __init__(self, start: ir.Value) -> None:
        self.clues = _Clues()
        self._seen: set[tuple[ir.Value, _Pair]] = set()
        self._reached: set[ir.Value] = {start}
        self._lost: set[ir.Value] = set()
        self._queue: deque[tuple[ir.Value, _Pair]] = deque()
        whole = start.dtype is not None and start.dtype.is_integer()
        self._push(start, _Pair(0.0, 1.0, line=True, whole=whole))

    def run(self) -> _Clues:
        for _ in range(_MOST_STEPS):
            if not self._queue:
                break
            value, pair = self._queue.popleft()
            for node, index in value.uses():
                self._step(node, index, pair)
        return self.clues

    def _push(self, value: ir.Value, pair: _Pair) -> None:
        if (value, pair) not in self._seen:
            self._seen.add((value, pair))
            self._reached.add(value)
            if math.isnan(pair.one):
                self._lost.add(value)
            self._queue.append((value, pair))

    def _on(self, node: ir.Node, pair: _Pair) -> None:
        for output in node.outputs:
            self._push(output, pair)

    def _step(self, node: ir.Node, index: int, pair: _Pair) -> None:
        op, clues = node.op_type, self.clues
        if index in _SHAPE_INPUTS.get(op, ()):
            clues.shape = True
            if op == "Range" and index == 1:
                clues.limits = clues.limits or _say(node)
        elif op == "Gather" and index == 1:
            self._table(node, pair)
        elif op == "OneHot" and index == 0:
            depth = scalar_of(node.inputs[1])
            self._bound(int(depth) if depth is not None else None, node, pair)
        elif (op, index) in _ROW_LENGTHS:
            clues.limits = _say(node)
        elif op == "If":
            clues.branch = True
        elif op == "Where":
            self._where(node, index, pair)
        elif op in ("Sin", "Cos"):
            clues.waves = clues.waves or _say(node)
        elif op in _UNARY:
            self._on(node, _map(pair, _UNARY[op], line=op == "Neg"))
        elif op in _BINARY:
            self._binary(node, index, pair)
        elif op == "Clip":
            self._on(node, pair)
        elif index == 0 and op in _SUMS:
            clues.summed = clues.summed or _say(node)
            self._on(node, pair.lost())
        elif op == "MatMul":  # the angles of rotary positions
            if any(is_op(user, "Sin", "Cos", "Transpose") for user, _ in node.outputs[0].uses()):
                self._on(node, pair.lost())
        elif (op in _THROUGH and index == 0) or op == "Concat":
            self._through(node, pair)
        elif op == "Gather":
            self._on(node, pair)

    def _through(self, node: ir.Node, pair: _Pair) -> None:
        if node.op_type == "Cast":
            to = ir.DataType(attr_int(node, "to", ir.DataType.FLOAT))
            if to == ir.DataType.BOOL:
                pair = _map(pair, lambda x: float(bool(x)), line=False)
            pair = pair._replace(whole=to.is_integer())
        self._on(node, pair)

    def _table(self, node: ir.Node, pair: _Pair) -> None:
        data = node.inputs[0]
        size: int | None = None
        if data is not None and data.shape is not None and len(data.shape):
            rows = data.shape[attr_int(node, "axis", 0) % len(data.shape)]
            size = rows if isinstance(rows, int) else None
        self._bound(size, node, pair)

    def _bound(self, size: int | None, node: ir.Node, pair: _Pair) -> None:
        """Indices ``scale * x + pair.zero`` must lie in ``0 .. size - 1``."""
        scale = pair.one - pair.zero
        if not pair.line or math.isnan(scale) or scale <= 0:
            return
        low = math.ceil(-pair.zero / scale)
        high = low + 1 if size is None else math.floor((size - 1 - pair.zero) / scale) + 1
        if self.clues.table is not None:
            low, high = max(low, self.clues.table[0]), min(high, self.clues.table[1])
        self.clues.table = (low, max(high, low + 1))
        self.clues.table_node = self.clues.table_node or _say(node)

    def _where(self, node: ir.Node, index: int, pair: _Pair) -> None:
        if index:
            self._on(node, pair)
            return
        yes, no = scalar_of(node.inputs[1]), scalar_of(node.inputs[2])
        if yes is not None and no is not None:
            self._on(node, _map(pair, lambda x: float(yes if x else no), line=False))
        elif yes is None and no is None:
            self._mask(node, pair, masking=None)
        else:
            self._mask(node, pair, masking=yes is not None)

    def _mask(self, node: ir.Node, pair: _Pair, masking: bool | None) -> None:
        """A condition over data; ``masking``: which truth value puts the constant in its place."""
        if not pair.spread or math.isnan(pair.zero):
            return
        hit = [x for x, y in ((0.0, pair.zero), (1.0, pair.one)) if bool(y) is masking]
        padded = hit[0] if len(hit) == 1 else 0.0
        self.clues.masks.append((1.0 - padded, padded, _say(node)))

    def _binary(self, node: ir.Node, index: int, pair: _Pair) -> None:
        op = node.op_type
        others = [x for i, x in enumerate(node.inputs) if i != index and x is not None]
        if not others:
            self._on(node, pair)
            return
        constant = scalar_of(others[0])
        if constant is not None:
            number = float(constant)
            if op == "Equal":
                self.clues.asked.append(int(number) if math.isfinite(number) else 0)
            if op == "Equal" and number not in (pair.zero, pair.one):
                return  # ids compared with a padding id: not a 0/1 mask
            law, first = _BINARY[op], index == 0
            new = _map(
                pair,
                lambda x: law(x, number) if first else law(number, x),
                line=op in _LINEAR,
            )
            self._on(node, new)
        elif others[0] in self._reached and not (pair.whole and self._both_sliced(node)):
            # A mask combined with itself; or with its own sum, which is a position.
            self._on(node, pair.lost() if others[0] in self._lost else pair)
        elif op in ("And", "Or", "Xor", "Min", "Max"):
            self._on(node, pair)
        else:
            self._meet(node, index, others[0], pair)

    def _meet(self, node: ir.Node, index: int, other: ir.Value, pair: _Pair) -> None:
        """The trail meets another tensor."""
        op, clues = node.op_type, self.clues
        if op in _COMPARE or op in ("Equal", "Sub"):
            if _is_positions(other):
                clues.compared = clues.compared or _say(node)
            if op != "Sub":
                return
        if pair.whole:  # whole numbers stay arithmetic on this input; floats become data
            if op == "Sub" and self._both_sliced(node):
                clues.neighbours = True
            self._on(node, pair.lost())
        elif op in ("Add", "Sub"):
            sign = -1.0 if op == "Sub" and index == 1 else 1.0
            self._addend(node, _map(pair, lambda x: sign * x, line=True))
        elif op == "Mul":
            self._gate(node, other, pair)

    def _gate(self, node: ir.Node, other: ir.Value, pair: _Pair) -> None:
        clues = self.clues
        if _above(other, lambda n: is_op(n, "Shape", "Size")):
            clues.fraction = clues.fraction or _say(node)
            self._on(node, pair.lost())
        if any(is_op(user, "Sin", "Cos") for user, _ in node.outputs[0].uses()):
            clues.waves = clues.waves or _say(node)
        if not (pair.spread and 0.0 in pair[:2] and all(map(math.isfinite, pair[:2]))):
            return
        padded = 0.0 if pair.zero == 0.0 else 1.0
        clues.gates = clues.gates or _say(node)
        if not pair.line or padded == 1.0:  # it has been through a test: surely a 0/1 input
            clues.masks.append((1.0 - padded, padded, _say(node)))

    def _both_sliced(self, node: ir.Node) -> bool:
        return all(
            x in self._reached and is_op(x.producer(), "Slice")
            for x in node.inputs
            if x is not None
        )

    def _addend(self, node: ir.Node, pair: _Pair) -> None:
        if not _into_softmax(node):
            return
        if pair.line and (pair.zero, pair.one) == (0.0, 1.0):
            self.clues.added = self.clues.added or _say(node)
        elif pair.spread and min(pair.zero, pair.one) <= FILL:
            padded = 0.0 if pair.zero < pair.one else 1.0
            self.clues.masks.append((1.0 - padded, padded, _say(node)))


_FLOATS = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16}
)


def _map(pair: _Pair, law: Callable[[float], float], *, line: bool) -> _Pair:
    if math.isnan(pair.zero):
        return pair.lost()
    return _Pair(law(pair.zero), law(pair.one), pair.line and line, pair.whole)


def _say(node: ir.Node) -> str:
    return f"{node.op_type} {node.name or node.outputs[0].name!r}"


def _above(value: ir.Value, stop: Callable[[ir.Node], bool], steps: int = 24) -> ir.Node | None:
    """The first node above ``value``, through operators that keep elements, that ``stop`` wants."""
    queue = deque([value])
    for _ in range(steps):
        if not queue:
            return None
        node = queue.popleft().producer()
        if node is None:
            continue
        if stop(node):
            return node
        if node.op_type in _THROUGH or node.op_type in ("Add", "Sub", "Mul", "Neg", "Gather"):
            queue.extend(x for x in node.inputs if x is not None)
    return None


def _is_positions(value: ir.Value) -> bool:
    """Whether ``value`` counts 0, 1, 2, ...: a Range, a CumSum, or a constant that does."""
    if _above(value, lambda n: is_op(n, "Range", "CumSum", "ConstantOfShape", "NonZero")):
        return True
    source = value
    while (node := source.producer()) is not None and is_op(
        node, "Cast", "Unsqueeze", "Reshape", "Expand", "Slice", "Identity"
    ):
        first = node.inputs[0]
        if first is None:
            return False
        source = first
    tensor = ir.convenience.get_const_tensor(source)
    if tensor is None or not 1 < tensor.size <= 1 << 16:
        return False
    flat = tensor.numpy().reshape(-1)
    return bool((flat[1:] - flat[:-1] == 1).all())


_TO_SOFTMAX = frozenset(
    {"Add", "Reshape", "Transpose", "Cast", "Where", "Mul", "Div", "Max", "Min", "Identity"}
    | {"Unsqueeze", "Squeeze", "Sub", "Clip"}
)


def _into_softmax(node: ir.Node, steps: int = 60) -> bool:
    """Whether what ``node`` makes goes into a Softmax with only scaling and moving in between.

    A mask is often prepared once and added in each layer, so this looks past the first Add.
    """
    queue, seen = deque(node.outputs), set(node.outputs)
    for _ in range(steps):
        if not queue:
            return False
        for user, _index in queue.popleft().uses():
            if user.op_type in ("Softmax", "LogSoftmax"):
                return True
            if user.op_type in _TO_SOFTMAX and user.outputs[0] not in seen:
                seen.add(user.outputs[0])
                queue.append(user.outputs[0])
    return False


def _role(value: ir.Value) -> Role:
    if not value.uses():
        return _unused(value)
    clues = _Walk(value).run()
    if value.dtype == ir.DataType.BOOL:
        return _of_bool(value, clues)
    if value.dtype in _FLOATS:
        return _of_float(value, clues)
    return _of_int(value, clues)


def _rank(value: ir.Value) -> int:
    return len(value.shape) if value.shape is not None else 0


def _one_a_row(value: ir.Value) -> bool:
    """Whether the shape is ``[]``, ``[B]`` or ``[B, 1]``."""
    return _rank(value) <= 1 or all(d == 1 for d in value.shape[1:])  # type: ignore[index]


def _single(value: ir.Value) -> bool:
    return value.shape is not None and all(d == 1 for d in value.shape)


def _mask_role(clues: _Clues) -> Role | None:
    """A mask, with the polarity that most of its uses say."""
    if not clues.masks:
        return None
    zeros = sum(padded == 0.0 for _, padded, _ in clues.masks)
    padded = 0.0 if 2 * zeros >= len(clues.masks) else 1.0
    why = next(why for _, p, why in clues.masks if p == padded)
    return Role("mask", f"masks at {why}", valid=1.0 - padded, padded=padded)


def _of_bool(value: ir.Value, clues: _Clues) -> Role:
    if _single(value) and (clues.branch or not clues.masks):
        return Role("choice", "a flag", choices=(0, 1))
    return _mask_role(clues) or Role("mask", "a boolean input")


def _of_float(value: ir.Value, clues: _Clues) -> Role:
    if clues.added and _rank(value) >= 2:
        return Role("mask", f"added to scores at {clues.added}", valid=0.0, padded=-1e4)
    known = _mask_role(clues)
    if known is not None and not _single(value):
        return known
    if _one_a_row(value) and _rank(value) >= 1 and clues.compared:
        if clues.fraction:
            return Role("relative-lengths", f"a share of the size at {clues.fraction}")
        return Role("lengths", f"compared with positions at {clues.compared}")
    gate = clues.gates and _rank(value) >= 2 and value.shape is not None
    if gate and any(d == 1 for d in value.shape[1:]):  # type: ignore[index]
        return Role("mask", f"multiplied with data at {clues.gates}")
    if _hint(value, "mask") and _rank(value) >= 2:
        return Role("mask", "its name")
    return Role("data", "floating point")


def _of_int(value: ir.Value, clues: _Clues) -> Role:
    if _one_a_row(value):
        if clues.neighbours or _hint(value, "cu_?seq|cu_?len"):
            return Role("cu-lengths", "differences of neighbours are lengths")
        counted = clues.compared or clues.limits
        # A number that only makes a shape is a size, not the length of a row.
        if clues.compared or (counted and _rank(value) >= 1):
            return Role("lengths", f"counted against positions at {counted}")
        if clues.table is None and _single(value) and clues.asked:
            return Role("choice", "compared with constants", choices=tuple(sorted({*clues.asked})))
        if clues.table is None and _rank(value) >= 1 and _hint(value, "len"):
            return Role("lengths", "its name")
    if clues.table is not None:
        low, high = clues.table
        if _hint(value, "position"):
            return Role("positions", f"indices of {clues.table_node}", low=low, high=high)
        # Ids that the graph asks about, such as a padding id, are not content.
        asked = tuple(sorted({x for x in clues.asked if low <= x < high}))
        why = f"indices of {clues.table_node}"
        return Role("tokens", why, low=low, high=high, choices=asked)
    known = None if _one_a_row(value) else _mask_role(clues)
    if known is not None:
        return known
    if clues.waves:
        return Role("positions", f"angles at {clues.waves}", high=1 << 30)
    if not _one_a_row(value) and (clues.summed or clues.gates or _hint(value, "mask")):
        return Role("mask", f"counted at {clues.summed or clues.gates or 'its name'}")
    if clues.shape or clues.limits:
        return Role("int", "a size", low=1, high=5)
    return Role("int", "a whole number")


def _unused(value: ir.Value) -> Role:
    if value.dtype == ir.DataType.BOOL:
        return Role("choice", "unused", choices=(0,))
    if value.dtype in _FLOATS:
        return Role("data", "unused")
    return Role("int", "unused", high=1)


def _hint(value: ir.Value, pattern: str) -> bool:
    return re.search(pattern, value.name or "", re.IGNORECASE) is not None
