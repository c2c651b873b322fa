"""reverse-2d: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same_dim
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int
from graphfix.providers.directml.placement import PlacementRules

from ..common.reshape_targets import build_reshape, with_axes

_INT64_MIN = np.iinfo(np.int64).min


@dataclass(frozen=True)
class SequenceSite(Match):
    """A ReverseSequence of more than two dims.

    Attributes:
        data: The tensor that is reversed.
        lengths: How much of each row is reversed.
        time: The time axis, 0 or 1; the other one is that of the rows.
        dims: The dims of ``data``.
        reverses_all: Whether each row is reversed from end to end.
    """

    data: ir.Value
    lengths: ir.Value
    time: int
    dims: tuple[Dim, ...]
    reverses_all: bool


@dataclass(frozen=True)
class Reverse2d(NodePass[SequenceSite]):
    """Reshapes a ReverseSequence to two dims, or replaces it with a reversing Slice.

    Why:
        The DirectML kernel tells DirectML that there is a length for each element beside the time
        axis, and ONNX gives one for each row: it reads past the end of them
        (DmlOperatorReverseSequence.cpp; what should refuse this compares nothing). Run on
        onnxruntime-directml 1.24.4: of two dims it is right; of three and four the numbers are
        wrong, without an error, or the device is lost with 887A0005. tf2onnx writes one for each
        backward direction of a Keras network.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        backwards (float[T, B, 4] x, int64[B] lengths) => (float[T, B, 4] y)
        {
            y = ReverseSequence <time_axis = 0, batch_axis = 1> (x, lengths)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        backwards (float[T, B, 4] x, int64[B] lengths) => (float[T, B, 4] y)
        <int64[1] one = {1}, int64[2] each = {1, 4}, int64[1] flat = {-1}>
        {
            column = Unsqueeze (lengths, one)
            table = Expand (column, each)
            many = Reshape (table, flat)
            rows = Flatten <axis = 1> (x)
            back = ReverseSequence <batch_axis = 1, time_axis = 0> (rows, many)
            dims = Shape (x)
            y = Reshape (back, dims)
        }

    Left alone:
        A length for each element:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        back (float[T, B] x, int64[B] lengths) => (float[T, B] y)
        {
            y = ReverseSequence <time_axis = 0, batch_axis = 1> (x, lengths)
        }

    Safety:
        Exact: the same elements. Rows that lie behind each other are transposed before and after.
        Where each length is known to be the size of the time axis, it is a Slice. Where a size that
        is not a number may be 0, behind the first two, the Reshape has allowzero=1; below opset 14
        there is none, and such a tensor of nothing fails. One that is known to be empty is
        skipped.
    """

    name = "reverse-2d"
    sentence = "of more than two dims: DirectML reads lengths past their end, and the rest is wrong"
    anchors = ("ReverseSequence",)

    def match(self, node: ir.Node, view: View) -> SequenceSite | None:
        """Return the site if rows have more than one element at each time."""
        data, lengths = node.inputs
        dims = view.shapes.dims(data)
        if data is None or lengths is None or dims is None or all(x == 1 for x in dims[2:]):
            return None
        kernel = PlacementRules(view.model.graph.opset_imports, view.shapes).kernel_of(node)
        if 0 in dims or kernel is None:
            return None  # there is nothing to be wrong, or it runs on the CPU
        time = attr_int(node, "time_axis", 0)
        return SequenceSite(node, data, lengths, time, dims, _holds_only(lengths, dims[time], view))

    def rewrite(self, match: SequenceSite, op: Builder) -> ir.Value:
        """Build a reversing Slice, or a ReverseSequence of two dims."""
        if match.reverses_all:
            ends = ([-1], [_INT64_MIN], [match.time], [-1])
            return op.Slice(match.data, *(np.array(x, np.int64) for x in ends))
        swapped = [1, 0, *range(2, len(match.dims))]
        data = op.Transpose(match.data, perm=swapped) if match.time else match.data
        element_lengths = _repeat_lengths(match.lengths, match.data, match.dims, op)
        flat_output = op.ReverseSequence(
            op.Flatten(data, axis=1), element_lengths, batch_axis=1, time_axis=0
        )
        # A 0 of the first two dims is copied; one of the others is not.
        is_static = all(isinstance(x, int) for x in match.dims[2:])
        sizes = op.Shape(data)
        output = (
            op.Reshape(flat_output, sizes) if is_static else build_reshape(flat_output, sizes, op)
        )
        return op.Transpose(output, perm=swapped) if match.time else output


def _repeat_lengths(
    lengths: ir.Value, data: ir.Value, dims: Sequence[Dim], op: Builder
) -> ir.Value:
    """Build a length for each element beside the time axis, as a vector."""
    static_dims = [x for x in dims[2:] if isinstance(x, int)]
    size: ir.Value | np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    if len(static_dims) == len(dims) - 2:
        column = with_axes("Unsqueeze", lengths, (1,), op)
        size = np.array([1, prod(static_dims)], np.int64)
    else:
        column = with_axes("Unsqueeze", lengths, tuple(range(1, len(dims) - 1)), op)
        ends = (np.array([x], np.int64) for x in (2, len(dims)))
        size = op.Concat(np.array([1], np.int64), op.Slice(op.Shape(data), *ends), axis=0)
    return op.Reshape(op.Expand(column, size), np.array([-1], np.int64))


def _holds_only(value: ir.Value | None, size: Dim, view: View) -> bool:
    """Return whether all numbers in a tensor are known to be ``size``."""
    while value is not None:
        numbers = view.shapes.known_elements(value)
        if numbers is not None:
            return all(same_dim(x, size) for x in numbers)
        node = value.producer()
        value = node.inputs[0] if ops.MOVES_FIRST_INPUT.has(node) else None
    return False
