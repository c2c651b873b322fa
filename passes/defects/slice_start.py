"""slice-start: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import const_of, ints_of

_LOWEST = -(2**31)
# Since this opset DirectML has no Shape, and no longer leaves what is computed from one to the CPU.
_NO_SHAPE = 23


@dataclass(frozen=True)
class StartSite(Match):
    """A Slice, and its starts with 0 instead of the lowest integer."""

    starts: tuple[int, ...]


@dataclass(frozen=True)
class SliceStart(NodePass[StartSite]):
    """Replaces the lowest integer as the start of a Slice with 0.

    dynamo writes ``x[:-2]`` as a Slice from -9223372036854775808 to -2.

    Why:
        DirectML makes 32 bits of the start. Run on onnxruntime-directml 1.24.4, float and int64,
        with and without axes: a start of -2147483648 or less together with an end below 0 ends in
        80070057 when the session is made, if the shape is known, and **in an empty tensor, in
        silence**, if it is not. From -2147483647 on, and with an end of 0 or more, all is right;
        so are negative steps. A BERT of dynamo has such Slices of shapes. Up to opset 22 they are
        left to the CPU; at opset 23, for which DirectML has no Shape, they are not, and the session
        is not made.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        cut (float[B, T] x) => (float[B, U] y)
        <int64[1] first = {-9223372036854775808}, int64[1] end = {-2}, int64[1] axis = {1}>
        {
            y = Slice (x, first, end, axis)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        cut (float[B, T] x) => (float[B, U] y)
        <int64[1] end = {-2}, int64[1] axis = {1}, int64[1] zero = {0}>
        {
            y = Slice (x, zero, end, axis)
        }

    Left alone:
        A start that 32 bits hold:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        cut (float[B, T] x) => (float[B, U] y)
        <int64[1] s = {-2147483647}, int64[1] e = {-2}, int64[1] a = {0}>
        {
            y = Slice (x, s, e, a)
        }

    Safety:
        Exact: a start that lies before the first element is the first element, and no axis that
        DirectML can hold has 2147483648 elements. Only where starts, ends and steps are constants
        and the step is above 0.
    """

    sentence = "Slice starts below 32 bits and ends below 0: on DirectML it is empty, or fails"
    anchors = ("Slice",)

    def match(self, node: ir.Node, view: View) -> StartSite | None:
        """Return the site if a Slice on DirectML starts at the lowest integer."""
        data, *slice_inputs = (*node.inputs, None, None, None)[:6]
        if data is None or len(node.inputs) < 3 or const_of(data) is not None:
            return None
        if (
            view.opset_of_node(node) < _NO_SHAPE
            and view.shapes.known_elements(node.outputs[0]) is not None
        ):
            return None
        starts, ends = ints_of(slice_inputs[0]), ints_of(slice_inputs[1])
        if starts is None or ends is None:
            return None
        steps = (1,) * len(starts) if slice_inputs[3] is None else ints_of(slice_inputs[3])
        if steps is None or not len(starts) == len(ends) == len(steps):
            return None
        cuts = zip(starts, ends, steps, strict=True)
        new_starts = tuple(0 if a <= _LOWEST and b < 0 < step else a for a, b, step in cuts)
        return StartSite(node, new_starts) if new_starts != starts else None

    def rewrite(self, match: StartSite, op: Builder) -> ir.Value:
        """Build the same Slice, from 0."""
        data, first, *other_inputs = match.node.inputs
        dtype = np.int64 if (old := const_of(first)) is None else old.dtype
        return op.Slice(data, np.array(match.starts, dtype), *other_inputs)
