"""slice-gate: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, is_op
from graphfix.ops.op_set import qualified_name

from ..common.cuts import build_slice

_ROTARY = "com.microsoft.RotaryEmbedding"
_TURNED = "DirectML turns the first part of it in place of a later one: wrong numbers"


@dataclass(frozen=True)
class SliceGate(NodePass[Match]):
    """Replaces a Split with Slices, where DirectML mixes up its parts: gates, rotary embeddings.

    A gated linear unit, `torch.nn.functional.glu`, is a Split, the Sigmoid of its second part, and
    a Mul with the first. Conformers have one in each layer.

    Why:
        DirectML computes x * Sigmoid(x) by one kernel. It also takes a * Sigmoid(b) for that where
        a and b are parts of one Split: b * Sigmoid(b) comes out, without an error. Run on
        onnxruntime-directml 1.24.4, on its software driver and on an NVIDIA H100: only where sizes
        are fixed, by the model or by the session, since then nodes are compiled together; without
        ONNX Runtime's own optimizations, too. A Conformer of 12 layers was off by 5.7 of 4.4. Right
        are Slices, a gate whose first part goes through a Tanh (WaveNet), and a Swish of one part.
        And it reads a RotaryEmbedding of a later part of a Split from the first part on, as of keys
        behind queries in one product: off by 3.6 of two parts, by 5.1 of three; a Slice is right
        (run on onnxruntime-directml 1.24.4, on its software driver).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        gate (float[B, 4, T] x) => (float[B, 2, T] y)
        {
            first, second = Split <axis = 1, num_outputs = 2> (x)
            gate = Sigmoid (second)
            y = Mul (first, gate)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        gate (float[B, 4, T] x) => (float[B, 2, T] y)
        <int64[1] none = {0}, int64[1] two = {2}, int64[1] one = {1}, int64[1] four = {4}>
        {
            first = Slice (x, none, two, one)
            second = Slice (x, two, four, one)
            gate = Sigmoid (second)
            y = Mul (first, gate)
        }

    Left alone:
        A half that goes through another function first:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        gate (float[B, 6, T] x) => (float[B, 3, T] y)
        {
            a, b = Split <axis = 1> (x)
            g = Relu (b)
            y = Mul (a, g)
        }

    Safety:
        Exact: the same elements. It costs a kernel at each gate that split-gate does not take. A
        Split is left as it is where a part is as long as the input says, since a Slice of constants
        could not cut it.
    """

    sentence = (
        "at fixed sizes, DirectML takes both parts for one tensor and gates one with itself: wrong "
        "numbers"
    )
    anchors = ("Split",)

    def match(self, node: ir.Node, view: View) -> Match | None:
        """Return the site if a Split of known sizes gates one part with another, or turns one."""
        is_static = all(isinstance(x, int) for x in _part_sizes(node, view))
        return Match(node) if is_static and _problem_of(node) else None

    def message(self, site: Match) -> str:
        """Describe which of its parts DirectML takes for another."""
        return _problem_of(site.node)

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        """Build a Slice for each part, and return the first."""
        axis, ends = attr_int(match.node, "axis", 0), [0]
        for size in _part_sizes(match.node, op.view):
            ends.append(ends[-1] + int(str(size)))
        cuts = [{axis: (start, end, 1)} for start, end in pairwise(ends)]
        first, *other_parts = [build_slice(match.node.inputs[0], x, op) for x in cuts]
        for part, piece in zip(match.node.outputs[1:], other_parts, strict=True):
            op.replace_and_remove(part, piece)
        return first


def _part_sizes(split: ir.Node, view: View) -> list[Dim | None]:
    """Return how long each part is; None where unknown."""
    axis = attr_int(split, "axis", 0)
    return [None if x is None else x[axis] for x in map(view.shapes.dims, split.outputs)]


def _problem_of(split: ir.Node) -> str:
    """Return what DirectML mixes up, or an empty string."""
    problem = ""
    for place, part in enumerate(split.outputs):
        readers = [x.node for x in part.uses()]
        if _gates_other_part(part, readers):
            return SliceGate.sentence
        if place and any(qualified_name(x) == _ROTARY and x.inputs[0] is part for x in readers):
            problem = _TURNED
    return problem


def _gates_other_part(part: ir.Value, readers: Sequence[ir.Node]) -> bool:
    """Return whether its Sigmoid is multiplied with another part of the same Split."""
    gates = [x.outputs[0] for x in readers if is_op(x, "Sigmoid")]
    products = [x.node for gate in gates for x in gate.uses() if is_op(x.node, "Mul")]
    factors = [x for product in products for x in product.inputs if x is not part and x is not None]
    return any(x.producer() is part.producer() for x in factors)
