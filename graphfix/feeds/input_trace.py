"""An input followed through the graph, together with what its 0 and 1 become on the way.

Each value on the trail has a pair ``(f(0), f(1))``; where the trail ends, a clue is kept.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from graphfix.feeds.graph_uses import (
    ARITHMETIC,
    THROUGH,
    describe_node,
    feeds_softmax,
    find_above,
    is_positions,
)
from graphfix.feeds.laws import BINARY, UNARY, Law, apply_law
from graphfix.graph.constants import const_of, scalar_of
from graphfix.graph.nodes import attr_int, is_op

# A value at or below this takes its position out of a Softmax.
FILL = -1e3


# How many frames a convolution makes of a clip, and how many a mask counts.
_OF_LENGTHS = ARITHMETIC | {"Div", "Floor", "Ceil", "Max", "Min", "ReduceSum", "Where"}


def collect_clues(value: ir.Value, length_input: ir.Value | None = None) -> Clues:
    """Collect the clues along the trails of an input.

    Args:
        value: The input.
        length_input: The input that says where content ends, if the model's metadata names one.
    """
    return _TrailWalk(value, length_input).run()


class _Pair(NamedTuple):
    """What an input's 0 and 1 become at one tensor."""

    zero: float
    one: float
    line: bool  # by x * (one - zero) + zero so far
    whole: bool  # still an integer tensor

    @property
    def is_distinct(self) -> bool:
        return self.zero != self.one

    def forget_values(self) -> _Pair:
        """Return the pair of a trail that goes on with unknown values."""
        return self._replace(zero=math.nan, one=math.nan, line=False)


@dataclass
class Clues:
    """Clues met along the trails of one input, each as the node that gave it."""

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
    compared_numbers: list[int] = field(default_factory=list)
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


class _TrailWalk:
    """Follows one input through the graph and collects clues."""

    def __init__(self, start: ir.Value, length_input: ir.Value | None) -> None:
        self.clues = Clues()
        self._length_input = length_input
        self._visited: set[tuple[ir.Value, _Pair]] = set()
        self._reached: set[ir.Value] = {start}
        self._unknown: set[ir.Value] = set()
        self._queue: deque[tuple[ir.Value, _Pair]] = deque()
        is_integer = start.dtype is not None and start.dtype.is_integer()
        self._push_value(start, _Pair(0.0, 1.0, line=True, whole=is_integer))

    def run(self) -> Clues:
        for _ in range(_MOST_STEPS):
            if not self._queue:
                break
            value, pair = self._queue.popleft()
            for node, index in value.uses():
                self._visit_use(node, index, pair)
        return self.clues

    def _push_value(self, value: ir.Value, pair: _Pair) -> None:
        if (value, pair) not in self._visited:
            self._visited.add((value, pair))
            self._reached.add(value)
            if math.isnan(pair.one):
                self._unknown.add(value)
            self._queue.append((value, pair))

    def _push_outputs(self, node: ir.Node, pair: _Pair) -> None:
        for output in node.outputs:
            self._push_value(output, pair)

    def _visit_use(self, node: ir.Node, index: int, pair: _Pair) -> None:
        op, clues = node.op_type, self.clues
        if index in _SHAPE_INPUTS.get(op, ()):
            clues.shape = True
            if op == "Range" and index == 1:
                clues.limits = clues.limits or describe_node(node)
            if op == "Slice" and index == 2 and clues.fraction and not pair.line:
                clues.cut = clues.cut or describe_node(node)
        elif (op, index) in _ROW_LENGTHS:
            clues.limits = describe_node(node)
        elif op == "If":
            clues.branch = True
        elif op == "Where":
            self._visit_where(node, index, pair)
        elif op in ("Sin", "Cos"):
            clues.waves = clues.waves or describe_node(node)
        elif op in UNARY:
            self._push_outputs(node, _map_pair(pair, UNARY[op], line=op == "Neg"))
        elif op in BINARY:
            self._visit_binary(node, index, pair)
        elif op == "Clip":
            self._push_outputs(node, pair)
        elif index == 0 and op in _SUMS:
            clues.summed = clues.summed or describe_node(node)
            self._push_outputs(node, pair.forget_values())
        elif op == "MatMul":  # the angles of rotary positions
            if any(is_op(user, "Sin", "Cos", "Transpose") for user, _ in node.outputs[0].uses()):
                self._push_outputs(node, pair.forget_values())
        elif (op in THROUGH and index == 0) or op == "Concat":
            self._visit_layout(node, pair)
        elif op == "Gather" and index == 0:
            self._push_outputs(node, pair)

    def _visit_layout(self, node: ir.Node, pair: _Pair) -> None:
        if node.op_type == "Cast":
            to = ir.DataType(attr_int(node, "to", ir.DataType.FLOAT))
            if to == ir.DataType.BOOL:
                pair = _map_pair(pair, lambda x: float(bool(x)), line=False)
            pair = pair._replace(whole=to.is_integer())
        self._push_outputs(node, pair)

    def _visit_where(self, node: ir.Node, index: int, pair: _Pair) -> None:
        if index:
            self._push_outputs(node, pair)
            return
        yes, no = scalar_of(node.inputs[1]), scalar_of(node.inputs[2])
        if yes is not None and no is not None:
            self._push_outputs(node, _map_pair(pair, lambda x: float(yes if x else no), line=False))
        elif yes is None and no is None:
            self._note_mask(node, pair, masking=None)
        else:
            self._note_mask(node, pair, masking=yes is not None)

    def _note_mask(self, node: ir.Node, pair: _Pair, masking: bool | None) -> None:
        """Note a condition over data; ``masking`` is the value that puts the constant there."""
        if not pair.is_distinct or math.isnan(pair.zero):
            return
        hit = [x for x, y in ((0.0, pair.zero), (1.0, pair.one)) if bool(y) is masking]
        padded = hit[0] if len(hit) == 1 else 0.0
        self.clues.masks.append((1.0 - padded, padded, describe_node(node)))

    def _visit_binary(self, node: ir.Node, index: int, pair: _Pair) -> None:
        op = node.op_type
        operands = [x for i, x in enumerate(node.inputs) if i != index and x is not None]
        if not operands:
            self._push_outputs(node, pair)
            return
        constant = scalar_of(operands[0])
        table = const_of(operands[0]) if op in _COMPARE and pair[:2] == (0, 1) else None
        if table is not None and table.size > 1:
            # Of the half that lets the other pass: a clip has a pitch above what is the least.
            least, most = float(table.min()), float(table.max())
            middle, lower_half = (least + most) / 2, (index == 0) == op.startswith("Less")
            self.clues.span = (least, middle) if lower_half else (middle, most)
        if constant is not None:
            number = float(constant)
            if op == "Equal":
                self.clues.compared_numbers.append(int(number) if math.isfinite(number) else 0)
            if op == "Equal" and number not in (pair.zero, pair.one):
                return  # ids compared with a padding id: not a 0/1 mask
            law, first = BINARY[op], index == 0
            new = _map_pair(
                pair, lambda x: law(x, number) if first else law(number, x), line=op in _LINEAR
            )
            self._push_outputs(node, new)
        elif operands[0] in self._reached and not (pair.whole and self._are_inputs_sliced(node)):
            # A mask combined with itself; or with its own sum, which is a position.
            self._push_outputs(node, pair.forget_values() if operands[0] in self._unknown else pair)
        elif op in ("And", "Or", "Xor", "Min", "Max"):
            self._push_outputs(node, pair)
        else:
            self._visit_other_tensor(node, index, operands[0], pair)

    def _visit_other_tensor(
        self, node: ir.Node, index: int, operand: ir.Value, pair: _Pair
    ) -> None:
        """Follow the trail into a node that combines it with another tensor."""
        op, clues = node.op_type, self.clues
        if op in _COMPARE or op in ("Equal", "Sub"):
            if is_positions(operand):
                clues.compared = clues.compared or describe_node(node)
            if op != "Sub":
                return
        if pair.whole:  # whole numbers stay arithmetic on this input; floats become data
            if op == "Sub" and self._are_inputs_sliced(node):
                clues.neighbours = True
            self._push_outputs(node, pair.forget_values())
        elif op in ("Add", "Sub"):
            sign = -1.0 if op == "Sub" and index == 1 else 1.0
            self._visit_addend(node, _map_pair(pair, lambda x: sign * x, line=True))
        elif op == "Mul":
            self._visit_product(node, operand, pair)

    def _visit_product(self, node: ir.Node, operand: ir.Value, pair: _Pair) -> None:
        clues = self.clues
        if find_above(operand, self._is_size, arithmetic=_OF_LENGTHS):
            clues.fraction = clues.fraction or describe_node(node)
            self._push_outputs(node, pair.forget_values())
        if any(is_op(user, "Sin", "Cos") for user, _ in node.outputs[0].uses()):
            clues.waves = clues.waves or describe_node(node)
        if not (pair.is_distinct and 0.0 in pair[:2] and all(map(math.isfinite, pair[:2]))):
            return
        padded = 0.0 if pair.zero == 0.0 else 1.0
        clues.gates = clues.gates or describe_node(node)
        if not pair.line or padded == 1.0:  # it has been through a test: surely a 0/1 input
            clues.masks.append((1.0 - padded, padded, describe_node(node)))

    def _is_size(self, node: ir.Node) -> bool:
        """Return whether a node yields a length, with or without the padding."""
        return is_op(node, "Shape", "Size") or (
            self._length_input is not None and self._length_input in node.inputs
        )

    def _are_inputs_sliced(self, node: ir.Node) -> bool:
        operands = [x for x in node.inputs if x is not None]
        return all(x in self._reached and is_op(x.producer(), "Slice") for x in operands)

    def _visit_addend(self, node: ir.Node, pair: _Pair) -> None:
        if not feeds_softmax(node):
            return
        if pair.line and (pair.zero, pair.one) == (0.0, 1.0):
            self.clues.added = self.clues.added or describe_node(node)
        elif pair.is_distinct and min(pair.zero, pair.one) <= FILL:
            padded = 0.0 if pair.zero < pair.one else 1.0
            self.clues.masks.append((1.0 - padded, padded, describe_node(node)))


def _map_pair(pair: _Pair, law: Law, *, line: bool) -> _Pair:
    if math.isnan(pair.zero):
        return pair.forget_values()
    at_zero, at_one = float(apply_law(law, pair.zero)), float(apply_law(law, pair.one))
    return _Pair(at_zero, at_one, pair.line and line, pair.whole)
