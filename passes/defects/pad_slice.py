"""pad-slice: the manual is the docstring of the class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.pads import can_split_pads, has_negative_pad, may_be_negative, pad_mode, pads_of
from graphfix.facts.shapes import Dim
from graphfix.facts.view import View
from graphfix.graph.constants import const_of, ints_of
from graphfix.graph.nodes import input_at, is_op, producer_of
from graphfix.ops.slices import Cut, cuts_of_slice

from ..common.cuts import build_slice
from ..common.fusible import only_user

_END = np.iinfo(np.int64).max
_PAST_END = np.iinfo(np.int32).max


@dataclass(frozen=True)
class CropSite(Match):
    """A Pad with negative pads.

    Attributes:
        data: The tensor that is padded.
        pads: The pads before each axis, then those behind each.
        axes: The axes that they are for.
        opset: The opset of the node.
        dynamic_pads: The tensor of pads, if one of them follows a size.
    """

    data: ir.Value
    pads: tuple[Dim, ...]
    axes: tuple[int, ...]
    opset: int
    dynamic_pads: ir.Value | None = None


@dataclass(frozen=True)
class PadSlice(NodePass[CropSite]):
    """Replaces negative pads, which crop, with a Slice.

    A constant Pad of a Slice that leaves out the first or the last of an axis is such a Pad in two
    steps, as MobileBERT lays its neighbours beside each token; there the Pad comes first as well.

    Why:
        torch's F.pad(x, (-1, 1)) moves a sequence to the left. DirectML's pads have no sign. Run on
        onnxruntime-directml 1.24.4, opset 11 to 21: with a constant or the edge, what comes out is
        wrong, in silence, where something is cut in front: 1 to 8 without the first is 8 seven
        times with the edge, and 0 with a constant. With wrap it is wrong where an axis is both cut
        and padded. Other cuts came out right; none should rest on it, and a Slice is no dearer.
        Before opset 11 DirectML refuses negative pads, and the node runs on the CPU. Pads may
        follow a size: the text encoder of a VITS pads its table of relative positions by S - 5, and
        at one to four frames its outputs were off by 0.09 to 0.16 (of 2.7), in float32 as well.
        Of an empty tensor a Pad is not written at all: what lay in memory comes out. MobileBERT is
        off by 0.012 at one token, where its Slice leaves nothing.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        shift (float[B, C, T] x) => (float[B, C, T] y, float[B, C, U] z)
        <int64[6] ahead = {0, 0, -1, 0, 0, 1}, int64[6] crop = {0, 0, -1, 0, 0, -2}>
        {
            y = Pad (x, ahead)
            z = Pad <mode = "edge"> (x, crop)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        shift (float[B, C, T] x) => (float[B, C, T] y, float[B, C, U] z)
        <
            int64[6] behind = {0, 0, 0, 0, 0, 1}, int64[1] axis = {2}, int64[1] one = {1},
            int64[1] end = {9223372036854775807}, int64[1] less_two = {-2}
        >
        {
            longer = Pad (x, behind)
            y = Slice (longer, one, end, axis)
            z = Slice (x, one, less_two, axis)
        }

    Left alone:
        A Pad whose mode is a parameter, "its attributes are parameters of the local function":
        <
            ir_version: 8,
            opset_import: ["" : 17, "f" : 1]
        >
        call (float[N] x) => (float[M] y)
        {
            y = f.crop <how = "edge"> (x)
        }
        <domain: "f", opset_import: ["" : 17]>
        crop <how> (x) => (y)
        {
            p = Constant <value = int64[2] {-1, 2}> ()
            y = Pad <mode: string = @how> (x, p)
        }

    Safety:
        Exact. With a constant the padding comes first and the cut after it; with copies (edge,
        reflect, wrap) the cut comes first, since they copy what is left: so ONNX Runtime computes
        it on the CPU. Where more is cut than there is, ONNX Runtime refuses to run the Pad, and the
        Slice gives an empty tensor; where nothing is left to copy, it refuses both. Pads that
        TorchScript's exporter computes from constants are seen. Those that follow a size, and are
        below 0 where it is 1 to 4, are split in a run into what is added and what is cut. Where a
        Slice leaves out one of an axis that has none, the Pad of it made one row, and makes none.
        Refused, with the reason: pads of which nothing is known, copies by pads that follow a size,
        axes that are known only in a run, and a mode that is a parameter of a local function.
    """

    anchors = ("Pad",)

    def match(self, node: ir.Node, view: View) -> CropSite | Skip | None:
        """Return the site if a Pad has, or may have, a pad below 0."""
        data, pads = node.inputs[0], pads_of(node, view)
        if data is None:
            return None
        is_dynamic = pads is None or not all(isinstance(x, int) for x in pads)
        if const_of(data) is not None and not is_dynamic:
            return None  # it is padded when the model is loaded
        if any(x.is_ref() for x in node.attributes.values()):
            return Skip(node, "its attributes are parameters of the local function it is in")
        if pads is None:
            return Skip(node, "its pads are known only in a run; were one below 0, it would cut")
        if not has_negative_pad(pads) and not any(map(may_be_negative, pads)):
            return _match_slice_then_pad(node, pads, view)
        opset, dynamic_pads = view.opset_of_node(node), node.inputs[1] if is_dynamic else None
        if not can_split_pads(node, pads, opset):
            return Skip(node, "it cuts, but one of its pads follows a size: write a Slice")
        axes_input = input_at(node, 3)
        axes = tuple(range(len(pads) // 2)) if axes_input is None else ints_of(axes_input)
        if axes is None:
            return Skip(node, "it cuts, but its axes are known only in a run")
        return CropSite(node, data, pads, axes, opset, dynamic_pads)

    def message(self, site: Match) -> str:
        """Describe what DirectML gets wrong."""
        if isinstance(site, CropSite) and site.data is not site.node.inputs[0]:
            return "a Slice may leave nothing to pad: DirectML does not write the padding then"
        return "Pad cuts with negative pads: DirectML's have no sign, and numbers are lost"

    def rewrite(self, match: CropSite, op: Builder) -> ir.Value:
        """Build ``Slice(Pad(x))`` for a constant, ``Pad(Slice(x))`` for copies."""
        if match.dynamic_pads is not None:
            return _crop_at_run_time(match, match.dynamic_pads, op)
        pads = tuple(x for x in match.pads if isinstance(x, int))
        if pad_mode(match.node) == "constant":
            return _crop_data(_pad_data(match.data, pads, match, op), pads, match, op)
        return _pad_data(_crop_data(match.data, pads, match, op), pads, match, op)


def _match_slice_then_pad(node: ir.Node, pads: Sequence[Dim], view: View) -> CropSite | None:
    """Return a Slice of one element off an axis, and the Pad behind it, as one Pad; or None."""
    cut, rank = producer_of(node.inputs[0]), len(pads) // 2
    if pad_mode(node) != "constant" or not is_op(cut, "Slice") or only_user(cut) is not node:
        return None
    cuts, data = cuts_of_slice(cut, rank), cut.inputs[0]
    dims = view.shapes.dims(data)
    if cuts is None or data is None or dims is None or len(dims) != rank or input_at(node, 3):
        return None
    if all(isinstance(dims[axis], int) for axis in cuts):
        return None
    merged_pads = _pads_with_cuts(pads, cuts)
    if merged_pads is None:
        return None
    return CropSite(node, data, merged_pads, (*range(rank),), view.opset_of_node(node))


def _pads_with_cuts(pads: Sequence[Dim], cuts: Mapping[int, Cut[int]]) -> tuple[Dim, ...] | None:
    """Return pads that cut off the first or the last element themselves, or None.

    Longer cuts are no pads: they may be longer than the axis, and then less is padded.
    """
    merged_pads, rank = list(pads), len(pads) // 2
    for axis, (start, end, step) in cuts.items():
        leaves_out_last = (start, end) == (0, -1)
        leaves_out_first = start == 1 and end >= _PAST_END
        place = axis + rank if leaves_out_last else axis
        if not (leaves_out_first or leaves_out_last) or step != 1 or merged_pads[place] != 0:
            return None
        merged_pads[place] = -1
    return tuple(merged_pads)


def _crop_at_run_time(match: CropSite, pads: ir.Value, op: Builder) -> ir.Value:
    """Build ``Slice(Pad(x, max(pads, 0)), -min(pads, 0))``, for cuts known only in a run."""
    zero, half = np.array(0, np.int64), len(match.pads) // 2
    below = [may_be_negative(x) or (isinstance(x, int) and x < 0) for x in match.pads]
    cut = [i for i in range(half) if below[i] or below[i + half]]
    more = op.build_once(("more", pads), lambda: op.Max(pads, zero), pads)
    less = op.build_once(("less", pads), lambda: op.Min(pads, zero), pads)
    key = (less, *cut)

    def build_starts() -> ir.Value:
        return op.Neg(op.Gather(less, np.array(cut, np.int64), axis=0))

    def build_ends() -> ir.Value:
        behind = op.Gather(less, np.array(cut, np.int64) + half, axis=0)
        return op.Where(op.Equal(behind, zero), np.array(_END, np.int64), behind)

    padded = op.clone_node(match.node, match.data, more, *match.node.inputs[2:])
    axes = np.array([match.axes[i] for i in cut], np.int64)
    start, end = (
        op.build_once(("starts", *key), build_starts, less),
        op.build_once(("ends", *key), build_ends, less),
    )
    return op.Slice(padded, start, end, axes)


def _crop_data(data: ir.Value, pads: Sequence[int], match: CropSite, op: Builder) -> ir.Value:
    """Build the Slice that the negative pads stand for."""
    half = len(pads) // 2
    ends = zip(match.axes, pads[:half], pads[half:], strict=True)
    cuts = {i: (max(0, -a), min(0, b) or _END, 1) for i, a, b in ends if min(a, b) < 0}
    return build_slice(data, cuts, op)


def _pad_data(data: ir.Value, pads: Sequence[int], match: CropSite, op: Builder) -> ir.Value:
    """Build the Pad that the positive pads stand for."""
    added = [max(0, x) for x in pads]
    if not any(added):
        return data
    if match.opset >= 11:
        return op.clone_node(match.node, data, np.array(added, np.int64), *match.node.inputs[2:])
    attributes = {name: x.value for name, x in match.node.attributes.items()}
    return op.Pad(data, **{**attributes, "pads": added})
