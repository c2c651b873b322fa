"""split-gate: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, is_op

from ..common.cuts import HalfCut, build_slice, half_cut_of
from ..common.fusible import FLOATS, is_own_constant

# DirectML makes one operator of a Conv and of such an activation after it.
_ACTIVATIONS = ("Sigmoid", "Tanh", "Relu", "LeakyRelu", "HardSigmoid", "Elu", "Softplus")


@dataclass(frozen=True)
class HalvesSite(Match):
    """What cuts the first half of what a Conv makes.

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

    Safety:
        Exact: each number is the same sum. The input is read twice. Left as they are: a Conv in
        groups, halves that something else reads, and weights that are inputs or go into another
        operator too.
    """

    sentence = "what a Conv makes is cut in halves, so that the activation of one is no part of it"
    anchors = ("Conv",)

    def match(self, node: ir.Node, view: View) -> HalvesSite | None:
        """A Conv that nothing reads but what cuts its channels in two."""
        whole = node.outputs[0]
        readers = {use.node: None for use in whole.uses()}
        parts = [x for reader in readers for x in reader.outputs]
        halves = {
            x[1]: part for part in parts if (x := half_cut_of(part, view)) and _is_whole(x[0])
        }
        if len(parts) != 2 or len(halves) != 2 or attr_int(node, "group", 1) != 1:
            return None
        if any(x.is_graph_output() or not x.uses() for x in (whole, *parts)):
            return None
        users = [use.node for x in parts for use in x.uses() if len(x.uses()) == 1]
        spared = len(readers) + sum(is_op(x, *_ACTIVATIONS) for x in users) - 1
        if spared < 1 or view.shapes.dtype(whole) not in FLOATS:
            return None
        if not all(is_own_constant(x, view) for x in node.inputs[1:]):
            return None
        first = halves[0].producer()
        return None if first is None else HalvesSite(first, node, halves[1])

    def rewrite(self, match: HalvesSite, op: Builder) -> ir.Value:
        """The first half, after the second."""
        data, weight, *bias = match.conv.inputs
        size = int(str((op.view.shapes.dims(match.second) or (0, 0))[1]))
        made = []
        with op.inserting_before(match.conv):
            for start in (0, size):
                cut = {0: (start, start + size, 1)}
                own = [x and build_slice(x, cut, op) for x in (weight, *bias)]
                made.append(op.clone_node(match.conv, data, *own))
        first, second = made
        op.replace_and_remove(match.second, second)
        return first


def _is_whole(half: HalfCut) -> bool:
    """Whether it is cut along the channels, and no further."""
    return half.axis == 1 and not half.other_cuts
