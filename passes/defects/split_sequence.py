"""split-sequence: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import is_op, producer_of
from graphfix.ops.splits import (
    keeps_split_axis,
    sequence_axis,
    sequence_data,
    sequence_index,
    sequence_sizes,
)

from ..common.cuts import build_slice

# Of more parts, most are not read: each that is becomes a Slice.
_MOST_PARTS = 16
_SIZES_ARE_AN_INPUT = 13  # of a Split, since this opset


@dataclass(frozen=True)
class PartSite(Match):
    """A part of a sequence that is read by a constant index.

    Attributes:
        data: The tensor that is split.
        axis: Along which axis.
        sizes: How long each part is.
        index: Which part it is.
        squeezes: Whether the part, of size 1, loses the axis.
    """

    data: ir.Value
    axis: int
    sizes: tuple[int, ...]
    index: int
    squeezes: bool


@dataclass(frozen=True)
class SplitSequence(NodePass[PartSite]):
    """Replaces a SplitToSequence whose parts are read by constant indices with a Split.

    torch.onnx.export by dynamo writes it for ``chunk``, ``split`` and ``unbind``: with
    ``optimize=False`` each packed projection of queries, keys and values is one. A part that loses
    the axis is a Gather, and one of more than 16 a Slice.

    Why:
        DirectML has no kernel for a sequence: SplitToSequence and SequenceAt run on the CPU
        (graphfix/providers/directml/ops.csv), and each part is copied there and back. A module
        with calls of ``chunk`` and ``split``, exported by torch 2.13 with ``optimize=False``, has 3
        SplitToSequence and 6 SequenceAt.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        packed (float[B, T, 6] x) => (float[B, T, 2] y)
        <int64 two = {2}, int64 first = {0}, int64 second = {1}, int64 last = {-1}>
        {
            parts = SplitToSequence <axis = 2> (x, two)
            q = SequenceAt (parts, first)
            k = SequenceAt (parts, second)
            v = SequenceAt (parts, last)
            scores = Mul (q, k)
            y = Mul (scores, v)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        packed (float[B, T, 6] x) => (float[B, T, 2] y)
        <int64[3] sizes = {2, 2, 2}>
        {
            q, k, v = Split <axis = 2> (x, sizes)
            scores = Mul (q, k)
            y = Mul (scores, v)
        }

    Left alone:
        A part whose index is "known only in a run":
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        index (float[B, T, 6] x, int64 i) => (float[B, T, 2] y)
        <int64 two = {2}>
        {
            parts = SplitToSequence <axis = 2> (x, two)
            y = SequenceAt (parts, i)
        }

        Where "there are 3 parts, and it reads number 9":
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        beyond (float[B, T, 6] x) => (float[B, T, 2] y)
        <int64 two = {2}, int64 nine = {9}>
        {
            parts = SplitToSequence <axis = 2> (x, two)
            y = SequenceAt (parts, nine)
        }

        Where "how many parts there are follows the size D":
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        unknown (float[B, T, D] x) => (float[B, T, 2] y)
        <int64 two = {2}, int64 one = {1}>
        {
            parts = SplitToSequence <axis = 2> (x, two)
            y = SequenceAt (parts, one)
        }

        Where "SequenceLength reads the sequence 'parts' as a whole":
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        counted (float[B, T, 6] x) => (float[B, T, 2] y, int64 count)
        <int64 two = {2}, int64 one = {1}>
        {
            parts = SplitToSequence <axis = 2> (x, two)
            y = SequenceAt (parts, one)
            count = SequenceLength (parts)
        }

    Safety:
        Exact: the same elements. Refused, with the reason: an index that is known only in a run, an
        axis whose size is, where that says how many parts there are, and a sequence that is read as
        a whole or in another graph than it is made in.
    """

    sentence = "DirectML has no kernel for a sequence: its parts are copied to the CPU and back"
    anchors = ("SequenceAt",)

    def match(self, node: ir.Node, view: View) -> PartSite | Skip | None:
        """Return the site if a part of a SplitToSequence is read by a constant index."""
        split, data = producer_of(node.inputs[0]), sequence_data(node)
        if split is None or data is None:
            return None
        if any(x.is_ref() for x in split.attributes.values()):
            return Skip(node, "its attributes are parameters of the local function it is in")
        if reason := _other_use(split):
            return Skip(node, reason)
        dims = view.shapes.dims(data)
        if dims is None:
            return Skip(node, "the rank of what is split is not known")
        axis = sequence_axis(split, len(dims))
        if axis is None:
            return Skip(node, "it is split along an axis that it does not have")
        size = dims[axis]
        sizes = sequence_sizes(split, size if isinstance(size, int) else None, ints_of)
        if sizes is None:
            return Skip(node, f"how many parts there are follows the size {size}")
        index = sequence_index(node, ints_of)
        if index is None or not -len(sizes) <= index < len(sizes):
            return Skip(node, f"there are {len(sizes)} parts, and it reads number {index}")
        squeezes = not keeps_split_axis(split)
        return PartSite(node, data, axis, sizes, index % len(sizes), squeezes)

    def rewrite(self, match: PartSite, op: Builder) -> ir.Value:
        """Build the part: of one Split for all, or of its own."""
        if match.squeezes:
            return op.Gather(match.data, np.array(match.index, np.int64), axis=match.axis)
        if len(match.sizes) <= _MOST_PARTS:
            return _part_of_split(match, op)
        end = sum(match.sizes[: match.index + 1])
        return build_slice(match.data, {match.axis: (end - match.sizes[match.index], end, 1)}, op)


def _part_of_split(match: PartSite, op: Builder) -> ir.Value:
    """Return the part of a Split for all of the sequence, and let its other readers have theirs."""

    def build() -> ir.Value:
        present, axis = (True,) * len(match.sizes), match.axis
        if op.view.opset_of_node(op.site) < _SIZES_ARE_AN_INPUT:
            return op.make_outputs("Split", present, match.data, axis=axis, split=match.sizes)[0]
        sizes = np.array(match.sizes, np.int64)
        return op.make_outputs("Split", present, match.data, sizes, axis=axis)[0]

    sequence = match.node.inputs[0]
    assert sequence is not None  # or it would be no site
    first = op.build_once(("parts", sequence), build, sequence)
    split = first.producer()
    parts = (first,) if split is None else split.outputs
    for use in tuple(sequence.uses()):
        index = sequence_index(use.node, ints_of)
        if index is None or not -len(parts) <= index < len(parts):
            continue  # its own site says so
        # Each takes over the name of one reader; who reads it again is a site of its own.
        part = parts[index]
        if use.node is not match.node and part is not parts[match.index] and not part.uses():
            op.replace_and_remove(use.node.outputs[0], part)
    return parts[match.index]


def _other_use(split: ir.Node) -> str:
    """Return why the parts of a SplitToSequence cannot all be read from a Split; "" if they can."""
    parts = split.outputs[0]
    readers = [x.node for x in parts.uses()]
    whole = next((x for x in readers if not is_op(x, "SequenceAt")), None)
    if parts.is_graph_output() or whole is not None:
        reader = "the caller" if whole is None else whole.op_type
        return f"{reader} reads the sequence {parts.name!r} as a whole"
    if any(x.graph is not split.graph for x in readers):
        return f"the sequence {parts.name!r} is made in another graph than it is read in"
    is_known = all(sequence_index(x, ints_of) is not None for x in readers)
    return "" if is_known else "the index of a part is known only in a run"
