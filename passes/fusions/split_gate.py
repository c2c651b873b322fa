"""split-gate: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int
from graphfix.providers.directml.operator_facts import ACTIVATIONS_TAKEN

from ..common.cuts import HalfCut, build_slice, half_cut_of
from ..common.fusible import FLOATS, is_own_constant


@dataclass(frozen=True)
class HalvesSite(Match):
    """The node that cuts the first half of the output of a Conv.

    Attributes:
        conv: The Conv.
        second: The other half.
    """

    conv: ir.Node
    second: ir.Value


@dataclass(frozen=True)
class SplitGate(NodePass[HalvesSite]):
    """Makes the halves of a gate by a Conv each, so that the activation is part of one.

    A gated linear unit, as Conformers have it after their first pointwise Conv, and the gate of a
    WaveNet, as in VITS, cut what a Conv makes in two halves, and multiply one with the Sigmoid of
    the other. The weight and the bias are cut instead, by operators in the graph: ONNX Runtime does
    that once, when it loads the model (constant folding).

    Why:
        DirectML makes one kernel of a Conv and the Sigmoid or Tanh after it, but not over a Split.
        So a gate takes three kernels for four, one with a Tanh three for five. By `graphfix plan`,
        of a Parakeet of three layers 198 kernels are left on the device where 201 were, of a VITS
        320 where 348 were. Run on onnxruntime-directml 1.24.4, they agree with the CPU there
        (1.2e-6 and 8.7e-6).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        gate (float[B, 4, T] x) => (float[B, 2, T] y)
        <float[4, 4, 1] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}>
        {
            both = Conv (x, w)
            first, second = Split <axis = 1, num_outputs = 2> (both)
            gate = Sigmoid (second)
            y = Mul (first, gate)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        gate (float[B, 4, T] x) => (float[B, 2, T] y)
        <float[4, 4, 1] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}, int64[1] none = {0},
         int64[1] two = {2}, int64[1] four = {4}>
        {
            upper = Slice (w, none, two, none)
            first = Conv (x, upper)
            lower = Slice (w, two, four, none)
            second = Conv (x, lower)
            gate = Sigmoid (second)
            y = Mul (first, gate)
        }

    Left alone:
        A Conv of which something else reads the whole:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        gate (float[B, 3, T] x) => (float[B, 2, T] y, float[B, 4, T] z)
        <float[4, 3, 1] w = {1, 2, 3, 4, 5, 6, -7, 8, 9, 1, -2, 3}>
        {
            c = Conv (x, w)
            a, b = Split <axis = 1> (c)
            g = Sigmoid (b)
            y = Mul (a, g)
            z = Relu (c)
        }

    Safety:
        Exact: each number is the same sum. The input is read twice. Left as they are: a Conv in
        groups, halves that something else reads, and weights that are inputs or go into another
        operator too.
    """

    sentence = "what a Conv makes is cut in halves, so that the activation of one is no part of it"
    anchors = ("Conv",)

    def match(self, node: ir.Node, view: View) -> HalvesSite | None:
        """Return the site if only the two halves of the output's channels are read."""
        output = node.outputs[0]
        halves = _channel_halves(output, view)
        if halves is None or attr_int(node, "group", 1) != 1:
            return None
        if view.shapes.dtype(output) not in FLOATS or _saved_kernels(output, halves) < 1:
            return None
        if not all(is_own_constant(x, view) for x in node.inputs[1:]):
            return None
        cutter = halves[0].producer()
        return None if cutter is None else HalvesSite(cutter, node, halves[1])

    def rewrite(self, match: HalvesSite, op: Builder) -> ir.Value:
        """Build a Conv for each half of the channels, from halves of the weight and the bias."""
        data, weight, *bias = match.conv.inputs
        size = int(str((op.view.shapes.dims(match.second) or (0, 0))[1]))
        halves = []
        with op.inserting_before(match.conv):
            for start in (0, size):
                cut = {0: (start, start + size, 1)}
                constants = [x and build_slice(x, cut, op) for x in (weight, *bias)]
                halves.append(op.clone_node(match.conv, data, *constants))
        first, second = halves
        op.replace_and_remove(match.second, second)
        return first


def _channel_halves(value: ir.Value, view: View) -> tuple[ir.Value, ir.Value] | None:
    """Return the two halves of the channels if nothing else of the tensor is read, or None."""
    readers = {use.node: None for use in value.uses()}
    parts = [part for reader in readers for part in reader.outputs]
    if len(parts) != 2 or any(x.is_graph_output() or not x.uses() for x in (value, *parts)):
        return None
    halves: dict[int, ir.Value] = {}
    for part in parts:
        cut = half_cut_of(part, view)
        if cut is not None and _cuts_channels_only(cut[0]):
            halves[cut[1]] = part
    return (halves[0], halves[1]) if len(halves) == 2 else None


def _saved_kernels(value: ir.Value, halves: tuple[ir.Value, ir.Value]) -> int:
    """Return the kernels saved: the cuts, and activations that become part of a Conv, less one."""
    readers = {use.node for use in value.uses()}
    users = [use.node for half in halves for use in half.uses() if len(half.uses()) == 1]
    return len(readers) + sum(x in ACTIVATIONS_TAKEN["Conv"] for x in users) - 1


def _cuts_channels_only(half: HalfCut) -> bool:
    """Return whether the tensor is cut along its channels, and no further."""
    return half.axis == 1 and not half.other_cuts
