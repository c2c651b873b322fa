"""Search for clues to the role of an input: follow it, and its 0 and 1, through the graph.

Each value on the trail has a pair ``(f(0), f(1))``; where the trail ends, a clue is noted.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.hidden_scores import hides_score
from graphfix.feeds.graph_uses import (
    KEEPS_RANGE,
    SHIFTS_AND_SCALES,
    cast_type,
    feeds_softmax,
    find_above,
    is_positions,
    node_title,
)
from graphfix.feeds.laws import BINARY, UNARY, Law, apply_law
from graphfix.graph.constants import const_of, scalar_of
from graphfix.graph.nodes import is_op
from graphfix.ops.recurrent import ROW_LENGTHS

# They compute the number of frames behind a convolution, or the sum of a mask. Not Pow: a power of
# a size is a scale.
_LENGTH_ARITHMETIC = (
    (ops.ARITHMETIC - ops.named("Pow")) | ops.MAKES_WHOLE_NUMBERS | ops.named("Neg ReduceSum Where")
)
_SUMS = ops.named("ReduceSum CumSum")
# They combine two masks into one.
_COMBINES_MASKS = (ops.LOGIC & ops.BROADCASTS) | ops.named("Min Max")
_SINE = ops.named("Sin Cos")
_READS_ANGLES = _SINE | ops.named("Transpose")
_TAKES_AXES = ops.REDUCES | ops.named("Squeeze Unsqueeze")
_SAYS_ROW_LENGTHS = ops.RECURRENT | ops.named("ReverseSequence")


def collect_clues(value: ir.Value, length_input: ir.Value | None = None) -> Clues:
    """Collect the clues along the trails of an input.

    Args:
        value: The input.
        length_input: The input that says where content ends, if the model's metadata names one.
    """
    return _TrailWalk(value, length_input).run()


class _Pair(NamedTuple):
    """The results at one tensor for an input of 0 and of 1."""

    at_zero: float
    at_one: float
    is_linear: bool  # x * (at_one - at_zero) + at_zero so far
    is_integer: bool  # still an integer tensor

    @property
    def is_distinct(self) -> bool:
        return self.at_zero != self.at_one

    def forget_values(self) -> _Pair:
        """Return the pair of a trail that goes on with unknown values."""
        return self._replace(at_zero=math.nan, at_one=math.nan, is_linear=False)


@dataclass
class Clues:
    """Clues met along the trails of one input; text is the title of the node, or empty.

    Attributes:
        masks: The value of content, that of padding, and the node, for each use as a mask.
        added: It is added unchanged to scores of a Softmax.
        gates: It is multiplied with data.
        compared: It is compared with positions.
        limits: It is the end of a Range, or the row lengths of a recurrence.
        summed: Its elements are summed.
        fraction: It is multiplied with a size.
        cut: Multiplied with a size, it is the end of a Slice.
        waves: It goes into a sine or cosine.
        neighbours: Each element is subtracted from the next.
        branch: It decides an If.
        shape: It decides a shape.
        compared_numbers: The numbers that it is compared with.
        span: The half of a table, compared with it, that lets the other half pass.
    """

    masks: list[tuple[float, float, str]] = field(default_factory=list)
    added: str = ""
    gates: str = ""
    compared: str = ""
    limits: str = ""
    summed: str = ""
    fraction: str = ""
    cut: str = ""
    waves: str = ""
    neighbours: bool = False
    branch: bool = False
    shape: bool = False
    compared_numbers: list[int] = field(default_factory=list)
    span: tuple[float, float] | None = None


# A few steps show the role; this bounds the walk over a huge graph.
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
        self._push_value(start, _Pair(0.0, 1.0, is_linear=True, is_integer=is_integer))

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
            if math.isnan(pair.at_one):
                self._unknown.add(value)
            self._queue.append((value, pair))

    def _push_outputs(self, node: ir.Node, pair: _Pair) -> None:
        for output in node.outputs:
            self._push_value(output, pair)

    def _visit_use(self, node: ir.Node, index: int, pair: _Pair) -> None:
        """Note what an operator takes the input for, or follow the trail through it."""
        clues = self.clues
        if node not in _TAKES_AXES and index in ops.size_inputs(node):
            self._note_size(node, index, pair)
        elif _takes_row_lengths(node, index):
            clues.limits = node_title(node)
        elif is_op(node, "If"):
            clues.branch = True
        elif node in _SINE:
            clues.waves = clues.waves or node_title(node)
        elif is_op(node, "Where"):
            self._visit_where(node, index, pair)
        else:
            self._visit_arithmetic(node, index, pair)

    def _visit_arithmetic(self, node: ir.Node, index: int, pair: _Pair) -> None:
        """Follow the trail through an operator that computes with the input, or moves it."""
        op = node.op_type
        if op in UNARY:
            self._push_outputs(
                node, _map_pair(pair, UNARY[op], keeps_line=node in SHIFTS_AND_SCALES)
            )
        elif op in BINARY:
            self._visit_binary(node, index, pair)
        elif node in _SUMS and index == 0:
            self.clues.summed = self.clues.summed or node_title(node)
            self._push_outputs(node, pair.forget_values())
        elif is_op(node, "MatMul"):  # the angles of rotary positions
            if any(user in _READS_ANGLES for user, _ in node.outputs[0].uses()):
                self._push_outputs(node, pair.forget_values())
        elif node in ops.CASTS and index == 0:
            self._push_outputs(node, _cast_pair(pair, cast_type(node)))
        elif is_op(node, "Clip", "Concat") or (node in KEEPS_RANGE and index == 0):
            self._push_outputs(node, pair)

    def _note_size(self, node: ir.Node, index: int, pair: _Pair) -> None:
        """Note an input that decides a shape; the end of a Range or a Slice says more."""
        clues = self.clues
        clues.shape = True
        if is_op(node, "Range") and index == 1:
            clues.limits = clues.limits or node_title(node)
        if is_op(node, "Slice") and index == 2 and clues.fraction and not pair.is_linear:
            clues.cut = clues.cut or node_title(node)

    def _visit_where(self, node: ir.Node, index: int, pair: _Pair) -> None:
        if index:
            self._push_outputs(node, pair)
            return
        yes, no = scalar_of(node.inputs[1]), scalar_of(node.inputs[2])
        if yes is not None and no is not None:
            chosen = _map_pair(pair, lambda x: float(yes if x else no), keeps_line=False)
            self._push_outputs(node, chosen)
        elif yes is None and no is None:
            self._note_mask(node, pair, masking=None)
        else:
            self._note_mask(node, pair, masking=yes is not None)

    def _note_mask(self, node: ir.Node, pair: _Pair, masking: bool | None) -> None:
        """Note a condition over data; ``masking`` is the value that puts the constant there."""
        if not pair.is_distinct or math.isnan(pair.at_zero):
            return
        hit = [x for x, y in ((0.0, pair.at_zero), (1.0, pair.at_one)) if bool(y) is masking]
        padded = hit[0] if len(hit) == 1 else 0.0
        self.clues.masks.append((1.0 - padded, padded, node_title(node)))

    def _visit_binary(self, node: ir.Node, index: int, pair: _Pair) -> None:
        operand = next((x for i, x in enumerate(node.inputs) if i != index and x is not None), None)
        if operand is None:
            self._push_outputs(node, pair)
            return
        self._note_span(node, index, operand, pair)
        constant = scalar_of(operand)
        if constant is not None:
            self._visit_constant(node, index, float(constant), pair)
        elif operand in self._reached and not (pair.is_integer and self._are_inputs_sliced(node)):
            # A mask combined with itself; or with its own sum, which is a position.
            self._push_outputs(node, pair.forget_values() if operand in self._unknown else pair)
        elif node in _COMBINES_MASKS:
            self._push_outputs(node, pair)
        else:
            self._visit_other_tensor(node, index, operand, pair)

    def _note_span(self, node: ir.Node, index: int, operand: ir.Value, pair: _Pair) -> None:
        """Note the half of a table, compared with the input as it is, that lets the rest pass.

        A clip has a pitch above what is the least.
        """
        if node not in ops.ORDER_COMPARISONS or pair[:2] != (0, 1):
            return
        table = const_of(operand)
        if table is not None and table.size > 1:
            least, most = float(table.min()), float(table.max())
            middle = (least + most) / 2
            is_lower_half = (index == 0) == node.op_type.startswith("Less")
            self.clues.span = (least, middle) if is_lower_half else (middle, most)

    def _visit_constant(self, node: ir.Node, index: int, number: float, pair: _Pair) -> None:
        """Follow the trail into a node that combines it with a number."""
        if is_op(node, "Equal"):
            self.clues.compared_numbers.append(int(number) if math.isfinite(number) else 0)
            if number not in (pair.at_zero, pair.at_one):
                return  # ids compared with a padding id: not a 0/1 mask
        law, is_first = BINARY[node.op_type], index == 0
        new = _map_pair(
            pair,
            lambda x: law(x, number) if is_first else law(number, x),
            keeps_line=node in SHIFTS_AND_SCALES,
        )
        self._push_outputs(node, new)

    def _visit_other_tensor(
        self, node: ir.Node, index: int, operand: ir.Value, pair: _Pair
    ) -> None:
        """Follow the trail into a node that combines it with another tensor."""
        clues, is_difference = self.clues, is_op(node, "Sub")
        if node in ops.COMPARISONS or is_difference:
            if is_positions(operand):
                clues.compared = clues.compared or node_title(node)
            if not is_difference:
                return
        if pair.is_integer:  # whole numbers stay arithmetic on this input; floats become data
            if is_difference and self._are_inputs_sliced(node):
                clues.neighbours = True
            self._push_outputs(node, pair.forget_values())
        elif is_op(node, "Add", "Sub"):
            sign = -1.0 if is_difference and index == 1 else 1.0
            self._visit_addend(node, _map_pair(pair, lambda x: sign * x, keeps_line=True))
        elif is_op(node, "Mul"):
            self._visit_product(node, operand, pair)

    def _visit_product(self, node: ir.Node, operand: ir.Value, pair: _Pair) -> None:
        clues = self.clues
        if find_above(operand, self._is_size, arithmetic=_LENGTH_ARITHMETIC):
            clues.fraction = clues.fraction or node_title(node)
            self._push_outputs(node, pair.forget_values())
        if any(user in _SINE for user, _ in node.outputs[0].uses()):
            clues.waves = clues.waves or node_title(node)
        if not (pair.is_distinct and 0.0 in pair[:2] and all(map(math.isfinite, pair[:2]))):
            return
        padded = 0.0 if pair.at_zero == 0.0 else 1.0
        clues.gates = clues.gates or node_title(node)
        if not pair.is_linear or padded == 1.0:  # it has been through a test: surely a 0/1 input
            clues.masks.append((1.0 - padded, padded, node_title(node)))

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
        if pair.is_linear and (pair.at_zero, pair.at_one) == (0.0, 1.0):
            self.clues.added = self.clues.added or node_title(node)
        elif pair.is_distinct and hides_score(min(pair.at_zero, pair.at_one)):
            padded = 0.0 if pair.at_zero < pair.at_one else 1.0
            self.clues.masks.append((1.0 - padded, padded, node_title(node)))


def _takes_row_lengths(node: ir.Node, index: int) -> bool:
    """Return whether an input says how much of each row is content."""
    return index == (ROW_LENGTHS if node in ops.RECURRENT else 1) and node in _SAYS_ROW_LENGTHS


def _cast_pair(pair: _Pair, to: ir.DataType | None) -> _Pair:
    if to == ir.DataType.BOOL:
        pair = _map_pair(pair, lambda x: float(bool(x)), keeps_line=False)
    return pair if to is None else pair._replace(is_integer=to.is_integer())


def _map_pair(pair: _Pair, law: Law, *, keeps_line: bool) -> _Pair:
    if math.isnan(pair.at_zero):
        return pair.forget_values()
    at_zero, at_one = float(apply_law(law, pair.at_zero)), float(apply_law(law, pair.at_one))
    return _Pair(at_zero, at_one, pair.is_linear and keeps_line, pair.is_integer)
