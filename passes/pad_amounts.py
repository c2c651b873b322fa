"""pad-amounts: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphfix.core import Match, NodePass, Safety, Skip
from graphfix.model.pads import pads_of
from graphfix.model.values import const_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.build import Builder
    from graphfix.model.view import View

_RESTS = "rests on lengths of at most a million, which float32 counts without a gap"


@dataclass(frozen=True)
class AmountSite(Match):
    """A Pad whose amounts come to the same numbers at each length.

    Attributes:
        pads: The numbers: what is put in front of each axis, then what is put behind each.
    """

    pads: tuple[int, ...]


@dataclass(frozen=True)
class PadAmounts(NodePass[AmountSite]):
    """A Pad whose amounts are computed by way of floats, and always the same, gets them as numbers.

    If they are all 0, the Pad goes.

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
        each of 17 Pads go, too, and 6 of the Pads: 519 nodes become 323.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        causal (float[B, C, T] x) => (float[B, C, U] y, float[B, C, V] z)
        <int64 axis = {0}, int64[1] none = {0}, int64[1] left = {2}, int64 one = {1},
         float half = {0.5}, float unit = {1}, int64[1] flat = {-1}>
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
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        causal (float[B, C, T] x) => (float[B, C, U] y, float[B, C, V] z)
        <int64[6] some = {0, 0, 2, 0, 0, 0}>
        {
            y = Pad (x, some)
            less = Relu (x)
            z = Relu (less)
        }

    Safety:
        Conditional: the same for lengths of 1 to a million. Beyond 16,777,216 float32 has gaps, and
        the amounts that it gives there are wrong: a length that is too long by what it was rounded
        by. Amounts that are computed in integers only are the business of fold. Refused, with the
        reason: amounts that follow the length, such as what fills it up to a multiple of the
        stride; Pads in local functions, whose shapes depend on the call.
    """

    name: ClassVar[str] = "pad-amounts"
    safety: ClassVar[Safety] = "conditional"
    anchors: ClassVar[tuple[str, ...]] = ("Pad",)
    # What the Pad makes has a size now, and with it all that comes after.
    keeps_shapes: ClassVar[bool] = False

    def match(self, node: ir.Node, view: View) -> AmountSite | Skip | None:
        """A Pad whose amounts are not known until lengths are taken to be usual ones."""
        data, given = (*node.inputs, None)[:2]
        if data is None or given is None or const_of(given) is not None:
            return None
        known = pads_of(node, view)
        if known is not None and all(isinstance(x, int) for x in known):
            return None  # fold writes them
        if given.producer() is None:
            return None  # an input of the graph
        if view.in_function(node):
            return Skip(node, "its amounts depend on the call of the local function it is in")
        usual = view.usual.data(given)
        if usual is None:
            return None if known is not None else Skip(node, "its amounts are known only in a run")
        pads = tuple(x for x in usual if isinstance(x, int))
        if len(pads) < len(usual):
            return Skip(node, "its amounts differ from length to length: fix the length (fix-dims)")
        return AmountSite(node, pads, note=_RESTS)

    def message(self, site: Match) -> str:
        """What goes wrong."""
        return "Pad's amounts go through floats: DirectML was seen to get others, with 80070057"

    def rewrite(self, match: AmountSite, op: Builder) -> ir.Value:
        """The same Pad with numbers, or what it was given."""
        data, _, *rest = match.node.inputs
        if data is not None and not any(match.pads):
            return data
        given = {name: x.value for name, x in match.node.attributes.items()}
        return op.Pad(data, np.array(match.pads, np.int64), *rest, **given)
