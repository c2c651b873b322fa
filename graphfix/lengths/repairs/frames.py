"""Repairs that pick frames: the last valid ones, copies of frames, appended frames."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import sympy

from graphfix.editing.builder import Builder
from graphfix.lengths.length_nodes import LengthNodes
from graphfix.lengths.repairs.repair import FrameRepair, required_input, required_producer


@dataclass(frozen=True)
class LastFrames(FrameRepair):
    """Turns a read from the end of the axis into one from the end of what is valid.

    Attributes:
        offsets: The frames that are read, counted from the end: -1 is the last.
        drops_axis: Whether the axis is dropped, as by a Gather at a scalar.
    """

    offsets: tuple[int, ...]
    drops_axis: bool
    remedy = "it reads at the end of what is valid"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> ir.Value:
        """Build ``x[length + offset]``."""
        rows = lengths.row_lengths(self.size)
        index = op.Add(lengths.unsqueeze(rows, [1]), np.array([self.offsets], np.int64))
        index = lengths.elementwise_max(index, np.zeros((1, 1), np.int64))
        frames = self.pick_frames(op, lengths, required_input(self.node, 0), index)
        return lengths.squeeze(frames, [self.axis]) if self.drops_axis else frames


@dataclass(frozen=True)
class PadFrames(FrameRepair):
    """Makes padding in mode edge or reflect copy valid frames.

    Attributes:
        result: The size of the padded axis.
        begin: How many frames are put before the first.
        reflect: Whether they are mirrored, not copies of the outermost.
    """

    result: sympy.Expr
    begin: int
    reflect: bool
    remedy = "its copies are taken from what is valid"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> ir.Value:
        """Build ``x[i]`` with ``i`` clamped to, or mirrored at, the last valid index."""
        at = op.Sub(lengths.positions(self.result), np.array(self.begin, np.int64))
        at = lengths.unsqueeze(at, [0])
        last = _last_frames(self, op, lengths)
        if self.reflect:
            at = op.Sub(last, op.Abs(op.Sub(last, op.Abs(at))))
        # Beyond the valid length any index will do that exists.
        at = _clamp_frames(at, last, lengths)
        return self.pick_frames(op, lengths, required_input(self.node, 0), at)


@dataclass(frozen=True)
class EdgeTail(FrameRepair):
    """Puts copies of the last valid frame behind it, in an input.

    Attributes:
        index: The input.
    """

    index: int
    remedy = "copies of its last valid frame are put behind it"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> None:
        """Build ``x[min(i, length - 1)]``."""
        value = required_input(self.node, self.index)

        def build() -> ir.Value:
            at = lengths.unsqueeze(lengths.positions(self.size), [0])
            last = _last_frames(self, op, lengths)
            return self.pick_frames(op, lengths, value, _clamp_frames(at, last, lengths))

        op.set_input(self.index, op.build_once(("edge", value, self.axis), build, value))


@dataclass(frozen=True)
class FirstFrame(FrameRepair):
    """Makes a result of one valid frame the first frame of the input.

    Attributes:
        size: The size of the result, padding included.
        state: What is known of the result.
    """

    remedy = "a result of one frame is the first frame of the clip"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> ir.Value:
        """Build ``Where(length == 1, x[:1], resize(x))``."""
        x, attributes = required_input(self.node, 0), self.node.attributes
        resized = op.make(
            self.node.op_type,
            *self.node.inputs,
            **{name: attribute.value for name, attribute in attributes.items()},
        )
        rows = lengths.align_row_values(lengths.row_lengths(self.size), self.state)
        first = op.Gather(x, np.zeros(1, np.int64), axis=self.axis)
        return op.Where(op.Equal(rows, np.ones((1,) * self.state.rank, np.int64)), first, resized)


@dataclass(frozen=True)
class AppendFrames(FrameRepair):
    """Puts appended frames right behind the valid ones.

    Attributes:
        count: How many frames are appended.
    """

    count: int
    remedy = "what it appends goes right behind what is valid"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> ir.Value:
        """Build ``concat[i]`` where ``i`` jumps over the padding."""
        concatenated = op.Concat(*self.node.inputs, axis=self.axis)
        at = lengths.unsqueeze(lengths.positions(self.size + self.count), [0])
        valid = lengths.unsqueeze(lengths.row_lengths(self.size), [1])
        end = lengths.padded_size(self.size)
        behind = op.Cast(op.Not(op.Less(at, valid)), to=ir.DataType.INT64)
        within = op.Less(at, op.Add(valid, np.array([[self.count]], np.int64)))
        jump = op.Mul(behind, op.Cast(within, to=ir.DataType.INT64))
        at = op.Add(at, op.Mul(jump, op.Sub(end, valid)))
        return self.pick_frames(op, lengths, concatenated, at)


@dataclass(frozen=True)
class AppendCopies(FrameRepair):
    """Puts copies of one frame, as many as the length asks for, right behind what is valid.

    Attributes:
        before: The size of the axis before the copies, padding included.
        depth: How many nodes above the last input the frame is.
        has_full_shape: Whether the frame is as large as the others on all other axes.
    """

    before: sympy.Expr
    depth: int
    has_full_shape: bool
    remedy = "the copies that fill it up go right behind what is valid"

    def rewrite(self, op: Builder, lengths: LengthNodes) -> ir.Value:
        """Build ``concat(x, frame)[i]``, where ``i`` past the valid length names the frame."""
        front = [required_input(self.node, i) for i in range(len(self.node.inputs) - 1)]
        # The container may have no copy where the clip alone has some; the frame itself it has.
        frame = required_input(self.node, -1)
        for _ in range(self.depth):
            frame = required_input(required_producer(frame), 0)
        if not self.has_full_shape:
            is_axis = np.array([i == self.axis for i in range(self.state.rank)])
            unit_shape = np.ones(self.state.rank, np.int64)
            frame = op.Expand(frame, op.Where(is_axis, unit_shape, op.Shape(front[0])))
        at = lengths.unsqueeze(lengths.positions(self.size), [0])
        valid = lengths.unsqueeze(lengths.row_lengths(self.before), [1])
        at = op.Where(op.Less(at, valid), at, lengths.padded_size(self.before))
        return self.pick_frames(op, lengths, op.Concat(*front, frame, axis=self.axis), at)


def _last_frames(repair: FrameRepair, op: Builder, lengths: LengthNodes) -> ir.Value:
    """Build the index of the last valid frame of each row as ``[B, 1]``, -1 where there is none."""
    row_lengths = lengths.unsqueeze(lengths.row_lengths(repair.size), [1])
    return op.Sub(row_lengths, np.array([[1]], np.int64))


def _clamp_frames(at: ir.Value, last: ir.Value, lengths: LengthNodes) -> ir.Value:
    """Build indices of at most the last valid frame, and of 0 at least."""
    return lengths.elementwise_max(lengths.elementwise_min(at, last), np.zeros((1, 1), np.int64))
