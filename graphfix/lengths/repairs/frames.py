"""Frames picked out again: the last ones, copies of them, what follows them."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import sympy

from graphfix.editing.builder import Builder
from graphfix.lengths.length_nodes import Lengths
from graphfix.lengths.repairs.repair import FrameRepair, input_of, made_by


@dataclass(frozen=True)
class LastFrames(FrameRepair):
    """A read from the end of the axis becomes a read from the end of what is valid.

    Attributes:
        offsets: Where is read, counted from the end: -1 is the last.
        drop: Whether the axis goes, as with a Gather at a scalar.
    """

    offsets: tuple[int, ...]
    drop: bool
    what = "it reads at the end of what is valid"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``x[length + offset]``."""
        rows = lengths.rows(self.size)
        index = op.Add(lengths.unsqueeze(rows, [1]), np.array([self.offsets], np.int64))
        index = lengths.larger(index, np.zeros((1, 1), np.int64))
        taken = self.taken(op, lengths, input_of(self.node, 0), index)
        return lengths.squeeze(taken, [self.axis]) if self.drop else taken


@dataclass(frozen=True)
class PadFrames(FrameRepair):
    """Padding with copies (edge, reflect) copies what is valid.

    Attributes:
        result: Its size after.
        begin: How many are put before the first.
        reflect: Whether they are mirrored, not copies of the outermost.
    """

    result: sympy.Expr
    begin: int
    reflect: bool
    what = "its copies are taken from what is valid"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``x[i]`` with ``i`` clamped to, or mirrored at, the last valid index."""
        at = op.Sub(lengths.positions(self.result), np.array(self.begin, np.int64))
        at = lengths.unsqueeze(at, [0])
        # The last valid frame of each row, -1 where there is none.
        last = op.Sub(lengths.unsqueeze(lengths.rows(self.size), [1]), np.array([[1]], np.int64))
        if self.reflect:
            at = op.Sub(last, op.Abs(op.Sub(last, op.Abs(at))))
        # Beyond the valid length any index will do that exists.
        at = lengths.larger(lengths.smaller(at, last), np.zeros((1, 1), np.int64))
        return self.taken(op, lengths, input_of(self.node, 0), at)


@dataclass(frozen=True)
class Append(FrameRepair):
    """What is appended to an axis is put right behind what is valid.

    Attributes:
        count: How many frames are appended.
    """

    count: int
    what = "what it appends goes right behind what is valid"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``concat[i]`` where ``i`` jumps over the padding."""
        whole = op.Concat(*self.node.inputs, axis=self.axis)
        at = lengths.unsqueeze(lengths.positions(self.size + self.count), [0])
        valid = lengths.unsqueeze(lengths.rows(self.size), [1])
        end = lengths.size(self.size)
        behind = op.Cast(op.Not(op.Less(at, valid)), to=ir.DataType.INT64)
        within = op.Less(at, op.Add(valid, np.array([[self.count]], np.int64)))
        jump = op.Mul(behind, op.Cast(within, to=ir.DataType.INT64))
        at = op.Add(at, op.Mul(jump, op.Sub(end, valid)))
        return self.taken(op, lengths, whole, at)


@dataclass(frozen=True)
class FillUp(FrameRepair):
    """Copies of one frame, as many as the length asks for, go right behind what is valid.

    Attributes:
        before: The size of what they are put behind, the padding counted in.
        depth: How many nodes above the last input the frame is.
        whole: Whether the frame is as large as the others on all other axes.
    """

    before: sympy.Expr
    depth: int
    whole: bool
    what = "the copies that fill it up go right behind what is valid"

    def rewrite(self, op: Builder, lengths: Lengths) -> ir.Value:
        """``concat(x, frame)[i]``, and the frame wherever ``i`` is past the valid length."""
        front = [input_of(self.node, i) for i in range(len(self.node.inputs) - 1)]
        # There may be no copy in the container where the clip alone has some, but there is a frame.
        frame = input_of(self.node, -1)
        for _ in range(self.depth):
            frame = input_of(made_by(frame), 0)
        if not self.whole:
            here = np.array([i == self.axis for i in range(self.state.rank)])
            one = np.ones(self.state.rank, np.int64)
            frame = op.Expand(frame, op.Where(here, one, op.Shape(front[-1])))
        at = lengths.unsqueeze(lengths.positions(self.size), [0])
        valid = lengths.unsqueeze(lengths.rows(self.before), [1])
        at = op.Where(op.Less(at, valid), at, lengths.size(self.before))
        return self.taken(op, lengths, op.Concat(*front, frame, axis=self.axis), at)
