"""An input followed through the graph, together with what its 0 and 1 become on the way.

Each value on the trail has a pair ``(f(0), f(1))``; where the trail ends, a clue is kept.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from graphfix.feeds.graph_uses import ARITHMETIC, THROUGH, above, into_softmax, is_positions, say
from graphfix.feeds.laws import BINARY, UNARY, Law, result
from graphfix.graph.constants import const_of, scalar_of
from graphfix.graph.nodes import attr_int, is_op

# A value at or below this takes its position out of a Softmax.
FILL = -1e3


# How many frames a convolution makes of a clip, and how many a mask counts.
_OF_LENGTHS = ARITHMETIC | {"Div", "Floor", "Ceil", "Max", "Min", "ReduceSum", "Where"}


def clues_of(value: ir.Value, told: ir.Value | None = None) -> Clues:
    """What is met along the trails of an input.

    Args:
        value: The input.
        told: The input that says where content ends, if the model's metadata names one.
    """
    return _Walk(value, told).run()


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
class Clues:
    """What was met along the trails of one input."""

    masks: list[tuple[float, float, str]] = field(default_factory=list)  # valid, padded, why
    added: str = ""  # added as it is to what goes into a Softmax
    gates: str = ""  # multiplied with something else
    compared: str = ""
    limits: str = ""
    summed: str = ""
    fraction: str = ""
    cut: str = ""  # a share of a size at which a Slice ends
    waves: str = ""
    neighbours: bool = False
    branch: bool = False
    shape: bool = False
    asked: list[int] = field(default_factory=list)
    span: tuple[float, float] | None = None  # half of a table that is compared with it


_COMPARE = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
_LINEAR = frozenset({"Add", "Sub", "Mul"})
_SUMS = frozenset({"ReduceSum", "CumSum"})
_SHAPE_INPUTS = {
    **dict.fromkeys(("Expand", "Pad", "Reshape", "Tile"), (1,)),
    "ConstantOfShape": (0,),
    "Slice": (1, 2),
    "Range": (0, 1, 2),
    "Resize": (2, 3),
}
_ROW_LENGTHS = frozenset({("LSTM", 4), ("GRU", 4), ("RNN", 4), ("ReverseSequence", 1)})
# To see a role, a few steps are enough; this only bounds the walk over a huge graph.
_MOST_STEPS = 4000


class _Walk:
    """Follows one input through the graph and collects clues."""

    def __init__(self, start: ir.Value, told: ir.Value | None) -> None:
        self.clues = Clues()
        self._told = told
        self._seen: set[tuple[ir.Value, _Pair]] = set()
        self._reached: set[ir.Value] = {start}
        self._lost: set[ir.Value] = set()
        self._queue: deque[tuple[ir.Value, _Pair]] = deque()
        whole = start.dtype is not None and start.dtype.is_integer()
        self._push(start, _Pair(0.0, 1.0, line=True, whole=whole))

    def run(self) -> Clues:
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
                clues.limits = clues.limits or say(node)
            if op == "Slice" and index == 2 and clues.fraction and not pair.line:
                clues.cut = clues.cut or say(node)
        elif (op, index) in _ROW_LENGTHS:
            clues.limits = say(node)
        elif op == "If":
            clues.branch = True
        elif op == "Where":
            self._where(node, index, pair)
        elif op in ("Sin", "Cos"):
            clues.waves = clues.waves or say(node)
        elif op in UNARY:
            self._on(node, _map(pair, UNARY[op], line=op == "Neg"))
        elif op in BINARY:
            self._binary(node, index, pair)
        elif op == "Clip":
            self._on(node, pair)
        elif index == 0 and op in _SUMS:
            clues.summed = clues.summed or say(node)
            self._on(node, pair.lost())
        elif op == "MatMul":  # the angles of rotary positions
            if any(is_op(user, "Sin", "Cos", "Transpose") for user, _ in node.outputs[0].uses()):
                self._on(node, pair.lost())
        elif (op in THROUGH and index == 0) or op == "Concat":
            self._through(node, pair)
        elif op == "Gather" and index == 0:
            self._on(node, pair)

    def _through(self, node: ir.Node, pair: _Pair) -> None:
        if node.op_type == "Cast":
            to = ir.DataType(attr_int(node, "to", ir.DataType.FLOAT))
            if to == ir.DataType.BOOL:
                pair = _map(pair, lambda x: float(bool(x)), line=False)
            pair = pair._replace(whole=to.is_integer())
        self._on(node, pair)

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
        self.clues.masks.append((1.0 - padded, padded, say(node)))

    def _binary(self, node: ir.Node, index: int, pair: _Pair) -> None:
        op = node.op_type
        others = [x for i, x in enumerate(node.inputs) if i != index and x is not None]
        if not others:
            self._on(node, pair)
            return
        constant = scalar_of(others[0])
        table = const_of(others[0]) if op in _COMPARE and pair[:2] == (0, 1) else None
        if table is not None and table.size > 1:
            # Of the half that lets the other pass: a clip has a pitch above what is the least.
            least, most = float(table.min()), float(table.max())
            middle, above = (least + most) / 2, (index == 0) == op.startswith("Less")
            self.clues.span = (least, middle) if above else (middle, most)
        if constant is not None:
            number = float(constant)
            if op == "Equal":
                self.clues.asked.append(int(number) if math.isfinite(number) else 0)
            if op == "Equal" and number not in (pair.zero, pair.one):
                return  # ids compared with a padding id: not a 0/1 mask
            law, first = BINARY[op], index == 0
            new = _map(
                pair, lambda x: law(x, number) if first else law(number, x), line=op in _LINEAR
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
            if is_positions(other):
                clues.compared = clues.compared or say(node)
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
        if above(other, self._is_size, arithmetic=_OF_LENGTHS):
            clues.fraction = clues.fraction or say(node)
            self._on(node, pair.lost())
        if any(is_op(user, "Sin", "Cos") for user, _ in node.outputs[0].uses()):
            clues.waves = clues.waves or say(node)
        if not (pair.spread and 0.0 in pair[:2] and all(map(math.isfinite, pair[:2]))):
            return
        padded = 0.0 if pair.zero == 0.0 else 1.0
        clues.gates = clues.gates or say(node)
        if not pair.line or padded == 1.0:  # it has been through a test: surely a 0/1 input
            clues.masks.append((1.0 - padded, padded, say(node)))

    def _is_size(self, node: ir.Node) -> bool:
        """Whether a node says how long something is, the padding counted in or not."""
        return is_op(node, "Shape", "Size") or (
            self._told is not None and self._told in node.inputs
        )

    def _both_sliced(self, node: ir.Node) -> bool:
        given = [x for x in node.inputs if x is not None]
        return all(x in self._reached and is_op(x.producer(), "Slice") for x in given)

    def _addend(self, node: ir.Node, pair: _Pair) -> None:
        if not into_softmax(node):
            return
        if pair.line and (pair.zero, pair.one) == (0.0, 1.0):
            self.clues.added = self.clues.added or say(node)
        elif pair.spread and min(pair.zero, pair.one) <= FILL:
            padded = 0.0 if pair.zero < pair.one else 1.0
            self.clues.masks.append((1.0 - padded, padded, say(node)))


def _map(pair: _Pair, law: Law, *, line: bool) -> _Pair:
    if math.isnan(pair.zero):
        return pair.lost()
    zero, one = float(result(law, pair.zero)), float(result(law, pair.one))
    return _Pair(zero, one, pair.line and line, pair.whole)
