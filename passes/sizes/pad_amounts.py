"""pad-amounts: the manual is the docstring of the class."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.pads import pads_of
from graphfix.facts.shapes import Dim
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import input_at, is_op
from graphfix.graph.walks import reachable_from

from ..common.writable_size import WritableSize, writable_size_of

_ASSUMPTION = "rests on lengths of at most a million, which float32 counts without a gap"


@dataclass(frozen=True)
class AmountSite(Match):
    """A Pad whose amounts are computed in floats, though integers can express them.

    Attributes:
        pads: The amounts before each axis, then those behind each.
    """

    pads: tuple[WritableSize, ...]


@dataclass(frozen=True)
class PadAmounts(NodePass[AmountSite]):
    """Replaces pads that are computed in floats with constants or sums of integers.

    Numbers where they are always the same; if all are 0, the Pad goes. Where they follow the
    length, as what fills it up to a multiple of a stride does, they are computed from it again, in
    integers. So it is in each mode, at both ends, and for each axis.

    Why:
        Causal convolutions of speech decoders (EnCodec, Mimi, Qwen3-TTS) pad by
        `ceil((T - kernel + padding) / stride + 1)` frames less T, which for a stride of 1 is 0 at
        any T, but is computed for each of them, in ten nodes, through floats. Run on
        onnxruntime-directml 1.24.4, the decoder of Qwen3-TTS (dynamo, opset 18, batch of 1) ends
        in 80070057 at the first Pad after a ConvTranspose: the amount it gets is -1096810482
        instead of 0. The ten nodes run on the CPU, and each gives the right number if it is an
        output; but where the length is read again at the end, 4 of its 8 bytes hold the 14.0 of
        a float in between. With a Gather in the place of the Squeeze all is right, and so it is
        with integers in the place of the floats, or with numbers: Squeeze hands on the memory of
        the Shape, which seems to be given away before its last reader. No smaller graph was found
        that fails, and the same decoder runs at opset 20 and with an open batch. The ten nodes for
        each of 17 Pads go, too, and 6 of the Pads: 519 nodes become 323. The code-to-wave decoder
        of Qwen3-Omni (transformers, dynamo, opset 18, batch of 1) ends so as well, with strides of
        1 and with strides of 2 and 3 put in; with numbers for the first, and integers that follow
        the length for the others, both run there and agree to 2e-8. A Pad with amounts that are
        integers computed in a run was no trouble: six were tried there, at opsets 18, 19 and 23
        and at lengths that change.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        causal (float[B, C, T] x) => (float[B, C, U] y, float[B, C, V] z, float[B, C, W] w)
        <int64 axis = {0}, int64[1] none = {0}, int64[1] left = {2}, int64 one = {1},
         float half = {0.5}, float unit = {1}, int64[1] flat = {-1}, float two = {2},
         int64 stride = {2}>
        {
            shape = Shape <start = 2, end = 3> (x)
            t = Squeeze (shape)
            before = Sub (t, one)
            before_float = Cast <to = 1> (before)
            frames = Add (before_float, unit)
            up = Ceil (frames)
            ideal = Cast <to = 7> (up)
            extra = Sub (ideal, t)
            behind = Reshape (extra, flat)
            some = Concat <axis = 0> (none, none, left, none, none, behind)
            y = Pad (x, some)
            nothing = Concat <axis = 0> (none, none, none, none, none, behind)
            less = Relu (x)
            padded = Pad (less, nothing)
            z = Relu (padded)
            t_float = Cast <to = 1> (t)
            halves = Div (t_float, two)
            whole = Ceil (halves)
            strides = Cast <to = 7> (whole)
            even = Mul (strides, stride)
            odd = Sub (even, t)
            rest = Reshape (odd, flat)
            filling = Concat <axis = 0> (none, none, none, none, none, rest)
            w = Pad <mode = "edge"> (x, filling)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        causal (float[B, C, T] x) => (float[B, C, U] y, float[B, C, V] z, float[B, C, W] w)
        <int64[6] some = {0, 0, 2, 0, 0, 0}, int64[5] five = {0, 0, 0, 0, 0},
         int64[1] ones = {1}, int64[1] twos = {2}, int64[1] minus = {-1}>
        {
            y = Pad (x, some)
            less = Relu (x)
            z = Relu (less)
            size = Shape <start = 2, end = 3> (x)
            back = Mul (size, minus)
            more = Add (size, ones)
            pairs = Div (more, twos)
            full = Mul (pairs, twos)
            gap = Add (back, full)
            amounts = Concat <axis = 0> (five, gap)
            w = Pad <mode = "edge"> (x, amounts)
        }

    Left alone:
        Amounts that are rounded in floats, where no tensor has the length, "no integers say the
        same":
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        pad (float[B, 2, T] x) => (float[B, 2, U] y)
        <int64[1] none = {0}, int64[1] two = {2}, float[1] e = {2.7182817}, int64[1] four = {4}>
        {
            shape = Shape (x)
            length = Gather <axis = 0> (shape, two)
            f = Cast <to = 1> (length)
            some = Div (f, e)
            up = Ceil (some)
            n = Cast <to = 7> (up)
            m = Mul (n, four)
            behind = Sub (m, length)
            amounts = Concat <axis = 0> (none, none, none, none, none, behind)
            y = Pad <mode = "constant"> (x, amounts)
        }

    Safety:
        Conditional: the same for lengths of 1 to a million. Beyond 16,777,216 float32 has gaps, and
        the amounts that it gives there are wrong: a length that is too long by what it was rounded
        by. Amounts that are computed in integers only are the business of fold, if they are always
        the same, and are skipped if they follow the length. Amounts below 0 stay so: see
        pad-slice. Refused, with the reason: floats that round some lengths otherwise than integers
        do, amounts of two lengths at once; Pads in local functions, whose shapes depend on the
        call.
    """

    sentence = "Pad's amounts go through floats: DirectML was seen to get others, with 80070057"
    safety = "conditional"
    anchors = ("Pad",)
    # What the Pad makes has a size now, and with it all that comes after.
    keeps_shapes = False

    def match(self, node: ir.Node, view: View) -> AmountSite | Skip | None:
        """Return the site if integers can replace amounts that are computed in floats."""
        amounts = input_at(node, 1)
        if node.inputs[0] is None or amounts is None or not _is_computed(amounts):
            return None
        pad_dims = pads_of(node, view)
        if _are_numbers(pad_dims):
            return None  # fold writes them
        if view.in_function(node):
            return Skip(node, "its amounts depend on the call of the local function it is in")
        usual = view.usual_shapes.known_elements(amounts)
        if usual is None:
            reason = "its amounts are known only in a run"
            return Skip(node, reason) if pad_dims is None else None
        if not _are_numbers(usual) and not _goes_through_floats(amounts, view):
            return None  # integers that follow the length: DirectML gets what they are
        pads = _writable_amounts(usual, amounts, view)
        if isinstance(pads, str):
            return Skip(
                node, f"its amounts go through floats, and no integers say the same: {pads}"
            )
        return AmountSite(node, pads, note=_ASSUMPTION)

    def rewrite(self, match: AmountSite, op: Builder) -> ir.Value:
        """Build the same Pad with integer amounts, or return its data if all are 0."""
        data, _, *other_inputs = match.node.inputs
        numbers = [x.dim for x in match.pads if isinstance(x.dim, int)]
        is_constant = len(numbers) == len(match.pads)
        if data is not None and is_constant and not any(numbers):
            return data
        amounts = np.array(numbers, np.int64) if is_constant else _concat_amounts(match.pads, op)
        return op.clone_node(match.node, data, amounts, *other_inputs)


def _concat_amounts(pads: tuple[WritableSize, ...], op: Builder) -> ir.Value:
    """Build the amounts as one int64 vector, adjacent numbers as one constant."""
    parts: list[ir.Value] = []
    for is_number, group in groupby(pads, key=lambda x: isinstance(x.dim, int)):
        if is_number:
            parts.append(op.constant(np.array([x.dim for x in group], np.int64)))
        else:
            parts += [x.build_node(op) for x in group]
    return op.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]


def _writable_amounts(
    dims: Sequence[Dim], amounts: ir.Value, view: View
) -> tuple[WritableSize, ...] | str:
    """Return how each amount can be built from integers, or why one of them cannot."""
    tensors = [*view.model.graph.inputs, *_size_sources(amounts)]
    sizes: list[WritableSize] = []
    for dim in dims:
        size = writable_size_of(dim, tensors, view.usual_shapes)
        if isinstance(size, str):
            return size
        sizes.append(size)
    return tuple(sizes)


def _are_numbers(dims: Sequence[Dim] | None) -> bool:
    return dims is not None and all(isinstance(x, int) for x in dims)


def _is_computed(amounts: ir.Value) -> bool:
    """Return whether amounts are neither constant nor an input of the graph."""
    return amounts.producer() is not None and const_of(amounts) is None


def _amount_nodes(value: ir.Value) -> Iterator[ir.Node]:
    """Return the nodes that compute the amounts, back to the Shapes."""
    return reachable_from(
        [value.producer()], lambda x: () if x in ops.MEASURES else x.predecessors()
    )


def _goes_through_floats(value: ir.Value, view: View) -> bool:
    """Return whether an amount is computed in floats."""
    outputs = (x for node in _amount_nodes(value) for x in node.outputs)
    return any((view.shapes.dtype(x) or ir.DataType.INT64).is_floating_point() for x in outputs)


def _size_sources(value: ir.Value) -> list[ir.Value]:
    """Return the tensors whose sizes the amounts follow."""
    sources = (node.inputs[0] for node in _amount_nodes(value) if is_op(node, "Shape"))
    return [x for x in sources if x is not None]
